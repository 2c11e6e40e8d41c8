"""The harder tier: its labels and plan, what is drawn beside the athlete, and that the miniature stays as it was."""

import hashlib
import json
from collections import Counter
from dataclasses import asdict, fields, replace

import numpy as np
import polars as pl
import pytest
from datasets import load_dataset
from PIL import Image

import hf_datasets.miniature
from hf_datasets.__main__ import blind_test, draw_miniature
from hf_datasets.miniature import ALL_ACTIONS, HARD, MiniatureConfig, plan_competitions, prepare_miniature
from hf_datasets.miniature.blind_test import draw_pairs, read_answers, score, write_blind_test
from hf_datasets.miniature.competitions import with_more_competitions
from hf_datasets.miniature.differences import DIFFERENCES, SAME_TEXT_LABELS, difference_between
from hf_datasets.miniature.drawing import draw_frames
from hf_datasets.miniature.motion import Style, perform
from hf_datasets.miniature.render import RENDERER_VERSION, perform_shot, tier_name
from hf_datasets.miniature.scene import Bystander, Cut, Passer, Scene
from hf_datasets.publishing.registered_folder import write_registered
from hf_datasets.tfcovr.labels import find_label, folded_text

OLD_SCENE = [one.name for one in fields(Scene) if one.name not in {"cuts", "passers", "bystanders"}]
SMALL = replace(
    HARD,
    labels=("119", "118", "117", "127", "101", "98", "126", "103b", "105b"),
    clips_per_label={"train": 1, "validation": 1, "test": 2},
    videos_per_split={"train": 2, "validation": 1, "test": 9},
    size=48,
    shortest_seconds=0.6,
    longest_seconds=0.8,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return prepare_miniature(tmp_path_factory.mktemp("hard"), config=SMALL, num_workers=0, progress=False)


def rounded(value):
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    return round(value, 9) if isinstance(value, float) else value


def test_the_miniature_keeps_its_plan_its_pictures_and_its_folder():
    """Its folder is named by the plan and `RENDERER_VERSION`: for other pictures raise that and update the sums."""
    plan = plan_competitions(MiniatureConfig())
    rows = [
        [
            *(competition.video_id, competition.split, competition.sport, competition.hall_colour),
            [
                [
                    rounded(asdict(shot.action)),
                    rounded(asdict(shot.style)),
                    [rounded(getattr(shot.scene, name)) for name in OLD_SCENE],
                    *(shot.lead_frames, shot.num_frames, shot.tail_frames),
                ]
                for shot in competition.shots
            ],
        ]
        for competition in plan
    ]
    pictures = hashlib.sha256()
    for shot in (shot for competition in plan[:60:12] for shot in competition.shots[:2]):
        for frame in list(draw_frames(perform_shot(shot), shot.scene, 112))[::10]:
            pictures.update(frame.tobytes())
    plan_sum = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
    assert plan_sum == "d24fc1538728bb1f8e7476fa8c94df5b6d7d12aa5e26c1b8e0e26a7b1878bbf5"
    assert pictures.hexdigest() == "2372434d35fba7aaa2b3e8d873cb8977fbe8ffaaa3a6e6d43bdb12cb96784912"
    assert (RENDERER_VERSION, tier_name(MiniatureConfig())) == (1, "miniature-b8e8efff5dac")


def test_the_harder_tier_has_the_size_that_the_benchmark_needs():
    plan = plan_competitions(HARD)
    assert Counter(competition.split for competition in plan)["test"] >= 60
    shots = [shot for competition in plan for shot in competition.shots]
    assert {shot.action.label for shot in shots} == set(HARD.labels) == set(ALL_ACTIONS)
    assert all(2 <= shot.num_frames / HARD.fps <= 4 for shot in shots)
    for attribute, share in (("passers", HARD.passer_share), ("cuts", HARD.cut_share)):
        found = np.mean([bool(getattr(shot.scene, attribute)) for shot in shots])
        assert found == pytest.approx(share, abs=0.03)
    assert all(len({shot.scene.socks for shot in competition.shots}) == 1 for competition in plan)
    assert tier_name(HARD) != tier_name(replace(HARD, cut_share=0.1)) != tier_name(MiniatureConfig())


def test_no_two_labels_of_the_harder_tier_read_the_same():
    assert len({folded_text(find_label(label).description) for label in HARD.labels}) == len(HARD.labels)


def test_a_tier_has_its_own_size_and_one_that_is_none_is_refused():
    assert with_more_competitions(tier="hard") == HARD
    with pytest.raises(ValueError, match="unknown tier 'harder'; there are mini, hard"):
        with_more_competitions(tier="harder")


def test_each_option_changes_what_it_names_and_nothing_else():
    plain = replace(
        SMALL, similar_athletes=False, longest_pause=0.08, passer_share=0.0, cut_share=0.0, bystander_share=0.0
    )
    before = [shot for competition in plan_competitions(plain) for shot in competition.shots]
    for option, part in (("passer_share", "passers"), ("cut_share", "cuts"), ("bystander_share", "bystanders")):
        after = plan_competitions(replace(plain, **{option: 1.0}))
        shots = [shot for competition in after for shot in competition.shots]
        assert all(getattr(shot.scene, part) for shot in shots)
        assert [replace(shot, scene=replace(shot.scene, **{part: ()})) for shot in shots] == before


@pytest.mark.parametrize(("name", "value"), [("cut_share", 1.5), ("passer_share", -0.1), ("longest_pause", 0.6)])
def test_a_share_out_of_range_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value}, allowed is 0 to"):
        MiniatureConfig(**{name: value})


def picture(scene, time=0.5, label="119"):
    motion = perform(ALL_ACTIONS[label], Style(), 41)
    return list(draw_frames(motion, scene, 64))[round(40 * time)].astype(int)


def test_who_passes_in_front_is_drawn_while_passing_only():
    passer = Passer("person", start=0.4, duration=0.2, width=0.3, hue=0.3, leftward=True)
    plain, passed = Scene(), Scene(passers=(passer,))
    assert np.abs(picture(plain, 0.2) - picture(passed, 0.2)).max() == 0
    assert np.abs(picture(plain) - picture(passed))[20:, 26:38].mean() > 10


def test_a_cut_changes_the_camera_from_its_time_on():
    plain, cut = Scene(), Scene(cuts=(Cut(0.6, turn=0.8, elevation=0.4, zoom=0.8),))
    assert np.abs(picture(plain) - picture(cut)).max() == 0
    assert np.abs(picture(plain, 0.7) - picture(cut, 0.7)).mean() > 2


def test_athletes_in_the_background_move_behind_the_main_one():
    other = Bystander(ALL_ACTIONS["118"], Style(), aside=0.3, behind=1.2, scale=0.7, shade=0.6)
    plain, two = Scene(), Scene(bystanders=(other,))
    changed = [np.abs(picture(plain, time) - picture(two, time)).sum(-1) > 30 for time in (0.2, 0.5)]
    assert changed[0].any()
    assert (changed[0] != changed[1]).any()


def test_labels_that_differ_in_one_thing_are_named_by_it():
    found = {
        ("119", "118"): "count", ("103b", "105b"): "count", ("127", "101"): "direction", ("405b", "105b"): "direction",
        ("98", "100"): "order", ("98", "126"): "order", ("45", "46"): "order", ("15", "6"): None,
        ("119", "127"): "shape", ("119", "101"): None, ("103b", "119"): None, ("45", "148"): None,
    }  # fmt: skip
    for pair, difference in found.items():
        assert difference_between(*pair) == difference_between(*pair[::-1]) == difference
    assert difference_between("119", "119") is None


def test_labels_that_read_the_same_have_the_same_differences():
    same = {label: find_label(label).description for label in ("180", "181", "185", "5253b")}
    assert same == {label: find_label(SAME_TEXT_LABELS[label]).description for label in same}
    assert difference_between("181", "180") == difference_between("217", "216") == "count"


def test_the_harder_tier_loads_with_its_clips_and_videos(folder, tmp_path):
    clips = pl.read_parquet(folder / "clips.parquet")
    assert clips["split"].value_counts().sort("split")["count"].to_list() == [18, 9, 9]
    plan = json.loads((folder / "miniature.json").read_text(encoding="utf-8"))
    assert plan["cut_share"] == HARD.cut_share
    loaded = {
        name: load_dataset("tfcovr", name, data_dir=str(folder), cache_dir=str(tmp_path))
        for name in ("hard", "hard-clips", "hard-videos")
    }
    assert {"118", "117"} <= set(loaded["hard"]["test"]["target_label"])
    assert loaded["hard-clips"]["test"].num_rows == 18
    assert loaded["hard-videos"]["test"].num_rows == len({row["video_id"] for row in loaded["hard-clips"]["test"]})


def test_without_a_folder_the_harder_tier_and_not_the_miniature_is_rendered(folder, tmp_path, monkeypatch):
    rendered = []
    monkeypatch.setattr(hf_datasets.miniature, "prepare_miniature", lambda config: rendered.append(config) or folder)
    load_dataset("tfcovr", "hard-clips", cache_dir=str(tmp_path))
    assert rendered == [HARD]


def test_the_commands_draw_the_tier_that_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(hf_datasets.miniature.competitions, "TIERS", {"hard": replace(SMALL, size=16)})
    monkeypatch.setattr(hf_datasets.miniature, "TIERS", {"hard": SMALL})
    draw_miniature(str(tmp_path), 1, 1, 0, tier="hard")
    assert len(list(tmp_path.glob("miniature-*/videos/*.mp4"))) > 2
    blind_test(tmp_path / "sheets", "hard", 2, 0, None)
    assert "2 sheets" in capsys.readouterr().out
    with pytest.raises(FileNotFoundError, match=r"missing\.txt"):
        blind_test(tmp_path / "sheets", "hard", 2, 0, str(tmp_path / "missing.txt"))
    with pytest.raises(ValueError, match="0 pairs: at least 1 is needed"):
        blind_test(tmp_path / "sheets", "hard", 0, 0, None)


def test_the_two_tiers_are_not_published_in_one_folder(tmp_path):
    with pytest.raises(ValueError, match="hard and mini are drawn by different parameters"):
        write_registered("tfcovr", tmp_path / "both", configs=["mini", "hard"])


def test_a_blind_test_has_as_many_equal_as_different_pairs_and_counts_the_right_answers(tmp_path):
    sheets = write_blind_test(tmp_path, SMALL, num_pairs=8)
    pairs = draw_pairs(SMALL, 8, 0)
    assert Counter(pair.difference for pair in pairs) == {None: 4, **dict.fromkeys(DIFFERENCES, 1)}
    assert len(sheets) == 8
    assert Image.open(sheets[0]).size[0] == 2 * 8 * 48
    assert all("98" in {shot.action.label for shot in pair.shots} for pair in draw_pairs(SMALL, 8, 0, {"98"}))
    with pytest.raises(ValueError, match="no two labels of the test clips differ in one thing only"):
        draw_pairs(SMALL, 8, 0, {"45"})
    answers = tmp_path / "answers.txt"
    answers.write_text("".join(f"{number} {'same' if number % 2 else 'different'}\n" for number in range(1, 9)))
    right = score(tmp_path, read_answers(answers))
    assert sum(total for _, total in right.values()) == 8
    exact = {n: "same" if pair.difference is None else "different" for n, pair in enumerate(pairs, 1)}
    assert all(correct == total for correct, total in score(tmp_path, exact).values())
    answers.write_text("1 equal\n")
    with pytest.raises(ValueError, match="not a number and one of same, different"):
        read_answers(answers)
    with pytest.raises(ValueError, match="pair 1 has the answer None"):
        score(tmp_path, {})
