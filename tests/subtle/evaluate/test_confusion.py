"""Counts of mistakes at rank 1, on tables written by hand."""

import polars as pl

from subtle.evaluate.report import confusion_counts, confusion_table, most_confused

CLASSES = {"a": "ring leap", "b": "ring leap", "c": "switch leap", "d": "7", "e": "7", "f": "f", "g": "g"}


def rows_of(*rows):
    return pl.DataFrame(rows, ["target", "target_clip_ids", "ranked_clip_ids"], orient="row")


def test_rank_1_is_counted_and_a_right_answer_is_not_a_mistake_whatever_its_name():
    predictions = rows_of(
        ("ring leap", ["a"], ["b", "c"]),  # another clip of the class
        ("ring leap", ["b"], ["c"]),
        ("switch leap", ["c", "d"], ["d"]),  # a right answer with another label
        ("switch leap", ["c"], ["x"]),  # a clip that the dataset does not have
        ("switch leap", ["c"], []),
    )
    counts = confusion_counts(predictions, CLASSES)
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
