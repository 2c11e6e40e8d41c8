"""The layers of AIM: CLIP's blocks run over time and over space, with bottleneck adapters in between."""

import math
from collections.abc import Callable
from typing import TypeGuard, cast

import torch
from torch import nn
from torch.nn import functional as F
from transformers.activations import QuickGELUActivation
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.clip.modeling_clip import (
    CLIPMLP,
    CLIPAttention,
    CLIPEncoderLayer,
    CLIPVisionEmbeddings,
    eager_attention_forward,
)

from .configuration_aim import AIMConfig
from .factored_classifier import FactoredClassifier, LabelFactors

QUICK_GELU_SLOPE = 1.702
MOST_SEQUENCES = 65_535
"""That one attention takes: the largest second and third side of a CUDA grid, along which kernels count sequences."""


def is_plain_linear(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a layer is its weight and bias and nothing more: no LoRA, no quantization, no offloading hook.

    torchao leaves the layer and replaces the tensor in its weight.
    """
    return type(module) is nn.Linear and type(module.weight) is nn.Parameter and not hasattr(module, "_hf_hook")


def drop_path_rates(highest: float, num_layers: int) -> list[float]:
    """Give each block its stochastic-depth rate: from 0 in the first up to `highest` in the last."""
    return torch.linspace(0, highest, num_layers, device="cpu").tolist()


def interpolate_frames(temporal_embedding: torch.Tensor, num_frames: int) -> torch.Tensor:
    """Stretch a temporal embedding `(1, frames, hidden_size)` linearly to another number of frames."""
    return F.interpolate(temporal_embedding.transpose(1, 2), num_frames, mode="linear").transpose(1, 2)


def time_code(num_frames: int, hidden_size: int) -> torch.Tensor:
    """Sinusoids of unit amplitude with periods from 2.2 frames to three clips: `(num_frames, hidden_size)`.

    Example:
        >>> time_code(12, 64).shape
        torch.Size([12, 64])
    """
    periods = torch.logspace(math.log10(2.2), math.log10(3 * num_frames), hidden_size // 2)
    angles = 2 * math.pi * torch.arange(num_frames)[:, None] / periods
    return torch.cat((angles.sin(), angles.cos()), -1)


def embed_clips(
    embed_images: Callable[..., torch.Tensor],
    temporal_embedding: torch.Tensor,
    pixel_values: torch.Tensor,
    *,
    num_channels: int,
    interpolate_temporal: bool = False,
    interpolate_pos_encoding: bool = False,
) -> torch.Tensor:
    """Embed patches frame by frame and add the embedding of each frame's position in time to all of its tokens.

    Args:
        embed_images: CLIP's embedding of images `(n, channels, height, width)`.
        temporal_embedding: `(1, frames, hidden_size)`.
        pixel_values: `(batch, frames, channels, height, width)`, float.
        num_channels: Channels the model reads.
        interpolate_temporal: Stretch the temporal embedding where the clips have another length.
        interpolate_pos_encoding: Stretch CLIP's position embedding where the frames have another size.

    Returns:
        Tokens, `(batch, frames, tokens, hidden_size)`.

    Raises:
        ValueError: If `pixel_values` has another layout, type or number of frames.
    """
    shape = tuple(pixel_values.shape)
    if len(shape) != 5 or shape[2] != num_channels:
        raise ValueError(
            f"pixel_values has shape {shape}; it must be (batch, frames, {num_channels} channels, height, width)"
        )
    if not pixel_values.is_floating_point():
        raise ValueError(f"pixel_values is {pixel_values.dtype}; pass the frames through AIMVideoProcessor first")
    batch_size, num_frames = shape[:2]
    if num_frames != temporal_embedding.shape[1]:
        if not interpolate_temporal:
            raise ValueError(
                f"pixel_values has {num_frames} frames, the model {temporal_embedding.shape[1]}: sample that many, "
                "call resize_temporal_embedding, or pass interpolate_temporal=True"
            )
        temporal_embedding = interpolate_frames(temporal_embedding, num_frames)
    tokens = embed_images(pixel_values.flatten(0, 1), interpolate_pos_encoding=interpolate_pos_encoding)
    embedded: torch.Tensor = tokens.unflatten(0, (batch_size, num_frames)) + temporal_embedding.unsqueeze(2)
    return embedded


def attend_unprojected(
    attention: CLIPAttention, queries: torch.Tensor, tokens: torch.Tensor, *, with_maps: bool = False
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Run CLIP's attention up to, but without, its output projection.

    Args:
        attention: The module whose projections and attention function are used.
        queries: `(sequences, queries, hidden_size)`.
        tokens: What they attend to, `(sequences, tokens, hidden_size)`.
        with_maps: Give the weights too, which takes the plain function instead of the configured one.

    Returns:
        The attended values `(sequences, queries, hidden_size)`, and the weights `(sequences, heads, queries, tokens)`,
        None where they are not requested.
    """

    def split_heads(states: torch.Tensor) -> torch.Tensor:
        heads: torch.Tensor = states.unflatten(-1, (-1, attention.head_dim)).transpose(1, 2)
        return heads

    function: Callable[..., tuple[torch.Tensor, torch.Tensor | None]] = eager_attention_forward
    if not with_maps:
        function = ALL_ATTENTION_FUNCTIONS.get_interface(attention.config._attn_implementation, function)
    heads = [attention.q_proj(queries), attention.k_proj(tokens), attention.v_proj(tokens)]
    dropout = attention.dropout if attention.training else 0.0
    parts = [
        function(attention, *part, None, scaling=attention.scale, dropout=dropout)
        for part in zip(*(split_heads(states).split(MOST_SEQUENCES) for states in heads), strict=True)
    ]
    attended = torch.cat([values for values, _ in parts]) if len(parts) > 1 else parts[0][0]
    weights = torch.cat([cast("torch.Tensor", maps) for _, maps in parts]) if with_maps else None
    return attended.flatten(-2), weights


def frozen_mlp(mlp: CLIPMLP, hidden_states: torch.Tensor) -> torch.Tensor:
    """Run CLIP's MLP, keeping one wide activation for the backward pass instead of two.

    QuickGELU `x * sigmoid(1.702 x)` is `silu(1.702 x) / 1.702`, and SiLU saves nothing but its input.
    """
    if not isinstance(mlp.activation_fn, QuickGELUActivation):
        change: torch.Tensor = mlp(hidden_states)
    else:
        wide = F.silu(mlp.fc1(hidden_states).mul_(QUICK_GELU_SLOPE)).mul_(1 / QUICK_GELU_SLOPE)
        change = mlp.fc2(wide)
    return change


class AIMDropPath(nn.Module):
    """Stochastic depth: in training each row is dropped with probability `rate`, and the others grow to make up for it.

    The same as `torchvision.ops.StochasticDepth(rate, "row")`, without the need for torchvision.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, change: torch.Tensor) -> torch.Tensor:
        """Map `(batch, ...)` to the same shape; in evaluation as it is."""
        if not self.training or not self.rate:
            return change
        kept = change.new_empty(len(change), *[1] * (change.ndim - 1)).bernoulli_(1 - self.rate)
        return change * kept.div_(1 - self.rate)


class AIMAdapter(nn.Module):
    """A bottleneck: down, GELU, up. The last layer starts at zero, so that a new adapter changes nothing."""

    def __init__(self, hidden_size: int, adapter_size: int) -> None:
        super().__init__()
        self.down = nn.Linear(hidden_size, adapter_size)
        self.up = nn.Linear(adapter_size, hidden_size)
        # In classes outside the library transformers initializes only leaves, so the leaf holds its own deviation.
        self.up.init_std = 0.0  # type: ignore[assignment]  # torch types attributes as tensors or modules

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Map `(..., hidden_size)` to the change `(..., hidden_size)`; the caller adds the skip where there is one."""
        change: torch.Tensor = self.up(F.gelu(self.down(hidden_states)))
        return change

    def forward_projected(self, projection: nn.Module, hidden_states: torch.Tensor) -> torch.Tensor:
        """Give `self(projection(hidden_states))` as one product: nothing else reads the projected values.

        For the sizes of AIM this is 1/17 of a block's work, and one activation less to keep.
        """
        if not (is_plain_linear(projection) and is_plain_linear(self.down)):
            change: torch.Tensor = self(projection(hidden_states))
        else:
            weight = self.down.weight @ projection.weight
            bias = F.linear(projection.bias, self.down.weight, self.down.bias)
            change = self.up(F.gelu(F.linear(hidden_states, weight, bias)))
        return change


class AIMAdapters(nn.Module):
    """What AIM adds to one block of CLIP, and how the block runs with it.

    The block is no argument of a `forward`: accelerate's hooks move the arguments of those to another device, and a
    block whose weights lie on disk cannot be moved.
    """

    def __init__(
        self,
        hidden_size: int,
        adapter_size: int,
        *,
        num_temporal_adapters: int = 1,
        adapter_scale: float = 0.5,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__()
        self.adapter_scale = adapter_scale
        self.temporal_input = AIMAdapter(hidden_size, adapter_size) if num_temporal_adapters == 2 else None
        self.temporal = AIMAdapter(hidden_size, adapter_size)
        self.spatial = AIMAdapter(hidden_size, adapter_size)
        self.joint = AIMAdapter(hidden_size, adapter_size)
        self.drop_path = AIMDropPath(drop_path_rate)

    def run_block(
        self,
        block: CLIPEncoderLayer,
        hidden_states: torch.Tensor,
        *,
        class_token_only: bool = False,
        with_maps: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Run a block over time, over space, then its MLP, with the same attention and first norm for both.

        Args:
            block: CLIP's block.
            hidden_states: `(batch, frames, tokens, hidden_size)`.
            class_token_only: Give the class tokens alone: all that is read of the last block.
            with_maps: Give the attention maps.

        Returns:
            The new hidden states, `(batch, frames, tokens or 1, hidden_size)`; the attention over space `(batch *
            frames, heads, tokens, tokens)` and over time `(batch * tokens, heads, frames, frames)`, or None.
        """
        batch_size, num_frames, num_tokens, _ = hidden_states.shape
        attention = block.self_attn

        tracks = block.layer_norm1(hidden_states.transpose(1, 2)).flatten(0, 1)  # (batch * tokens, frames, hidden)
        if self.temporal_input is not None:
            tracks = tracks + self.temporal_input(tracks)
        attended, over_time = attend_unprojected(attention, tracks, tracks, with_maps=with_maps)
        change = self.temporal.forward_projected(attention.out_proj, attended)
        hidden_states = hidden_states + self.drop_path(change.unflatten(0, (batch_size, num_tokens)).transpose(1, 2))

        frames = block.layer_norm1(hidden_states).flatten(0, 1)  # (batch * frames, tokens, hidden)
        queries = frames
        if class_token_only:
            hidden_states, queries = hidden_states[:, :, :1], frames[:, :1]
        attended, over_space = attend_unprojected(attention, queries, frames, with_maps=with_maps)
        projected = attention.out_proj(attended)
        change = projected + self.spatial(projected)
        hidden_states = hidden_states + change.unflatten(0, (batch_size, num_frames))

        normed = block.layer_norm2(hidden_states)
        change = self.drop_path(self.adapter_scale * self.joint(normed))
        hidden_states = hidden_states + frozen_mlp(block.mlp, normed) + change
        return hidden_states, over_space, over_time


class AIMLayer(CLIPEncoderLayer):
    """A block of CLIP with its adapters."""

    def __init__(self, config: AIMConfig, drop_path_rate: float) -> None:
        super().__init__(config)
        self.adapters = AIMAdapters(
            config.hidden_size,
            config.adapter_size,
            num_temporal_adapters=config.num_temporal_adapters,
            adapter_scale=config.adapter_scale,
            drop_path_rate=drop_path_rate,
        )

    def forward(  # type: ignore[override]  # a block of AIM reads clips, and no attention mask
        self, hidden_states: torch.Tensor, class_token_only: bool = False, with_maps: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """See `AIMAdapters.run_block`."""
        return self.adapters.run_block(self, hidden_states, class_token_only=class_token_only, with_maps=with_maps)


class AIMEmbeddings(CLIPVisionEmbeddings):
    """CLIP's patch and position embeddings, and one for the position in time, which starts at zero."""

    def __init__(self, config: AIMConfig) -> None:
        super().__init__(config)
        self.temporal_embedding = nn.Parameter(torch.zeros(1, config.num_frames, config.hidden_size))

    def forward(  # type: ignore[override]  # keywords only: clips may be interpolated in two ways
        self,
        pixel_values: torch.Tensor,
        *,
        interpolate_temporal: bool = False,
        interpolate_pos_encoding: bool = False,
    ) -> torch.Tensor:
        """See `embed_clips`."""
        return embed_clips(
            super().forward,
            self.temporal_embedding,
            pixel_values,
            num_channels=self.config.num_channels,
            interpolate_temporal=interpolate_temporal,
            interpolate_pos_encoding=interpolate_pos_encoding,
        )


class AIMEncoder(nn.Module):
    """The stack of blocks."""

    def __init__(self, config: AIMConfig) -> None:
        super().__init__()
        rates = drop_path_rates(config.drop_path_rate, config.num_hidden_layers)
        self.layers = nn.ModuleList(AIMLayer(config, rate) for rate in rates)


class MeanPooling(nn.Module):
    """The mean of a clip's frames, as in AIM."""

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Map `(batch, frames, hidden_size)` to `(batch, hidden_size)`."""
        return frames.mean(1)


class RecurrentPooling(nn.Module):
    """The mean of a clip's frames, and on top of it what a GRU in both directions makes of their order."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.gru = nn.GRU(hidden_size, hidden_size, batch_first=True, bidirectional=True)
        self.projection = nn.Linear(3 * hidden_size, hidden_size)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Map `(batch, frames, hidden_size)` to `(batch, hidden_size)`."""
        mean, (states, _) = frames.mean(1), self.gru(frames)
        change: torch.Tensor = self.projection(torch.cat([states.mean(1), mean], -1))
        return mean + change


def make_pooling(kind: str, hidden_size: int) -> nn.Module:
    """What makes one vector of a clip's frames; `kind` is `AIMConfig.temporal_pooling`."""
    return RecurrentPooling(hidden_size) if kind == "gru" else MeanPooling()


def label_head(hidden_size: int, num_labels: int, label_factors: LabelFactors | None) -> nn.Module:
    """A classification head, with small weights at first."""
    head: nn.Module = nn.Linear(hidden_size, num_labels)
    if label_factors is not None:
        head = FactoredClassifier(hidden_size, label_factors)
    linear = cast("nn.Linear", getattr(head, "linear", head))
    linear.init_std = 0.01  # type: ignore[assignment]  # torch types attributes as tensors or modules
    return head
