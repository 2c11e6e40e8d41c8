"""Intervals over groups and seeds: by hand, and how often they hold the truth."""

import numpy as np
import pytest

from metrics.map_at_k.significance import interval_of_means
from subtle.run.intervals import Interval, interval_of_mean, interval_of_ratio

T_1, T_2, T_3 = 12.706205, 4.302653, 3.182446  # 97.5 % of Student's t with 1, 2 and 3 degrees of freedom, from a table
REPEATS = 800
STANDARD_ERROR = (0.95 * 0.05 / REPEATS) ** 0.5


def test_groups_of_one_size_are_a_t_interval_of_their_means():
    values = np.array([[0.1, 0.3, 0.4, 0.4, 0.9, 0.9]])  # means 0.2, 0.4 and 0.9
    found = interval_of_mean(values, ["a", "a", "b", "b", "c", "c"])
    reach = T_2 * np.std([0.2, 0.4, 0.9], ddof=1) / 3**0.5
    assert (found.mean, found.low, found.high) == pytest.approx((0.5, 0.5 - reach, 0.5 + reach))


def test_seeds_without_a_difference_between_groups_are_a_t_interval_of_the_seeds_means():
    values = np.repeat([[0.2], [0.3], [0.5], [0.6]], 4, axis=1)
    found = interval_of_mean(values, ["a", "a", "b", "b"])
    reach = T_3 * np.std([0.2, 0.3, 0.5, 0.6], ddof=1) / 2
    assert (found.low, found.high) == pytest.approx((0.4 - reach, 0.4 + reach))


def test_groups_and_seeds_add_their_variances_and_share_their_degrees_of_freedom():
    values = np.array([[0.0], [0.4]]) + np.array([[0.0, 0.2, 0.7]])
    of_groups, of_seeds = np.var([0.2, 0.4, 0.9], ddof=1) / 3, np.var([0.3, 0.7], ddof=1) / 2
    wide, narrow = interval_of_mean(values, ["a", "b", "c"]), interval_of_mean(values[:1], ["a", "b", "c"])
    t = (wide.high - wide.mean) / (of_groups + of_seeds) ** 0.5
    assert T_3 < t < T_2  # Satterthwaite's degrees: (.0433 + .04)² / (.0433² / 2 + .04²) = 2.74
    assert narrow.high - narrow.mean == pytest.approx(T_2 * of_groups**0.5)


def test_one_large_group_among_small_ones_counts_as_fewer_groups():
    """The mean without a group, group by group, and Kish's number of groups, 20 * 20 / (14 * 14 + 3 * 4) = 1.92."""
    sizes, sums = np.array([14, 2, 2, 2]), np.array([7.0, 2.0, 0.0, 1.0])
    values = np.repeat(sums / sizes, sizes)[None]
    without = (10 - sums) / (20 - sizes)
    reach = T_1 * (3 / 4 * ((without - without.mean()) ** 2).sum()) ** 0.5
    found = interval_of_mean(values, np.repeat(list("abcd"), sizes).tolist())
    assert (found.low, found.high) == pytest.approx((0.5 - reach, 0.5 + reach))


def test_shares_stay_between_0_and_1_and_differences_may_leave_it():
    values, groups = np.array([[0.0, 1.0, 1.0]]), ["a", "b", "c"]
    assert interval_of_mean(values, groups, share=True) == Interval(2 / 3, 0.0, 1.0)
    apart = interval_of_mean(values, groups)
    assert apart.low < 0
    assert apart.high > 1


def test_the_metric_gives_the_same_bounds_for_one_seed():
    values = np.random.default_rng(3).uniform(size=30)
    groups = [number % 7 for number in range(30)]
    found = interval_of_mean(values[None], groups, share=True)
    assert interval_of_means(values[:, None], 0.95, groups) == [pytest.approx([found.low, found.high])]


@pytest.mark.parametrize("num_groups", [6, 12, 20])
@pytest.mark.parametrize("kind", ["results of 0 or 1", "much the same", "groups of any size", "four seeds"])
def test_an_interval_of_95_percent_holds_the_truth_that_often(kind, num_groups):
    """Groups differ, as long videos do; the percentile bootstrap holds it in 85 to 93 % of such draws."""
    draw, held = np.random.default_rng(0), 0
    for _ in range(REPEATS):
        sizes = np.full(num_groups, 10) if kind != "groups of any size" else 1 + draw.geometric(0.1, num_groups)
        groups = np.repeat(np.arange(num_groups), sizes)
        if kind == "much the same":
            values, truth = draw.normal(size=num_groups)[None, groups] + draw.normal(size=(1, len(groups))), 0.0
        elif kind == "four seeds":
            own = draw.normal(size=(4, 1)) / 2 + draw.normal(size=(4, num_groups)) / 2 + draw.normal(size=num_groups)
            values, truth = own[:, groups], 0.0
        else:
            values, truth = (draw.random((1, len(groups))) < draw.beta(2, 2, num_groups)[groups]).astype(float), 0.5
        found = interval_of_mean(values, groups.tolist())
        held += found.low <= truth <= found.high
    assert 0.93 - 2 * STANDARD_ERROR < held / REPEATS < 0.97 + 2 * STANDARD_ERROR


@pytest.mark.parametrize("num_groups", [6, 20])
def test_an_interval_of_a_ratio_holds_the_truth_that_often(num_groups):
    draw, held, groups = np.random.default_rng(1), 0, np.repeat(np.arange(num_groups), 5)
    for _ in range(REPEATS):
        shared = draw.uniform(0.2, 0.6, num_groups)[groups]
        others = shared + draw.normal(size=len(groups)) / 20
        found = interval_of_ratio(
            (1.5 * shared + draw.normal(size=len(groups)) / 20)[None], others[None], groups.tolist()
        )
        held += found.low <= 1.5 <= found.high
    assert 0.93 - 2 * STANDARD_ERROR < held / REPEATS < 0.97 + 2 * STANDARD_ERROR


def test_one_group_says_nothing_about_others():
    assert interval_of_mean(np.array([[0.0, 1.0]]), ["a", "a"]) == Interval(0.5, None, None)
    assert Interval(0.5, None, None).in_percent() == "+50.00"


@pytest.mark.parametrize("shape", [(4,), (0, 2), (1, 3)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match=r"values must be \(seeds, 2 queries\)"):
        interval_of_mean(np.zeros(shape), ["a", "b"])


def test_a_ratio_by_hand():
    """1 / 2, and without each group 2 / 3, 2 / 4 and 2 / 5 of sums, of the same number of queries."""
    values, others = np.array([[1.0, 1.0, 1.0]]), np.array([[3.0, 2.0, 1.0]])
    without = np.array([2 / 3, 2 / 4, 2 / 5])
    reach = T_2 * (2 / 3 * ((without - without.mean()) ** 2).sum()) ** 0.5
    found = interval_of_ratio(values, others, ["a", "b", "c"])
    assert (found.mean, found.low, found.high) == pytest.approx((0.5, 0.5 - reach, 0.5 + reach))


def test_a_ratio_to_nothing_has_no_bounds():
    assert interval_of_ratio(np.ones((1, 2)), np.array([[1.0, 0.0]]), ["a", "b"]).as_ratio() == "2.00"


def test_a_ratio_of_results_of_different_shapes_is_refused():
    with pytest.raises(ValueError, match=r"results of \(2, 3\) and \(1, 3\)"):
        interval_of_ratio(np.ones((2, 3)), np.ones((1, 3)), ["a", "b", "c"])


def test_a_ratio_within_one_group_has_no_bounds():
    assert interval_of_ratio(np.ones((1, 2)), np.full((1, 2), 0.5), ["a", "a"]).as_ratio() == "2.00"
