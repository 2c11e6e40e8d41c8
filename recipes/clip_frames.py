"""The frames of labelled clips for training: decoded once into a cache or anew each time, augmented once per clip."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import InterpolationMode, v2
from tqdm import tqdm

from harness.results import replacing, write_json, writing
from hf_datasets.video import VideoError, read_frames
from hf_datasets.video.pool import VideoFailure, VideoReaderPool, VideoRequest

Clip = dict[str, Any]


class FrameCache:
    """Decoded uint8 frames of clips in one file on disk, shared by all that read it.

    Args:
        folder: Where caches are kept; each has a name of its own, made from the clips and sizes.
        clips: Rows with `clip_id`, `video`, `start_seconds`, `end_seconds`.
        num_frames: Frames per clip.
        size: Height and width in pixels; frames are stretched to it as `AIMVideoProcessor` does.
        num_workers: Processes that decode.
        also: Another number of frames per clip, for which the same decoding fills another cache.

    Attributes:
        frames: `(clips, num_frames, 3, height, width)` uint8, mapped from disk.
        places: Clip id -> position in `frames`.
        failures: Clip id -> why it could not be read.
    """

    def __init__(
        self,
        folder: Path,
        clips: Sequence[Clip],
        num_frames: int,
        size: tuple[int, int],
        *,
        num_workers: int,
        also: int | None = None,
    ) -> None:
        self.folder = cache_folder(folder, clips, num_frames, size)
        self.places = {clip["clip_id"]: place for place, clip in enumerate(clips)}
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / ".lock").touch()
        with FileLock(folder / ".lock"):  # of several processes one decodes
            caches = [FrameFile(self.folder, len(clips), num_frames, size)]
            if also is not None:
                caches.append(FrameFile(cache_folder(folder, clips, also, size), len(clips), also, size))
            decode_into([cache for cache in caches if not cache.is_complete], clips, size, num_workers)
        self.frames, self.failures = caches[0].frames, caches[0].failures

    @classmethod
    def find(cls, folder: Path, clips: Sequence[Clip], num_frames: int, size: tuple[int, int]) -> "FrameCache | None":
        """The cache of exactly these frames if it is complete."""
        if not (cache_folder(folder, clips, num_frames, size) / FrameFile.FAILURES).is_file():
            return None
        return cls(folder, clips, num_frames, size, num_workers=0)

    def __getitem__(self, clip_id: str) -> Tensor:
        """The frames of a clip, `(num_frames, 3, height, width)` uint8."""
        return torch.from_numpy(np.array(self.frames[self.places[clip_id]]))


def cache_folder(folder: Path, clips: Sequence[Clip], num_frames: int, size: tuple[int, int]) -> Path:
    """Where the frames of these clips are kept below `folder`."""
    content = json.dumps([[fingerprint(clip) for clip in clips], num_frames, size])
    return folder / f"frames-{hashlib.sha256(content.encode()).hexdigest()[:16]}"


class FrameFile:
    """The arrays of one cache, zero where they are new, and which of their clips have been decoded."""

    FAILURES = "failures.json"

    def __init__(self, folder: Path, num_clips: int, num_frames: int, size: tuple[int, int]) -> None:
        self.folder, self.num_frames = folder, num_frames
        self.frames = self.open("frames", np.uint8, (num_clips, num_frames, 3, *size))
        self.done = self.open("done", np.bool_, (num_clips,))

    def open(self, name: str, kind: type, shape: tuple[int, ...]) -> np.ndarray:
        """An array on disk."""
        path = self.folder / f"{name}.npy"
        if not path.is_file():
            with replacing(path) as unfinished:
                np.lib.format.open_memmap(unfinished, "w+", kind, shape).flush()
                reserve(unfinished)
        return np.load(path, mmap_mode="r+")

    @property
    def is_complete(self) -> bool:
        """Whether every clip was decoded or is known to have failed."""
        return bool(self.done.all()) or (self.folder / self.FAILURES).is_file()

    @property
    def failures(self) -> dict[str, str]:
        """Clip id -> why it could not be read."""
        path = self.folder / self.FAILURES
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def finish(self, failures: dict[str, str]) -> None:
        """Write everything to disk, the failures last: they say that the cache is complete."""
        self.frames.flush()
        self.done.flush()
        write_json(self.folder / self.FAILURES, failures)


def reserve(path: Path) -> None:
    """Have the disk set aside what a file needs: a mapped file on a disk that is full ends the process without a word."""
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def decode_into(caches: list[FrameFile], clips: Sequence[Clip], size: tuple[int, int], num_workers: int) -> None:
    """Decode what any of the caches lacks, each clip once for all of them."""
    if not caches:
        return
    failures = {clip["clip_id"]: "there is no video file" for clip in clips if not clip["video"]}
    requests = [
        VideoRequest(place, clip["video"], clip["start_seconds"], clip["end_seconds"])
        for place, clip in enumerate(clips)
        if clip["video"] and not all(cache.done[place] for cache in caches)
    ]
    counts = tuple(cache.num_frames for cache in caches)
    with VideoReaderPool(counts, num_workers=max(num_workers, 1), size=size) as pool:
        for place, read in tqdm(pool.read(requests), total=len(requests), desc="Decoding clips", unit="clip"):
            if isinstance(read, VideoFailure):
                failures[clips[place]["clip_id"]] = read.reason
                continue
            for cache, frames in zip(caches, read.frames.split(counts), strict=True):
                cache.frames[place] = frames.numpy()
                cache.done[place] = True
    for cache in caches:
        cache.finish(failures)


def fingerprint(clip: Clip) -> list[Any]:
    """What identifies the pixels of a clip: its file as it is now, and its span."""
    path = Path(clip["video"]) if clip["video"] else None
    state = path.stat() if path and path.is_file() else None
    changed = [state.st_size, state.st_mtime_ns] if state else None
    return [clip["clip_id"], str(path), changed, clip["start_seconds"], clip["end_seconds"]]


class Augmentation:
    """Random crop, flip, light and RandAugment, drawn once for all frames of a clip.

    Args:
        size: Height and width of the result.
        crop_scale: Smallest share of the picture that a crop keeps; 1 does not crop.
        flip: Probability of mirroring.
        brightness: Largest relative change of brightness.
        rand_augment: Number of RandAugment's operations and their magnitude; (0, 0) is none.
        per_frame: Draw anew for every frame, as the released code does; it tears a clip apart.
    """

    def __init__(
        self,
        size: tuple[int, int],
        *,
        crop_scale: float = 1.0,
        flip: float = 0.5,
        brightness: float = 0.0,
        rand_augment: tuple[int, int] = (0, 0),
        per_frame: bool = False,
    ) -> None:
        bicubic = InterpolationMode.BICUBIC
        steps: list[Any] = []
        if crop_scale < 1:
            steps.append(v2.RandomResizedCrop(size, (crop_scale, 1.0), interpolation=bicubic, antialias=True))
        if flip:
            steps.append(v2.RandomHorizontalFlip(flip))
        if rand_augment[0]:
            steps.append(v2.RandAugment(*rand_augment, interpolation=InterpolationMode.BILINEAR))
        if brightness:
            steps.append(v2.ColorJitter(brightness=brightness))
        self.transform = v2.Compose(steps or [v2.Identity()])
        self.per_frame = per_frame

    def __call__(self, frames: Tensor) -> Tensor:
        """Augment `(T, 3, H, W)` uint8 frames."""
        if self.per_frame:
            return torch.stack([self.transform(frame) for frame in frames])
        return self.transform(frames)


class LabelledClips(Dataset):
    """Clips as `frames (T, 3, height, width)` uint8 and `labels`; an item is asked for by `(position, seed)`.

    The seed decides frame choice and augmentation, so an item is the same in whichever process and whenever it is
    made; None takes the middle frames as they are.

    Args:
        clips: Rows of the data set's clips.
        labels: Class index of each.
        num_frames: T.
        size: Height and width.
        augmentation: For items with a seed.
        frames_per_part: The clip is cut into T parts, of which so many frames are read and one is drawn.
        cache: Frames decoded before, `T * frames_per_part` per clip.
    """

    def __init__(
        self,
        clips: Sequence[Clip],
        labels: Sequence[int],
        num_frames: int,
        size: tuple[int, int],
        *,
        augmentation: Augmentation | None = None,
        frames_per_part: int = 1,
        cache: FrameCache | None = None,
    ) -> None:
        self.clips, self.labels, self.num_frames, self.size = clips, labels, num_frames, size
        self.augmentation, self.frames_per_part, self.cache = augmentation, frames_per_part, cache

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, wanted: tuple[int, int | None]) -> dict[str, Tensor]:
        position, seed = wanted
        frames = self.read(position)
        if seed is not None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                offsets = torch.randint(self.frames_per_part, (self.num_frames,))
                frames = frames[torch.arange(self.num_frames) * self.frames_per_part + offsets]
                frames = self.augmentation(frames) if self.augmentation else frames
        return {"frames": frames, "labels": torch.tensor(self.labels[position])}

    def read(self, position: int) -> Tensor:
        """All frames that are read of a clip, uint8."""
        clip = self.clips[position]
        if self.cache is not None:
            return self.cache[clip["clip_id"]]
        count = self.num_frames * self.frames_per_part
        try:
            read = read_frames(clip["video"], count, clip["start_seconds"], clip["end_seconds"], size=self.size)
        except VideoError as error:
            raise SystemExit(
                f"clip {clip['clip_id']!r} does not decode: {error}; --cache_frames leaves such clips out and counts them"
            ) from error
        return read.frames.contiguous()  # the memory layout decides how resizing rounds
