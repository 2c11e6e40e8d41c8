"""Predictions in the right video and their temporal IoU, for all queries at once, in NumPy."""

from dataclasses import dataclass

import numpy as np

ANNOTATORS_FOR_VOTE = 4  # with this many annotated spans or more, two must agree with a prediction


@dataclass(frozen=True, eq=False)
class Matches:
    """The predictions whose video is the query's, query by query, best first; all `(num_matches,)`.

    `rank` counts from 1 among all predictions, `rank_in_video` among those of the right video; `iou` is float32.
    """

    query: np.ndarray
    rank: np.ndarray
    rank_in_video: np.ndarray
    iou: np.ndarray


def match(
    videos: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    true_videos: np.ndarray,
    spans: np.ndarray,
    num_spans: np.ndarray,
) -> Matches:
    """Find the predictions in the right video and their temporal IoU.

    Args:
        videos: Video codes `(num_queries, num_ranks)`, best first.
        start: Seconds, of the same shape.
        end: Seconds, of the same shape.
        true_videos: Codes `(num_queries,)`.
        spans: True spans of all queries end to end, seconds `(num_spans, 2)`.
        num_spans: How many of them each query has, `(num_queries,)`, at least one.

    Example:
        >>> found = match(np.array([[7, 5, 5]]), np.array([[0.0, 0.0, 2.0]]), np.array([[9.0, 4.0, 5.0]]),
        ...               np.array([5]), np.array([[2.0, 6.0]]), np.array([1]))
        >>> found.rank, found.rank_in_video, found.iou.tolist()
        (array([2, 3]), array([1, 2]), [0.3333333432674408, 0.75])
    """
    place = np.flatnonzero(videos == true_videos[:, None])
    query, column = np.divmod(place, max(videos.shape[1], 1))
    iou = _agreed_iou(
        start.reshape(-1)[place].astype(np.float32),
        end.reshape(-1)[place].astype(np.float32),
        spans.astype(np.float32),
        (np.cumsum(num_spans) - num_spans)[query],
        num_spans[query],
    )
    return Matches(query, column + 1, np.arange(len(query)) - np.searchsorted(query, query) + 1, iou)


def first_ranks(query: np.ndarray, rank: np.ndarray, num_queries: int) -> np.ndarray:
    """The best rank of each query, `(num_queries,)` float64, infinite where it has none; ranks come best first.

    Example:
        >>> first_ranks(np.array([0, 0, 2]), np.array([3, 8, 1]), 3)
        array([ 3., inf,  1.])
    """
    best = np.full(num_queries, np.inf)
    best[query[::-1]] = rank[::-1]  # the last write is the first of its query
    return best


def _agreed_iou(
    start: np.ndarray, end: np.ndarray, spans: np.ndarray, first_span: np.ndarray, num_spans: np.ndarray
) -> np.ndarray:
    """The IoU that enough annotators support: the best one, or the second best of four or more."""
    best = np.zeros(len(start), dtype=np.float32)
    second = best
    for nth in range(num_spans.max(initial=0)):
        true = spans[first_span + np.minimum(nth, num_spans - 1)]
        iou = np.where(nth < num_spans, _hull_iou(start, end, true[:, 0], true[:, 1]), np.float32(0))
        second = np.maximum(second, np.minimum(best, iou))
        best = np.maximum(best, iou)
    return np.where(num_spans >= ANNOTATORS_FOR_VOTE, second, best)


def _hull_iou(start: np.ndarray, end: np.ndarray, true_start: np.ndarray, true_end: np.ndarray) -> np.ndarray:
    # Over the hull, which is the union where the spans meet, and where they do not both give 0.
    shared = np.maximum(np.minimum(end, true_end) - np.maximum(start, true_start), 0)
    hull = np.maximum(end, true_end) - np.minimum(start, true_start)
    iou: np.ndarray = np.divide(shared, hull, out=np.zeros_like(shared), where=hull > 0)
    return iou
