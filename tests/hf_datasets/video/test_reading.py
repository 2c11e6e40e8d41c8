"""The frames that are read, recognized by their pixels: frame i of a test video encodes the number i in its colors."""

import importlib
import multiprocessing
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
import torch

from hf_datasets.video import (
    VideoError,
    VideoLimits,
    VideoSpanError,
    backends,
    frame_indices,
    read_frames,
    read_frames_at,
)
from hf_datasets.video.pool import VideoReaderPool, VideoRequest
from tests.fixtures.videos import HEIGHT, WIDTH, numbers_of, write_video


def is_installed(backend: str) -> bool:
    """Whether it can really be imported: torchcodec also needs FFmpeg's libraries."""
    try:
        importlib.import_module(backend)
    except (ImportError, RuntimeError, OSError):
        return False
    return True


PEERS = [
    pytest.param(name, marks=pytest.mark.skipif(not is_installed(name), reason=f"{name} cannot be imported here"))
    for name in ("torchcodec", "decord")
]
CLIPS = ["demo.mp4", "part_0.mp4", "test.avi", "test.mp4", "test_video_structuralize.mp4"]
OPEN_GOPS = {"x264-params": "open-gop=1:keyint=12:min-keyint=6:bframes=3"}


def picked(numbers, num_frames):
    return [numbers[index] for index in frame_indices(len(numbers), num_frames)]


@pytest.fixture(params=["pyav", *PEERS])
def backend(request):
    return request.param


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    return tmp_path_factory.mktemp("videos")


@pytest.fixture(scope="module")
def b_frames(videos):
    return write_video(videos / "b-frames.mp4", 100)


@pytest.mark.parametrize(
    ("num_frames", "num_frames_in_clip", "indices"),
    [
        (12, 100, [3, 11, 20, 28, 36, 45, 53, 61, 70, 78, 86, 95]),
        (12, 30, [0, 3, 5, 8, 10, 13, 15, 18, 20, 23, 25, 28]),
        (12, 5, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]),
        (12, 1, [0] * 12),
        (8, 25, [1, 4, 7, 10, 13, 16, 19, 22]),
    ],
)
def test_frame_indices_are_those_of_the_release(num_frames, num_frames_in_clip, indices):
    assert frame_indices(num_frames_in_clip, num_frames) == indices


def test_frames_from_end_to_end_are_those_of_languagebind():
    """Its rule is `np.linspace(0, n - 1, T, dtype=int)`; a clip of fewer frames shows some several times, in order."""
    for length in (1, 2, 5, 8, 9, 100, 1001):
        assert frame_indices(length, 8, "ends") == np.linspace(0, length - 1, 8, dtype=int).tolist()
    assert frame_indices(100, 8, "ends") == [0, 14, 28, 42, 56, 70, 84, 99]
    assert frame_indices(5, 1, "ends") == [0]


def test_a_clip_is_read_from_end_to_end_on_request_also_by_workers(b_frames):
    expected = [10, 16, 22, 29]  # of frames 10 to 29
    assert numbers_of(read_frames(b_frames, 4, 0.4, 1.2, spread="ends")) == expected
    with VideoReaderPool(4, num_workers=1, spread="ends") as pool:
        ((_, read),) = pool.read([VideoRequest("clip", b_frames, 0.4, 1.2)])
    assert numbers_of(read) == expected


@pytest.mark.parametrize(("clip", "frames"), [(0, 12), (10, 0), (-1, 4)])
def test_frame_indices_of_nothing_are_refused(clip, frames):
    with pytest.raises(ValueError, match="must be at least 1"):
        frame_indices(clip, frames)


@pytest.mark.parametrize(
    ("start", "end", "numbers"),
    [
        (None, None, range(100)),
        (0.4, 1.2, range(10, 30)),
        (1.0, 1.04, range(25, 26)),
        (1.01, 1.03, range(25, 26)),
        (0.0, 0.2, range(5)),
        (2.88, None, range(72, 100)),
        (None, 1.96, range(49)),
        (3.0, float("inf"), range(75, 100)),
        (None, 0.0001, range(1)),
    ],
)
def test_the_frames_of_a_clip_are_the_right_ones_under_b_frames(b_frames, backend, start, end, numbers):
    clip = read_frames(b_frames, 12, start, end, backend=backend)
    assert numbers_of(clip) == picked(numbers, 12)
    assert clip.indices == tuple(frame_indices(len(numbers), 12))
    assert clip.timestamps_seconds == pytest.approx([number / 25 for number in picked(numbers, 12)])
    assert (clip.num_frames_in_clip, clip.missing_seconds) == (len(numbers), 0.0)
    assert clip.frames.shape == (12, 3, HEIGHT, WIDTH)
    assert clip.frames.dtype == torch.uint8


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_a_variable_frame_rate_is_read_by_its_timestamps(videos, backend, suffix):
    random.seed(0)
    ticks = [0]
    while len(ticks) < 80:
        ticks.append(ticks[-1] + random.choice([10, 20, 33, 40, 100, 400]))
    path = videos / f"variable{suffix}"
    if not path.exists():
        write_video(path, 80, ticks=ticks, time_base=Fraction(1, 1000))
    for start, end in [(0.5, 2.0), (1.1, 1.5), (3.0, 3.4)]:
        inside = [number for number, tick in enumerate(ticks) if 1000 * start <= tick < 1000 * end]
        clip = read_frames(path, 5, start, end, backend=backend)
        assert numbers_of(clip) == picked(inside, 5)
        assert clip.timestamps_seconds == pytest.approx([ticks[number] / 1000 for number in picked(inside, 5)])
    longest_gap = max(range(79), key=lambda number: ticks[number + 1] - ticks[number])
    middle = (ticks[longest_gap] + ticks[longest_gap + 1]) / 2000
    assert numbers_of(read_frames(path, 1, middle, middle + 0.01, backend=backend)) == [longest_gap]


@pytest.mark.parametrize(("suffix", "end_of_video"), [(".mp4", 7.9), (".mkv", 7.44)])  # how long the last is held
def test_over_seconds_each_part_of_a_clip_shows_what_is_on_display_in_it(videos, suffix, end_of_video):
    # 1.9 s of thirty frames a second, a picture that is held until 2.9 s, then two a second
    ticks = [33 * number for number in range(58)] + [2900 + 500 * number for number in range(10)]
    path = write_video(videos / f"slower{suffix}", len(ticks), ticks=ticks, time_base=Fraction(1, 1000))
    for start, end, num_frames in [(2.0, 6.0, 8), (0.0, 7.0, 7), (1.0, 4.0, 3), (2.0, 2.6, 2), (5.0, 99.0, 4)]:
        clip = read_frames(path, num_frames, start, end, spread="seconds")
        part = (min(end, end_of_video) - start) / num_frames
        for place, number in enumerate(numbers_of(clip)):
            held_until = ticks[number + 1] if number + 1 < len(ticks) else 8000
            begin = start + place * part
            assert ticks[number] / 1000 < begin + part + 0.05, (start, end, place, number)
            assert held_until / 1000 > begin - 0.05, (start, end, place, number)
        assert clip.timestamps_seconds == pytest.approx([ticks[number] / 1000 for number in numbers_of(clip)])
    assert numbers_of(read_frames(path, 8, 2.0, 6.0, spread="seconds")) == [57, 57, 58, 59, 60, 61, 62, 63]
    assert numbers_of(read_frames(path, 6, 6.4, 7.4, spread="seconds")) == [65, 65, 65, 66, 66, 66]
    assert max(read_frames(path, 4, 0.0, 6.0).timestamps_seconds) < 2  # by frames, most of which come early


@pytest.mark.parametrize("file", ["steady.mp4", "steady.mkv", "steady.avi"])
def test_at_a_constant_rate_seconds_and_frames_are_spread_alike(videos, file):
    rate = Fraction(30000, 1001)  # of which matroska rounds each time to a millisecond
    path = write_video(videos / file, 90, ticks=list(range(90)), time_base=1 / rate)
    random.seed(1)
    spans = [(0.0, 3.003), (None, None), (1.0, None), (0.5, 9.0)]
    spans += [tuple(sorted((random.random() * 2.9, random.random() * 2.9))) for _ in range(15)]
    for start, end in spans:
        frames = read_frames_at(path, [0], start, end).num_frames_in_clip
        for num_frames in {1, min(5, frames), frames}:
            by_seconds = read_frames(path, num_frames, start, end, spread="seconds", size=8)
            assert by_seconds.num_frames_in_clip == frames
            assert by_seconds.indices == tuple(frame_indices(frames, num_frames)), (start, end, num_frames)


def test_the_frame_of_a_video_of_one_is_repeated(videos, backend):
    clip = read_frames(write_video(videos / "one.mp4", 1), 12, backend=backend)
    assert numbers_of(clip) == [0] * 12
    assert clip.indices == (0,) * 12
    assert clip.num_frames_in_clip == 1


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_seconds_count_from_the_start_of_the_container(videos, backend, suffix):
    path = videos / f"late{suffix}"
    if not path.exists():
        write_video(path, 60, ticks=range(125, 185))
    clip = read_frames(path, 5, 0.4, 1.2, backend=backend)
    assert numbers_of(clip) == picked(range(10, 30), 5)
    assert clip.timestamps_seconds == pytest.approx([number / 25 for number in picked(range(10, 30), 5)])
    assert read_frames(path, 5, backend=backend).missing_seconds == 0.0


CONTAINERS = {
    "open-gops.mp4": {"options": OPEN_GOPS},
    "no-entry-points.mp4": {"options": {"x264-params": "intra-refresh=1:keyint=20"}},
    "edit-list.mp4": {"shift": -20, "container_options": {"avoid_negative_ts": "disabled"}},
    "transport.ts": {},
    "program.mpg": {"codec": "mpeg2video", "options": {"bf": "2", "g": "12"}},
    "packed.avi": {"codec": "mpeg4", "options": {"bf": "2", "g": "12"}},
    "intra.avi": {"codec": "mjpeg", "options": {}, "pixel_format": "yuvj420p"},
    "raw.h264": {},
    "hidden.webm": {"codec": "libvpx", "options": {"deadline": "realtime", "cpu-used": "8", "lag-in-frames": "16"}},
    "flash.flv": {},
}


WRONG_WITH_DECORD = CONTAINERS.keys() - {"hidden.webm", "intra.avi"}


def read_unless_refused(path, num_frames, start, end, backend):
    try:
        return read_frames(path, num_frames, start, end, backend=backend)
    except VideoError as error:
        if "use backend='pyav'" in str(error):
            return None
        raise


@pytest.mark.parametrize("name", CONTAINERS)
def test_difficult_files_give_the_right_frames_or_an_error_with_the_cure(videos, backend, name):
    path = videos / name
    if not path.exists():
        write_video(path, 80, **CONTAINERS[name])
    cut = 20 if name == "edit-list.mp4" else 0
    for start, end, numbers, num_frames in [
        (None, None, range(80 - cut), 12),
        (0.4, 1.2, range(10, 30), 12),
        (1.05, 1.06, range(26, 27), 1),
        (1.96, None, range(49, 80 - cut), 5),
    ]:
        clip = read_unless_refused(path, num_frames, start, end, backend)
        if clip is not None:
            assert numbers_of(clip) == picked([number + cut for number in numbers], num_frames)
        if backend == "decord":
            assert (clip is None) == (name in WRONG_WITH_DECORD)
        if backend == "pyav":
            assert clip is not None


@pytest.mark.parametrize("backend", PEERS)
@pytest.mark.parametrize("name", CLIPS)
@pytest.mark.parametrize(("start", "end"), [(None, None), (0.5, 1.0), (0.9, 300.0)])
def test_backends_give_equal_frames_of_real_clips(shared, backend, name, start, end):
    ours = read_frames(shared / "videos" / name, 12, start, end, backend="pyav")
    theirs = read_frames(shared / "videos" / name, 12, start, end, backend=backend)
    assert theirs.indices == ours.indices
    assert theirs.timestamps_seconds == ours.timestamps_seconds
    difference = (theirs.frames.int() - ours.frames.int()).abs()
    assert difference.max() <= 2  # rounding in the color conversion of different FFmpeg builds


def test_auto_is_pyav(b_frames):
    assert torch.equal(read_frames(b_frames, 8).frames, read_frames(b_frames, 8, backend="pyav").frames)


def test_an_end_beyond_the_video_reads_to_the_end_and_counts_the_missing_seconds(b_frames):
    clip = read_frames(b_frames, 12, 3.0, 10.0)
    assert numbers_of(clip) == picked(range(75, 100), 12)
    assert clip.missing_seconds == pytest.approx(6.0)


def test_a_start_beyond_the_video_is_an_error_about_the_span(b_frames):
    with pytest.raises(VideoSpanError, match=r"no frame in \[4.0, 5.0\) seconds; the video has 4.000 s"):
        read_frames(b_frames, 12, 4.0, 5.0)


@pytest.mark.parametrize(
    ("start", "end"), [(2.0, 2.0), (2.0, 1.0), (-1.0, 1.0), (float("nan"), 1.0), (0.0, float("nan"))]
)
def test_an_empty_or_negative_span_is_refused(b_frames, start, end):
    with pytest.raises(ValueError, match="0 <= start < end"):
        read_frames(b_frames, 12, start, end)


def test_a_header_that_lists_more_frames_than_there_are_is_not_trusted(videos):
    whole = write_video(videos / "whole.mp4", 100, container_options={"movflags": "faststart"}).read_bytes()
    lying = videos / "lying.mp4"
    lying.write_bytes(whole[: len(whole) * 2 // 3])
    clip = read_frames(lying, 12)
    held = clip.num_frames_in_clip
    assert 20 < held < 90
    assert numbers_of(clip) == picked(range(held), 12)
    assert clip.missing_seconds == pytest.approx((100 - held) / 25)


def test_frames_that_do_not_decode_are_left_out_and_counted(videos):
    content = bytearray(write_video(videos / "sound.mp4", 60, options={"g": "1", "bf": "0"}).read_bytes())
    at = content.index(b"mdat") + len(content) // 3
    content[at : at + len(content) // 6] = bytes(len(content) // 6)
    damaged = videos / "damaged.mp4"
    damaged.write_bytes(content)
    clip = read_frames(damaged, 60)
    assert 30 < clip.num_frames_in_clip < 60
    assert clip.missing_seconds == pytest.approx((60 - clip.num_frames_in_clip) / 25)
    assert clip.indices[: clip.num_frames_in_clip] == tuple(range(clip.num_frames_in_clip))


def test_a_file_that_is_not_a_video_or_lacks_its_index_is_refused_with_its_name(videos, b_frames):
    path = videos / "wrong.mp4"
    for content in (b"", b"not a video at all", b_frames.read_bytes()[:5000]):
        path.write_bytes(content)
        with pytest.raises(VideoError, match=r"wrong\.mp4: cannot be opened .* fetch it again"):
            read_frames(path, 4)


def test_hostile_sizes_and_durations_are_refused(b_frames):
    with pytest.raises(VideoError, match=r"frames of 128 x 96 exceed max_pixels=1000"):
        read_frames(b_frames, 4, limits=VideoLimits(max_pixels=1000))
    with pytest.raises(VideoError, match=r"4 s exceed max_duration_seconds=1"):
        read_frames(b_frames, 4, limits=VideoLimits(max_duration_seconds=1.0))


def test_several_numbers_of_frames_are_read_one_after_the_other(b_frames):
    both = read_frames(b_frames, (5, 3), 0.4, 2.0)
    apart = [read_frames(b_frames, count, 0.4, 2.0) for count in (5, 3)]
    assert torch.equal(both.frames, torch.cat([clip.frames for clip in apart]))
    assert both.indices == apart[0].indices + apart[1].indices
    with VideoReaderPool((5, 3), num_workers=1) as pool:
        ((_, read),) = pool.read([VideoRequest("clip", b_frames, 0.4, 2.0)])
    assert torch.equal(read.frames, both.frames)
    with pytest.raises(ValueError, match="positive"):
        VideoReaderPool((5, 0))


def test_an_unknown_backend_is_refused(b_frames):
    with pytest.raises(VideoError, match="choose one of auto, pyav, torchcodec, torchcodec-cuda, decord"):
        read_frames(b_frames, 4, backend="opencv")


@pytest.fixture
def on_a_gpu(monkeypatch):
    """A stand-in for torchcodec on CUDA, whose pixels are PyAV's and some levels; one frame comes at another time."""
    monkeypatch.setattr(backends, "_GPU", backends._Gpu())

    def make(levels):
        def decode(_, video, keys):
            pixels = backends.pyav_pixels(video, keys[:-1])
            return {
                key: np.clip(frame.astype(np.int16) + levels, 0, 255).astype(np.uint8) for key, frame in pixels.items()
            }

        monkeypatch.setattr(backends, "_torchcodec_at_times", decode)

    return make


def test_a_gpu_decodes_what_it_gives_as_pyav_does_and_pyav_the_frames_that_it_leaves_out(b_frames, on_a_gpu):
    on_a_gpu(2)
    expected = read_frames(b_frames, 4).frames
    for _ in range(2):
        found = read_frames(b_frames, 4, backend="torchcodec-cuda").frames
        difference = (found.short() - expected.short()).flatten(1)
        assert difference.float().mean(1)[:3].min() > 1.5
        assert difference.max() <= 2
        assert torch.equal(found[3], expected[3])


def test_a_gpu_that_gives_other_pixels_is_said_once_and_pyav_reads(b_frames, on_a_gpu, recwarn):
    on_a_gpu(40)
    for _ in range(2):
        assert torch.equal(read_frames(b_frames, 4, backend="torchcodec-cuda").frames, read_frames(b_frames, 4).frames)
    (warning,) = recwarn.list
    assert "of 255 on average, more than 3: PyAV reads them" in str(warning.message)


def test_a_process_forked_from_one_with_a_gpu_does_not_decode_on_it(b_frames, on_a_gpu):
    on_a_gpu(0)
    backends._GPU.is_used = True
    answers = multiprocessing.get_context("fork").SimpleQueue()

    def read():
        try:
            read_frames(b_frames, 2, backend="torchcodec-cuda")
        except VideoError as error:
            answers.put(str(error))

    worker = multiprocessing.get_context("fork").Process(target=read)
    worker.start()
    worker.join()
    assert "forked from one that uses a GPU" in answers.get()


@pytest.mark.skipif(not (torch.cuda.is_available() and is_installed("torchcodec")), reason="no GPU, or no torchcodec")
def test_a_gpu_gives_the_frames_of_pyav_within_the_tolerance(b_frames):
    found, expected = (read_frames(b_frames, 6, backend=name).frames for name in ("torchcodec-cuda", "pyav"))
    assert (found.float() - expected.float()).abs().mean() <= backends.GPU_TOLERANCE
    assert all(backends._GPU.agrees.values())


def test_a_missing_backend_is_an_error_with_the_cure(b_frames, monkeypatch):
    def absent(*_):
        raise ImportError("No module named 'decord'")

    monkeypatch.setitem(backends.PIXELS, "decord", absent)
    with pytest.raises(VideoError, match="install it, or use backend='pyav'"):
        read_frames(b_frames, 4, backend="decord")


def test_a_file_that_changed_is_opened_again(tmp_path):
    path = write_video(tmp_path / "changing.mp4", 10)
    assert read_frames(path, 4).num_frames_in_clip == 10
    write_video(path, 20)
    assert read_frames(path, 4).num_frames_in_clip == 20


def test_open_files_are_bounded(tmp_path):
    original = write_video(tmp_path / "0.mp4", 3).read_bytes()
    for number in range(2 * backends.MAX_OPEN_FILES):
        path = tmp_path / f"{number}.mp4"
        path.write_bytes(original)
        read_frames(path, 2)
    assert len(backends.PYAV_FILES) == backends.MAX_OPEN_FILES


def test_a_fork_leaves_the_open_files_of_its_parent_alone_and_ends(b_frames, backend):
    read_frames(b_frames, 2, backend=backend)
    child = os.fork()
    if not child:
        os._exit(read_frames(b_frames, 2, backend="pyav").num_frames_in_clip == 0)
    for _ in range(1000):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.01)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the fork hangs")
    assert status == 0


def test_threads_read_the_same_file_side_by_side(b_frames):
    together = threading.Barrier(4)

    def read(start):
        together.wait()
        return [numbers_of(read_frames(b_frames, 6, start / 25, start / 25 + 1)) for _ in range(5)]

    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(read, [0, 20, 40, 60]))
    assert results == [[picked(range(start, start + 25), 6)] * 5 for start in [0, 20, 40, 60]]


@pytest.fixture(scope="module")
def rotated(videos, b_frames):
    content = bytearray(b_frames.read_bytes())
    matrix = content.index(b"tkhd") + 4 + 40  # of a version 0 header: nine 16.16 and 2.30 numbers
    assert content[matrix : matrix + 4] == (1 << 16).to_bytes(4, "big")
    quarter_turn = [0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30]
    content[matrix : matrix + 36] = b"".join(number.to_bytes(4, "big", signed=True) for number in quarter_turn)
    path = videos / "rotated.mp4"
    path.write_bytes(content)
    return path


def test_a_rotated_video_is_upright(b_frames, rotated, backend):
    as_stored = read_frames(b_frames, 4, backend=backend).frames
    assert torch.equal(read_frames(rotated, 4, backend=backend).frames, as_stored.rot90(-1, dims=(2, 3)))


def test_frames_are_read_by_their_number_in_the_clip(b_frames):
    found = read_frames_at(b_frames, [7, 0, -1, 7], 1.0, 2.0)
    assert numbers_of(found) == [32, 25, 49, 32]
    assert (found.indices, found.num_frames_in_clip) == ((7, 0, 24, 7), 25)
    for wanted in ([25], [-26], []):
        with pytest.raises(ValueError, match="a clip of 25"):
            read_frames_at(b_frames, wanted, 1.0, 2.0)
