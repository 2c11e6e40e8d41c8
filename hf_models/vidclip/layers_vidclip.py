"""What VidCLIP adds to CLIP's vision tower: the place of a frame in time, and pooling by attention."""

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import CLIPVisionConfig, PreTrainedConfig
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.clip.modeling_clip import eager_attention_forward

from .configuration_vidclip import VidCLIPConfig


def temporal_positions(num_frames: int, width: int) -> Tensor:
    """Sines and cosines of the frame's number, less those of frame 0: `(num_frames, width)`, float32.

    Frame 0 is zero, so that at first a video of one frame is an image, and all others differ.

    Example:
        >>> temporal_positions(2, 4)[1]  # sin 1, sin 0.01, cos 1 - 1, cos 0.01 - 1
        tensor([ 8.4147e-01,  9.9998e-03, -4.5970e-01, -5.0008e-05])
    """
    speeds = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = torch.arange(num_frames)[:, None] * speeds
    return torch.cat([angles.sin(), angles.cos() - 1], dim=1)[:, :width]


def limited_scale(logit_scale: Tensor, max_logit_scale: float) -> Tensor:
    """Give `exp(logit_scale)`, at most `exp(max_logit_scale)`, with a gradient above the limit as below it.

    A clamp has no gradient beyond its limit, so a scale that one step carried there could never come back.

    Args:
        logit_scale: A scalar.
        max_logit_scale: Its highest value.

    Example:
        >>> scale = torch.tensor(3.0, requires_grad=True)
        >>> limited = limited_scale(scale, math.log(10.0))
        >>> limited.backward()
        >>> round(limited.item(), 4), round(scale.grad.item(), 4)
        (10.0, 10.0)
    """
    excess = (logit_scale.detach() - max_logit_scale).clamp(min=0)
    return (logit_scale - excess).exp()


def at_least_one_row(rows: Tensor) -> Tensor:
    """A batch as it is; an empty one gets a row of zeros, connected to the graph of the batch.

    CLIP's layers cannot take an empty batch. One process of several that train together may have one, and must still
    contribute a gradient for every weight, of zeros.

    Example:
        >>> at_least_one_row(torch.ones(0, 3)).shape, at_least_one_row(torch.ones(2, 3)).shape
        (torch.Size([1, 3]), torch.Size([2, 3]))
    """
    return rows if rows.shape[0] else torch.cat([rows, rows.new_zeros(1, *rows.shape[1:])])


def attend(module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Multi-head attention of projected tokens by the implementation that is configured, without a mask.

    Args:
        module: Has `num_heads` and the `config` that names the implementation.
        query: `(batch, Q, width)`.
        key: `(batch, K, width)`.
        value: `(batch, K, width)`.

    Returns:
        `(batch, Q, width)`, to be projected.
    """
    query, key, value = (
        states.unflatten(-1, (cast("int", module.num_heads), -1)).transpose(1, 2) for states in (query, key, value)
    )
    config = cast("PreTrainedConfig", module.config)
    run = ALL_ATTENTION_FUNCTIONS.get_interface(config._attn_implementation, eager_attention_forward)
    attended, _ = run(module, query, key, value, None, scaling=query.shape[-1] ** -0.5, is_causal=False)
    merged: Tensor = attended.flatten(2)  # from (batch, Q, heads, width / heads)
    return merged


class TemporalEmbedding(nn.Module):
    """Add to the tokens of each frame, after the tower's last layer, a learned vector for its place in time."""

    def __init__(self, config: VidCLIPConfig) -> None:
        super().__init__()
        width = cast("CLIPVisionConfig", config.vision_config).hidden_size
        self.weight = nn.Parameter(torch.empty(config.num_frames, width))

    def forward(self, tokens: Tensor, *, interpolate: bool = False) -> Tensor:
        """Give `(batch, frames, tokens, width)` their place in time.

        Args:
            tokens: Of the frames in order.
            interpolate: Stretch the embedding linearly where there are more or fewer frames than it has; the first
                frames of it are what a shorter video gets otherwise.

        Returns:
            The same shape.

        Raises:
            ValueError: If there are more frames than the embedding has, and `interpolate` is False.
        """
        frames = tokens.shape[1]
        places: Tensor = self.weight
        if interpolate and frames != len(places):
            places = F.interpolate(places.T[None], size=frames, mode="linear", align_corners=True)[0].T
        elif frames > len(places):
            raise ValueError(
                f"the videos have {frames} frames, the model {len(places)}; sample {len(places)}, or pass "
                "interpolate_temporal=True"
            )
        return tokens + places[:frames, None].to(tokens.dtype)


class AttentionPooler(nn.Module):
    """Summarize any number of tokens by learned queries that attend to them, then normalize (CoCa, section 3.2)."""

    def __init__(self, config: VidCLIPConfig, num_queries: int) -> None:
        super().__init__()
        vision = cast("CLIPVisionConfig", config.vision_config)
        width, eps = vision.hidden_size, vision.layer_norm_eps
        self.config = config
        self.num_heads = config.pooler_num_attention_heads
        self.is_causal = False  # read by some attention implementations
        self.query = nn.Parameter(torch.empty(num_queries, width))
        self.context_layernorm = nn.LayerNorm(width, eps=eps)
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.out_proj = nn.Linear(width, width)
        self.layernorm = nn.LayerNorm(width, eps=eps)

    def forward(self, context: Tensor) -> Tensor:
        """Pool `(batch, tokens, width)` to `(batch, num_queries, width)`."""
        context = self.context_layernorm(context)
        # The size comes from `shape`, because `len` would fix it when the model is exported.
        query = self.q_proj(self.query.to(context.dtype)).expand(context.shape[0], -1, -1)
        merged = attend(self, query, self.k_proj(context), self.v_proj(context))
        summary: Tensor = self.layernorm(self.out_proj(merged))
        return summary


class VideoPooler(nn.Module):
    """Tokens of all frames to one vector: the temporal embedding, then two attention poolers in cascade."""

    def __init__(self, config: VidCLIPConfig) -> None:
        super().__init__()
        self.class_token_residual = config.class_token_residual
        self.temporal_embedding = TemporalEmbedding(config)
        self.token_pooler = AttentionPooler(config, config.num_pooler_queries)
        self.video_pooler = AttentionPooler(config, 1)
        if config.class_token_residual:
            # torch types attributes as tensors or modules.
            self.video_pooler.layernorm.starts_at_zero = True  # type: ignore[assignment]

    def forward(self, tokens: Tensor, *, interpolate_temporal: bool = False) -> tuple[Tensor, Tensor]:
        """Pool `(batch, frames, tokens, width)`, class token first, to `(batch, width)`.

        Returns:
            That, and what the first pooler gave, `(batch, num_pooler_queries, width)`: what a text is generated from.
        """
        placed = self.temporal_embedding(tokens, interpolate=interpolate_temporal)
        summaries: Tensor = self.token_pooler(placed.flatten(1, 2))
        pooled: Tensor = self.video_pooler(summaries)[:, 0]
        return (tokens[:, :, 0].mean(1) + pooled if self.class_token_residual else pooled), summaries
