"""Exact search of an index: the moments with the largest dot products, filtered by expressions on their columns."""

import math
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .durability import reading
from .filters import checked_filter, understood
from .matrix import COLUMNS, MomentMatrix
from .store import IndexedModel, MomentIndex, approximate_of, quoted

SPAN_FIELDS = ("start_seconds", "end_seconds")
MARGIN = 1e-4
"""Scores of the store closer than this, relative to the largest, may change places when they are computed again."""
EXTRA_ROWS = 16
FEWEST_PROBES = 16


def search_moments(
    index: MomentIndex, model: IndexedModel, query: np.ndarray, *, limit: int = 10, **narrowing: Any
) -> list[dict[str, Any]]:
    """`search_many` of one query `(D,)`."""
    return search_many(index, model, query[None], limit=limit, **narrowing)[0]


def search_many(
    index: MomentIndex,
    model: IndexedModel,
    queries: np.ndarray,
    *,
    limit: int = 10,
    where: str | None = None,
    folder: str | None = None,
    exclude_fingerprint: str | None = None,
    probes: int | None = None,
) -> list[list[dict[str, Any]]]:
    """The best moments for each query, best first; exact unless `probes` is given.

    Equal scores (as float32 numbers) come in the order of video, start, end and id. Exact searches read the vectors
    from a `MomentMatrix`, of many queries in one product, which is several times faster than one after the other.

    Args:
        index: What to search.
        model: One of its models, which made the queries.
        queries: `(Q, D)`.
        limit: Most moments to give for each.
        where: A condition in SQL, see `filters`, such as "label = 'vault' AND end_seconds - start_seconds < 8".
        folder: Only videos below this folder, a path below the index's root.
        exclude_fingerprint: Leave out the videos with this fingerprint.
        probes: Look only into so many parts of the approximate index, see `MomentIndex.partition`; None: look at all
            moments. Moments that came after it are always looked at.

    Returns:
        For each moment its columns but the vector, and `score`, the dot product.

    Raises:
        ValueError: A query is of another length or not finite, the limit or `probes` is below 1, the condition is
            wrong, there is no approximate index, or a moment or (unless `probes` is given) any vector of the index is
            damaged.
        OSError: The index cannot be read, or its vectors not be kept in the user's cache.
    """
    matrix = matrix_of(index, model)
    if probes is None:
        matrix.refresh()
    else:
        _check_probes(index.path, index.moments(model.key), probes)
    if queries.shape[1:] != (model.dimensions,) or not np.isfinite(queries).all():
        raise ValueError(f"a query must be {model.dimensions} finite numbers, not {queries.shape[1:]}")
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    condition = " AND ".join(f"({part})" for part in conditions(where, folder, exclude_fingerprint))
    queries, fetched = queries.astype(np.float32), limit + EXTRA_ROWS
    found: list[list[dict[str, Any]]] = [[] for _ in queries]
    waiting = list(range(len(queries)))
    while waiting:
        if probes is None:
            tables = matrix.nearest(queries[waiting], fetched, condition)
        else:
            tables = [approximate(index, model, queries[place], fetched, condition, probes) for place in waiting]
        undecided = []
        for place, rows in zip(waiting, tables, strict=True):
            moments = checked_rows(index.path, rows)
            scores = (vectors_of(moments) * queries[place]).sum(1)  # row by row: equal vectors score the same
            if not np.isfinite(scores).all():
                raise ValueError(f"the index {index.path} holds vectors that are not finite; index its videos again")
            if len(scores) < fetched or is_decided(scores, limit):
                found[place] = ranked(moments, scores, limit)
            else:
                undecided.append(place)  # so many are alike that ties could be cut
        waiting, fetched = undecided, fetched * 4
    return found


def matrix_of(index: MomentIndex, model: IndexedModel) -> MomentMatrix:
    """The vectors of a model, which all exact searches of an index share; made once, as that looks for their folder."""
    if model.key not in index.matrices:
        index.matrices.setdefault(model.key, MomentMatrix(index, model))
    matrix: MomentMatrix = index.matrices[model.key]
    return matrix


def default_probes(index: MomentIndex, model: IndexedModel) -> int:
    """How many parts an approximate search looks into where a user says no more: twice the square root of all."""
    _, trained_on = approximate_of(index.moments(model.key)) or ("", 0)
    return max(FEWEST_PROBES, round(2 * math.sqrt(math.sqrt(trained_on))))


def _check_probes(path: str, table: Any, probes: int) -> None:
    if probes < 1:
        raise ValueError(f"probes must be at least 1, not {probes}")
    if approximate_of(table) is None:
        raise ValueError(
            f"{path} has no approximate index; run `subtle index` on it again with --approximate, or search exactly"
        )


def conditions(where: str | None, folder: str | None, exclude_fingerprint: str | None) -> list[str]:
    """The filters as expressions.

    Raises:
        ValueError: `where` is none, see `filters.checked_filter`.
    """
    parts = [checked_filter(where)] if where else []
    if folder is not None and folder.strip("/") not in {"", "."}:
        parts.append(f"starts_with(video, {quoted(folder.strip('/') + '/')})")
    if exclude_fingerprint is not None:
        parts.append(f"fingerprint != {quoted(exclude_fingerprint)}")
    return parts


def approximate(
    index: MomentIndex, model: IndexedModel, query: np.ndarray, number: int, condition: str, probes: int
) -> pa.Table:
    """The rows that the store finds in some parts of its approximate index.

    Raises:
        ValueError: The condition is wrong.
        OSError: The store cannot be read.
    """
    table = index.moments(model.key)
    search = table.search(query, vector_column_name="vector").distance_type("dot").nprobes(probes)
    search = search.select([*COLUMNS, "vector", "_distance"]).limit(number)
    if condition:
        search = search.where(condition, prefilter=True)
    with reading(index.path), understood(condition):
        try:
            found: pa.Table = search.to_arrow()
        except RuntimeError:  # a run that adds to the index may have removed the files of the version that was open
            table.checkout_latest()
            found = search.to_arrow()
    return found


def checked_rows(path: str, rows: pa.Table) -> pa.Table:
    """The rows, if each is a moment, as far as its columns are there; an index may come from anyone.

    Raises:
        ValueError: One is not.
    """
    columns = {name: rows[name] for name in rows.column_names}
    tests = [columns[name].is_valid() for name in ("moment_id", "video", "vector") if name in columns]
    if set(SPAN_FIELDS) <= columns.keys():
        start, end = (columns[name] for name in SPAN_FIELDS)
        tests += [pc.greater_equal(start, 0.0), pc.less(start, end), pc.is_finite(end)]
    is_moment = pc.fill_null(reduce(pc.and_, tests), fill_value=False)
    if wrong := rows.filter(pc.invert(is_moment)).slice(0, 1).to_pylist():
        row = {name: value for name, value in wrong[0].items() if name in {"moment_id", "video", *SPAN_FIELDS}}
        name = row.get("moment_id")
        cure = "" if name is None else f', or leave it out: --where "moment_id != {quoted(name)}"'
        raise ValueError(f"the index {path} holds what is no moment: {row}; index the video again{cure}")
    return rows


def vectors_of(rows: pa.Table) -> np.ndarray:
    """`(N, D)`."""
    column = rows["vector"].combine_chunks()
    vectors: np.ndarray = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, column.type.list_size)
    return vectors


def is_decided(scores: np.ndarray, limit: int) -> bool:
    """Whether rows that were not fetched are surely worse than the first `limit`."""
    best = np.sort(scores)[::-1]
    return bool(best[limit - 1] - best[-1] > MARGIN * max(1.0, abs(float(best[0]))))


def ranked(rows: pa.Table, scores: np.ndarray, limit: int) -> list[dict[str, Any]]:
    """The best rows, equal scores in the order of the videos."""
    found = [row | {"score": float(score)} for row, score in zip(rows.select(COLUMNS).to_pylist(), scores, strict=True)]
    found.sort(key=lambda row: (-row["score"], *(row[name] for name in ("video", *SPAN_FIELDS, "moment_id"))))
    return found[:limit]
