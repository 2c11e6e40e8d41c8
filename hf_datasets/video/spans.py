"""Several clips of a video in one reading, where the video ends, and where its shots change: a reader for a pool.

`read_spans` has the signature of `read_frames`, so that a `VideoReaderPool` runs it in its workers, where a file that
hangs costs one time limit. What else it is to do is in `VideoRequest.options`.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from .backends import PYAV_FILES, Backend
from .failures import VideoError, VideoSpanError
from .pyav import OpenVideo, VideoLimits, to_rgb
from .reading import ClipPixels, read_pixels, sampled_indices
from .resizing import resize, resized_size

Find = Literal["end", "shots"]
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
    spans: Sequence[tuple[float, float]] | None = None,
    find: Find | None = None,
) -> ClipPixels:
    """Read one clip, as `read_frames` does; or several of one video; or find its end or its shots.

    Args:
        path: A video file.
        num_frames: Of each clip.
        start_seconds: See `read_frames`.
        end_seconds: See `read_frames`.
        backend: For one clip alone; several are read with PyAV.
        size: See `read_frames`.
        limits: See `read_frames`.
        spans: Clips, each `[start, end)` in seconds. No frame is decoded twice, and each clip has the frames that it
            has when it is read alone.
        find: "end": the only timestamp is where the last frame ends; "shots": the timestamps are where shots begin,
            from 0 on, and where the last one ends. There are no frames to use.

    Returns:
        The frames of the clips, one clip after the other; `num_frames_in_clip` is of all together.

    Raises:
        VideoError: See `read_frames`.
        VideoSpanError: A clip of several has no frame, or does not decode whole: read each one alone.
    """
    path = Path(path)
    if find is not None:
        with PYAV_FILES.lend(path) as video:
            video.check(limits)
            end = end_of(video)
        times = (end,) if find == "end" else shot_edges(path, end)
        return ClipPixels(NO_PIXELS, (0,), times, 1, 0.0)
    if spans is None:
        return read_pixels(path, num_frames, start_seconds, end_seconds, backend=backend, size=size, limits=limits)
    with PYAV_FILES.lend(path) as video:
        video.check(limits)
        found = [video.span(*span) for span in spans]
        indices = [sampled_indices(len(span.keys), num_frames) for span in found]
        keys = [span.keys[index] for span, chosen in zip(found, indices, strict=True) for index in chosen]
        once = sorted(set(keys))
        pixels = _resized_frames(video, once, size, limits)
        times = tuple(video.seconds(key) for key in keys)
    if len(pixels) < len(once):
        raise VideoSpanError(f"{path}: {len(once) - len(pixels)} frames do not decode; read each clip alone")
    return ClipPixels(
        np.stack([pixels[key] for key in keys]),
        tuple(index for chosen in indices for index in chosen),
        times,
        sum(len(span.keys) for span in found),
        sum(span.missing_seconds for span in found),
    )


def _resized_frames(
    video: OpenVideo, keys: list[int], size: int | tuple[int, int] | None, limits: VideoLimits
) -> dict[int, np.ndarray]:
    # One at a time: many frames of full size would take gigabytes.
    height, width = video.size
    if size is not None:
        new_height, new_width = resized_size(height, width, size)
        if new_height * new_width > limits.max_pixels:
            raise VideoSpanError(f"{video.path}: frames of {new_width} x {new_height} are too large")
    pixels = {}
    for key, frame in video.decode(keys):
        rgb = to_rgb(frame, height, width)
        pixels[key] = rgb.copy() if size is None else resize(rgb[None], size)[0]
    return pixels


def end_of(video: OpenVideo) -> float:
    """Where the last frame of a video ends, in seconds from its start.

    Raises:
        VideoError: It has no frame.
    """
    keys = video.span(None, None).keys
    first, last = video.seconds(keys[0]), video.seconds(keys[-1])
    return last + ((last - first) / (len(keys) - 1) if len(keys) > 1 else 0.04)


def shot_edges(path: Path, end_seconds: float) -> tuple[float, ...]:
    """Where the shots of a video begin, by PySceneDetect's adaptive threshold, and where the last one ends.

    Raises:
        ImportError: PySceneDetect is not installed.
        VideoError: It cannot read the video.
    """
    try:
        import scenedetect
    except ImportError as error:
        raise ImportError("shots need PySceneDetect: pip install 'subtle-video[keyframes]'") from error
    try:
        shots = scenedetect.detect(str(path), scenedetect.AdaptiveDetector())
    except scenedetect.VideoOpenFailure as error:
        raise VideoError(
            f"{path}: PySceneDetect cannot open it ({error}); cut it into fixed windows instead"
        ) from error
    cuts = [start.seconds for start, _ in shots]
    return (0.0, *(cut for cut in cuts if 0 < cut < end_seconds), end_seconds)
