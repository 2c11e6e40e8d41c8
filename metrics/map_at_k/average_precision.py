"""Average precision at K over all queries at once, in NumPy: from integer codes to one value per query."""

from dataclasses import dataclass

import numpy as np

QUERIES_PER_BLOCK = 16384  # keeps memory flat
NOTHING = -1  # fills the end of short rankings


@dataclass(frozen=True, eq=False)
class Hits:
    """Each relevant id that a ranking holds, and how many there are to find.

    `query`, `rank` (1-based) and `precision` (at that rank) are `(num_hits,)`; `num_relevant` is `(num_queries,)`.
    """

    query: np.ndarray
    rank: np.ndarray
    precision: np.ndarray
    num_relevant: np.ndarray


def average_precision_at(hits: Hits, k: int) -> np.ndarray:
    """AP@K of each query: the precisions at the ranks of its hits up to K, over min(num_relevant, K).

    Shape `(num_queries,)`, float64 in [0, 1]; NaN where a query has no relevant id.
    The denominator is that of the CIRCO and the TF-CoVR benchmarks.

    Example:
        >>> rankings = np.array([[1, 9, 2, 8, 3, 7]])
        >>> hits = find_hits(rankings, np.array([1, 2, 3]), np.array([3]))
        >>> average_precision_at(hits, 3).round(6)
        array([0.555556])
    """
    counted = np.where(hits.rank <= k, hits.precision, 0.0)
    return _ratio(np.bincount(hits.query, counted, len(hits.num_relevant)), np.minimum(hits.num_relevant, k))


def recall_at(hits: Hits, k: int) -> np.ndarray:
    """R@K of each query: the share of its relevant ids among the first K; NaN where it has none.

    With one relevant id per query this is the usual "found in the first K".
    """
    found = np.bincount(hits.query[hits.rank <= k], minlength=len(hits.num_relevant))
    return _ratio(found, hits.num_relevant)


def find_hits(
    rankings: np.ndarray,
    relevant: np.ndarray,
    num_relevant: np.ndarray,
    *,
    excluded: np.ndarray | None = None,
    allow_duplicates: bool = False,
) -> Hits:
    """Find the relevant ids in the rankings.

    Args:
        rankings: Codes `(num_queries, num_ranks)`, best first; short rankings end in -1.
        relevant: Codes of all queries' relevant ids, end to end.
        num_relevant: How many of them each query has, `(num_queries,)`.
        excluded: One code per query to take out of its ranking, so that later ranks move up.
        allow_duplicates: Count an id each time it is ranked, instead of refusing the ranking.

    Raises:
        ValueError: If a ranking holds an id twice, naming the query and the ranks.
    """
    starts = np.concatenate(([0], np.cumsum(num_relevant)))
    blocks = []
    for first in range(0, len(rankings), QUERIES_PER_BLOCK):
        block = slice(first, min(first + QUERIES_PER_BLOCK, len(rankings)))
        if not allow_duplicates:
            _refuse_duplicates(rankings[block], first)
        removed = None if excluded is None else excluded[block]
        query, rank, precision = _hits_of_block(rankings[block], relevant, starts[block], num_relevant[block], removed)
        blocks.append((query + first, rank, precision))
    empty = np.zeros(0, dtype=np.int64)
    columns = zip(*(blocks or [(empty, empty, empty)]), strict=True)
    query, rank, precision = (np.concatenate(column) for column in columns)
    return Hits(query, rank, precision, num_relevant)


def _refuse_duplicates(rankings: np.ndarray, first_query: int) -> None:
    ordered, width = np.sort(rankings, axis=1).ravel(), rankings.shape[1]
    equal = np.flatnonzero(ordered[1:] == ordered[:-1])  # end to end, twice as fast as row by row
    equal = equal[((equal + 1) % width != 0) & (ordered[equal] != NOTHING)]
    for place in equal[:1]:
        row = place // width
        ranks = np.flatnonzero(rankings[row] == ordered[place]) + 1
        raise ValueError(
            f"the ranking of query {first_query + row} holds the same id at ranks {ranks.tolist()}; "
            "rank each item of a gallery without duplicates once"
        )


def _hits_of_block(
    rankings: np.ndarray,
    relevant: np.ndarray,
    starts: np.ndarray,
    num_relevant: np.ndarray,
    excluded: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # Queries with many relevant ids come first, so the n-th relevant ids belong to a prefix of the rows.
    order = np.argsort(-num_relevant, kind="stable")
    rankings, starts, num_relevant = rankings[order], starts[order], num_relevant[order]
    is_hit, is_nth = np.zeros(rankings.shape, dtype=bool), np.empty(rankings.shape, dtype=bool)
    for nth in range(num_relevant.max(initial=0)):
        rows = np.searchsorted(-num_relevant, -nth)
        np.equal(rankings[:rows], relevant[starts[:rows] + nth, None], out=is_nth[:rows])
        np.logical_or(is_hit[:rows], is_nth[:rows], out=is_hit[:rows])
    is_excluded = None if excluded is None else rankings == excluded[order, None]
    if is_excluded is not None:
        is_hit &= ~is_excluded
    row, column = np.divmod(np.flatnonzero(is_hit), max(rankings.shape[1], 1))
    rank = column + 1
    if is_excluded is not None:
        rank -= np.cumsum(is_excluded, axis=1)[row, column]
    found = np.bincount(row, minlength=len(rankings))
    first_of_row = (np.cumsum(found) - found)[row]
    precision = (np.arange(len(row)) - first_of_row + 1) / rank
    return order[row], rank, precision


def _ratio(numerators: np.ndarray, denominators: np.ndarray) -> np.ndarray:
    ratios: np.ndarray = np.divide(
        numerators, denominators, out=np.full(len(numerators), np.nan), where=denominators > 0
    )
    return ratios
