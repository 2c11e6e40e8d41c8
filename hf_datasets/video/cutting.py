"""Clips cut out of videos into files of their own: copied as they are encoded, encoded again, or made small."""

import heapq
import itertools
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .backends import open_video
from .colors import deinterlaced, to_rgb
from .failures import VideoError
from .pyav import OpenVideo
from .sound import Sound

if TYPE_CHECKING:
    import av
    from av.container import OutputContainer
    from av.video.stream import VideoStream

COPIED = {".mp4": "mp4", ".mov": "mov", ".m4v": "mp4", ".mkv": "matroska", ".webm": "webm"}
"""What holds a copy of a stream, by the ending of the video."""
TICKS_PER_SECOND = 90_000
PREVIEW_FRAMES_PER_SECOND = 30
PREVIEW_SIDE = 480
"""The longest side of a small copy, in pixels."""


def copy_clip(
    path: Path,
    output: Path,
    start_seconds: float,
    end_seconds: float,
    *,
    mute: bool = False,
) -> float:
    """Copy the pictures and the sound of a clip without encoding them again; it begins at the last keyframe before it.

    Args:
        path: The video; its ending is one of `COPIED`.
        output: The file to write.
        start_seconds: Where the clip starts.
        end_seconds: Where it ends.
        mute: Leave the sound out.

    Returns:
        Where the copy begins in the video, at or before `start_seconds`.

    Raises:
        VideoError: It cannot be read, or not be copied: encode it again.
    """
    import av

    with open_video(path) as video:
        keys = video.span(start_seconds, end_seconds).keys
        if path.suffix.lower() not in COPIED or not video.has_timestamps:
            raise VideoError(f"{path}: its stream cannot be copied; encode the clip again")
        try:
            with (
                av.open(str(output), "w", format=COPIED[path.suffix.lower()]) as container,
                closing(Sound(video)) as sound,
            ):
                stream = container.add_stream_from_template(video.stream)
                pictures = _copied_pictures(video, keys, stream)
                first = next(pictures, None)
                if first is None:
                    raise VideoError(f"{path}: no frame of the clip can be copied; fetch the file again")
                begin, packet = first
                heard: Iterator[av.Packet[Any]] = iter(())
                if sound.stream is not None and not mute:
                    heard = sound.copied(begin, end_seconds, container.add_stream_from_template(sound.stream))
                _mux(container, itertools.chain([packet], (packet for _, packet in pictures)), heard)
        except (av.FFmpegError, ValueError) as error:
            raise VideoError(f"{path}: its stream cannot be copied ({error}); encode the clip again") from error
    return begin


def encode_clip(
    path: Path,
    output: Path,
    start_seconds: float,
    end_seconds: float,
    *,
    mute: bool = False,
) -> None:
    """Encode exactly the frames of a clip as H.264 and its sound as AAC, at the times that they have in it.

    The clip is shown as wide as the video; an interlaced one is written as whole pictures, one for each of its frames.

    Args:
        path: The video.
        output: The MP4 file to write.
        start_seconds: Where the clip starts.
        end_seconds: Where it ends, exclusive.
        mute: Leave the sound out.

    Raises:
        VideoError: It cannot be read.
    """
    import av

    with open_video(path) as video:
        keys = video.span(start_seconds, end_seconds).keys
        frames = deinterlaced(video.decode(keys))
        first = next(frames, None)
        if first is None:
            raise VideoError(f"{path}: no frame of the clip decodes; fetch the file again")
        begin, aspect = video.seconds(first[0]), video.pixel_aspect
        with av.open(str(output), "w", format="mp4") as container, closing(Sound(video)) as sound:
            shape = _even_pixels(first[1], *video.size).shape
            stream = _h264(container, video, shape, {"crf": "18", "preset": "fast"})
            stream.codec_context.sample_aspect_ratio = 1 / aspect if first[1].rotation % 180 else aspect
            heard: Iterator[av.Packet[Any]] = iter(())
            if sound.stream is not None and not mute:
                heard = sound.encoded(begin, end_seconds, container)
            pictures = (
                (video.seconds(key) - begin, _even_pixels(frame, *video.size))
                for key, frame in itertools.chain([first], frames)
            )
            try:
                _mux(container, _encoded_pictures(pictures, stream), heard)
            except av.FFmpegError as error:
                raise VideoError(f"{path}: the clip cannot be encoded ({error}); leave the sound out") from error


def write_preview(
    video: OpenVideo, output: Path, start_seconds: float | None, end_seconds: float | None
) -> tuple[float, float]:
    """Write a small copy of a clip that every browser plays: H.264 without sound, square pixels, not interlaced.

    Returns:
        Where it begins and ends in the video; its frames have the times between.

    Raises:
        VideoError: No frame of the clip decodes.
    """
    import av

    rate = float(video.frame_rate) or 25.0
    step = max(1, round(rate / PREVIEW_FRAMES_PER_SECOND))
    size = smaller(*video.display_size, PREVIEW_SIDE)
    keys = video.span(start_seconds, end_seconds).keys[::step]
    pictures = ((video.seconds(key), to_rgb(frame, *size)) for key, frame in deinterlaced(video.decode(keys)))
    found = next(pictures, None)
    if found is None:
        raise VideoError(f"{video.path}: no frame of the clip decodes; fetch the file again, or re-encode it")
    begin, first = found
    last = begin

    def shown() -> Iterator[tuple[float, np.ndarray]]:
        nonlocal last
        yield 0.0, first
        for seconds, pixels in pictures:
            if pixels.shape == first.shape and seconds > last:  # else the pictures or the times turn in the middle
                last = seconds
                yield seconds - begin, pixels

    with av.open(str(output), "w", format="mp4", options={"movflags": "faststart"}) as container:
        # Short groups of pictures: a handle that is dragged seeks.
        stream = _h264(container, video, first.shape, {"crf": "26", "preset": "veryfast", "g": "15"})
        _mux(container, _encoded_pictures(shown(), stream))
    return begin, last + step / rate


def smaller(height: int, width: int, longest_side: int) -> tuple[int, int]:
    """Height and width within a side, both even.

    Example:
        >>> smaller(1080, 1920, 480), smaller(96, 97, 480)
        ((270, 480), (96, 96))
    """
    scale = min(1.0, longest_side / max(height, width))
    return max(2, round(height * scale) // 2 * 2), max(2, round(width * scale) // 2 * 2)


def sound_channels(path: Path) -> int:
    """How many channels of sound a video has; 0: none.

    Raises:
        VideoError: It cannot be read.
    """
    with open_video(path) as video, closing(Sound(video)) as sound:
        return 0 if sound.stream is None else sound.stream.channels


def _copied_pictures(
    video: OpenVideo, keys: tuple[int, ...], stream: "VideoStream"
) -> Iterator[tuple[float, "av.Packet[VideoStream]"]]:
    # When the clip begins in the video, and each packet, at the time that it has in the clip.
    origin: int | None = None
    for packet in video.packets(keys[0]):
        if packet.pts is None or packet.dts is None:
            raise VideoError(f"{video.path}: its stream cannot be copied; encode the clip again")
        if packet.dts > keys[-1]:
            return
        origin = packet.pts if origin is None else origin
        begin = video.seconds(origin)
        packet.pts, packet.dts = packet.pts - origin, packet.dts - origin
        packet.stream = stream
        yield begin, packet


def _h264(
    container: "OutputContainer", video: OpenVideo, shape: tuple[int, ...], options: dict[str, str]
) -> "VideoStream":
    stream = container.add_stream("libx264", rate=video.frame_rate.limit_denominator(1001), options=options)
    stream.pix_fmt, stream.codec_context.time_base = "yuv420p", Fraction(1, TICKS_PER_SECOND)
    stream.height, stream.width = shape[:2]
    return stream


def _encoded_pictures(
    frames: Iterator[tuple[float, np.ndarray]], stream: "VideoStream"
) -> Iterator["av.Packet[VideoStream]"]:
    import av

    for seconds, pixels in frames:
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
        frame.pts = round(seconds * TICKS_PER_SECOND)
        frame.time_base = Fraction(1, TICKS_PER_SECOND)
        yield from stream.encode(frame)
    yield from stream.encode()


def _mux(container: "OutputContainer", *streams: Iterator["av.Packet[Any]"]) -> None:
    """Write packets of several streams in the order of their times."""
    for packet in heapq.merge(*streams, key=lambda packet: (packet.dts or 0) * packet.time_base):
        container.mux(packet)


def _even_pixels(frame: "av.VideoFrame", height: int, width: int) -> np.ndarray:
    pixels = to_rgb(frame, height, width)
    return pixels[: pixels.shape[0] // 2 * 2, : pixels.shape[1] // 2 * 2]  # as the format has it
