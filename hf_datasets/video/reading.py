"""Which frames of a clip are read, and their pixels.

Workers run this, so nothing heavy is imported here; torch is when somebody asks for the frames as a tensor.
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from .backends import Backend, open_video, pixels_of, pyav_pixels
from .failures import VideoError
from .pyav import FrameSpan, VideoLimits
from .resizing import resize, resized_size
from .timeline import Timeline

if TYPE_CHECKING:
    import torch


Spread = Literal["middles", "ends", "seconds"]


def frame_indices(num_frames_in_clip: int, num_frames: int, spread: Spread = "middles") -> list[int]:
    """Which frames of a clip to read, spread evenly: by default the middle of each of `num_frames` equal segments.

    A clip with fewer than `num_frames` frames gives each of them once, in order, and again from the first on; from end
    to end, it gives some of them several times in a row.

    Sources: `get_video_frames` of the TF-CoVR release. It cuts at floor(linspace(0, F, min(T, F) + 1)) and takes
    floor((c_i + c_{i+1} - 1) / 2). LanguageBind's processor for "ends", floor(linspace(0, F - 1, T)).

    Args:
        num_frames_in_clip: F, at least 1.
        num_frames: T, at least 1.
        spread: "middles", or "ends": from the first frame to the last, as LanguageBind reads.

    Raises:
        ValueError: If either is less than 1.

    Example:
        >>> frame_indices(100, 12)
        [3, 11, 20, 28, 36, 45, 53, 61, 70, 78, 86, 95]
        >>> frame_indices(5, 12)
        [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    """
    if num_frames_in_clip < 1 or num_frames < 1:
        raise ValueError(
            f"num_frames_in_clip={num_frames_in_clip} and num_frames={num_frames} must be at least 1; "
            "a clip without frames has nothing to sample"
        )
    if spread == "ends":
        return [int(index) for index in np.linspace(0, num_frames_in_clip - 1, num_frames, dtype=int)]
    segments = min(num_frames, num_frames_in_clip)
    # Integers, because linspace in floating point can fall short of a whole number.
    cuts = [segment * num_frames_in_clip // segments for segment in range(segments + 1)]
    middles = [(first + last - 1) // 2 for first, last in pairwise(cuts)]
    return [middles[position % segments] for position in range(num_frames)]


def sampled_indices(num_frames_in_clip: int, num_frames: int | Sequence[int], spread: Spread = "middles") -> list[int]:
    """`frame_indices` of each of several numbers of frames, one after the other.

    Example:
        >>> sampled_indices(100, (4, 2))
        [12, 37, 62, 87, 24, 74]
    """
    counts = [num_frames] if isinstance(num_frames, int) else num_frames
    return [index for count in counts for index in frame_indices(num_frames_in_clip, count, spread)]


def indices_in_time(
    keys: Sequence[int], displayed: tuple[Fraction, Fraction], num_frames: int | Sequence[int]
) -> list[int]:
    """Which frames of a clip to read: what is on display in the middle of equal parts of its time.

    At a constant frame rate these are the frames of `sampled_indices`, except that a clip with fewer frames than
    `num_frames` gives each as often in a row as it is needed.

    Args:
        keys: When each frame comes on display, ascending.
        displayed: From when to when the clip is.
        num_frames: See `sampled_indices`.

    Example:
        >>> indices_in_time([0, 1, 2, 6], (Fraction(0), Fraction(8)), 4)
        [1, 2, 2, 3]
        >>> indices_in_time([0, 1], (Fraction(0), Fraction(2)), 6)
        [0, 0, 0, 1, 1, 1]
    """
    begin, end = displayed
    indices = []
    for count in [num_frames] if isinstance(num_frames, int) else num_frames:
        parts = max(len(keys), count)
        middles = (begin + (end - begin) * Fraction(2 * part + 1, 2 * parts) for part in frame_indices(parts, count))
        indices += [max(bisect_right(keys, floor(middle)) - 1, 0) for middle in middles]
    return indices


@dataclass(frozen=True, slots=True)
class VideoFrames:
    """Frames of a clip and where they come from.

    Attributes:
        pixels: `(num_frames, height, width, 3)` uint8 RGB.
        indices: For each frame its number among the frames of the clip, 0 to `num_frames_in_clip - 1`.
        timestamps_seconds: For each frame when it is presented, from the start of the video.
        num_frames_in_clip: How many frames the clip holds.
        missing_seconds: How much of the requested span (for a whole file, of the duration in the container's
            header) lies beyond the last frame or does not decode; 0.0 where nothing is missing.
    """

    pixels: np.ndarray
    indices: tuple[int, ...]
    timestamps_seconds: tuple[float, ...]
    num_frames_in_clip: int
    missing_seconds: float

    @property
    def frames(self) -> "torch.Tensor":
        """The same memory as a tensor `(num_frames, 3, height, width)`; this imports torch."""
        import torch

        return torch.from_numpy(self.pixels).permute(0, 3, 1, 2)


def _read(
    path: str | os.PathLike[str],
    choose: Callable[[tuple[int, ...], tuple[Fraction, Fraction] | None], list[int]],
    start_seconds: float | None,
    end_seconds: float | None,
    *,
    backend: Backend = "auto",
    size: int | tuple[int, int] | None = None,
    limits: VideoLimits = VideoLimits(),  # noqa: B008 frozen
    spread: Spread = "middles",
    display: bool = False,
) -> VideoFrames:
    # `choose` takes the keys of a clip, and between which ones it is displayed, and gives the indices to read.
    path = Path(path)
    _check_span(start_seconds, end_seconds)
    end_seconds = None if end_seconds == float("inf") else end_seconds
    with open_video(path, limits) as video:
        span, displayed = video.span(start_seconds, end_seconds), None
        if spread == "seconds":
            timeline = Timeline.of(video, start_seconds, end_seconds)
            bounds = start_seconds or 0.0, timeline.end_seconds if end_seconds is None else end_seconds
            span = FrameSpan(tuple(timeline.shown(*bounds).tolist()), span.missing_seconds)
            displayed = timeline.displayed(span.keys, *bounds)
        read = partial(pixels_of, video, backend=backend)
        if display:
            read = partial(pyav_pixels, video, size=video.display_size)
        indices = choose(span.keys, displayed)
        pixels = read([span.keys[index] for index in sorted(set(indices))])
        if len(pixels) < len(set(indices)):
            span = video.decodable(span)
            if not span.keys:
                raise VideoError(f"{path}: no frame of the clip decodes; fetch the file again, or re-encode it")
            indices = choose(span.keys, displayed)
            pixels = read([span.keys[index] for index in sorted(set(indices))])
        keys = [span.keys[index] for index in indices]
        if not pixels.keys() >= set(keys):
            cure = "re-encode the video" if backend in {"auto", "pyav"} else "use backend='pyav'"
            raise VideoError(f"{path}: {backend} does not give the frames that the file lists; {cure}")
        times = tuple(video.seconds(key) for key in keys)
    once = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    frames = np.stack([pixels[key] for key in once])
    if size is not None:
        check_resized(path, frames.shape[1:3], size, limits)
        frames = resize(frames, size)
    if len(once) < len(keys):
        frames = frames[[once[key] for key in keys]]
    return VideoFrames(frames, tuple(indices), times, len(span.keys), span.missing_seconds)


def check_resized(
    path: Path,
    shape: tuple[int, int],
    size: int | tuple[int, int],
    limits: VideoLimits = VideoLimits(),  # noqa: B008 frozen
) -> None:
    """Refuse a size whose frames are too large: a frame of 1 x 10,000,000 would have 500 billion pixels at side 224.

    Raises:
        VideoError: They exceed the limits.
    """
    height, width = resized_size(*shape, size)
    if height * width > limits.max_pixels:
        raise VideoError(
            f"{path}: frames of {shape[1]} x {shape[0]} resized to {width} x {height} exceed "
            f"max_pixels={limits.max_pixels}; give (height, width) as size, or raise VideoLimits.max_pixels"
        )


def _check_span(start_seconds: float | None, end_seconds: float | None) -> None:
    start = 0.0 if start_seconds is None else start_seconds
    end = float("inf") if end_seconds is None else end_seconds
    if not 0 <= start < end:
        raise ValueError(
            f"start_seconds={start_seconds}, end_seconds={end_seconds}: a clip is [start, end) in seconds with "
            "0 <= start < end; fix the annotation"
        )


def read_frames(
    path: str | os.PathLike[str],
    num_frames: int | Sequence[int],
    start_seconds: float | None = None,
    end_seconds: float | None = None,
    *,
    backend: Backend = "auto",
    size: int | tuple[int, int] | None = None,
    limits: VideoLimits = VideoLimits(),  # noqa: B008 frozen
    spread: Spread = "middles",
    display: bool = False,
) -> VideoFrames:
    """Read `num_frames` frames, spread over a clip by `frame_indices`.

    The clip is every frame presented in `[start_seconds, end_seconds)`, counted from the start of the container as
    players do and compared to half a millisecond, because annotations are rounded; a span that falls between two
    frames gives the frame on display. Timestamps are read from the file, so variable frame rates, B-frames and
    edit lists are right, and the length in the container's header is not trusted.

    Args:
        path: A video file.
        num_frames: T, at least 1; or several numbers, whose frames come one after the other from one decoding.
        start_seconds: Where the clip starts; None is the beginning.
        end_seconds: Where it ends, exclusive; None is the end. Beyond the end of the video, the existing frames are
            read and `missing_seconds` is positive.
        backend: The decoder. "auto" is PyAV, the fastest on long videos. All give the same frames; pixels differ by
            rounding in the color conversion. "torchcodec-cuda" decodes on a GPU what it gives as PyAV does, within
            `backends.GPU_TOLERANCE`, and leaves the rest to PyAV; it was never run on one.
        size: Resize in the same call: the shorter side, or (height, width); bicubic with antialiasing
            (`resizing.resize`).
        limits: The largest frames and durations that are accepted.
        spread: "middles" as the papers and "ends", by `frame_indices`; "seconds": what is on display in the middle of
            equal parts of the time, by `indices_in_time`, of frames that `num_frames_in_clip` counts with one that is
            still held when the clip starts. They differ where the frame rate varies, and where a frame is needed
            several times.
        display: Give frames in square pixels, as a player shows them, with PyAV; else as the file has them.

    Raises:
        ValueError: If the span is empty or negative, or `num_frames` is less than 1.
        VideoError: If the file is missing, damaged, too large, or has no frame in the span (`VideoSpanError`).
    """

    def choose(keys: tuple[int, ...], displayed: tuple[Fraction, Fraction] | None) -> list[int]:
        if displayed is None:
            return sampled_indices(len(keys), num_frames, spread)
        return indices_in_time(keys, displayed, num_frames)

    span = start_seconds, end_seconds
    return _read(path, choose, *span, backend=backend, size=size, limits=limits, spread=spread, display=display)


def read_frames_at(
    path: str | os.PathLike[str],
    indices: Sequence[int],
    start_seconds: float | None = None,
    end_seconds: float | None = None,
) -> VideoFrames:
    """Read the frames of a clip by their number, for a caller that samples them itself.

    Args:
        path: A video file.
        indices: Which frames of the clip, at least one, in any order and also repeatedly; -1 is the last.
        start_seconds: As in `read_frames`.
        end_seconds: As in `read_frames`.

    Raises:
        ValueError: If the span is empty or negative, or the clip has no frame of such a number.
        VideoError: As in `read_frames`.
    """

    def choose(keys: tuple[int, ...], _: tuple[Fraction, Fraction] | None) -> list[int]:
        num_frames_in_clip = len(keys)
        outside = [index for index in indices if not -num_frames_in_clip <= index < num_frames_in_clip]
        if outside or not len(indices):
            what = f"frame {outside[0]}" if outside else "no frame"
            raise ValueError(f"{path}: {what} is asked of a clip of {num_frames_in_clip}; give 0 to the last or -1")
        return [index % num_frames_in_clip for index in indices]

    return _read(path, choose, start_seconds, end_seconds)
