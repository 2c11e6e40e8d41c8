"""The videos of a gallery, and those that visitors bring, cut on demand into small files that every browser plays."""

import hashlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import av

# Containers that point to no other file; nothing is fetched from an address.
FORMATS = "mov,mp4,matroska,webm,avi,mpegts,mpeg,flv,asf,ogg,h264,hevc,m4v,mpegvideo,gif,ivf"
OPTIONS = {"format_whitelist": FORMATS, "protocol_whitelist": "file"}
MAX_UPLOAD_BYTES = 50_000_000
MAX_UPLOAD_SECONDS = 20.0
MAX_FRAMES = 20 * 120
MAX_PIXELS = 4096 * 2304
MAX_UPLOADS = 64
"""Uploads whose playable copies are kept; the oldest go first."""
SIDE = 480
"""Longest side of what is shown, in pixels."""
TIME_BASE = Fraction(1, 12800)


class Footage:
    """Cuts clips out of videos.

    Args:
        videos: Id of a video -> its file. Ids never become names of files.
        folder: Where what is shown is written; nothing else needs to be served.
    """

    def __init__(self, videos: Mapping[str, str | Path], folder: Path) -> None:
        self.videos, self.folder = dict(videos), Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def cut(self, video_id: str, start_seconds: float | None, end_seconds: float | None) -> Path:
        """A clip as an H.264 file; made the first time that it is wanted.

        Raises:
            ValueError: The video does not decode.
        """
        target = self.place(video_id, start_seconds, end_seconds, ".mp4")
        return self.made(target, lambda draft: encode(self.videos[video_id], draft, start_seconds, end_seconds))

    def still(self, video_id: str, start_seconds: float | None, end_seconds: float | None) -> Path:
        """The frame in the middle of a clip as a JPEG.

        Raises:
            ValueError: The video does not decode.
        """
        target = self.place(video_id, start_seconds, end_seconds, ".jpg")

        def write(draft: Path) -> None:
            start = start_seconds or 0.0
            middle = start if end_seconds is None else (start + end_seconds) / 2
            with opened(self.videos[video_id]) as (container, stream):
                frame = next(frames_between(container, stream, middle, None))
                width, height = size_shown(frame.width, frame.height, SIDE // 2)
                frame.to_image(width=width, height=height).save(draft, "JPEG", quality=80)

        return self.made(target, write)

    def take(self, upload: Path) -> Path:
        """An upload as an H.264 file, if it is a video within the limits.

        Raises:
            ValueError: It is too large or too long, or not a video.
        """
        megabytes = upload.stat().st_size / 1e6
        if megabytes > MAX_UPLOAD_BYTES / 1e6:
            raise ValueError(f"the file has {megabytes:.0f} MB; give at most {MAX_UPLOAD_BYTES / 1e6:.0f} MB")
        try:
            target = self.place(f"upload {upload} {upload.stat().st_mtime_ns}", None, None, ".upload.mp4")
            taken = self.made(target, lambda draft: encode(upload, draft, None, None, MAX_UPLOAD_SECONDS))
        finally:
            kept = sorted(self.folder.glob("*.upload.mp4"), key=lambda path: path.stat().st_mtime)
            for path in kept[:-MAX_UPLOADS]:
                path.unlink(missing_ok=True)
        return taken

    def place(self, video_id: str, start_seconds: float | None, end_seconds: float | None, ending: str) -> Path:
        """Where a clip goes: a name that tells nothing and leaves no folder."""
        digest = hashlib.sha256(f"{video_id} {start_seconds} {end_seconds}".encode()).hexdigest()
        return self.folder / f"{digest[:24]}{ending}"

    def made(self, target: Path, write: Callable[[Path], None]) -> Path:
        """The file; written as a whole or not at all. Two visitors who want the same one may both write it."""
        if not target.is_file():
            draft = target.with_name(f"draft-{uuid.uuid4().hex}{target.suffix}")
            try:
                write(draft)
                draft.replace(target)
            finally:
                draft.unlink(missing_ok=True)
        return target


@contextmanager
def opened(path: str | Path) -> Iterator[tuple[Any, Any]]:
    """A video's container and its first stream of frames.

    Raises:
        ValueError: The file is not a video, is damaged, or has very large frames.
    """
    # PyAV 19 reads metadata in any encoding, and has no argument for it; earlier ones refuse what is not UTF-8.
    lenient: dict[str, Any] = {"metadata_errors": "replace"} if int(av.__version__.partition(".")[0]) < 19 else {}
    try:
        with av.open(str(path), options=OPTIONS, **lenient) as container:
            if not container.streams.video:
                raise ValueError("the file holds no video; choose an MP4, WebM or MOV file")
            stream = container.streams.video[0]
            if stream.width * stream.height > MAX_PIXELS:
                raise ValueError(f"the video has {stream.width} x {stream.height} pixels; make it smaller")
            stream.thread_type = "AUTO"
            yield container, stream
    except (av.FFmpegError, StopIteration, OverflowError) as error:
        raise ValueError("the file is not a video, or it is damaged; choose an MP4, WebM or MOV file") from error


def frames_between(container: Any, stream: Any, start: float | None, end: float | None) -> Iterator[Any]:
    """The frames from a second on and before another, in the order in which they are shown."""
    if start:
        container.seek(int(start / stream.time_base), stream=stream)  # to the keyframe before
    half_frame = 0.5 / float(stream.average_rate or 25)
    last = None
    for frame in container.decode(stream):
        if frame.time is None:
            continue
        if end is not None and frame.time >= end:
            break
        if start is None or frame.time >= start - min(half_frame, 1e-3):
            yield frame
        last = frame
    else:
        if last is not None and start is not None and last.time < start:
            yield last  # the clip begins after the last frame


def encode(
    source: str | Path,
    target: Path,
    start: float | None,
    end: float | None,
    max_seconds: float | None = None,
) -> None:
    """Write a part of a video as H.264, without sound, at its own speed.

    Raises:
        ValueError: It does not decode, or is longer than `max_seconds`.
    """
    with opened(source) as (container, stream):
        seconds = (container.duration or 0) / av.time_base
        check_seconds(seconds, max_seconds)
        with av.open(str(target), "w", format="mp4", options={"movflags": "faststart"}) as output:
            shown = output.add_stream("libx264", options={"crf": "26", "preset": "veryfast"})
            shown.pix_fmt, shown.time_base, shown.codec_context.time_base = "yuv420p", TIME_BASE, TIME_BASE
            first, number, last = None, 0, -1
            for number, frame in enumerate(frames_between(container, stream, start, end), start=1):
                if first is None:
                    first = frame.time
                    shown.width, shown.height = size_shown(frame.width, frame.height, SIDE)
                check_seconds(frame.time - first, max_seconds)
                if max_seconds and number > MAX_FRAMES:
                    raise ValueError(f"the video has more than {MAX_FRAMES} frames; make it shorter")
                small = frame.reformat(width=shown.width, height=shown.height, format="yuv420p")
                small.pts = last = max(last + 1, round((frame.time - first) / TIME_BASE))
                small.time_base = TIME_BASE
                output.mux(shown.encode(small))
            if not number:
                raise ValueError("not one frame of the file decodes; choose another file")
            output.mux(shown.encode())


def check_seconds(seconds: float, most: float | None) -> None:
    """Refuse a video that is too long.

    Raises:
        ValueError: It is.
    """
    if most is not None and seconds > most:
        raise ValueError(f"the video has more than {most:.0f} s; cut out the part to search for")


def size_shown(width: int, height: int, side: int) -> tuple[int, int]:
    """Width and height within a side, both even.

    >>> size_shown(1920, 1080, 480), size_shown(96, 97, 480)
    ((480, 270), (96, 96))
    """
    scale = min(1.0, side / max(width, height))
    return tuple(max(2, round(length * scale) // 2 * 2) for length in (width, height))  # type: ignore[return-value]
