"""Stage 1 on the authors' layout: validation and test have no labels there, so training videos are held out."""

import json
from collections import Counter
from pathlib import Path

import pytest
from colored_videos import write_colored_video
from datasets import Dataset

from subtle.run.shared_config import DataConfig
from subtle.tfcovr.labeled_splits import labeled_splits
from subtle.train.options import Stage1Config
from subtle.train.stage1 import Stage1, run

GYM = "A0xAXXysH{:02}_E_002184_002237_A_{:04}_{:04}"
COLORS = {"40": (250, 20, 20), "41": (20, 250, 20), "45": (20, 20, 250)}
"""Labels of the 306 and what their clips look like."""


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """Six long videos with a clip of each of two labels, one more with the only clip of a third; unlabeled queries."""
    root = tmp_path_factory.mktemp("release")
    annotations, videos = root / "annotations", root / "videos"
    videos.mkdir()
    train, labels = [], {}
    for video in range(6):
        source, target = (GYM.format(video, place, place + 1) for place in range(2))
        labels |= {source: "40", target: "41"}
        train.append((source, target, "40", "41", "Show with 1 turn."))
    lone = GYM.format(6, 0, 1)
    labels[lone] = "45"
    train.append((lone, target, "45", "41", "Show with 1 turn."))
    names = ("query_video", "target_video", "label1", "label2", "modification")
    rows = [dict(zip(names, row, strict=True)) for row in train]
    for row in rows:
        row["modification"] = str({row["label2"]: {"modification": row["modification"]}})
    Dataset.from_list(rows).to_csv(annotations / "train_finegd.csv")
    for number, split in enumerate(("val", "test"), start=7):
        query, answer = (GYM.format(number, place, place + 1) for place in range(2))
        row = {"query_id": "0", "query_video": query, "modification": "Show with 1 turn.", "target_video": answer}
        Dataset.from_list([row | {"target_videos_ids": str([answer])}]).to_csv(annotations / f"{split}_finegd.csv")
        labels |= {query: "40", answer: "41"}
    for number, (clip_id, label) in enumerate(labels.items()):
        write_colored_video(videos / f"{clip_id}.mp4", [COLORS[label]], seed=number)
    return {"dataset_config": "release", "data_dir": str(annotations), "video_dir": str(videos)}


@pytest.fixture
def config(release, tiny, tmp_path):
    places = {"base": str(Path(tiny["vision_model"]).parent / "clip"), "output_dir": str(tmp_path / "stage1")}
    small = {"num_frames": 2, "epochs": 1, "batch_size": 4, "cache_frames": False, "num_workers": 0, "device": "cpu"}
    return Stage1Config(**release, **places, **small, head="all", validation_fraction=0.34)


def test_training_videos_are_held_out_where_the_release_has_no_labels(config, capsys):
    figures = run(config)
    assert set(figures) == {
        "validation/accuracy",
        "validation/mean_class_accuracy",
        "validation/accuracy_shuffled_frames",
    }
    said = capsys.readouterr().out
    results = json.loads((Path(config.output_dir) / "results.json").read_text())
    assert results["coverage"] == {"train": {"clips": 9, "usable": 9}, "validation": {"clips": 4, "usable": 4}}
    assert results["notes"] == {
        "validation": "4 training clips of 2 of 7 long videos, held out with seed 0 (none of the 2 clips of "
        "'validation' has a label)",
        "test": "not measured: none of the 2 clips of 'test' has a label",
    }
    assert all(f"{split}: {note}" in said for split, note in results["notes"].items())


def test_no_video_is_on_both_sides_and_every_label_keeps_training_clips(release):
    held = set()
    for seed in range(8):
        found = labeled_splits(DataConfig(**release), validation_fraction=0.34, seed=seed)
        videos = {split: {clip["video_id"] for clip in clips} for split, clips in found.clips.items()}
        assert not videos["train"] & videos["validation"]
        assert {clip["label"] for clip in found.clips["train"]} == {"40", "41", "45"}
        assert Counter(clip["label"] for clip in found.clips["validation"]) == {"40": 2, "41": 2}
        held.add(frozenset(videos["validation"]))
    assert len(held) > 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"validation": "split"}, "none of the 2 clips of 'validation' has a label; --validation train holds"),
        ({"video_dir": None}, "none of the labeled clips of 'train' has its video; give the folder"),
        ({"validation_fraction": 0.0}, "share between 0 and 1"),
        ({"data_dir": "nowhere"}, "cannot be read: data_dir nowhere is"),
    ],
)
def test_missing_data_is_an_error_before_anything_is_decoded(config, change, message, monkeypatch):
    monkeypatch.setattr("subtle.train.stage1.LabeledClips", None)
    monkeypatch.setattr("subtle.train.stage1.FrameCache", None)
    for name, value in change.items():
        setattr(config, name, value)
    with pytest.raises(SystemExit, match=message):
        Stage1(config)


def test_labels_of_the_split_are_used_where_there_are_some(tiny):
    found = labeled_splits(DataConfig(dataset=tiny["dataset"]))
    assert {split: len(clips) for split, clips in found.clips.items()} == {"train": 16, "validation": 8, "test": 12}
    assert found.notes == {}
    held = labeled_splits(DataConfig(dataset=tiny["dataset"]), validation="train", validation_fraction=0.25)
    assert [len(held.clips[split]) for split in ("train", "validation")] == [12, 4]
    assert {clip["split"] for clip in held.clips["validation"]} == {"train"}
