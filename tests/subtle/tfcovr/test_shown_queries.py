"""Names of clips and targets, on tables written by hand."""

import polars as pl

from subtle.tfcovr.shown_queries import clip_captions, clip_classes, label_descriptions, name_targets

CLIPS = pl.DataFrame(
    {
        "clip_id": ["a", "b", "c", "d", "e", "f", "g"],
        "label": ["180", "216", "40", "7", "7", None, ""],
        "description": ["ring leap", "ring leap", "switch leap", "she turns", "she spins", None, None],
    }
)


def test_a_clip_is_named_by_its_description_else_its_label_else_its_id():
    clips = CLIPS.with_columns(description=pl.when(pl.col("clip_id") == "c").then(None).otherwise("description"))
    captions = {"a": "ring leap", "b": "ring leap", "c": "40", "d": "she turns", "e": "she spins", "f": "f", "g": "g"}
    assert clip_captions(clips) == captions


def test_labels_of_one_description_are_one_class_and_a_label_of_several_keeps_its_name():
    assert label_descriptions(CLIPS) == {"180": "ring leap", "216": "ring leap", "40": "switch leap", "7": "7"}
    undescribed = CLIPS.with_columns(description=pl.lit(None, pl.String))
    assert label_descriptions(undescribed) == {label: label for label in ("180", "216", "40", "7")}
    assert list(clip_classes(CLIPS).values()) == ["ring leap", "ring leap", "switch leap", "7", "7", "f", "g"]


def test_a_target_is_named_by_its_label_else_by_its_first_clip():
    rows = [("180", ["c"]), ("217", ["a"]), ("99", ["f"]), (None, ["c"]), (None, ["x"])]
    predictions = pl.DataFrame(rows, ["target_label", "target_clip_ids"], orient="row")
    named = name_targets(predictions, CLIPS)
    # 217 is no label of these clips: named by its target's description; 99's target has none.
    assert named["target"].to_list() == ["ring leap", "ring leap", "99", "switch leap", "x"]
    assert named["target_label"].to_list() == ["180", "217", "99", "switch leap", "x"]


def test_labels_may_be_numbers():
    clips = pl.DataFrame({"clip_id": ["a"], "label": [3], "description": [None]})
    predictions = pl.DataFrame({"target_label": [3], "target_clip_ids": [["a"]]})
    assert name_targets(predictions, clips)["target"].to_list() == ["3"]
