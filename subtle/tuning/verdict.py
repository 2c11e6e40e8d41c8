"""What tuning was worth on the held-out videos: each system's mAP, its interval, and the gain over the others."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from metrics.map_at_k.scoring import mean_average_precision
from subtle.run.intervals import interval_of_mean
from subtle.run.shared_config import Protocol

RANDOM_ORDERS = 100
CHANCE = "random order"
FEWEST_QUERIES, FEWEST_VIDEOS = 20, 5
"""With fewer than these no interval is given."""
DEALS = 1000
SIGNIFICANT = 0.01
"""The share of deals of the labels, at most, that reach a model which has learned something of them."""


def average_precisions(predictions: pl.DataFrame, cutoffs: Sequence[int], protocol: Protocol) -> np.ndarray:
    """Each query's average precision at every cut-off, `(queries, cut-offs)`."""
    ranked, targets = (predictions[name].to_list() for name in ("ranked_clip_ids", "target_clip_ids"))
    measured = mean_average_precision(ranked, targets, k=cutoffs, per_query=True, protocol=protocol)
    return np.column_stack(list(measured["per_query"].values()))


def of_random_order(predictions: pl.DataFrame, gallery_size: int, cutoffs: Sequence[int], seed: int) -> np.ndarray:
    """The average precision that each query would have by chance, `(queries, cut-offs)`; its own clip is not ranked."""
    draw = np.random.default_rng(seed)
    expected: dict[int, np.ndarray] = {}
    ranks = np.arange(1, gallery_size)
    for relevant in sorted(set(predictions["target_clip_ids"].list.len())):
        is_right = draw.permuted(np.tile(ranks <= relevant, (RANDOM_ORDERS * 10, 1)), axis=1)
        gains = is_right * np.cumsum(is_right, axis=1) / ranks
        expected[relevant] = np.array([gains[:, :k].sum(axis=1).mean() / min(relevant, k) for k in cutoffs])
    return np.array([expected[relevant] for relevant in predictions["target_clip_ids"].list.len()])


def compare_systems(
    folder: Path,
    systems: Sequence[str],
    videos: dict[str, str],
    *,
    gallery_size: int,
    cutoffs: Sequence[int],
    seed: int,
) -> dict[str, dict[str, Any]]:
    """Each system's mAP, and how much better the first one is, with intervals over the queries' videos.

    Args:
        folder: What `evaluate.py tfcovr --compare` wrote.
        systems: Their names, the tuned one first.
        videos: Clip id -> its video.
        gallery_size: Clips that were ranked.
        cutoffs: The k of mAP@k.
        seed: Of the random orders.

    Returns:
        System -> `map@k` and `gain@k` (of the first system over this one), in [0, 1], and their `_interval`s: None
        where there are too few queries or videos for one.
    """
    tables = {name: pl.read_parquet(folder / "predictions" / name.replace(" ", "-") / "0.parquet") for name in systems}
    first = tables[systems[0]]
    values = {name: average_precisions(table, cutoffs, "standard") for name, table in tables.items()}
    values[CHANCE] = of_random_order(first, gallery_size, cutoffs, seed)
    groups = [videos[clip] for clip in first["query_clip_id"]]
    is_enough = len(groups) >= FEWEST_QUERIES and len(set(groups)) >= FEWEST_VIDEOS
    tuned, found = values[systems[0]], {}
    for name, own in values.items():
        if len(own) != len(tuned):
            raise ValueError(f"{folder} holds rankings of other queries for {name!r}; delete it and run again")
        row: dict[str, Any] = {}
        for what, numbers in (("map", own), ("gain", tuned - own)):
            for column, k in enumerate(cutoffs):
                row[f"{what}@{k}"] = float(numbers[:, column].mean())
                row[f"{what}@{k}_interval"] = None
                if is_enough:
                    interval = interval_of_mean(numbers[None, :, column], groups, share=what == "map")
                    row[f"{what}@{k}_interval"] = [interval.low, interval.high]
        found[name] = row
    return found


def share_of_deals(predictions: pl.DataFrame, k: int, seed: int) -> float:
    """How often the same rankings reach the same mAP@k with the labels dealt out at random among the held-out clips.

    Queries that look for one label share their targets, so that even a model that has learned nothing may be far from
    the mean of chance; this counts how far.

    Args:
        predictions: `query_clip_id`, `target_clip_ids`, `ranked_clip_ids`, one row for each query.
        k: The cut-off.
        seed: Of the deals.

    Returns:
        A share in (0, 1], of the deals and the labels as they are.
    """
    ranked, targets = (predictions[name].to_list() for name in ("ranked_clip_ids", "target_clip_ids"))
    own = predictions["query_clip_id"].to_list()
    place = {clip: number for number, clip in enumerate(sorted({*own}.union(*ranked, *targets)))}
    kinds = {kind: row for row, kind in enumerate(dict.fromkeys(map(frozenset, targets)))}
    is_target = np.zeros((len(kinds), len(place) + 1), dtype=bool)  # the last one stands for no clip
    for kind, row in kinds.items():
        is_target[row, [place[clip] for clip in kind]] = True
    of_query = np.array([kinds[frozenset(one)] for one in targets])
    first = np.array([([place[clip] for clip in one[:k]] + [len(place)] * k)[:k] for one in ranked])
    own_place, ranks = np.array([place[clip] for clip in own]), np.arange(1, k + 1)

    best = np.clip(is_target.sum(axis=1), 1, k)[of_query]

    def measure(dealt: np.ndarray) -> float:
        is_right = is_target[of_query[:, None], dealt[first]]
        values = (is_right * np.cumsum(is_right, axis=1) / ranks).sum(axis=1) / best
        is_query = ~is_target[of_query, dealt[own_place]]  # one that was dealt the label it looks for is none
        return float(values[is_query].mean()) if is_query.any() else 0.0

    draw, last = np.random.default_rng(seed), [len(place)]
    reached = measure(np.arange(len(place) + 1)) - 1e-9  # equal sums may differ in their last bit
    return (1 + sum(measure(np.append(draw.permutation(len(place)), last)) >= reached for _ in range(DEALS))) / (
        1 + DEALS
    )


def verdict(found: dict[str, dict[str, Any]], share: float, k: int, num_queries: int, num_videos: int) -> list[str]:
    """Whether the labels show a signal, and whether the tuned model, the first one, is better than the best other row.

    Args:
        found: What `compare_systems` gave.
        share: What `share_of_deals` gave for the tuned model.
        k: The cut-off.
        num_queries: On which all were measured.
        num_videos: From which these are.
    """
    tuned, *others = (name for name in found if name != CHANCE)
    reached, chance = (100 * found[name][f"map@{k}"] for name in (tuned, CHANCE))
    told = (
        f"The tuned model reaches {reached:.1f} mAP@{k}, chance is {chance:.1f}; with the labels dealt out at random "
        f"among the held-out clips it would reach as much in {100 * share:.1f} % of all deals"
    )
    if share > SIGNIFICANT:
        told += (
            ": no signal. What these labels say cannot be seen in the clips, or too few clips are held out to tell; "
            "nothing below is a gain"
        )
    best = max(others, key=lambda name: found[name][f"map@{k}"])
    return [f"{told}.", sentence(found, best, share, k, num_queries, num_videos)]


def sentence(
    found: dict[str, dict[str, Any]], other: str, share: float, k: int, num_queries: int, num_videos: int
) -> str:
    """How much better the tuned model is than the best other row, and how sure that is."""
    row = found[other]
    gain, interval = row[f"gain@{k}"], row[f"gain@{k}_interval"]
    points = (
        f"{100 * abs(gain):.1f} points of mAP@{k} {'above' if gain >= 0 else 'below'} the best other row, {other!r}"
    )
    over = f"{num_queries:,} queries of {num_videos} held-out video{'s' * (num_videos != 1)}"
    if interval is None:
        return (
            f"It is {points}, over {over}: too few for an interval, which needs {FEWEST_QUERIES} queries of "
            f"{FEWEST_VIDEOS} videos; label more videos, or hold out more with --test_fraction."
        )
    low, high = (100 * bound for bound in interval)
    is_better = low > 0 and share <= SIGNIFICANT
    sure = "better" if is_better else "worse" if high < 0 else "not clearly better or worse"
    return f"It is {points} (95 % interval over videos {low:.1f} to {high:.1f}), {over}: {sure}."
