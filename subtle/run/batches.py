"""Batches of whatever arrives."""

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

Element = TypeVar("Element")


def batched(items: Iterable[Element], size: int) -> Iterator[list[Element]]:
    """Lists of at most `size` items, as `itertools.batched` of Python 3.12.

    Example:
        >>> list(batched("abcde", 2))
        [['a', 'b'], ['c', 'd'], ['e']]
    """
    rest = iter(items)
    while batch := list(itertools.islice(rest, size)):
        yield batch
