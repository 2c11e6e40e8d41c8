"""TF-CoVR-Base: compose a video and a modification text into one query, and embed the candidate videos."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_tfcovr import COMPOSED_MODEL_TYPES, TFCoVRConfig
from .distributed_gather import gather_with_gradient
from .encoders import (
    VIDEO_MODEL_TYPES,
    build_encoder,
    encoder_fields,
    load_encoder_weights,
    pooled_text,
    pooled_vision,
)
from .fusion import FUSIONS
from .losses import configured_loss, similarity_logits


@dataclass
class TFCoVROutput(ModelOutput):
    """What a forward pass gives.

    Attributes:
        loss: scalar, where `return_loss=True`.
        logits_per_query: `(n, n)` similarities over the temperature.
        query_embeds: `(n, D)` unit-norm composed queries.
        target_embeds: `(n, D)` unit-norm targets.
        vision_model_output: output of the video encoder for the query clips, with the hidden states or attention maps
            that were requested; None where none were.
        text_model_output: the same for the texts.
        target_vision_model_output: the same for the target clips.
    """

    loss: Tensor | None = None
    logits_per_query: Tensor | None = None
    query_embeds: Tensor | None = None
    target_embeds: Tensor | None = None
    vision_model_output: ModelOutput | None = None
    text_model_output: ModelOutput | None = None
    target_vision_model_output: ModelOutput | None = None

    def to_tuple(self) -> tuple[Any, ...]:
        """All that is not None; the encoders' outputs as tuples too."""
        return tuple(value.to_tuple() if isinstance(value, ModelOutput) else value for value in self.values())


class TFCoVRForComposedRetrieval(PreTrainedModel):
    """Composed video retrieval from two encoders and a fusion; see `TFCoVRConfig` for the choices.

    Works from pixels and tokens or from stored embeddings (`video_embeds`, `text_embeds`), which are what
    `encode_video` and `encode_text` give.

    Example:
        >>> from transformers import BertConfig, CLIPVisionConfig
        >>> small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> vision = CLIPVisionConfig(image_size=8, patch_size=4, **small)
        >>> text = BertConfig(vocab_size=9, **small)
        >>> config = TFCoVRConfig(vision_config=vision, text_config=text, fusion_hidden_dim=8)
        >>> model = TFCoVRForComposedRetrieval(config).eval()
        >>> frames, tokens = torch.rand(2, 4, 3, 8, 8), torch.tensor([[1, 2], [3, 4]])
        >>> model.get_query_features(frames, tokens).shape
        torch.Size([2, 16])
        >>> model.get_target_features(video_embeds=torch.rand(5, 16)).shape
        torch.Size([5, 16])
    """

    config: TFCoVRConfig
    config_class = TFCoVRConfig
    base_model_prefix = "tfcovr"
    main_input_name = "pixel_values"
    input_modalities = ("video", "text")  # type: ignore[assignment]  # transformers' own models give tuples, too
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _no_split_modules = ("AIMLayer",)  # type: ignore[assignment]  # transformers only reads it

    video_mean: Tensor
    video_deviation: Tensor

    def __init__(self, config: TFCoVRConfig) -> None:
        super().__init__(config)
        size = config.fused_dim
        vision_config = cast("PreTrainedConfig", config.vision_config)
        text_config = cast("PreTrainedConfig", config.text_config)
        own = None if config.imported_video else build_encoder(vision_config, config.vision_model_class, "vision")
        self.vision_model: Any = own
        self.text_model = build_encoder(text_config, config.text_model_class, "text")
        learned = config.project_text and config.fusion != "average"
        self.text_projection = nn.Linear(config.text_embed_dim, size) if learned else nn.Identity()
        self.fusion = FUSIONS[config.fusion](config)
        self.target_projection = nn.Linear(config.video_embed_dim, size) if config.project_targets else nn.Identity()
        if config.standardize_video:
            self.register_buffer("video_mean", torch.zeros(config.video_embed_dim))
            self.register_buffer("video_deviation", torch.ones(config.video_embed_dim))
        if config.learnable_temperature:
            self.log_temperature = nn.Parameter(torch.tensor([math.log(config.temperature)]))  # FSDP wants no scalars
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Start linear layers as PyTorch does, which is how the released combiner starts."""
        if isinstance(module, nn.Linear):
            init.kaiming_uniform_(module.weight, a=5**0.5)
            bound = module.in_features**-0.5
            init.uniform_(module.bias, -bound, bound)
        elif module is self and self.config.standardize_video:
            init.zeros_(self.video_mean)
            init.ones_(self.video_deviation)
        if module is self and self.config.learnable_temperature:
            init.constant_(module.log_temperature, math.log(self.config.temperature))

    @classmethod
    def from_vision_text_pretrained(
        cls, vision_model_name_or_path: str | Path, text_model_name_or_path: str | Path, **config: Any
    ) -> "TFCoVRForComposedRetrieval":
        """A model with these pretrained encoders and a fresh fusion.

        Args:
            vision_model_name_or_path: a video or image model, or one that contains it (AIM with its classifier, CLIP);
                not read with `imported_video`.
            text_model_name_or_path: a text model, or one that contains it.
            **config: fields of `TFCoVRConfig`.

        Returns:
            The model in evaluation mode.

        Raises:
            ValueError: An encoder's weights are not all there, which would leave it random.
        """
        sources = {"vision": vision_model_name_or_path, "text": text_model_name_or_path}
        if config.get("imported_video"):
            del sources["vision"]
        for kind, name_or_path in sources.items():
            whole = AutoConfig.from_pretrained(name_or_path)
            config |= encoder_fields(whole, kind, config.get(f"{kind}_model_class"))
        model = cls(cls.config_class(**config))
        for kind, name_or_path in sources.items():
            if AutoConfig.from_pretrained(name_or_path).model_type in COMPOSED_MODEL_TYPES:
                encoder = getattr(AutoModel.from_pretrained(name_or_path), f"{kind}_model")
            else:
                encoder = load_encoder_weights(name_or_path, getattr(model, f"{kind}_model"), kind)
            setattr(model, f"{kind}_model", encoder)
        model.eval()
        return model

    @property
    def temperature(self) -> float | Tensor:
        """What similarities are divided by: a number, or a scalar tensor with gradient where it is learned."""
        return self.log_temperature.exp()[0] if self.config.learnable_temperature else self.config.temperature

    def get_input_embeddings(self) -> nn.Module:
        """The token embeddings of the text encoder."""
        return self.text_model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Give the text encoder other token embeddings."""
        self.text_model.set_input_embeddings(value)

    def freeze_encoders(self) -> None:
        """Leave only the text projection, the fusion, the target projection and the temperature to train (stage 2)."""
        if self.vision_model is not None:
            self.vision_model.requires_grad_(False)
        self.text_model.requires_grad_(False)

    @torch.no_grad()
    def set_video_statistics(self, video_embeds: Tensor) -> None:
        """Take mean and deviation of these embeddings for `standardize_video`; training clips only, to be fair.

        Args:
            video_embeds: `(N, video_embed_dim)`, N at least 2.

        Raises:
            ValueError: The configuration does not standardize.
        """
        if not self.config.standardize_video:
            raise ValueError("this model does not standardize; set standardize_video=True in its configuration")
        self.video_mean.copy_(video_embeds.mean(0))
        self.video_deviation.copy_(video_embeds.std(0).clamp_min(1e-6))

    def _in_own_dtype(self, embeds: Tensor) -> Tensor:
        """Stored embeddings are float32, also for a model in half precision."""
        dtypes = (weight.dtype for weight in self.fusion.parameters() if weight.is_floating_point())
        return embeds.to(next(dtypes, embeds.dtype))

    def _standardized(self, video_embeds: Tensor) -> Tensor:
        if not self.config.standardize_video:
            return self._in_own_dtype(video_embeds)
        if self.video_mean.is_meta:  # no hook of accelerate's runs here; two vectors are not worth offloading
            raise ValueError(
                "the statistics of standardize_video are offloaded to disk; load the model with offload_buffers=False"
            )
        return self._in_own_dtype((video_embeds - self.video_mean) / self.video_deviation)

    def encode_video(self, pixel_values: Tensor) -> Tensor:
        """The output of the video encoder for each clip, not normalized, `(B, video_embed_dim)`.

        A video model gives its pooled output or else the mean of its tokens; an image model the mean over frames (and
        over query tokens, for BLIP-2) of its outputs.

        Args:
            pixel_values: `(B, T, C, H, W)`.

        Raises:
            ValueError: pixel_values does not have five dimensions.
        """
        return self._run_vision(pixel_values)[0]

    def _run_vision(self, pixel_values: Tensor, **options: Any) -> tuple[Tensor, ModelOutput]:
        if self.vision_model is None:
            made_by = cast("dict[str, Any]", self.config.imported_video).get("model", "another program")
            raise ValueError(
                f"this model has no video encoder: it works on imported embeddings of {made_by}; give these as "
                "video_embeds"
            )
        if pixel_values.ndim != 5:
            raise ValueError(
                f"pixel_values must be (batch, frames, channels, height, width), not {tuple(pixel_values.shape)}"
            )
        if cast("PreTrainedConfig", self.config.vision_config).model_type in VIDEO_MODEL_TYPES:
            outputs = self.vision_model(**{self.vision_model.main_input_name: pixel_values}, **options)
            return pooled_vision(outputs), outputs
        outputs = self.vision_model(pixel_values=pixel_values.flatten(0, 1), **options)
        return pooled_vision(outputs).unflatten(0, pixel_values.shape[:2]).mean(1), outputs

    def encode_text(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The output of the text encoder for each text, not normalized, `(B, text_embed_dim)`.

        The projected embedding of CLIP and BLIP-2 (its first token), the pooled output of a CLIP or SigLIP text model
        without projection, and the first token's last hidden state of BERT and BLIP.

        Args:
            input_ids: `(B, L)` token ids.
            attention_mask: `(B, L)`, 1 for tokens and 0 for padding; None is all ones.
        """
        return self._run_text(input_ids, attention_mask)[0]

    def _run_text(self, input_ids: Tensor, attention_mask: Tensor | None, **options: Any) -> tuple[Tensor, ModelOutput]:
        outputs = self.text_model(input_ids=input_ids, attention_mask=attention_mask, **options)
        model_type = cast("PreTrainedConfig", self.config.text_config).model_type
        return pooled_text(outputs, model_type), outputs

    # What the loss reads, which `_embeds` makes the embeddings of.
    def _query_output(self, video: Tensor, text: Tensor, _text_embeds: Tensor) -> Any:
        return F.normalize(self.fusion(video, text), dim=-1)

    def _target_output(self, video_embeds: Tensor) -> Any:
        return F.normalize(self.target_projection(self._standardized(video_embeds)), dim=-1)

    def _embeds(self, output: Any) -> Tensor:
        embeds: Tensor = output
        return embeds

    def get_query_features(
        self,
        pixel_values: Tensor | None = None,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *,
        video_embeds: Tensor | None = None,
        text_embeds: Tensor | None = None,
    ) -> Tensor:
        """Compose queries: unit-norm `(B, D)`.

        A query may lack its video or its text (the text-only and video-only baselines): the missing half is zeros.

        Args:
            pixel_values: `(B, T, C, H, W)` query clips, or give `video_embeds`.
            input_ids: `(B, L)` tokens of the modification texts, or give `text_embeds`.
            attention_mask: `(B, L)`, 1 for tokens and 0 for padding.
            video_embeds: `(B, video_embed_dim)` as `encode_video` gives them.
            text_embeds: `(B, text_embed_dim)` as `encode_text` gives them.

        Raises:
            ValueError: neither video nor text is given, or one of them twice.
        """
        _check_given_once(pixel_values=pixel_values, video_embeds=video_embeds)
        _check_given_once(input_ids=input_ids, text_embeds=text_embeds)
        if pixel_values is not None:
            video_embeds = self.encode_video(pixel_values)
        if input_ids is not None:
            text_embeds = self.encode_text(input_ids, attention_mask)
        return self._embeds(self._compose(video_embeds, text_embeds))

    def _compose(self, video_embeds: Tensor | None, text_embeds: Tensor | None) -> Any:
        video, text = None, None
        if text_embeds is not None:
            text = self.text_projection(self._in_own_dtype(text_embeds))
            if self.config.project_text:
                text = F.normalize(text, dim=-1)
        if video_embeds is not None:
            video = self._standardized(video_embeds)
        if video is None:
            if text is None:
                raise ValueError(
                    "a query needs a video (pixel_values or video_embeds), a text (input_ids or text_embeds) or both"
                )
            video = text.new_zeros(len(text), self.config.video_embed_dim)
        if text is None or text_embeds is None:
            text = video.new_zeros(len(video), self.config.fused_dim)
            text_embeds = video.new_zeros(len(video), self.config.text_embed_dim)
        return self._query_output(video, text, text_embeds)

    def get_target_features(self, pixel_values: Tensor | None = None, *, video_embeds: Tensor | None = None) -> Tensor:
        """Embed videos that may answer a query: unit-norm `(B, D)`.

        Args:
            pixel_values: `(B, T, C, H, W)`, or give `video_embeds`.
            video_embeds: `(B, video_embed_dim)` as `encode_video` gives them.

        Raises:
            ValueError: neither or both are given.
        """
        _check_given_once(pixel_values=pixel_values, video_embeds=video_embeds)
        if pixel_values is not None:
            video_embeds = self.encode_video(pixel_values)
        return self._embeds(self._target(video_embeds))

    def _target(self, video_embeds: Tensor | None) -> Any:
        if video_embeds is None:
            raise ValueError("a target needs pixel_values or video_embeds")
        return self._target_output(video_embeds)

    @can_return_tuple  # type: ignore[untyped-decorator]  # of transformers
    def forward(  # noqa: PLR0913 (as many as transformers' own models have)
        self,
        pixel_values: Tensor | None = None,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        target_pixel_values: Tensor | None = None,
        *,
        video_embeds: Tensor | None = None,
        text_embeds: Tensor | None = None,
        target_video_embeds: Tensor | None = None,
        target_labels: Tensor | None = None,
        return_loss: bool | None = None,
        output_hidden_states: bool | list[int] | None = None,
        output_attentions: bool | None = None,
    ) -> TFCoVROutput:
        """Compose queries, embed their targets and compare all with all.

        In training mode under several processes the loss is over the pairs of all of them, with gradient, so that
        more processes mean more negatives; every process must then call this together.

        `transformers.Trainer` trains and evaluates this model. For a loss in evaluation the batches must hold
        `target_labels`, whatever the loss; `dataloader_drop_last=True` keeps single pairs, which have no negatives,
        away.

        Args:
            pixel_values: `(n, T, C, H, W)` query clips, or give `video_embeds`.
            input_ids: `(n, L)` tokens of the modification texts, or give `text_embeds`.
            attention_mask: `(n, L)`, 1 for tokens and 0 for padding.
            target_pixel_values: `(n, T, C, H, W)` clips that answer the queries, row by row, or give
                `target_video_embeds`.
            video_embeds: `(n, video_embed_dim)`.
            text_embeds: `(n, text_embed_dim)`.
            target_video_embeds: `(n, video_embed_dim)`.
            target_labels: `(n,)` integers, the label that answers each query; the loss "multi_positive" reads them.
            return_loss: compute the configured loss; None does in training mode and where there are target labels.
            output_hidden_states: give the encoders' hidden states, or those of these layers; default
                `config.output_hidden_states`.
            output_attentions: give the encoders' attention maps; default `config.output_attentions`.

        Returns:
            Embeddings and logits of this process's rows, and the loss and the encoders' outputs where requested; a
            tuple with `return_dict=False`.
        """
        wanted = {"output_hidden_states": output_hidden_states, "output_attentions": output_attentions}
        wanted = {name: getattr(self.config, name) if on is None else on for name, on in wanted.items()}
        options = {name: on for name, on in wanted.items() if on}
        seen, read, target_seen = None, None, None
        _check_given_once(pixel_values=pixel_values, video_embeds=video_embeds)
        _check_given_once(input_ids=input_ids, text_embeds=text_embeds)
        _check_given_once(target_pixel_values=target_pixel_values, target_video_embeds=target_video_embeds)
        if pixel_values is not None:
            video_embeds, seen = self._run_vision(pixel_values, **options)
        if input_ids is not None:
            text_embeds, read = self._run_text(input_ids, attention_mask, **options)
        if target_pixel_values is not None:
            target_video_embeds, target_seen = self._run_vision(target_pixel_values, **options)
        query, target = self._compose(video_embeds, text_embeds), self._target(target_video_embeds)
        if return_loss is None:
            return_loss = self.training or target_labels is not None
        loss = self._loss(query, target, target_labels) if return_loss else None
        query, target = self._embeds(query), self._embeds(target)
        return TFCoVROutput(
            loss=loss,
            logits_per_query=similarity_logits(query, target, self.temperature),
            query_embeds=query,
            target_embeds=target,
            vision_model_output=seen if options else None,
            text_model_output=read if options else None,
            target_vision_model_output=target_seen if options else None,
        )

    def _loss(self, query: Any, target: Any, target_labels: Tensor | None) -> Tensor:
        if self.training:
            query, target = gather_with_gradient(query), gather_with_gradient(target)
            target_labels = None if target_labels is None else gather_with_gradient(target_labels)
        return configured_loss(self.config, query, target, self.temperature, target_labels)


def _check_given_once(**inputs: Tensor | None) -> None:
    if all(value is not None for value in inputs.values()):
        raise ValueError(f"give one of {' and '.join(inputs)}, not both")
