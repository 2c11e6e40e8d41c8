"""Confidence intervals of means over queries, and a paired test of two runs."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import stdtrit

from .inputs import quoted, read_number, read_rows, read_whole

PERMUTATIONS = 10_000
LARGEST_RESULT = 1e6  # far above any metric, so that differences are exact enough
MOST_SEED = 2**64 - 1
VALUES_PER_BLOCK = 4_000_000


def check_confidence(value: Any) -> float | None:
    """The level of an interval as a number; None where none is asked for.

    Raises:
        ValueError: It is not between 0 and 1.
    """
    level = None if value is None else read_number(value)
    if value is not None and (level is None or not 0 < level < 1):
        raise ValueError(f"confidence must lie between 0 and 1 (95 % is 0.95), not {quoted(value)}")
    return level


def interval_of_means(
    values: np.ndarray, confidence: float, groups: Sequence[Hashable] | None = None
) -> list[list[float] | None]:
    """The interval of each column's mean over queries, or over groups of them: its jackknife with Student's t.

    From the mean without each group. The degrees of freedom are one less than there are groups, by Kish's count, which
    is lower where they are of different sizes. A percentile bootstrap would be too narrow below some 50 groups: over 6
    it holds the truth in 85 to 87 % of cases where it says 95, this in 93 to 97.

    Args:
        values: Results per query `(num_queries, num_metrics)`.
        confidence: Level of the interval, in (0, 1).
        groups: The group of each query, such as its long video: queries of one video are alike. None: every query by
            itself.

    Returns:
        The lower and the upper bound of each column, within [0, 1] where all its results are; None where there is but
        one group, which says nothing about others.

    Example:
        >>> interval_of_means(np.ones((5, 1)), 0.95)
        [[1.0, 1.0]]
        >>> interval_of_means(np.array([[0.0], [1.0]]), 0.95, groups=["a", "a"])
        [None]
    """
    sums, sizes = values, np.ones(len(values))
    if groups is not None:
        places = {group: place for place, group in enumerate(dict.fromkeys(groups))}
        members = np.array([places[group] for group in groups])
        sums, sizes = np.zeros((len(places), values.shape[1])), np.bincount(members).astype(np.float64)
        np.add.at(sums, members, values)
    count, num_queries = len(sums), len(values)
    if count == 1:
        return [None] * values.shape[1]
    without = (values.sum(axis=0) - sums) / (num_queries - sizes)[:, None]
    deviation = np.sqrt((count - 1) / count * ((without - without.mean(axis=0)) ** 2).sum(axis=0))
    freedom = max(1.0, num_queries**2 / (sizes**2).sum() - 1)
    mean, reach = values.mean(axis=0), stdtrit(freedom, (1 + confidence) / 2) * deviation
    lowest, highest = np.minimum(0, values.min(axis=0)), np.maximum(1, values.max(axis=0))
    low, high = np.maximum(mean - reach, lowest), np.minimum(mean + reach, highest)
    return [[float(one), float(other)] for one, other in zip(low, high, strict=True)]


def compare(
    a: Mapping[str, Any], b: Mapping[str, Any], *, permutations: int = PERMUTATIONS, seed: int = 0
) -> dict[str, dict[str, float]]:
    """Paired permutation test of two runs over the same queries in the same order.

    Args:
        a: What `compute(..., per_query=True)` gave for one run.
        b: The same for the other run.
        permutations: How many times the two runs' results are swapped at random, query by query.
        seed: Seed of the swaps.

    Returns:
        For each metric its `difference` (mean of a minus mean of b) and the two-sided `p_value`: the chance of
        a difference at least as large if the runs were interchangeable, never below 1 / (permutations + 1).

    Raises:
        ValueError: If the runs differ in protocol, cut-offs, queries or skipped queries.

    Example:
        >>> run = {"signature": "s", "per_query": {"map@1": [1.0, 0.0]}}
        >>> compare(run, run)
        {'map@1': {'difference': 0.0, 'p_value': 1.0}}
    """
    permutations, seed = (
        read_whole(permutations, "permutations"),
        read_whole(seed, "seed", least=0, most=MOST_SEED),
    )
    first, second = _paired(a, b)
    differences = first - second
    observed = differences.mean(axis=0)
    draw = np.random.default_rng(seed)
    block = max(1, VALUES_PER_BLOCK // len(differences))
    as_large = np.zeros(differences.shape[1])
    for done in range(0, permutations, block):
        signs = draw.integers(0, 2, size=(min(block, permutations - done), len(differences)), dtype=np.int8) * 2.0 - 1
        # The sums of equal numbers in another order may differ in the last bits: that is no smaller difference.
        as_large += (np.abs(signs @ differences) / len(differences) >= np.abs(observed) - 1e-12).sum(axis=0)
    p_values = (as_large + 1) / (permutations + 1)
    return {
        name: {"difference": float(difference), "p_value": float(p_value)}
        for name, difference, p_value in zip(a["per_query"], observed, p_values, strict=True)
    }


def _paired(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    for name, run in (("a", a), ("b", b)):
        if not isinstance(run, Mapping) or not {"per_query", "signature"} <= run.keys():
            raise ValueError(f"compare takes two results of compute(..., per_query=True); {name} is {quoted(run)}")
    signatures = [a["signature"], b["signature"]]
    if not all(isinstance(signature, str) for signature in signatures) or signatures[0] != signatures[1]:
        raise ValueError(f"the runs follow different protocols: {quoted(signatures[0])} and {quoted(signatures[1])}")
    first, second = _columns(a["per_query"], "a"), _columns(b["per_query"], "b")
    if list(a["per_query"]) != list(b["per_query"]):
        raise ValueError(
            f"the runs hold different metrics: {quoted(list(a['per_query']))} and {quoted(list(b['per_query']))}"
        )
    if len(first) != len(second):
        raise ValueError(f"the runs hold {len(first)} and {len(second)} queries; compare runs over the same queries")
    skipped = np.isnan(first).any(axis=1)
    if (skipped != np.isnan(second).any(axis=1)).any():
        raise ValueError("the runs skipped different queries; compare runs over the same queries")
    if skipped.all():
        raise ValueError("the runs skipped every query; compare at least one")
    return first[~skipped], second[~skipped]


def _columns(per_query: Any, run: str) -> np.ndarray:
    if not isinstance(per_query, Mapping) or not per_query:
        raise ValueError(f"per_query of {run} must hold results by metric name, not {quoted(per_query)}")
    columns: list[list[float | None]] = []
    for name, values in per_query.items():
        metric = f"{quoted(name)} of {run}"
        values = read_rows(values, metric, "one number per query")
        column = [read_number(value) for value in values]
        for row, value in enumerate(column):
            if value is None or abs(value) > LARGEST_RESULT:
                raise ValueError(f"{metric} holds {quoted(values[row])} for query {row}; give a number")
        if columns and len(column) != len(columns[0]):
            raise ValueError(f"{metric} holds {len(column)} results where others hold {len(columns[0])}")
        columns.append(column)
    return np.array(columns, dtype=np.float64).T
