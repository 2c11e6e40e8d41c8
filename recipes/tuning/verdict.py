"""What tuning was worth on the held-out videos: each system's mAP, its interval, and the gain over the others."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from harness.intervals import interval_of_mean
from harness.shared_config import Protocol
from metrics.map_at_k.scoring import mean_average_precision

RANDOM_ORDERS = 100
CHANCE = "random order"
FEW_VIDEOS = 5


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


def compare(
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
        folder: What `evaluate_tfcovr.py --compare` wrote.
        systems: Their names, the tuned one first.
        videos: Clip id -> its video.
        gallery_size: Clips that were ranked.
        cutoffs: The k of mAP@k.
        seed: Of the random orders.

    Returns:
        System -> `map@k` and `gain@k` (of the first system over this one), in [0, 1], and their `_interval`s: None
        where all queries are of one video.
    """
    tables = {name: pl.read_parquet(folder / "predictions" / name.replace(" ", "-") / "0.parquet") for name in systems}
    first = tables[systems[0]]
    values = {name: average_precisions(table, cutoffs, "standard") for name, table in tables.items()}
    values[CHANCE] = of_random_order(first, gallery_size, cutoffs, seed)
    groups = [videos[clip] for clip in first["query_clip_id"]]
    tuned, found = values[systems[0]], {}
    for name, own in values.items():
        if len(own) != len(tuned):
            raise ValueError(f"{folder} holds rankings of other queries for {name!r}; delete it and run again")
        row: dict[str, Any] = {}
        for what, numbers in (("map", own), ("gain", tuned - own)):
            for column, k in enumerate(cutoffs):
                interval = interval_of_mean(numbers[None, :, column], groups, share=what == "map")
                row[f"{what}@{k}"] = interval.mean
                row[f"{what}@{k}_interval"] = None if interval.low is None else [interval.low, interval.high]
        found[name] = row
    return found


def sentence(found: dict[str, dict[str, Any]], other: str, k: int, num_queries: int, num_videos: int) -> str:
    """Whether the tuned model is better than another system, and how sure that is."""
    row = found[other]
    gain, interval = row[f"gain@{k}"], row[f"gain@{k}_interval"]
    points = f"{100 * abs(gain):.1f} points of mAP@{k} {'above' if gain >= 0 else 'below'} {other!r}"
    over = f"{num_queries:,} queries of {num_videos} held-out video{'s' * (num_videos != 1)}"
    if interval is None:
        return f"The tuned model is {points}, over {over}: of one video nothing can be said about others."
    low, high = (100 * bound for bound in interval)
    sure = "better" if low > 0 else "worse" if high < 0 else "not clearly better or worse"
    if num_videos < FEW_VIDEOS:
        sure = f"{num_videos} videos are too few for a narrow interval to mean much; hold out more with --test_fraction"
    return f"The tuned model is {points} (95 % interval over videos {low:.1f} to {high:.1f}), {over}: {sure}."
