"""Frames of a video by their keys, each decoded once, the plan for that, and small copies: a reader for a pool.

`read_spans` has the signature of `read_frames`, so that a `VideoReaderPool` runs it in its workers, where a file that
hangs or brings down the decoder costs one time limit. What else it is to do is in `VideoRequest.options`. Whoever reads
many clips of a video

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

from .backends import open_video
from .colors import to_rgb
from .cutting import write_preview
from .pyav import OpenVideo
from .reading import VideoFrames, check_resized, indices_in_time, read_frames
from .resizing import resize
from .timeline import FrameRead, Timeline
from .worker_process import VideoRequest

NO_PIXELS = np.zeros((1, 1, 1, 3), np.uint8)


def read_spans(
    path: str | os.PathLike[str],
    num_frames: int | Sequence[int],
    start_seconds: float | None = None,
    end_seconds: float | None = None,
    *,
    size: int | tuple[int, int] | None = None,
    frames: dict[str, Any] | None = None,
    find: Literal["timeline"] | None = None,
    preview: str | None = None,
    **options: Any,
) -> VideoFrames:
    """Read one clip, as `read_frames` does over its seconds; or frames by their keys; or do something else with a file.

    Args:
        path: A video file.
        num_frames: Of one clip.
        start_seconds: See `read_frames`.
        end_seconds: See `read_frames`.
        size: See `read_frames`.
        frames: A `FrameRead` as `request_of` writes it, for PyAV. The answer has the frames that decode, and their
            keys as `indices`.
        find: "timeline": the answer is for `timeline_of`.
        preview: The file that gets a small copy of the clip, by `cutting.write_preview`. The answer has no frames to
            use, and as timestamps where the copy begins and ends in the video.
        options: Others of `read_frames`, for one clip.

    Raises:
        VideoError: See `read_frames`.
    """
    path = Path(path)
    if frames is None and find is None and preview is None:
        span = start_seconds, end_seconds
        return read_frames(path, num_frames, *span, size=size, spread="seconds", **options)
    with open_video(path) as video:
        if find is not None:
            timeline = Timeline.of(video)
            return VideoFrames(timeline.packed().reshape(1, 1, -1, 1), (), (), len(timeline.keys), 0.0)
        if preview is not None:
            return VideoFrames(NO_PIXELS, (0,), write_preview(video, Path(preview), start_seconds, end_seconds), 1, 0.0)
        assert frames is not None
        video.expect(frames["keyframes"], by_number=frames["by_number"])
        pixels = _resized_frames(video, frames["keys"], size, goes_on=frames["run"] is not None)
        found = sorted(pixels)
        stacked = np.stack([pixels[key] for key in found]) if found else NO_PIXELS
        return VideoFrames(stacked, tuple(found), tuple(map(video.seconds, found)), len(found), 0.0)


def timeline_of(answer: VideoFrames) -> Timeline:
    """The timeline in the answer to `find`."""
    return Timeline.unpacked(answer.pixels)


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
    video: OpenVideo, keys: list[int], size: int | tuple[int, int] | None, *, goes_on: bool
) -> dict[int, np.ndarray]:
    # One at a time: many frames of full size would take gigabytes.
    height, width = video.size
    if size is not None:
        check_resized(video.path, (height, width), size)
    pixels: dict[int, np.ndarray] = {}

    def keep(found: Any) -> None:
        for key, frame in found:
            rgb = to_rgb(frame, height, width)
            pixels[key] = rgb.copy() if size is None else resize(rgb[None], size)[0]

    keep(video.decode_on(keys) if goes_on else video.decode(keys))
    if video.has_timestamps and (lost := [key for key in keys if key not in pixels]):
        keep(video.decode(lost, thorough=True))
    return pixels
