"""AIM: CLIP's vision tower whose frozen attention runs over time, then over space."""

import os
from dataclasses import dataclass
from typing import Any, Self, cast

import torch
from torch import nn
from transformers import AutoConfig, CLIPVisionModel, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling, ImageClassifierOutput
from transformers.utils import can_return_tuple

from .configuration_aim import AIMConfig
from .factored_classifier import FactoredClassifier
from .layers_aim import AIMEmbeddings, AIMEncoder, interpolate_frames, label_head, make_pooling


@dataclass
class AIMModelOutput(BaseModelOutputWithPooling):
    """What `AIMModel` returns.

    Args:
        last_hidden_state: One vector per frame, `(batch, frames, hidden_size)`.
        pooler_output: Their mean, or what `temporal_pooling` makes of them, `(batch, hidden_size)`.
        hidden_states: On request, the input of the first block and the output of each, `(batch, frames, tokens,
            hidden_size)`; token 0 is the class token.
        attentions: On request, the attention over space of each block, `(batch * frames, heads, tokens, tokens)`.
        temporal_attentions: With `attentions`, the attention over time, `(batch * tokens, heads, frames, frames)`.
    """

    temporal_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class AIMClassifierOutput(ImageClassifierOutput):
    """What `AIMForVideoClassification` returns: `loss`, `logits (batch, num_labels)`, then as in `AIMModelOutput`."""

    temporal_attentions: tuple[torch.Tensor, ...] | None = None


class CLIPVisionTower(CLIPVisionModel):
    """CLIP's vision tower, loaded without a warning about the text tower that a full checkpoint holds beside it."""

    # transformers only reads it
    _keys_to_ignore_on_load_unexpected = (r"^text_model\.", r"^(text|visual)_projection\.", r"^logit_scale$")  # type: ignore[assignment]

    @property
    def is_gradient_checkpointing(self) -> bool:
        """The old name, which PEFT 0.21 reads of every model; transformers' own warns about it."""
        return self.is_activation_checkpointing


def load_clip_vision(name_or_path: str, revision: str = "main") -> tuple[CLIPVisionModel, dict[str, Any]]:
    """Load the vision tower of a CLIP checkpoint and transformers' report of which weights it found.

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
            loaded = CLIPVisionTower.from_pretrained(
                name_or_path,
                revision=revision,
                key_mapping={r"^vision_model\.": ""},
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
            return cast("tuple[CLIPVisionModel, dict[str, Any]]", loaded)
    except (OSError, ValueError) as error:
        raise ValueError(f"{str(name_or_path)!r} cannot be read as a CLIP checkpoint: {error}") from error
    raise ValueError(f"{str(name_or_path)!r} is a {found!r} model; AIM is built on a 'clip' with its vision tower")


class AIMPreTrainedModel(PreTrainedModel):
    """The base of AIM's models: weights from CLIP, initial values, and which weights train."""

    config: AIMConfig
    base_model_prefix = "aim"
    main_input_name = "pixel_values"
    input_modalities = ("video",)  # type: ignore[assignment]  # transformers' own models give tuples, too
    _input_embed_layer = "patch_embedding"
    _no_split_modules = ("AIMEmbeddings", "AIMLayer")  # type: ignore[assignment]  # transformers only reads it
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if hasattr(module, "init_std"):
            linear, std = cast("nn.Linear", module), cast("float", module.init_std)
            init.normal_(linear.weight, std=std) if std else init.zeros_(linear.weight)
            init.zeros_(linear.bias)
        elif isinstance(module, AIMEmbeddings):
            init.zeros_(module.temporal_embedding)
            init.normal_(module.class_embedding, std=self.config.initializer_range)
            init.copy_(module.position_ids, torch.arange(module.num_positions).expand(1, -1))
        elif isinstance(module, FactoredClassifier):
            init.copy_(module.membership, module.make_membership())
        elif isinstance(module, nn.GRU):
            for weights in module.parameters():
                init.uniform_(weights, -(module.hidden_size**-0.5), module.hidden_size**-0.5)

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[str] | None, *args: Any, **kwargs: Any
    ) -> Self:
        """Load a saved AIM, as every model of transformers loads.

        Args:
            pretrained_model_name_or_path: A folder or a name on the Hub.
            *args: As in transformers.
            **kwargs: As in transformers.

        Returns:
            The model, in evaluation mode; with `output_loading_info=True` also what was found.

        Raises:
            ValueError: If it describes another architecture, or a larger model that holds an AIM.
        """
        with_info = kwargs.pop("output_loading_info", False)
        kwargs["output_loading_info"] = True
        loaded = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        model, info = cast("tuple[Self, dict[str, Any]]", loaded)
        deeper = {key.partition(".")[2] for key in info["unexpected_keys"]}
        if not model.state_dict().keys() - info["missing_keys"] and deeper & model.base_model.state_dict().keys():
            raise ValueError(
                f"{str(pretrained_model_name_or_path)!r} is not an {cls.__name__} but a larger model that holds an "
                "AIM: load it with AutoModel and take its vision_model"
            )
        return (model, info) if with_info else model  # type: ignore[return-value]  # declared as in transformers

    @classmethod
    def from_clip(cls, name_or_path: str, *, num_frames: int = 12, revision: str = "main", **config: Any) -> Self:
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
                f"the CLIP backbone did not load from {str(name_or_path)!r}: {len(lost)} weights are missing or of "
                f"another shape, among them {', '.join(lost[:5])}; is this a CLIP checkpoint with its vision tower?"
            )
        model = cls(AIMConfig.from_clip_config(clip.config, num_frames=num_frames, **config))
        unexpected = model.base_model.load_state_dict(clip.state_dict(), strict=False).unexpected_keys
        if unexpected:
            raise ValueError(f"{str(name_or_path)!r} has weights that AIM has no place for: {', '.join(unexpected)}")
        model.eval()
        return model

    def freeze_backbone(self) -> None:
        """Train as the paper does: adapters, temporal embedding, last norm, pooling and head; CLIP stays as it is."""
        for name, parameter in self.named_parameters():
            trained = ("adapters.", "temporal_embedding", "post_layernorm.", "pooling.", "classifier.")
            parameter.requires_grad_(any(part in name for part in trained))

    def resize_temporal_embedding(self, num_frames: int) -> None:
        """Stretch the temporal embedding linearly to `num_frames`, for good."""
        embeddings = cast("AIMEmbeddings", self.base_model.embeddings)
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
        self.pooling = make_pooling(config.temporal_pooling, config.hidden_size)
        self.post_init()

    @can_return_tuple  # type: ignore[untyped-decorator]  # of transformers
    def forward(
        self,
        pixel_values: torch.Tensor,
        *,
        interpolate_temporal: bool = False,
        interpolate_pos_encoding: bool = False,
        output_hidden_states: bool | list[int] | None = None,
        output_attentions: bool | None = None,
    ) -> AIMModelOutput:
        """Encode clips.

        Args:
            pixel_values: `(batch, frames, channels, height, width)`, float, from `AIMVideoProcessor`.
            interpolate_temporal: Stretch the temporal embedding where the clips have another length than
                `config.num_frames`; otherwise that is an error.
            interpolate_pos_encoding: The same for the size of the frames.
            output_hidden_states: Give the states between blocks, or those with these numbers and None for the others;
                default `config.output_hidden_states`.
            output_attentions: Give the attention maps, over space and over time, for which attention runs in its plain
                form; default `config.output_attentions`.

        Returns:
            `last_hidden_state (batch, frames, hidden_size)`, `pooler_output (batch, hidden_size)`, and what was
            requested.
        """
        want_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        want_maps = self.config.output_attentions if output_attentions is None else output_attentions
        hidden_states = self.embeddings(
            pixel_values,
            interpolate_temporal=interpolate_temporal,
            interpolate_pos_encoding=interpolate_pos_encoding,
        )
        hidden_states = self.pre_layrnorm(hidden_states)
        states, over_space, over_time = [hidden_states], [], []
        for index, layer in enumerate(self.encoder.layers, start=1):
            class_token_only = index == len(self.encoder.layers) and not (want_states or want_maps)
            hidden_states, *maps = layer(hidden_states, class_token_only, want_maps)
            if want_states:
                states.append(hidden_states)
            if want_maps:
                over_space.append(maps[0])
                over_time.append(maps[1])
        if isinstance(want_states, list):
            kept = {range(len(states))[index] for index in want_states}
            states = [state if index in kept else None for index, state in enumerate(states)]
        frame_features = self.post_layernorm(hidden_states[:, :, 0])
        return AIMModelOutput(
            last_hidden_state=frame_features,
            pooler_output=self.pooling(frame_features),
            hidden_states=tuple(states) if want_states else None,
            attentions=tuple(over_space) if want_maps else None,
            temporal_attentions=tuple(over_time) if want_maps else None,
        )


class AIMForVideoClassification(AIMPreTrainedModel):
    """AIM with a head on the pooled vector of its frames: stage 1 of TF-CoVR.

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
        self.classifier = label_head(config.hidden_size, cast("int", config.num_labels), config.label_factors)
        self.post_init()

    @can_return_tuple  # type: ignore[untyped-decorator]  # of transformers
    def forward(
        self,
        pixel_values: torch.Tensor,
        labels: torch.Tensor | None = None,
        *,
        interpolate_temporal: bool = False,
        interpolate_pos_encoding: bool = False,
        output_hidden_states: bool | list[int] | None = None,
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
            `loss` (cross-entropy, a scalar, with `labels`), `logits (batch, num_labels)`, and what was requested.
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
