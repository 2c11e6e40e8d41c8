"""FineDiving: dives of international competitions (Xu et al., CVPR 2022), one clip each.

The annotation is published as pickle files. A pickle is a program, so they are read by an interpreter that knows
no other words than built-in containers, numbers, text and arrays of numbers; anything else is refused.
"""

import pickle
import pickletools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from hf_datasets.records import Clip, Rejection
from hf_datasets.sources.values import identifier, shorten, text

MAX_BYTES = 1 << 26
MAX_OPERATIONS = 50_000_000
NUMBER_TYPE = re.compile(r"[<>|=]?(?:b1|[iu][1248]|f[248]|bool|u?int(?:8|16|32|64)|float(?:16|32|64))")


class _NumberType:
    """Stands in for `numpy.dtype`: a type of plain numbers and its byte order, nothing that could hold objects."""

    def __init__(self, code: str, *_: object) -> None:
        if not isinstance(code, str) or not NUMBER_TYPE.fullmatch(code):
            raise pickle.UnpicklingError(f"an array of {code!r}; only arrays of numbers are read")
        self.type = np.dtype(code)

    def __setstate__(self, state: Sequence[Any]) -> None:
        if state[1] not in {"<", ">", "|", "="} or any(part is not None for part in state[2:5]):
            raise pickle.UnpicklingError("an array type with fields; only arrays of numbers are read")
        self.type = self.type.newbyteorder(state[1])


class _Array(list[Any]):
    """Stands in for `numpy.ndarray`: becomes nested lists of numbers once its bytes are known and checked."""

    def __setstate__(self, state: Sequence[Any]) -> None:
        _, shape, number_type, fortran, data = state
        self[:] = _numbers(data, number_type, shape, "F" if fortran else "C")


class _Word:
    """A function that a pickle may call, but whose attributes it cannot set."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    def __setstate__(self, state: object) -> NoReturn:
        raise pickle.UnpicklingError(f"it sets attributes of {self.function.__name__}")


def _numbers(data: bytes, number_type: _NumberType, shape: Sequence[int], order: str = "C") -> list[Any]:
    if not isinstance(data, bytes | bytearray) or not isinstance(number_type, _NumberType) or len(shape) == 0:
        raise pickle.UnpicklingError("an array without plain bytes; only arrays of numbers are read")
    return np.frombuffer(data, number_type.type).reshape(shape, order="F" if order == "F" else "C").tolist()


def _number(number_type: _NumberType, data: bytes) -> Any:
    return _numbers(data, number_type, (1,))[0]


def _empty_array(kind: type, _shape: object, _type: object) -> _Array:
    if kind is not _Array:
        raise pickle.UnpicklingError(f"numpy's _reconstruct of {kind!r}; only of ndarray is read")
    return _Array()


def _empty_bytes() -> bytes:
    return b""


def _encoded(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes encoded as {encoding!r}; only latin1 is read")
    return text.encode("latin1")


WORDS: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): dict,
    ("_codecs", "encode"): _Word(_encoded),
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _NumberType,
}
"""All that a pickle may ask for, and what it gets instead."""
for _name, _word in {"set": set, "frozenset": frozenset, "bytes": _Word(_empty_bytes)}.items():
    WORDS["builtins", _name] = WORDS["__builtin__", _name] = _word
for _core in ("numpy.core", "numpy._core"):
    WORDS[f"{_core}.multiarray", "_reconstruct"] = _Word(_empty_array)
    WORDS[f"{_core}.multiarray", "scalar"] = _Word(_number)
    WORDS[f"{_core}.numeric", "_frombuffer"] = _Word(_numbers)


class NumbersUnpickler(pickle.Unpickler):
    """Unpickles built-in containers and arrays of numbers, the latter as nested lists; refuses all else."""

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for an allowed name.

        Raises:
            pickle.UnpicklingError: The pickle asks for any other name.
        """
        if (module, name) not in WORDS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return WORDS[module, name]

    def persistent_load(self, pid: object) -> NoReturn:
        """Refuse objects that live outside the file.

        Raises:
            pickle.UnpicklingError: Always.
        """
        raise pickle.UnpicklingError(f"it refers to an outside object {pid!r}")


def read_pickle(path: Path) -> Any:
    """Read a pickle of built-in containers and arrays of numbers without running any code of it.

    Args:
        path: A pickle file of at most 64 MiB.

    Returns:
        What was pickled; arrays as nested lists.

    Raises:
        ValueError: The file asks for anything else, is too large, damaged or no pickle.
    """
    size = path.stat().st_size
    if not 0 < size <= MAX_BYTES:
        raise ValueError(f"{path} has {size:,} bytes; an annotation has 1 to {MAX_BYTES:,}. Fetch it again")
    try:
        with path.open("rb") as file:
            _check_memory(file.read())
            file.seek(0)
            return NumbersUnpickler(file).load()
    except Exception as error:  # a hostile pickle can make the interpreter fail in any way
        raise ValueError(
            f"{path} is refused: {error}. Only built-in containers and arrays of numbers are read from a pickle; "
            "obtain the annotation from FineDiving's authors"
        ) from None


def _check_memory(data: bytes) -> None:
    # The interpreter reserves memory for the highest memo index, used or not.
    highest = count = 0
    for operation, argument, _ in pickletools.genops(data):
        count += 1
        if operation.name.endswith("BINPUT") or operation.name == "PUT":
            highest = max(highest, int(argument))
    if highest > count or count > MAX_OPERATIONS:
        raise pickle.UnpicklingError(f"{count:,} operations with a memo of {highest:,} places")


def read_finediving(annotation: Path, *, descriptions: Mapping[str, str]) -> Iterator[Clip | Rejection]:
    """Read the dives of FineDiving whose action type is among `descriptions`.

    A clip is its own file or folder of frames, named `<competition>_<instance>`, so it has no span; its
    `video_id` is the competition, the long video by which TF-CoVR splits.

    Args:
        annotation: `FineDiving_fine-grained_annotation.pkl`, or the coarse one.
        descriptions: Label id -> text, the classes to keep.

    Yields:
        A clip for each dive, and a rejection for whatever could not be used, in the order of the file.

    Raises:
        ValueError: The file is refused (see `read_pickle`) or holds no mapping of dives.
    """
    dives = read_pickle(annotation)
    if not isinstance(dives, dict) or not dives:
        raise ValueError(f"{annotation} holds no dives; FineDiving_fine-grained_annotation.pkl does")
    seen = set()
    for key, dive in dives.items():
        raw = shorten(dive)
        try:
            competition, instance = key if isinstance(key, tuple) else ()
            name = f"{text(competition)}_{identifier(instance)}"
        except ValueError:
            yield Rejection(
                f"malformed key: {shorten(key)} of {annotation.name} is not (competition, instance)",
                raw,
                shorten(key),
            )
            continue
        label = dive.get("action_type") if isinstance(dive, dict) else None
        if not isinstance(label, str):
            yield Rejection(f"no action type: {name} of {annotation.name}", raw, name)
        elif label not in descriptions:
            yield Rejection(
                f"class outside the label set: {name} of {annotation.name} has {shorten(label)}", raw, name
            )
        elif name in seen:
            yield Rejection(f"duplicate clip id: {name} of {annotation.name}; the first is kept", raw, name)
        else:
            seen.add(name)
            yield Clip(name, competition, label)
