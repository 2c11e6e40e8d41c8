"""Full disks, folders that cannot be written, few open files: one line that names the place, no half results.

Needs the right to mount a small file system of its own.
"""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from hf_datasets.video import shared_memory
from subtle.embedding import embed_clips, embed_moments
from subtle.train import stage1, stage2, vcmr, vidclip
from tests.hostile.full_disk import ROOM_KILOBYTES, fill, one_line, run_into
from tests.hostile.kill_harness import differences
from tests.hostile.launch import TINY
from tests.hostile.outcomes import embeddings, features, trained

pytestmark = pytest.mark.hostile


@pytest.fixture
def runs(tiny, embedded, tiny_comp, moment_features, moments, monkeypatch, tmp_path):
    """Recipe -> its main function, a tiny configuration and what it leaves to compare."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    clip = str(Path(tiny["vision_model"]).parent / "clip")
    spans = {"min_clips": 1, "max_clips": 4, "max_video_clips": 12, "nms_threshold": 0.5}
    configs = {
        "stage1": stage1.Stage1Config(
            dataset=tiny["dataset"],
            base=clip,
            num_frames=4,
            epochs=1,
            batch_size=4,
            num_workers=1,
            checkpoint_steps=2,
            cache_dir=str(tmp_path / "frames"),
        ),
        "stage2": stage2.Stage2Config(
            **tiny, embeddings=embedded, projection_dim=16, fusion_hidden_dim=32, epochs=2, checkpoint_steps=1
        ),
        "vidclip": vidclip.VidCLIPRunConfig(**tiny_comp, num_frames=4, epochs=1, batch_size=8, checkpoint_steps=1),
        "vcmr": vcmr.VCMRConfig(
            dataset=str(moment_features),
            features=f"{moment_features}/features",
            **spans,
            epochs=2,
            batch_size=50,
            checkpoint_steps=1,
        ),
        "embed_clips": embed_clips.EmbedConfig(**tiny, batch_size=4, shard_size=4),
        "embed_moments": embed_moments.EmbedMomentsConfig(
            dataset=moments, vision_model=clip, text_model=tiny["text_model"], num_workers=0, shard_size=1
        ),
    }
    outcomes = {"embed_clips": embeddings, "embed_moments": features}
    modules = {"stage1": stage1, "stage2": stage2, "vidclip": vidclip, "vcmr": vcmr, "embed_clips": embed_clips}
    modules["embed_moments"] = embed_moments
    return {
        name: (modules[name].main, replace(one, device="cpu"), outcomes.get(name, trained))
        for name, one in configs.items()
    }


RECIPES = ("stage1", "stage2", "vidclip", "vcmr", "embed_clips", "embed_moments")


@pytest.mark.parametrize("name", RECIPES)
def test_a_full_disk_is_one_line_and_with_room_the_run_completes_the_same(name, runs, small_disk, tmp_path, capsys):
    main, config, outcome = runs[name]
    assert run_into(tmp_path / "whole", main, config) == 0
    expected = outcome(tmp_path / "whole")
    failed = 0
    for room in ROOM_KILOBYTES:
        capsys.readouterr()
        with fill(small_disk, room):
            status = run_into(small_disk / "run", main, config)
        if status == 0:
            break
        failed += 1
        assert status == 2, status
        error = one_line(capsys)
        assert str(small_disk) in error, error
        assert "run again" in error
        assert not (small_disk / "run" / "results.json").exists()
        assert not list(small_disk.rglob("*.tmp")), "what could not be written takes up no room"
    assert failed
    assert run_into(small_disk / "run", main, config) == 0
    assert not differences(expected, outcome(small_disk / "run"), 1e-5)


def test_a_full_disk_under_the_frame_cache_is_one_line(runs, small_disk, tmp_path, capsys):
    main, config, outcome = runs["stage1"]
    assert run_into(tmp_path / "whole", main, config) == 0
    (small_disk / "ballast").write_bytes(bytes(shutil.disk_usage(small_disk).free - 64 * 1024))
    capsys.readouterr()
    assert run_into(tmp_path / "run", main, config, cache_dir=str(small_disk / "frames")) == 2
    error = one_line(capsys)
    assert str(small_disk / "frames") in error
    assert "run again" in error
    (small_disk / "ballast").unlink()
    assert run_into(tmp_path / "run", main, config, cache_dir=str(small_disk / "frames")) == 0
    assert not differences(outcome(tmp_path / "whole"), outcome(tmp_path / "run"), 0)


@pytest.mark.parametrize("name", RECIPES)
def test_a_folder_that_cannot_be_written_is_one_line(name, runs, small_disk, tmp_path, capsys):
    main, config, _ = runs[name]
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert run_into(small_disk / "run", main, config) == 2
    assert str(small_disk / "run") in one_line(capsys)
    (tmp_path / "file").write_text("a file, no folder")
    assert run_into(tmp_path / "file", main, config) == 2
    assert str(tmp_path / "file") in one_line(capsys)
    assert (tmp_path / "file").read_text() == "a file, no folder"


def test_a_low_limit_of_open_files_is_one_line_or_does_not_matter(runs, tmp_path, capsys):
    main, config, outcome = runs["embed_clips"]
    assert run_into(tmp_path / "whole", main, config) == 0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = {int(path.name) for path in Path("/proc/self/fd").iterdir()}
    free = [number for number in range(4096) if number not in taken]
    failed = 0
    for more in (2, 5, 8, 12):
        capsys.readouterr()
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (free[more], hard))
            status = run_into(tmp_path / "run", main, config, num_workers=2)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if status:
            failed += 1
            assert status == 2
            assert re.search("Too many open files.*ulimit -n", one_line(capsys))
            assert not (tmp_path / "run" / "results.json").exists()
    assert failed
    assert run_into(tmp_path / "run", main, config) == 0
    assert not differences(outcome(tmp_path / "whole"), outcome(tmp_path / "run"), 1e-5)


def test_a_lack_of_memory_for_pixels_is_one_line_that_does_not_blame_the_videos(
    runs, small_disk, tmp_path, capsys, monkeypatch
):
    main, config, outcome = runs["embed_clips"]
    assert run_into(tmp_path / "whole", main, config) == 0
    monkeypatch.setattr(shared_memory, "MEMORY", small_disk / "no-memory")
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    (small_disk / "ballast").write_bytes(bytes(shutil.disk_usage(small_disk).free - 4096))
    capsys.readouterr()
    assert run_into(tmp_path / "run", main, config, num_workers=1) == 2
    assert str(small_disk) in one_line(capsys)
    assert not (tmp_path / "run" / "results.json").exists()
    (small_disk / "ballast").unlink()
    assert run_into(tmp_path / "run", main, config, num_workers=1) == 0
    assert not differences(outcome(tmp_path / "whole"), outcome(tmp_path / "run"), 1e-5)


LOAD = """
import functools, json, sys
import hf_datasets.miniature as miniature
from datasets import load_dataset
import hf_datasets
tiny = miniature.MiniatureConfig(**json.loads(sys.argv[1]))
miniature.prepare_miniature = functools.partial(miniature.prepare_miniature, config=tiny)
by_name = load_dataset("tfcovr", "mini-clips")
by_folder = load_dataset(sys.argv[2], "mini-clips")
print(json.dumps([{split: rows.num_rows for split, rows in one.items()} for one in (by_name, by_folder)]))
print(hash(json.dumps([list(rows["clip_id"]) for rows in by_name.values()])))
"""


def test_eight_processes_that_load_a_dataset_at_once_see_the_same_rows(tiny, tmp_path):
    environment = os.environ | {"HF_DATASETS_CACHE": str(tmp_path / "cache"), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", LOAD, json.dumps(TINY), tiny["dataset"]]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, env=environment, cwd=tmp_path, **streams) for _ in range(8)]
    outputs = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [0] * 8, [error[-500:] for _, error in outputs]
    assert len({out for out, _ in outputs}) == 1
    assert not list(tmp_path.glob("cache/**/*.tmp"))
