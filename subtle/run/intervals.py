"""Intervals of a figure over what was drawn: the groups that queries come in, such as long videos, and the seeds.

A percentile bootstrap over 6 groups holds the truth in 85 to 87 % of cases where it says 95, and reaches that only at
about 50. These are jackknife intervals instead, from the figure without each group and without each seed, with as many
deviations as Student's t asks for. In simulations with 6, 12 and 20 groups they hold the truth in 93 to 97 % of cases.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean with the bounds of its interval; None where there is but one group, which says nothing about others."""

    mean: float
    low: float | None
    high: float | None

    def in_percent(self, digits: int = 2) -> str:
        """The mean with its sign and the bounds, in percent.

        Example:
            >>> Interval(0.02, 0.005, 0.035).in_percent(1)
            '+2.0 [0.5, 3.5]'
        """
        return f"{100 * self.mean:+.{digits}f} {self.bounds_in_percent(digits)}".rstrip()

    def as_ratio(self, digits: int = 2) -> str:
        """The mean and the bounds as they are.

        Example:
            >>> Interval(1.25, 1.2, 1.304).as_ratio()
            '1.25 [1.20, 1.30]'
        """
        bounds = "" if self.low is None else f"[{self.low:.{digits}f}, {self.high:.{digits}f}]"
        return f"{self.mean:.{digits}f} {bounds}".rstrip()

    def bounds_in_percent(self, digits: int = 2) -> str:
        """The bounds in percent; nothing where there are none."""
        if self.low is None or self.high is None:
            return ""
        return f"[{100 * self.low:.{digits}f}, {100 * self.high:.{digits}f}]"


def interval_of_mean(
    values: np.ndarray, groups: Sequence[Hashable], *, confidence: float = CONFIDENCE, share: bool = False
) -> Interval:
    """Interval of a mean over queries and seeds.

    For the difference of two systems give the differences, query by query and seed by seed. The variances due to groups
    and to seeds add up; the degrees of freedom are Satterthwaite's, of one less than there are seeds, and than there
    are groups by Kish's count, which is lower where groups are of different sizes.

    Args:
        values: Results `(seeds, queries)`; with one seed only groups count.
        groups: The group of each query, such as the competition that its clip is from.
        confidence: Level of the interval, in (0, 1).
        share: The mean is a share, and its bounds lie in [0, 1].

    Raises:
        ValueError: `values` has another shape, or no entry.

    Example:
        >>> interval = interval_of_mean(np.array([[0.2, 0.4, 0.4, 0.4, 0.5, 0.5]]), ["a", "a", "b", "b", "c", "c"])
        >>> interval.in_percent()
        '+40.00 [15.16, 64.84]'
    """
    mean, of_groups, of_seeds, freedom = jackknifed(values, groups)
    interval = bounded(mean, (of_groups, of_seeds), freedom, confidence)
    if interval.low is None or interval.high is None or not share:
        return interval
    return Interval(mean, max(0.0, interval.low), min(1.0, interval.high))


def interval_of_ratio(
    values: np.ndarray, others: np.ndarray, groups: Sequence[Hashable], *, confidence: float = CONFIDENCE
) -> Interval:
    """The same for the ratio of two systems' means, of which both lack the same group or seed.

    Args:
        values: Results `(seeds, queries)` of the one above the line.
        others: Those of the other, of the same shape, not all 0; no bounds where they are all 0 without one group.
        groups: As in `interval_of_mean`.
        confidence: As in `interval_of_mean`.

    Raises:
        ValueError: The arrays have other shapes, or no entry.

    Example:
        >>> interval_of_ratio(np.array([[0.4, 0.6]]), np.array([[0.2, 0.3]]), ["a", "b"]).as_ratio()
        '2.00 [2.00, 2.00]'
    """
    if values.shape != others.shape:
        raise ValueError(f"results of {values.shape} and {others.shape} (seeds, queries) cannot be divided")
    (mean, *without, freedom), (other, *without_other, _) = jackknifed(values, groups), jackknifed(others, groups)
    if not all(part.all() for part in without_other):
        return Interval(mean / other, None, None)
    ratios = [part / below for part, below in zip(without, without_other, strict=True)]
    return bounded(mean / other, ratios, freedom, confidence)


def jackknifed(
    values: np.ndarray, groups: Sequence[Hashable]
) -> tuple[float, np.ndarray, np.ndarray, tuple[float, float]]:
    """The mean, the means without each group and without each seed, and the degrees of freedom of both."""
    if values.ndim != 2 or not values.size or values.shape[1] != len(groups):
        raise ValueError(f"values must be (seeds, {len(groups)} queries) with at least one of each, not {values.shape}")
    places = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    members, num_seeds = np.array([places[group] for group in groups]), len(values)
    sizes, by_seed = np.bincount(members), values.sum(1)
    by_group, total = np.bincount(members, weights=values.sum(0)), by_seed.sum()
    of_groups, of_seeds = np.empty(0), np.empty(0)
    if len(places) > 1:
        of_groups = (total - by_group) / (num_seeds * (len(members) - sizes))
    if num_seeds > 1:
        of_seeds = (total - by_seed) / ((num_seeds - 1) * len(members))
    kish = len(members) ** 2 / (sizes**2).sum()
    return float(values.mean()), of_groups, of_seeds, (max(1.0, kish - 1), num_seeds - 1.0)


def bounded(figure: float, without: Sequence[np.ndarray], freedom: Sequence[float], confidence: float) -> Interval:
    """A figure with its bounds, from what it is without each group, and without each seed."""
    if not len(without[0]):
        return Interval(figure, None, None)
    parts = [(len(part) - 1) / len(part) * ((part - part.mean()) ** 2).sum() if len(part) else 0.0 for part in without]
    variance = sum(parts)
    if not variance:
        return Interval(figure, figure, figure)
    joint = variance**2 / sum(part**2 / degrees for part, degrees in zip(parts, freedom, strict=True) if part)
    reach = float(stdtrit(joint, (1 + confidence) / 2) * variance**0.5)
    return Interval(figure, figure - reach, figure + reach)
