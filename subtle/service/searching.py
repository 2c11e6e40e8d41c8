"""The search behind the page: moments to choose from, filters, and the moments that fit a query best."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from threading import Lock
from typing import Any

from hf_models.encoders import Encoder
from hf_models.index.search import COLUMNS, checked, search_moments
from hf_models.index.store import IndexedModel, MomentIndex, quoted
from subtle.service.media import MAX_CLIP_SECONDS, Footage, Media, Upload

MAX_CHARACTERS = 1000
MAX_NAMES = 2000
"""Folders or labels to choose from."""
ROWS_TO_CHOOSE_FROM = 2000
CONTEXT_SECONDS = 3.0
"""What is shown before and after a moment, at least, so that it can be trimmed wider."""
SHORTEST_SECONDS = 0.1
SEARCHED = "contains(lower(coalesce(label, '') || ' ' || coalesce(text, '') || ' ' || video), {})"


@dataclass(frozen=True)
class Query:
    """A query clip: a part of a stretch of footage.

    Attributes:
        stretch: What can be trimmed, as it is in the video.
        copy: Where the page finds it.
        start_seconds: Where the clip starts in the video.
        end_seconds: Where it ends.
        label: What is said of it.
        fingerprint: Of its file; empty where it is not known.
        moment_id: Of a moment of the index.
    """

    stretch: Footage
    copy: str
    start_seconds: float
    end_seconds: float
    label: str = ""
    fingerprint: str = ""
    moment_id: str = ""

    @property
    def clip(self) -> Footage:
        """The part that is searched with."""
        return replace(self.stretch, start_seconds=self.start_seconds, end_seconds=self.end_seconds)

    def trimmed(self, start_seconds: Any, end_seconds: Any) -> "Query":
        """Another part of the same stretch.

        Raises:
            ValueError: It is not within the stretch.
        """
        least, most = self.stretch.start_seconds, self.stretch.end_seconds
        try:
            start, end = max(float(start_seconds), least), min(float(end_seconds), most)
        except (TypeError, ValueError):
            start = end = least
        if not end - start >= SHORTEST_SECONDS * 0.99:  # also of what is not a number
            raise ValueError(f"the clip must have at least {SHORTEST_SECONDS:g} s between {least:.2f} and {most:.2f} s")
        return replace(self, start_seconds=start, end_seconds=end)


class IndexSearch:
    """A model of an index and what it finds.

    Args:
        index: The index.
        model: One of its models.
        encoder: The encoder that made its vectors.
        media: Reads the videos.
    """

    def __init__(self, index: MomentIndex, model: IndexedModel, encoder: Encoder, media: Media) -> None:
        self.index, self.model, self.encoder, self.media = index, model, encoder, media
        self.lock = Lock()  # tokenizers keep settings while they work
        self.names: tuple[int, list[str], list[str]] = (-1, [], [])

    @property
    def reads_texts(self) -> bool:
        """Whether a query can have a text."""
        return self.encoder.reads_texts

    def folders_and_labels(self) -> tuple[list[str], list[str]]:
        """The folders of the videos, and the labels, both ordered; of too many the most frequent ones."""
        table = self.index.moments(self.model.key)
        if table.version != self.names[0]:
            rows = table.search().select(["video", "label"]).limit(None).to_arrow()
            videos = dict(Counter(checked(self.index.path, rows)["video"].to_pylist()))
            folders: Counter[str] = Counter()
            for video, number in videos.items():
                for parent in PurePosixPath(video).parents:
                    folders[str(parent)] += number
            labels = Counter(label for label in rows["label"].to_pylist() if label)
            del folders["."]
            self.names = (table.version, most_frequent(folders), most_frequent(labels))
        return self.names[1], self.names[2]

    def choices(self, words: str, number: int) -> tuple[list[dict[str, Any]], int]:
        """Moments whose label, text or video has all the words, spread over those found; and how many there are."""
        table = self.index.moments(self.model.key)
        wanted = words[:200].lower().split()
        if not wanted:
            count = table.count_rows()
            if not count:
                return [], 0
            shown = min(number, count)
            offsets = [place * count // shown for place in range(shown)]
            rows = table.take_offsets(offsets).select(list(COLUMNS)).to_arrow()
            return checked(self.index.path, rows).to_pylist(), count
        condition = " AND ".join(SEARCHED.format(quoted(word)) for word in wanted)
        count = table.count_rows(condition)
        found = table.search().where(condition).select(list(COLUMNS)).limit(ROWS_TO_CHOOSE_FROM).to_arrow()
        return spread(checked(self.index.path, found).to_pylist(), number), count

    def query_of_moment(self, row: dict[str, Any]) -> Query:
        """A moment as a query, with what is around it.

        Raises:
            VideoError: Its video cannot be read.
        """
        start, end = row["start_seconds"] or 0.0, row["end_seconds"]
        end = start + MAX_CLIP_SECONDS if end is None else min(end, start + MAX_CLIP_SECONDS)
        margin = min(max(CONTEXT_SECONDS, end - start), max(0.0, MAX_CLIP_SECONDS - (end - start)) / 2)
        stretch, copy = self.shown(Footage(row["video"], max(0.0, start - margin), end + margin))
        start = min(max(start, stretch.start_seconds), stretch.end_seconds - SHORTEST_SECONDS)
        label = "  ".join(filter(None, (row["label"], row["text"])))
        end = min(end, stretch.end_seconds)
        return Query(stretch, copy, start, end, label, row["fingerprint"] or "", row["moment_id"])

    def query_of_upload(self, upload: Upload) -> Query:
        """A whole upload as a query.

        Raises:
            VideoError: It cannot be read.
        """
        stretch, copy = self.shown(Footage(upload.name, 0.0, upload.seconds, upload.path))
        return Query(stretch, copy, stretch.start_seconds, stretch.end_seconds, "your clip", upload.fingerprint)

    def shown(self, footage: Footage) -> tuple[Footage, str]:
        """A stretch as its copy shows it, which may end before it was to, and where the page finds that."""
        _, begin, end = self.media.made("clip", footage)
        end = max(begin + SHORTEST_SECONDS, min(end, footage.end_seconds))
        return replace(footage, start_seconds=begin, end_seconds=end), self.media.address("clip", footage)

    def find(
        self,
        query: Query | None,
        text: str,
        *,
        limit: int,
        folder: str | None = None,
        label: str | None = None,
        leave_out_video: bool = False,
        min_score: float | None = None,
    ) -> tuple[list[dict[str, Any]], str]:
        """The best moments without the query's own, best first; and, where there is none, why.

        Raises:
            ValueError: There is neither clip nor text, or the text is too long.
            VideoError: The clip cannot be read.
        """
        text = " ".join((text or "").split())
        if query is None and not text:
            raise ValueError("choose or upload a clip, or write a text")
        if len(text) > MAX_CHARACTERS:
            raise ValueError(f"the text has {len(text)} characters; write at most {MAX_CHARACTERS}")
        if text:
            self.encoder.check_text(text)
        frames = None
        if query is not None:
            frames = self.media.frames(query.clip, self.encoder.num_frames, self.encoder.frame_size)
        with self.lock:
            vector = self.encoder.query(frames, text or None)
        found = search_moments(
            self.index,
            self.model,
            vector,
            limit=limit + 1,
            where=f"label = {quoted(label)}" if label else None,
            folder=folder,
            exclude_fingerprint=query.fingerprint if query is not None and leave_out_video else None,
        )
        others = [row for row in found if query is None or row["moment_id"] != query.moment_id][:limit]
        fitting = [row for row in others if min_score is None or row["score"] >= min_score]
        if fitting:
            return fitting, ""
        if others:
            return [], f"the best score is {others[0]['score']:.2f}, below {min_score:g}"
        filters = [f"in folder “{folder}”"] if folder else []
        filters += [f"labeled “{label}”"] if label else []
        filters += ["outside the query's own video"] if leave_out_video else []
        return [], f"the index holds no other moment {' '.join(filters)}".rstrip()

    def trouble_with(self, row: dict[str, Any]) -> str:
        """Why a found moment cannot be shown; empty where nothing is known against it."""
        path = self.media.path(Footage(row["video"], 0.0, 0.0))
        if str(path.stat().st_size) != (row["fingerprint"] or "").rpartition("-")[2]:
            return f"{row['video']} has changed since it was indexed; run `subtle index` again"
        return ""


def most_frequent(names: Counter[str]) -> list[str]:
    """The names in their order, of too many the most frequent ones."""
    return sorted(name for name, _ in names.most_common(MAX_NAMES))


def spread(rows: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """At most so many, evenly chosen.

    >>> spread([0, 1, 2, 3, 4, 5], 3)
    [0, 2, 4]
    """
    return list(rows) if len(rows) <= most else [rows[place * len(rows) // most] for place in range(most)]
