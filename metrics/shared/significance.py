"""Confidence intervals of means over queries, and a paired test of two runs."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from .inputs import quoted, read_number, read_rows, read_whole

RESAMPLES = 2000
PERMUTATIONS = 10_000
LARGEST_RESULT = 1e6  # far above any metric, so that differences are exact enough
MOST_SEED = 2**64 - 1
VALUES_PER_BLOCK = 4_000_000


def bootstrap_interval(
    values: np.ndarray,
    confidence: float,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    groups: Sequence[Hashable] | None = None,
) -> tuple[list[float], list[float]]:
    """Percentile bootstrap interval of each column's mean, drawing whole queries, or groups of them.

    Args:
        values: Results per query `(num_queries, num_metrics)`.
        confidence: Level of the interval, in (0, 1).
        resamples: How many times the queries are drawn.
        seed: Seed of the draws.
        groups: The group of each query, such as its long video: queries of one video are alike, and drawn together.

    Returns:
        The lower and the upper bounds, one per column.

    Example:
        >>> bootstrap_interval(np.ones((5, 1)), 0.95)
        ([1.0], [1.0])
    >>> bootstrap_interval(np.array([[0.0], [1.0]]), 0.95, groups=["a", "a"])
    ([0.5], [0.5])
    """
    draw = np.random.default_rng(seed)
    sizes = np.ones(len(values))
    if groups is not None:
        places = {group: place for place, group in enumerate(dict.fromkeys(groups))}
        members = np.array([places[group] for group in groups])
        sums = np.zeros((len(places), values.shape[1]))
        np.add.at(sums, members, values)
        values, sizes = sums, np.bincount(members).astype(np.float64)
    count = len(values)
    means = np.empty((resamples, values.shape[1]))
    for resample in range(resamples):
        drawn = np.bincount(draw.integers(count, size=count), minlength=count)
        means[resample] = drawn @ values / (drawn @ sizes)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return low.tolist(), high.tolist()


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
