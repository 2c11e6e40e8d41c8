"""Which of the annotated videos are in a folder, and which of these cannot be read."""

import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from hf_datasets.long_videos import damage_of
from hf_datasets.video import VideoStore
from hf_datasets.video.frame_folder import is_frame

UNFINISHED_DOWNLOADS = (".part", ".ytdl", ".crdownload", ".download", ".partial", ".aria2", ".tmp")
"""Extensions of downloads that have not ended."""
PICTURE_FILE = re.compile(r"\.(?:jpe?g|png|bmp|webp|tiff?)$", re.IGNORECASE)
THREADS = 8


@dataclass
class Videos:
    """What was found for the items of a part.

    Attributes:
        items: How many clips, pairs, videos or moments have one readable video.
        found: Paths of the videos of items.
        missing: Ids of videos without a file.
        ambiguous: Ids with several files.
        damaged: Path -> why it cannot be read.
        gigabytes: Of the videos that were found.
    """

    items: int = 0
    found: set[Path] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)
    ambiguous: list[str] = field(default_factory=list)
    damaged: dict[Path, str] = field(default_factory=dict)
    gigabytes: float = 0.0

    @property
    def of_all(self) -> int:
        """How many videos there should be."""
        return len(self.found) + len(self.missing) + len(self.ambiguous)

    @property
    def gigabytes_of_all(self) -> float:
        """What all of them would take, if those that are not there are as large on average."""
        return self.gigabytes * self.of_all / max(len(self.found), 1)

    @property
    def record(self) -> dict[str, Any]:
        """As `results.json` holds it."""
        named = {name: getattr(self, name) for name in ("items", "gigabytes", "missing", "ambiguous")}
        return named | {"found": len(self.found), "damaged": {str(path): why for path, why in self.damaged.items()}}


class Folder:
    """A folder of videos; each file is opened once.

    Args:
        root: The folder.
    """

    def __init__(self, root: str) -> None:
        self.store = VideoStore(root)
        self.damage: dict[Path, str | None] = {}

    def look(self, items: Sequence[tuple[str, ...]]) -> Videos:
        """Find the videos of items, each under the first of its ids that has a file, and open their headers."""
        coverage = self.store.coverage(video_id for ids in items for video_id in ids)
        there = {video_id: self.store.path(video_id) for video_id in coverage.found}
        several, found = set(coverage.ambiguous), Videos()
        paths = [next((there[video_id] for video_id in ids if video_id in there), None) for ids in items]
        found.found = {path for path in paths if path}
        self.open(found.found)
        found.damaged = {path: why for path in sorted(found.found) if (why := self.damage[path])}
        found.items = sum(path is not None and path not in found.damaged for path in paths)
        lost = dict.fromkeys(ids for ids, path in zip(items, paths, strict=True) if not path)
        found.ambiguous = list(dict.fromkeys(one for ids in lost for one in ids if one in several))
        found.missing = list(dict.fromkeys(ids[-1] for ids in lost if not several.intersection(ids)))
        found.gigabytes = sum(map(video_bytes, found.found)) / 1e9
        return found

    def open(self, paths: Iterable[Path]) -> None:
        """Open the headers of files that were not opened yet."""
        todo = sorted({*paths} - self.damage.keys())
        with ThreadPoolExecutor(THREADS) as pool:
            answers = tqdm(pool.map(damage_of, todo), "opening videos", len(todo), unit="video", disable=None)
            self.damage |= dict(zip(todo, answers, strict=True))

    def odd_files(self) -> dict[str, list[str]]:
        """Downloads that have not ended, and folders of pictures that are not numbered as frames are."""
        unfinished, unnamed = [], []
        for folder, _, names in os.walk(self.store.root):
            unfinished += [str(Path(folder, name)) for name in names if name.endswith(UNFINISHED_DOWNLOADS)]
            pictures = [name for name in names if PICTURE_FILE.search(name)]
            if pictures and not any(map(is_frame, names)):
                unnamed.append(f"{folder} ({min(pictures)})")
        return {
            "downloads that have not ended; fetch them again": unfinished,
            "folders of pictures that are not read; name them 00001.jpg, 00002.jpg, ...": unnamed,
        }


def video_bytes(path: Path) -> int:
    """Bytes of a file, or of the frames in a folder."""
    return sum(one.stat().st_size for one in path.iterdir()) if path.is_dir() else path.stat().st_size
