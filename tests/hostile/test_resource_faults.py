"""Full disks, folders that cannot be written, few open files: one line that names the place, no half results.

Needs the right to mount a small file system of its own.
"""

import re
import resource
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from hf_datasets.video import shared_memory
from subtle.embedding import embed_clips, embed_moments
from subtle.train import stage1, stage2, vcmr, vidclip
from tests.hostile.full_disk import complete_where_there_is_room, fill, one_line, refused, run_into
from tests.hostile.kill_harness import differences
from tests.hostile.outcomes import embeddings, features, trained

pytestmark = pytest.mark.hostile


@pytest.fixture
def runs(tiny, embedded, tiny_comp, moment_features, moments, monkeypatch, tmp_path):
    """Recipe -> its main function, a tiny configuration and what it leaves to compare."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    clip = str(Path(tiny["vision_model"]).parent / "clip")
    spans = {"min_clips": 1, "max_clips": 4, "max_video_clips": 12, "nms_threshold": 0.5}
    features_of_moments = {"dataset": str(moment_features), "features": f"{moment_features}/features"}
    steps = {"num_frames": 4, "epochs": 1, "batch_size": 4, "num_workers": 1, "checkpoint_steps": 2}
    configs = {
        "stage1": stage1.Stage1Config(dataset=tiny["dataset"], base=clip, cache_dir=str(tmp_path / "frames"), **steps),
        "stage2": stage2.Stage2Config(
            **tiny, embeddings=embedded, projection_dim=16, fusion_hidden_dim=32, epochs=2, checkpoint_steps=1
        ),
        "vidclip": vidclip.VidCLIPRunConfig(**tiny_comp, num_frames=4, epochs=1, batch_size=8, checkpoint_steps=1),
        "vcmr": vcmr.VCMRConfig(**features_of_moments, **spans, epochs=2, batch_size=50, checkpoint_steps=1),
        "embed_clips": embed_clips.EmbedConfig(**tiny, batch_size=4, shard_size=4),
        "embed_moments": embed_moments.EmbedMomentsConfig(
            dataset=moments, vision_model=clip, text_model=tiny["text_model"], num_workers=0, shard_size=1
        ),
    }
    return {
        name: (RECIPES[name].main, replace(one, device="cpu"), OUTCOMES.get(name, trained))
        for name, one in configs.items()
    }


RECIPES = {"stage1": stage1, "stage2": stage2, "vidclip": vidclip, "vcmr": vcmr}
RECIPES |= {"embed_clips": embed_clips, "embed_moments": embed_moments}
OUTCOMES = {"embed_clips": embeddings, "embed_moments": features}


@pytest.mark.parametrize("name", RECIPES)
def test_a_full_disk_is_one_line_and_with_room_the_run_completes_the_same(name, runs, small_disk, tmp_path, capsys):
    main, config, outcome = runs[name]
    assert run_into(tmp_path / "whole", main, config) == 0
    folder = small_disk / "run"
    complete_where_there_is_room(small_disk, lambda: run_into(folder, main, config), folder / "results.json", capsys)
    assert not differences(outcome(tmp_path / "whole"), outcome(folder), 1e-5)


def test_a_full_disk_under_the_frame_cache_is_one_line(runs, small_disk, tmp_path, capsys):
    main, config, outcome = runs["stage1"]
    assert run_into(tmp_path / "whole", main, config) == 0
    frames = str(small_disk / "frames")
    capsys.readouterr()
    with fill(small_disk, 64):
        refused(small_disk, run_into(tmp_path / "run", main, config, cache_dir=frames), capsys)
    assert run_into(tmp_path / "run", main, config, cache_dir=frames) == 0
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
    capsys.readouterr()
    with fill(small_disk, 4):
        assert run_into(tmp_path / "run", main, config, num_workers=1) == 2
    assert str(small_disk) in one_line(capsys)
    assert not (tmp_path / "run" / "results.json").exists()
    assert run_into(tmp_path / "run", main, config, num_workers=1) == 0
    assert not differences(outcome(tmp_path / "whole"), outcome(tmp_path / "run"), 1e-5)
