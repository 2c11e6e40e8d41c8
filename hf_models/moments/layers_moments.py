"""What XML, ReLoCLNet and HERO are built of."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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


def check_sequence(name: str, features: Tensor, size: int, longest: int) -> None:
    """Refuse features of another layout, size or length.

    Args:
        name: What to call them.
        features: Should be `(N, L, size)`, float.
        size: Of a vector.
        longest: Longest L that the model has positions for.

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
            f"{name} has length {shape[1]}, the model reads at most {longest}: shorten them, or configure a larger model"
        )


def readable_clips(mask: Tensor, config: MomentRetrievalConfig) -> Tensor:
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
        positions = self.embedding.weight[: hidden_states.shape[1]]
        return self.dropout(self.layer_norm(hidden_states + positions))


class Attention(nn.Module):
    """Multi-head attention of one sequence to another, or to itself, without output projection."""

    def __init__(self, config: MomentRetrievalConfig) -> None:
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.dropout = config.hidden_dropout
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states: Tensor, context: Tensor, context_mask: Tensor) -> Tensor:
        """Read from `context (N, K, D)`, where `context_mask` is true, into `hidden_states (N, L, D)`.

        The mask is `(N, K)`, or `(N, L, K)` where what may be read differs between readers.
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
        bias = torch.zeros_like(context_mask, dtype=query.dtype).masked_fill(~context_mask, -1e4)
        dropout = self.dropout if self.training else 0.0
        read = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=bias[:, None, None] if bias.ndim == 2 else bias[:, None],
            dropout_p=dropout,
        )
        return read.transpose(1, 2).flatten(2)


class AttentionBlock(nn.Module):
    """Self-attention, linear layer, dropout, residual and norm; there is no feed-forward part."""

    def __init__(self, config: MomentRetrievalConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout)
        self.layer_norm = nn.LayerNorm(config.hidden_size)

    def forward(self, hidden_states: Tensor, mask: Tensor) -> Tensor:
        """Encode `(N, L, D)`."""
        read = self.dropout(self.dense(self.attention(hidden_states, hidden_states, mask)))
        return self.layer_norm(read + hidden_states)


class CrossAttentionBlock(nn.Module):
    """Attention to another stream, residual and norm."""

    def __init__(self, config: MomentRetrievalConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.layer_norm = nn.LayerNorm(config.hidden_size)

    def forward(self, hidden_states: Tensor, context: Tensor, context_mask: Tensor) -> Tensor:
        """Read `context (N, K, D)` into `(N, L, D)`."""
        return self.layer_norm(self.attention(hidden_states, context, context_mask) + hidden_states)


class ModularPooling(nn.Module):
    """One weighted mean of the tokens for each stream."""

    def __init__(self, config: MomentRetrievalConfig) -> None:
        super().__init__()
        self.weights = nn.Linear(config.hidden_size, config.num_streams, bias=False)

    def forward(self, hidden_states: Tensor, mask: Tensor) -> Tensor:
        """Pool `(N, L, D)` to `(N, M, D)`."""
        weights = self.weights(hidden_states).masked_fill(~mask[..., None], MASKED_LOGIT).softmax(1)
        return weights.transpose(1, 2) @ hidden_states


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
        return self.pooling(hidden_states, mask)


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
        """What to compare with the clips, `(Q, M, D)`, the mean over streams included."""
        projected = [linear(queries[:, stream]) for stream, linear in enumerate(self.queries)]
        return torch.stack(projected, 1) / len(projected)

    def predictors(self, length: int) -> Tensor:
        """Both convolutions as one matrix `(L, 2 L)`, the fastest way to apply them to many rows this short."""
        identity = torch.eye(length, device=self.start.weight.device)[:, None]
        return torch.cat(
            [
                F.conv1d(identity, conv.weight.float(), padding="same")[:, 0]
                for conv in (self.start, self.end)
            ],
            1,
        )

    def forward(self, queries: Tensor, videos: EncodedVideos) -> tuple[Tensor, Tensor]:
        """Compare `queries (Q, M, D)` with every video; two of `(Q, V, L)`."""
        similarity = torch.einsum("qmd,vmld->qvl", self.span_queries(queries), videos.localization)
        return self._predict(similarity.float(), videos.mask)

    def of_pairs(self, queries: Tensor, videos: EncodedVideos, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Compare `queries (Q, M, D)` each with its own video, `targets (Q,)`; two of `(Q, L)`."""
        own = videos.localization.index_select(0, targets)
        similarity = torch.einsum("qmd,qmld->ql", self.span_queries(queries), own)
        return self._predict(similarity.float(), videos.mask[targets])

    def _predict(self, similarity: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        if self.mask_similarity:
            similarity = similarity.masked_fill(~mask, 0)
        logits = similarity @ self.predictors(similarity.shape[-1])
        start, end = logits.chunk(2, -1)
        return start.masked_fill(~mask, MASKED_LOGIT), end.masked_fill(~mask, MASKED_LOGIT)


def clip_scores(queries: Tensor, clips: Tensor) -> Tensor:
    """Dot products of `queries (Q, M, D)` with `clips (V, M, L, D)`: `(Q, V, M, L)` float32."""
    return torch.einsum("qmd,vmld->qvml", queries, clips).float()


def best_clips(scores: Tensor, mask: Tensor) -> Tensor:
    """The highest of `(Q, V, M, L)` over the clips of each video, averaged over streams: `(Q, V)`."""
    return scores.masked_fill(~mask[:, None], MASKED_LOGIT).amax(-1).mean(-1)
