"""Temporal non-maximum suppression of many queries at once."""

import numpy as np

from .spans import MomentRanking

QUERIES_IN_CACHE = 256  # what fits into a processor's cache


def temporal_nms(
    ranking: MomentRanking,
    *,
    threshold: float,
    max_spans: int = 100,
    legacy_truncate: bool = False,
) -> MomentRanking:
    """Keep of each video the best span, and again of those that do not overlap it too much, and so on.

    The rules are those of the TVR code, ties included: a stable order by score inside a video, then a stable order over
    the videos by first appearance.

    Args:
        ranking: All candidates, in any order.
        threshold: A span whose IoU with a better one of the same video is strictly greater is dropped. Those of the
            datasets are in `presets.PRESETS`.
        max_spans: How many spans are kept for a query.
        legacy_truncate: Look at the first `max_spans` candidates only, as the released code does.

    Returns:
        What is kept, best first, `(Q, max_spans)`.

    Example:
        >>> one = MomentRanking(np.zeros((1, 3), int), np.array([[0.0, 1, 7]]), np.array([[5.0, 5, 9]]),
        ...                     np.array([[0.9, 0.8, 0.7]]))
        >>> temporal_nms(one, threshold=0.5, max_spans=2).start_seconds
        array([[0., 7.]])
    """
    if legacy_truncate:
        seen = np.arange(min(max_spans, ranking.video_indices.shape[1]))
        ranking = ranking.select(np.broadcast_to(seen, (len(ranking), len(seen))))
    ranks = np.full((len(ranking), max_spans), -1)
    for first in range(0, len(ranking), QUERIES_IN_CACHE):
        block = slice(first, first + QUERIES_IN_CACHE)
        columns = (getattr(ranking, name)[block] for name in MomentRanking.__dataclass_fields__)
        queries, kept = _kept(*columns, threshold=threshold, max_rounds=max_spans)
        place = np.arange(len(queries)) - np.searchsorted(queries, queries)
        chosen = place < max_spans
        ranks[first + queries[chosen], place[chosen]] = kept[chosen]
    return ranking.select(ranks)


def _kept(
    videos: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    scores: np.ndarray,
    *,
    threshold: float,
    max_rounds: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The queries and the ranks of what is kept, ordered by query, then by score."""
    num_ranks = videos.shape[1]
    ranks = np.broadcast_to(np.arange(num_ranks), videos.shape)
    if (scores[:, 1:] > scores[:, :-1]).any():
        ranks = np.argsort(-scores, axis=1, kind="stable")
        videos, start, end, scores = (np.take_along_axis(column, ranks, 1) for column in (videos, start, end, scores))
    # Integers that order as the scores do, since sorting integers is many times faster.
    levels = np.cumsum(scores[:, 1:] != scores[:, :-1], axis=1)
    levels = np.pad(levels, ((0, 0), (1, 0))) + num_ranks * np.arange(len(videos))[:, None]
    there = videos >= 0
    queries, _ = np.nonzero(there)
    groups = queries * (videos.max(initial=0) + 1) + videos[there]
    by_group = np.argsort(groups, kind="stable")
    queries, groups, ranks, levels = (column[by_group] for column in (queries, groups, ranks[there], levels[there]))
    start, end = (column[there][by_group].astype(float) for column in (start, end))
    leads = np.flatnonzero(np.diff(groups, prepend=-1))
    sizes = np.diff(leads, append=len(groups))
    appearance = np.repeat(np.minimum.reduceat(ranks, leads), sizes) if len(leads) else ranks
    alive, kept = np.arange(len(groups)), []
    for _ in range(max_rounds):
        if not len(alive):
            break
        # In each round the best of every group stays and suppresses what overlaps it.
        leads = np.flatnonzero(np.diff(groups[alive], prepend=-1))
        kept.append(alive[leads])
        leader = np.repeat(alive[leads], np.diff(leads, append=len(alive)))
        overlap = np.minimum(end[alive], end[leader]) - np.maximum(start[alive], start[leader])
        hull = np.maximum(end[alive], end[leader]) - np.minimum(start[alive], start[leader])
        iou = np.divide(overlap.clip(0), hull, out=np.zeros_like(hull), where=hull > 0)
        alive = alive[(iou <= threshold) & (alive != leader)]
    spans = np.sort(np.concatenate(kept)) if kept else alive
    order = spans[np.argsort(levels[spans] * num_ranks + appearance[spans], kind="stable")]
    return queries[order], ranks[order]
