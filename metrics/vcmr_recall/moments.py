"""Ranked spans and true moments, read from records or arrays into flat columns."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from .id_lists import IdLists, read_id_lists

FIELDS = ("video_id", "start", "end")


@dataclass(frozen=True, eq=False)
class RankedSpans:
    """The predictions of all queries end to end.

    `video_ids` has one list per query; `start` and `end` are seconds `(num_predictions,)`; `missing` is
    `(num_queries,)` bool, true where a query has no record.
    """

    video_ids: IdLists
    start: np.ndarray
    end: np.ndarray
    missing: np.ndarray

    def __len__(self) -> int:
        return len(self.missing)

    @staticmethod
    def concatenate(parts: Sequence["RankedSpans"]) -> "RankedSpans":
        """The predictions of all parts in order."""
        if len(parts) == 1:
            return parts[0]
        video_ids = IdLists.concatenate([part.video_ids for part in parts])
        columns = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("start", "end", "missing")
        )
        return RankedSpans(video_ids, *columns)


@dataclass(frozen=True, eq=False)
class Moments:
    """The true moments of all queries end to end.

    `video_ids` has one id per query; `spans` are seconds `(num_spans, 2)`; `num_spans` is `(num_queries,)`.
    """

    video_ids: IdLists
    spans: np.ndarray
    num_spans: np.ndarray

    def __len__(self) -> int:
        return len(self.num_spans)

    @staticmethod
    def concatenate(parts: Sequence["Moments"]) -> "Moments":
        """The moments of all parts in order."""
        if len(parts) == 1:
            return parts[0]
        video_ids = IdLists.concatenate([part.video_ids for part in parts])
        columns = (np.concatenate([getattr(part, name) for part in parts]) for name in ("spans", "num_spans"))
        return Moments(video_ids, *columns)


def read_ranked_spans(predictions: Any) -> RankedSpans:
    """Read predictions: a list of records of parallel lists, or one record of `(num_queries, num_ranks)` arrays.

    A query without a record (None) is marked as missing; an empty record answers with nothing.

    Raises:
        ValueError: Naming the query, for a field that is absent, of another length or of another kind, and for
            a span that is reversed or not finite.

    Example:
        >>> read_ranked_spans([{"video_id": ["v"], "start": [0.0], "end": [4.5]}, None]).missing
        array([False,  True])
    """
    if isinstance(predictions, RankedSpans):
        return predictions
    if isinstance(predictions, Mapping):
        missing = np.zeros(len(_field(predictions, "video_id", "predictions")), dtype=bool)
        columns = [_field(predictions, name, "predictions") for name in FIELDS]
    else:
        records = _records(predictions, "predictions")
        missing = np.array([record is None for record in records], dtype=bool)
        columns = [
            [
                () if record is None else _field(record, name, f"predictions[{n}]")
                for n, record in enumerate(records)
            ]
            for name in FIELDS
        ]
    video_ids = read_id_lists(columns[0], "video_id of predictions")
    start, end = (
        _read_seconds(column, video_ids.lengths, name)
        for name, column in zip(FIELDS[1:], columns[1:], strict=True)
    )
    _check_spans(start, end, video_ids.lengths, "predictions")
    return RankedSpans(video_ids, start, end, missing)


def read_moments(references: Any) -> Moments:
    """Read references: a list of records, or one record of a column of ids and a column of spans.

    `spans` is a list of [start, end] pairs in seconds, one per annotator; a single pair may stand alone.

    Raises:
        ValueError: Naming the query, for a field that is absent or of another kind, for no span, and for a
            span that is reversed or not finite.

    Example:
        >>> read_moments([{"video_id": "v", "spans": [[0.0, 4.5]]}]).spans
        array([[0. , 4.5]])
    """
    if isinstance(references, Moments):
        return references
    if isinstance(references, Mapping):
        ids, spans = (_field(references, name, "references") for name in ("video_id", "spans"))
    else:
        records = _records(references, "references")
        ids, spans = (
            [_field(record, name, f"references[{n}]") for n, record in enumerate(records)]
            for name in ("video_id", "spans")
        )
    one_each = ids.reshape(-1, 1) if hasattr(ids, "reshape") else [[one] for one in ids]
    video_ids = read_id_lists(one_each, "video_id of references")
    if len(spans) != len(video_ids):
        raise ValueError(f"references have {len(video_ids)} video ids but spans for {len(spans)} queries")
    flat, num_spans = _read_pairs(spans)
    _check_spans(flat[:, 0], flat[:, 1], num_spans, "references")
    return Moments(video_ids, flat, num_spans)


def _records(rows: Any, name: str) -> list:
    if rows is None or isinstance(rows, (str, bytes)) or not hasattr(rows, "__len__"):
        raise ValueError(f"{name} must be a list with one record per query, not {type(rows).__name__}")
    return list(rows)


def _field(record: Any, field: str, name: str) -> Any:
    if not isinstance(record, Mapping) or field not in record or record[field] is None:
        raise ValueError(f"{name} must be a record with {field!r}, not {_shortened(record)}")
    return record[field]


def _read_seconds(column: Any, lengths: np.ndarray, field: str) -> np.ndarray:
    if hasattr(column, "__array__"):
        matrix = np.asarray(column)
        if matrix.ndim == 2 and matrix.dtype.kind in "iuf":
            if matrix.shape != (len(lengths), lengths.max(initial=0)):
                raise ValueError(f"{field} of predictions has shape {matrix.shape}, unlike video_id")
            return matrix.astype(np.float64, copy=False).ravel()
        column = matrix.tolist()
    flat = array("d")
    for number, (row, length) in enumerate(zip(column, lengths, strict=True)):
        values = row if type(row) is list else list(row)
        if len(values) != length:
            raise ValueError(
                f"predictions[{number}] has {length} of 'video_id' but {len(values)} of {field!r}"
            )
        try:
            flat.fromlist(values)
        except TypeError:
            wrong = next(value for value in values if not isinstance(value, (int, float, np.number)))
            raise ValueError(
                f"{field!r} of predictions[{number}] holds {wrong!r}; give seconds as numbers"
            ) from None
    return np.frombuffer(flat, dtype=np.float64) if flat else np.zeros(0)


def _read_pairs(spans: Any) -> tuple[np.ndarray, np.ndarray]:
    if hasattr(spans, "__array__"):
        pairs = np.asarray(spans, dtype=np.float64)
        if pairs.ndim in {2, 3} and pairs.shape[-1] == 2 and pairs.size:
            per_query = 1 if pairs.ndim == 2 else pairs.shape[1]
            return pairs.reshape(-1, 2), np.full(len(pairs), per_query)
        raise ValueError(
            f"spans of references must have shape (queries, 2) or (queries, annotators, 2), not {pairs.shape}"
        )
    flat, counts = array("d"), []
    for number, of_query in enumerate(spans):
        pairs = of_query.tolist() if hasattr(of_query, "tolist") else of_query
        pairs = [pairs] if len(pairs) == 2 and not hasattr(pairs[0], "__len__") else pairs
        try:
            for pair in pairs:
                first, last = pair
                flat.extend((first, last))
        except (TypeError, ValueError):
            _refuse_spans(number, of_query)
        if not len(pairs):
            _refuse_spans(number, of_query)
        counts.append(len(pairs))
    return np.array(flat, dtype=np.float64).reshape(-1, 2), np.array(counts, dtype=np.int64)


def _refuse_spans(number: int, spans: Any) -> NoReturn:
    raise ValueError(
        f"spans of references[{number}] must be [[start, end], ...] in seconds, not {_shortened(spans)}"
    )


def _check_spans(start: np.ndarray, end: np.ndarray, lengths: np.ndarray, name: str) -> None:
    if not len(start) or ((start <= end).all() and start.min() > -np.inf and end.max() < np.inf):
        return
    wrong = int(np.flatnonzero(~((start <= end) & np.isfinite(start) & np.isfinite(end)))[0])
    query = int(np.searchsorted(np.cumsum(lengths), wrong, side="right"))
    raise ValueError(
        f"{name}[{query}] holds the span [{start[wrong]:g}, {end[wrong]:g}]; "
        "a span is finite and starts no later than it ends"
    )


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
