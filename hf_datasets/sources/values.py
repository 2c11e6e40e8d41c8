"""Checks of values in annotation files: most return a value of the expected kind or raise a ValueError."""

import json
import math
import reprlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from hf_datasets.records import Moment, Rejection

MAX_DIGITS = 400
"""Whole numbers with more digits are read as infinite: no time or id is as large, and Python refuses to print them."""
MAX_RAW_CHARACTERS = 2_000
MAX_INT64 = 2**63 - 1


class _Shortener(reprlib.Repr):
    """Writes out the beginning of a value, at no greater cost however large the rest is."""

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        written = super().repr_dict(dict(islice(x.items(), self.maxdict)), level)
        return written if len(x) <= self.maxdict else f"{written[:-1]}, ...}}"

    def repr_set(self, x: set[Any], level: int) -> str:
        return super().repr_set(set(islice(x, self.maxset)), level)

    def repr_frozenset(self, x: frozenset[Any], level: int) -> str:
        return super().repr_frozenset(frozenset(islice(x, self.maxfrozenset)), level)

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to print more digits.
        return super().repr_int(x, level) if x.bit_length() < 3 * MAX_DIGITS else f"a number of {x.bit_length():,} bits"

    def repr_bytes(self, x: bytes, _level: int) -> str:
        return repr(x[: self.maxstring])

    repr_bytearray = repr_bytes


SHORT = _Shortener()
SHORT.maxlevel = 2  # more would blow up on lists that share their items


def load_json(path: str | Path) -> Any:
    """Read a JSON file.

    Raises:
        ValueError: It is not UTF-8, not JSON, or nested too deeply; the file is named.
    """
    try:
        return parse_json(Path(path).read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a JSON file ({error}); fetch it again") from None


def lines_of(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file that are not empty.

    Yields:
        The number of the line, from 1, and the line with its end.

    Raises:
        ValueError: It is not UTF-8; the file is named.
    """
    try:
        with Path(path).open(encoding="utf-8-sig") as lines:
            yield from ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error}); fetch it again") from None


def checked_moment(moment: Moment, raw: str, key: str) -> Moment | Rejection:
    """The moment, or the rejection of one without an id, a caption or a length; its end may lie beyond the video."""
    reason = None
    if not moment.video_id.strip():
        reason = "empty video id"
    elif not moment.coarse_caption.strip():
        reason = "empty caption"
    elif not 0 <= moment.start_seconds < moment.end_seconds:
        reason = "the moment does not end after it starts"
    elif not moment.duration_seconds > 0:
        reason = "the video's duration is not a positive number"
    return Rejection(f"{reason}: {key}", raw, key) if reason else moment


def parse_json(content: str) -> Any:
    """The value of a JSON text.

    Example:
        >>> parse_json('[1, ' + '9' * 5000 + ']')
        [1, inf]

    Raises:
        ValueError: It is not JSON.
        RecursionError: It is nested too deeply.
    """
    return json.loads(content, parse_int=_whole_or_infinite)


def _whole_or_infinite(digits: str) -> int | float:
    return int(digits) if len(digits) <= MAX_DIGITS else math.copysign(math.inf, -1 if digits[0] == "-" else 1)


def number(value: Any) -> float:
    """A finite number, also where it is written as text.

    Example:
        >>> number(3), number("2.5")
        (3.0, 2.5)

    Raises:
        ValueError: It is something else.
    """
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            found = float(value)
        except (ValueError, OverflowError):
            found = math.nan
        if math.isfinite(found):
            return found
    raise ValueError(f"{shorten(value)} is not a finite number")


def whole(value: Any) -> int:
    """A whole number of at most 64 bits, also where it is written as text or as a float.

    Example:
        >>> whole(3), whole("12"), whole(4.0)
        (3, 12, 4)

    Raises:
        ValueError: It is something else.
    """
    exact = int(value) if isinstance(value, str) and value.strip().lstrip("-").isdecimal() else value
    if isinstance(exact, float) and exact.is_integer():
        exact = int(exact)
    if isinstance(exact, int) and not isinstance(exact, bool) and abs(exact) <= MAX_INT64:
        return exact
    raise ValueError(f"{shorten(value)} is not a whole number of 64 bits")


def text(value: Any) -> str:
    """A text that can be stored as UTF-8.

    Raises:
        ValueError: It is something else, or has half a surrogate pair.
    """
    if not isinstance(value, str):
        raise ValueError(f"{shorten(value)} is not a text")
    if not is_utf8(value):
        raise ValueError(f"{shorten(value)} has half a character")
    return value


def identifier(value: Any) -> str:
    """An id: a text, or a whole number as text.

    Example:
        >>> identifier("v_1"), identifier(7)
        ('v_1', '7')

    Raises:
        ValueError: It is something else.
    """
    return text(value) if isinstance(value, str) else str(whole(value))


def list_of(value: Any) -> list[Any]:
    """A list; texts and dictionaries, which can be iterated over as well, are refused.

    Raises:
        ValueError: It is something else.
    """
    if not isinstance(value, list | tuple):
        raise ValueError(f"{shorten(value)} is not a list")
    return list(value)


def is_utf8(value: str) -> bool:
    """Whether a text has no half of a surrogate pair, which JSON can express but no file can store."""
    return not any("\ud800" <= character <= "\udfff" for character in value) if not value.isascii() else True


def shorten(value: Any) -> str:
    """A value in a message: one line, a few words."""
    try:
        return SHORT.repr(value).encode("utf-8", "backslashreplace").decode()
    except ValueError:  # a number with more digits than Python prints
        return f"a {type(value).__name__}"


def raw_of(value: Any) -> str:
    """The input of a rejection: as JSON, at most `MAX_RAW_CHARACTERS` long, storable as UTF-8."""
    try:
        found = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        found = shorten(value)
    return found[:MAX_RAW_CHARACTERS].encode("utf-8", "backslashreplace").decode("utf-8")
