"""Filters of a search: the part of SQL that moments are chosen by, parsed and written again for the store."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .durability import is_damage

CONDITION_COLUMNS = ("moment_id", "video", "start_seconds", "end_seconds", "label", "text", "modified", "fingerprint")
LONGEST_CONDITION = 20_000
MOST_LEVELS = 200
OPERATORS = (
    *("And", "Or", "Not", "Paren", "EQ", "NEQ", "LT", "LTE", "GT", "GTE", "In", "Like", "ILike", "Between"),
    *("Is", "Null", "Boolean", "Literal", "Column", "Identifier", "Neg", "Add", "Sub", "Mul", "Div"),
)
FUNCTIONS = ("Lower", "Upper", "Length", "Abs", "Coalesce", "Contains", "StartsWith", "EndsWith")
ALLOWED = (
    f"it may have the columns {', '.join(CONDITION_COLUMNS)}, numbers, texts in single quotes, timestamp '2026-01-31', "
    "+ - * /, comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL, lower, upper, length, abs, coalesce, contains, "
    "starts_with and ends_with"
)


def checked_filter(text: str) -> str:
    """The same condition as the store is given it.

    Example:
        >>> checked_filter("label = 'vault' AND NOT starts_with(video, 'old/')")
        "label = 'vault' AND NOT STARTS_WITH(video, 'old/')"

    Args:
        text: A condition in SQL.

    Raises:
        ImportError: sqlglot is not installed.
        ValueError: It is none, or has what a filter does not need.
    """
    try:
        import sqlglot
        from sqlglot import exp
    except ImportError as error:
        raise ImportError("a filter needs sqlglot: pip install 'subtle-video[index]'") from error
    shown = text if len(text) <= 200 else f"{text[:200]}..."
    if len(text) > LONGEST_CONDITION:
        raise ValueError(f"the filter {shown} has {len(text):,} characters; it may have {LONGEST_CONDITION:,}")
    try:
        tree = sqlglot.parse_one(text, dialect="postgres", into=exp.Condition)
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise ValueError(f"the filter {shown} is not understood; {ALLOWED}") from error
    for node in tree.walk():
        if isinstance(node, exp.Column) and (node.name.lower() not in CONDITION_COLUMNS or len(node.parts) > 1):
            raise ValueError(f"the filter {shown} is not understood: there is no column {node.sql()}; {ALLOWED}")
        if not _is_allowed(node) and not (node.parent is not None and _is_time(node.parent)):
            what = node.name if isinstance(node, exp.Anonymous) else type(node).__name__.upper()
            raise ValueError(f"the filter {shown} is not understood: {what} is not allowed; {ALLOWED}")
        if node.depth > MOST_LEVELS:
            raise ValueError(f"the filter {shown} has more than {MOST_LEVELS} levels; write IN for many values")
    return str(tree.sql(dialect="postgres", comments=False))


@contextmanager
def understood(condition: str) -> Iterator[None]:
    """Name a condition that the store refuses.

    Raises:
        ValueError: It does; without a condition the index is damaged.
        RuntimeError: A file of the store is damaged or gone.
        OSError: The same.
    """
    try:
        yield
    except (ValueError, RuntimeError, OSError) as error:
        if is_damage(error):
            raise
        if not condition:
            raise ValueError(f"the index is damaged ({str(error).partition(chr(10))[0]}); make it again") from error
        reason = str(error).removeprefix("Invalid input, ").partition("\n")[0]
        raise ValueError(f"the filter {condition} is not understood: {reason}") from error


def _is_allowed(node: Any) -> bool:
    return type(node).__name__ in {*OPERATORS, *FUNCTIONS} or _is_time(node)


def _is_time(node: Any) -> bool:
    is_cast = type(node).__name__ == "Cast" and type(node.this).__name__ == "Literal"
    return is_cast and node.to.sql() in {"TIMESTAMP", "TIMESTAMPTZ", "DATE"}
