"""Ranked spans and true moments, read from records or arrays into flat columns."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from .id_lists import IdLists, read_id_lists, read_ids
from .inputs import quoted, read_array, read_number, read_rows

FIELDS = ("video_id", "start", "end")
MOST_SECONDS = 1e9  # far within float32, in which IoU is computed


@dataclass(frozen=True, eq=False)
class RankedSpans:
    """The predictions of all queries end to end.

    `video_ids` has one list per query; `start` and `end` are seconds `(num_predictions,)`; `missing` is
    `(num_queries,)` bool, true where a query has no record; `scores` is `(num_predictions,)`, or None.
    """

    video_ids: IdLists
    start: np.ndarray
    end: np.ndarray
    missing: np.ndarray
    scores: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.missing)

    @staticmethod
    def concatenate(parts: Sequence["RankedSpans"]) -> "RankedSpans":
        """The predictions of all parts in order."""
        if len(parts) == 1:
            return parts[0]
        video_ids = IdLists.concatenate([part.video_ids for part in parts])
        start, end, missing = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("start", "end", "missing")
        )
        known = [part.scores for part in parts if part.scores is not None]
        scores = np.concatenate(known) if len(known) == len(parts) else None
        return RankedSpans(video_ids, start, end, missing, scores)


@dataclass(frozen=True, eq=False)
class Moments:
    """The true moments of all queries end to end.

    `video_ids` has one id per query, or one for each of its spans, or none where it has no moment; `spans` are seconds
    `(num_spans, 2)`; `num_spans` is `(num_queries,)`; `ids_are_listed` where the ids of a query came as a list.
    """

    video_ids: IdLists
    spans: np.ndarray
    num_spans: np.ndarray
    ids_are_listed: bool = False

    def __len__(self) -> int:
        return len(self.num_spans)

    @staticmethod
    def concatenate(parts: Sequence["Moments"]) -> "Moments":
        """The moments of all parts in order."""
        if len(parts) == 1:
            return parts[0]
        video_ids = IdLists.concatenate([part.video_ids for part in parts])
        spans, num_spans = (np.concatenate([getattr(part, name) for part in parts]) for name in ("spans", "num_spans"))
        return Moments(video_ids, spans, num_spans, any(part.ids_are_listed for part in parts))


def read_ranked_spans(predictions: Any) -> RankedSpans:
    """Read predictions: a list of records of parallel lists, or one record of `(num_queries, num_ranks)` arrays.

    A query without a record (None) is marked as missing; an empty record is an answer without predictions. Records may
    hold `score`, one number for each prediction; either all that have predictions do or none.

    Raises:
        ValueError: Naming the query, for a field that is absent, of another length or of another kind, and for
            a span that is reversed or not finite.

    Example:
        >>> read_ranked_spans([{"video_id": ["v"], "start": [0.0], "end": [4.5]}, None]).missing
        array([False,  True])
    """
    if isinstance(predictions, RankedSpans):
        return predictions
    records = predictions
    if isinstance(predictions, Mapping):
        columns = [_field(predictions, name, "predictions") for name in FIELDS]
        missing = None
    else:
        records = read_rows(predictions, "predictions", "one record per query")
        missing = np.array([record is None for record in records], dtype=bool)
        columns = [
            [[] if record is None else _field(record, name, f"predictions[{n}]") for n, record in enumerate(records)]
            for name in FIELDS
        ]
    video_ids = read_id_lists(columns[0], "video_id of predictions")
    missing = np.zeros(len(video_ids), dtype=bool) if missing is None else missing
    start, end = (
        _read_seconds(column, video_ids.lengths, name) for name, column in zip(FIELDS[1:], columns[1:], strict=True)
    )
    _check_spans(start, end, video_ids.lengths, "predictions")
    return RankedSpans(video_ids, start, end, missing, _read_scores(records, video_ids.lengths))


def read_moments(references: Any) -> Moments:
    """Read references: a list of records, or one record of a column of ids and a column of spans.

    `spans` is a list of [start, end] pairs in seconds, one per annotator or moment; a single pair may be given on its
    own. `video_id` is one id, or a list with one for each span. A query without a moment has None and [].

    Raises:
        ValueError: Naming the query, for a field that is absent or of another kind, for no span in a video, and for a
            span that is reversed or not finite.

    Example:
        >>> read_moments([{"video_id": "v", "spans": [[0.0, 4.5]]}, {"video_id": None, "spans": []}]).num_spans
        array([1, 0])
    """
    if isinstance(references, Moments):
        return references
    if isinstance(references, Mapping):
        ids, spans = (_field(references, name, "references") for name in ("video_id", "spans"))
    else:
        records = read_rows(references, "references", "one record per query")
        ids, spans = (
            [_field(record, name, f"references[{n}]", nullable=nullable) for n, record in enumerate(records)]
            for name, nullable in (("video_id", True), ("spans", False))
        )
    video_ids, are_listed = _read_videos(ids)
    flat, num_spans = _read_pairs(spans, video_ids.lengths)
    if len(num_spans) != len(video_ids):
        raise ValueError(f"references have {len(video_ids)} video ids but spans for {len(num_spans)} queries")
    if (wrong := np.flatnonzero((video_ids.lengths != 1) & (video_ids.lengths != num_spans))).size:
        raise ValueError(
            f"references[{wrong[0]}] has {video_ids.lengths[wrong[0]]} ids and {num_spans[wrong[0]]} spans; give one "
            "id, or one for each span, or of a query without a moment None and []"
        )
    _check_spans(flat[:, 0], flat[:, 1], num_spans, "references")
    return Moments(video_ids, flat, num_spans, are_listed)


def _field(record: Any, field: str, name: str, *, nullable: bool = False) -> Any:
    if not isinstance(record, Mapping) or field not in record or (record[field] is None and not nullable):
        raise ValueError(f"{name} must be a record with {field!r}, not {quoted(record)}")
    return record[field]


def _read_videos(ids: Any) -> tuple[IdLists, bool]:
    # The ids of each query: one, a list with one for each span, or None where there is no span; and whether one is a
    # list.
    name = "video_id of references"
    if hasattr(ids, "__array__"):
        return read_ids(ids, name), False
    rows = read_rows(ids, name, "one id per query")
    are_listed = any(isinstance(row, (list, tuple)) for row in rows)
    if not are_listed and all(row is not None for row in rows):
        return read_ids(rows, name), False
    lists = [[] if row is None else list(row) if isinstance(row, (list, tuple)) else [row] for row in rows]
    return read_id_lists(lists, name), are_listed


def _read_scores(predictions: Any, lengths: np.ndarray) -> np.ndarray | None:
    # The scores of all predictions end to end; None unless all have one.
    if isinstance(predictions, Mapping):
        column = predictions.get("score")
    else:
        column = [None if record is None else record.get("score") for record in predictions]
        column = [[] if row is None and not length else row for row, length in zip(column, lengths, strict=True)]
        if any(row is None for row in column):
            return None
    if column is None:
        return None
    scores = _read_seconds(column, lengths, "score")
    if (wrong := np.isnan(scores)).any():
        query = int(np.searchsorted(np.cumsum(lengths), wrong.argmax(), side="right"))
        raise ValueError(f"'score' of predictions[{query}] holds NaN; give numbers")
    return scores


def _read_seconds(column: Any, lengths: np.ndarray, field: str) -> np.ndarray:
    if hasattr(column, "__array__"):
        matrix = read_array(column, f"{field!r} of predictions")
        if matrix.ndim == 2 and matrix.dtype.kind in "iuf":
            if matrix.shape != (len(lengths), lengths.max(initial=0)):
                raise ValueError(f"{field} of predictions has shape {matrix.shape}, unlike video_id")
            return matrix.astype(np.float64, copy=False).ravel()
        column = matrix
    rows = read_rows(column, f"{field!r} of predictions", "one list of seconds per query")
    if len(rows) != len(lengths):
        raise ValueError(f"predictions have 'video_id' of {len(lengths)} queries but {field!r} of {len(rows)}")
    flat = array("d")
    for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        values = read_rows(row, f"{field!r} of predictions[{number}]", "seconds")
        if len(values) != length:
            raise ValueError(f"predictions[{number}] has {length} of 'video_id' but {len(values)} of {field!r}")
        flat.fromlist(_checked_seconds(values, f"{field!r} of predictions[{number}]"))
    return np.frombuffer(flat, dtype=np.float64) if flat else np.zeros(0)


def _checked_seconds(values: list[Any], name: str) -> list[float]:
    if set(map(type, values)) <= {float}:
        return values
    seconds = [read_number(value) for value in values]
    if None in seconds:
        raise ValueError(f"{name} holds {quoted(values[seconds.index(None)])}; give seconds as numbers")
    return cast("list[float]", seconds)


def _read_pairs(spans: Any, num_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if hasattr(spans, "__array__"):
        pairs = read_array(spans, "spans of references")
        if pairs.ndim in {2, 3} and pairs.shape[-1] == 2 and pairs.size and pairs.dtype.kind in "iuf":
            per_query = 1 if pairs.ndim == 2 else pairs.shape[1]
            return pairs.astype(np.float64).reshape(-1, 2), np.full(len(pairs), per_query)
        raise ValueError(
            "spans of references must be numbers of shape (queries, 2) or (queries, annotators, 2), "
            f"not {pairs.dtype} of shape {pairs.shape}"
        )
    flat, counts = array("d"), []
    for number, of_query in enumerate(read_rows(spans, "spans of references", "the spans of each query")):
        seconds = _seconds_of_pairs(of_query)
        if seconds is None or (not seconds and num_ids[number : number + 1].any()):
            raise ValueError(
                f"spans of references[{number}] must be [[start, end], ...] in seconds, not {quoted(of_query)}; of a "
                "query without a moment both video_id is None and spans []"
            )
        flat.fromlist(seconds)
        counts.append(len(seconds) // 2)
    return np.array(flat, dtype=np.float64).reshape(-1, 2), np.array(counts, dtype=np.int64)


def _seconds_of_pairs(spans: Any) -> list[float] | None:
    # The seconds of one query's spans end to end; a single pair may be given on its own.
    try:
        rows = read_rows(spans, "spans", "[start, end] pairs")
        alone = len(rows) == 2 and read_number(rows[0]) is not None
        pairs = [read_rows(pair, "a span", "start and end") for pair in ([rows] if alone else rows)]
    except ValueError:
        return None
    seconds = [read_number(value) for pair in pairs for value in pair]
    if None in seconds or any(len(pair) != 2 for pair in pairs):
        return None
    return cast("list[float]", seconds)


def _check_spans(start: np.ndarray, end: np.ndarray, lengths: np.ndarray, name: str) -> None:
    if not len(start) or ((start <= end).all() and start.min() >= -MOST_SECONDS and end.max() <= MOST_SECONDS):
        return
    within = (np.abs(start) <= MOST_SECONDS) & (np.abs(end) <= MOST_SECONDS)
    wrong = int(np.flatnonzero(~((start <= end) & within))[0])
    ends = np.cumsum(lengths)
    query = int(np.searchsorted(ends, wrong, side="right"))
    place = wrong - int(ends[query] - lengths[query])
    raise ValueError(
        f"{name}[{query}] holds the span [{start[wrong]:g}, {end[wrong]:g}] at place {place}; a span is finite, "
        f"within {MOST_SECONDS:g} seconds, and starts no later than it ends"
    )
