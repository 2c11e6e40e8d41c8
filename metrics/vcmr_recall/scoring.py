"""R@K of moment retrieval at IoU thresholds: the tasks, their checks, and the signature that states the protocol."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np

from .id_lists import as_matrix, to_codes
from .inputs import check_choice, check_flag, check_lengths, quoted, read_cuts, read_number, read_rows, read_whole
from .matching import ANNOTATORS_FOR_VOTE, Matches, first_ranks, match
from .moments import Moments, RankedSpans, read_moments, read_ranked_spans

VERSION = "1.0.0"
NO_VIDEO = -1  # fills the end of short rankings
NO_MOMENT = -2  # the video of a query without a moment

Task = Literal["vcmr", "svmr", "vr"]
WhenMissing = Literal["error", "miss"]
Extra = Literal["miou", "mrr", "median_rank"]
Found = Literal["one", "any", "all"]


def moment_retrieval_recall(  # noqa: PLR0913 (its options)
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
    moments: Found = "one",
    threshold: float | None = None,
    per_query: bool = False,
) -> dict[str, Any]:
    """Share of queries whose moment is found among the first K predictions.

    A prediction is right when its video is, and its IoU reaches the threshold (inclusive, in float32) with one
    annotated span, or with two where four or more annotators gave one: the semantics of the TVR evaluator.

    Recall is the share of the queries that have a moment. Queries without one give `<task>_true_rejection`: the share
    of them that get no answer. With them or with a threshold there is also `<task>_answered`, the share of the queries
    with a moment that get an answer, right or wrong, and the number `queries_without_moment`.

    Args:
        predictions: One record per query of parallel lists `video_id`, `start`, `end` (seconds), best first, and with
            a threshold `score`; or one record of `(num_queries, num_ranks)` arrays.
        references: One record per query with `video_id` and `spans`, a list of [start, end] in seconds; None and []
            for a query without a moment.
        task: `vcmr`: video and moment; `svmr`: the moment, predictions of other videos being skipped (after
            the cut); `vr`: the video, where a video predicted twice takes two ranks.
        k: Ranks, at most `max_predictions`.
        iou: Thresholds in (0, 1].
        extra: `miou` (mean IoU of the first prediction, not for vr), `mrr` (mean reciprocal rank of the first
            right one) and `median_rank` (infinite when most queries miss).
        types: One type per query; every metric is then also given per type, as `<metric>/<type>`.
        missing: What to do with a query without prediction (None): refuse, or count it as a miss and in
            `missing_queries`. An empty record is an answer, and a miss; of a query without a moment the empty record
            is right, and None is not.
        max_predictions: How many predictions per query count.
        moments: What the spans of a query are. `one`: several annotators' marks of one moment. `any`, `all`: moments
            of their own, and a query is found at K when one of them, or each, is right among the first K predictions;
            `video_id` may then be a list with one id for each span. One prediction may find several moments.
        threshold: Predictions with a lower score count as none; a query left with none is told that it has no moment.
        per_query: Also give `per_query`, the results of every query in order, of the metrics that are means; NaN where
            a metric leaves a query out.

    Returns:
        `<task>_recall@K_iou@T` (`vr_recall@K` for vr) as fractions in [0, 1], `signature`, and the optional results.

    Raises:
        ValueError: Naming the query and the cure, for malformed records, reversed spans, ids of mixed kinds,
            differing lengths, a missing query, an option out of range, a threshold without scores or with scores that
            are not best first, and where no query has a moment.

    Example:
        >>> result = moment_retrieval_recall(
        ...     [{"video_id": ["a", "b"], "start": [0.0, 2.0], "end": [4.0, 6.0]}],
        ...     [{"video_id": "b", "spans": [[2.0, 7.0]]}], k=[1, 5], iou=0.7)
        >>> result["vcmr_recall@1_iou@0.7"], result["vcmr_recall@5_iou@0.7"]
        (0.0, 1.0)
    """
    check_flag(per_query, "per_query")
    max_predictions = read_whole(max_predictions, "max_predictions")
    cuts, thresholds = _checked_cuts(k, max_predictions), _checked_thresholds(iou)
    extras = _checked_extra(extra, task, missing, moments)
    spans, true = read_ranked_spans(predictions), read_moments(references)
    check_lengths(spans, true)
    _check_missing(spans.missing, missing)
    kept = _kept(spans, threshold)
    matches, owner = _match(spans, true, max_predictions, kept, moments)
    found = MomentsFound(matches, owner, len(true), moments)
    has_moment = true.num_spans > 0
    metrics = _query_metrics(found, task, cuts, thresholds, extras, has_moment)
    if threshold is not None or not has_moment.all():
        metrics |= _answer_metrics(spans, kept, has_moment, task)
    result: dict[str, Any] = {name: float(reduce(values[of])) for name, (values, reduce, of) in metrics.items()}
    if types is not None:
        result |= _by_type(metrics, types, len(true))
    if per_query:
        result["per_query"] = _per_query(metrics)
    if missing == "miss":
        result["missing_queries"] = int(spans.missing.sum())
    if threshold is not None or not has_moment.all():
        result["queries_without_moment"] = int((~has_moment).sum())
    result["signature"] = (
        f"vcmr_recall|task:{task}|cut:{max_predictions}|iou:inclusive,float32|"
        + (f"annotators:2-of-{ANNOTATORS_FOR_VOTE}-or-more,else-any|" if moments == "one" else f"moments:{moments}|")
        + (f"threshold:{float(threshold):g}|" if threshold is not None else "")
        + f"ties:as-ranked|missing:{missing}|version:{VERSION}"
    )
    return result


QueryMetrics = dict[str, tuple[np.ndarray, Callable[[np.ndarray], Any], np.ndarray]]
"""Values per query, what averages them, and of which queries."""


@dataclass(frozen=True)
class MomentsFound:
    """Which predictions are right, of the moments that `match` compared them with.

    Attributes:
        matches: of moments.
        owner: `(num_moments,)`, the query of each.
        num_queries: how many there are.
        moments: how many of its moments a query needs.
    """

    matches: Matches
    owner: np.ndarray
    num_queries: int
    moments: Found

    def first_ranks(self, right: np.ndarray, rank: np.ndarray) -> np.ndarray:
        """The rank by which a query has found what it needs, `(num_queries,)`, infinite where it has not."""
        of_moment = first_ranks(self.matches.query[right], rank[right], len(self.owner))
        if self.moments == "one":
            return of_moment
        has_moment = np.bincount(self.owner, minlength=self.num_queries) > 0
        first = np.where(has_moment & (self.moments == "all"), -np.inf, np.inf)
        (np.maximum if self.moments == "all" else np.minimum).at(first, self.owner, of_moment)
        return first

    def iou_of_first(self, rank: np.ndarray) -> np.ndarray:
        """The IoU of each query's first prediction, `(num_queries,)`."""
        iou = np.zeros(self.num_queries)
        np.maximum.at(iou, self.owner[self.matches.query[rank == 1]], self.matches.iou[rank == 1])
        return iou


def _query_metrics(
    found: MomentsFound,
    task: Task,
    cuts: list[int],
    thresholds: list[float],
    extra: Sequence[Extra],
    has_moment: np.ndarray,
) -> QueryMetrics:
    matches = found.matches
    rank = matches.rank_in_video if task == "svmr" else matches.rank
    rights = (
        {"": np.ones(len(rank), dtype=bool)}
        if task == "vr"
        else {f"_iou@{threshold:g}": matches.iou >= np.float32(threshold) for threshold in thresholds}
    )
    metrics: QueryMetrics = {}
    for suffix, right in rights.items():
        first = found.first_ranks(right, rank)
        for cut in cuts:
            metrics[f"{task}_recall@{cut}{suffix}"] = (first <= cut, np.mean, has_moment)
        if "mrr" in extra:
            metrics[f"{task}_mrr{suffix}"] = (1 / first, np.mean, has_moment)
        if "median_rank" in extra:
            metrics[f"{task}_median_rank{suffix}"] = (first, np.median, has_moment)
    if "miou" in extra:
        metrics[f"{task}_miou@1"] = (found.iou_of_first(rank), np.mean, has_moment)
    return metrics


def _answer_metrics(spans: RankedSpans, kept: np.ndarray, has_moment: np.ndarray, task: Task) -> QueryMetrics:
    """Whether queries with a moment get an answer, and whether the others are told that there is none."""
    lengths = spans.video_ids.lengths
    query = np.repeat(np.arange(len(lengths)), lengths)
    answered = np.bincount(query[kept], minlength=len(lengths)) > 0
    metrics: QueryMetrics = {f"{task}_answered": (answered, np.mean, has_moment)}
    if not has_moment.all():
        metrics[f"{task}_true_rejection"] = (~answered & ~spans.missing, np.mean, ~has_moment)
    return metrics


def _by_type(metrics: QueryMetrics, types: Sequence[str], num_queries: int) -> dict[str, float]:
    types = read_rows(types, "types", "one name per query")
    if len(types) != num_queries or not all(isinstance(name, str) and name for name in types):
        raise ValueError(f"types must hold one name for each of the {num_queries} queries, not {quoted(types)}")
    places = {name: place for place, name in enumerate(dict.fromkeys(types))}
    of_query = np.array([places[name] for name in types])
    return {
        f"{metric}/{name}": float(reduce(values[chosen]))
        for name, place in places.items()
        for metric, (values, reduce, of) in metrics.items()
        if (chosen := of & (of_query == place)).any()
    }


def _per_query(metrics: QueryMetrics) -> dict[str, list[float]]:
    return {
        name: np.where(of, values, np.nan).tolist()
        for name, (values, reduce, of) in metrics.items()
        if reduce is np.mean
    }


def _kept(spans: RankedSpans, threshold: float | None) -> np.ndarray:
    """Which predictions count, of all queries end to end.

    Raises:
        ValueError: The threshold is not a number, or scores are missing or not best first.
    """
    if threshold is None:
        return np.ones(len(spans.start), dtype=bool)
    least = read_number(threshold)
    if least is None or not np.isfinite(least):
        raise ValueError(f"threshold must be a finite number or None, not {quoted(threshold)}")
    if spans.scores is None:
        raise ValueError("a threshold needs the 'score' of every prediction, beside video_id, start and end")
    lengths = spans.video_ids.lengths
    query = np.repeat(np.arange(len(lengths)), lengths)
    rises = np.flatnonzero((spans.scores[1:] > spans.scores[:-1]) & (query[1:] == query[:-1]))
    if len(rises):
        raise ValueError(
            f"the scores of predictions[{query[rises[0]]}] are not best first; sort its predictions by them"
        )
    return spans.scores >= least


def _match(
    spans: RankedSpans, moments: Moments, max_predictions: int, kept: np.ndarray, needed: Found
) -> tuple[Matches, np.ndarray]:
    """Matches of what is compared, and the query of each: queries, or with `any` and `all` their moments.

    Raises:
        ValueError: No query has a moment, or one has several and `needed` is "one".
    """
    codes, true_codes = to_codes(predictions=spans.video_ids, references=moments.video_ids)
    lengths, num_queries = spans.video_ids.lengths, len(moments)
    codes = np.where(kept, codes, NO_VIDEO)
    ranked, start, end = (
        np.ascontiguousarray(as_matrix(column, lengths, NO_VIDEO)[:, :max_predictions])
        for column in (codes, spans.start, spans.end)
    )
    num_ids, num_spans = moments.video_ids.lengths, moments.num_spans
    if not num_spans.any():
        raise ValueError("no query has a moment, so there is nothing to recall; give at least one that has")
    if needed == "one":
        if moments.ids_are_listed:
            raise ValueError(
                "a reference lists an id for each span, so its spans are several moments; moments='any' or 'all' says "
                "how many of them are to be found"
            )
        true_videos = np.full(num_queries, NO_MOMENT, dtype=codes.dtype)
        true_videos[num_ids > 0] = true_codes
        return match(ranked, start, end, true_videos, moments.spans, num_spans), np.arange(num_queries)
    owner = np.repeat(np.arange(num_queries), num_spans)
    of_span = np.repeat(true_codes, np.repeat(np.where(num_ids == 1, num_spans, 1), num_ids))
    one_each = np.ones(len(owner), dtype=np.int64)
    return match(ranked[owner], start[owner], end[owner], of_span, moments.spans, one_each), owner


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


def _checked_extra(extra: Sequence[str], task: str, missing: str, moments: str) -> list[Extra]:
    check_choice(task, get_args(Task), "task")
    check_choice(missing, get_args(WhenMissing), "missing")
    check_choice(moments, get_args(Found), "moments")
    names = read_rows(extra, "extra", f"names out of {get_args(Extra)}")
    if not all(isinstance(name, str) and name in get_args(Extra) for name in names):
        raise ValueError(f"extra must be a list out of {get_args(Extra)}, not {quoted(names)}")
    if task == "vr" and "miou" in names:
        raise ValueError("vr ranks videos, which have no IoU; ask for miou with task='vcmr' or 'svmr'")
    if moments == "all" and "miou" in names:
        raise ValueError("miou is of the first prediction, which finds one moment; ask for it with moments='any'")
    return names
