"""Workers that hang or die are killed and replaced, their file is quarantined, and all else is read."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

from hf_datasets.video import VideoFrames, read_frames, worker
from hf_datasets.video.pool import VideoFailure, VideoReaderPool, VideoRequest, unreadable
from tests.fixtures.planted_modules import plant
from tests.fixtures.videos import numbers_of, write_video

# A reader for workers that does to them what hostile files do. The hang holds the interpreter's lock, as decord's
# does, so that no signal handler and no thread of the worker could end it.
HOSTILE_READER = """
import ctypes, os, signal
from pathlib import Path
from hf_datasets.video import read_frames

def read(path, **options):
    with open(Path(path).parent / "attempts", "a") as attempts:
        attempts.write(f"{Path(path).stem} {options['start_seconds']}\\n")
    if "hang" in path:
        Path(path + ".pid").write_text(str(os.getpid()))
        ctypes.PyDLL(None).sleep(3600)
    if "slow" in path or "memory" in path:
        first = Path(path + ".first")
        if not first.exists():
            first.touch()
            if "memory" in path:
                os.kill(os.getpid(), signal.SIGKILL)
            ctypes.PyDLL(None).sleep(3600)
    if "crash" in path:
        os._exit(3)
    if "leave" in path:
        os._exit(0)
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
    for name in ["b", "hang", "crash", "leave", "segfault", "memory", "slow", "z"]:
        (folder / f"{name}.mp4").write_bytes(content)
    (folder / "text.mp4").write_text("no video")
    return folder


@pytest.fixture(scope="module")
def pool(hostile_reader):
    with VideoReaderPool(6, num_workers=1, timeout_seconds=1.0, reader=hostile_reader) as pool:
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


def test_without_workers_this_process_reads_with_the_same_results(pool, folder, hostile_reader):
    pool.quarantine.clear()
    spans = [(name, start, start + 1) for name in ("b", "a", "text", "none") for start in (2.0, 0.0, 30.0)]
    spans.append(("a", 2.0, 1.0))  # ends before it starts
    requests = [VideoRequest(span, folder / f"{span[0]}.mp4", *span[1:]) for span in spans]
    with VideoReaderPool(6, num_workers=0, reader=hostile_reader) as here:
        answers, expected = dict(here.read(requests)), dict(pool.read(requests))
        assert not here._workers
    assert [span[:2] for span in answers] == sorted(span[:2] for span in spans)
    assert here.quarantine == pool.quarantine != {}
    assert answers.keys() == expected.keys()
    for span, answer in answers.items():
        if isinstance(answer, VideoFailure):
            assert answer == expected[span]
        else:
            assert torch.equal(answer.frames, expected[span].frames)
            assert answer.timestamps_seconds == expected[span].timestamps_seconds
    with pytest.raises(RuntimeError, match="this pool is closed"):
        next(here.read(requests))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_clips_without_a_readable_frame_are_named_with_the_reason(folder, num_workers):
    spans = {"good": ("a", 0.0), "behind the end": ("a", 30.0), "no video": ("text", 0.0), "no file": ("none", 0.0)}
    requests = [VideoRequest(key, folder / f"{name}.mp4", start) for key, (name, start) in spans.items()]
    reasons = unreadable(requests, num_workers=num_workers)
    assert reasons.keys() == {"behind the end", "no video", "no file"}
    assert all(f"{spans[key][0]}.mp4: " in reason for key, reason in reasons.items())


def test_stuck_and_dead_workers_are_replaced_and_the_run_goes_on(pool, folder):
    (folder / "attempts").unlink(missing_ok=True)
    requests = [
        VideoRequest((name, start), folder / f"{name}.mp4", start, start + 1.0)
        for name in ("a", "hang", "crash", "leave", "segfault", "memory", "slow", "b", "z")
        for start in (0.0, 1.0, 2.0)
    ]
    answers = dict(pool.read(requests))
    assert len(answers) == len(requests)
    for (name, start), answer in answers.items():
        if name in {"a", "b", "z", "memory", "slow"}:
            assert numbers_of(answer)[0] == round(25 * start) + 1
        else:
            assert isinstance(answer, VideoFailure)
    reasons = {Path(path).stem: reason for path, reason in pool.quarantine.items()}
    assert "no frames within 1 s, also when it was tried once more alone" in reasons["hang"]
    assert "exit status 3" in reasons["crash"]
    assert "exit status 0" in reasons["leave"]
    assert "SIGSEGV" in reasons["segfault"]
    assert not {"a", "b", "z", "memory", "slow"} & set(reasons)
    # What may be the machine's fault is tried again when all else is done, a file that hangs no more than that.
    attempts = (folder / "attempts").read_text().splitlines()
    assert attempts.count("hang 0.0") == 2
    assert attempts.count("crash 0.0") == attempts.count("segfault 0.0") == 1
    assert not {"hang 1.0", "crash 1.0", "segfault 1.0"} & set(attempts)
    retried = ["hang 0.0", *(f"{name} {start}" for name in ("memory", "slow") for start in (0.0, 1.0, 2.0))]
    assert attempts[-len(retried) :] == retried


def test_a_read_that_the_caller_stopped_early_does_not_affect_the_next(pool, folder):
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


def test_a_closed_pool_refuses_to_read(folder):
    pool = VideoReaderPool(2)
    assert Path(pool._folder).is_dir()
    pool.close()
    assert not Path(pool._folder).exists()
    with pytest.raises(RuntimeError, match="this pool is closed"):
        next(pool.read([]))


def test_a_read_of_quarantined_files_only_ends_without_a_worker(folder):
    with VideoReaderPool(2, num_workers=2) as pool:
        pool.quarantine[str(folder / "a.mp4")] = "bad"
        assert [answer.reason for _, answer in pool.read([VideoRequest(0, folder / "a.mp4")] * 3)] == ["bad"] * 3
        assert list(pool.read([])) == []
        assert not pool._workers, "no worker was needed"


def test_a_killed_program_takes_hanging_readers_with_it_and_needs_no_main_guard(folder, hostile_reader, tmp_path):
    for name in ("hang-1", "hang-2"):
        (folder / f"{name}.mp4").write_bytes((folder / "a.mp4").read_bytes())
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        import os, signal, sys, threading, time
        from pathlib import Path
        sys.path.insert(0, {str(Path(sys.modules[hostile_reader.__module__].__file__).parent)!r})
        import hostile_reader
        from hf_datasets.video.pool import VideoReaderPool, VideoRequest
        pools = [
            VideoReaderPool(2, num_workers=1, timeout_seconds=3600, reader=hostile_reader.read) for _ in range(2)
        ]
        for number, pool in enumerate(pools, 1):
            path = Path({str(folder)!r}, f"hang-{{number}}.mp4")
            reading = lambda pool=pool, path=path: list(pool.read([VideoRequest(0, path)]))
            threading.Thread(target=reading, daemon=True).start()
            pool.is_hanging = lambda path=path: Path(f"{{path}}.pid").exists()
        deadline = time.monotonic() + 90
        while not all(pool.is_hanging() for pool in pools) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "torch" not in sys.modules
        for pool in pools:
            print(pool._folder, pool._workers[0].process.pid, pool._workers[0].reader_pid, flush=True)
        if not os.fork():  # a process forked from the program must not keep the workers alive
            os.setsid()
            os.close(1)
            while os.path.exists(pools[0]._folder) and time.monotonic() < deadline:
                time.sleep(0.05)
            os._exit(0)
        os.kill(pools[1]._workers[0].process.pid, signal.SIGSTOP)  # it can clean up no more
        os.killpg(0, signal.SIGTERM)
        """)
    )
    run = subprocess.run(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "errors").open("w"),
        text=True,
        check=False,
        timeout=120,
        start_new_session=True,
    )
    assert run.returncode == -signal.SIGTERM, (tmp_path / "errors").read_text()
    (pixels, worker, reader), (pixels_of_killed, killed, reader_of_killed) = (
        line.split() for line in run.stdout.splitlines()
    )
    os.kill(int(killed), signal.SIGKILL)
    deadline = time.monotonic() + 20
    pids = [int(pid) for pid in (worker, reader, reader_of_killed)]
    while (Path(pixels).exists() or any(map(is_running, pids))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(pixels).exists()
    assert not any(map(is_running, pids))
    while Path(pixels_of_killed).exists() and time.monotonic() < deadline:
        VideoReaderPool(2).close()  # the next run removes it, once the forked process has ended too
    assert not Path(pixels_of_killed).exists()


def test_reading_pixels_imports_neither_torch_nor_datasets(folder):
    program = f"""
import sys
import hf_datasets.video.worker, hf_datasets.video, hf_datasets.video.pool
assert hf_datasets.video.read_frames({str(folder / "a.mp4")!r}, 2, size=48).pixels.shape == (2, 48, 64, 3)
print(*sorted({{name.split(".")[0] for name in sys.modules}}))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy = {"torch", "torchvision", "transformers", "datasets", "pandas", "pyarrow", "polars"}
    assert not heavy & set(run.stdout.split())


def test_a_reader_skips_the_rest_of_a_line_during_which_another_reader_was_killed(monkeypatch):
    lines = iter([b'ber": 3, "path": "a.mp4"}\n', b"\n", b""])
    monkeypatch.setattr(worker, "_line", lambda: next(lines))
    said = io.StringIO()
    worker._serve(said, read_frames, {"options": {}, "timeout_seconds": 1.0})
    assert json.loads(said.getvalue()) == {"ready": os.getpid()}


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_wrong_settings_are_refused():
    for settings in [{"num_workers": -1}, {"timeout_seconds": 0.0}]:
        with pytest.raises(ValueError, match=r"must be positive, and num_workers=.* at least 0"):
            VideoReaderPool(12, **settings)
    with pytest.raises(ValueError, match="must be the shorter side or"):
        VideoReaderPool(12, size=0)
    with pytest.raises(ValueError, match="must be a function of a module"):
        VideoReaderPool(12, reader=lambda path, **options: None)


def test_a_full_disk_is_an_error_and_does_not_quarantine_the_video(folder):
    with VideoReaderPool(2, num_workers=1) as pool:
        list(pool.read([VideoRequest(0, folder / "a.mp4")]))
        shutil.rmtree(pool._folder)
        with pytest.raises(OSError, match=r"cannot hold the frames of a clip .*; make room there and run again"):
            list(pool.read([VideoRequest(1, folder / "b.mp4")]))
        assert not pool.quarantine


def test_a_worker_runs_no_module_of_the_working_directory(tmp_path, monkeypatch):
    path = write_video(tmp_path / "video.mp4", 4)
    ran = plant(tmp_path / "stranger", monkeypatch)
    with VideoReaderPool(2, num_workers=1, timeout_seconds=60) as pool:
        ((_, read),) = pool.read([VideoRequest("clip", path)])
    assert isinstance(read, VideoFrames)
    assert not ran.exists()
