"""Contrastive losses of composed retrieval: HN-NCE, InfoNCE, and one with several right targets.

All take embeddings as given, so normalize first; row i of the queries belongs to row i of the targets. All are
computed in log space and in at least float32, whatever the autocast, because similarities divided by a
temperature of 0.07 reach 14 and the sums of their exponentials overflow or cancel otherwise.
"""

import math
from typing import Any, Literal

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


def _check_queries_and_targets(query_embeds: Tensor, target_embeds: Tensor) -> None:
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
    negative_logits: Tensor | None = None,
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
        negative_logits: see `negatives_of`; they count as negatives of their row, and `n - 1` above is how many
            negatives the row has.

    Returns:
        A scalar. It may be negative for alpha < 1; `2 log(alpha)` is its lower bound.

    Raises:
        ValueError: the shapes differ, there are fewer than two pairs, alpha or beta is out of range, or
            `negative_logits` come with `row_normalization` "official".

    Example:
        >>> cosine = torch.tensor([[0.9, 0.1, 0.2], [0.3, 0.8, -0.1], [0.0, 0.4, 0.7]])
        >>> round(hn_nce(cosine, torch.eye(3), 0.07, beta=0.5).item(), 6)
        0.01164
    """
    _check_queries_and_targets(query_embeds, target_embeds)
    if not 0 < alpha <= 1 or beta < 0:
        raise ValueError(f"alpha must lie in (0, 1] and beta be at least 0, not {alpha} and {beta}")
    if negative_logits is not None and row_normalization == "official":
        raise ValueError('row_normalization "official" repeats released code without further negatives; use "row"')
    logits = similarity_logits(query_embeds, target_embeds, temperature)
    on_diagonal = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    columns = _log_weights(logits.T, on_diagonal, alpha, beta)
    row_logits, row_diagonal = logits, on_diagonal
    if negative_logits is not None:
        row_logits = torch.cat([logits, negative_logits], 1)
        row_diagonal = torch.cat([on_diagonal, torch.zeros_like(negative_logits, dtype=torch.bool)], 1)
    rows = _log_weights(row_logits, row_diagonal, alpha, beta, by_column=row_normalization == "official")
    positive = logits.diagonal()
    one_way = [(row_logits + rows).logsumexp(1) - positive, (logits.T + columns).logsumexp(1) - positive]
    return one_way[0].mean() + one_way[1].mean()


def _log_weights(logits: Tensor, on_diagonal: Tensor, alpha: float, beta: float, *, by_column: bool = False) -> Tensor:
    """The logarithms of `w_ij`; 0 where there is no negative, -inf included."""
    hardness = (beta * logits).masked_fill(on_diagonal | logits.isneginf(), -math.inf)
    count = (~hardness.isneginf()).sum(1, keepdim=True)
    sums = hardness.logsumexp(1)
    weights = hardness - (sums[None, :] if by_column else sums[:, None]) + count.to(logits.dtype).log()
    return weights.masked_fill(hardness.isneginf(), 0.0).masked_fill(on_diagonal, math.log(alpha))


def negatives_of(
    query_embeds: Tensor,
    negative_embeds: Tensor,
    temperature: float | Tensor,
    *,
    labels: Tensor | None = None,
    negative_labels: Tensor | None = None,
) -> Tensor:
    """Logits of further negatives, such as captions with another count, for the losses here.

    Args:
        query_embeds: `(n, D)`.
        negative_embeds: `(m, D)`; each is a negative of every query but those that it answers.
        temperature: positive.
        labels: `(n,)` integers, the label that answers each query.
        negative_labels: `(m,)` integers, the label of each negative.

    Returns:
        `(n, m)`, -inf where a negative has the label that answers the query.

    Example:
        >>> same = torch.tensor([[1.0, 0.0]])
        >>> negatives_of(same, same, 0.5, labels=torch.tensor([3]), negative_labels=torch.tensor([3])).item()
        -inf
    """
    logits = similarity_logits(query_embeds, negative_embeds, temperature)
    if labels is None or negative_labels is None:
        return logits
    return logits.masked_fill(labels[:, None] == negative_labels[None, :], -math.inf)


def infonce(
    query_embeds: Tensor, target_embeds: Tensor, temperature: float | Tensor, *, negative_logits: Tensor | None = None
) -> Tensor:
    """InfoNCE in both directions, summed: `hn_nce` with alpha 1 and beta 0, the setting of the paper's main result.

    The sum over the two directions is the convention of TF-CoVR; CLIP takes their mean, which is half as large.

    Args:
        query_embeds: `(n, D)`, n at least 2.
        target_embeds: `(n, D)`.
        temperature: positive.
        negative_logits: see `negatives_of`; they stand against the targets of their row.

    Raises:
        ValueError: the shapes differ or there are fewer than two pairs.
    """
    _check_queries_and_targets(query_embeds, target_embeds)
    logits = similarity_logits(query_embeds, target_embeds, temperature)
    positive = logits.diagonal()
    rows = logits if negative_logits is None else torch.cat([logits, negative_logits], 1)
    return (rows.logsumexp(1) - positive).mean() + (logits.logsumexp(0) - positive).mean()


def multi_positive(
    query_embeds: Tensor,
    target_embeds: Tensor,
    temperature: float | Tensor,
    target_labels: Tensor,
    *,
    negative_logits: Tensor | None = None,
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
        negative_logits: see `negatives_of`; they stand against each target of their row.

    Returns:
        A scalar, at least 0.

    Raises:
        ValueError: the shapes differ or there are fewer than two pairs.

    Example:
        >>> same = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> multi_positive(same, same, 0.07, torch.tensor([3, 3])).item()  # nothing here is a wrong answer
        0.0
    """
    _check_queries_and_targets(query_embeds, target_embeds)
    if target_labels.shape != query_embeds.shape[:1]:
        raise ValueError(
            f"{len(query_embeds)} pairs need as many target labels, not shape {tuple(target_labels.shape)}"
        )
    logits = similarity_logits(query_embeds, target_embeds, temperature)
    positives = target_labels[:, None] == target_labels[None, :]
    negatives = logits.masked_fill(positives, -math.inf)
    of_rows = negatives if negative_logits is None else torch.cat([negatives, negative_logits], 1)

    rows, columns = positives.nonzero(as_tuple=True)  # few beside the negatives, so the rest goes by positive
    positive = logits[rows, columns]
    weight = 1 / positives.sum(1)[rows]  # positives are symmetric: a row has as many as its column

    def one_way(sums: Tensor) -> Tensor:
        return ((torch.logaddexp(positive, sums) - positive) * weight).sum() / len(logits)

    return one_way(of_rows.logsumexp(1)[rows]) + one_way(negatives.logsumexp(0)[columns])


def configured_loss(
    config: Any,
    query_embeds: Tensor,
    target_embeds: Tensor,
    temperature: float | Tensor,
    target_labels: Tensor | None,
    *,
    negative_logits: Tensor | None = None,
) -> Tensor:
    """The loss that a configuration names.

    Args:
        config: with `loss`, `alpha`, `beta` and, unless the paper's is meant, `row_normalization`.
        query_embeds: `(n, D)`, n at least 2.
        target_embeds: `(n, D)`.
        temperature: positive.
        target_labels: `(n,)` integers, the label that answers each query; only the loss "multi_positive" reads them.
        negative_logits: see `negatives_of`.

    Raises:
        ValueError: "multi_positive" gets no labels, or the loss refuses what it is given.
    """
    pairs = query_embeds, target_embeds, temperature
    if config.loss == "multi_positive":
        if target_labels is None:
            raise ValueError("the loss 'multi_positive' needs target_labels, the label that answers each query")
        return multi_positive(*pairs, target_labels, negative_logits=negative_logits)
    if config.loss == "infonce":
        return infonce(*pairs, negative_logits=negative_logits)
    normalization: Any = getattr(config, "row_normalization", "row")
    return hn_nce(*pairs, config.alpha, config.beta, row_normalization=normalization, negative_logits=negative_logits)
