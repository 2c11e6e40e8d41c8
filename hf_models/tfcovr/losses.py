"""Contrastive losses of composed retrieval: HN-NCE, InfoNCE, and one with several right targets.

All take embeddings as given, so normalize first; row i of the queries belongs to row i of the targets. All are
computed in log space and in at least float32, whatever the autocast, because similarities divided by a
temperature of 0.07 reach 14 and the sums of their exponentials overflow or cancel otherwise.
"""

import math
from typing import Literal

import torch
from torch import Tensor


def similarity_logits(query_embeds: Tensor, target_embeds: Tensor, temperature: float | Tensor) -> Tensor:
    """Dot products over the temperature, `(n, m)`, outside autocast.

    Args:
        query_embeds: `(n, D)`.
        target_embeds: `(m, D)`.
        temperature: positive; 0.07 in the paper.
    """
    with torch.autocast(query_embeds.device.type, enabled=False):
        dtype = torch.promote_types(query_embeds.dtype, torch.float32)
        return query_embeds.to(dtype) @ target_embeds.to(dtype).T / temperature


def _check_pairs(query_embeds: Tensor, target_embeds: Tensor) -> None:
    if query_embeds.ndim != 2 or query_embeds.shape != target_embeds.shape:
        shapes = f"{tuple(query_embeds.shape)} and {tuple(target_embeds.shape)}"
        raise ValueError(f"queries and targets must be two matrices of one shape (n, D), not {shapes}")
    if len(query_embeds) < 2:
        raise ValueError(
            f"a contrastive loss needs at least 2 pairs, there are {len(query_embeds)}: every other pair of the batch "
            "is a negative; use a larger batch or leave out the last, incomplete one"
        )


def hn_nce(
    query_embeds: Tensor,
    target_embeds: Tensor,
    temperature: float | Tensor,
    alpha: float = 1.0,
    beta: float = 0.0,
    *,
    row_normalization: Literal["row", "official"] = "row",
) -> Tensor:
    r"""Hard-negative noise contrastive estimation (TF-CoVR, section 4; Radenovic et al. 2023, equation 3).

    With logits `L = query_embeds @ target_embeds.T / temperature` the negatives of a row are weighted by
    `w_ij = (n - 1) exp(beta L_ij) / sum_{k != i} exp(beta L_ik)` and the positive by `w_ii = alpha`; columns
    likewise. The loss is `mean_i [log sum_j w_ij exp(L_ij) - L_ii]` plus the same over columns (a sum, not a mean of
    the two). `alpha=1, beta=0` is InfoNCE.

    Args:
        query_embeds: `(n, D)`, n at least 2.
        target_embeds: `(n, D)`.
        temperature: positive; the paper writes the weights without it, its code (and this) with it.
        alpha: weight of the positive, in (0, 1].
        beta: how much hard negatives count more, 0 or more; 0 in the paper, 0.5 in the released configuration.
        row_normalization: "official" divides the weight (i, j) by the sum of row j instead of row i, as the released
            code does by a broadcasting slip; for comparisons with its results only.

    Returns:
        A scalar. It may be negative for alpha < 1; `2 log(alpha)` is its lower bound.

    Raises:
        ValueError: the shapes differ, there are fewer than two pairs, or alpha or beta is out of range.

    Example:
        >>> cosine = torch.tensor([[0.9, 0.1, 0.2], [0.3, 0.8, -0.1], [0.0, 0.4, 0.7]])
        >>> round(hn_nce(cosine, torch.eye(3), 0.07, beta=0.5).item(), 6)
        0.01164
    """
    _check_pairs(query_embeds, target_embeds)
    if not 0 < alpha <= 1 or beta < 0:
        raise ValueError(f"alpha must lie in (0, 1] and beta be at least 0, not {alpha} and {beta}")
    logits = similarity_logits(query_embeds, target_embeds, temperature)
    n = len(logits)
    on_diagonal = torch.eye(n, dtype=torch.bool, device=logits.device)
    hardness = (beta * logits).masked_fill(on_diagonal, -math.inf)
    row_sums = hardness.logsumexp(1)
    row_weights = hardness - (row_sums[:, None] if row_normalization == "row" else row_sums[None, :])
    column_weights = hardness - hardness.logsumexp(0)

    def one_way(log_weights: Tensor, dim: int) -> Tensor:
        log_weights = (log_weights + math.log(n - 1)).masked_fill(on_diagonal, math.log(alpha))
        return ((logits + log_weights).logsumexp(dim) - logits.diagonal()).mean()

    return one_way(row_weights, 1) + one_way(column_weights, 0)


def infonce(query_embeds: Tensor, target_embeds: Tensor, temperature: float | Tensor) -> Tensor:
    """InfoNCE in both directions, summed: `hn_nce` with alpha 1 and beta 0, the setting of the paper's main result.

    The sum over the two directions is the convention of TF-CoVR; CLIP takes their mean, which is half as large.

    Args:
        query_embeds: `(n, D)`, n at least 2.
        target_embeds: `(n, D)`.
        temperature: positive.

    Raises:
        ValueError: the shapes differ or there are fewer than two pairs.
    """
    _check_pairs(query_embeds, target_embeds)
    logits = similarity_logits(query_embeds, target_embeds, temperature)
    positive = logits.diagonal()
    return (logits.logsumexp(1) - positive).mean() + (logits.logsumexp(0) - positive).mean()


def multi_positive(
    query_embeds: Tensor, target_embeds: Tensor, temperature: float | Tensor, target_labels: Tensor
) -> Tensor:
    """InfoNCE where each batch item with the right target label is a positive instead of a negative.

    A query of TF-CoVR has every clip of its target label as an answer, and among 512 items over 306 labels about 1.7
    others carry the same one: the paper's loss pushes these right answers away. Here each positive of a row is
    compared with the negatives of that row only, `log(exp L_ip + sum_{negatives} exp L_ij) - L_ip`, averaged over its
    positives, then over rows, and the same for columns, summed. This is the form of SINCERE (Feeney and Hughes 2023)
    for two sides; where all labels differ it equals `infonce`.

    Args:
        query_embeds: `(n, D)`, n at least 2.
        target_embeds: `(n, D)`.
        temperature: positive.
        target_labels: `(n,)` integers, the label that answers each query.

    Returns:
        A scalar, at least 0.

    Raises:
        ValueError: the shapes differ or there are fewer than two pairs.

    Example:
        >>> same = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> multi_positive(same, same, 0.07, torch.tensor([3, 3])).item()  # nothing here is a wrong answer
        0.0
    """
    _check_pairs(query_embeds, target_embeds)
    if target_labels.shape != query_embeds.shape[:1]:
        raise ValueError(
            f"{len(query_embeds)} pairs need as many target labels, not shape {tuple(target_labels.shape)}"
        )
    logits = similarity_logits(query_embeds, target_embeds, temperature)
    positives = target_labels[:, None] == target_labels[None, :]
    negatives = logits.masked_fill(positives, -math.inf)

    rows, columns = positives.nonzero(as_tuple=True)  # few beside the negatives, so the rest goes by positive
    positive = logits[rows, columns]
    weight = 1 / positives.sum(1)[rows]  # positives are symmetric: a row has as many as its column

    def one_way(dim: int, places: Tensor) -> Tensor:
        against = torch.logaddexp(positive, negatives.logsumexp(dim)[places]) - positive
        return (against * weight).sum() / len(logits)

    return one_way(1, rows) + one_way(0, columns)
