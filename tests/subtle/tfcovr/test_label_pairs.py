"""Pairs of labels by attributes and by texts, counted by hand."""

import math

import pytest

from hf_datasets.tfcovr.labels import find_label
from subtle.tfcovr.label_pairs import compare_pairs

# On the floor a switch leap with half a turn, the same without, and a turn; and the switch leap on the beam.
DEGREES = {"40": 0, "45": 10, "93": 20, "148": 90}


def test_what_is_chosen_by_one_or_both_is_counted_by_what_it_changes():
    labels = [find_label(label_id) for label_id in DEGREES]
    vectors = [(math.cos(math.radians(one)), math.sin(math.radians(one))) for one in DEGREES.values()]
    comparison = compare_pairs(labels, vectors)
    chosen = {(row["source"], row["target"]): row["chosen_by"] for row in comparison.pairs.to_dicts()}
    expected = {
        ("40", "45"): "both", ("45", "148"): "attributes", ("40", "148"): "attributes", ("45", "93"): "texts",
        ("40", "93"): "texts", ("93", "148"): "neither",
    }  # fmt: skip
    assert chosen == expected | {(two, one): name for (one, two), name in expected.items()}
    found = comparison.summary()
    assert found["least_cosine"] == pytest.approx(math.cos(math.radians(20)))
    assert found["pairs"] == {"both": 2, "attributes": 4, "texts": 4, "neither": 2}
    counts = {row.pop("change"): row for row in found["changes"]}
    assert {name: row["pairs"] for name, row in counts.items()} == {
        "numbers": 2, "words": 0, "numbers and words": 0, "apparatus": 2, "apparatus and more": 2, "family": 6,
    }  # fmt: skip
    assert counts["apparatus"]["attributes"] == 2
    assert counts["apparatus"]["cosine"] == pytest.approx(math.cos(math.radians(80)))
    assert counts["words"]["cosine"] is None
    assert found["changed_attributes"] == {"both": 1, "attributes": 1.5, "texts": None, "neither": None}
    assert found["labels_without_a_partner"] == {"attributes": 1, "texts": 1}
    assert [row["cosine"] for row in found["examples"]["attributes"]] == sorted(
        row["cosine"] for row in found["examples"]["attributes"]
    )
