"""mAP@K against a second, plain implementation, known results and malformed input."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_metrics import plain_average_precision

from metrics.map_at_k import average_precision
from metrics.map_at_k.scoring import mean_average_precision
from metrics.map_at_k.significance import compare, interval_of_means

CUTS = (1, 3, 5, 10)


rankings = st.lists(st.integers(-20, 20), unique=True, max_size=12)
relevants = st.lists(st.integers(-20, 20), min_size=1, max_size=8)
runs = st.lists(st.tuples(rankings, relevants), min_size=1, max_size=8)


@settings(max_examples=150, deadline=None)
@given(runs)
def test_every_result_equals_the_plain_implementation(run):
    predictions, references = map(list, zip(*run, strict=True))
    result = mean_average_precision(predictions, references, k=CUTS, recall=True, per_query=True)
    for k in CUTS:
        plain = [plain_average_precision(*query, k) for query in run]
        assert result["per_query"][f"map@{k}"] == pytest.approx(plain, abs=1e-12)
        assert result[f"map@{k}"] == pytest.approx(np.mean(plain), abs=1e-12)
        found = [len(set(ranking[:k]) & set(relevant)) / len(set(relevant)) for ranking, relevant in run]
        assert result[f"recall@{k}"] == pytest.approx(np.mean(found), abs=1e-12)


def test_many_queries_across_blocks_agree_with_the_plain_implementation(monkeypatch):
    monkeypatch.setattr(average_precision, "QUERIES_PER_BLOCK", 1000)
    rng = np.random.default_rng(0)
    predictions = np.argsort(rng.random((9000, 60)), axis=1)[:, :20]
    references = [rng.integers(0, 60, rng.integers(1, 9)).tolist() for _ in predictions]
    plain = [plain_average_precision(p, r, 10) for p, r in zip(predictions.tolist(), references, strict=True)]
    assert mean_average_precision(predictions, references, k=10)["map@10"] == pytest.approx(np.mean(plain), abs=1e-12)


def test_lists_arrays_strings_and_tensors_give_the_same_results():
    torch = pytest.importorskip("torch")
    matrix = np.array([[4, 2, 9], [9, 4, 1]])
    references = [[2], [1, 9]]
    as_text = (
        [[str(item) for item in row] for row in matrix.tolist()],
        [[str(item) for item in row] for row in references],
    )
    expected = mean_average_precision(matrix.tolist(), references)
    for predictions in (matrix, matrix.astype(np.int32), torch.tensor(matrix), [tuple(row) for row in matrix.tolist()]):
        assert mean_average_precision(predictions, references) == expected
    assert mean_average_precision(*as_text) == expected
    huge = mean_average_precision(matrix * 2**50 - 7, [[item * 2**50 - 7 for item in row] for row in references])
    assert huge == expected


@settings(max_examples=80, deadline=None)
@given(runs, st.integers(-20, 20))
def test_excluding_an_id_equals_removing_it_by_hand(run, own):
    run = [(ranking, [item for item in relevant if item != own] or [99]) for ranking, relevant in run]
    by_hand = [([item for item in ranking if item != own], relevant) for ranking, relevant in run]
    excluded = mean_average_precision(*zip(*run, strict=True), k=CUTS, exclude=[own] * len(run))
    expected = mean_average_precision(*zip(*by_hand, strict=True), k=CUTS)
    assert all(excluded[f"map@{k}"] == pytest.approx(expected[f"map@{k}"], abs=1e-12) for k in CUTS)


def test_the_official_protocol_counts_duplicates_and_cuts_at_fifty():
    def official(predictions, references, **options):
        return mean_average_precision(predictions, references, protocol="tfcovr-official", **options)

    assert official([[1, 1, 1, 2, 3]], [[1, 2, 3]], k=[3, 5])["map@5"] == pytest.approx(5 / 3)
    assert official([[1, 2, 9]], [[1, 1, 2]], k=3)["map@3"] == pytest.approx(2 / 3)
    assert official([[1, 2, 9]], [[1, 2, 55]], k=3)["map@3"] == pytest.approx(2 / 3)
    assert official([list(range(60))], [[55]], k=60)["map@60"] == 0
    assert math.isnan(official([[1]], [[]], k=1)["map@1"])
    assert official([[7, 1]], [[7, 1]], k=2, exclude=[7])["map@2"] == 0.5


def test_queries_without_relevant_ids_are_skipped_only_on_request_and_counted():
    result = mean_average_precision([[1], [2]], [[1], []], k=1, empty="skip", per_query=True)
    assert result["map@1"] == 1
    assert result["skipped_queries"] == 1
    assert math.isnan(result["per_query"]["map@1"][1])


def test_the_signature_states_the_protocol():
    signature = mean_average_precision([[1]], [[1]], exclude=[5], confidence=0.9)["signature"]
    assert signature == (
        "map@k|protocol:standard|denominator:min(relevant,k)|exclude:given|ties:as-ranked|duplicates:error|"
        "empty:error|interval:0.9,jackknife-t|version:1.0.0"
    )


BAD_INPUT = {
    "a duplicate": ([[1], [4, 5, 4]], [[1], [4]], {}, r"query 1 .* ranks \[1, 3\]"),
    "a duplicate in a ragged ranking": ([["a"], ["b", "b"]], [["a"], ["b"]], {}, "query 1"),
    "different lengths": ([[1]], [[1], [2]], {}, "1 predictions but 2 references"),
    "no query": ([], [], {}, "no query"),
    "no relevant id": ([[1], [1]], [[1], []], {}, 'query 1; empty="skip"'),
    "no relevant id anywhere": ([[1]], [[]], {"empty": "skip"}, "1 of 1"),
    "None": ([[1], [2, None]], [[1], [2]], {}, r"predictions\[1\] holds None"),
    "None for a ranking": ([[1], None], [[1], [2]], {}, r"predictions\[1\] must be a list"),
    "None for everything": (None, [[1]], {}, "must be a list"),
    "None among strings": ([["a", None]], [["a"]], {}, r"predictions\[0\] holds None"),
    "NaN": ([[float("nan")]], [[1]], {}, r"predictions\[0\] holds nan"),
    "NaN among ids": ([[1, float("nan")]], [[1]], {}, r"predictions\[0\] holds nan"),
    "an array of floats": (np.ones((1, 2)), [[1]], {}, r"predictions\[0\] holds 1.0"),
    "a truth value": ([[2, True]], [[1]], {}, r"predictions\[0\] holds True"),
    "mixed kinds in a ranking": ([[1, "a"]], [[1]], {}, "holds 'a' but other ids look like 1"),
    "mixed kinds over queries": ([["a"], [1]], [["a"], ["b"]], {}, r"predictions\[1\] holds 1"),
    "mixed kinds of ranking and reference": ([[1]], [["1"]], {}, "predictions hold integers, references hold strings"),
    "ids without lists": ([1, 2], [[1], [2]], {}, r"predictions\[0\] must be a list"),
    "a string for a ranking": (["ab"], [["a"]], {}, r"predictions\[0\] must be a list"),
    "an unordered ranking": ([{1, 2}], [[1]], {}, r"predictions\[0\] must be a list"),
    "an id beyond 64 bits": ([[2**70]], [[1]], {}, "64-bit"),
    "an excluded id that is relevant": ([[1]], [[1]], {"exclude": [1]}, "excluded id of query 0"),
    "too few excluded ids": ([[1], [2]], [[1], [2]], {"exclude": [1]}, "1 ids for 2 queries"),
    "k of zero": ([[1]], [[1]], {"k": [0]}, "k must be"),
    "k of a half": ([[1]], [[1]], {"k": 0.5}, "k must be"),
    "an unknown protocol": ([[1]], [[1]], {"protocol": "official"}, "protocol must be one of"),
    "an unknown way with empty sets": ([[1]], [[1]], {"empty": "zero"}, "empty must be one of"),
    "a confidence in percent": ([[1]], [[1]], {"confidence": 95}, "between 0 and 1"),
}


@pytest.mark.parametrize("case", BAD_INPUT.values(), ids=BAD_INPUT)
def test_malformed_input_is_refused_naming_the_row(case):
    predictions, references, options, message = case
    with pytest.raises(ValueError, match=message):
        mean_average_precision(predictions, references, **options)


def test_the_interval_over_queries_is_that_of_students_t():
    values = np.random.default_rng(1).random((12, 2))
    reach = 2.200985 * values.std(axis=0, ddof=1) / 12**0.5  # t with 11 degrees of freedom, from a table
    expected = np.stack([values.mean(axis=0) - reach, values.mean(axis=0) + reach], axis=1)
    assert np.array(interval_of_means(values, 0.95)) == pytest.approx(expected)


def test_one_query_has_no_interval():
    result = mean_average_precision([[1, 2]], [[2]], k=[1, 2], confidence=0.95)
    assert result["confidence_interval"] == {"map@1": None, "map@2": None}


def run_of(values, **changes):
    return {"signature": "s", "per_query": {"map@5": list(values)}, **changes}


def test_the_permutation_test_agrees_with_counting_all_sign_flips():
    rng = np.random.default_rng(2)
    a, b = rng.random(10), rng.random(10) - 0.15
    flips = np.array(np.meshgrid(*[[-1, 1]] * 10)).reshape(10, -1).T
    exact = np.mean(np.abs(flips @ (a - b)) >= abs((a - b).sum()) - 1e-12)
    result = compare(run_of(a), run_of(b))["map@5"]
    assert result["p_value"] == pytest.approx(exact, abs=0.02)
    assert result["difference"] == pytest.approx(np.mean(a - b))
    assert compare(run_of(a), run_of(b), seed=4) == compare(run_of(a), run_of(b), seed=4)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"map@5": 0.3}, "per_query=True"),
        (run_of([0.1, 0.2], signature="t"), "different protocols"),
        (run_of([0.1]), "2 and 1 queries"),
        (run_of([0.1, float("nan")]), "skipped different"),
        ({"signature": "s", "per_query": {"map@9": [0.1, 0.2]}}, "different metrics"),
    ],
)
def test_runs_that_cannot_be_paired_are_refused(other, message):
    with pytest.raises(ValueError, match=message):
        compare(run_of([0.5, 0.1]), other)


def test_a_result_is_plain_json():
    result = mean_average_precision([[1]], [[1]], per_query=True, confidence=0.9, recall=True)
    assert json.loads(json.dumps(result)) == result
