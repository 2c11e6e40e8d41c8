"""Intervals over groups and seeds, against all draws written out."""

from itertools import product

import numpy as np
import pytest

from harness.intervals import Interval, interval_of_mean, interval_of_ratio


def exact_means(values, groups):
    """The mean over every draw of groups and every draw of seeds, each equally likely."""
    names = sorted(set(groups))
    means = []
    for seeds in product(range(len(values)), repeat=len(values)):
        for drawn in product(names, repeat=len(names)):
            picked = [values[s][q] for s in seeds for g in drawn for q in range(len(groups)) if groups[q] == g]
            means.append(sum(picked) / len(picked))
    return np.array(means)


def exact_interval(means, confidence):
    tail = (1 - confidence) / 2
    return np.quantile(means, [tail, 1 - tail])


def test_two_groups_worked_out_by_hand():
    """The mean is 0, 1/2 or 1 with probabilities 1/4, 1/2 and 1/4."""
    values = np.array([[0.0, 0.0, 1.0, 1.0]])
    groups = ["a", "a", "b", "b"]
    assert interval_of_mean(values, groups) == Interval(0.5, 0.0, 1.0)
    assert interval_of_mean(values, groups, confidence=0.4) == Interval(0.5, 0.5, 0.5)


def test_seeds_are_drawn_too():
    """Without a difference between groups, two seeds of 0 and 1 do what two groups do above."""
    values = np.array([[0.0, 0.0], [1.0, 1.0]])
    assert interval_of_mean(values, ["a", "b"]) == Interval(0.5, 0.0, 1.0)
    assert interval_of_mean(values, ["a", "b"], confidence=0.4) == Interval(0.5, 0.5, 0.5)


def test_it_agrees_with_all_draws_of_groups_of_different_sizes_and_of_seeds():
    values = np.random.default_rng(0).normal(size=(3, 7))
    groups = ["a", "a", "a", "b", "c", "c", "d"]
    low, high = exact_interval(exact_means(values, groups), 0.8)
    found = interval_of_mean(values, groups, confidence=0.8, resamples=200_000)
    assert found.mean == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.01)


def test_one_group_says_nothing_about_others():
    assert interval_of_mean(np.array([[0.0, 1.0]]), ["a", "a"]) == Interval(0.5, None, None)
    assert Interval(0.5, None, None).in_percent() == "+50.00"


def test_the_same_seed_gives_the_same_interval():
    values = np.random.default_rng(1).normal(size=(5, 40))
    groups = [number % 10 for number in range(40)]
    assert interval_of_mean(values, groups, seed=3) == interval_of_mean(values, groups, seed=3)
    assert interval_of_mean(values, groups, seed=3) != interval_of_mean(values, groups, seed=4)


@pytest.mark.parametrize("shape", [(4,), (0, 2), (1, 3)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match=r"values must be \(seeds, 2 queries\)"):
        interval_of_mean(np.zeros(shape), ["a", "b"])


def test_a_ratio_agrees_with_all_draws_on_which_both_are_measured():
    draw = np.random.default_rng(2)
    values, others = draw.uniform(0.4, 1, size=(2, 6)), draw.uniform(0.2, 0.8, size=(2, 6))
    groups = ["a", "a", "b", "c", "c", "d"]
    low, high = exact_interval(exact_means(values, groups) / exact_means(others, groups), 0.8)
    found = interval_of_ratio(values, others, groups, confidence=0.8, resamples=200_000)
    assert found.mean == pytest.approx(values.mean() / others.mean())
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.01)


def test_a_ratio_of_results_of_different_shapes_is_refused():
    with pytest.raises(ValueError, match=r"results of \(2, 3\) and \(1, 3\)"):
        interval_of_ratio(np.ones((2, 3)), np.ones((1, 3)), ["a", "b", "c"])


def test_a_ratio_within_one_group_has_no_bounds():
    assert interval_of_ratio(np.ones((1, 2)), np.full((1, 2), 0.5), ["a", "a"]).as_ratio() == "2.00"
