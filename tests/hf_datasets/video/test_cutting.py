"""Clips cut out of videos keep their sound, at the time that it has in the video."""

from fractions import Fraction

import av
import numpy as np
import pytest

from hf_datasets.video.cutting import copy_clip, encode_clip, sound_channels

FRAME_SECONDS = 1 / 25
SIGNAL = 2.2  # when the picture turns white and the tone begins


def write_video(path, *, codec="aac", rate=48000, layout="stereo", gop=25, bframes=2, shift=0.0):
    """Four seconds, dark and silent until the signal; `shift` delays both tracks in the file."""
    with av.open(str(path), "w") as container:
        pictures = container.add_stream("libx264", rate=25, options={"g": str(gop), "bf": str(bframes)})
        pictures.width = pictures.height = 32
        pictures.pix_fmt = "yuv420p"
        sound = codec and container.add_stream(codec, rate=rate, layout=layout)
        packets = []
        for number in range(100):
            pixels = np.full((32, 32, 3), 255 if number * FRAME_SECONDS >= SIGNAL - 1e-6 else 10, np.uint8)
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.time_base = number + round(shift * 25), Fraction(1, 25)
            packets += pictures.encode(frame)
        packets += pictures.encode()
        if sound:
            seconds = np.arange(4 * rate) / rate
            wave = (0.5 * np.sin(2 * np.pi * 440 * seconds) * (seconds >= SIGNAL)).astype(np.float32)
            channels = 1 if layout == "mono" else 2
            samples = np.ascontiguousarray(np.broadcast_to(wave, (channels, len(wave))))
            for first in range(0, len(wave), 960):
                frame = av.AudioFrame.from_ndarray(samples[:, first : first + 960].copy(), "fltp", layout)
                frame.sample_rate, frame.pts = rate, first + round(shift * rate)
                frame.time_base = Fraction(1, rate)
                packets += sound.encode(frame)
            packets += sound.encode()
        for packet in sorted(packets, key=lambda packet: packet.dts * packet.time_base):
            container.mux(packet)


def signals(path):
    """When the picture turns white, and when the tone begins; None without sound."""
    with av.open(str(path)) as container:
        origin = float(container.start_time or 0) / 1_000_000
        white = next(frame.time for frame in container.decode(video=0) if frame.to_ndarray(format="gray").mean() > 128)
    with av.open(str(path)) as container:
        if not container.streams.audio:
            return white - origin, None
        for frame in container.decode(audio=0):
            loud = np.flatnonzero(np.abs(np.atleast_2d(frame.to_ndarray())).max(0) > 0.2)
            if len(loud):
                channels = 1 if frame.format.is_planar else frame.layout.nb_channels
                return white - origin, frame.time + loud[0] / channels / frame.sample_rate - origin
    raise AssertionError("no tone")


KINDS = {
    "stereo.mp4": {},
    "late.mp4": {"shift": 1.4},
    "mono.mov": {"layout": "mono", "rate": 22050},
    "opus.mkv": {"codec": "libopus", "bframes": 0},
    "one-keyframe.mp4": {"gop": 250},
}


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound")
    for name, kind in KINDS.items():
        write_video(folder / name, **kind)
    write_video(folder / "silent.mp4", codec=None)
    return folder


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("start", [0.0, 1.52, 2.0])
def test_picture_and_sound_of_a_clip_stay_together(videos, tmp_path, name, start):
    white, tone = signals(videos / name)
    assert abs(white - tone) <= FRAME_SECONDS
    copied, encoded = tmp_path / name, tmp_path / "encoded.mp4"
    begin = copy_clip(videos / name, copied, start, 3.0)
    encode_clip(videos / name, encoded, start, 3.0)
    for path, place in ((copied, begin), (encoded, start)):
        white, tone = signals(path)
        assert abs(white - tone) <= FRAME_SECONDS, path
        assert white == pytest.approx(SIGNAL - place, abs=FRAME_SECONDS + 1e-3)
        with av.open(str(path)) as container:
            ends = [float(stream.duration * stream.time_base) for stream in container.streams if stream.duration]
            assert container.duration / 1e6 == pytest.approx(3.0 - place, abs=0.13)
            assert all(end == pytest.approx(3.0 - place, abs=0.13) for end in ends)


def test_an_exact_clip_has_as_much_sound_as_pictures(videos, tmp_path):
    encode_clip(videos / "stereo.mp4", tmp_path / "clip.mp4", 1.0, 2.0)
    with av.open(str(tmp_path / "clip.mp4")) as container:
        assert sum(frame.samples for frame in container.decode(audio=0)) == pytest.approx(48000, abs=1100)
    with av.open(str(tmp_path / "clip.mp4")) as container:
        assert sum(1 for _ in container.decode(video=0)) == 25


def test_a_clip_of_a_video_without_sound_or_muted_has_none(videos, tmp_path):
    assert [sound_channels(videos / name) for name in ("silent.mp4", "mono.mov", "stereo.mp4")] == [0, 1, 2]
    copy_clip(videos / "silent.mp4", tmp_path / "a.mp4", 1.0, 3.0)
    encode_clip(videos / "silent.mp4", tmp_path / "b.mp4", 1.0, 3.0)
    copy_clip(videos / "stereo.mp4", tmp_path / "c.mp4", 1.0, 3.0, mute=True)
    encode_clip(videos / "stereo.mp4", tmp_path / "d.mp4", 1.0, 3.0, mute=True)
    for name in "abcd":
        assert signals(tmp_path / f"{name}.mp4")[1] is None
