"""Pickles of built-in containers, text and arrays of numbers, read without running code of theirs.

A pickle names functions and calls them. This reader answers the few names that such data needs with functions of its
own, which give plain values (arrays become nested lists), and refuses all others. It does not limit the time and the
memory that a hostile file takes; who calls it limits the size of the file.
"""

import io
import pickle
import pickletools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import mul
from typing import Any, BinaryIO

import numpy as np

NUMBER_TYPE = re.compile(r"[<>|=]?(?:b1|[iu][1248]|f[248]|bool|u?int(?:8|16|32|64)|float(?:16|32|64))")
MAX_EMPTY_ROWS = 1000  # of an array without numbers, which no bytes of the file stand for


class _Word:
    """A function or type that a pickle may name: it can be called, and nothing of it can be set."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)

    def __setstate__(self, state: object) -> None:
        raise ValueError(f"it sets attributes of {self.call.__name__}")


class _NumberType:
    """Stands in for `numpy.dtype`, whose state could make an array of numbers one of objects."""

    __slots__ = ("type",)

    def __init__(self, code: str, *_: object) -> None:
        if type(code) is not str or not NUMBER_TYPE.fullmatch(code):
            raise ValueError(f"an array of {str(code)[:40]!r}; only arrays of numbers are read")
        self.type = np.dtype(code)

    def __setstate__(self, state: Sequence[Any]) -> None:
        if state[1] not in ("<", ">", "|", "=") or any(part is not None for part in state[2:5]):
            raise ValueError("an array type with fields; only arrays of numbers are read")
        self.type = self.type.newbyteorder(state[1])


class _Array(list[Any]):
    """Stands in for `numpy.ndarray`: nested lists of numbers, as soon as its bytes are known."""

    __slots__ = ()

    def __setstate__(self, state: Sequence[Any]) -> None:
        _, shape, number_type, fortran, data = state
        self[:] = _numbers(data, number_type, shape, "F" if fortran else "C")


def _numbers(
    data: bytes,
    number_type: _NumberType,
    shape: Sequence[int],
    order: str = "C",
    axes: Sequence[int] | None = None,
) -> list[Any]:
    if not isinstance(data, bytes | bytearray) or not isinstance(number_type, _NumberType) or not shape:
        raise ValueError("an array without plain bytes; only arrays of numbers are read")
    if min(shape) < 0 or max(accumulate(shape, mul)) > max(len(data), MAX_EMPTY_ROWS):
        raise ValueError(f"an array of {len(data):,} bytes whose shape is {str(tuple(shape))[:80]}")
    array = np.frombuffer(data, number_type.type).reshape(shape, order="F" if order == "F" else "C")
    numbers: list[Any] = array.transpose(axes).tolist() if order == "K" and axes else array.tolist()
    return numbers


def _empty_array(kind: object, *_: object) -> _Array:
    if kind is not NDARRAY:
        raise ValueError("numpy's _reconstruct of another type; only of ndarray is read")
    return _Array()


def _encoded(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise ValueError(f"bytes encoded as {str(encoding)[:40]!r}; only latin1 is read")
    return text.encode("latin1")


NDARRAY = object()  # which pickles name as the type to reconstruct, and never call
WORDS = {
    "collections.OrderedDict": _Word(dict),
    "_codecs.encode": _Word(_encoded),
    "numpy.ndarray": NDARRAY,
    "numpy.dtype": _Word(_NumberType),
}
"""All names that a pickle may use, and what stands for them."""
for _builtins in ("builtins", "__builtin__"):
    WORDS |= {f"{_builtins}.set": _Word(set), f"{_builtins}.frozenset": _Word(frozenset)}
    WORDS[f"{_builtins}.bytes"] = _Word(lambda: b"")  # with a number it would reserve as much memory
for _core in ("numpy.core", "numpy._core"):
    WORDS[f"{_core}.multiarray._reconstruct"] = _Word(_empty_array)
    WORDS[f"{_core}.multiarray.scalar"] = _Word(lambda number_type, data: _numbers(data, number_type, (1,))[0])
    WORDS[f"{_core}.numeric._frombuffer"] = _Word(_numbers)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO, words: Mapping[str, Any]) -> None:
        super().__init__(file)
        self.words = words

    def find_class(self, module: str, name: str) -> Any:
        if (word := self.words.get(f"{module}.{name}")) is None:
            raise ValueError(f"it names {f'{module}.{name}'[:80]}")
        return word


def interpret_pickles(data: bytes, words: Mapping[str, Any] = WORDS) -> Iterator[Any]:
    """Read pickles that stand one after another in a file, as `interpret_pickle` reads one.

    Args:
        data: Of the file.
        words: All names that they may use, and what stands for them.

    Yields:
        The value of each.

    Raises:
        ValueError: One is damaged, ends too early or uses anything else.
    """
    file = io.BytesIO(data)
    while (start := file.tell()) < len(data):
        try:
            for operation, argument, position in pickletools.genops(file):
                # Python reserves memory for as many values as a file says that it will number.
                at = (position or 0) - start
                if operation.name in {"PUT", "BINPUT", "LONG_BINPUT"} and (argument or 0) > at:
                    raise ValueError(f"a memo of {argument:,} places after {at:,} bytes")
            file.seek(start)
            yield _Unpickler(file, words).load()
        except ValueError:
            raise
        except Exception as error:  # operations that do not fit together fail with any error
            raise ValueError(f"it is damaged ({type(error).__name__}: {str(error)[:200]})") from None


def interpret_pickle(data: bytes) -> Any:
    """Read a pickle of built-in containers, text and numbers without running any code of it.

    Args:
        data: The pickle, of any protocol.

    Returns:
        The pickled value; arrays as nested lists.

    Raises:
        ValueError: The pickle is damaged or uses anything else.

    Example:
        >>> interpret_pickle(pickle.dumps({("a", 1): np.array([[1, 2], [3, 4]])}))
        {('a', 1): [[1, 2], [3, 4]]}
    """
    for value in interpret_pickles(data):
        return value
    raise ValueError("it is empty")
