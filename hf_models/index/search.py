"""Exact search of an index: the moments with the largest dot products, filtered by expressions on their columns."""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .durability import is_damage, reading
from .filters import checked_filter
from .store import IndexedModel, MomentIndex, approximate_of, quoted

TIMES = ("start_seconds", "end_seconds")
COLUMNS = ("moment_id", "video", *TIMES, "label", "text", "fingerprint")
MARGIN = 1e-4
"""Scores of the store closer than this, relative to the largest, may change places when they are computed again."""
EXTRA_ROWS = 16
FEWEST_PROBES = 16


def search_moments(
    index: MomentIndex,
    model: IndexedModel,
    query: np.ndarray,
    *,
    limit: int = 10,
    where: str | None = None,
    folder: str | None = None,
    exclude_fingerprint: str | None = None,
    probes: int | None = None,
) -> list[dict[str, Any]]:
    """The best moments for a query, best first; exact unless `probes` is given.

    Equal scores (as float32 numbers) come in the order of video, start, end and id.

    Args:
        index: What to search.
        model: One of its models, which made the query.
        query: `(D,)`.
        limit: Most moments to give.
        where: A condition in SQL, see `filters`, such as "label = 'vault' AND end_seconds - start_seconds < 8".
        folder: Only videos below this folder, a path below the index's root.
        exclude_fingerprint: Leave out the videos with this fingerprint.
        probes: Look only into so many parts of the approximate index, see `MomentIndex.partition`; None: look at all
            moments. Moments that came after it are always looked at.

    Returns:
        For each moment its columns but the vector, and `score`, the dot product.

    Raises:
        ValueError: The query is of another length or not finite, the limit or `probes` is below 1, the condition is
            wrong, there is no approximate index, or a moment or (unless `probes` is given) any vector of the index is
            damaged.
        OSError: The index cannot be read.
    """
    table = index.moments(model.key)
    if query.shape != (model.dimensions,) or not np.isfinite(query).all():
        raise ValueError(f"the query must be {model.dimensions} finite numbers, not {query.shape}")
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    if probes is None:
        index.check_vectors(model.key)
    else:  # few vectors are looked at, and those that are found are checked below
        check_probes(index.path, table, probes)
    condition = " AND ".join(f"({part})" for part in conditions(where, folder, exclude_fingerprint))
    fetched = limit + EXTRA_ROWS
    while True:
        with reading(index.path):
            try:
                rows = nearest(table, query, fetched, condition, probes)
            except RuntimeError:  # a run that adds to the index may have removed the files of the version that was open
                table.checkout_latest()
                rows = nearest(table, query, fetched, condition, probes)
        rows = checked(index.path, rows)
        scores = (vectors_of(rows) * query.astype(np.float32)).sum(1)  # row by row: equal vectors score the same
        if not np.isfinite(scores).all():
            raise ValueError(f"the index {index.path} holds vectors that are not finite; index its videos again")
        if rows.num_rows < fetched or is_decided(scores, limit):
            return ranked(rows, scores, limit)
        fetched *= 4  # so many are alike that ties could be cut


def default_probes(index: MomentIndex, model: IndexedModel) -> int:
    """How many parts an approximate search looks into where a user says no more: twice the square root of all."""
    _, trained_on = approximate_of(index.moments(model.key)) or ("", 0)
    return max(FEWEST_PROBES, round(2 * math.sqrt(math.sqrt(trained_on))))


def check_probes(path: str, table: Any, probes: int) -> None:
    """Refuse an approximate search that cannot be.

    Raises:
        ValueError: `probes` is below 1, or there is no approximate index.
    """
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


def nearest(table: Any, query: np.ndarray, number: int, condition: str, probes: int | None) -> pa.Table:
    """The rows that the store finds; without `probes` not by an approximate index.

    Raises:
        ValueError: The condition is wrong.
        RuntimeError: The store cannot be read.
        OSError: The same.
    """
    search = table.search(query.astype(np.float32), vector_column_name="vector").distance_type("dot")
    search = search.bypass_vector_index() if probes is None else search.nprobes(probes)
    search = search.select([*COLUMNS, "vector", "_distance"]).limit(number)
    if condition:
        search = search.where(condition, prefilter=True)
    try:
        return search.to_arrow()
    except (ValueError, RuntimeError, OSError) as error:
        if is_damage(error):
            raise
        if not condition:
            raise ValueError(f"the index is damaged ({str(error).partition(chr(10))[0]}); make it again") from error
        reason = str(error).removeprefix("Invalid input, ").partition("\n")[0]
        raise ValueError(f"the filter {condition} is not understood: {reason}") from error


def checked(path: str, rows: pa.Table) -> pa.Table:
    """The rows, if each is a moment, as far as its columns are there; an index may come from anyone.

    Raises:
        ValueError: One is not.
    """
    columns = {name: rows[name] for name in rows.column_names}
    tests = [columns[name].is_valid() for name in ("moment_id", "video", "vector") if name in columns]
    if set(TIMES) <= columns.keys():
        start, end = (columns[name] for name in TIMES)
        tests += [pc.greater_equal(start, 0.0), pc.less(start, end), pc.is_finite(end)]
    is_moment = pc.fill_null(reduce(pc.and_, tests), fill_value=False)
    if wrong := rows.filter(pc.invert(is_moment)).slice(0, 1).to_pylist():
        row = {name: value for name, value in wrong[0].items() if name in {"moment_id", "video", *TIMES}}
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
    found.sort(key=lambda row: (-row["score"], *place_of(row)))
    return found[:limit]


def place_of(row: dict[str, Any]) -> Sequence[Any]:
    """What equal scores are ordered by."""
    return row["video"], row["start_seconds"], row["end_seconds"], row["moment_id"]
