"""R@K of moment retrieval at IoU thresholds: the tasks, their checks, and the signature that states the protocol."""

from collections.abc import Callable, Sequence, Sized
from typing import Any, Literal, cast, get_args

import numpy as np

from .id_lists import to_codes
from .inputs import check_choice, quoted, read_cuts, read_number, read_rows, read_whole
from .matching import ANNOTATORS_FOR_VOTE, Matches, first_ranks, match
from .moments import Moments, RankedSpans, read_moments, read_ranked_spans

VERSION = "1.0.0"
NO_VIDEO = -1  # fills the end of short rankings

Task = Literal["vcmr", "svmr", "vr"]
WhenMissing = Literal["error", "miss"]
Extra = Literal["miou", "mrr", "median_rank"]


def moment_retrieval_recall(
    predictions: Any,
    references: Any,
    *,
    task: Task = "vcmr",
    k: int | Sequence[int] = (1, 5, 10, 100),
    iou: float | Sequence[float] = (0.5, 0.7),
    extra: Sequence[Extra] = (),
    types: Sequence[str] | None = None,
    missing: WhenMissing = "error",
    max_predictions: int = 100,
) -> dict[str, Any]:
    """Share of queries whose moment is found among the first K predictions.

    A prediction is right when its video is, and its IoU reaches the threshold (inclusive, in float32) with one
    annotated span, or with two where four or more annotators gave one: the semantics of the TVR evaluator.

    Args:
        predictions: One record per query of parallel lists `video_id`, `start`, `end` (seconds), best first; or
            one record of `(num_queries, num_ranks)` arrays.
        references: One record per query with `video_id` and `spans`, a list of [start, end] in seconds.
        task: `vcmr`: video and moment; `svmr`: the moment, predictions of other videos being skipped (after
            the cut); `vr`: the video, where a video predicted twice takes two ranks.
        k: Ranks, at most `max_predictions`.
        iou: Thresholds in (0, 1].
        extra: `miou` (mean IoU of the first prediction, not for vr), `mrr` (mean reciprocal rank of the first
            right one) and `median_rank` (infinite when most queries miss).
        types: One type per query; every metric is then also given per type, as `<metric>/<type>`.
        missing: What to do with a query without prediction (None): refuse, or count it as a miss and in
            `missing_queries`. An empty record is an answer, and a miss.
        max_predictions: How many predictions per query count.

    Returns:
        `<task>_recall@K_iou@T` (`vr_recall@K` for vr) as fractions in [0, 1], `signature`, and the optional results.

    Raises:
        ValueError: Naming the query and the cure, for malformed records, reversed spans, ids of mixed kinds,
            differing lengths, a missing query, or an option out of range.

    Example:
        >>> result = moment_retrieval_recall(
        ...     [{"video_id": ["a", "b"], "start": [0.0, 2.0], "end": [4.0, 6.0]}],
        ...     [{"video_id": "b", "spans": [[2.0, 7.0]]}], k=[1, 5], iou=0.7)
        >>> result["vcmr_recall@1_iou@0.7"], result["vcmr_recall@5_iou@0.7"]
        (0.0, 1.0)
    """
    max_predictions = read_whole(max_predictions, "max_predictions")
    cuts, thresholds = _checked_cuts(k, max_predictions), _checked_thresholds(iou)
    extras = _checked_extra(extra, task, missing)
    spans, moments = read_ranked_spans(predictions), read_moments(references)
    check_lengths(spans, moments)
    _check_missing(spans.missing, missing)
    matches = _match(spans, moments, max_predictions)
    metrics = _query_metrics(matches, len(moments), task, cuts, thresholds, extras)
    result: dict[str, Any] = {name: float(reduce(values)) for name, (values, reduce) in metrics.items()}
    if types is not None:
        result |= _by_type(metrics, types, len(moments))
    if missing == "miss":
        result["missing_queries"] = int(spans.missing.sum())
    result["signature"] = (
        f"vcmr_recall|task:{task}|cut:{max_predictions}|iou:inclusive,float32|"
        f"annotators:2-of-{ANNOTATORS_FOR_VOTE}-or-more,else-any|ties:as-ranked|missing:{missing}|version:{VERSION}"
    )
    return result


def check_lengths(predictions: Sized, references: Sized) -> None:
    """Refuse predictions and references of different or no length.

    Raises:
        ValueError: With both lengths.
    """
    if len(predictions) != len(references):
        raise ValueError(f"{len(predictions)} predictions but {len(references)} references; give one of each per query")
    if not len(predictions):
        raise ValueError("there is no query; give at least one prediction and one reference")


QueryMetrics = dict[str, tuple[np.ndarray, Callable[[np.ndarray], Any]]]  # values per query, and their average


def _query_metrics(
    matches: Matches,
    num_queries: int,
    task: Task,
    cuts: list[int],
    thresholds: list[float],
    extra: Sequence[Extra],
) -> QueryMetrics:
    """Values per query of every metric, and the function that averages them."""
    rank = matches.rank_in_video if task == "svmr" else matches.rank
    rights = (
        {"": np.ones(len(rank), dtype=bool)}
        if task == "vr"
        else {f"_iou@{threshold:g}": matches.iou >= np.float32(threshold) for threshold in thresholds}
    )
    metrics: QueryMetrics = {}
    for suffix, right in rights.items():
        first = first_ranks(matches.query[right], rank[right], num_queries)
        for cut in cuts:
            metrics[f"{task}_recall@{cut}{suffix}"] = (first <= cut, np.mean)
        if "mrr" in extra:
            metrics[f"{task}_mrr{suffix}"] = (1 / first, np.mean)
        if "median_rank" in extra:
            metrics[f"{task}_median_rank{suffix}"] = (first, np.median)
    if "miou" in extra:
        of_first = np.zeros(num_queries)
        of_first[matches.query[rank == 1]] = matches.iou[rank == 1]
        metrics[f"{task}_miou@1"] = (of_first, np.mean)
    return metrics


def _by_type(metrics: QueryMetrics, types: Sequence[str], num_queries: int) -> dict[str, float]:
    types = read_rows(types, "types", "one name per query")
    if len(types) != num_queries or not all(isinstance(name, str) and name for name in types):
        raise ValueError(f"types must hold one name for each of the {num_queries} queries, not {quoted(types)}")
    places = {name: place for place, name in enumerate(dict.fromkeys(types))}
    of_query = np.array([places[name] for name in types])
    return {
        f"{metric}/{name}": float(reduce(values[of_query == place]))
        for name, place in places.items()
        for metric, (values, reduce) in metrics.items()
    }


def _match(spans: RankedSpans, moments: Moments, max_predictions: int) -> Matches:
    videos, true_videos = to_codes(predictions=spans.video_ids, references=moments.video_ids)
    lengths = spans.video_ids.lengths
    ranked, start, end = (_as_matrix(column, lengths, max_predictions) for column in (videos, spans.start, spans.end))
    return match(ranked, start, end, true_videos, moments.spans, moments.num_spans)


def _as_matrix(values: np.ndarray, lengths: np.ndarray, max_predictions: int) -> np.ndarray:
    longest = lengths.max(initial=0)
    if lengths.min(initial=longest) == longest:
        return np.ascontiguousarray(values.reshape(len(lengths), longest)[:, :max_predictions])
    matrix = np.full((len(lengths), longest), NO_VIDEO, dtype=values.dtype)
    matrix[np.arange(longest) < lengths[:, None]] = values
    return np.ascontiguousarray(matrix[:, :max_predictions])


def _check_missing(is_missing: np.ndarray, missing: WhenMissing) -> None:
    if missing == "error" and is_missing.any():
        raise ValueError(
            f"{is_missing.sum()} of {len(is_missing)} queries have no prediction, the first is query "
            f'{is_missing.argmax()}; missing="miss" counts them as misses'
        )


def _checked_cuts(k: int | Sequence[int], max_predictions: int) -> list[int]:
    cuts = read_cuts(k)
    if max(cuts) > max_predictions:
        raise ValueError(f"k={max(cuts)} lies beyond the cut of {max_predictions} predictions; raise max_predictions")
    return cuts


def _checked_thresholds(iou: float | Sequence[float]) -> list[float]:
    given = [iou] if read_number(iou) is not None else read_rows(iou, "iou", "thresholds in (0, 1]")
    thresholds = [read_number(threshold) for threshold in given]
    if not thresholds or not all(threshold is not None and 0 < threshold <= 1 for threshold in thresholds):
        raise ValueError(f"iou must be one or more thresholds in (0, 1], not {quoted(iou)}")
    if len({f"{threshold:g}" for threshold in thresholds}) < len(set(thresholds)):
        raise ValueError(f"iou must be thresholds that differ in their first six digits, not {quoted(iou)}")
    return cast("list[float]", thresholds)


def _checked_extra(extra: Sequence[str], task: str, missing: str) -> list[Extra]:
    check_choice(task, get_args(Task), "task")
    check_choice(missing, get_args(WhenMissing), "missing")
    names = read_rows(extra, "extra", f"names out of {get_args(Extra)}")
    if not all(isinstance(name, str) and name in get_args(Extra) for name in names):
        raise ValueError(f"extra must be a list out of {get_args(Extra)}, not {quoted(names)}")
    if task == "vr" and "miou" in names:
        raise ValueError("vr ranks videos, which have no IoU; ask for miou with task='vcmr' or 'svmr'")
    return names
