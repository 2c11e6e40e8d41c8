"""Comprehensive accuracy against a plain count, the paper's table and malformed input."""

import numpy as np
import pytest

from metrics.comprehensive_accuracy.scoring import DISRUPTION_TYPES, comprehensive_accuracy


def test_accuracies_equal_a_plain_count():
    rng = np.random.default_rng(0)
    types = rng.choice(DISRUPTION_TYPES, 500).tolist()
    positive, negative = rng.integers(0, 4, (2, 500)) / 4  # ties are frequent
    rows = [{"positive": p, "negative": n} for p, n in zip(positive, negative, strict=True)]
    product = 1.0
    result = comprehensive_accuracy(rows, types)
    for name in DISRUPTION_TYPES:
        right = [row["positive"] > row["negative"] for row, kind in zip(rows, types, strict=True) if kind == name]
        assert result[f"accuracy/{name}"] == pytest.approx(sum(right) / len(right), abs=1e-12)
        product *= sum(right) / len(right)
    assert result["comprehensive_accuracy"] == pytest.approx(product, abs=1e-12)
    assert comprehensive_accuracy({"positive": positive, "negative": negative}, types) == result


# VideoComp, main results: accuracies per type in percent and the column "All".
@pytest.mark.parametrize(
    ("per_type", "product"),
    [((65.4, 73.1, 65.3), 31.2), ((68.2, 75.4, 68.0), 35.0), ((60.0, 72.7, 62.6), 27.3), ((70.4, 84.2, 74.1), 43.9)],
)
def test_the_product_equals_the_one_in_the_paper(per_type, product):
    rows, types = [], []
    for accuracy, name in zip(per_type, DISRUPTION_TYPES, strict=False):
        right = round(accuracy * 10)
        rows += [{"positive": 1.0, "negative": 0.0}] * right + [{"positive": 0.0, "negative": 1.0}] * (1000 - right)
        types += [name] * 1000
    assert round(100 * comprehensive_accuracy(rows, types)["comprehensive_accuracy"], 1) == product


GOOD = {"positive": 0.5, "negative": 0.1}
BAD_INPUT = {
    "different lengths": ([GOOD], ["multi", "multi"], "1 predictions but 2 references"),
    "no row": ([], [], "no row"),
    "None": ([GOOD, None], ["multi"] * 2, r"predictions\[1\]"),
    "None for a similarity": ([{"positive": None, "negative": 0.1}], ["multi"], r"predictions\[0\]"),
    "text for a similarity": ([{"positive": "0.5", "negative": 0.1}], ["multi"], r"predictions\[0\]"),
    "a field that is absent": ([{"positive": 0.5}], ["multi"], r"predictions\[0\]"),
    "NaN": ([GOOD, {"positive": float("nan"), "negative": 0.1}], ["multi"] * 2, r"predictions\[1\].*nan"),
    "an infinite similarity": ([{"positive": 0.1, "negative": float("inf")}], ["multi"], "finite"),
    "an unknown type": ([GOOD, GOOD], ["multi", "reorder"], r"references\[1\].*'reorder'.*known are"),
    "no type": ([GOOD], [None], r"references\[0\]"),
    "columns of different length": ({"positive": [1.0, 2.0], "negative": [1.0]}, ["multi"] * 2, "2 positive"),
    "a column that is absent": ({"positive": [1.0]}, ["multi"], "'negative'"),
    "answers mixed with similarities": (
        ["1", GOOD],
        [{"disruption_type": "multi", "answer": "1"}] * 2,
        r"predictions\[1\]",
    ),
    "an answer without its key": (["1"], ["multi"], r"references\[0\]"),
    "a key that is no choice": (["1"], [{"disruption_type": "multi", "answer": "3"}], r"references\[0\]"),
}


@pytest.mark.parametrize("case", BAD_INPUT.values(), ids=BAD_INPUT)
def test_malformed_input_is_refused_naming_the_row(case):
    predictions, references, message = case
    with pytest.raises(ValueError, match=message):
        comprehensive_accuracy(predictions, references)
