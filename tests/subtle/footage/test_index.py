"""Indexing one's own videos: what is new is read once, a killed run goes on, and the index knows its model."""

import contextlib
import json
import os
import shutil
import signal
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from colored_videos import write_colored_video
from filelock import FileLock
from small_index import index_config

from hf_datasets.video import read_frames
from hf_models.encoders import load_encoder
from hf_models.index.search import search_moments
from hf_models.index.store import MomentIndex
from subtle.footage import index, reading, search
from subtle.footage.options import SearchConfig
from subtle.options import run_recipe
from subtle.run import locks

RED, GREEN, BLUE, WHITE, BLACK = (250, 20, 20), (20, 250, 20), (20, 20, 250), (245, 245, 245), (10, 10, 10)
VIDEOS = {
    "a.mp4": (RED, GREEN, BLUE),
    "b/it's.mkv": (BLUE, RED),
    "c.mp4": (WHITE, BLACK, GREEN, RED),
    "d.mp4": (GREEN,),
}


@pytest.fixture
def videos(tmp_path):
    folder = tmp_path / "videos"
    for seed, (name, colors) in enumerate(VIDEOS.items()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_colored_video(folder / name, colors, seed=seed)
    return folder


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    monkeypatch.setattr(reading, "FILES_PER_GROUP", 1)


@pytest.fixture
def config(videos, tmp_path, tiny):
    """With windows of one second every half second, by a tiny AIM."""
    windows = {"window_seconds": 1.0, "stride_seconds": 0.5, "batch_size": 2}
    return index_config(videos, tmp_path / "index", tiny["vision_model"], **windows)


def rows_of(path, model=None):
    opened = MomentIndex(path)
    rows = opened.moments(opened.find(model).key).to_arrow().to_pylist()
    for row in rows:
        row["vector"] = tuple(row["vector"])
    return sorted(rows, key=lambda row: row["moment_id"])


def spans_of(path, video):
    return [(row["start_seconds"], row["end_seconds"]) for row in rows_of(path) if row["video"] == video]


def test_a_folder_becomes_windows_with_the_vectors_of_their_frames(config, videos):
    counts = index.run(config)
    assert counts["moments_in_index"] == 5 + 3 + 7 + 1
    assert spans_of(config.output, "b/it's.mkv") == [(0.0, 1.0), (0.5, 1.5), (1.0, 2.0)]
    encoder = load_encoder(config.model)
    for row in rows_of(config.output):
        span = (row["start_seconds"], row["end_seconds"])
        frames = read_frames(videos / row["video"], 4, *span, size=(16, 16)).frames
        assert row["vector"] == pytest.approx(encoder.query(frames), abs=1e-5)
        assert row["moment_id"].startswith(f"{row['video']}#t=")
        assert row["fingerprint"].endswith(f"-{(videos / row['video']).stat().st_size}")


def test_a_second_run_reads_nothing(config, monkeypatch):
    index.run(config)
    before = rows_of(config.output)
    monkeypatch.setattr(reading.GroupReader, "read_all", None)
    counts = index.run(config)
    assert (counts["files_unchanged"], counts["files_indexed"]) == (4, 0)
    assert rows_of(config.output) == before


def test_only_what_changed_is_read_again(config, videos, monkeypatch):
    index.run(config)
    shutil.move(videos / "a.mp4", videos / "b" / "moved.mp4")
    (videos / "d.mp4").unlink()
    write_colored_video(videos / "c.mp4", (BLACK, WHITE), seed=9)
    write_colored_video(videos / "new.mp4", (WHITE,), seed=8)
    os.utime(videos / "b/it's.mkv", ns=(1, 1))  # touched, the same content
    read = []
    read_all = reading.GroupReader.read_all

    def noting(self, groups):
        groups = list(groups)
        read.extend(one.file.video for group in groups for one in group)
        return read_all(self, groups)

    monkeypatch.setattr(reading.GroupReader, "read_all", noting)
    counts = index.run(config)
    assert read == ["c.mp4", "new.mp4"]
    changes = {name: counts[f"files_{name}"] for name in ("indexed", "moved", "deleted", "unchanged")}
    assert changes == {"indexed": 2, "moved": 1, "deleted": 1, "unchanged": 1}
    again = replace(config, output=f"{config.output}-again")
    index.run(again)
    without_times = [[row | {"modified": None} for row in rows_of(path)] for path in (config.output, again.output)]
    assert without_times[0] == without_times[1]


def test_missing_videos_can_be_kept(config, videos):
    index.run(config)
    (videos / "d.mp4").unlink()
    assert index.run(replace(config, keep_missing=True))["moments_in_index"] == 16
    assert index.run(config)["moments_in_index"] == 15


def test_a_watched_file_is_indexed_when_it_has_stopped_growing_and_a_renamed_one_is_not_read_again(config, videos):
    said = []
    watched = index.Watch(replace(config, watch=5.0), said.append)
    whole = (videos / "c.mp4").read_bytes()
    (videos / "c.mp4").write_bytes(whole[:1000])
    assert watched.look() is None  # nothing is known of any file yet
    assert watched.look()["moments_in_index"] == 5 + 3 + 1  # a thousand bytes do not decode
    (videos / "c.mp4").write_bytes(whole[:2000])
    assert watched.look() is None
    (videos / "c.mp4").write_bytes(whole)
    assert watched.look() is None
    assert watched.look()["moments_in_index"] == 5 + 3 + 7 + 1
    assert watched.look() is None
    vectors = {row["vector"] for row in rows_of(config.output) if row["video"] == "a.mp4"}
    shutil.move(videos / "a.mp4", videos / "moved.mp4")
    (videos / "d.mp4").unlink()
    assert watched.look() is None
    assert len(rows_of(config.output)) == 16  # until they have settled
    counts = watched.look()
    assert (counts["files_moved"], counts["files_deleted"], counts["files_indexed"]) == (1, 1, 0)
    assert {row["vector"] for row in rows_of(config.output) if row["video"] == "moved.mp4"} == vectors


def test_a_watched_disk_that_is_full_or_gone_is_said_once_and_waited_for(config, videos, monkeypatch):
    said = []
    watched = index.Watch(replace(config, watch=5.0), said.append)
    watched.look()
    full = OSError(28, "No space left on device")
    with monkeypatch.context() as patched:
        patched.setattr(index.Indexer, "commit", lambda *_: (_ for _ in ()).throw(full))
        assert watched.look() is watched.look() is None
    assert [line for line in said if "No space left" in line and "every 5 s" in line] == said[-1:]
    assert watched.look()["files_indexed"] == 4
    videos.rename(videos.with_name("unmounted"))
    assert watched.look() is watched.look() is None
    assert "that the disk is there" in said[-1]
    assert "that the disk is there" not in said[-2]
    videos.mkdir()
    assert watched.look() is watched.look() is None
    assert "nothing was changed" in said[-1]
    assert len(rows_of(config.output)) == 16


def test_watching_ends_with_a_signal_and_refuses_what_is_no_folder(config, videos, monkeypatch, capsys):
    looks = []

    def end(seconds):
        looks.append(seconds)
        if len(looks) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(index.time, "sleep", end)
    try:
        index.run(replace(config, watch=0.5))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert looks == [0.5] * 3
    assert "stopped; " in capsys.readouterr().out
    assert len(rows_of(config.output)) == 16
    for wrong in ({"watch": 0.0}, {"watch": 1.0, "source": None}, {"watch": 1.0, "output": "s3://bucket/index"}):
        with pytest.raises(ValueError, match="--watch"):
            replace(config, **wrong)
    with pytest.raises(ValueError, match="--watch is of a folder"):
        index.run(replace(config, watch=1.0, source=__file__))


@pytest.fixture
def killed_before(monkeypatch):
    """Make the process end before its n-th commit to a table."""
    from lancedb.table import LanceTable  # takes seconds, also where another process runs this file

    writers = {name: getattr(LanceTable, name) for name in ("merge_insert", "add")}

    def counted(name, calls):
        def write(self, *arguments):
            if next(calls, None) is None:
                raise KeyboardInterrupt
            return writers[name](self, *arguments)

        return write

    def arrange(number):
        calls = iter(range(number))
        for name in writers:
            monkeypatch.setattr(LanceTable, name, counted(name, calls))

    return arrange


@pytest.mark.parametrize(
    "commits", [(0, 3, 8), pytest.param((1, 2, 4, 5, 6, 7), marks=pytest.mark.slow)], ids=["some", "others"]
)
def test_a_run_that_is_killed_at_any_commit_and_goes_on_equals_one_that_was_not(config, killed_before, commits):
    whole = replace(config, output=f"{config.output}-whole")
    index.run(whole)
    expected = rows_of(whole.output)
    for number in commits:  # of nine: one for the model, then two for each of four groups
        part = replace(config, output=f"{config.output}-{number}")
        killed_before(number)
        with pytest.raises(KeyboardInterrupt):
            index.run(part)
        killed_before(1000)
        index.run(part)
        assert rows_of(part.output) == expected, number


@pytest.mark.parametrize("share", [pytest.param(0, marks=pytest.mark.slow), 0.5])
def test_an_index_whose_newest_file_is_cut_goes_back_and_indexes_what_is_missing(config, videos, capsys, share):
    (videos / "d.mp4").rename(videos.parent / "d.mp4")
    index.run(config)
    (videos.parent / "d.mp4").rename(videos / "d.mp4")
    index.run(config)
    expected = rows_of(config.output)
    for table in ("files", "moments", "models"):
        cut = Path(config.output).with_name(table)
        shutil.copytree(config.output, cut)
        newest = max(cut.glob(f"{table}*.lance/data/*"), key=lambda path: path.stat().st_mtime_ns)
        newest.write_bytes(newest.read_bytes()[: int(share * newest.stat().st_size)])
        capsys.readouterr()
        assert run_recipe(index.main, replace(config, output=str(cut))) == 0
        assert "it goes back to the last state that can be read" in capsys.readouterr().out
        assert rows_of(cut) == expected, table
        assert MomentIndex(cut).files(MomentIndex(cut).active.key).keys() == VIDEOS.keys()


def test_moments_that_no_file_accounts_for_are_made_again_or_removed(config, videos):
    """As another writer leaves them, or a run that was killed before its video was deleted."""
    index.run(config)
    expected, opened = rows_of(config.output), MomentIndex(config.output)
    table = opened.moments(opened.active.key)
    table.delete("video = 'a.mp4' AND start_seconds = 0")
    strange = table.search().where("video = 'c.mp4'").limit(1).to_arrow().to_pylist()
    table.add([row | {"moment_id": f"gone.mp4#{number}", "video": "gone.mp4"} for number, row in enumerate(strange)])
    counts = index.run(config)
    assert (counts["files_indexed"], counts["files_deleted"]) == (1, 1)
    assert rows_of(config.output) == expected


def test_a_search_of_an_index_that_is_cut_names_the_cure(config):
    index.run(config)
    opened = MomentIndex(config.output)
    model, query = opened.active, np.ones(opened.active.dimensions, np.float32)
    for table in ("moments", "models"):
        for path in Path(config.output).glob(f"{table}*.lance/data/*"):
            path.write_bytes(path.read_bytes()[:100])
        with pytest.raises(OSError, match=r"cannot be read .* run the `subtle index FOLDER --output .* goes back"):
            search_moments(MomentIndex(config.output), model, query, where="start_seconds >= 0")


def test_broken_videos_are_named_and_tried_again_when_they_change(config, videos, capsys):
    whole = (videos / "a.mp4").read_bytes()
    (videos / "a.mp4").write_bytes(whole[:500])
    (videos / "empty.mp4").touch()
    (videos / "text.avi").write_text("no video")
    counts = index.run(config)
    shown = capsys.readouterr().out
    assert counts["files_quarantined"] == 3
    assert all(name in shown for name in ("a.mp4", "empty.mp4", "text.avi"))
    assert index.run(config)["files_unchanged"] == 6
    (videos / "a.mp4").write_bytes(whole)
    counts = index.run(config)
    assert (counts["files_quarantined"], counts["files_indexed"]) == (2, 1)
    assert len(spans_of(config.output, "a.mp4")) == 5
    results = json.loads(Path(config.output, "results.json").read_text())
    assert sorted(results["quarantined"]) == ["empty.mp4", "text.avi"]


def test_files_that_change_vanish_or_grow_while_they_are_read_are_left_for_the_next_run(
    config, videos, monkeypatch, capsys
):
    index.run(config)
    before = {video: spans_of(config.output, video) for video in VIDEOS}
    for seed, (name, colors) in enumerate(VIDEOS.items()):
        write_colored_video(videos / name, colors[::-1], seed=20 + seed)

    def change(work):
        path = videos / work.file.wanted.file.video
        match path.name:
            case "a.mp4":
                write_colored_video(path, (BLUE, BLUE), seed=5)
            case "c.mp4":
                path.unlink()
            case "it's.mkv":
                path.write_bytes(path.read_bytes() + b"more")

    finish = reading.Reading.finish
    monkeypatch.setattr(reading.Reading, "finish", lambda self, work: [change(work), finish(self, work)])
    counts = index.run(config)
    assert (counts["files_postponed"], counts["files_indexed"]) == (3, 1)
    shown = capsys.readouterr().out
    assert all(f"{video}: it changed or vanished" in shown for video in ("a.mp4", "b/it's.mkv", "c.mp4"))
    assert {video: spans_of(config.output, video) for video in VIDEOS} == before, "what was known is kept"
    monkeypatch.setattr(reading.Reading, "finish", finish)
    counts = index.run(config)
    assert (counts["files_postponed"], counts["files_indexed"], counts["files_deleted"]) == (0, 2, 1)
    assert len(spans_of(config.output, "a.mp4")) == 3


def test_a_table_names_the_moments(config, videos, tmp_path):
    table = tmp_path / "moments.csv"
    lines = ["a,0.5,1.5,vault", "a.mp4,,,all", "gone,1,2,x", "d,0,9,late", "a,3.2,3.8,after", "d,0,1,<b>bold</b>"]
    table.write_text("\n".join(["video,start_seconds,end_seconds,label", *lines]))
    counts = index.run(replace(config, source=str(table), video_dir=str(videos)))
    found = [(row["video"], row["start_seconds"], row["end_seconds"], row["label"]) for row in rows_of(config.output)]
    assert sorted(found) == [
        ("a.mp4", 0.0, 3.0, "all"),
        ("a.mp4", 0.5, 1.5, "vault"),
        ("d.mp4", 0.0, 1.0, "<b>bold</b>"),
    ]
    results = json.loads(Path(config.output, "results.json").read_text())
    assert counts["moments_failed"] == 2
    assert "ends after the video" in results["failures"]["d.mp4#t=0,9"]
    assert "no frame in" in results["failures"]["a.mp4#t=3.2,3.8"]
    assert "missing video: 'gone'" in str(results["rejections"])


@pytest.mark.parametrize("video", ["../secret", "/etc/secret.mp4", "b/../../secret"])
def test_a_table_leads_nowhere_outside(config, videos, tmp_path, video):
    shutil.copy(videos / "a.mp4", tmp_path / "secret.mp4")
    table = tmp_path / "moments.csv"
    table.write_text(f"video,start_seconds,end_seconds\n{video},0,1\n")
    with pytest.raises(ValueError, match="none of its videos"):
        index.run(replace(config, source=str(table), video_dir=str(videos)))


def test_models_live_side_by_side_and_searches_go_back(config, tiny, capsys):
    index.run(config)
    first = rows_of(config.output)
    other = replace(config, model=str(Path(tiny["vision_model"]).parent / "other"))
    shutil.copytree(config.model, other.model, dirs_exist_ok=True)
    model = load_encoder(config.model).model
    torch.nn.init.normal_(next(weight for weight in model.parameters() if weight.ndim > 1))
    model.save_pretrained(other.model)
    index.run(other)
    assert "searches still use" in capsys.readouterr().out
    assert MomentIndex(config.output).active.name == config.model
    assert rows_of(config.output) == first
    assert rows_of(config.output, "other") != first
    index.run(replace(config, source=None, activate="other"))
    assert MomentIndex(config.output).active.name == other.model
    index.run(replace(config, source=None, activate="aim"))
    assert MomentIndex(config.output).active.name == config.model
    with pytest.raises(ValueError, match="holds no vectors of 'third'"):
        index.run(replace(config, source=None, activate="third"))


def test_vectors_of_mixed_precision_are_a_model_of_their_own_that_searches_load_again(config, videos):
    index.run(config)
    index.run(replace(config, mixed_precision="bf16"))
    opened = MomentIndex(config.output)
    exact, mixed = opened.models.values()
    assert (exact.details["mixed_precision"], mixed.details["mixed_precision"]) == ("no", "bf16")
    vectors = [np.array([row["vector"] for row in rows_of(config.output, model.key)]) for model in (exact, mixed)]
    assert not np.array_equal(*vectors)
    assert (vectors[0] * vectors[1]).sum(1) == pytest.approx(1, abs=0.01)
    asked = SearchConfig(index=config.output, model=mixed.key, clip=str(videos / "d.mp4"), device="cpu")
    assert search.find(asked)[0]["video"] == "d.mp4"


@pytest.mark.parametrize("killed", [None, 2, *(pytest.param(one, marks=pytest.mark.slow) for one in (0, 1, 5))])
def test_two_runs_of_one_bucket_at_once_leave_each_moment_once(config, killed_before, monkeypatch, killed):
    """A folder by its address, which no lock keeps; the second run begins and ends, or dies, after the first looked."""
    index.run(config)
    shared = replace(config, output=f"file://{config.output}-shared")
    compared = index.find_changes

    def compare_then_let_another_run(*arguments, **options):
        monkeypatch.setattr(index, "find_changes", compared)
        changes = compared(*arguments, **options)
        killed_before(1000 if killed is None else killed)
        with contextlib.suppress(KeyboardInterrupt):
            index.run(shared)
        killed_before(1000)
        return changes

    monkeypatch.setattr(index, "find_changes", compare_then_let_another_run)
    assert index.run(shared)["files_indexed"] == 4
    assert rows_of(shared.output) == rows_of(config.output)


def test_a_second_writer_is_refused(config, monkeypatch):
    index.run(config)
    monkeypatch.setattr(locks, "LOCK_SECONDS", 0.05)
    with FileLock(f"{config.output}/run.lock"), pytest.raises(OSError, match="another run is writing"):
        index.run(config)


def test_other_videos_are_refused_before_the_index_loses_its_own(config, tmp_path):
    index.run(config)
    (tmp_path / "others").mkdir()
    write_colored_video(tmp_path / "others/z.mp4", (RED,))
    with pytest.raises(ValueError, match="holds the videos of"):
        index.run(replace(config, source=str(tmp_path / "others")))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no video file"):
        index.run(replace(config, source=str(tmp_path / "empty")))
    assert len(rows_of(config.output)) == 16


def test_a_folder_of_other_things_is_no_place_for_an_index(config, videos, capsys):
    assert run_recipe(index.main, replace(config, output=str(videos))) == 2
    assert "name an empty folder" in capsys.readouterr().err


@pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.slow), 99])
def test_an_index_of_another_version_is_refused(version, config, capsys):
    """Those of format 2 were made of other frames of the same moments."""
    index.run(config)
    table = MomentIndex(config.output).database.open_table("models")
    table.update(where="true", values={"format": version})
    capsys.readouterr()
    asked = SearchConfig(index=config.output, text="show red", device="cpu")
    assert [run_recipe(index.main, config), run_recipe(search.main, asked)] == [2, 2]
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert all("made by another version" in line and "make it again" in line for line in said)


def test_shots_are_cut_where_the_picture_changes(config, videos):
    pytest.importorskip("scenedetect")
    index.run(replace(config, cut="shots"))
    spans = spans_of(config.output, "c.mp4")
    assert spans[0][0] == 0.0
    assert spans[-1][1] == pytest.approx(4.0, abs=0.01)
    assert all(before[1] == after[0] for before, after in pairwise(spans))


def test_an_encoder_that_gives_no_numbers_is_refused(config, monkeypatch):
    load = index.load_model

    def broken(config):
        encoder = load(config)
        encoder.vectors = lambda frames: np.full((len(frames), 16), np.nan)
        return encoder

    monkeypatch.setattr(index, "load_model", broken)
    with pytest.raises(ValueError, match="not finite"):
        index.run(config)


def test_without_lancedb_the_extra_is_named(config, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "lancedb", None)
    assert run_recipe(index.main, config) == 2
    assert "pip install 'subtle-video[index]'" in capsys.readouterr().err
