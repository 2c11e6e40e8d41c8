"""Segments of videos as a column of a dataset: a path and two times, and frames only when they are asked for.

mteb's models take from the column `video` what torchcodec's decoder of a whole file offers. `Segment` offers the same
of a stretch of a file, read by `hf_datasets.video`, so that a clip is never the whole competition that it is part of.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import torch
from datasets import Dataset, Features, Value
from datasets.features.features import register_feature

from hf_datasets.video import read_frames_at


@dataclass(frozen=True)
class Segment:
    """A stretch of a video file, None, None is all of it; with what mteb's models use of a torchcodec `VideoDecoder`.

    Each call decodes the frames it returns, and nothing is kept but their number and times.
    """

    path: str
    start_seconds: float | None = None
    end_seconds: float | None = None

    @cached_property
    def metadata(self) -> SimpleNamespace:
        """What torchcodec says of a file, here of the segment: its number of frames, length, rate and size."""
        ends = read_frames_at(self.path, [0, -1], self.start_seconds, self.end_seconds)
        count = ends.num_frames_in_clip
        first, last = ends.timestamps_seconds
        # The last frame is shown as long as the others are; a single one has no length that could be known.
        seconds = (last - first) * count / (count - 1) if count > 1 else 0.0
        return SimpleNamespace(
            num_frames=count,
            begin_stream_seconds=0.0,
            end_stream_seconds=seconds,
            duration_seconds=seconds,
            average_fps=count / seconds if seconds else None,
            height=ends.frames.shape[2],
            width=ends.frames.shape[3],
            rotation=None,  # frames are upright, in square pixels or taken for such
            pixel_aspect_ratio=None,
        )

    def __len__(self) -> int:
        count: int = self.metadata.num_frames
        return count

    def __getitem__(self, key: int | slice) -> torch.Tensor:
        chosen = range(*key.indices(len(self))) if isinstance(key, slice) else [key]
        frames: torch.Tensor = self.get_frames_at(chosen).data
        return frames if isinstance(key, slice) else frames[0]

    def get_frames_at(self, indices: Sequence[int] | torch.Tensor) -> SimpleNamespace:
        """Frames by number: `data (N, 3, height, width)` uint8, and `pts_seconds (N,)` from the segment's start."""
        wanted = [int(index) for index in indices]
        found = read_frames_at(self.path, wanted, self.start_seconds, self.end_seconds)
        times = torch.tensor(found.timestamps_seconds, dtype=torch.float64) - (self.start_seconds or 0.0)
        return SimpleNamespace(data=found.frames, pts_seconds=times)


@dataclass
class VideoSegment:
    """The feature type of a column of segments; rows decode to a `Segment`, as `datasets.Video` does to a decoder."""

    id: str | None = field(default=None, repr=False)
    dtype: ClassVar[str] = "subtle.mteb.segments.Segment"
    pa_type: ClassVar[Any] = pa.struct(
        {"path": pa.string(), "start_seconds": pa.float64(), "end_seconds": pa.float64()}
    )
    _type: str = field(default="VideoSegment", init=False, repr=False)

    def __call__(self) -> pa.DataType:
        """How Arrow stores it."""
        return self.pa_type

    def encode_example(self, value: Segment) -> dict[str, Any]:
        """A segment as Arrow stores it."""
        return {"path": value.path, "start_seconds": value.start_seconds, "end_seconds": value.end_seconds}

    def decode_example(self, value: dict[str, Any], token_per_repo_id: Any = None) -> Segment:  # noqa: ARG002
        """What a row gives; nothing is read yet."""
        return Segment(**value)

    def cast_storage(self, storage: pa.Array) -> pa.Array:
        """The column in the type that it is stored in."""
        return storage.cast(self.pa_type)

    def flatten(self) -> "VideoSegment":
        """Itself: a row is one object."""
        return self


with warnings.catch_warnings():  # that registering is experimental concerns whoever reads this, not each user
    warnings.simplefilter("ignore", UserWarning)
    register_feature(VideoSegment, "VideoSegment")


def table(videos: Sequence[Segment | None] = (), **columns: Sequence[Any]) -> Dataset:
    """A dataset with these columns of text or numbers and, where videos are given, their segments as `video`."""
    features = {
        name: Value("int64" if values and isinstance(values[0], int) else "string") for name, values in columns.items()
    }
    content: dict[str, Any] = {name: list(values) for name, values in columns.items()}
    if videos:
        content["video"], features["video"] = list(videos), VideoSegment()
    return Dataset.from_dict(content, features=Features(features))


def segment_of(row: dict[str, Any], start: str = "start_seconds", end: str = "end_seconds") -> Segment | None:
    """The segment of a row of ours with `video` and its times; None where there is no file."""
    return Segment(row["video"], row[start], row[end]) if row["video"] else None


def segment_identity(segment: Segment) -> tuple[Any, ...]:
    """What tells a segment from another on any machine: the file's name and size, and the times."""
    path = Path(segment.path)
    size = path.stat().st_size if path.is_file() else None
    return path.name, size, segment.start_seconds, segment.end_seconds
