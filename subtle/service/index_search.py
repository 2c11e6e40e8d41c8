"""Moments of an index, for the page: to choose from, to filter by, and those that fit a query best."""

from collections import Counter
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from hf_models.index.matrix import COLUMNS
from hf_models.index.search import checked_rows, search_moments
from hf_models.index.store import quoted
from subtle.index import Index
from subtle.service.media import Footage, Media
from subtle.service.searching import MomentSearch, evenly_chosen

MAX_NAMES = 2000
"""Folders or labels to choose from."""
ROWS_TO_CHOOSE_FROM = 2000
SEARCHED = "contains(lower(coalesce(label, '') || ' ' || coalesce(text, '') || ' ' || video), {})"


class IndexSearch(MomentSearch):
    """A model of an index and what it finds."""

    def __init__(self, opened: Index, media: Media) -> None:
        super().__init__(opened.loaded(), media, PurePosixPath(opened.model.name).name)
        self.opened = opened
        self.index, self.model = opened.store, opened.model
        self.names: tuple[int, list[str], list[str]] = (-1, [], [])

    def folders_and_labels(self) -> tuple[list[str], list[str]]:
        """See `MomentSearch`; of too many the most frequent ones."""
        table = self.index.moments(self.model.key)
        if table.version != self.names[0]:
            rows = table.search().select(["video", "label"]).limit(None).to_arrow()
            videos = dict(Counter(checked_rows(self.index.path, rows)["video"].to_pylist()))
            folders: Counter[str] = Counter()
            for video, number in videos.items():
                for parent in PurePosixPath(video).parents:
                    folders[str(parent)] += number
            labels = Counter(label for label in rows["label"].to_pylist() if label)
            del folders["."]
            self.names = (table.version, most_frequent(folders), most_frequent(labels))
        return self.names[1], self.names[2]

    def choices(self, words: str, number: int) -> tuple[list[dict[str, Any]], int]:
        """See `MomentSearch`."""
        table = self.index.moments(self.model.key)
        wanted = words[:200].lower().split()
        if not wanted:
            count = table.count_rows()
            if not count:
                return [], 0
            shown = min(number, count)
            offsets = [place * count // shown for place in range(shown)]
            rows = table.take_offsets(offsets).select(list(COLUMNS)).to_arrow()
            return checked_rows(self.index.path, rows).to_pylist(), count
        condition = " AND ".join(SEARCHED.format(quoted(word)) for word in wanted)
        count = table.count_rows(condition)
        return evenly_chosen(self.opened.rows(condition, ROWS_TO_CHOOSE_FROM), number), count

    def nearest(
        self, vector: np.ndarray, limit: int, *, folder: str | None, label: str | None, exclude_fingerprint: str | None
    ) -> list[dict[str, Any]]:
        """See `MomentSearch`."""
        where = f"label = {quoted(label)}" if label else None
        kept: dict[str, Any] = {"where": where, "folder": folder, "exclude_fingerprint": exclude_fingerprint}
        return search_moments(self.index, self.model, vector, limit=limit, **kept)

    def count(self) -> int:
        """See `MomentSearch`."""
        return len(self.opened)

    def moments_of(self, video: str) -> list[dict[str, Any]]:
        """See `MomentSearch`."""
        return self.opened.rows(f"video = {quoted(video)}")

    def moved(self, vector: np.ndarray, more_like: list[str], less_like: list[str]) -> np.ndarray:
        """See `MomentSearch`."""
        return self.opened.judged(vector, more_like, less_like)

    def trouble_with(self, row: dict[str, Any]) -> str:
        """See `MomentSearch`."""
        path = self.media.path(Footage(row["video"], 0.0, 0.0))
        if str(path.stat().st_size) != (row["fingerprint"] or "").rpartition("-")[2]:
            return f"{row['video']} has changed since it was indexed; run `subtle index` again"
        return ""


def most_frequent(names: Counter[str]) -> list[str]:
    """The names in their order, of too many the most frequent ones."""
    return sorted(name for name, _ in names.most_common(MAX_NAMES))
