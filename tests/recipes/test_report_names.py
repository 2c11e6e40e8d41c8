"""What the report calls clips and targets, and how it counts mistakes: on tables written by hand."""

import polars as pl

from tfcovr.clip_names import clip_captions, clip_classes, label_names, name_targets
from tfcovr.confusion import confusion_counts, confusion_table, most_confused

CLIPS = pl.DataFrame(
    {
        "clip_id": ["a", "b", "c", "d", "e", "f", "g"],
        "label": ["180", "216", "40", "7", "7", None, ""],
        "description": ["ring leap", "ring leap", "switch leap", "she turns", "she spins", None, None],
    }
)


def rows_of(*rows):
    return pl.DataFrame(rows, ["target", "target_clip_ids", "ranked_clip_ids"], orient="row")


def test_a_clip_is_called_by_its_description_else_its_label_else_its_id():
    clips = CLIPS.with_columns(description=pl.when(pl.col("clip_id") == "c").then(None).otherwise("description"))
    assert clip_captions(clips) == {
        "a": "ring leap",
        "b": "ring leap",
        "c": "40",
        "d": "she turns",
        "e": "she spins",
        "f": "f",
        "g": "g",
    }


def test_labels_of_one_description_are_one_class_and_a_label_of_several_keeps_its_name():
    assert label_names(CLIPS) == {"180": "ring leap", "216": "ring leap", "40": "switch leap", "7": "7"}
    assert list(clip_classes(CLIPS).values()) == ["ring leap", "ring leap", "switch leap", "7", "7", "f", "g"]


def test_a_target_is_named_by_its_label_else_by_its_first_clip():
    predictions = pl.DataFrame(
        {
            "target_label": ["180", "217", "99", None, None],
            "target_clip_ids": [["c"], ["a"], ["f"], ["c"], ["x"]],
        }
    )
    named = name_targets(predictions, CLIPS)
    # 217 is no label of these clips: named by its target's description; 99's target has none.
    assert named["target"].to_list() == ["ring leap", "ring leap", "99", "switch leap", "x"]
    assert named["target_label"].to_list() == ["180", "217", "99", "switch leap", "x"]


def test_labels_may_be_numbers():
    clips = pl.DataFrame({"clip_id": ["a"], "label": [3], "description": [None]})
    predictions = pl.DataFrame({"target_label": [3], "target_clip_ids": [["a"]]})
    assert name_targets(predictions, clips)["target"].to_list() == ["3"]


def test_confusion_counts_rank_one_and_a_right_answer_is_no_mistake_whatever_it_is_called():
    predictions = rows_of(
        ("ring leap", ["a"], ["b", "c"]),  # another clip of the class
        ("ring leap", ["b"], ["c"]),
        ("switch leap", ["c", "d"], ["d"]),  # a right answer with another label
        ("switch leap", ["c"], ["x"]),  # a clip that the dataset does not have
        ("switch leap", ["c"], []),
    )
    counts = confusion_counts(predictions, clip_classes(CLIPS))
    assert counts.rows() == [
        ("ring leap", "ring leap", 1),
        ("ring leap", "switch leap", 1),
        ("switch leap", "(no clip was ranked)", 1),
        ("switch leap", "switch leap", 1),
        ("switch leap", "x", 1),
    ]


def test_the_table_holds_the_most_mistaken_first_with_all_their_queries():
    counts = pl.DataFrame(
        [("a", "a", 5), ("a", "z", 1), ("b", "a", 2), ("b", "y", 8), ("c", "c", 9)],
        ["true", "predicted", "count"],
        orient="row",
    )
    table = confusion_table(counts)
    assert table["columns"] == ["b", "a", "y", "z"]
    assert [(row["name"], row["total"]) for row in table["rows"]] == [("b", 10), ("a", 6)]
    assert [[cell["count"] for cell in row["cells"]] for row in table["rows"]] == [[0, 2, 8, 0], [0, 5, 0, 1]]
    assert [[cell["shade"] for cell in row["cells"]] for row in table["rows"]] == [[0, 2, 5, 0], [0, 4, 0, 1]]
    assert [(pair["true"], pair["predicted"], pair["count"], pair["total"]) for pair in most_confused(counts)] == [
        ("b", "y", 8, 10),
        ("b", "a", 2, 10),
        ("a", "z", 1, 6),
    ]


def test_without_a_mistake_there_is_no_table():
    counts = pl.DataFrame([("a", "a", 5)], ["true", "predicted", "count"], orient="row")
    assert confusion_table(counts) is None
    assert most_confused(counts) == []
