"""AIM: CLIP's vision tower whose frozen attention runs over time, then over space, with adapters in between."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional as F
from torchvision.ops import StochasticDepth
from transformers import AutoConfig, CLIPVisionConfig, CLIPVisionModel, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.activations import QuickGELUActivation
from transformers.modeling_outputs import BaseModelOutputWithPooling, ImageClassifierOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.clip.modeling_clip import (
    CLIPMLP,
    CLIPAttention,
    CLIPEncoderLayer,
    CLIPVisionEmbeddings,
    eager_attention_forward,
)
from transformers.utils import can_return_tuple

from .configuration_aim import AIMConfig

QUICK_GELU_SLOPE = 1.702
Model = TypeVar("Model", bound="AIMPreTrainedModel")


@dataclass
class AIMModelOutput(BaseModelOutputWithPooling):
    """What `AIMModel` returns.

    Args:
        last_hidden_state: One vector per frame, `(batch, frames, hidden_size)`.
        pooler_output: Their mean, `(batch, hidden_size)`.
        hidden_states: On request, the input of the first block and the output of each, `(batch, frames, tokens,
            hidden_size)`; token 0 is the class token.
        attentions: On request, the attention over space of each block, `(batch, frames, heads, tokens, tokens)`.
        temporal_attentions: With `attentions`, the attention over time, `(batch, tokens, heads, frames, frames)`.
    """

    temporal_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class AIMClassifierOutput(ImageClassifierOutput):
    """What `AIMForVideoClassification` returns: `loss`, `logits (batch, num_labels)`, the rest as in `AIMModelOutput`."""

    temporal_attentions: tuple[torch.Tensor, ...] | None = None


def is_plain_linear(module: nn.Module) -> bool:
    """Whether a layer is its weight and bias and nothing more: no LoRA, no quantisation, no offloading hook."""
    return type(module) is nn.Linear and not hasattr(module, "_hf_hook")


def interpolate_frames(temporal_embedding: torch.Tensor, num_frames: int) -> torch.Tensor:
    """Stretch a temporal embedding `(1, frames, hidden_size)` linearly to another number of frames."""
    return F.interpolate(temporal_embedding.transpose(1, 2), num_frames, mode="linear").transpose(1, 2)


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
        raise ValueError(
            f"pixel_values is {pixel_values.dtype}; pass the frames through AIMVideoProcessor first"
        )
    batch_size, num_frames = shape[:2]
    if num_frames != temporal_embedding.shape[1]:
        if not interpolate_temporal:
            raise ValueError(
                f"pixel_values has {num_frames} frames, the model {temporal_embedding.shape[1]}: sample that many, "
                "call resize_temporal_embedding, or pass interpolate_temporal=True"
            )
        temporal_embedding = interpolate_frames(temporal_embedding, num_frames)
    tokens = embed_images(pixel_values.flatten(0, 1), interpolate_pos_encoding=interpolate_pos_encoding)
    return tokens.unflatten(0, (batch_size, num_frames)) + temporal_embedding.unsqueeze(2)


def attend(
    attention: CLIPAttention, queries: torch.Tensor, tokens: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Run CLIP's attention up to, but without, its output projection.

    Args:
        attention: The module whose projections and attention function are used.
        queries: `(sequences, queries, hidden_size)`.
        tokens: What they attend to, `(sequences, tokens, hidden_size)`.

    Returns:
        The attended values `(sequences, queries, hidden_size)`, and the weights `(sequences, heads, queries, tokens)`
        where the attention function gives them.
    """

    def split_heads(states: torch.Tensor) -> torch.Tensor:
        return states.unflatten(-1, (-1, attention.head_dim)).transpose(1, 2)

    function = ALL_ATTENTION_FUNCTIONS.get_interface(
        attention.config._attn_implementation, eager_attention_forward
    )
    attended, weights = function(
        attention,
        split_heads(attention.q_proj(queries)),
        split_heads(attention.k_proj(tokens)),
        split_heads(attention.v_proj(tokens)),
        None,
        scaling=attention.scale,
        dropout=attention.dropout if attention.training else 0.0,
    )
    return attended.flatten(-2), weights


def frozen_mlp(mlp: CLIPMLP, hidden_states: torch.Tensor) -> torch.Tensor:
    """Run CLIP's MLP, keeping one wide activation for the backward pass instead of two.

    QuickGELU `x * sigmoid(1.702 x)` is `silu(1.702 x) / 1.702`, and SiLU saves nothing but its input.
    """
    if not isinstance(mlp.activation_fn, QuickGELUActivation):
        return mlp(hidden_states)
    hidden_states = F.silu(mlp.fc1(hidden_states).mul_(QUICK_GELU_SLOPE)).mul_(1 / QUICK_GELU_SLOPE)
    return mlp.fc2(hidden_states)


class AIMAdapter(nn.Module):
    """A bottleneck: down, GELU, up. The last layer starts at zero, so that a new adapter changes nothing."""

    def __init__(self, hidden_size: int, adapter_size: int) -> None:
        super().__init__()
        self.down = nn.Linear(hidden_size, adapter_size)
        self.up = nn.Linear(adapter_size, hidden_size)
        # transformers initialises leaves alone in classes outside the library, so the leaf carries the wish.
        self.up.init_std = 0.0

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Map `(..., hidden_size)` to the change `(..., hidden_size)`; the caller adds the skip where there is one."""
        return self.up(F.gelu(self.down(hidden_states)))

    def forward_projected(self, projection: nn.Module, hidden_states: torch.Tensor) -> torch.Tensor:
        """Give `self(projection(hidden_states))` as one product: nothing else reads the projected values.

        For the sizes of AIM this is 1/17 of a block's work, and one activation less to keep.
        """
        if not (is_plain_linear(projection) and is_plain_linear(self.down)):
            return self(projection(hidden_states))
        weight = self.down.weight @ projection.weight
        bias = F.linear(projection.bias, self.down.weight, self.down.bias)
        return self.up(F.gelu(F.linear(hidden_states, weight, bias)))


class AIMAdapters(nn.Module):
    """What AIM adds to one block of CLIP, and how the block runs with it."""

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
        self.drop_path = StochasticDepth(drop_path_rate, "row")

    def forward(
        self, block: CLIPEncoderLayer, hidden_states: torch.Tensor, *, class_token_only: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Run a block over time, over space, then its MLP, with the same attention and first norm for both.

        Args:
            block: CLIP's block.
            hidden_states: `(batch, frames, tokens, hidden_size)`.
            class_token_only: Give the class tokens alone: all that is read of the last block.

        Returns:
            The new hidden states, `(batch, frames, tokens or 1, hidden_size)`; the attention over space `(batch,
            frames, heads, tokens, tokens)` and over time `(batch, tokens, heads, frames, frames)`, or None where the
            attention function gives none.
        """
        batch_size, num_frames, num_tokens, _ = hidden_states.shape
        attention = block.self_attn

        tracks = block.layer_norm1(hidden_states.transpose(1, 2)).flatten(
            0, 1
        )  # (batch * tokens, frames, hidden)
        if self.temporal_input is not None:
            tracks = tracks + self.temporal_input(tracks)
        attended, over_time = attend(attention, tracks, tracks)
        change = self.temporal.forward_projected(attention.out_proj, attended)
        hidden_states = hidden_states + self.drop_path(
            change.unflatten(0, (batch_size, num_tokens)).transpose(1, 2)
        )

        frames = block.layer_norm1(hidden_states).flatten(0, 1)  # (batch * frames, tokens, hidden)
        queries = frames
        if class_token_only:
            hidden_states, queries = hidden_states[:, :, :1], frames[:, :1]
        attended, over_space = attend(attention, queries, frames)
        projected = attention.out_proj(attended)
        change = projected + self.spatial(projected)
        hidden_states = hidden_states + change.unflatten(0, (batch_size, num_frames))

        normed = block.layer_norm2(hidden_states)
        change = self.drop_path(self.adapter_scale * self.joint(normed))
        hidden_states = hidden_states + frozen_mlp(block.mlp, normed) + change
        if over_time is not None:
            over_time = over_time.unflatten(0, (batch_size, num_tokens))
            over_space = over_space.unflatten(0, (batch_size, num_frames))
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

    def forward(
        self, hidden_states: torch.Tensor, class_token_only: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """See `AIMAdapters.forward`."""
        return self.adapters(self, hidden_states, class_token_only=class_token_only)


class AIMEmbeddings(CLIPVisionEmbeddings):
    """CLIP's patch and position embeddings, and one for the position in time, which starts at zero."""

    def __init__(self, config: AIMConfig) -> None:
        super().__init__(config)
        self.temporal_embedding = nn.Parameter(torch.zeros(1, config.num_frames, config.hidden_size))

    def forward(
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
    """The stack of blocks; stochastic depth grows linearly over it."""

    def __init__(self, config: AIMConfig) -> None:
        super().__init__()
        rates = torch.linspace(0, config.drop_path_rate, config.num_hidden_layers, device="cpu").tolist()
        self.layers = nn.ModuleList(AIMLayer(config, rate) for rate in rates)


class CLIPVisionTower(CLIPVisionModel):
    """CLIP's vision tower, loaded without a word about the text tower that a full checkpoint holds beside it."""

    _keys_to_ignore_on_load_unexpected = (r"^text_model\.", r"^(text|visual)_projection\.", r"^logit_scale$")


def load_clip_vision(name_or_path: str, revision: str = "main") -> tuple[CLIPVisionModel, dict[str, Any]]:
    """Load the vision tower of a CLIP checkpoint and transformers' account of which weights it found.

    Args:
        name_or_path: A folder or a name on the Hub.
        revision: Branch, tag or commit on the Hub.

    Returns:
        The tower, and the loading information.

    Raises:
        ValueError: If there is no model, or another architecture.
    """
    try:
        found = AutoConfig.from_pretrained(name_or_path, revision=revision).model_type
        if found in {"clip", "clip_vision_model"}:
            return CLIPVisionTower.from_pretrained(
                name_or_path,
                revision=revision,
                key_mapping={r"^vision_model\.": ""},
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
    except (OSError, ValueError) as error:
        raise ValueError(f"{str(name_or_path)!r} is no CLIP checkpoint that can be read: {error}") from error
    raise ValueError(f"{str(name_or_path)!r} is a {found!r} model; AIM is built on a 'clip' with its vision tower")


class AIMPreTrainedModel(PreTrainedModel):
    """What AIM's models share: weights from CLIP, initial values, and which weights train."""

    config: AIMConfig
    base_model_prefix = "aim"
    main_input_name = "pixel_values"
    input_modalities = ("video",)
    _input_embed_layer = "patch_embedding"
    _no_split_modules = ("AIMEmbeddings", "AIMLayer")
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if hasattr(module, "init_std"):
            init.normal_(module.weight, std=module.init_std) if module.init_std else init.zeros_(
                module.weight
            )
            init.zeros_(module.bias)
        elif isinstance(module, AIMEmbeddings):
            init.zeros_(module.temporal_embedding)
            init.normal_(module.class_embedding, std=self.config.initializer_range)
            init.copy_(module.position_ids, torch.arange(module.num_positions).expand(1, -1))

    @classmethod
    def from_clip(
        cls: type[Model], name_or_path: str, *, num_frames: int = 12, revision: str = "main", **config: Any
    ) -> Model:
        """Build an AIM whose backbone is the vision tower of a CLIP checkpoint; what AIM adds starts new.

        At first it computes exactly what CLIP does, frame by frame.

        Args:
            name_or_path: A `CLIPModel` or `CLIPVisionModel` checkpoint, a folder or a name on the Hub.
            num_frames: Frames per clip.
            revision: Branch, tag or commit on the Hub.
            **config: Other fields of `AIMConfig`, such as `adapter_scale` or `num_labels`.

        Returns:
            The model, float32, in evaluation mode.

        Raises:
            ValueError: If this is not a CLIP with a vision tower, or if not all of its weights were found.
        """
        clip, info = load_clip_vision(name_or_path, revision)
        lost = sorted({*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])})
        if lost:
            raise ValueError(
                f"the CLIP backbone did not load from {str(name_or_path)!r}: {len(lost)} weights are missing or of another "
                f"shape, among them {', '.join(lost[:5])}; is this a CLIP checkpoint with its vision tower?"
            )
        of_any_model = {field.name for field in fields(PreTrainedConfig)}
        architecture = {field.name for field in fields(CLIPVisionConfig)} - of_any_model
        tower = {name: getattr(clip.config, name) for name in architecture}
        model = cls(AIMConfig(**{**tower, "num_frames": num_frames, **config}))
        unexpected = model.base_model.load_state_dict(clip.state_dict(), strict=False).unexpected_keys
        if unexpected:
            raise ValueError(
                f"{str(name_or_path)!r} has weights that AIM has no place for: {', '.join(unexpected)}"
            )
        return model.eval()

    def freeze_backbone(self) -> None:
        """Train as the paper does: adapters, temporal embedding, last norm and head; the rest of CLIP stays."""
        for name, parameter in self.named_parameters():
            trained = ("adapters.", "temporal_embedding", "post_layernorm.", "classifier.")
            parameter.requires_grad_(any(part in name for part in trained))

    def resize_temporal_embedding(self, num_frames: int) -> None:
        """Stretch the temporal embedding linearly to `num_frames`, for good."""
        embeddings = self.base_model.embeddings
        trained = embeddings.temporal_embedding.requires_grad
        resized = interpolate_frames(embeddings.temporal_embedding.detach(), num_frames)
        embeddings.temporal_embedding = nn.Parameter(resized.contiguous(), requires_grad=trained)
        self.config.num_frames = num_frames


class AIMModel(AIMPreTrainedModel):
    """AIM's video encoder.

    Example:
        >>> config = AIMConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        ...                    image_size=16, patch_size=8, num_frames=4)
        >>> output = AIMModel(config)(torch.zeros(2, 4, 3, 16, 16))
        >>> output.last_hidden_state.shape, output.pooler_output.shape
        (torch.Size([2, 4, 16]), torch.Size([2, 16]))
    """

    def __init__(self, config: AIMConfig) -> None:
        super().__init__(config)
        self.embeddings = AIMEmbeddings(config)
        self.pre_layrnorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.encoder = AIMEncoder(config)
        self.post_layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        pixel_values: torch.Tensor,
        *,
        interpolate_temporal: bool = False,
        interpolate_pos_encoding: bool = False,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> AIMModelOutput:
        """Encode clips.

        Args:
            pixel_values: `(batch, frames, channels, height, width)`, float, from `AIMVideoProcessor`.
            interpolate_temporal: Stretch the temporal embedding where the clips have another length than
                `config.num_frames`; otherwise that is an error.
            interpolate_pos_encoding: The same for the size of the frames.
            output_hidden_states: Give the states between blocks; default `config.output_hidden_states`.
            output_attentions: Give the attention maps, over space and over time; needs `"eager"` attention.

        Returns:
            `last_hidden_state (batch, frames, hidden_size)`, `pooler_output (batch, hidden_size)`, and what was asked.

        Raises:
            ValueError: If `pixel_values` has another layout, type or number of frames, or if attention maps are asked
                of an attention function that gives none.
        """
        want_states = (
            self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        )
        want_maps = self.config.output_attentions if output_attentions is None else output_attentions
        if want_maps and self.config._attn_implementation != "eager":
            raise ValueError(
                f"{self.config._attn_implementation!r} attention gives no maps; call set_attn_implementation('eager')"
            )
        hidden_states = self.embeddings(
            pixel_values,
            interpolate_temporal=interpolate_temporal,
            interpolate_pos_encoding=interpolate_pos_encoding,
        )
        hidden_states = self.pre_layrnorm(hidden_states)
        states, over_space, over_time = [hidden_states], [], []
        for index, layer in enumerate(self.encoder.layers, start=1):
            is_last = index == len(self.encoder.layers)
            hidden_states, *maps = layer(hidden_states, is_last and not (want_states or want_maps))
            if want_states:
                states.append(hidden_states)
            if want_maps:
                over_space.append(maps[0])
                over_time.append(maps[1])
        frame_features = self.post_layernorm(hidden_states[:, :, 0])
        return AIMModelOutput(
            last_hidden_state=frame_features,
            pooler_output=frame_features.mean(1),
            hidden_states=tuple(states) if want_states else None,
            attentions=tuple(over_space) if want_maps else None,
            temporal_attentions=tuple(over_time) if want_maps else None,
        )


class AIMForVideoClassification(AIMPreTrainedModel):
    """AIM with a linear head on the mean of its frames: stage 1 of TF-CoVR.

    Example:
        >>> config = AIMConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        ...                    image_size=16, patch_size=8, num_frames=4, num_labels=5)
        >>> AIMForVideoClassification(config)(torch.zeros(2, 4, 3, 16, 16)).logits.shape
        torch.Size([2, 5])
    """

    def __init__(self, config: AIMConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.aim = AIMModel(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.classifier.init_std = 0.01
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        pixel_values: torch.Tensor,
        labels: torch.Tensor | None = None,
        *,
        interpolate_temporal: bool = False,
        interpolate_pos_encoding: bool = False,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> AIMClassifierOutput:
        """Classify clips.

        Args:
            pixel_values: `(batch, frames, channels, height, width)`, float, from `AIMVideoProcessor`.
            labels: `(batch,)`, long, in `[0, num_labels)`; with them comes the loss.
            interpolate_temporal: As in `AIMModel`.
            interpolate_pos_encoding: As in `AIMModel`.
            output_hidden_states: As in `AIMModel`.
            output_attentions: As in `AIMModel`.

        Returns:
            `loss` (cross-entropy, a scalar, with `labels`), `logits (batch, num_labels)`, and what was asked.
        """
        output = self.aim(
            pixel_values,
            interpolate_temporal=interpolate_temporal,
            interpolate_pos_encoding=interpolate_pos_encoding,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
        )
        logits = self.classifier(self.dropout(output.pooler_output))
        return AIMClassifierOutput(
            loss=None if labels is None else self.loss_function(labels, logits, self.config),
            logits=logits,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
            temporal_attentions=output.temporal_attentions,
        )
