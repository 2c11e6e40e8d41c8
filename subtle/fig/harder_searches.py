"""What a threshold does with queries that have no moment."""

from typing import Any

import numpy as np

from hf_models.moments.dataset import MomentSplit
from hf_models.moments.modeling_moments import MomentRetrievalModel
from hf_models.moments.ranking import EncodedSplit, encode_split, rank_encoded
from hf_models.moments.spans import MomentRanking
from subtle.fig.measure import MomentRetrievalMeasure, columns
from subtle.run.printing import show


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
) -> MomentRanking:
    """Moments in the corpus, of the chosen queries in the corpus without their own video."""
    rankings = rank_encoded(model, split, encoded, without=without)
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
        config: of `evaluate.py vcmr`.
        split: to measure on.
        calibration: the split that chooses.
        encoded: `split`, encoded.
        measure: the metric.
    """
    chosen = without_moment(calibration, config.without_moment, config.seed)
    taken_out = without_moment(split, config.without_moment, config.seed)
    for name, queries in ((config.calibration_split, chosen), (config.split, taken_out)):
        if not queries.any() or queries.all():
            raise SystemExit(f"--without_moment {config.without_moment} leaves {name!r} queries of one kind only")
    of_calibration = encode_split(model, calibration, batch_size=config.batch_size)
    found = found_without(model, calibration, of_calibration, chosen)
    threshold = best_threshold(found.scores[:, 0], chosen)
    found = found_without(model, split, encoded, taken_out)
    return measure_threshold(found, split, taken_out, threshold, measure)


def show_figures(title: str, figures: dict[str, dict[str, float]]) -> None:
    names = [name for name in next(iter(figures.values())) if not name.endswith("_std")]
    cells = [[name, *(f"{values[name]:.4g}" for values in figures.values())] for name in names]
    show(["", *figures], cells, title.replace("_", " "))
