"""The frames of clips, decoded once into files on disk that later runs and other processes read."""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor
from tqdm import tqdm

from hf_datasets.drafts import replacing, write_json, writing
from hf_datasets.records import ClipRow

from .failures import VideoError
from .frame_folder import version_of
from .pool import NO_FILE, VideoFailure, VideoReaderPool, VideoRequest
from .reading import Spread

CLIPS_PER_FLUSH = 64


class FrameCache:
    """Decoded uint8 frames of clips in one file on disk, shared by all processes that read it.

    Missing clips are decoded when the cache is made; one of several processes decodes, the others wait. A killed run
    resumes where it stopped.

    Args:
        folder: Where caches are kept; each has its own name, a hash of the clips and sizes.
        clips: Rows with `clip_id`, `video`, `start_seconds`, `end_seconds`.
        num_frames: Frames per clip.
        size: Height and width in pixels; frames are stretched to it as `AIMVideoProcessor` does.
        num_workers: Processes that decode, as in `VideoReaderPool`.
        also: Another number of frames per clip, for which the same decoding fills another cache.
        spread: As in `read_frames`.

    Attributes:
        folder: Where this cache is.
        frames: `(clips, num_frames, 3, height, width)` uint8, mapped from disk; zero where a clip cannot be read.
        places: Clip id -> position in `frames`.
        failures: Clip id -> why it could not be read.

    Raises:
        OSError: If the folder cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> clips = [{"clip_id": "dive 1", "video": None, "start_seconds": None, "end_seconds": None}]
        >>> with TemporaryDirectory() as folder:
        ...     cache = FrameCache(Path(folder), clips, 4, (32, 48), num_workers=0)
        ...     cache.frames.shape, cache.failures
        ((1, 4, 3, 32, 48), {'dive 1': 'no video file'})
    """

    def __init__(
        self,
        folder: Path,
        clips: Sequence[ClipRow],
        num_frames: int,
        size: tuple[int, int],
        *,
        num_workers: int,
        also: int | None = None,
        spread: Spread = "middles",
    ) -> None:
        counts = [num_frames] if also is None else [num_frames, also]
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / ".lock").touch()
        with FileLock(folder / ".lock"):  # one process decodes, the others wait
            files = [FrameFile(cache_folder(folder, clips, n, size, spread), len(clips), n, size) for n in counts]
            decode_into([file for file in files if not file.is_complete], clips, size, num_workers, spread)
        self._open(files[0], clips)

    def __getstate__(self) -> dict[str, Any]:
        """Without the frames, which another process maps itself rather than be sent all of them."""
        return vars(self) | {"frames": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.frames = np.load(self.folder / "frames.npy", mmap_mode="r")

    def _open(self, file: "FrameFile", clips: Sequence[ClipRow]) -> None:
        self.folder, self.frames, self.failures = file.folder, file.frames, file.failures
        self.places = {clip["clip_id"]: place for place, clip in enumerate(clips)}

    @classmethod
    def find(
        cls, folder: Path, clips: Sequence[ClipRow], num_frames: int, size: tuple[int, int], spread: Spread = "middles"
    ) -> "FrameCache | None":
        """The cache of exactly these frames if it is complete."""
        place = cache_folder(folder, clips, num_frames, size, spread)
        if not (place / FrameFile.FAILURES).is_file() or FrameFile.is_damaged(place, len(clips), num_frames, size):
            return None
        cache = cls.__new__(cls)  # nothing is to be decoded
        cache._open(FrameFile(place, len(clips), num_frames, size), clips)
        return cache

    def __getitem__(self, clip_id: str) -> Tensor:
        """The frames of a clip, `(num_frames, 3, height, width)` uint8."""
        return self.read(clip_id, slice(None))

    def read(self, clip_id: str, drawn: np.ndarray | slice) -> Tensor:
        """Some frames of a clip, by their numbers; no others are read from the disk."""
        return torch.from_numpy(np.require(self.frames[self.places[clip_id]][drawn], requirements=["O", "W"]))


def cache_folder(
    folder: Path, clips: Sequence[ClipRow], num_frames: int, size: tuple[int, int], spread: Spread = "middles"
) -> Path:
    """Where the frames of these clips are kept below `folder`."""
    rule = [] if spread == "middles" else [spread]
    content = json.dumps([[clip_fingerprint(clip) for clip in clips], num_frames, size, *rule])
    return folder / f"frames-{hashlib.sha256(content.encode()).hexdigest()[:16]}"


class FrameFile:
    """The arrays of one cache, filled with zeros when new, and which of their clips have been decoded.

    Args:
        folder: The cache's own folder; its arrays are made where they are missing.
        num_clips: How many clips it holds.
        num_frames: Frames per clip.
        size: Height and width in pixels.

    Attributes:
        frames: `(num_clips, num_frames, 3, height, width)` uint8.
        done: `(num_clips,)` bool, whether a clip was decoded.
    """

    FAILURES = "failures.json"

    def __init__(self, folder: Path, num_clips: int, num_frames: int, size: tuple[int, int]) -> None:
        self.folder, self.num_frames = folder, num_frames
        if self.is_damaged(folder, num_clips, num_frames, size):
            shutil.rmtree(folder)
        self.frames = self.open("frames", np.uint8, (num_clips, num_frames, 3, *size))
        self.done = self.open("done", np.bool_, (num_clips,))

    @classmethod
    def is_damaged(cls, folder: Path, num_clips: int, num_frames: int, size: tuple[int, int]) -> bool:
        """Whether something of a cache is there and not whole, as after a power loss."""
        shapes = {"frames": (num_clips, num_frames, 3, *size), "done": (num_clips,)}
        try:
            failures = folder / cls.FAILURES
            wrong = [failures] if failures.is_file() and not isinstance(json.loads(failures.read_text()), dict) else []
            for name, shape in shapes.items():
                path = folder / f"{name}.npy"
                if path.is_file() and np.load(path, mmap_mode="r").shape != shape:
                    wrong.append(path)
        except (ValueError, EOFError):
            return True
        is_there = {(folder / f"{name}.npy").is_file() for name in shapes}
        return bool(wrong) or len(is_there) > 1 or (failures.is_file() and is_there == {False})

    def open(self, name: str, dtype: type, shape: tuple[int, ...]) -> np.memmap:
        """An array on disk."""
        path = self.folder / f"{name}.npy"
        if not path.is_file():
            with replacing(path) as unfinished:
                np.lib.format.open_memmap(unfinished, "w+", dtype, shape).flush()
                reserve(unfinished)
        array: np.memmap = np.load(path, mmap_mode="r+")
        return array

    @property
    def is_complete(self) -> bool:
        """Whether every clip was decoded or is known to have failed."""
        return bool(self.done.all()) or (self.folder / self.FAILURES).is_file()

    @property
    def failures(self) -> dict[str, str]:
        """Clip id -> why it could not be read."""
        path = self.folder / self.FAILURES
        failures: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return failures

    def note(self, places: list[int]) -> None:
        """Note clips as decoded, once their frames are on the disk: else a power loss may leave zeros for them."""
        self.frames.flush()
        self.done[places] = True
        self.done.flush()

    def finish(self, failures: dict[str, str]) -> None:
        """Write the failures, after all else: they say that the cache is complete."""
        write_json(self.folder / self.FAILURES, failures)


def reserve(path: Path) -> None:
    """Reserve a file's space on the disk: writing to a mapped file on a full disk kills the process."""
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def decode_into(
    files: list[FrameFile], clips: Sequence[ClipRow], size: tuple[int, int], num_workers: int, spread: Spread
) -> None:
    """Decode the clips that any of the files lacks, each once for all of them."""
    if not files:
        return
    failures = {clip["clip_id"]: NO_FILE for clip in clips if not clip["video"]}
    requests = [
        VideoRequest(place, clip["video"], clip["start_seconds"], clip["end_seconds"], {"spread": spread})
        for place, clip in enumerate(clips)
        if clip["video"] and not all(file.done[place] for file in files)
    ]
    counts = tuple(file.num_frames for file in files)
    decoded: list[int] = []
    with VideoReaderPool(counts, num_workers=num_workers, size=size) as pool:
        for key, read in tqdm(pool.read(requests), total=len(requests), desc="Decoding clips", unit="clip"):
            place = cast("int", key)  # as requested above
            if isinstance(read, VideoFailure):
                failures[clips[place]["clip_id"]] = read.reason
                continue
            for file, frames in zip(files, read.frames.split(counts), strict=True):
                file.frames[place] = frames.numpy()
            decoded.append(place)
            if len(decoded) % CLIPS_PER_FLUSH == 0:
                for file in files:
                    file.note(decoded[-CLIPS_PER_FLUSH:])
    for file in files:
        file.note(decoded)
        file.finish(failures)


def clip_fingerprint(clip: ClipRow) -> list[Any]:
    """What identifies the pixels of a clip: its file as it is now, and its span."""
    path = Path(clip["video"]) if clip["video"] else None
    try:
        changed = list(version_of(path)) if path else None
    except VideoError:
        changed = None  # whoever reads it says why
    return [clip["clip_id"], str(path), changed, clip["start_seconds"], clip["end_seconds"]]
