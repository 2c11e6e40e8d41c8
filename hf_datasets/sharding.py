"""The rows of a split in several shards, which the workers of a `DataLoader`, nodes and processes share."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise

import pyarrow as pa

Tables = Callable[[], Iterator[pa.Table]]
"""Returns the rows of a split, in tables, each time it is called; it can be pickled and used after a fork."""
MAX_SHARDS = 16
"""Enough for four nodes with four workers each."""
LEAST_ROWS = 4
"""Rows of a shard, where there are so many; fewer are not worth a worker."""


@dataclass(frozen=True, slots=True)
class Shards:
    """`Tables` in parts that can be read independently of one another.

    Attributes:
        parts: At least one; all of them in order are the rows of the split.
    """

    parts: Sequence[Tables]

    def __call__(self) -> Iterator[pa.Table]:
        """All rows.

        Yields:
            The tables of every part, in order.
        """
        for part in self.parts:
            yield from part()


def shards_of(table: pa.Table, *, least_rows: int = LEAST_ROWS) -> Shards:
    """A table as shards of consecutive rows.

    Args:
        table: The rows.
        least_rows: Of a shard; 1 for rows that stand for much work, such as whole videos.

    Example:
        >>> shards = shards_of(pa.table({"n": range(5)}), least_rows=2)
        >>> [[len(table) for table in part()] for part in shards.parts]
        [[2], [3]]
    """
    return Shards([partial(_slice_of, table, start, stop) for start, stop in even_spans(len(table), least_rows)])


def _slice_of(table: pa.Table, start: int, stop: int) -> Iterator[pa.Table]:
    # The whole table is pickled once for all parts; slices would be pickled one by one, each with the whole buffer.
    yield table.slice(start, stop - start)


def even_spans(count: int, least: int = LEAST_ROWS) -> list[tuple[int, int]]:
    """Cut `count` items into at most `MAX_SHARDS` spans of about the same length, at least `least` where there are.

    Example:
        >>> even_spans(10, 3), even_spans(2, 3)
        ([(0, 3), (3, 6), (6, 10)], [(0, 2)])
    """
    parts = max(1, min(MAX_SHARDS, count // least))
    return list(pairwise(count * part // parts for part in range(parts + 1)))


def weighed_spans(weights: Sequence[int], least: int = LEAST_ROWS) -> list[tuple[int, int]]:
    """Cut items into at most `MAX_SHARDS` spans of about the same sum of weights; none is empty.

    Example:
        >>> weighed_spans([40, 1, 1, 38, 40], 40)
        [(0, 1), (1, 4), (4, 5)]
    """
    ends = list(accumulate(weights))
    if not ends:
        return [(0, 0)]
    places = {sum(end <= stop for end in ends) for _, stop in even_spans(ends[-1], least)} | {len(ends)}
    return list(pairwise([0, *sorted(places - {0})]))
