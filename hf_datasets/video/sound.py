"""The sound of a video, copied or encoded again beside its pictures."""

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

from .pyav import OpenVideo

if TYPE_CHECKING:
    import av
    from av.audio.stream import AudioStream
    from av.container import InputContainer, OutputContainer

AAC_RATES = {96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000}
OTHER_RATE = 48000


class Sound:
    """The first or best sound of a video, read from a handle of its own; close it.

    Attributes:
        stream: None where the video has no sound.

    Args:
        video: The video; seconds count as its pictures' do.
    """

    def __init__(self, video: OpenVideo) -> None:
        self._container = cast("InputContainer", OpenVideo(video.path).stream.container)
        self._origin = video.origin
        self.stream: AudioStream | None = self._container.streams.best("audio")  # type: ignore[assignment]

    def close(self) -> None:
        """Close the file."""
        self._container.close()

    def _packets(self, begin_seconds: float) -> Iterator["av.Packet[AudioStream]"]:
        # From a little before the time on.
        import av

        stream = cast("AudioStream", self.stream)
        tick = cast("Fraction", stream.time_base)
        try:
            if begin_seconds > 0:
                self._container.seek(int((Fraction(begin_seconds) + self._origin) / tick), stream=stream)
            yield from self._container.demux(stream)
        except av.FFmpegError:
            return  # the rest of a truncated file

    def copied(
        self, begin_seconds: float, end_seconds: float, stream: "AudioStream"
    ) -> Iterator["av.Packet[AudioStream]"]:
        """Copy the sound of a clip.

        Yields:
            Packets for another file, at the times that they have in the clip. The first begins at most half a packet,
            some 10 milliseconds, before or after the clip.
        """
        for packet in self._packets(begin_seconds):
            if packet.pts is None or packet.dts is None or not packet.size:
                continue
            tick = packet.time_base
            begin = (Fraction(begin_seconds) + self._origin) / tick
            if packet.pts + (packet.duration or 0) // 2 < begin:
                continue
            if packet.pts * tick - self._origin >= end_seconds:
                return
            packet.pts, packet.dts = max(0, packet.pts - round(begin)), max(0, packet.dts - round(begin))
            packet.stream = stream
            yield packet

    def encoded(
        self, begin_seconds: float, end_seconds: float, container: "OutputContainer"
    ) -> Iterator["av.Packet[AudioStream]"]:
        """The exact samples of a clip as AAC in another file; the stream is added at once."""
        source = cast("AudioStream", self.stream)
        rate = source.rate if source.rate in AAC_RATES else OTHER_RATE
        layout = "mono" if source.channels == 1 else "stereo"
        stream = container.add_stream("aac", rate=rate, layout=layout)
        return self._encode(begin_seconds, end_seconds, stream)

    def _encode(self, begin_seconds: float, end_seconds: float, stream: Any) -> Iterator["av.Packet[AudioStream]"]:
        for frame in self._frames(begin_seconds, end_seconds):
            yield from stream.encode(frame)
        yield from stream.encode()

    def _frames(self, begin_seconds: float, end_seconds: float) -> Iterator["av.AudioFrame"]:
        # Exactly the samples of the clip.
        import av

        for packet in self._packets(begin_seconds):
            try:
                frames = packet.decode()
            except av.FFmpegError:
                continue  # a damaged packet costs its own sound
            for frame in frames:
                if frame.pts is None:
                    continue
                start = frame.pts * cast("Fraction", frame.time_base) - self._origin
                first, stop = (
                    min(max(round((Fraction(seconds) - start) * frame.sample_rate), 0), frame.samples)
                    for seconds in (begin_seconds, end_seconds)
                )
                if first < stop:
                    place = start + Fraction(first, frame.sample_rate) - Fraction(begin_seconds)
                    yield _cut_samples(frame, first, stop, round(place * frame.sample_rate))
                elif start >= end_seconds:
                    return


def _cut_samples(frame: "av.AudioFrame", first: int, stop: int, pts: int) -> "av.AudioFrame":
    """Some samples of a frame at another time."""
    import av

    channels = 1 if frame.format.is_planar else frame.layout.nb_channels
    samples = frame.to_ndarray()[:, first * channels : stop * channels]
    part = av.AudioFrame.from_ndarray(samples.copy(), format=frame.format.name, layout=frame.layout.name)
    part.sample_rate, part.pts, part.time_base = frame.sample_rate, pts, Fraction(1, frame.sample_rate)
    return part
