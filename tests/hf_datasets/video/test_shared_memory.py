"""The folders of dead programs are removed, those of running ones are not."""

import multiprocessing
import os
import subprocess
import sys

import pytest

from hf_datasets.video import shared_memory
from hf_datasets.video.shared_memory import PREFIX, PixelFolder

HOLDER = """
import sys, pathlib
from hf_datasets.video import shared_memory
shared_memory.MEMORY = pathlib.Path(sys.argv[1])
shared_memory.MIN_FREE_MEMORY_BYTES = 0
folder = shared_memory.PixelFolder()
(folder.path / "slot").write_bytes(b"pixels")
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def memory(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_memory, "MEMORY", tmp_path)
    monkeypatch.setattr(shared_memory, "MIN_FREE_MEMORY_BYTES", 0)
    return tmp_path


def test_a_folder_lasts_as_long_as_its_program_and_the_next_run_removes_it(memory):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, memory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        theirs = memory / holder.stdout.readline().strip()
        ours = PixelFolder()
        assert (theirs / "slot").read_bytes() == b"pixels"
        holder.kill()
        holder.wait()
    assert theirs.is_dir(), "killed, it could not clean up"
    other = PixelFolder()
    assert not theirs.exists()
    assert ours.path.is_dir()
    assert ours.path != other.path
    for folder in (ours, other):
        folder.remove()
    assert not list(memory.iterdir())


def test_the_folders_and_files_of_others_stay(memory):
    outside = memory / "outside"
    outside.mkdir()
    (memory / f"{PREFIX}link").symlink_to(outside)
    (memory / f"{PREFIX}file").touch()
    (memory / "video-of-someone-else").mkdir()
    PixelFolder().remove()
    assert sorted(path.name for path in memory.iterdir()) == sorted(
        ["outside", f"{PREFIX}link", f"{PREFIX}file", "video-of-someone-else"]
    )


def test_without_room_in_memory_the_folder_is_among_the_temporary_files(memory, tmp_path_factory, monkeypatch):
    monkeypatch.setattr(shared_memory, "MIN_FREE_MEMORY_BYTES", 1 << 62)
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(shared_memory.tempfile, "gettempdir", lambda: str(temporary))
    folder = PixelFolder()
    assert folder.path.parent == temporary
    os.close(folder._lock)  # as the kernel does at the end of a program
    next_folder = PixelFolder()
    assert not folder.path.exists()
    next_folder.remove()


def test_a_file_system_without_locks_is_used_but_not_swept(memory, monkeypatch):
    def flock(*_):
        raise OSError("no locks")

    monkeypatch.setattr(shared_memory.fcntl, "flock", flock)
    folder, other = PixelFolder(), PixelFolder()
    assert folder.path.is_dir()
    for created in (folder, other):
        created.remove()
    assert not list(memory.iterdir())


def test_a_forked_process_knows_that_the_folder_is_not_its_own(memory):
    folder = PixelFolder()
    if "fork" in multiprocessing.get_all_start_methods():
        child = os.fork()
        if not child:
            os._exit(int(folder.is_owned))
        assert os.waitpid(child, 0)[1] == 0
    assert folder.is_owned
    folder.remove()
