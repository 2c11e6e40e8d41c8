"""Clips cut out of videos keep their sound, at the time that it has in the video; small copies have the same frames."""

import struct
from fractions import Fraction

import av
import numpy as np
import pytest
from colored_videos import write_colored_video

from hf_datasets.video import read_frames
from hf_datasets.video.cutting import copy_clip, encode_clip, sound_channels
from hf_datasets.video.pool import VideoReaderPool, VideoRequest
from hf_datasets.video.spans import read_spans, timeline_of

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
@pytest.mark.parametrize(
    "start", [pytest.param(0.0, marks=pytest.mark.slow), 1.52, pytest.param(2.0, marks=pytest.mark.slow)]
)
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


def write_pictures(path, pictures, *, rate=25, aspect=None, options=None):
    """Pictures whose pixels may be `aspect` times as wide as high."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate, options=options or {})
        stream.height, stream.width = pictures[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        if aspect is not None:
            stream.codec_context.sample_aspect_ratio = aspect
        for number, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def turn(path):
    """Have a player turn the pictures of an MP4 file by a right angle, as phones do."""
    content = path.read_bytes()
    at = content.index(bytes.fromhex("00010000") + bytes(12), content.index(b"tkhd"))
    turned = struct.pack(">9i", 0, 1 << 16, 0, -1 << 16, 0, 0, 0, 0, 1 << 30)
    path.write_bytes(content[:at] + turned + content[at + 36 :])


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("aspect", [Fraction(64, 45), Fraction(8, 9)])
def test_an_exact_clip_is_shown_as_wide_as_its_video_and_a_preview_has_square_pixels(tmp_path, aspect, is_turned):
    pictures = [np.full((96, 90, 3), 99, np.uint8)] * 25
    video = write_pictures(tmp_path / "squeezed.mp4", pictures, aspect=aspect)
    if is_turned:
        turn(video)
    encode_clip(video, tmp_path / "clip.mp4", 0.2, 0.6)
    read_spans(video, 1, 0.2, 0.6, preview=str(tmp_path / "preview.mp4"))
    with av.open(str(tmp_path / "clip.mp4")) as clip, av.open(str(tmp_path / "preview.mp4")) as preview:
        exact, small = clip.streams.video[0], preview.streams.video[0]
        assert small.sample_aspect_ratio in {None, 1}
        if is_turned:
            assert (exact.width, exact.height, exact.sample_aspect_ratio) == (96, 90, 1 / aspect)
            assert (small.width, small.height) == (96, round(90 * aspect))
        else:
            assert (exact.width, exact.height, exact.sample_aspect_ratio) == (90, 96, aspect)
            assert (small.width, small.height) == (round(90 * aspect), 96)


def test_an_exact_clip_of_an_interlaced_video_has_whole_pictures(tmp_path):
    pictures = np.full((25, 64, 176, 3), 16, np.uint8)
    for number in range(25):
        for field in (0, 1):  # the second half of the lines is taken a fiftieth of a second later
            left = 3 * (2 * number + field)
            pictures[number, field::2, left : left + 16] = 235
    options = {"flags": "+ilme+ildct", "x264-params": "tff=1", "crf": "10"}
    video = write_pictures(tmp_path / "interlaced.mkv", list(pictures), options=options)
    encode_clip(video, tmp_path / "clip.mp4", 0.2, 0.8)
    read_spans(video, 1, 0.2, 0.8, preview=str(tmp_path / "preview.mp4"))

    def combing(path):  # how far lines differ from the mean of those above and below
        with av.open(str(path)) as container:
            frames = list(container.decode(video=0))
        gray = np.stack([frame.to_ndarray(format="gray").astype(float) for frame in frames])
        lines = gray[:, 1:-1] - (gray[:, :-2] + gray[:, 2:]) / 2
        return len(frames), np.abs(lines).mean(), any(frame.interlaced_frame for frame in frames)

    number, before, is_interlaced = combing(video)
    assert (number, is_interlaced) == (25, True)
    for name in ("clip.mp4", "preview.mp4"):
        number, after, is_interlaced = combing(tmp_path / name)
        assert (number, is_interlaced) == (15, False)
        assert after < before / 4, (name, before, after)


def test_a_copy_has_the_frames_of_its_seconds_and_ends_where_the_video_does(tmp_path):
    video = write_colored_video(tmp_path / "video.mp4", [(250, 20, 20), (20, 250, 20), (20, 20, 250)])
    copy = tmp_path / "copy.mp4"
    with VideoReaderPool(1, num_workers=1, reader=read_spans) as pool:
        request = VideoRequest("copy", video, 1.5, 9.0, {"preview": str(copy)})
        ((_, made),) = pool.read([request])
        ((_, end),) = pool.read([VideoRequest("end", video, options={"find": "timeline"})])
        ((_, read),) = pool.read([VideoRequest("read", video, 0.0, 1.0, {"num_frames": 3, "size": [8, 6]})])
    assert made.timestamps_seconds == pytest.approx((1.5, 3.0))
    assert timeline_of(end).end_seconds == pytest.approx(3.0)
    assert tuple(read.frames.shape) == (3, 3, 8, 6)
    shown, whole = read_frames(copy, 99), read_frames(video, 99, 1.5, 3.0)
    assert shown.num_frames_in_clip == whole.num_frames_in_clip == 12
    assert shown.timestamps_seconds == pytest.approx([seconds - 1.5 for seconds in whole.timestamps_seconds])
    assert (shown.frames.float() - whole.frames.float()).abs().mean() < 12


def test_a_large_video_is_shown_small_and_with_fewer_frames(tmp_path):
    large = write_pictures(tmp_path / "large.mp4", [np.zeros((1000, 600, 3), np.uint8)] * 30, rate=60)
    copy = tmp_path / "copy.mp4"
    times = read_spans(large, 1, 0.0, 9.0, preview=str(copy)).timestamps_seconds
    assert times == pytest.approx((0.0, 0.5))
    shown = read_frames(copy, 1)
    assert (shown.num_frames_in_clip, tuple(shown.frames.shape[2:])) == (15, (480, 288))
