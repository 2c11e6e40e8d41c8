"""What searches cost and miss that look at a shortlist, and what a threshold does with queries that have no moment."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from hf_models.moments.dataset import MomentSplit
from hf_models.moments.modeling_moments import MomentRetrievalModel
from hf_models.moments.ranking import EncodedSplit, Rankings, Shortlist, encode_split, rank_encoded, search_in
from hf_models.moments.spans import MomentRanking
from subtle.fig.measure import MomentRetrievalMeasure, columns
from subtle.run.printing import show

CUTS = (1, 10, 100)


def kept_of_exhaustive(found: Rankings, exhaustive: Rankings) -> dict[str, float]:
    """Shares of the K best moments and videos of an exhaustive search that are among the K best found."""
    shares = {}
    for cut in CUTS:
        for name, one, other in (
            ("moments", spans_of(found.vcmr, cut), spans_of(exhaustive.vcmr, cut)),
            ("videos", of_rows(found.videos, cut), of_rows(exhaustive.videos, cut)),
        ):
            pairs = [(mine & theirs, theirs) for mine, theirs in zip(one, other, strict=True) if theirs]
            shares[f"{name}_kept@{cut}"] = float(np.mean([len(both) / len(theirs) for both, theirs in pairs]))
    return shares


def spans_of(ranking: MomentRanking, cut: int) -> list[set[Any]]:
    """The best moments of each query."""
    fields = (ranking.video_indices, ranking.start_seconds, ranking.end_seconds)
    rows = zip(*(field[:, :cut].tolist() for field in fields), strict=True)
    return [{span for span in zip(*row, strict=True) if span[0] >= 0} for row in rows]


def of_rows(videos: np.ndarray, cut: int) -> list[set[Any]]:
    """The best videos of each query."""
    return [set(row) for row in videos[:, :cut].tolist()]


def measure_shortlist(
    model: MomentRetrievalModel,
    split: MomentSplit,
    encoded: EncodedSplit,
    shortlist: Shortlist,
    measure: MomentRetrievalMeasure,
    *,
    memory_megabytes: float,
) -> dict[str, float]:
    """Recall of the shortlist's moments, what it keeps of the exhaustive search's, and the seconds of both."""
    found, seconds = [], []
    for chosen in (None, shortlist):
        options: dict[str, Any] = {"memory_megabytes": memory_megabytes, "shortlist": chosen}
        search = search_in(model, split, encoded.corpus, **options)
        search.rank(encoded.queries[:1])
        start = time.perf_counter()
        search.rank(encoded.queries)
        seconds.append((time.perf_counter() - start) / len(split))
        found.append(rank_encoded(model, split, encoded, **options))
    exhaustive, short = found
    kept = short.suppressed(split.preset.nms_threshold)
    metrics = {name: value for name, value in measure(kept, split).items() if not name.startswith("svmr")}
    times = {"seconds_per_query": seconds[1], "exhaustive_seconds_per_query": seconds[0]}
    return metrics | kept_of_exhaustive(short, exhaustive) | times


def without_moment(split: MomentSplit, share: float, seed: int) -> np.ndarray:
    """`(Q,)` bool: the queries whose own video is taken out, that share of them, drawn by the seed."""
    number = round(share * len(split))
    chosen = np.random.default_rng(seed).permutation(len(split))[:number]
    return np.isin(np.arange(len(split)), chosen)


def best_threshold(scores: np.ndarray, without: np.ndarray) -> float:
    """The score that tells queries without a moment from the others best: the largest mean of the two shares.

    Args:
        scores: `(Q,)`, of the first answer of each query; -inf where there is none.
        without: `(Q,)` bool, the queries without a moment; some and not all.

    Example:
        >>> best_threshold(np.array([0.1, 0.2, 0.6, 0.9]), np.array([True, True, False, False]))
        0.6
    """
    candidates = np.unique(scores[np.isfinite(scores)])
    answered = (scores[~without, None] >= candidates).mean(0)
    rejected = (scores[without, None] < candidates).mean(0)
    return float(candidates[(answered + rejected).argmax()])


def found_without(
    model: MomentRetrievalModel,
    split: MomentSplit,
    encoded: EncodedSplit,
    without: np.ndarray,
    *,
    memory_megabytes: float,
) -> MomentRanking:
    """Moments in the corpus, of the chosen queries in the corpus without their own video."""
    rankings = rank_encoded(model, split, encoded, memory_megabytes=memory_megabytes, without=without)
    return rankings.suppressed(split.preset.nms_threshold).vcmr


def measure_threshold(
    found: MomentRanking, split: MomentSplit, without: np.ndarray, threshold: float, measure: MomentRetrievalMeasure
) -> dict[str, float]:
    """What the metric says of answers that reach a threshold, where some queries have no moment."""
    spans = split.rows.select("start_seconds", "end_seconds").rows()
    references: list[dict[str, Any]] = [
        {"video_id": None, "spans": []} if none else {"video_id": int(video), "spans": [list(span)]}
        for none, video, span in zip(without.tolist(), split.targets, spans, strict=True)
    ]
    answers = columns(found) | {"score": found.scores[:, : columns(found)["start"].shape[1]].astype(float)}
    measured = measure.metric.compute(predictions=answers, references=references, threshold=threshold)
    return {name: value for name, value in measured.items() if name != "signature"} | {"threshold": threshold}


def measure_without_moment(
    model: MomentRetrievalModel,
    config: Any,
    split: MomentSplit,
    calibration: MomentSplit,
    encoded: EncodedSplit,
    measure: MomentRetrievalMeasure,
) -> dict[str, float]:
    """Choose the threshold on one split and measure it on another, with queries whose video is taken out.

    Args:
        model: of moments.
        config: of `evaluate_vcmr.py`.
        split: to measure on.
        calibration: the split that chooses.
        encoded: `split`, encoded.
        measure: the metric.
    """
    memory = config.memory_megabytes
    chosen = without_moment(calibration, config.without_moment, config.seed)
    taken_out = without_moment(split, config.without_moment, config.seed)
    for name, queries in ((config.calibration_split, chosen), (config.split, taken_out)):
        if not queries.any() or queries.all():
            raise SystemExit(f"--without_moment {config.without_moment} leaves {name!r} queries of one kind only")
    # In memory: --corpus_dir holds the corpus of the other split.
    of_calibration = encode_split(model, calibration, batch_size=config.batch_size)
    found = found_without(model, calibration, of_calibration, chosen, memory_megabytes=memory)
    threshold = best_threshold(found.scores[:, 0], chosen)
    found = found_without(model, split, encoded, taken_out, memory_megabytes=memory)
    return measure_threshold(found, split, taken_out, threshold, measure)


def shortlist_of(config: Any, output_dir: Path) -> Shortlist | None:
    """The shortlist that a configuration asks for."""
    if config.shortlist_videos is None:
        return None
    return Shortlist(config.shortlist_videos, output_dir / "segments", config.segment_clips, config.probes)


def show_figures(title: str, figures: dict[str, dict[str, float]]) -> None:
    """Print the rest of what was measured."""
    names = [name for name in next(iter(figures.values())) if not name.endswith("_std")]
    cells = [[name, *(f"{values[name]:.4g}" for values in figures.values())] for name in names]
    show(["", *figures], cells, title.replace("_", " "))
