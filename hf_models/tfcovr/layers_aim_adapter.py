"""The modules of CLIP that an AIM adapter wraps, and how their output becomes that of AIM."""

import copy
from dataclasses import dataclass
from typing import Any, cast

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from torch.nn import functional as F
from transformers import CLIPVisionConfig, CLIPVisionModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.models.clip.modeling_clip import CLIPEncoderLayer, CLIPVisionEmbeddings
from transformers.utils import ModelOutput

from .configuration_aim_adapter import AIMAdapterConfig
from .layers_aim import AIMAdapters, drop_path_rates, embed_clips, label_head, make_pooling


@dataclass
class AIMAdapterOutput(ModelOutput):
    """What a CLIP vision tower with an active AIM adapter returns.

    Args:
        loss: Cross-entropy, a scalar; with a head and `labels`.
        logits: `(batch, num_labels)`; with a head.
        last_hidden_state: One vector per frame, `(batch, frames, hidden_size)`.
        pooler_output: One vector of the clip, `(batch, hidden_size)`.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    last_hidden_state: torch.Tensor | None = None
    pooler_output: torch.Tensor | None = None


class AIMTunerLayer(BaseTunerLayer):
    """The base of the three kinds of wrapped modules: one adapter is active, or none."""

    @property
    def enabled_adapter(self) -> str | None:
        """Name of the active adapter, None while all are disabled."""
        return None if self.disable_adapters or not self.active_adapters else self.active_adapters[0]

    def set_adapter(self, adapter_names: str | list[str], inference_mode: bool = False) -> None:
        """Make one adapter the active one.

        Args:
            adapter_names: Its name.
            inference_mode: Whether its weights stay as they are.

        Raises:
            ValueError: If several are named; AIM's adapters do not add up.
        """
        if not isinstance(adapter_names, str) and len(adapter_names) > 1:
            raise ValueError(f"one AIM adapter is active at a time; got {list(adapter_names)}")
        super().set_adapter(adapter_names, inference_mode)


class AIMEmbeddingsLayer(nn.Module, AIMTunerLayer):
    """CLIP's embeddings; with an adapter they take clips and add its temporal embedding."""

    adapter_layer_names = ("aim_temporal_embedding",)

    def __init__(self, base_layer: CLIPVisionEmbeddings) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.aim_temporal_embedding = nn.ParameterDict()

    @property
    def patch_embedding(self) -> nn.Module:
        """CLIP's, where `get_input_embeddings` looks for it."""
        return self.base_layer.patch_embedding

    def add(self, adapter_name: str, config: AIMAdapterConfig) -> None:
        """Add an adapter's temporal embedding, at zero."""
        like = self.base_layer.class_embedding
        zeros = torch.zeros(1, config.num_frames, self.base_layer.embed_dim, dtype=like.dtype, device=like.device)
        self.aim_temporal_embedding[adapter_name] = nn.Parameter(zeros)

    def forward(self, pixel_values: torch.Tensor, interpolate_pos_encoding: bool = False) -> torch.Tensor:
        """Embed clips `(batch, frames, channels, height, width)` as `(batch * frames, tokens, hidden_size)`."""
        if self.enabled_adapter is None:
            tokens: torch.Tensor = self.base_layer(pixel_values, interpolate_pos_encoding=interpolate_pos_encoding)
            return tokens
        tokens = embed_clips(
            self.base_layer,
            self.aim_temporal_embedding[self.enabled_adapter],
            pixel_values,
            num_channels=self.base_layer.config.num_channels,
            interpolate_pos_encoding=interpolate_pos_encoding,
        )
        return tokens.flatten(0, 1)


class AIMBlockLayer(GradientCheckpointingLayer, AIMTunerLayer):
    """A block of CLIP; with an adapter it runs over time as well."""

    adapter_layer_names = ("aim_adapters",)

    def __init__(self, base_layer: CLIPEncoderLayer, index: int, num_layers: int) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.index = index
        self.num_layers = num_layers
        self.num_frames: dict[str, int] = {}
        self.aim_adapters = nn.ModuleDict()
        self.gradient_checkpointing = base_layer.gradient_checkpointing
        if self.gradient_checkpointing:
            self._gradient_checkpointing_func = base_layer._gradient_checkpointing_func

    def add(self, adapter_name: str, config: AIMAdapterConfig) -> None:
        """Add an adapter's bottlenecks, which change nothing yet."""
        native = config.native(cast("CLIPVisionConfig", self.base_layer.self_attn.config))
        adapters = AIMAdapters(
            native.hidden_size,
            native.adapter_size,
            num_temporal_adapters=native.num_temporal_adapters,
            adapter_scale=native.adapter_scale,
            drop_path_rate=drop_path_rates(native.drop_path_rate, self.num_layers)[self.index],
        )
        initialize(adapters)
        self.aim_adapters[adapter_name] = place_like(adapters, self.base_layer.self_attn.out_proj.weight)
        self.num_frames[adapter_name] = config.num_frames

    def forward(self, hidden_states: torch.Tensor, attention_mask: None = None, **kwargs: Any) -> torch.Tensor:
        """Run the block on `(batch * frames, tokens, hidden_size)`; the last one gives the class tokens alone."""
        if self.enabled_adapter is None:
            states: torch.Tensor = self.base_layer(hidden_states, attention_mask, **kwargs)
            return states
        clips = hidden_states.unflatten(0, (-1, self.num_frames[self.enabled_adapter]))
        is_last = self.index == self.num_layers - 1
        adapters = cast("AIMAdapters", self.aim_adapters[self.enabled_adapter])
        clips, _, _ = adapters.run_block(self.base_layer, clips, class_token_only=is_last)
        return clips.flatten(0, 1)


class AIMHead(nn.Module):
    """An adapter's own copy of the last norm, and its classifier."""

    def __init__(self, norm: nn.LayerNorm, config: AIMAdapterConfig) -> None:
        super().__init__()
        self.num_frames = config.num_frames
        self.norm = copy.deepcopy(norm)
        self.dropout = nn.Dropout(config.classifier_dropout)
        size = norm.normalized_shape[0]
        self.pooling = make_pooling(config.temporal_pooling, size)
        self.classifier = label_head(size, config.num_labels, config.label_factors) if config.num_labels else None

    def forward(self, frames: torch.Tensor, labels: torch.Tensor | None) -> AIMAdapterOutput:
        """Pool and classify.

        Args:
            frames: Normed class tokens, `(batch * frames, hidden_size)`.
            labels: `(batch,)`, long.

        Returns:
            The output for the clips.

        Raises:
            ValueError: If there are labels and no classifier.
        """
        if labels is not None and self.classifier is None:
            raise ValueError("labels need a head: AIMAdapterConfig(num_labels=...)")
        frames = frames.unflatten(0, (-1, self.num_frames))
        video = self.pooling(frames)
        logits = None if self.classifier is None else self.classifier(self.dropout(video))
        loss = None if labels is None or logits is None else F.cross_entropy(logits, labels)
        return AIMAdapterOutput(loss=loss, logits=logits, last_hidden_state=frames, pooler_output=video)


class AIMNormLayer(nn.Module, AIMTunerLayer):
    """CLIP's last norm; with an adapter, the adapter's own."""

    adapter_layer_names = ("aim_head",)

    def __init__(self, base_layer: nn.LayerNorm, tower: CLIPVisionModel) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.aim_head = nn.ModuleDict()
        self.hooks = (
            tower.register_forward_pre_hook(refuse_hidden_states, with_kwargs=True),
            tower.register_forward_hook(pool_clips, with_kwargs=True),
        )

    def add(self, adapter_name: str, config: AIMAdapterConfig) -> None:
        """Add an adapter's norm, equal to CLIP's, and a new classifier."""
        head = AIMHead(self.base_layer, config)
        initialize(head)
        self.aim_head[adapter_name] = place_like(head, self.base_layer.weight)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Norm `(batch * frames, hidden_size)`."""
        norm = self.base_layer
        if self.enabled_adapter is not None:
            norm = cast("AIMHead", self.aim_head[self.enabled_adapter]).norm
        normed: torch.Tensor = norm(hidden_states)
        return normed


def initialize(module: nn.Module) -> None:
    """Give new linear layers the values that `AIMPreTrainedModel` gives them."""
    for leaf in module.modules():
        if isinstance(leaf, nn.Linear):
            nn.init.normal_(leaf.weight, std=getattr(leaf, "init_std", 0.02))
            nn.init.zeros_(leaf.bias)


def place_like(module: nn.Module, weight: torch.Tensor) -> nn.Module:
    """Move a new part to where the weights it works with are, unless it waits for its values on `meta`."""
    if any(parameter.is_meta for parameter in module.parameters()):
        return module
    return module.to(device=weight.device, dtype=weight.dtype)


def refuse_hidden_states(tower: CLIPVisionModel, _: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Stop a request for hidden states or attention maps, which CLIP records in places that adapters replace.

    Args:
        tower: About to run.
        kwargs: Its keyword arguments.

    Raises:
        ValueError: If they are requested while an adapter is active.
    """
    if tower.post_layernorm.enabled_adapter is None:
        return
    for name in ("output_hidden_states", "output_attentions"):
        if kwargs.get(name, getattr(tower.config, name)):
            raise ValueError(f"{name} is not available with an active AIM adapter; call to_aim and ask that model")


def pool_clips(tower: CLIPVisionModel, _: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    """Turn the output of CLIP, per frame, into that of AIM, per clip."""
    layer = cast("AIMNormLayer", tower.post_layernorm)
    if layer.enabled_adapter is None:
        return output
    pooled = layer.aim_head[layer.enabled_adapter](output[1], kwargs.get("labels"))
    return pooled.to_tuple() if isinstance(output, tuple) else pooled
