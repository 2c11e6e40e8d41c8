"""Clips with their frames from a stream of whole videos, such as a dataset on the Hub that is not downloaded first."""

import os
import threading
import weakref
from collections.abc import Hashable, Iterable, Mapping
from itertools import count
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset, Video

from hf_datasets.sharding import MAX_SHARDS

from .failures import VideoError
from .pool import VideoFailure, VideoReaderPool, VideoRequest
from .reading import VideoFrames
from .shared_memory import PixelFolder
from .store import VIDEO_EXTENSIONS

CLIPS_IN_MEMORY = 16
"""Clips whose frames are in memory at once; more would wait in vain."""


def stream_clips(
    clips: Dataset | IterableDataset | Iterable[Mapping[str, Any]],
    videos: Dataset | IterableDataset,
    *,
    num_frames: int,
    size: int | tuple[int, int] | None = None,
    num_workers: int = 1,
    timeout_seconds: float = 60.0,
) -> IterableDataset:
    """Stream clips with their decoded frames; each video is fetched and opened once for all its clips.

    The result is a stream of `datasets` with the shards of `videos`: `split_dataset_by_node`, the workers of a
    `DataLoader`, `shuffle(buffer_size=...)` and `state_dict()` work on it. It goes through the videos in their order,
    and through the clips of each in the order of their starts, so shuffle it to train: then ten shards are read in
    turns, or `max_buffer_input_shards`. A published video lies in a temporary file while its clips are read, one for
    each shard that is being read.

    Args:
        clips: Rows with `video_id`, `start_seconds` and `end_seconds` (null, null: all of the video), such as
            `mini-clips`. They are read whole, here: give all of them in every process, it is the videos that are
            shared out. A column `video` is left out.
        videos: Rows with `video_id` and `video`: a `datasets.Video` or a path, such as `mini-videos`. Clips of other
            videos are not in the result, as in a join. Unless its `num_shards` is a multiple of the nodes, pass
            `strategy="shards"` to `split_dataset_by_node`, or each node decodes all clips and keeps its share.
        num_frames: Frames per clip, as in `read_frames`.
        size: As in `read_frames`; give (height, width) to make batches of videos of different shapes.
        num_workers: Reading processes, as in `VideoReaderPool`, of each process that iterates.
        timeout_seconds: As in `VideoReaderPool`.

    Returns:
        The rows of `clips` with `frames`, `(num_frames, height, width, 3)` uint8 NumPy arrays. While it is iterated, a
        clip that does not decode is a `VideoError` that names it.

    Raises:
        ValueError: A column is missing, or a number is out of range.

    Example:
        >>> clips = [{"video_id": "dive", "start_seconds": 2.0, "end_seconds": 4.5}]
        >>> videos = Dataset.from_dict({"video_id": ["match"], "video": ["match.mp4"]})
        >>> list(stream_clips(clips, videos, num_frames=8))  # no clip is of that video
        []
    """
    reader = ClipReader(
        _by_video(clips), num_frames, size=size, num_workers=num_workers, timeout_seconds=timeout_seconds
    )
    if isinstance(videos, Dataset):
        videos = videos.to_iterable_dataset(num_shards=max(1, min(MAX_SHARDS, len(videos))))
    names = videos.column_names or list(next(iter(videos), {}))  # some streams have no names before their first row
    missing = [name for name in ("video_id", "video") if name not in names]
    if missing:
        raise ValueError(f"videos has no column {', '.join(missing)}, but {', '.join(names)}; rename one of them")
    if isinstance((videos.features or {}).get("video"), Video):
        videos = videos.cast_column("video", Video(decode=False))
    reads = videos.map(reader.open, batched=True, batch_size=1, remove_columns=names)
    return reads.map(reader.read, batched=True, batch_size=1, remove_columns=["file", "first"])


def _by_video(clips: Iterable[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    if isinstance(clips, Dataset | IterableDataset) and "video" in (clips.column_names or ()):
        clips = clips.remove_columns("video")  # it might be decoded
    found: dict[str, list[dict[str, Any]]] = {}
    for clip in clips:
        missing = [name for name in ("video_id", "start_seconds", "end_seconds") if name not in clip]
        if missing:
            raise ValueError(f"clips has no column {', '.join(missing)}, but {', '.join(clip)}; rename one of them")
        row = {name: value for name, value in clip.items() if name != "video"}
        found.setdefault(row["video_id"], []).append(row)
    for rows in found.values():
        rows.sort(key=lambda row: row["start_seconds"] or 0.0)
    return found


class ClipReader:
    """The two steps of `stream_clips`, each a function of a batch of one; for any number of threads and processes.

    Args:
        clips: Video id -> its clips, in the order in which they are read.
        num_frames: See `stream_clips`.
        options: Of `VideoReaderPool`.

    Raises:
        ValueError: A number is out of range.
    """

    def __init__(self, clips: Mapping[str, list[dict[str, Any]]], num_frames: int, **options: Any) -> None:
        VideoReaderPool(num_frames, **options | {"num_workers": 0})  # refuses wrong numbers before anything is read
        self.clips, self.num_frames, self.options = clips, num_frames, options
        self._processes: dict[int, ProcessReader] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"clips": self.clips, "num_frames": self.num_frames, "options": self.options, "_processes": {}}

    @property
    def _own(self) -> "ProcessReader":
        # A fork leaves its parent's reader alone; of two that threads make at the same time, one is kept.
        process = os.getpid()
        return self._processes.get(process) or self._processes.setdefault(
            process, ProcessReader(self.num_frames, self.options)
        )

    def open(self, batch: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """The reads of a video: its file, and the place of the first clip of each read.

        Raises:
            VideoError: It has clips but no file.
        """
        (video_id,), (video,) = batch["video_id"], batch["video"]
        firsts = list(range(0, len(self.clips.get(video_id, ())), CLIPS_IN_MEMORY))
        file = self._file(video_id, video) if firsts else None
        return {"video_id": [video_id] * len(firsts), "file": [file] * len(firsts), "first": firsts}

    def _file(self, video_id: str, video: Any) -> "str | TemporaryVideo":
        value = video if isinstance(video, dict) else {"path": video, "bytes": None}
        path, content = value["path"], value["bytes"]
        if content is not None:
            return self._own.store(content, Path(path or "").suffix.lower())
        if path is None:
            raise VideoError(
                f"video {video_id!r} has clips but neither bytes nor a path; leave it out with "
                "videos.filter(lambda row: row['video'] is not None)"
            )
        return str(path)

    def read(self, batch: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """The clips of one read, with `frames`.

        Raises:
            VideoError: A clip does not decode.
        """
        (video_id,), (file,), (first,) = batch["video_id"], batch["file"], batch["first"]
        clips, path = self.clips[video_id][first : first + CLIPS_IN_MEMORY], str(file)
        spans = [(clip["start_seconds"], clip["end_seconds"]) for clip in clips]
        found = self._own.read(VideoRequest(place, path, *span) for place, span in enumerate(spans))
        frames = []
        for place, (start, end) in enumerate(spans):
            read = found[place]
            if isinstance(read, VideoFailure):
                reason = read.reason.replace(path, video_id)
                raise VideoError(
                    f"the clip {start} to {end} s of video {video_id!r} does not decode: {reason}; or leave it out"
                )
            frames.append(read.frames.permute(0, 2, 3, 1).numpy())
        return {name: [clip[name] for clip in clips] for name in clips[0]} | {"frames": frames}


class ProcessReader:
    """The reading pool and the folder of temporary files of one process.

    Args:
        num_frames: Frames per clip.
        options: Of `VideoReaderPool`.
    """

    def __init__(self, num_frames: int, options: Mapping[str, Any]) -> None:
        self._num_frames, self._options = num_frames, options
        self._lock = threading.Lock()  # shards that a shuffle reads in turns are read in threads
        self._folder: PixelFolder | None = None
        self._pool: VideoReaderPool | None = None
        self._numbers = count()

    def store(self, content: bytes, suffix: str) -> "TemporaryVideo":
        """The bytes of a video as a file."""
        with self._lock:
            if self._folder is None:
                self._folder = PixelFolder(in_memory=False)
                # Also runs at the end of a DataLoader's worker, where `atexit` does not.
                Finalize(self, self._folder.remove, exitpriority=1)
            name = f"{next(self._numbers)}{suffix if suffix in VIDEO_EXTENSIONS else ''}"
            path = self._folder.path / name
        path.write_bytes(content)
        return TemporaryVideo(path)

    def read(self, requests: Iterable[VideoRequest]) -> dict[Hashable, VideoFrames | VideoFailure]:
        """The answer of the pool to each request, by key."""
        with self._lock:
            if self._pool is None:
                self._pool = VideoReaderPool(self._num_frames, **self._options)
                Finalize(self, self._pool.close, exitpriority=2)
            return dict(self._pool.read(requests))


class TemporaryVideo:
    """A file that is removed when nothing refers to this any more: its clips were read, or the iteration given up."""

    def __init__(self, path: Path) -> None:
        self._path = path
        weakref.finalize(self, path.unlink, missing_ok=True).atexit = False  # the folder goes as a whole

    def __str__(self) -> str:
        return str(self._path)
