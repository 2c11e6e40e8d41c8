"""When each frame of a video is shown and where decoding can start, so that all its reads can be planned first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor
from typing import TYPE_CHECKING

import numpy as np

from .failures import VideoError
from .pyav import TOLERANCE_SECONDS, OpenVideo

if TYPE_CHECKING:
    import av
    from av.video.stream import VideoStream

MAX_FRAMES_TO_DECODE = 500  # of one read: less than the time limit of a slow machine, and enough to be worth a seek
HELD_FRAMES = Fraction(3, 2)  # more than a frame takes where all take the same, with times that are rounded
MAX_RUN_READS = 2  # a run of frames that must be decoded together and is longer than these reads is read in parts


@dataclass(frozen=True, slots=True)
class FrameRead:
    """Frames that are read together.

    Attributes:
        keys: In presentation order.
        keyframes: Where decoding starts.
        run: Reads with the same number go on where the one before ended; None: this one stands alone.
    """

    keys: tuple[int, ...]
    keyframes: tuple[int, ...]
    run: int | None = None


@dataclass(frozen=True, eq=False)
class Timeline:
    """The frames of a video, named by their keys as `OpenVideo` names them.

    Attributes:
        keys: `(num_frames,)` int64, in presentation order.
        keyframes: `(num_keyframes,)` int64, ascending.
        leading: `(num_keyframes,)` int64: the first frame in presentation order that is decoded after the keyframe;
            it is shown before the keyframe in an open group of pictures.
        end_key: Where the last frame ends.
        tick: Seconds of one step of the keys.
        origin: When the container starts, in seconds.
        frame_rate: On average.
        by_number: Whether keys are frame numbers, as the container has no timestamps.
        promised_seconds: Where the last frame ends by the header.
    """

    keys: np.ndarray
    keyframes: np.ndarray
    leading: np.ndarray
    end_key: int
    tick: Fraction
    origin: Fraction
    frame_rate: Fraction
    by_number: bool
    promised_seconds: float

    @classmethod
    def of(cls, video: OpenVideo, start_seconds: float | None = None, end_seconds: float | None = None) -> "Timeline":
        """Read from the packets of a file; nothing is decoded.

        Args:
            video: The file.
            start_seconds: Of the only span that is asked for later; None: the start.
            end_seconds: Its end; None: that of the video.

        Raises:
            VideoError: It has no frame.
        """
        durations: dict[int, int] = {}
        keyframes: list[int] = []
        leading: list[int] = []
        number, by_number = 0, not video.has_timestamps
        for packet in video.packets(None) if by_number else _packets_of_span(video, start_seconds, end_seconds):
            number += 1
            if by_number or packet.pts is None or packet.pts in durations:
                by_number = True
                continue
            if packet.is_keyframe:
                keyframes.append(packet.pts)
                leading.append(packet.pts)
            elif leading:
                leading[-1] = min(leading[-1], packet.pts)
            if not packet.is_discard:
                durations[packet.pts] = packet.duration or round(1 / video.frame_rate / video.tick)
        if by_number and video.has_timestamps and (start_seconds, end_seconds) != (None, None):
            return cls.of(video)  # frames are counted from the first on
        keys = range(number) if by_number else sorted(durations)
        if not keys:
            raise VideoError(f"{video.path}: holds no frame; fetch the file again, or re-encode it")
        if by_number:
            keyframes, leading = [], []
        order = np.argsort(np.array(keyframes, np.int64), kind="stable")
        return cls(
            np.array(keys, np.int64),
            np.array(keyframes, np.int64)[order],
            np.array(leading, np.int64)[order],
            number if by_number else keys[-1] + durations[keys[-1]],
            Fraction(video.tick),
            Fraction(video.origin),
            Fraction(video.frame_rate),
            by_number,
            video.promised_seconds,
        )

    def seconds(self, key: int) -> float:
        """When a frame is presented, in seconds from the start of the container."""
        return float(key / self.frame_rate if self.by_number else key * self.tick - self.origin)

    @property
    def end_seconds(self) -> float:
        """Where the last frame ends, going by the frames' mean distance."""
        first, last = self.seconds(int(self.keys[0])), self.seconds(int(self.keys[-1]))
        return last + ((last - first) / (len(self.keys) - 1) if len(self.keys) > 1 else 0.04)

    def span(self, start_seconds: float, end_seconds: float) -> np.ndarray:
        """The keys of the frames that `OpenVideo.span` gives; none where the video ends before the span starts."""
        start, end = self._key_at(start_seconds), self._key_at(end_seconds)
        first, last = (int(np.searchsorted(self.keys, key)) for key in (start, end))
        if Fraction(start_seconds) + TOLERANCE_SECONDS >= Fraction(self.seconds(self.end_key)):
            return self.keys[:0]
        if first < last:
            return self.keys[first:last]
        shown = int(np.searchsorted(self.keys, start, side="left" if self.by_number else "right"))
        return self.keys[max(shown - 1, 0) :][:1]  # the frame on display

    def shown(self, start_seconds: float, end_seconds: float) -> np.ndarray:
        """The keys of `span`, after that of a frame which is still held when it starts."""
        keys = self.span(start_seconds, end_seconds)
        if not len(keys) or self._held(start_seconds) >= int(keys[0]):
            return keys
        first = int(np.searchsorted(self.keys, keys[0]))
        return self.keys[max(first - 1, 0) : first + len(keys)]

    def displayed(self, keys: Sequence[int], start_seconds: float, end_seconds: float) -> tuple[Fraction, Fraction]:
        """Between which keys the frames `shown` are on display; at the edges, a part of a frame counts as all of it."""
        after = int(np.searchsorted(self.keys, keys[-1], side="right"))
        following = int(self.keys[after]) if after < len(self.keys) else self.end_key
        is_held = len(keys) > 1 and keys[0] < self._key_at(start_seconds)
        begin = self._held(start_seconds) if is_held else Fraction(int(keys[0]))
        return begin, min(Fraction(following), self._held(end_seconds))

    def _held(self, seconds: float) -> Fraction:
        """The key up to which a frame that is shown at a time ends, unless it is held for longer than others."""
        at = Fraction(seconds) + HELD_FRAMES / self.frame_rate
        return at * self.frame_rate if self.by_number else (at + self.origin) / self.tick

    def _key_at(self, seconds: float) -> int:
        at = Fraction(seconds) - TOLERANCE_SECONDS
        return ceil(at * self.frame_rate if self.by_number else (at + self.origin) / self.tick)

    def reads(self, keys: Sequence[int], frames_per_read: int) -> list[FrameRead]:
        """Reads that together decode each frame at most once.

        Args:
            keys: The frames that are wanted, ascending.
            frames_per_read: About how many of them are read together.
        """
        reads: list[FrameRead] = []
        num_left = cost_left = 0
        for run, entry in self._runs(keys):
            cost = self._number(run[-1]) - self._number(entry[0] if entry else 0) + 1
            is_long = len(run) > MAX_RUN_READS * frames_per_read or cost > MAX_RUN_READS * MAX_FRAMES_TO_DECODE
            if is_long or self.by_number:
                reads += [FrameRead(part, entry, run[0]) for part in self._parts(run, frames_per_read)]
                num_left = cost_left = 0
            elif len(run) <= num_left and cost <= cost_left:
                reads[-1] = FrameRead(reads[-1].keys + run, reads[-1].keyframes + entry)
                num_left, cost_left = num_left - len(run), cost_left - cost
            else:
                reads.append(FrameRead(run, entry))
                num_left, cost_left = frames_per_read - len(run), MAX_FRAMES_TO_DECODE - cost
        return reads

    def _number(self, key: int) -> int:
        return int(np.searchsorted(self.keys, key))

    def _runs(self, keys: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        # Frames between which decoding cannot start anew without decoding one twice, and the keyframe before them.
        if self.by_number or not len(self.keyframes):
            yield tuple(keys), ()
            return
        places = np.maximum(np.searchsorted(self.keyframes, keys, side="right") - 1, 0)
        cuts = [
            number
            for number in range(1, len(keys))
            if places[number] > places[number - 1] and keys[number - 1] < self.leading[places[number]]
        ]
        for first, last in pairwise([0, *cuts, len(keys)]):
            yield tuple(map(int, keys[first:last])), (int(self.keyframes[places[first]]),)

    def _parts(self, run: Sequence[int], frames_per_read: int) -> Iterator[tuple[int, ...]]:
        part: list[int] = []
        for key in run:
            if part and (
                len(part) == frames_per_read or self._number(key) - self._number(part[0]) > MAX_FRAMES_TO_DECODE
            ):
                yield tuple(part)
                part = []
            part.append(key)
        yield tuple(part)

    def packed(self) -> np.ndarray:
        """All of it as bytes, `(n,)` uint8."""
        fractions = (part for value in (self.tick, self.origin, self.frame_rate) for part in value.as_integer_ratio())
        promised = round(1000 * self.promised_seconds)
        head = [self.by_number, self.end_key, promised, len(self.keyframes), *fractions]
        keys = self.keys[:0] if self.by_number else self.keys
        return np.concatenate([np.array(head, np.int64), self.keyframes, self.leading, keys]).view(np.uint8)

    @classmethod
    def unpacked(cls, packed: np.ndarray) -> "Timeline":
        """What `packed` was made of."""
        numbers = np.frombuffer(packed.tobytes(), np.int64)
        by_number, end_key, promised, num_keyframes, *parts = map(int, numbers[:10])
        tick, origin, rate = (Fraction(*parts[place : place + 2]) for place in (0, 2, 4))
        keyframes, leading, keys = np.split(numbers[10:], [num_keyframes, 2 * num_keyframes])
        if by_number:
            keys = np.arange(end_key)
        return cls(keys, keyframes, leading, end_key, tick, origin, rate, bool(by_number), promised / 1000)


def _packets_of_span(
    video: OpenVideo, start_seconds: float | None, end_seconds: float | None
) -> Iterator["av.Packet[VideoStream]"]:
    # In decoding order, from the frame on display when the span starts up to one that is shown after it.
    first = last = None
    if start_seconds is not None:
        first = floor((Fraction(start_seconds) + video.origin) / video.tick)
    if end_seconds is not None:
        last = ceil((Fraction(end_seconds) + video.origin + HELD_FRAMES / video.frame_rate) / video.tick)
    for packet in video.packets(first):
        yield packet
        if last is not None and packet.dts is not None and packet.dts > last:
            return
