"""Losses of VideoComp: CLIP's InfoNCE, NegCLIP, and the hierarchical pairwise preference of CompLoss.

Embeddings are used as given, so normalize first; row i of the videos belongs to row i of the texts. All are computed
in at least float32, whatever the autocast.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Pairs = Literal["adjacent", "all", "positive"]
LossKind = Literal["logistic", "hinge"]


def _as_float(*tensors: Tensor) -> list[Tensor]:
    return [tensor.to(torch.promote_types(tensor.dtype, torch.float32)) for tensor in tensors]


def _check_videos_and_texts(video_embeds: Tensor, text_embeds: Tensor) -> None:
    if video_embeds.ndim != 2 or video_embeds.shape != text_embeds.shape:
        shapes = f"{tuple(video_embeds.shape)} and {tuple(text_embeds.shape)}"
        raise ValueError(f"videos and texts must be two matrices of one shape (B, D), not {shapes}")


def _check_negatives(rows: int, negatives: Tensor, levels: Tensor) -> None:
    if negatives.shape[:2] != levels.shape or len(levels) != rows:
        raise ValueError(
            f"{rows} pairs need negatives (B, K, ...) and levels (B, K) with B = {rows}, "
            f"not {tuple(negatives.shape)} and {tuple(levels.shape)}"
        )


def clip_loss(video_embeds: Tensor, text_embeds: Tensor, logit_scale: float | Tensor) -> Tensor:
    """CLIP's symmetric InfoNCE: contrast each pair with the others of the batch, both ways (VideoComp, equation 1).

    It is the mean of the two directions, as in CLIP: half of TF-CoVR's `infonce`, which is their sum.

    Args:
        video_embeds: `(B, D)`.
        text_embeds: `(B, D)`.
        logit_scale: what similarities are multiplied by, one over the temperature.

    Returns:
        A scalar, at least 0; log B where all similarities are equal.

    Raises:
        ValueError: The shapes differ.

    Example:
        >>> round(clip_loss(torch.eye(2), torch.eye(2), 1.0).item(), 6)  # log(1 + exp(-1))
        0.313262
    """
    _check_videos_and_texts(video_embeds, text_embeds)
    with torch.autocast(video_embeds.device.type, enabled=False):
        video_embeds, text_embeds = _as_float(video_embeds, text_embeds)
        logits = video_embeds @ text_embeds.T * logit_scale
        targets = torch.arange(len(logits), device=logits.device)
        return (F.cross_entropy(logits, targets) + F.cross_entropy(logits.T, targets)) / 2


def negclip(
    video_embeds: Tensor,
    text_embeds: Tensor,
    negative_embeds: Tensor,
    levels: Tensor,
    logit_scale: float | Tensor,
) -> Tensor:
    """`clip_loss` whose videos also choose among the negative texts of the whole batch (Yuksekgonul et al., ICLR 2023).

    Texts choose among the videos as in `clip_loss`: a negative text has no video. It is the mean of the two directions.

    Args:
        video_embeds: `(B, D)`.
        text_embeds: `(B, D)` of the positive texts.
        negative_embeds: `(B, K, D)` of the negative texts of each pair.
        levels: `(B, K)` integers: 1 or more where there is a negative, 0 where a row is only padded.
        logit_scale: what similarities are multiplied by.

    Returns:
        A scalar; `clip_loss` where there is no negative.

    Raises:
        ValueError: The shapes do not fit together.

    Example:
        >>> pair, levels = torch.tensor([[1.0, 0.0]]), torch.tensor([[1]])
        >>> round(negclip(pair, pair, pair[None], levels, 1.0).item(), 6)  # log(2) / 2
        0.346574
    """
    _check_videos_and_texts(video_embeds, text_embeds)
    _check_negatives(len(video_embeds), negative_embeds, levels)
    with torch.autocast(video_embeds.device.type, enabled=False):
        video_embeds, text_embeds, negative_embeds = _as_float(video_embeds, text_embeds, negative_embeds)
        bank = torch.cat([text_embeds, negative_embeds[levels > 0]])
        targets = torch.arange(len(video_embeds), device=video_embeds.device)
        to_text = F.cross_entropy(video_embeds @ bank.T * logit_scale, targets)
        to_video = F.cross_entropy(text_embeds @ video_embeds.T * logit_scale, targets)
        return (to_text + to_video) / 2


def comp_loss(
    positive_similarities: Tensor,
    negative_similarities: Tensor,
    levels: Tensor,
    *,
    pairs: Pairs = "adjacent",
    kind: LossKind = "logistic",
    scale: float = 1.0,
    margin: float = 0.0,
) -> Tensor:
    r"""Prefer the less disrupted text: VideoComp's hierarchical pairwise preference (equation 2).

    A video has one positive text (level 0) and negatives of level 1, 2, ...: how often they were disrupted. With
    `c_0, ..., c_N` the cosines of the video with a text of each level, the loss of the video is
    `1/N sum_i softplus(-(c_{i-1} - c_i))`, the Bradley-Terry likelihood of the order, and the loss of the batch is the
    mean over the videos that have a negative. Texts of one level are not compared with each other; where a level has
    several, all cross pairs of two levels are averaged.

    The formula itself did not survive in the public text of the paper. This form follows its words: pairwise,
    hierarchical, on cosines without a temperature, and of a size that its weight of 100 makes sense for. The options
    are the other readings. Differences that are small beside `1/scale` meet the logistic where it is linear, and there
    "adjacent" and "all" telescope: only the positive and the most disrupted text get a gradient, those in between none.
    Where that matters, raise `scale` or compare "positive".

    Args:
        positive_similarities: `(B,)` cosines of videos with their positive texts.
        negative_similarities: `(B, K)` cosines with their negative texts.
        levels: `(B, K)` integers: the level of each negative, 0 where a row is only padded.
        pairs: which levels are compared: each with the one before it that is present ("adjacent"), all with all
            ("all"), or the positive with each ("positive").
        kind: "logistic" is `softplus(margin - scale * difference)`, "hinge" is `relu` of the same.
        scale: what differences are multiplied by.
        margin: by how much a difference should exceed 0.

    Returns:
        A scalar; 0 with gradient 0 where no video has a negative.

    Raises:
        ValueError: The shapes do not fit together, or an option is unknown.

    Example:
        >>> positive, negatives = torch.tensor([0.42]), torch.tensor([[0.35, 0.36, 0.20]])
        >>> round(comp_loss(positive, negatives, torch.tensor([[1, 2, 3]])).item(), 6)
        0.657754
    """
    _check_negatives(len(positive_similarities), negative_similarities, levels)
    if pairs not in {"adjacent", "all", "positive"} or kind not in {"logistic", "hinge"}:
        raise ValueError(
            f"pairs is {pairs!r} and kind {kind!r}; they may be 'adjacent', 'all' or 'positive', and "
            "'logistic' or 'hinge'"
        )
    positive, negative = _as_float(positive_similarities, negative_similarities)
    cosines = torch.cat([positive[:, None], negative], dim=1)  # (B, 1 + K)
    weights = _comparison_weights(levels, pairs).to(cosines.dtype)  # (B, 1 + K, 1 + K)
    wrongness = margin - scale * (cosines[:, :, None] - cosines[:, None, :])
    losses = F.softplus(wrongness) if kind == "logistic" else F.relu(wrongness)
    per_video = (losses * weights).sum((1, 2)) / weights.sum((1, 2)).clamp(min=1)
    compared = (levels > 0).any(1)
    return per_video.sum() / compared.sum().clamp(min=1)


def caption_log_likelihoods(logits: Tensor, input_ids: Tensor, lengths: Tensor) -> Tensor:
    """Sum up the log-probabilities of each text's tokens after its first.

    Args:
        logits: `(N, L, vocabulary)`; those at place t are of the token at t + 1.
        input_ids: `(N, L)`.
        lengths: `(N,)` integers: tokens of each text, with its end; later ones do not count.

    Returns:
        `(N,)`, natural logarithms, at most 0; 0 for a text of one token.

    Example:
        >>> logits, tokens = torch.zeros(1, 3, 4), torch.tensor([[1, 2, 3]])
        >>> caption_log_likelihoods(logits, tokens, torch.tensor([3]))  # 2 log(1 / 4)
        tensor([-2.7726])
    """
    with torch.autocast(logits.device.type, enabled=False):
        (logits,) = _as_float(logits[:, :-1])
        surprise = F.cross_entropy(logits.transpose(1, 2), input_ids[:, 1:], reduction="none")
        counted = torch.arange(1, input_ids.shape[1], device=lengths.device) < lengths[:, None]
        return -(surprise * counted.to(surprise)).sum(1)


def captioning_loss(log_likelihoods: Tensor, lengths: Tensor) -> Tensor:
    """Give CoCa's captioning loss: the mean cross-entropy of the tokens of all texts, each after its first.

    Args:
        log_likelihoods: `(N,)` of `caption_log_likelihoods`.
        lengths: `(N,)` integers, as there.

    Returns:
        A scalar, at least 0; 0 where no text has a second token.

    Example:
        >>> captioning_loss(torch.tensor([-2.0, -4.0]), torch.tensor([2, 3]))
        tensor(2.)
    """
    return -log_likelihoods.sum() / (lengths - 1).sum().clamp(min=1)


def _comparison_weights(levels: Tensor, pairs: Pairs) -> Tensor:
    """How much text j being below text i counts: what is compared of two levels sums up to 1."""
    absent = torch.cat([levels.new_zeros(len(levels), 1, dtype=torch.bool), levels <= 0], dim=1)
    levels = torch.cat([levels.new_zeros(len(levels), 1), levels], dim=1)
    upper, lower = levels[:, :, None], levels[:, None, :]
    both = ~(absent[:, :, None] | absent[:, None, :])
    compared = both & (upper < lower)
    if pairs == "positive":
        compared &= upper == 0
    elif pairs == "adjacent":
        compared &= upper == upper.masked_fill(~compared, -1).amax(1, keepdim=True)
    same_level = (both & (upper == lower)).sum(2).clamp(min=1)
    return compared / (same_level[:, :, None] * same_level[:, None, :])
