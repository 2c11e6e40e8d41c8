"""The miniature's plan and files: sizes, splits, determinism, resume, pictures."""

import shutil
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import av
import numpy as np
import polars as pl
import pytest

from hf_datasets.miniature import ACTIONS, MiniatureConfig, film_strips, plan_competitions, prepare_miniature
from hf_datasets.miniature.competitions import clip_rows, video_row, with_more_competitions
from hf_datasets.miniature.render import render_video, tier_name

SMALL = MiniatureConfig(
    labels=("119", "117", "103b"),
    clips_per_label={"train": 2, "validation": 1, "test": 1},
    videos_per_split={"train": 2, "validation": 1, "test": 1},
    size=64,
    shortest_seconds=0.5,
    longest_seconds=0.6,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return prepare_miniature(tmp_path_factory.mktemp("miniature"), config=SMALL, num_workers=2, progress=False)


def decode(path):
    with av.open(path) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def test_the_default_plan_has_the_size_that_the_benchmark_needs():
    config = MiniatureConfig()
    competitions = plan_competitions(config)
    rows = [row for competition in competitions for row in clip_rows(competition, config.fps)]
    assert len(ACTIONS) == 112
    assert len(competitions) == 72
    assert len(rows) == len({row["clip_id"] for row in rows}) == 112 * 30
    assert {row["apparatus"] for row in rows} == {"vault", "floor", "beam", "bars", "platform"}
    assert set(Counter(row["label"] for row in rows if row["split"] == "test").values()) == {4}


def test_a_video_belongs_to_one_split_and_no_clips_overlap():
    config = MiniatureConfig()
    for competition in plan_competitions(config):
        rows = list(clip_rows(competition, config.fps))
        assert {row["split"] for row in rows} == {competition.split}
        assert all(first["end_seconds"] < second["start_seconds"] for first, second in pairwise(rows))
        assert rows[0]["start_seconds"] > 0
        assert rows[-1]["end_seconds"] < video_row(competition, config.fps)["duration_seconds"]


def test_the_same_seed_gives_the_same_plan_and_another_seed_another():
    assert plan_competitions(MiniatureConfig()) == plan_competitions(MiniatureConfig())
    assert plan_competitions(MiniatureConfig()) != plan_competitions(MiniatureConfig(seed=1))


def test_a_miniature_with_more_training_holds_out_as_much_as_the_default():
    default = plan_competitions(with_more_competitions())
    larger = plan_competitions(with_more_competitions(3))
    assert default == plan_competitions(MiniatureConfig())
    count = {
        split: Counter(competition.split for competition in larger)[split] for split in ("train", "validation", "test")
    }
    assert count == {"train": 3 * 52, "validation": 10, "test": 10}
    seen = {shot.scene.noise_seed for plan in default for shot in plan.shots if plan.split == "train"}
    assert not seen & {shot.scene.noise_seed for plan in larger for shot in plan.shots if plan.split != "train"}


@pytest.mark.parametrize("tier", ["mini", "hard"])
def test_more_test_competitions_leave_training_and_validation_as_they_are(tier):
    few, many = (
        plan_competitions(replace(with_more_competitions(1, times, tier=tier), labels=SMALL.labels)) for times in (1, 4)
    )
    assert [plan for plan in many if plan.split != "test"] == [plan for plan in few if plan.split != "test"]
    assert sum(plan.split == "test" for plan in many) > sum(plan.split == "test" for plan in few)


def test_a_label_that_cannot_be_rendered_is_refused():
    with pytest.raises(ValueError, match="nonsense"):
        MiniatureConfig(labels=("nonsense",))


def test_the_tables_agree_with_the_files(folder):
    clips, videos = pl.read_parquet(folder / "clips.parquet"), pl.read_parquet(folder / "videos.parquet")
    assert clips.height == 12
    assert videos["video_id"].to_list() == [
        "gymnastics_000",
        "diving_001",
        "gymnastics_002",
        "diving_003",
        "gymnastics_004",
        "diving_005",
    ]
    for row in videos.iter_rows(named=True):
        frames = decode(folder / row["file_name"])
        assert len(frames) == round(row["duration_seconds"] * SMALL.fps)
        assert frames.shape[1:] == (64, 64, 3)
    assert not list(folder.rglob("*.tmp"))


def test_rendering_twice_gives_the_same_bytes(folder, tmp_path):
    competition = plan_competitions(SMALL)[0]
    render_video(competition, tmp_path / "again.mp4", SMALL)
    assert (tmp_path / "again.mp4").read_bytes() == (folder / f"videos/{competition.video_id}.mp4").read_bytes()


def test_a_killed_run_resumes_with_the_missing_videos(tmp_path, monkeypatch):
    from hf_datasets.miniature import render

    drawn = []

    def dies_at_the_third(competition, path, config):
        drawn.append(competition.video_id)
        if len(drawn) == 3:
            raise KeyboardInterrupt
        render_video(competition, path, config)

    monkeypatch.setattr(render, "render_video", dies_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        prepare_miniature(tmp_path, config=SMALL, num_workers=0, progress=False)
    folder = tmp_path / tier_name(SMALL)
    assert len(list(folder.glob("videos/*.mp4"))) == 2
    assert not (folder / "clips.parquet").exists()
    assert prepare_miniature(tmp_path, config=SMALL, num_workers=0, progress=False) == folder
    assert len(drawn) == 3 + 4
    assert len(list(folder.glob("videos/*.mp4"))) == 6
    prepare_miniature(tmp_path, config=SMALL, num_workers=0, progress=False)
    assert len(drawn) == 7, "a complete folder is not rendered again"


@pytest.mark.parametrize("share", [0, 0.5])
def test_what_a_power_loss_cut_is_rendered_again(folder, tmp_path, share):
    again = tmp_path / folder.name
    shutil.copytree(folder, again)
    (video,) = sorted(again.glob("videos/*.mp4"))[:1]
    for path in (video, again / "clips.parquet", again / "miniature.json"):
        path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    assert prepare_miniature(tmp_path, config=SMALL, num_workers=0, progress=False) == again
    for path in folder.rglob("*.*"):
        assert (again / path.relative_to(folder)).read_bytes() == path.read_bytes(), path


def test_another_seed_or_size_is_another_folder():
    names = {tier_name(config) for config in (SMALL, MiniatureConfig(), MiniatureConfig(seed=1))}
    assert len(names) == 3


def test_a_contact_sheet_shows_one_row_per_shot():
    shots = list(plan_competitions(SMALL)[0].shots[:2])
    assert film_strips(shots, size=64, num_frames=6).size == (6 * 64, 2 * 64)
