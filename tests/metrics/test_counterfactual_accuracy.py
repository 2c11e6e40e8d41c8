"""Text, video and group score and StrictVLE against hand-worked values, plain loops, chance and malformed input."""

import itertools
import math
from unittest.mock import patch

import evaluate
import numpy as np
import pytest

import metrics
from metrics.counterfactual_accuracy.scoring import counterfactual_accuracy, fit_threshold

SCORES = ("text_score", "video_score", "group_score")


def drawn(count, seed=0):
    """Groups of few distinct similarities, so that ties are frequent."""
    return (np.random.default_rng(seed).integers(0, 5, (count, 2, 2)) / 4).tolist()


# Worked out by hand: the text score reads along the rows, the video score along the columns.
@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ([[2, 1], [1, 2]], (1, 1, 1)),
        ([[4, 3], [1, 2]], (1, 0, 0)),  # text 1 prefers video 0
        ([[4, 1], [3, 2]], (0, 1, 0)),  # video 1 prefers text 0
        ([[3, 4], [2, 1]], (0, 0, 0)),
        ([[1, 2], [2, 1]], (0, 0, 0)),  # all four are wrong
        ([[2, 2], [1, 3]], (0, 1, 0)),  # video 0 has a tie, which is wrong
        ([[2, 1], [2, 3]], (1, 0, 0)),  # text 0 has a tie
        ([[1, 1], [1, 1]], (0, 0, 0)),
        ([[-0.1, -0.3], [-0.4, -0.2]], (1, 1, 1)),  # cosines may be negative
    ],
)
def test_a_group_has_the_scores_that_are_worked_out_by_hand(group, expected):
    result = counterfactual_accuracy([group])
    assert tuple(result[name] for name in SCORES) == expected


def test_scores_equal_plain_loops():
    groups, threshold = drawn(400), 0.5
    kinds = [("a", "b", "c")[place % 3] for place in range(len(groups))]
    counts = {}
    for ((s00, s01), (s10, s11)), kind in zip(groups, kinds, strict=True):
        # As Vinoground's script and VELOCITI's metrics compare.
        text, video = s00 > s01 and s11 > s10, s00 > s10 and s11 > s01
        classic = ((s00 > s01) + (s11 > s10)) / 2
        strict = ((s00 > threshold > s01) + (s11 > threshold > s10)) / 2
        for name, value in zip(
            (*SCORES, "classic_vle", "strict_vle"), (text, video, text and video, classic, strict), strict=True
        ):
            counts.setdefault(name, []).append(value)
            counts.setdefault(f"{name}/{kind}", []).append(value)
    result = counterfactual_accuracy(groups, kinds, threshold=threshold)
    signature = result.pop("signature")
    assert result == pytest.approx({name: sum(values) / len(values) for name, values in counts.items()})
    assert "|groups:a=134,b=133,c=133|videos:2|" in signature
    assert counterfactual_accuracy(np.array(groups), kinds, threshold=threshold) == result | {"signature": signature}


def test_chance_is_what_the_card_says():
    orders = [[[a, b], [c, d]] for a, b, c, d in itertools.permutations(range(4))]
    result = counterfactual_accuracy(orders)
    assert [result[name] for name in (*SCORES, "classic_vle")] == pytest.approx([1 / 4, 1 / 4, 1 / 6, 1 / 2])
    uniform = np.random.default_rng(0).random((20_000, 2, 2))
    for threshold in (0.2, 0.5, 0.7):
        strict = counterfactual_accuracy(uniform, threshold=threshold)["strict_vle"]
        assert strict == pytest.approx(threshold * (1 - threshold), abs=0.01)  # at most 1/4


def test_one_video_with_two_texts_has_no_score_of_pairs():
    rows = [[[0.9, 0.2]], [[0.8, 0.6]], [[0.5, 0.1]], [[0.9, 0.5]], [[0.3, 0.3]]]
    result = counterfactual_accuracy(rows, threshold=0.5)
    assert (result["classic_vle"], result["strict_vle"]) == (0.8, 0.2)  # on the threshold is neither above nor below
    assert not set(SCORES) & set(result)
    assert "|videos:1|" in result["signature"]


def test_the_fitted_threshold_is_the_best_of_all():
    for seed in range(20):
        groups = drawn(7, seed)
        fitted = fit_threshold(groups)
        best = max(counterfactual_accuracy(groups, threshold=at)["strict_vle"] for at in np.arange(-0.125, 1.2, 0.125))
        assert counterfactual_accuracy(groups, threshold=fitted)["strict_vle"] == best
    assert fit_threshold([[[1.0, 0.0]], [[0.9, 0.8]]]) == pytest.approx(0.85)
    assert fit_threshold([[[0.9, 0.2]], [[0.8, 0.5]]]) == pytest.approx(0.65)
    assert fit_threshold([[[0.5, 0.5]]]) == 0.5
    assert math.isfinite(fit_threshold([[[1.7e308, -1.7e308]]]))


def test_intervals_are_over_groups_and_agree_with_a_bootstrap_where_there_are_many():
    groups = np.random.default_rng(1).random((60, 2, 2)) + 0.4 * np.eye(2)
    result = counterfactual_accuracy(groups, threshold=0.7, confidence=0.9, per_query=True)
    assert set(result["confidence_interval"]) == {*SCORES, "classic_vle", "strict_vle"} == set(result["per_query"])
    draw = np.random.default_rng(5)
    for name, (low, high) in result["confidence_interval"].items():
        values = np.array(result["per_query"][name])
        means = [values[draw.integers(60, size=60)].mean() for _ in range(2000)]
        assert [low, high] == pytest.approx(np.quantile(means, [0.05, 0.95]), abs=0.03)
        assert low < result[name] < high
    assert result["signature"].endswith("|interval:0.9,jackknife-t|version:1.0.0")


def test_groups_of_one_cluster_count_together():
    right, wrong = [[2, 1], [1, 2]], [[1, 2], [2, 1]]
    groups, clusters = [right] * 30 + [wrong] * 30, ["a"] * 30 + ["b"] * 30
    together = counterfactual_accuracy(groups, confidence=0.9, clusters=clusters)
    assert together["confidence_interval"]["group_score"] == [0.0, 1.0]  # two videos say nothing
    assert together["signature"].endswith("|interval:0.9,jackknife-t,clusters=2|version:1.0.0")
    alone = counterfactual_accuracy(groups, confidence=0.9, clusters=range(60))["confidence_interval"]
    assert alone == counterfactual_accuracy(groups, confidence=0.9)["confidence_interval"]
    one = counterfactual_accuracy(groups, confidence=0.9, clusters=["a"] * 60)["confidence_interval"]
    assert set(one.values()) == {None}


def test_two_models_are_compared_on_the_loaded_metric(tmp_path):
    metric = evaluate.load(metrics.space("counterfactual_accuracy"), cache_dir=str(tmp_path))
    noise = np.random.default_rng(0).random((80, 2, 2))
    good, poor = (metric.compute(predictions=noise + gain * np.eye(2), per_query=True) for gain in (0.8, 0.0))
    compared = metric.compare(good, poor)
    assert compared["group_score"]["difference"] == pytest.approx(good["group_score"] - poor["group_score"])
    assert compared["group_score"]["p_value"] < 0.01
    assert metric.fit_threshold(predictions=noise) == fit_threshold(noise)


def test_rows_are_added_with_and_without_a_kind(tmp_path):
    metric = evaluate.load(metrics.space("counterfactual_accuracy"), cache_dir=str(tmp_path))
    metric.add_batch(predictions=[[[2, 1], [1, 2]]])
    metric.add(prediction=[[4, 3], [1, 2]])
    assert metric.compute(predictions=np.array([[[4, 1], [3, 2]]]))["text_score"] == pytest.approx(2 / 3)
    metric.add_batch(predictions=[[[2, 1]]])
    with pytest.raises(ValueError, match="some groups have one video and some have two"):
        metric.compute(predictions=[[[2, 1], [1, 2]]])


def test_one_of_two_processes_gives_evaluate_both_columns(tmp_path):
    options = {"num_process": 2, "process_id": 1, "experiment_id": "joint", "cache_dir": str(tmp_path)}
    metric = evaluate.load(metrics.space("counterfactual_accuracy"), **options)
    with patch.object(evaluate.Metric, "add_batch") as add_batch:
        metric.add_batch(predictions=[[[2, 1], [1, 2]]])
    add_batch.assert_called_once_with(predictions=[[[2, 1], [1, 2]]], references=[None])


GOOD = [[0.5, 0.1], [0.2, 0.6]]
BAD_INPUT = {
    "different lengths": (([GOOD], ["a", "a"]), "1 predictions but 2 references"),
    "no group": (([],), "no group"),
    "no matrix": (([GOOD, 0.5],), r"predictions\[1\] must be a list"),
    "None": (([GOOD, None],), r"predictions\[1\] must be a list"),
    "three videos": (([[[1, 2], [1, 2], [1, 2]]],), r"predictions\[0\] must be \[\[a, b\], \[c, d\]\]"),
    "three texts": (([[[1, 2, 3], [1, 2, 3]]],), r"predictions\[0\] must be \[\[a, b\], \[c, d\]\]"),
    "three by three in an array": ((np.eye(3)[None],), r"predictions\[0\] must be"),
    "a flat array": ((np.zeros((2, 2)),), r"predictions\[0\] must be a list"),
    "one video among two": (([GOOD, [[0.5, 0.1]]],), r"predictions\[1\] has 1 of the two videos"),
    "a text": (([GOOD, [["0.5", 0.1], [0.2, 0.6]]],), r"predictions\[1\] has the similarity '0.5'"),
    "a truth value": (([[[True, 0.1], [0.2, 0.6]]],), r"predictions\[0\] has the similarity True"),
    "NaN": (([GOOD, [[0.5, 0.1], [0.2, math.nan]]],), r"predictions\[1\] .* nan of video 1 with text 1"),
    "NaN in an array": ((np.full((1, 2, 2), np.nan),), r"predictions\[0\] .* nan of video 0 with text 0"),
    "an infinite similarity": (([[[0.5, -math.inf]]],), r"predictions\[0\] .*finite"),
    "a kind that is a number": (([GOOD], [3]), r"references\[0\] must be the kind"),
    "an empty kind": (([GOOD], [""]), r"references\[0\] must be the kind"),
    "kinds of some": (([GOOD, GOOD], ["a", None]), r"references\[1\] is None where references\[0\] is 'a'"),
}


@pytest.mark.parametrize("case", BAD_INPUT.values(), ids=BAD_INPUT)
def test_malformed_input_is_refused_naming_the_row(case):
    arguments, message = case
    with pytest.raises(ValueError, match=message):
        counterfactual_accuracy(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": math.nan}, "threshold must be a finite number"),
        ({"threshold": "best"}, "threshold must be a finite number"),
        ({"threshold": True}, "threshold must be a finite number"),
        ({"confidence": 95}, "confidence must lie between 0 and 1"),
        ({"confidence": "high"}, "confidence must lie between 0 and 1"),
        ({"per_query": "no"}, "per_query must be True or False"),
        ({"clusters": ["a", "b"], "confidence": 0.9}, "1 groups but 2 clusters"),
        ({"clusters": [None], "confidence": 0.9}, r"clusters\[0\] must be a text or a whole number"),
        ({"clusters": "a", "confidence": 0.9}, "clusters must be a list"),
    ],
)
def test_a_malformed_option_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        counterfactual_accuracy([GOOD], **options)


def test_no_threshold_is_fitted_to_nothing():
    with pytest.raises(ValueError, match="no group"):
        fit_threshold([])
