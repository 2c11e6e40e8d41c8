"""Pickles of built-in containers, text and arrays of numbers, read without running them.

A pickle is a program for a stack machine. Here that machine is implemented with only the operations that such data
needs, so a file can only describe plain values, up to a limit: its operations, the items that
they copy and the levels of nesting are counted, and keys are of kinds whose hash is quick and cannot be chosen.
"""

import math
import pickletools
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np

MAX_OPERATIONS = 3_000_000
MAX_ITEMS = 5_000_000  # lists and numbers of all arrays, and what calls copy
BYTES_PER_ITEM = 8
MAX_DEPTH = 32
MAX_INTEGER_BITS = 1329  # 400 digits; larger ones are read as infinite, as from JSON
MAX_KEY_PARTS = 4
LEAVES = {str, bytes, bytearray, int, float, bool, type(None)}
NUMBER_TYPE = re.compile(r"[<>|=]?(?:b1|[iu][1248]|f[248]|bool|u?int(?:8|16|32|64)|float(?:16|32|64))")


class _NumberType:
    """Stands in for `numpy.dtype`: a type of plain numbers and its byte order, no type that could hold objects."""

    def __init__(self, code: str) -> None:
        if type(code) is not str or not NUMBER_TYPE.fullmatch(code):
            raise ValueError(f"an array of {_named(code)}; only arrays of numbers are read")
        self.type = np.dtype(code)

    def set_state(self, state: Sequence[Any]) -> None:
        if state[1] not in ("<", ">", "|", "=") or any(part is not None for part in state[2:5]):
            raise ValueError("an array type with fields; only arrays of numbers are read")
        self.type = self.type.newbyteorder(state[1])


class _Array(list[Any]):
    """Stands in for `numpy.ndarray`: becomes nested lists of numbers once its bytes are known and checked."""


class _Word:
    """Stands in for a function or a class that a pickle may name."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call


class _Machine:
    """The stack machine of pickles: its stack, the stacks below its open marks, and its memo."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.below_marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.items = 0
        self.operations = 0

    def run(self, name: str, argument: Any) -> None:
        self.operations += 1
        if self.operations > MAX_OPERATIONS:
            raise ValueError(f"it has more than {MAX_OPERATIONS:,} operations")
        if name in VALUES:
            self.stack.append(_checked_value(name, argument))
        elif name in EMPTY:
            self.stack.append(EMPTY[name]())
        elif name in OPERATIONS:
            OPERATIONS[name](self, argument)
        else:
            raise ValueError(f"it holds the operation {name}")

    def count(self, items: int) -> None:
        self.items += items
        if self.items > MAX_ITEMS:
            raise ValueError(f"it describes more than {MAX_ITEMS:,} items")

    def mark(self, _: None) -> None:
        if len(self.below_marks) == MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
        self.below_marks.append(self.stack)
        self.stack = []

    def pop_to_mark(self, _: None = None) -> list[Any]:
        items, self.stack = self.stack, self.below_marks.pop()
        return items

    def pop_mark(self, _: None) -> None:
        self.pop_to_mark()

    def pop(self, _: None) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.pop_to_mark()

    def make_list(self, _: None) -> None:
        items = self.pop_to_mark()
        self.stack.append(items)

    def make_tuple(self, _: None) -> None:
        items = self.pop_to_mark()
        self.stack.append(tuple(items))

    def make_short_tuple(self, length: int) -> None:
        items = [self.stack.pop() for _ in range(length)]
        self.stack.append(tuple(reversed(items)))

    def make_dict(self, _: None) -> None:
        items = self.pop_to_mark()
        self.stack.append({})
        self.set_items(items)

    def make_frozenset(self, _: None) -> None:
        items = self.pop_to_mark()
        self.stack.append(frozenset(map(_checked_key, items)))

    def append(self, items: list[Any]) -> None:
        self.top(list).extend(items)

    def add(self, items: list[Any]) -> None:
        self.top(set).update(map(_checked_key, items))

    def set_items(self, items: list[Any]) -> None:
        target = self.top(dict)
        expected = len(target) + len(items) // 2
        target.update(zip(map(_checked_key, items[::2]), items[1::2], strict=True))
        if len(target) != expected:
            raise ValueError("it gives a key twice")

    def top(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            raise ValueError(f"it adds items to a {type(self.stack[-1]).__name__} as if it were a {kind.__name__}")
        return self.stack[-1]

    def put(self, index: int | None) -> None:
        index = len(self.memo) if index is None else index
        if index > self.operations:
            raise ValueError(f"{self.operations:,} operations with a memo of {index:,} places")
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> None:
        self.stack.append(self.memo[index])

    def name_word(self, name: str | None) -> None:
        if name is None:
            attribute, module = self.stack.pop(), self.stack.pop()
            if type(module) is not str or type(attribute) is not str:
                raise ValueError(f"it names {_named(attribute)} of {_named(module)}")
            name = f"{module} {attribute}"
        if name not in WORDS:
            raise ValueError(f"it names {name.replace(' ', '.')[:80]}")
        self.stack.append(WORDS[name])

    def call(self, _: None) -> None:
        arguments, word = self.stack.pop(), self.stack.pop()
        if not isinstance(word, _Word) or type(arguments) is not tuple:
            raise ValueError(f"it calls a {type(word).__name__}")
        self.stack.append(word.call(self, *arguments))

    def build(self, _: None) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, _Array):
            _, shape, number_type, fortran, data = state
            target[:] = _numbers(self, data, number_type, shape, "F" if fortran else "C")
        elif isinstance(target, _NumberType):
            target.set_state(state)
        else:
            named = target.call if isinstance(target, _Word) else type(target)
            raise ValueError(f"it sets attributes of {named.__name__}")


def _named(value: Any) -> str:
    # What a hostile file holds may be too large to write out.
    return repr(value[:40]) if type(value) is str else f"a {type(value).__name__}"


def _checked_value(name: str, value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
        return math.copysign(math.inf, value > 0 or -1)
    if name in TEXTS_OF_PYTHON_2 and not value.isascii():
        raise ValueError("it holds text of Python 2 that is not ASCII")
    return value


def _checked_key(key: Any) -> Any:
    # The hash of long or nested tuples is slow, and large numbers can be chosen to have the same.
    if type(key) is tuple:
        is_quick = 0 < len(key) <= MAX_KEY_PARTS and type(key[0]) is str and all(map(_is_quick, key))
    else:
        is_quick = _is_quick(key)
    if not is_quick:
        raise ValueError(
            f"a {type(key).__name__} is a key; a key is text, bytes, a number of at most 64 bits, "
            f"or a tuple of at most {MAX_KEY_PARTS} of these that begins with text"
        )
    return key


def _is_quick(key: Any) -> bool:
    return type(key) in LEAVES - {int, bytearray} or (type(key) is int and key.bit_length() <= 64)


def _numbers(
    machine: _Machine,
    data: bytes,
    number_type: _NumberType,
    shape: Sequence[int],
    order: str = "C",
    axes: Sequence[int] | None = None,
) -> list[Any]:
    if not isinstance(data, bytes | bytearray) or not isinstance(number_type, _NumberType) or not shape:
        raise ValueError("an array without plain bytes; only arrays of numbers are read")
    if len(shape) > MAX_DEPTH or any(type(size) is not int or size < 0 for size in shape):
        raise ValueError(f"an array whose shape is not at most {MAX_DEPTH} whole numbers")
    machine.count(sum(accumulate(shape, mul)))  # every list counts: there may be many without a number
    array = np.frombuffer(data, number_type.type).reshape(shape, order="F" if order == "F" else "C")
    numbers: list[Any] = array.transpose(axes).tolist() if order == "K" and axes else array.tolist()
    return numbers


def _number(machine: _Machine, number_type: _NumberType, data: bytes) -> Any:
    return _numbers(machine, data, number_type, (1,))[0]


def _ndarray(_machine: _Machine, *_: object) -> Any:
    raise ValueError("it calls numpy.ndarray")


def _number_type(_machine: _Machine, code: str, *_: object) -> _NumberType:
    return _NumberType(code)


def _empty_array(_machine: _Machine, kind: _Word, _shape: object, _type: object) -> _Array:
    if kind is not WORDS["numpy ndarray"]:
        raise ValueError("numpy's _reconstruct of another type; only of ndarray is read")
    return _Array()


def _empty_bytes(_machine: _Machine) -> bytes:
    return b""


def _encoded(machine: _Machine, text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise ValueError(f"bytes encoded as {_named(encoding)}; only latin1 is read")
    machine.count(len(text) // BYTES_PER_ITEM)
    return text.encode("latin1")


def _dict(machine: _Machine, pairs: Sequence[Any] = ()) -> dict[Any, Any]:
    machine.count(len(pairs))
    return {_checked_key(key): value for key, value in pairs}


def _set(machine: _Machine, items: Sequence[Any] = ()) -> set[Any]:
    machine.count(len(items))
    return set(map(_checked_key, items))


def _frozenset(machine: _Machine, items: Sequence[Any] = ()) -> frozenset[Any]:
    return frozenset(_set(machine, items))


VALUES = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
TEXTS_OF_PYTHON_2 = {"STRING", "BINSTRING", "SHORT_BINSTRING"}
EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": dict,
    "EMPTY_SET": set,
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
}
OPERATIONS: dict[str, Callable[[_Machine, Any], None]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda *_: None),
    "MARK": _Machine.mark,
    "POP": _Machine.pop,
    "POP_MARK": _Machine.pop_mark,
    "DUP": lambda machine, _: machine.stack.append(machine.stack[-1]),
    "LIST": _Machine.make_list,
    "TUPLE": _Machine.make_tuple,
    "TUPLE1": lambda machine, _: machine.make_short_tuple(1),
    "TUPLE2": lambda machine, _: machine.make_short_tuple(2),
    "TUPLE3": lambda machine, _: machine.make_short_tuple(3),
    "DICT": _Machine.make_dict,
    "FROZENSET": _Machine.make_frozenset,
    "APPEND": lambda machine, _: machine.append([machine.stack.pop()]),
    "APPENDS": lambda machine, _: machine.append(machine.pop_to_mark()),
    "ADDITEMS": lambda machine, _: machine.add(machine.pop_to_mark()),
    "SETITEM": lambda machine, _: machine.set_items([machine.stack.pop(), machine.stack.pop()][::-1]),
    "SETITEMS": lambda machine, _: machine.set_items(machine.pop_to_mark()),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _Machine.put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.get),
    **dict.fromkeys(("GLOBAL", "STACK_GLOBAL"), _Machine.name_word),
    "REDUCE": _Machine.call,
    "BUILD": _Machine.build,
}
WORDS = {
    "collections OrderedDict": _Word(_dict),
    "_codecs encode": _Word(_encoded),
    "numpy ndarray": _Word(_ndarray),
    "numpy dtype": _Word(_number_type),
}
"""All names that a pickle may use, and their replacements."""
for _builtins in ("builtins", "__builtin__"):
    WORDS |= {f"{_builtins} set": _Word(_set), f"{_builtins} frozenset": _Word(_frozenset)}
    WORDS[f"{_builtins} bytes"] = _Word(_empty_bytes)
for _core in ("numpy.core", "numpy._core"):
    WORDS[f"{_core}.multiarray _reconstruct"] = _Word(_empty_array)
    WORDS[f"{_core}.multiarray scalar"] = _Word(_number)
    WORDS[f"{_core}.numeric _frombuffer"] = _Word(_numbers)


def interpret_pickle(data: bytes) -> Any:
    """Read a pickle of built-in containers, text and numbers without running any code of it.

    Args:
        data: The pickle, of any protocol.

    Returns:
        The pickled value; arrays as nested lists.

    Raises:
        ValueError: The pickle is damaged, uses anything else or describes too much.

    Example:
        >>> import pickle
        >>> interpret_pickle(pickle.dumps({("a", 1): np.array([[1, 2], [3, 4]])}))
        {('a', 1): [[1, 2], [3, 4]]}
    """
    machine = _Machine()
    try:
        for operation, argument, _ in pickletools.genops(data):
            machine.run(operation.name, argument)
        value = machine.stack.pop()
        _check_plain(value)
    except ValueError:
        raise
    except Exception as error:  # operations that do not fit together fail with any error
        raise ValueError(f"it is damaged ({type(error).__name__}: {error})") from None
    return value


def _check_plain(value: Any) -> None:
    # Level by level, and each value once per level: quick even where values hold one another many times over.
    level = [] if type(value) in LEAVES else [value]
    for _ in range(MAX_DEPTH):
        children = {
            id(child): child for container in level for child in _members(container) if type(child) not in LEAVES
        }
        if not (level := list(children.values())):
            return
    raise ValueError(f"it is nested more than {MAX_DEPTH} deep")


def _members(container: Any) -> Iterable[Any]:
    if isinstance(container, (list, tuple)):
        return container
    if isinstance(container, dict):
        return container.values()
    if isinstance(container, (set, frozenset)):
        return ()  # they were checked as keys
    raise ValueError("it holds a type or a function that it does not call")
