"""Frames of a video by their keys, each decoded once, and what is needed to plan that: a reader for a pool.

`read_spans` has the signature of `read_frames`, so that a `VideoReaderPool` runs it in its workers, where a file that
hangs costs one time limit. What else it is to do is in `VideoRequest.options`. Whoever reads many clips of a video

1. asks for its `Timeline` (`find="timeline"`, and `timeline_of` the answer),
2. takes the keys of the frames of each clip (`clip_keys`), and cuts all of them into reads (`Timeline.reads`),
3. requests each read (`request_of`), whose answer names the frames that it brings in `indices`.
"""

import os
from collections.abc import Hashable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .backends import PYAV_FILES, Backend
from .colors import to_rgb
from .failures import VideoSpanError
from .pyav import OpenVideo, VideoLimits
from .reading import ClipPixels, VideoFrames, indices_in_time, read_pixels
from .resizing import resize, resized_size
from .timeline import FrameRead, Timeline
from .worker_process import VideoRequest

NO_PIXELS = np.zeros((1, 1, 1, 3), np.uint8)


def read_spans(
    path: str | os.PathLike[str],
    num_frames: int | Sequence[int],
    start_seconds: float | None = None,
    end_seconds: float | None = None,
    *,
    backend: Backend = "auto",
    size: int | tuple[int, int] | None = None,
    limits: VideoLimits = VideoLimits(),  # noqa: B008 frozen
    frames: dict[str, Any] | None = None,
    find: Literal["timeline"] | None = None,
) -> ClipPixels:
    """Read one clip, as `read_frames` does over its seconds; or frames by their keys; or find the timeline.

    Args:
        path: A video file.
        num_frames: Of one clip.
        start_seconds: See `read_frames`.
        end_seconds: See `read_frames`.
        backend: For one clip; frames by their keys are read with PyAV.
        size: See `read_frames`.
        limits: See `read_frames`.
        frames: A `FrameRead` as `request_of` writes it. The answer has the frames that decode, and their keys as
            `indices`.
        find: "timeline": the answer is for `timeline_of`.

    Raises:
        VideoError: See `read_frames`.
    """
    path = Path(path)
    size = tuple(size) if isinstance(size, list) else size  # as JSON has it
    if find is not None:
        with PYAV_FILES.lend(path) as video:
            video.check(limits)
            timeline = Timeline.of(video)
        return ClipPixels(timeline.packed().reshape(1, 1, -1, 1), (), (), len(timeline.keys), 0.0)
    if frames is None:
        return read_pixels(
            path, num_frames, start_seconds, end_seconds, backend=backend, size=size, limits=limits, spread="seconds"
        )
    with PYAV_FILES.lend(path) as video:
        video.check(limits)
        video.expect(frames["keyframes"], by_number=frames["by_number"])
        pixels = _resized_frames(video, frames["keys"], size, limits, goes_on=frames["run"] is not None)
        found = sorted(pixels)
        times = tuple(video.seconds(key) for key in found)
    return ClipPixels(
        np.stack([pixels[key] for key in found]) if found else NO_PIXELS, tuple(found), times, len(found), 0.0
    )


def timeline_of(answer: VideoFrames) -> Timeline:
    """The timeline in the answer to `find`."""
    return Timeline.unpacked(answer.frames.numpy())


def clip_keys(timeline: Timeline, start_seconds: float, end_seconds: float, num_frames: int) -> list[int]:
    """The frames that `read_frames` gives of a clip over its seconds; none where the video ends before it starts."""
    keys = timeline.shown(start_seconds, end_seconds).tolist()
    if not keys:
        return []
    displayed = timeline.displayed(keys, start_seconds, end_seconds)
    return [keys[index] for index in indices_in_time(keys, displayed, num_frames)]


def request_of(
    key: Hashable, path: str | os.PathLike[str], read: FrameRead, timeline: Timeline, **options: Any
) -> VideoRequest:
    """The request of a read; `options` are further arguments of `read_spans`, such as another `size`."""
    lane = None if read.run is None else (str(path), read.run)
    frames = asdict(read) | {"by_number": timeline.by_number}
    return VideoRequest(key, path, options={"frames": frames, **options}, lane=lane)


def _resized_frames(
    video: OpenVideo, keys: list[int], size: int | tuple[int, int] | None, limits: VideoLimits, *, goes_on: bool
) -> dict[int, np.ndarray]:
    # One at a time: many frames of full size would take gigabytes.
    height, width = video.size
    if size is not None:
        new_height, new_width = resized_size(height, width, size)
        if new_height * new_width > limits.max_pixels:
            raise VideoSpanError(f"{video.path}: frames of {new_width} x {new_height} are too large")
    pixels: dict[int, np.ndarray] = {}

    def keep(found: Any) -> None:
        for key, frame in found:
            rgb = to_rgb(frame, height, width)
            pixels[key] = rgb.copy() if size is None else resize(rgb[None], size)[0]

    keep(video.decode_on(keys) if goes_on else video.decode(keys))
    if video.has_timestamps and (lost := [key for key in keys if key not in pixels]):
        keep(video.decode(lost, thorough=True))
    return pixels
