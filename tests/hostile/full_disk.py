"""A disk as full as a test likes, and what a recipe says of it."""

import re
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import replace

import pytest

from subtle.options import run_recipe

# Kilobytes that are left: nothing fits, a description does, a shard or a model does, nearly all does.
ROOM_KILOBYTES = (0, 8, 40, 120, 260)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 32 megabytes."""
    folder = tmp_path / "small-disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@contextmanager
def fill(disk, kilobytes):
    """Leave so much room on a disk."""
    ballast = disk / "ballast"
    ballast.write_bytes(b"")
    ballast.write_bytes(bytes(max(0, shutil.disk_usage(disk).free - 1024 * kilobytes)))
    yield
    ballast.unlink()


def run_into(folder, main, config, **others):
    """The exit status of a recipe that writes into a folder."""
    try:
        return run_recipe(main, replace(config, output_dir=str(folder), **others))
    except SystemExit as end:
        return end.code


def one_line(capsys):
    """The only error on stderr, beside progress bars."""
    errors = [line for line in re.split(r"[\r\n]+", capsys.readouterr().err) if "error: " in line]
    assert len(errors) == 1, errors
    assert errors[0].startswith("error: "), "it stands on a line of its own"
    return errors[0]


def refused(disk, status, capsys):
    """A run that found no room said so in one line, and what it could not write takes up none."""
    assert status == 2, status
    error = one_line(capsys)
    assert str(disk) in error, error
    assert "run again" in error, error
    assert not list(disk.rglob("*.tmp"))


def complete_where_there_is_room(disk, run, results, capsys, rooms=ROOM_KILOBYTES):
    """Run with more and more room, and without a limit at last: no results before it is complete."""
    failed = 0
    for room in rooms:
        capsys.readouterr()
        with fill(disk, room):
            status = run()
        if status == 0:
            break
        failed += 1
        refused(disk, status, capsys)
        assert not results.exists()
    assert failed
    assert status == 0 or run() == 0
