"""Clips cut out of videos into files of their own: copied as they are encoded, or encoded again frame by frame."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np

from .backends import PYAV_FILES
from .failures import VideoError
from .pyav import OpenVideo, VideoLimits, to_rgb

COPIED = {".mp4": "mp4", ".mov": "mov", ".m4v": "mp4", ".mkv": "matroska", ".webm": "webm"}
"""What holds a copy of a stream, by the ending of the video."""
TICKS_PER_SECOND = 90_000


def copy_clip(
    path: Path,
    output: Path,
    start_seconds: float,
    end_seconds: float,
    *,
    limits: VideoLimits = VideoLimits(),  # noqa: B008 frozen
) -> float:
    """Copy the pictures of a clip without encoding them again; it begins at the last keyframe before it.

    Args:
        path: The video; its ending is one of `COPIED`.
        output: The file to write.
        start_seconds: Where the clip starts.
        end_seconds: Where it ends.
        limits: The largest frames and durations that are accepted.

    Returns:
        Where the copy begins in the video, at or before `start_seconds`.

    Raises:
        VideoError: It cannot be read, or not be copied: encode it again.
    """
    import av

    with PYAV_FILES.lend(path) as video:
        video.check(limits)
        keys = video.span(start_seconds, end_seconds).keys
        if path.suffix.lower() not in COPIED or not video.has_timestamps:
            raise VideoError(f"{path}: its stream cannot be copied; encode the clip again")
        last = keys[-1]
        origin: int | None = None
        begin = start_seconds
        try:
            with av.open(str(output), "w", format=COPIED[path.suffix.lower()]) as container:
                stream = container.add_stream_from_template(video.stream)
                for packet in video.packets(keys[0]):
                    if packet.pts is None or packet.dts is None:
                        raise VideoError(f"{path}: its stream cannot be copied; encode the clip again")
                    if packet.dts > last:
                        break
                    if origin is None:
                        origin, begin = packet.pts, video.seconds(packet.pts)
                    packet.pts, packet.dts = packet.pts - origin, packet.dts - origin
                    packet.stream = stream
                    container.mux(packet)
        except (av.FFmpegError, ValueError) as error:
            raise VideoError(f"{path}: its stream cannot be copied ({error}); encode the clip again") from error
    return begin


def encode_clip(
    path: Path,
    output: Path,
    start_seconds: float,
    end_seconds: float,
    *,
    limits: VideoLimits = VideoLimits(),  # noqa: B008 frozen
) -> None:
    """Encode exactly the frames of a clip as H.264, at the times that they have in it.

    Args:
        path: The video.
        output: The MP4 file to write.
        start_seconds: Where the clip starts.
        end_seconds: Where it ends, exclusive.
        limits: The largest frames and durations that are accepted.

    Raises:
        VideoError: It cannot be read.
    """
    import av

    with PYAV_FILES.lend(path) as video:
        video.check(limits)
        keys = video.span(start_seconds, end_seconds).keys
        with av.open(str(output), "w", format="mp4") as container:
            options = {"crf": "18", "preset": "fast"}
            stream = container.add_stream("libx264", rate=video.frame_rate.limit_denominator(1001), options=options)
            stream.pix_fmt = "yuv420p"
            stream.codec_context.time_base = Fraction(1, TICKS_PER_SECOND)
            first: float | None = None
            for key, pixels in _even_frames(video, keys):
                seconds = video.seconds(key)
                if first is None:
                    first = seconds
                    stream.height, stream.width = pixels.shape[:2]
                frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
                frame.pts = round((seconds - first) * TICKS_PER_SECOND)
                frame.time_base = Fraction(1, TICKS_PER_SECOND)
                container.mux(stream.encode(frame))
            if first is None:
                raise VideoError(f"{path}: no frame of the clip decodes; fetch the file again")
            container.mux(stream.encode())


def _even_frames(video: OpenVideo, keys: tuple[int, ...]) -> Iterator[tuple[int, np.ndarray]]:
    height, width = video.size
    for key, frame in video.decode(keys):
        pixels = to_rgb(frame, height, width)
        # The format halves both sides.
        yield key, np.ascontiguousarray(pixels[: pixels.shape[0] // 2 * 2, : pixels.shape[1] // 2 * 2])
