"""The k best rows of a corpus, kept while its scores come block by block: exact, and little beside the products."""

import numpy as np
import torch
from torch import Tensor

MOST_CANDIDATES = 2**18  # that wait to be sorted in, with their padding: a few MB whatever k is
TIED_BLOCK = 64
ALL_OF_EIGHT = np.ones(8, bool).view(np.uint64)[0]


class BestRows:
    """The k best rows of a corpus so far for each query, of scores that come a block of the corpus at a time.

    After the first rows few scores beat the worst one kept. They are found in one pass, while the scores are in the
    processor's cache, and wait in the order of the corpus until there are enough to be sorted in.
    """

    def __init__(self, num_queries: int, k: int, device: torch.device) -> None:
        self.scores = torch.full((num_queries, k), -torch.inf, device=device)
        self.rows = torch.full((num_queries, k), -1, dtype=torch.int64, device=device)
        self.room = MOST_CANDIDATES // num_queries
        self.waiting_scores = torch.full((num_queries, self.room), -torch.inf, device=device)
        self.waiting_rows = torch.full((num_queries, self.room), -1, dtype=torch.int64, device=device)
        self.first_places = torch.arange(num_queries, device=device) * self.room
        self.counts = torch.zeros(num_queries, dtype=torch.int64, device=device)  # of those that wait

    def add(self, scores: Tensor, start: int) -> None:
        """Add the scores `(Q, N)` of the rows of the corpus from `start` on."""
        k = self.scores.shape[1]
        least = _below_best(scores, k) if start == 0 else self.scores[:, -1:]
        found = _above(scores, least)
        query = found.div(scores.shape[1], rounding_mode="trunc")
        counts = query.bincount(minlength=len(scores))
        if (self.counts + counts).max() > self.room:
            self.sort_in()
        if counts.max() > self.room:
            values, columns = stable_topk(scores, min(k, scores.shape[1]))
            _check_overflow(values)
            self._merge(values, columns + start)
            return
        values = scores.flatten().index_select(0, found)
        _check_overflow(values)
        shift = self.first_places + self.counts - (counts.cumsum(0) - counts)
        place = torch.arange(len(query), device=query.device) + shift.index_select(0, query)
        self.waiting_scores.view(-1).scatter_(0, place, values)
        self.waiting_rows.view(-1).scatter_(0, place, found - query * scores.shape[1] + start)
        self.counts += counts
        if start == 0 or self.counts.sum() > self.scores.numel():  # the worst ones kept are out of date
            self.sort_in()

    def sort_in(self) -> None:
        """Sort in those that wait."""
        width = int(self.counts.max())
        self._merge(self.waiting_scores[:, :width], self.waiting_rows[:, :width])
        self.waiting_scores[:, :width] = -torch.inf
        self.counts.zero_()

    def _merge(self, scores: Tensor, rows: Tensor) -> None:
        # Earlier rows stand first, so a stable sort keeps equal scores in the order of the corpus.
        k = self.scores.shape[1]
        scores, rows = torch.cat([self.scores, scores], 1), torch.cat([self.rows, rows], 1)
        order = _stable_order(scores)[:, :k]
        self.scores, self.rows = scores.gather(1, order), rows.gather(1, order)


def _below_best(scores: Tensor, k: int) -> Tensor:
    """For each row `(Q, N)` a number that the k best are above: just below the k-th best of maxima of groups."""
    groups, size = 2 * k, scores.shape[1] // (2 * k)
    if size < 2:
        return scores.new_full((len(scores), 1), -torch.inf)
    maxima = scores[:, : groups * size].unflatten(1, (size, groups)).amax(1)
    kth = _stable_order(maxima)[:, k - 1 : k]
    below: Tensor = maxima.gather(1, kth).nextafter(scores.new_tensor(-torch.inf))
    return below


def _above(scores: Tensor, least: Tensor) -> Tensor:
    """Where the flat scores `(Q, N)` are above `(Q, 1)`, or NaN; in order."""
    if not scores.is_cpu:
        found: Tensor = (scores <= least).logical_not_().flatten().nonzero()[:, 0]
        return found
    # NumPy is far faster than torch at finding few among many, and most of all eight at a time.
    worse = np.less_equal(scores.numpy(), least.numpy()).reshape(-1)
    if len(worse) % 8:
        return torch.from_numpy(np.flatnonzero(~worse))
    eights = np.flatnonzero(worse.view(np.uint64) != ALL_OF_EIGHT)
    within = np.flatnonzero(~worse.reshape(-1, 8)[eights])
    return torch.from_numpy(eights[within >> 3] * 8 + (within & 7))


def _stable_order(scores: Tensor) -> Tensor:
    """The columns of each row `(Q, N)`, the largest first and equal ones in order; none is NaN."""
    if not scores.is_cpu:
        order: Tensor = scores.sort(dim=1, descending=True, stable=True)[1]
        return order
    # NumPy sorts whole numbers ten times faster than torch floats: the score, as a number that falls when it rises,
    # and behind it the column.
    bits = (scores.numpy() + np.float32(0)).view(np.int32)  # -0.0 becomes 0.0, to which it is equal
    keys = (~(bits ^ ((bits >> 31) & 0x7FFFFFFF))).astype(np.int64) << 32 | np.arange(scores.shape[1])
    keys.sort(axis=1)
    return torch.from_numpy(keys & 0xFFFFFFFF)


def _check_overflow(scores: Tensor) -> None:
    if not (scores < torch.inf).all():
        raise ValueError("some scores overflow float32, so they cannot be ranked; normalize the embeddings first")


def stable_topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`torch.topk` with equal scores in the order of their columns, which it does not promise itself."""
    values, columns = scores.topk(min(k + 1, scores.shape[1]), dim=1)
    tied = values[:, k - 1] == values[:, k] if values.shape[1] > k else torch.zeros(len(scores), dtype=torch.bool)
    values, columns = values[:, :k], columns[:, :k]
    columns, order = columns.sort(dim=1)
    values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    columns = columns.gather(1, order)
    # A tie across the cut: which of the equal columns topk kept is its own choice, so these rows are sorted whole.
    for rows in tied.nonzero()[:, 0].split(TIED_BLOCK):
        sorted_values, sorted_columns = scores[rows].sort(dim=1, descending=True, stable=True)
        values[rows], columns[rows] = sorted_values[:, :k], sorted_columns[:, :k]
    return values, columns
