"""Video files by id, and their frames: `(T, C, H, W)` uint8, with the indices and times that were really read.

Importing this does not import torch; the first frames do.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .video_backends import Backend
from .video_pyav import VideoError, VideoLimits, VideoSpanError
from .video_reading import ClipPixels, frame_indices, read_pixels
from .video_store import VIDEO_EXTENSIONS, VideoCoverage, VideoStore

if TYPE_CHECKING:
    import torch

__all__ = [
    "VIDEO_EXTENSIONS",
    "Backend",
    "VideoCoverage",
    "VideoError",
    "VideoFrames",
    "VideoLimits",
    "VideoSpanError",
    "VideoStore",
    "frame_indices",
    "read_frames",
]


@dataclass(frozen=True, slots=True)
class VideoFrames:
    """Frames of a clip and where they come from.

    Attributes:
        frames: `(num_frames, 3, height, width)` uint8 RGB; in memory the channels come last.
        indices: For each frame its number among the frames of the clip, 0 to `num_frames_in_clip - 1`.
        timestamps_seconds: For each frame when it is presented, from the start of the video.
        num_frames_in_clip: How many frames the clip really holds.
        missing_seconds: How much of the requested span (of the duration that the container promises, for a whole
            file) lies beyond the last frame or does not decode; 0.0 where all is there.
    """

    frames: "torch.Tensor"
    indices: tuple[int, ...]
    timestamps_seconds: tuple[float, ...]
    num_frames_in_clip: int
    missing_seconds: float


def read_frames(
    path: str | os.PathLike[str],
    num_frames: int | Sequence[int],
    start_seconds: float | None = None,
    end_seconds: float | None = None,
    *,
    backend: Backend = "auto",
    size: int | tuple[int, int] | None = None,
    limits: VideoLimits = VideoLimits(),  # noqa: B008 frozen
) -> VideoFrames:
    """Read `num_frames` frames, spread over a clip by `frame_indices`.

    The clip is every frame presented in `[start_seconds, end_seconds)`, counted from the start of the container as
    players do and compared to half a millisecond, because annotations are rounded; a span that falls between two
    frames gives the frame on display. Timestamps are read from the file, so variable frame rates, B-frames and
    edit lists are right, and a container's claims about its length are not believed.

    Args:
        path: A video file.
        num_frames: T, at least 1; or several numbers, whose frames come one after the other from one decoding.
        start_seconds: Where the clip starts; None is the beginning.
        end_seconds: Where it ends, exclusive; None is the end. Beyond the end of the video, what there is is read
            and `missing_seconds` says so.
        backend: Who decodes. "auto" is PyAV, the fastest on long videos. All give the same frames; pixels differ by
            rounding in the colour conversion.
        size: Resize in the same call: the shorter side, or (height, width); bicubic with antialiasing (`video_resizing.resize`).
        limits: What a file may ask for.

    Raises:
        ValueError: If the span is empty or negative, or `num_frames` is less than 1.
        VideoError: If the file is missing, damaged, too large, or has no frame in the span (`VideoSpanError`).
    """
    return frames_of(
        read_pixels(path, num_frames, start_seconds, end_seconds, backend=backend, size=size, limits=limits)
    )


def frames_of(clip: ClipPixels) -> VideoFrames:
    """The same frames as a tensor; no pixel is copied."""
    import torch

    frames = torch.from_numpy(clip.pixels).permute(0, 3, 1, 2)  # (T, C, H, W)
    return VideoFrames(
        frames, clip.indices, clip.timestamps_seconds, clip.num_frames_in_clip, clip.missing_seconds
    )
