"""Workers that hang or die are killed and replaced, their file is quarantined, and all else is read."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

from hf_datasets.video import VideoFrames, read_frames
from hf_datasets.video_pool import VideoFailure, VideoReaderPool, VideoRequest
from tests.fixtures.videos import numbers_of, write_video

# A reader for workers that does to them what hostile files do. The hang holds the interpreter's lock, as decord's
# does, so that no signal handler and no thread of the worker could end it.
HOSTILE_READER = """
import ctypes, os
from hf_datasets.video import read_frames

def read(path, **options):
    if "hang" in path:
        ctypes.PyDLL(None).sleep(3600)
    if "crash" in path:
        os._exit(3)
    if "segfault" in path:
        ctypes.string_at(0)
    print("what a library prints is no answer")
    return read_frames(path, **options)
"""


@pytest.fixture(scope="module")
def hostile_reader(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reader")
    (folder / "hostile_reader.py").write_text(HOSTILE_READER)
    sys.path.insert(0, str(folder))
    import hostile_reader

    yield hostile_reader.read
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    content = write_video(folder / "a.mp4", 100).read_bytes()
    for name in ["b", "hang", "crash", "segfault", "z"]:
        (folder / f"{name}.mp4").write_bytes(content)
    (folder / "text.mp4").write_text("no video")
    return folder


@pytest.fixture(scope="module")
def pool(hostile_reader):
    with VideoReaderPool(6, num_workers=1, timeout_seconds=4.0, reader=hostile_reader) as pool:
        yield pool


def test_every_request_is_answered_with_the_frames_that_reading_gives(pool, folder):
    requests = [
        VideoRequest((name, start), folder / f"{name}.mp4", start, start + 1.0)
        for start in (2.0, 0.0, 1.0, 30.0)
        for name in ("b", "a", "text", "none")
    ]
    answers = list(pool.read(requests))
    assert len(answers) == len(requests)
    read = [key for key, answer in answers if isinstance(answer, VideoFrames)]
    assert read == sorted(read), "one worker reads in the order of files and starts"
    for (name, start), answer in answers:
        if name in "ab" and start < 4:
            expected = read_frames(folder / f"{name}.mp4", 6, start, start + 1.0)
            assert torch.equal(answer.frames, expected.frames)
            assert answer.indices == expected.indices
            assert answer.timestamps_seconds == expected.timestamps_seconds
            assert answer.num_frames_in_clip == 25
        else:
            assert isinstance(answer, VideoFailure)
            assert f"{name}.mp4: " in answer.reason
    # A span outside a good video is the annotation's fault, so the file is not in quarantine.
    assert set(pool.quarantine) == {str(folder / "text.mp4"), str(folder / "none.mp4")}
    assert dict(pool.read([VideoRequest("again", folder / "a.mp4")]))["again"].num_frames_in_clip == 100


def test_stuck_and_dead_workers_are_replaced_and_the_run_goes_on(pool, folder):
    requests = [
        VideoRequest((name, start), folder / f"{name}.mp4", start, start + 1.0)
        for name in ("a", "hang", "crash", "segfault", "b", "z")
        for start in (0.0, 1.0, 2.0)
    ]
    answers = dict(pool.read(requests))
    assert len(answers) == len(requests)
    for (name, start), answer in answers.items():
        if name in {"a", "b", "z"}:
            assert numbers_of(answer)[0] == round(25 * start) + 1
        else:
            assert isinstance(answer, VideoFailure)
    reasons = {Path(path).stem: reason for path, reason in pool.quarantine.items()}
    assert "no frames within 4 s" in reasons["hang"]
    assert "exit status 3" in reasons["crash"]
    assert "SIGSEGV" in reasons["segfault"]
    assert not {"a", "b", "z"} & set(reasons)


def test_an_abandoned_read_does_not_disturb_the_next(pool, folder):
    requests = [VideoRequest(number, folder / "a.mp4", number / 10, number / 10 + 1) for number in range(20)]
    reading = pool.read(requests)
    assert next(reading)[0] == 0
    with pytest.raises(RuntimeError, match="already reading"):
        next(pool.read(requests))
    reading.close()
    assert [key for key, _ in pool.read(requests[5:8])] == [5, 6, 7]


def test_a_worker_that_is_ended_from_outside_is_replaced(pool, folder):
    list(pool.read([VideoRequest(0, folder / "a.mp4")]))
    pool._workers[0].stop()
    answers = dict(pool.read([VideoRequest(number, folder / "b.mp4", number) for number in range(3)]))
    assert sorted(answers) == [0, 1, 2]


def test_a_closed_pool_says_so(folder):
    pool = VideoReaderPool(2)
    assert Path(pool._folder).is_dir()
    pool.close()
    assert not Path(pool._folder).exists()
    with pytest.raises(RuntimeError, match="this pool is closed"):
        next(pool.read([]))


def test_a_run_in_which_all_is_refused_ends(folder):
    with VideoReaderPool(2, num_workers=2) as pool:
        pool.quarantine[str(folder / "a.mp4")] = "bad"
        assert [answer.reason for _, answer in pool.read([VideoRequest(0, folder / "a.mp4")] * 3)] == [
            "bad"
        ] * 3
        assert list(pool.read([])) == []
        assert not pool._workers, "no worker was needed"


def test_a_script_needs_no_main_guard_and_leaves_nothing_behind_even_when_killed(folder, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        import os, signal
        from hf_datasets.video_pool import VideoReaderPool, VideoRequest
        pool = VideoReaderPool(2, num_workers=1, size=48)
        for key, clip in pool.read([VideoRequest(n, {str(folder / "a.mp4")!r}, n / 10) for n in range(9)]):
            print(*clip.frames.shape[2:], pool._folder, pool._workers[0].reader_pid, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        """)
    )
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == -signal.SIGKILL, run.stderr
    assert not run.stderr
    height, width, pixels, pid = run.stdout.split()
    assert (height, width) == ("48", "64")
    deadline = time.monotonic() + 20
    while (Path(pixels).exists() or is_running(int(pid))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(pixels).exists()
    assert not is_running(int(pid))


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_wrong_settings_are_refused():
    for settings in [{"num_workers": 0}, {"timeout_seconds": 0.0}]:
        with pytest.raises(ValueError, match="must be positive"):
            VideoReaderPool(12, **settings)
    with pytest.raises(ValueError, match="must be a function of a module"):
        VideoReaderPool(12, reader=lambda path, **options: None)
