"""The layers of XML, ReLoCLNet and HERO."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.roberta.modeling_roberta import eager_attention_forward

from .configuration_moments import MomentRetrievalConfig

MASKED_LOGIT = -1e10


@dataclass(frozen=True)
class EncodedVideos:
    """Videos as the heads read them, one of M streams for video and one for subtitles where there are any.

    Args:
        retrieval: `(V, M, L, D)`, compared with queries by cosine.
        localization: `(V, M, L, D)`, compared with queries for start and end.
        mask: `(V, L)` bool.
        contrast: `(V, M, L, D)` that ReLoCLNet's contrasts read, or None.
    """

    retrieval: Tensor
    localization: Tensor
    mask: Tensor
    contrast: Tensor | None = None


def in_single(tensor: Tensor) -> Tensor:
    """In at least float32, where scores and logits are computed whatever the model's dtype."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def without_autocast(tensor: Tensor) -> torch.autocast:
    """A context in which autocast leaves operations on the tensor's device alone."""
    return torch.autocast(tensor.device.type, enabled=False)


def check_sequence(name: str, features: Tensor, size: int, longest: int) -> None:
    """Refuse features that are not `(N, L, size)`, float, with L at most `longest`.

    Raises:
        ValueError: Saying what they are and what they must be.
    """
    shape = tuple(features.shape)
    if features.ndim != 3 or shape[2] != size or not features.is_floating_point():
        raise ValueError(
            f"{name} is {features.dtype} of shape {shape}; it must be float of shape (batch, length, {size})"
        )
    if shape[1] > longest:
        raise ValueError(
            f"{name} has length {shape[1]}, the model reads at most {longest}: "
            "shorten them, or configure a larger model"
        )


def check_mask(name: str, mask: Tensor, features_name: str, features: Tensor) -> None:
    """Refuse a mask that is not `(N, L)` beside features `(N, L, ...)`.

    Raises:
        ValueError: Saying what it is and what it must be.
    """
    if mask.shape != features.shape[:2]:
        raise ValueError(
            f"{name} has shape {tuple(mask.shape)}, {features_name} {tuple(features.shape)}: {name} must be "
            f"{tuple(features.shape[:2])}, with 1 for what counts and 0 for padding"
        )


def readable_clip_mask(mask: Tensor, config: MomentRetrievalConfig) -> Tensor:
    """Which clips the cross-attention may read, `(V, L)` bool, or `(V, L, L)` for a released model with subtitles.

    There the mask is the product of both streams' masks. A row of it that is all padding attends to everything, and the
    predictors, which see five clips, carry that into the last two of the video.

    Args:
        mask: `(V, L)` bool.
        config: Whose `mask_similarity` is False for released models.
    """
    if config.mask_similarity or config.num_streams == 1:
        return mask
    return mask[:, :, None] & mask[:, None]


class InputProjection(nn.Module):
    """From features to the model's width: norm, dropout, linear layer, ReLU."""

    def __init__(self, feature_size: int, config: MomentRetrievalConfig) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(feature_size)
        self.dropout = nn.Dropout(config.input_dropout)
        self.dense = nn.Linear(feature_size, config.hidden_size)

    def forward(self, features: Tensor) -> Tensor:
        """Project `(N, L, feature_size)` to `(N, L, D)`."""
        return F.relu(self.dense(self.dropout(self.layer_norm(features))))


class PositionEmbedding(nn.Module):
    """Learned positions, added, then norm and dropout."""

    def __init__(self, max_length: int, config: MomentRetrievalConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(max_length, config.hidden_size)
        self.layer_norm = nn.LayerNorm(config.hidden_size)
        self.dropout = nn.Dropout(config.input_dropout)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Add positions to `(N, L, D)`."""
        positions = self.embedding(torch.arange(hidden_states.shape[1], device=hidden_states.device))
        embedded: Tensor = self.dropout(self.layer_norm(hidden_states + positions))
        return embedded


class Attention(nn.Module):
    """Multi-head attention of one sequence to another, or to itself, without output projection."""

    def __init__(self, config: MomentRetrievalConfig) -> None:
        super().__init__()
        self.config = config
        self.num_heads = config.num_attention_heads
        self.dropout = config.hidden_dropout
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states: Tensor, context: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Read from another sequence.

        Args:
            hidden_states: `(N, L, D)`.
            context: `(N, K, D)`.
            mask: `(N, K)` bool, what may be read, or `(N, L, K)` where that differs between readers.

        Returns:
            `(N, L, D)`, and the weights `(N, heads, L, K)` where the attention is "eager".
        """
        query, key, value = (
            projection(states).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for projection, states in (
                (self.query, hidden_states),
                (self.key, context),
                (self.value, context),
            )
        )
        # Finite, so that a sequence that is all padding gives no NaN.
        bias = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -1e4)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        read, weights = attend(
            self,
            query,
            key,
            value,
            bias[:, None, None] if bias.ndim == 2 else bias[:, None],
            scaling=query.shape[-1] ** -0.5,
            dropout=self.dropout if self.training else 0.0,
        )
        return read.flatten(2), weights


class AttentionBlock(GradientCheckpointingLayer):
    """Self-attention, linear layer, dropout, residual and norm; there is no feed-forward part."""

    def __init__(self, config: MomentRetrievalConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout)
        self.layer_norm = nn.LayerNorm(config.hidden_size)

    def forward(self, hidden_states: Tensor, mask: Tensor) -> Tensor:
        """Encode `(N, L, D)`."""
        read, _ = self.attention(hidden_states, hidden_states, mask)
        encoded: Tensor = self.layer_norm(self.dropout(self.dense(read)) + hidden_states)
        return encoded


class CrossAttentionBlock(GradientCheckpointingLayer):
    """Attention to another stream, residual and norm."""

    def __init__(self, config: MomentRetrievalConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.layer_norm = nn.LayerNorm(config.hidden_size)

    def forward(self, hidden_states: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        """Read `context (N, K, D)` into `(N, L, D)`; for `mask` see `Attention`."""
        read, _ = self.attention(hidden_states, context, mask)
        encoded: Tensor = self.layer_norm(read + hidden_states)
        return encoded


class Stream(nn.Module):
    """What the streams of XML and ReLoCLNet begin with."""

    def __init__(self, feature_size: int, config: MomentRetrievalConfig) -> None:
        super().__init__()
        self.projection = InputProjection(feature_size, config)
        self.shallow = AttentionBlock(config)


class ModularPooling(nn.Module):
    """One weighted mean of the tokens for each stream."""

    def __init__(self, config: MomentRetrievalConfig) -> None:
        super().__init__()
        self.weights = nn.Linear(config.hidden_size, config.num_streams, bias=False)

    def forward(self, hidden_states: Tensor, mask: Tensor) -> Tensor:
        """Pool `(N, L, D)` to `(N, M, D)`."""
        logits = in_single(self.weights(hidden_states)).masked_fill(~mask[..., None], MASKED_LOGIT)
        return logits.softmax(1).to(hidden_states.dtype).transpose(1, 2) @ hidden_states


class QueryEncoder(nn.Module):
    """Tokens to one vector for each stream: projection, positions, attention blocks, pooling."""

    def __init__(self, config: MomentRetrievalConfig, *, feature_size: int, num_layers: int) -> None:
        super().__init__()
        self.projection = InputProjection(feature_size, config)
        self.positions = PositionEmbedding(config.max_query_tokens, config)
        self.layers = nn.ModuleList(AttentionBlock(config) for _ in range(num_layers))
        self.pooling = ModularPooling(config)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        """Encode `(N, L, feature_size)` to `(N, M, D)`."""
        hidden_states = self.positions(self.projection(features))
        for layer in self.layers:
            hidden_states = layer(hidden_states, mask)
        vectors: Tensor = self.pooling(hidden_states, mask)
        return vectors


class SpanHead(nn.Module):
    """Start and end logits: dot products with the clips, averaged over streams, then a convolution for each."""

    def __init__(self, config: MomentRetrievalConfig) -> None:
        super().__init__()
        self.queries = nn.ModuleList(
            nn.Linear(config.hidden_size, config.hidden_size) for _ in range(config.num_streams)
        )
        kernel, padding = config.conv_kernel_size, config.conv_kernel_size // 2
        self.start = nn.Conv1d(1, 1, kernel, padding=padding, bias=False)
        self.end = nn.Conv1d(1, 1, kernel, padding=padding, bias=False)
        self.mask_similarity = config.mask_similarity

    def span_queries(self, queries: Tensor) -> Tensor:
        """What to compare with the clips, `(Q, M, D)` in at least float32, the mean over streams included."""
        with without_autocast(queries):
            linears = cast("Iterable[nn.Linear]", self.queries)
            projected = [linear(queries[:, stream].to(linear.weight.dtype)) for stream, linear in enumerate(linears)]
            return in_single(torch.stack(projected, 1)) / len(projected)

    def predictors(self, length: int, device: torch.device | None = None) -> Tensor:
        """Both convolutions as one matrix `(L, 2 L)`, the fastest way to apply them to many rows this short.

        Args:
            length: L.
            device: Default: that of the weights.
        """
        weight = self.start.weight
        identity = torch.eye(length, dtype=weight.dtype, device=device or weight.device)[:, None]
        with without_autocast(identity):  # called as modules, since an offloaded weight is there only then
            return in_single(torch.cat([conv(identity)[:, 0] for conv in (self.start, self.end)], 1))

    def forward(self, queries: Tensor, videos: EncodedVideos) -> tuple[Tensor, Tensor]:
        """Compare `queries (Q, M, D)` with every video; two of `(Q, V, L)`."""
        return self._compare("qmd,vmld->qvl", queries, videos.localization, videos.mask)

    def of_pairs(self, queries: Tensor, videos: EncodedVideos, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Compare `queries (Q, M, D)` each with its own video, `targets (Q,)`; two of `(Q, L)`."""
        own = videos.localization.index_select(0, targets)
        return self._compare("qmd,qmld->ql", queries, own, videos.mask[targets])

    def _compare(self, equation: str, queries: Tensor, clips: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        with without_autocast(clips):
            similarity = torch.einsum(equation, self.span_queries(queries), in_single(clips))
            if self.mask_similarity:
                similarity = similarity.masked_fill(~mask, 0)
            length = similarity.shape[-1]
            logits = similarity @ self.predictors(length, similarity.device).to(similarity.dtype)
        start, end = logits.chunk(2, -1)
        return start.masked_fill(~mask, MASKED_LOGIT), end.masked_fill(~mask, MASKED_LOGIT)


def clip_scores(queries: Tensor, clips: Tensor) -> Tensor:
    """Dot products of `queries (Q, M, D)` with `clips (V, M, L, D)`: `(Q, V, M, L)` in at least float32."""
    with without_autocast(clips):
        return torch.einsum("qmd,vmld->qvml", in_single(queries), in_single(clips))


def best_clips(scores: Tensor, mask: Tensor) -> Tensor:
    """The highest of `(Q, V, M, L)` over the clips of each video, averaged over streams: `(Q, V)`."""
    return scores.masked_fill(~mask[:, None], MASKED_LOGIT).amax(-1).mean(-1)
