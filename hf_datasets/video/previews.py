"""Small copies of clips that every browser plays, and frames beside them: a reader for a pool.

`read_or_preview` has the signature of `read_frames`, so that a `VideoReaderPool` runs it in its workers, where a file
that hangs or brings down the decoder costs one time limit. What it is to do is in `VideoRequest.options`.
"""

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from .backends import PYAV_FILES, Backend
from .colors import deinterlaced, to_rgb
from .failures import VideoError
from .pyav import OpenVideo, VideoLimits
from .reading import ClipPixels, read_pixels
from .spans import NO_PIXELS
from .timeline import Timeline

TICKS_PER_SECOND = 90_000
MAX_FRAMES_PER_SECOND = 30
LONGEST_SIDE = 480


def read_or_preview(
    path: str | os.PathLike[str],
    num_frames: int | Sequence[int],
    start_seconds: float | None = None,
    end_seconds: float | None = None,
    *,
    backend: Backend = "auto",
    size: int | tuple[int, int] | None = None,
    limits: VideoLimits = VideoLimits(),  # noqa: B008 frozen
    task: Mapping[str, Any] | None = None,
) -> ClipPixels:
    """Read a clip as `read_frames` does over its seconds, or write a small copy of it, or find where the video ends.

    Args:
        path: A video file.
        num_frames: See `read_frames`.
        start_seconds: See `read_frames`.
        end_seconds: See `read_frames`; an end beyond the video's is its end.
        backend: See `read_frames`; a copy is made with PyAV.
        size: See `read_frames`.
        limits: See `read_frames`.
        task: `num_frames` and `size` of this clip, in place of the pool's, and `display`, as in `read_frames`; or
            `preview`, the file to write a copy to (H.264 without sound, at the times that its frames have) and its
            `longest_side` in pixels; or `find`, "end".

    Returns:
        The frames; of a copy none to use, and as timestamps where it begins and ends in the video; of the end the only
        timestamp is where the last frame ends.

    Raises:
        VideoError: See `read_frames`.
    """
    path, task = Path(path), task or {}
    if "preview" not in task and "find" not in task:
        own = task.get("size", size)
        return read_pixels(
            path,
            task.get("num_frames", num_frames),
            start_seconds,
            end_seconds,
            backend=backend,
            size=tuple(own) if isinstance(own, list) else own,  # JSON knows no tuples
            limits=limits,
            spread="seconds",
            display=bool(task.get("display")),
        )
    with PYAV_FILES.lend(path) as video:
        video.check(limits)
        if "find" in task:
            times: tuple[float, ...] = (Timeline.of(video).end_seconds,)
        else:
            side = int(task.get("longest_side", LONGEST_SIDE))
            times = write_preview(video, Path(task["preview"]), start_seconds, end_seconds, side)
    return ClipPixels(NO_PIXELS, (0,), times, 1, 0.0)


def write_preview(
    video: OpenVideo, output: Path, start_seconds: float | None, end_seconds: float | None, longest_side: int
) -> tuple[float, float]:
    """Write a small copy of a clip, in square pixels and not interlaced; where it begins and ends in the video.

    Raises:
        VideoError: No frame of the clip decodes.
    """
    import av

    keys = video.span(start_seconds, end_seconds).keys
    rate = float(video.frame_rate) or 25.0
    step = max(1, round(rate / MAX_FRAMES_PER_SECOND))
    height, width = smaller(*video.display_size, longest_side)
    first = last = -1.0
    with av.open(str(output), "w", format="mp4", options={"movflags": "faststart"}) as container:
        options = {"crf": "26", "preset": "veryfast", "g": "15"}  # short groups: a handle that is dragged seeks
        stream = container.add_stream("libx264", rate=video.frame_rate.limit_denominator(1001), options=options)
        stream.pix_fmt, stream.codec_context.time_base = "yuv420p", Fraction(1, TICKS_PER_SECOND)
        for key, frame in deinterlaced(video.decode(keys[::step])):
            pixels = np.ascontiguousarray(to_rgb(frame, height, width))
            seconds = video.seconds(key)
            if first < 0:
                first = seconds
                stream.height, stream.width = pixels.shape[:2]
            if pixels.shape[:2] != (stream.height, stream.width) or seconds <= last:
                continue  # a stream that turns around in the middle, or whose times do
            last = seconds
            shown = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            shown.pts = round((seconds - first) * TICKS_PER_SECOND)
            shown.time_base = Fraction(1, TICKS_PER_SECOND)
            container.mux(stream.encode(shown))
        if first < 0:
            raise VideoError(f"{video.path}: no frame of the clip decodes; fetch the file again, or re-encode it")
        container.mux(stream.encode())
    return first, last + step / rate


def smaller(height: int, width: int, longest_side: int) -> tuple[int, int]:
    """Height and width within a side, both even.

    Example:
        >>> smaller(1080, 1920, 480), smaller(96, 97, 480)
        ((270, 480), (96, 96))
    """
    scale = min(1.0, longest_side / max(height, width))
    return max(2, round(height * scale) // 2 * 2), max(2, round(width * scale) // 2 * 2)
