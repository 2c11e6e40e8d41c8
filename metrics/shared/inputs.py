"""Rows, arrays, numbers and options that users give, checked where they enter, and quoted briefly in errors.

Every metric holds the same copy of this file, because a Space must stand alone.
"""

import reprlib
from collections.abc import Mapping, Sequence, Set, Sized
from dataclasses import dataclass
from itertools import islice
from numbers import Integral, Real
from typing import Any

import numpy as np

MOST = np.iinfo(np.int32).max
_UNORDERED = (str, bytes, bytearray, memoryview, Mapping, Set)


class _Shortener(reprlib.Repr):
    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        text = super().repr_dict(dict(islice(x.items(), self.maxdict)), level)
        return text if len(x) <= self.maxdict else f"{text[:-1]}, ...}}"


_SHORTENER = _Shortener()
_SHORTENER.maxlevel, _SHORTENER.maxstring, _SHORTENER.maxother, _SHORTENER.maxlong = 3, 60, 80, 60


def quoted(value: Any) -> str:
    """A short text of any value, however large, deep or odd it is.

    Example:
        >>> quoted([1.5, "a" * 1000])
        "[1.5, 'aaaaaaaaaaaaaaaaaaaaaaaaaaa...aaaaaaaaaaaaaaaaaaaaaaaaaaaa']"
    """
    try:
        return _SHORTENER.repr(value)
    except Exception:  # such as an integer of too many digits
        return f"a value of type {type(value).__name__}"


def read_array(value: Any, name: str) -> np.ndarray:
    """An array from an object with `__array__`, or from nested lists.

    Raises:
        ValueError: Naming it, if it is masked or cannot be made an array.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(f"{name} must not be a masked array; fill it or leave the masked entries out")
    try:
        return np.asarray(value)
    except Exception as error:  # ragged, on another device, or of its own __array__
        raise ValueError(f"{name} cannot be made an array on the CPU: {quoted(str(error))}") from None


def read_rows(rows: Any, name: str, entry: str) -> list[Any]:
    """The entries of a list, tuple, array, column or any other ordered collection.

    Raises:
        ValueError: Naming it, for anything else.

    Example:
        >>> read_rows(np.array([3, 5]), "exclude", "one id per query")
        [3, 5]
    """
    if type(rows) is list:
        return rows
    if hasattr(rows, "__array__"):
        rows = read_array(rows, name).tolist()
    if hasattr(rows, "__len__") and hasattr(rows, "__iter__") and not isinstance(rows, _UNORDERED):
        return list(rows)
    raise ValueError(f"{name} must be a list with {entry}, not {quoted(rows)}")


def read_number(value: Any) -> float | None:
    """The number as a float, from Python, NumPy or a tensor; None if it is not a real number or too large for a float.

    Example:
        >>> read_number(np.float32(0.5)), read_number(True), read_number("0.5")
        (0.5, None, None)
    """
    if isinstance(value, (np.generic, np.ndarray)) and (
        value.dtype.kind not in "iuf" or isinstance(value, np.ma.MaskedArray)
    ):
        return None
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def check_choice(value: Any, choices: Sequence[str], name: str) -> None:
    """Refuse an option that is not one of its choices.

    Raises:
        ValueError: With the choices.
    """
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {tuple(choices)}, not {quoted(value)}")


def check_flag(value: Any, name: str) -> None:
    """Refuse an option that is neither True nor False.

    Raises:
        ValueError: With the value.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, not {quoted(value)}")


def read_whole(value: Any, name: str, *, least: int = 1, most: int = MOST) -> int:
    """A whole number within bounds.

    Raises:
        ValueError: With the bounds.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, not {quoted(value)}")
    return int(value)


def read_cuts(k: Any) -> list[int]:
    """The cut-offs K, from one or several.

    Raises:
        ValueError: If there is none, or one is not a whole number above 0.

    Example:
        >>> read_cuts((5, 10))
        [5, 10]
    """
    cuts = [k] if isinstance(k, Integral) else read_rows(k, "k", "whole numbers above 0")
    if not cuts or not all(
        isinstance(cut, Integral) and not isinstance(cut, bool) and 0 < int(cut) <= MOST for cut in cuts
    ):
        raise ValueError(f"k must be one or more whole numbers above 0 and up to {MOST}, not {quoted(k)}")
    return [int(cut) for cut in cuts]


@dataclass(frozen=True, eq=False)
class Names:
    """A text of each row, or None, such as its kind."""

    names: list[Any]

    def __len__(self) -> int:
        return len(self.names)

    @staticmethod
    def concatenate(parts: Sequence["Names"]) -> "Names":
        """The texts of all parts in order."""
        return Names([name for part in parts for name in part.names])


def check_lengths(predictions: Sized, references: Sized) -> None:
    """Refuse predictions and references of different or no length.

    Raises:
        ValueError: With both lengths.
    """
    if len(predictions) != len(references):
        raise ValueError(f"{len(predictions)} predictions but {len(references)} references; give one of each per query")
    if not len(predictions):
        raise ValueError("there is no query; give at least one prediction and one reference")
