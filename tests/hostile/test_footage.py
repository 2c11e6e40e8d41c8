"""A folder of videos of which a fifth is hostile, and a full disk: the run ends, names them all and loses nothing.

`HOSTILE_VIDEOS` (200) files are indexed.
"""

import json
import os
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from colored_videos import write_colored_video
from small_index import index_config

from subtle.footage import engines, index
from subtle.options import run_recipe
from tests.fixtures.videos import write_video
from tests.hostile.full_disk import ROOM_KILOBYTES, complete_where_there_is_room, fill
from tests.hostile.kill_harness import differences
from tests.hostile.outcomes import indexed

VIDEOS = int(os.environ.get("HOSTILE_VIDEOS", "200"))
# What a decoder does with some files, at the first look or when the frames are read.
READER = """
import ctypes, os
from hf_datasets.video.spans import read_spans

def read(path, *arguments, **options):
    is_read = "find" not in options
    if "hang-at-once" in path or ("hang-later" in path and is_read):
        ctypes.PyDLL(None).sleep(3600)
    if "crash" in path and is_read:
        ctypes.string_at(0)
    if "leave" in path:
        os._exit(3)
    if "memory" in path and is_read:
        raise MemoryError("too much")
    return read_spans(path, *arguments, **options)
"""

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(1800)]


KINDS = {
    **dict.fromkeys(
        ("hang-at-once.mp4", "hang-later.mp4", "crash.mp4", "leave.mp4", "memory.mp4"), lambda whole, _: whole
    ),
    "truncated.mp4": lambda whole, share: whole[: int(len(whole) * (0.1 + share))],
    "half-there.mp4": None,
    "empty.mkv": lambda whole, share: b"",
    "noise.avi": lambda whole, share: random.Random(share).randbytes(5000),
    "playlist.ts": lambda whole, share: b"#EXTM3U\n#EXTINF:1,\n/etc/passwd\n",
    "zeros.mov": lambda whole, share: bytes(len(whole)),
    "pipe.mp4": None,
    "gone.mp4": None,
}


def write_hostile(folder, number, whole, promising):
    """A file that cannot be indexed, or not to its end; its name."""
    kind, share = list(KINDS)[number % len(KINDS)], random.Random(number).random() * 0.8
    path = folder / f"{number:03}-{kind}"
    if kind == "pipe.mp4":
        os.mkfifo(path)
    elif kind == "gone.mp4":
        path.symlink_to(folder / "nowhere.mp4")
    elif kind == "half-there.mp4":  # the header promises more
        path.write_bytes(promising[: int(len(promising) * (0.2 + 0.5 * share))])
    else:
        path.write_bytes(KINDS[kind](whole, share))
    return path.name


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reader")
    (folder / "hostile_spans.py").write_text(READER)
    sys.path.insert(0, str(folder))
    import hostile_spans

    yield hostile_spans.read
    sys.path.remove(str(folder))


def config_of(tiny, source, output, **others):
    options = {"window_seconds": 1.0, "stride_seconds": 0.5, "batch_size": 4, **others}
    return index_config(source, output, tiny["vision_model"], **options)


def test_a_fifth_of_hostile_files_is_named_and_all_others_are_indexed(tiny, reader, tmp_path, monkeypatch, capsys):
    folder, good = tmp_path / "videos", {}
    folder.mkdir()
    whole = write_video(tmp_path / "whole.mp4", 60).read_bytes()
    promising = write_video(tmp_path / "p.mp4", 200, container_options={"movflags": "faststart"}).read_bytes()
    hostile = {write_hostile(folder, number, whole, promising) for number in range(0, VIDEOS, 5)}
    for number in set(range(VIDEOS)) - set(range(0, VIDEOS, 5)):
        good[f"{number:03}.mp4"] = 1 + number % 3
        write_colored_video(folder / f"{number:03}.mp4", [(number, 200, 30)] * good[f"{number:03}.mp4"], seed=number)
    assert len(hostile) == len(range(0, VIDEOS, 5))
    monkeypatch.setattr(engines, "read_spans", reader)
    config = config_of(tiny, folder, tmp_path / "index", num_workers=2, timeout_seconds=3.0)
    assert run_recipe(index.main, config) == 0
    results = json.loads((tmp_path / "index" / "results.json").read_text())
    named = json.dumps([results[kind] for kind in ("quarantined", "failures", "postponed", "rejections")])
    assert not {name for name in hostile if name not in named}
    assert not {name for name in good if name in named}
    rows = indexed(tmp_path / "index")
    for name, seconds in good.items():
        assert sum(key.startswith(f"{name}#") for key in rows) == 2 * seconds - 1, name
    assert results["figures"]["files_in_index"] >= len(good)


def test_a_full_disk_is_one_line_and_with_room_the_index_is_the_same(tiny, small_disk, tmp_path, capsys):
    folder = tmp_path / "videos"
    folder.mkdir()
    for seed in range(20):
        write_colored_video(folder / f"{seed:02}.mp4", [(10 * seed, 99, 50)] * 3, seed=seed)
    config = config_of(tiny, folder, tmp_path / "whole", num_workers=0)
    assert run_recipe(index.main, config) == 0
    expected, config = indexed(tmp_path / "whole"), replace(config, output=str(small_disk / "index"))
    rooms = (*ROOM_KILOBYTES, 500)
    results = small_disk / "index/results.json"
    complete_where_there_is_room(small_disk, lambda: run_recipe(index.main, config), results, capsys, rooms)
    assert not differences(expected, indexed(small_disk / "index"), 0)
    (folder / "new.mp4").write_bytes(Path(folder / "00.mp4").read_bytes())
    with fill(small_disk, 0):
        assert run_recipe(index.main, config) == 2
    assert not differences(expected, indexed(small_disk / "index"), 0), "what was there stays whole"
