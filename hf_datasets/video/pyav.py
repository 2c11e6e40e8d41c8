"""One open video file, through PyAV: which frames a span holds, and their pixels.

Which frames to decode follows from packets, not from the container's header: demuxing a packet takes a fiftieth of the
time of decoding a frame, so the exact timestamps of a span are read first, and only the wanted frames are decoded.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from .failures import VideoError, VideoSpanError
from .frame_folder import FrameFolder

if TYPE_CHECKING:
    import av
    from av.video.stream import VideoStream

# Annotations are rounded to milliseconds, so a timestamp half of one before a bound counts as on it.
TOLERANCE_SECONDS = Fraction(1, 2000)
# Demuxers that read one file and nothing it points to: playlists and concatenation scripts are not among them.
FORMATS = "mov,mp4,matroska,webm,avi,mpegts,mpeg,flv,asf,ogg,h264,hevc,m4v,mpegvideo,gif,ivf"
OPEN_OPTIONS = {"format_whitelist": FORMATS, "protocol_whitelist": "file"}
# Codecs whose non-reference frames the decoder can leave out, one packet holding one frame.
SKIPPABLE_CODECS = {"h264", "hevc"}
# Fewer frames than this between two wanted ones are decoded rather than jumped over.
MIN_FRAMES_TO_JUMP = 6


@dataclass(frozen=True, slots=True)
class VideoLimits:
    """The largest frames and durations that are accepted: a hostile header can claim any."""

    max_pixels: int = 8192 * 4320
    max_duration_seconds: float = 24 * 3600


@dataclass(frozen=True, slots=True)
class FrameSpan:
    """The frames of a stretch of a video: `keys` in presentation order, and how much of it is missing."""

    keys: tuple[int, ...]
    missing_seconds: float


def _cannot(path: Path, what: str) -> VideoError:
    cure = "the file is truncated or damaged, or not a video: fetch it again, or re-encode it with `ffmpeg -i`"
    return VideoError(f"{path}: {what}; {cure}")


class OpenVideo:
    """A video file held open. A frame is named by its key: its presentation timestamp in ticks of the stream.

    Seconds count from the start of the container, as players and `ffmpeg -ss` count them. Where a container stores
    no presentation timestamps (AVI with B-frames, raw streams), the key is the frame's number in the order in which
    the decoder presents it, found by decoding from the first on, and its time is that number over the frame rate:
    right, but slow far into a long file.

    Args:
        path: The file, or a folder of frames.

    Raises:
        VideoError: If it is not a readable video.
    """

    def __init__(self, path: Path) -> None:
        import av

        self.path = path
        self._errors = av.FFmpegError
        # PyAV 19 reads metadata in any encoding, and has no argument for it; earlier ones refuse what is not UTF-8.
        settings: Any = {"metadata_errors": "replace"} if int(av.__version__.partition(".")[0]) < 19 else {}
        address, options = str(path.absolute()), dict(OPEN_OPTIONS)
        if path.is_dir():
            frames = FrameFolder.of(path)
            address, options, settings["format"] = frames.address, frames.options, "image2"
        try:
            self._container = av.open(address, options=options, **settings)
        except (av.FFmpegError, ValueError) as error:
            raise _cannot(path, f"cannot be opened ({error})") from error
        stream = cast("VideoStream | None", self._container.streams.best("video"))
        if stream is None or stream.codec_context is None or not stream.time_base:
            raise _cannot(path, "holds no video stream that can be decoded")
        stream.thread_count = 1  # the pool's processes are the parallelism
        self._stream = stream
        self._codec = stream.codec_context
        self.tick = Fraction(stream.time_base)
        self.origin = self._start_of_container()
        self._keyframes: list[int] = []
        self._whole: FrameSpan | None = None
        self._sequence: tuple[int, Iterator[tuple[int, av.VideoFrame]]] | None = None  # see `decode_on`
        # AVI stores decoding times and MPEG-PS only some times; with B-frames the others would be guesses.
        self._by_number = self.format in {"avi", "mpeg"} and self._codec.has_b_frames

    def _start_of_container(self) -> Fraction:
        first = self._container.start_time
        start = Fraction(first, 1_000_000) if first is not None else Fraction(0)
        if self._stream.start_time is not None:
            exact = self._stream.start_time * self.tick
            if first is None or abs(exact - start) <= Fraction(1, 1_000_000):
                return exact
        return start

    @property
    def format(self) -> str:
        """The demuxer's name, such as "mov,mp4,m4a,3gp,3g2,mj2"."""
        name: str = self._container.format.name
        return name

    @property
    def stream(self) -> "VideoStream":
        """The stream that is read, as a template for a copy of it."""
        return self._stream

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels, as the header gives them."""
        return self._codec.height, self._codec.width

    @property
    def pixel_aspect(self) -> Fraction:
        """How many times as wide as high a pixel is shown; 1 where the file does not say."""
        return self._stream.sample_aspect_ratio or Fraction(1)

    @property
    def display_size(self) -> tuple[int, int]:
        """Height and width in square pixels, as a player shows the frames before it turns them."""
        return self._codec.height, max(1, round(self._codec.width * self.pixel_aspect))

    @property
    def container_seconds(self) -> float | None:
        """The duration in the container's header, sound included; None where there is none."""
        return self._container.duration / 1_000_000 if self._container.duration else None

    @property
    def has_timestamps(self) -> bool:
        """Whether keys are presentation timestamps; otherwise they are frame numbers."""
        return not self._by_number

    @property
    def frame_rate(self) -> Fraction:
        """Frames per second on average, as the header gives them; 25 where it gives none."""
        return Fraction(self._stream.average_rate or self._stream.guessed_rate or 25)

    @property
    def promised_seconds(self) -> float:
        """Where the last frame ends by the header, from the start of the container."""
        if self._stream.duration is not None:
            return float(((self._stream.start_time or 0) + self._stream.duration) * self.tick - self.origin)
        # Some containers count this from zero and some from their start; the smaller value is safe for both.
        return (self._container.duration or 0) / 1_000_000 - max(0.0, float(self.origin))

    def check(self, limits: VideoLimits) -> None:
        """Refuse a file beyond `limits`.

        Raises:
            VideoError: If its frames or its duration are too large.
        """
        height, width = self.size
        if height * width > limits.max_pixels:
            raise VideoError(
                f"{self.path}: frames of {width} x {height} exceed max_pixels={limits.max_pixels}; re-encode the "
                "video smaller, or raise VideoLimits.max_pixels if you trust the file"
            )
        if self.promised_seconds > limits.max_duration_seconds:
            raise VideoError(
                f"{self.path}: {self.promised_seconds:.0f} s exceed max_duration_seconds="
                f"{limits.max_duration_seconds:.0f}; cut the video, or raise VideoLimits.max_duration_seconds"
            )

    def seconds(self, key: int) -> float:
        """When the frame `key` is presented, in seconds from the start of the container."""
        return float(key / self.frame_rate if self._by_number else key * self.tick - self.origin)

    def _key_at(self, seconds: float) -> int:
        """The first key at or after `seconds`."""
        at = Fraction(seconds) - TOLERANCE_SECONDS
        return math.ceil(at * self.frame_rate if self._by_number else (at + self.origin) / self.tick)

    def _key_shown_at(self, seconds: float) -> int:
        return math.floor((Fraction(seconds) + TOLERANCE_SECONDS + self.origin) / self.tick)

    def span(self, start_seconds: float | None, end_seconds: float | None) -> FrameSpan:
        """The frames presented in `[start_seconds, end_seconds)`; None is the beginning or the end of the video.

        A span that falls between two frames gives the frame on display.

        Raises:
            VideoSpanError: If the video ends before the span starts.
        """
        whole = start_seconds is None and end_seconds is None
        start_seconds = 0.0 if start_seconds is None and not whole else start_seconds
        if whole and self._whole is not None:
            return self._whole
        span = None if self._by_number else self._scan(start_seconds, end_seconds)
        if span is None:
            if not self._by_number:
                self._by_number, self._whole = True, None
            span = self._count(start_seconds, end_seconds)
        if not span.keys:
            raise VideoSpanError(
                f"{self.path}: no frame in [{start_seconds}, {end_seconds}) seconds; the video has "
                f"{self.promised_seconds:.3f} s: fix the annotation, or check that this is the right file"
            )
        if whole:
            self._whole = span
        return span

    def _scan(self, start_seconds: float | None, end_seconds: float | None) -> FrameSpan | None:
        """Timestamps of the packets of a span, without decoding; None where the container has none to trust."""
        start = None if start_seconds is None else self._key_at(start_seconds)
        end = None if end_seconds is None else self._key_at(end_seconds)
        durations: dict[int, int] = {}
        reached_end = True
        for packet in self.packets(None if start_seconds is None else self._key_shown_at(start_seconds)):
            if packet.pts is None or packet.pts in durations:
                return None
            if durations and end is not None and packet.dts is not None and packet.dts >= end:
                reached_end = False
                break
            if packet.is_keyframe:
                self._note_keyframe(packet.pts)
            if not packet.is_discard:
                durations[packet.pts] = packet.duration or round(1 / self.frame_rate / self.tick)
        times = sorted(durations)
        first = 0 if start is None else bisect_left(times, start)
        keys = times[first : None if end is None else bisect_left(times, end)]
        if not keys and start is not None:
            keys = times[max(bisect_right(times, start) - 1, 0) :][:1]  # the frame on display
        if not reached_end or not times:
            return FrameSpan(tuple(keys), 0.0)
        frame = durations[times[-1]] * self.tick
        end_of_video = self.seconds(times[-1]) + frame
        if start_seconds is not None and start_seconds + TOLERANCE_SECONDS >= end_of_video:
            keys = []
        return FrameSpan(tuple(keys), self._missing(end_of_video, end_seconds, frame))

    def _missing(self, last: float, end_seconds: float | None, frame_seconds: Fraction) -> float:
        wanted = self.promised_seconds if end_seconds is None else end_seconds
        return wanted - last if wanted - last > frame_seconds else 0.0

    def _count(self, start_seconds: float | None, end_seconds: float | None) -> FrameSpan:
        """The frames of a span where there are no timestamps: the whole file is decoded once and counted."""
        if self._whole is None:
            number = sum(1 for _ in self._in_order())
            missing = self._missing(self.seconds(number), None, 1 / self.frame_rate)
            self._whole = FrameSpan(tuple(range(number)), missing)
        number = len(self._whole.keys)
        start = 0 if start_seconds is None else min(self._key_at(start_seconds), number)
        end = number if end_seconds is None else min(self._key_at(end_seconds), number)
        keys = range(start, end) or range(max(start - 1, 0), start if start < number else 0)
        missing = self._missing(self.seconds(number), end_seconds, 1 / self.frame_rate)
        return FrameSpan(tuple(keys), missing if end == number else 0.0)

    def decodable(self, span: FrameSpan) -> FrameSpan:
        """The span without the frames that the container lists but the decoder does not return."""
        found = {key for key, _ in self.decode(span.keys, thorough=True)}
        keys = tuple(key for key in span.keys if key in found)
        lost_seconds = float((len(span.keys) - len(keys)) / self.frame_rate)
        kept = FrameSpan(keys, span.missing_seconds + lost_seconds)
        self._whole = kept if self._whole is span else self._whole
        return kept

    def _note_keyframe(self, key: int) -> None:
        at = bisect_left(self._keyframes, key)
        if at == len(self._keyframes) or self._keyframes[at] != key:
            self._keyframes.insert(at, key)

    def packets(self, key: int | None) -> Iterator["av.Packet[VideoStream]"]:
        """Demux the stream from a keyframe presented at or before `key`; None is the start.

        Yields:
            Packets in decoding order.
        """
        first = self._stream.start_time or 0
        at, step = first if key is None else key, max(1, round(1 / self.tick))
        while key is not None and at > first:
            self._seek(at)
            packets = self._demux()
            # Open GOPs and late B-frames: a keyframe can be decoded before `key` and presented after it.
            packet = next((packet for packet in packets if packet.is_keyframe), None)
            if packet is not None and packet.pts is not None and packet.pts <= key:
                yield packet
                yield from packets
                return
            at, step = at - step, 2 * step
        self._seek(min(first, 0))
        yield from self._demux()

    def _seek(self, key: int) -> None:
        self._sequence = None
        try:
            self._container.seek(key, stream=self._stream)
        except self._errors:  # raw streams cannot seek
            self._reopen()

    def _reopen(self) -> None:
        fresh = OpenVideo(self.path)
        self._container.close()
        self._container, self._stream, self._codec = fresh._container, fresh._stream, fresh._codec

    def _demux(self) -> Iterator["av.Packet[VideoStream]"]:
        try:
            for packet in self._container.demux(self._stream):
                if packet.size:
                    yield packet
        except self._errors:
            return  # the rest of a truncated file

    def _feed(self, packet: "av.Packet[VideoStream] | None") -> list["av.VideoFrame"]:
        try:
            return self._codec.decode(packet)
        except self._errors:
            return []  # a damaged packet costs its own frame

    def _in_order(self) -> Iterator["av.VideoFrame"]:
        self._seek(min(self._stream.start_time or 0, 0))
        self._codec.skip_frame = "DEFAULT"
        for packet in self._demux():
            yield from self._feed(packet)
        yield from self._feed(None)

    def decode(self, keys: Collection[int], *, thorough: bool = False) -> Iterator[tuple[int, "av.VideoFrame"]]:
        """Decode the frames `keys`, each once; one that does not decode is left out.

        Args:
            keys: Keys that `span` gave.
            thorough: Start a keyframe earlier and leave out nothing: for streams whose keyframes are not entry
                points, or that mark reference frames wrongly.

        Yields:
            Key and frame, in presentation order.
        """
        wanted = sorted(set(keys))
        if self._by_number:
            numbers = set(wanted)
            for number, frame in enumerate(self._in_order()):
                if number in numbers:
                    yield number, frame
                if number >= wanted[-1]:
                    return
            return
        for group in [wanted] if thorough else self._groups(wanted):
            yield from self._decode_group(group, thorough=thorough)

    def expect(self, keyframes: Collection[int], *, by_number: bool) -> None:
        """Take the place of a scan by `span`, where a `Timeline` of the file is known: `decode` enters at these."""
        self._keyframes, self._by_number, self._whole = sorted(keyframes), by_number, None

    def decode_on(self, keys: Collection[int]) -> Iterator[tuple[int, "av.VideoFrame"]]:
        """Decode the frames `keys` and all between; where possible, go on where the call before ended.

        Yields:
            As `decode`.
        """
        wanted = sorted(set(keys))
        first = 0 if self._by_number else self._keyframe_of(wanted[0])
        at, frames = self._sequence or (wanted[0], iter(()))
        if not first <= at < wanted[0]:
            frames = enumerate(self._in_order()) if self._by_number else self._from_keyframe(wanted[0])
        self._sequence = None
        for key, frame in frames:
            if key in keys:
                yield key, frame
            if key >= wanted[-1]:
                self._sequence = key, frames
                return

    def _from_keyframe(self, key: int) -> Iterator[tuple[int, "av.VideoFrame"]]:
        keyframe, entered = self._keyframe_of(key), False
        for packet in chain(self.packets(key), [None]):
            self._codec.skip_frame = "DEFAULT"
            entered = entered or packet is None or packet.pts == keyframe
            if entered:
                yield from ((frame.pts, frame) for frame in self._feed(packet) if frame.pts is not None)

    def _keyframe_of(self, key: int) -> int:
        return self._keyframes[max(bisect_right(self._keyframes, key) - 1, 0)] if self._keyframes else key

    def _groups(self, wanted: list[int]) -> Iterator[list[int]]:
        # Runs of frames to decode in one go; between them it pays to jump to the next keyframe.
        gap = MIN_FRAMES_TO_JUMP / self.frame_rate / self.tick
        group = wanted[:1]
        for key in wanted[1:]:
            if self._keyframe_of(key) - group[-1] > gap:
                yield group
                group = []
            group.append(key)
        yield group

    def _decode_group(self, group: list[int], *, thorough: bool) -> Iterator[tuple[int, "av.VideoFrame"]]:
        keyframe = self._keyframe_of(group[0])
        unsent, unseen = set(group), set(group)
        skips = self._codec.name in SKIPPABLE_CODECS and not thorough
        stand_alone = self._codec.codec.intra_only and not thorough  # pictures, of which none needs another
        entered = thorough
        for packet in self.packets(keyframe - 1 if thorough else group[0]):
            entered = entered or packet.pts == keyframe or packet.pts in unsent
            if not entered or (stand_alone and packet.pts not in unsent):
                continue
            self._codec.skip_frame = "NONREF" if skips and packet.pts not in unsent else "DEFAULT"
            unsent.discard(packet.pts)
            yield from self._wanted(self._feed(packet), unseen)
            if not unsent:
                break
        # Once all of their packets are in, draining brings the delayed frames out without decoding any other.
        yield from self._wanted(self._feed(None), unseen)

    @staticmethod
    def _wanted(frames: list["av.VideoFrame"], unseen: set[int]) -> Iterator[tuple[int, "av.VideoFrame"]]:
        for frame in frames:
            if frame.pts in unseen:
                unseen.discard(frame.pts)
                yield frame.pts, frame
