"""Losses of moment retrieval: ranking of videos and queries, start and end, and ReLoCLNet's two contrasts.

All take the matrix of a batch of N pairs: row i is query i, column j the video of pair j. Where two pairs share a
video they are no negatives of each other, which `is_negative` says.
"""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

# Cosines this close are equal but for the order in which a processor or another batch has added them up.
TIE_MARGIN = 1e-5


def negative_pairs(target_indices: Tensor) -> Tensor:
    """Which pairs of a batch are negatives of each other: those of different videos, `(N, N)` bool.

    Args:
        target_indices: `(N,)` integers, the video of each query.

    Example:
        >>> negative_pairs(torch.tensor([0, 0, 1])).long().tolist()
        [[0, 0, 1], [0, 0, 1], [1, 1, 0]]
    """
    return target_indices[:, None] != target_indices[None, :]


def ranking_loss(  # noqa: PLR0913 (what the released losses differ in)
    scores: Tensor,
    is_negative: Tensor,
    *,
    margin: float = 0.1,
    kind: Literal["hinge", "lse"] = "hinge",
    negatives: Literal["sampled", "all"] = "sampled",
    hard_pool_size: int | None = None,
    hard_weight: float = 1.0,
    easy_weight: float = 1.0,
    videos: Tensor | None = None,
    random_scores: Tensor | None = None,
) -> Tensor:
    """Push the score of each positive, on the diagonal, above those of the negatives of its row.

    Args:
        scores: `(N, N)`; pass the transpose to compare queries of a video instead of videos of a query.
        is_negative: `(N, N)` bool.
        margin: By how much, for the hinge.
        kind: "hinge", `max(0, margin + negative - positive)`, or "lse", `log(1 + exp(negative - positive))`.
        negatives: "sampled" draws one for each row (XML, ReLoCLNet); "all" averages over them (HERO).
        hard_pool_size: With "sampled", draw from that many of the highest scores; with "all", give those
            `hard_weight` and the others `easy_weight`. None has no hard negatives.
        hard_weight: 10 in HERO.
        easy_weight: 0.1 in HERO.
        videos: `(N,)` integers, the video of each column, of which the pool counts every one once (HERO); default: the
            pool counts columns.
        random_scores: `(N, N)` in [0, 1): with "sampled", the possible negative of a row with the highest number is
            drawn. Default: random.

    Returns:
        A scalar: the mean over rows that have a negative; 0 where none has.

    Example:
        >>> scores = torch.tensor([[0.5, 0.45], [0.1, 0.3]])
        >>> round(ranking_loss(scores, ~torch.eye(2, dtype=torch.bool)).item(), 4)
        0.025
    """
    difference = scores - scores.diagonal()[:, None]
    costs = F.softplus(difference) if kind == "lse" else (margin + difference).clamp(min=0)
    weights = is_negative.to(scores.dtype)
    if hard_pool_size is not None:
        hardness = scores.detach().masked_fill(~is_negative, -math.inf)
        if videos is not None:
            same = videos[:, None] == videos
            hardness = hardness.masked_fill(same.tril(-1).any(1), -math.inf)  # all but the first of each
        pool = hardest(hardness, hard_pool_size)
        in_pool = torch.zeros_like(is_negative).scatter_(1, pool, value=True) & is_negative
        if videos is not None:
            in_pool = (in_pool.float() @ same.float() > 0) & is_negative
        weights = torch.where(in_pool, hard_weight, easy_weight) * weights
        if negatives == "sampled":
            weights = in_pool.to(scores.dtype)
    counts = is_negative.sum(1)
    if negatives == "sampled":
        random_scores = torch.rand_like(scores) if random_scores is None else random_scores
        random_scores = random_scores.masked_fill(weights == 0, -1)
        drawn = F.one_hot(random_scores.argmax(1), len(scores)).to(scores.dtype)
        weights, counts = drawn * weights, counts.clamp(max=1)
    rows = (costs * weights).sum(1) / counts.clamp(min=1)
    return rows.sum() / (counts > 0).sum().clamp(min=1)


def hardest(scores: Tensor, number: int) -> Tensor:
    """The columns `(N, number)` of the highest scores of each row, a pool that does not hang on their last bits.

    A batch holds a video as often as it has queries, and each of its columns may be a rounding error away from the
    others. Scores of which each is within `TIE_MARGIN` of the next higher one stand in the order of their columns.

    Example:
        >>> hardest(torch.tensor([[0.5, 0.3, 0.3 + 1e-7, 0.1]]), 2).tolist()
        [[0, 1]]
    """
    values, order = scores.sort(descending=True, stable=True)
    levels = F.pad((values[:, :-1] - values[:, 1:] > TIE_MARGIN).cumsum(1), (1, 0))
    by_column = torch.zeros_like(order).scatter_(1, order, levels)
    return by_column.argsort(dim=1, stable=True)[:, :number]


def span_loss(start_logits: Tensor, end_logits: Tensor, start_positions: Tensor, end_positions: Tensor) -> Tensor:
    """Cross-entropy of the first clip plus that of the last one.

    Args:
        start_logits: `(N, L)` of each query in its own video, very negative in the padding.
        end_logits: `(N, L)`.
        start_positions: `(N,)` integers.
        end_positions: `(N,)` integers.
    """
    return F.cross_entropy(start_logits, start_positions) + F.cross_entropy(end_logits, end_positions)


def frame_contrastive_loss(similarities: Tensor, inside: Tensor, mask: Tensor) -> Tensor:
    """FrameCL of ReLoCLNet (equations 8 to 10): clips of the moment against the other clips of its video.

    A Jensen-Shannon estimate of mutual information: `E_out - E_in` with `E_in = mean(log 2 - softplus(-r))` inside
    and `E_out = mean(softplus(-r) + r - log 2)` outside.

    Args:
        similarities: `(N, L)` dot products r of each query with the clips of its video.
        inside: `(N, L)` bool, clips of the moment.
        mask: `(N, L)` bool, clips of the video.

    Returns:
        A scalar, the mean over pairs.

    Example:
        >>> r = torch.tensor([[1.0, 0], [0, 1], [1, 1]]) @ torch.tensor([0.5, -0.25])
        >>> inside = torch.tensor([[False, True, True]])
        >>> round(frame_contrastive_loss(r[None], inside, torch.ones(1, 3, dtype=torch.bool)).item(), 6)
        0.288722
    """
    inside = inside & mask
    outside = mask & ~inside

    def mean(values: Tensor, where: Tensor) -> Tensor:
        return (values * where).sum(1) / where.sum(1).clamp(min=1)

    gain = mean(math.log(2) - F.softplus(-similarities), inside)
    return (mean(F.softplus(-similarities) + similarities - math.log(2), outside) - gain).mean()


def video_contrastive_loss(scores: Tensor, is_negative: Tensor) -> Tensor:
    """VideoCL of ReLoCLNet (equation 6): a query against the other videos, and its video against the other queries.

    `mean_i [log(sum_j exp X_ij + sum_j exp X_ji) - X_ii]`; as in the released code the positive counts twice in the
    sum.

    Args:
        scores: `(N, N)` matrix X, not normalized.
        is_negative: `(N, N)` bool; pairs that are neither negative nor the positive are left out.

    Returns:
        A scalar, at least log 2.

    Example:
        >>> scores = torch.tensor([[2.0, 1, 0], [0.5, 3, -1], [1, 0, 1.5]])
        >>> round(video_contrastive_loss(scores, ~torch.eye(3, dtype=torch.bool)).item(), 6)
        1.032907
    """
    left_out = ~is_negative & ~torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    kept = scores.masked_fill(left_out, -math.inf)
    return (torch.cat([kept, kept.T], 1).logsumexp(1) - scores.diagonal()).mean()
