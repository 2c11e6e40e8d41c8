"""Lists of ids, one per query, read from Python lists, arrays or tensors into flat columns."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from numbers import Integral
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from .inputs import quoted, read_array, read_rows

LARGEST_CODE = np.iinfo(np.int32).max
ROWS_PER_BLOCK = 1024


@dataclass(frozen=True, eq=False)
class IdLists:
    """Lists of ids laid end to end.

    `values` holds `(num_ids,)` int32 or int64, or Arrow strings; `lengths` is `(num_queries,)` int64.
    """

    values: np.ndarray | pa.Array
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def kind(self) -> str:
        """`strings`, `integers`, or `` when there are no ids."""
        if not len(self.values):
            return ""
        return "integers" if isinstance(self.values, np.ndarray) else "strings"

    @staticmethod
    def concatenate(parts: Sequence["IdLists"]) -> "IdLists":
        """The lists of all parts in order; raises ValueError where strings meet integers."""
        if len(parts) == 1:
            return parts[0]
        _one_kind({f"batch {number}": part for number, part in enumerate(parts)})
        full = [part.values for part in parts if part.kind] or [parts[0].values]
        joined = np.concatenate(full) if isinstance(full[0], np.ndarray) else pa.concat_arrays(full)
        return IdLists(joined, np.concatenate([part.lengths for part in parts]))


def read_id_lists(rows: Any, name: str) -> IdLists:
    """Read one list of ids per query.

    Args:
        rows: Lists, tuples or arrays of ids, one per query, of any length; or a 2-D integer array or tensor.
        name: Name of the argument, for error messages.

    Raises:
        ValueError: Naming the row, if it is not a list or its ids are not all strings or all integers.

    Example:
        >>> read_id_lists([["a", "b"], ["c"]], "predictions").lengths
        array([2, 1])
    """
    if isinstance(rows, IdLists):
        return rows
    if hasattr(rows, "__array__"):
        matrix = read_array(rows, name)
        if matrix.ndim == 2 and matrix.dtype.kind in "iu":
            if matrix.dtype == np.uint64 and matrix.size and matrix.max() > np.iinfo(np.int64).max:
                raise ValueError(f"{name} hold ids beyond 64-bit signed integers; give such ids as strings")
            values = matrix if matrix.dtype == np.int32 else matrix.astype(np.int64, copy=False)
            return IdLists(values.ravel(), np.full(len(matrix), matrix.shape[1]))
        rows = matrix
    lists = read_rows(rows, name, "one list of ids per query")
    if set(map(type, lists)) - {list}:
        lists = [_as_list(row, number, name) for number, row in enumerate(lists)]
    lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
    first = next((row[0] for row in lists if row), 0)
    return IdLists(_strings(lists, name) if isinstance(first, str) else _integers(lists, lengths, name), lengths)


def to_codes(**columns: IdLists) -> list[np.ndarray]:
    """The columns' ids as int32 codes >= 0 that are equal where, and only where, the ids are equal.

    Raises:
        ValueError: If some columns hold strings and others integers.
    """
    _one_kind(columns)
    full = [column.values for column in columns.values() if column.kind]
    if full and not isinstance(full[0], np.ndarray):
        flat = pa.concat_arrays(full).dictionary_encode().indices.to_numpy()
    else:
        lowest = min((values.min() for values in full), default=0)
        highest = max((values.max() for values in full), default=0)
        if lowest >= 0 and highest < LARGEST_CODE:
            return [np.asarray(column.values).astype(np.int32, copy=False) for column in columns.values()]
        flat = np.unique(np.concatenate(full), return_inverse=True)[1]
    ends = np.cumsum([len(column.values) for column in columns.values()])
    return [codes.astype(np.int32) for codes in np.split(flat, ends[:-1])]


def as_matrix(values: np.ndarray, lengths: np.ndarray, fill: int) -> np.ndarray:
    """Lists laid end to end as rows of one length, `(num_queries, longest)`; short ones end in `fill`.

    Example:
        >>> as_matrix(np.array([7, 8, 9]), np.array([1, 2]), -1)
        array([[ 7, -1],
               [ 8,  9]])
    """
    longest = lengths.max(initial=0)
    if lengths.min(initial=longest) == longest:
        return values.reshape(len(lengths), longest)
    matrix = np.full((len(lengths), longest), fill, dtype=values.dtype)
    matrix[np.arange(longest) < lengths[:, None]] = values
    return matrix


def _one_kind(columns: dict[str, IdLists]) -> None:
    kinds = {name: column.kind for name, column in columns.items() if column.kind}
    if len(set(kinds.values())) > 1:
        found = ", ".join(f"{name} hold {kind}" for name, kind in kinds.items())
        raise ValueError(f"ids are mixed: {found}. Give all ids as strings or all as integers")


def read_ids(ids: Any, name: str) -> IdLists:
    """Read one id per query, from a list or a 1-D array, as lists of one.

    Raises:
        ValueError: Naming the row, if they are not all strings or all integers.

    Example:
        >>> read_ids(["a", "b"], "exclude").lengths
        array([1, 1])
    """
    if hasattr(ids, "__array__"):
        ids = read_array(ids, name)
        if ids.ndim == 1:
            return read_id_lists(ids[:, None], name)
        raise ValueError(f"{name} must hold one id per query, not an array of shape {ids.shape}")
    return read_id_lists([[value] for value in read_rows(ids, name, "one id per query")], name)


def _as_list(row: Any, number: int, name: str) -> list[Any]:
    if isinstance(row, (set, frozenset)) and name == "references":
        return list(row)
    if isinstance(row, (list, tuple)):
        return list(row)
    if hasattr(row, "__array__"):
        ids = read_array(row, f"{name}[{number}]").tolist()
        if isinstance(ids, list):
            return ids
    raise ValueError(f"{name}[{number}] must be a list of ids, not {quoted(row)}")


def _integers(lists: list[list[Any]], lengths: np.ndarray, name: str) -> np.ndarray:
    values, filled = np.empty(lengths.sum(), dtype=np.int64), 0
    try:  # strict where np.array would turn 2.5, None and "5" into something else
        for start in range(0, len(lists), ROWS_PER_BLOCK):
            block = slice(start, start + ROWS_PER_BLOCK)
            count = int(lengths[block].sum())
            ids = chain.from_iterable(lists[block])
            struct.pack_into(f"{count}q", values.data, filled * values.itemsize, *ids)
            filled += count
    except (struct.error, TypeError, ValueError, OverflowError, DeprecationWarning):  # of an __index__
        _refuse(lists, name)
    maybe_bool = np.flatnonzero(values.view(np.uint64) < 2)  # True passes for 1 above
    row_ends = np.cumsum(lengths)
    of_row = np.searchsorted(row_ends, maybe_bool, side="right")
    for row, index in zip(of_row.tolist(), (maybe_bool - row_ends[of_row]).tolist(), strict=True):
        if isinstance(lists[row][index], (bool, np.bool_)):
            _refuse(lists, name)
    return values


def _strings(lists: list[list[Any]], name: str) -> pa.Array:
    ids = list(chain.from_iterable(lists))
    if not all(issubclass(kind, str) for kind in set(map(type, ids))):  # Arrow would take bytes for text
        _refuse(lists, name)
    try:
        return pa.array(ids, type=pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError):
        _refuse(lists, name)


def _refuse(lists: Iterable[list[Any]], name: str) -> NoReturn:
    # Find the id that the fast readers refused, and name it and the reason.
    first: Any = None
    for number, row in enumerate(lists):
        for value in row:
            if isinstance(value, (bool, np.bool_)) or not isinstance(value, (str, Integral)):
                raise ValueError(f"{name}[{number}] holds {quoted(value)}; an id is a string or an integer")
            first = value if first is None else first
            if isinstance(value, str) is not isinstance(first, str):
                raise ValueError(
                    f"{name}[{number}] holds {quoted(value)} but other ids look like {quoted(first)}; "
                    "give all ids as strings or all as integers"
                )
            if not _fits(value):
                raise ValueError(
                    f"{name}[{number}] holds {quoted(value)}, which lies beyond 64-bit signed integers or is invalid "
                    "text; give such ids as plain strings"
                )
    raise ValueError(f"{name} hold ids that cannot be read; give strings or integers")


def _fits(value: str | Integral) -> bool:
    if isinstance(value, str):
        return not any("\ud800" <= letter <= "\udfff" for letter in value)
    return -(2**63) <= int(value) < 2**63
