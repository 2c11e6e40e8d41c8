"""VidCLIP: CLIP's two towers for videos and paragraphs, pooled over time by attention."""

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import CLIPTextConfig, CLIPTextModel, CLIPVisionConfig, CLIPVisionModel, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import ModelOutput, can_return_tuple, logging

from .configuration_vidclip import VidCLIPConfig
from .conversion_vidclip import extend_positions, load_clip
from .distributed_gather import gather_with_gradient, world_size
from .layers_vidclip import (
    AttentionPooler,
    TemporalEmbedding,
    VideoPooler,
    at_least_one_row,
    limited_scale,
    temporal_positions,
)
from .layers_vidclip_captioning import CaptionDecoder, text_lengths
from .losses import caption_log_likelihoods, captioning_loss, clip_loss, comp_loss, negclip

ADDED_TO_CLIP = ("video_pooler.", "captioner.")
logger = logging.get_logger(__name__)


@dataclass
class VidCLIPOutput(ModelOutput):
    """What a forward pass gives.

    Attributes:
        loss: Scalar, where `return_loss=True`.
        logits_per_video: `(B, N)` cosines of each video with each text, times the logit scale.
        logits_per_text: `(N, B)`, the same the other way.
        video_embeds: `(B, D)`, unit norm.
        text_embeds: `(N, D)`, unit norm.
        negative_embeds: `(B, K, D)`, unit norm, zeros where there is no negative; where negatives are given.
        text_model_output: Of the text tower, with `hidden_states` (the input of the first layer and the output of each,
            `(N, L, width)`) and `attentions` (`(N, heads, L, L)` of each layer), where these are requested.
        vision_model_output: The same for the vision tower, whose rows are the `B * T` frames.
        caption_loss: Scalar, the captioning part of `loss` before its weight; where the model has a decoder.
    """

    loss: Tensor | None = None
    logits_per_video: Tensor | None = None
    logits_per_text: Tensor | None = None
    video_embeds: Tensor | None = None
    text_embeds: Tensor | None = None
    negative_embeds: Tensor | None = None
    text_model_output: BaseModelOutputWithPooling | None = None
    vision_model_output: BaseModelOutputWithPooling | None = None
    caption_loss: Tensor | None = None

    def to_tuple(self) -> tuple[Any, ...]:
        """All that is not None, in the order above, with the towers' outputs as tuples too."""
        return tuple(value.to_tuple() if isinstance(value, ModelOutput) else value for value in self.values())


class VidCLIPModel(PreTrainedModel):
    """A CLIP for videos and paragraphs (VideoComp, section 4.1).

    The vision tower sees each frame alone. Its tokens get their place in time after the last layer and are pooled
    over all frames by two attention poolers, the first with 196 queries, the second with one. The text tower reads up
    to 160 tokens; its summary (the paper's CLS) is CLIP's end-of-text token, the only one that attends to all others.
    Attributes have CLIP's names, so code that reads those of a `CLIPModel` works here.

    With `config.num_captioning_layers` a text decoder attends to the 196 tokens of the first pooler, as in CoCa, and
    the loss has a captioning part: VidCLIP with captioning loss, which is like VideoCoCa. Embeddings come from the
    towers as before; `get_text_scores` says how likely each text is given a video. `from_pretrained(folder,
    num_captioning_layers=2)` puts a new decoder on a saved VidCLIP.

    Example:
        >>> small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> config = VidCLIPConfig(vision_config={**small, "image_size": 8, "patch_size": 4},
        ...                        text_config={**small, "vocab_size": 9, "eos_token_id": 8}, projection_dim=16)
        >>> model = VidCLIPModel(config).eval()
        >>> output = model(torch.rand(2, 4, 3, 8, 8), torch.tensor([[1, 2, 8], [3, 8, 8], [4, 5, 8]]))
        >>> output.logits_per_video.shape, output.logits_per_text.shape
        (torch.Size([2, 3]), torch.Size([3, 2]))

    transformers' `Trainer` trains and evaluates it where the collator's batches carry `"return_loss": True`, as with
    CLIP. A training loop of one's own calls `limit_logit_scale_` after each step.
    """

    config: VidCLIPConfig
    config_class = VidCLIPConfig
    base_model_prefix = "vidclip"
    main_input_name = "pixel_values"
    input_modalities = ("video", "text")  # type: ignore[assignment]  # transformers' own models give tuples, too
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True
    _no_split_modules: tuple[str, ...] = (  # type: ignore[assignment]  # transformers only reads it
        "CLIPTextEmbeddings",
        "CLIPEncoderLayer",
        "CLIPVisionEmbeddings",
        "VideoPooler",
        "CaptioningLayer",
    )

    def __init__(self, config: VidCLIPConfig) -> None:
        super().__init__(config)
        text, vision = cast("CLIPTextConfig", config.text_config), cast("CLIPVisionConfig", config.vision_config)
        self.text_model = CLIPTextModel._from_config(text)
        self.vision_model = CLIPVisionModel._from_config(vision)
        self.video_pooler = VideoPooler(config)
        self.visual_projection = nn.Linear(vision.hidden_size, config.projection_dim, bias=False)
        self.text_projection = nn.Linear(text.hidden_size, config.projection_dim, bias=False)
        self.logit_scale = nn.Parameter(torch.tensor(float(config.logit_scale_init_value)))
        self.captioner = CaptionDecoder(config, self.text_model.config) if config.num_captioning_layers else None
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if getattr(module, "starts_at_zero", False):
            init.zeros_(cast("Tensor", module.weight))
        elif isinstance(module, TemporalEmbedding):
            init.copy_(module.weight, temporal_positions(*module.weight.shape))
        elif isinstance(module, AttentionPooler):
            init.normal_(module.query)
            for projection in (module.q_proj, module.k_proj, module.v_proj, module.out_proj):
                init.xavier_uniform_(projection.weight)  # otherwise all queries attend alike for many steps
        elif isinstance(module, VidCLIPModel):
            init.constant_(module.logit_scale, self.config.logit_scale_init_value)

    def get_input_embeddings(self) -> nn.Module:
        """The embedding of tokens."""
        embedding: nn.Module = self.text_model.get_input_embeddings()
        return embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the embedding of tokens."""
        self.text_model.set_input_embeddings(value)

    def get_output_embeddings(self) -> nn.Module | None:
        """The head of the text decoder, None without one; `resize_token_embeddings` resizes it too."""
        return None if self.captioner is None else self.captioner.head

    def set_output_embeddings(self, value: nn.Module) -> None:
        """Replace the head of the text decoder."""
        cast("CaptionDecoder", self.captioner).head = cast("nn.Linear", value)

    @classmethod
    def from_clip(
        cls,
        name_or_path: str,
        *,
        num_frames: int = 16,
        max_text_tokens: int = 160,
        revision: str = "main",
        **config: Any,
    ) -> "VidCLIPModel":
        """Build a VidCLIP from the two towers and the projections of a CLIP checkpoint.

        At first a video is the mean of its frames as CLIP sees them (CLIP4Clip's mean pooling) because what the poolers
        add starts at zero, so a video of one frame is exactly CLIP's image; and a text of up to 20 tokens is CLIP's
        text, because later positions are stretched to `max_text_tokens`.

        Args:
            name_or_path: A `CLIPModel` checkpoint, a folder or a name on the Hub.
            num_frames: Frames per video.
            max_text_tokens: Longest text.
            revision: Branch, tag or commit on the Hub.
            **config: Other fields of `VidCLIPConfig`, such as `loss`.

        Returns:
            The model, float32, in evaluation mode.

        Raises:
            ValueError: If this is not a whole CLIP, or its texts are longer than `max_text_tokens`.
        """
        clip = load_clip(name_or_path, revision)
        fields = dict(config)
        scale, highest = clip.logit_scale.item(), config.get("max_logit_scale", VidCLIPConfig.max_logit_scale)
        if "logit_scale_init_value" not in config:
            if scale > highest + 1e-4:  # more than rounding
                logger.warning(
                    f"the logit_scale of {str(name_or_path)!r} is {scale:.4f}, above max_logit_scale {highest:.4f}: "
                    f"the model starts at {highest:.4f}, which changes no cosine; to keep it, pass "
                    f"max_logit_scale={math.ceil(scale * 100) / 100}"
                )
            fields["logit_scale_init_value"] = min(scale, highest)
        sizes = {"num_frames": num_frames, "max_text_tokens": max_text_tokens}
        model = cls(VidCLIPConfig.from_clip_config(clip.config, **sizes, **fields))
        weights = clip.state_dict()
        weights["logit_scale"] = model.logit_scale.detach()
        positions = "text_model.embeddings.position_embedding.weight"
        weights[positions] = extend_positions(weights[positions], max_text_tokens)
        left = model.load_state_dict(weights, strict=False)
        unfilled = [key for key in left.missing_keys if not key.startswith(ADDED_TO_CLIP)]
        if left.unexpected_keys or unfilled:
            raise ValueError(
                f"{str(name_or_path)!r} and VidCLIP differ in {left.unexpected_keys + unfilled}; "
                "is this a CLIP checkpoint?"
            )
        model.eval()
        return model

    @torch.no_grad()
    def resize_videos_(self, *, num_frames: int | None = None, side: int | None = None) -> None:
        """Make the model one for other videos: with places in time for a model of images, with larger frames.

        The positions of patches are stretched as by `interpolate_pos_encoding`, but are the model's own from then on.

        Args:
            num_frames: Frames per video, for a model of 1 frame: what it gives for one stays the same.
            side: Of the square frames, in pixels.

        Raises:
            ValueError: The model has several frames per video, and other than `num_frames`.

        Example:
            >>> small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
            >>> model = VidCLIPModel(VidCLIPConfig(vision_config={**small, "image_size": 8, "patch_size": 4},
            ...                                    text_config=small, num_frames=1))
            >>> model.resize_videos_(num_frames=4, side=12)
            >>> model.get_video_features(torch.rand(2, 4, 3, 12, 12)).shape
            torch.Size([2, 768])
        """
        if num_frames is not None and num_frames != self.config.num_frames:
            if self.config.num_frames != 1:
                raise ValueError(
                    f"the model has {self.config.num_frames} frames per video, not {num_frames}; only one of images, "
                    "with 1, can be given others"
                )
            image = self.video_pooler.temporal_embedding.weight
            self.config.num_frames = num_frames
            self.video_pooler.temporal_embedding = TemporalEmbedding(self.config).to(image)
            places = temporal_positions(num_frames, image.shape[1]).to(image)
            self.video_pooler.temporal_embedding.weight.copy_(places + image)
        embeddings = self.vision_model.embeddings
        if side is not None and side != embeddings.image_size:
            class_token = embeddings.position_embedding.weight[None, :1]
            positions = embeddings.interpolate_pos_encoding(class_token, side, side)[0]
            for config in (self.config.vision_config, self.vision_model.config):
                cast("CLIPVisionConfig", config).image_size = side
            stretched = type(embeddings)(self.vision_model.config).to(class_token)
            stretched.load_state_dict({**embeddings.state_dict(), "position_embedding.weight": positions})
            self.vision_model.embeddings = stretched

    def get_video_features(
        self,
        pixel_values: Tensor,
        *,
        interpolate_temporal: bool = False,
        interpolate_pos_encoding: bool = False,
    ) -> Tensor:
        """Embed videos: unit-norm `(B, D)`.

        Args:
            pixel_values: `(B, T, C, H, W)` float, T at most `config.num_frames`; or images `(B, C, H, W)`.
            interpolate_temporal: Stretch the temporal embedding to T frames.
            interpolate_pos_encoding: Stretch the positions of patches to frames of another size, such as the paper's
                256 pixels for a tower trained with 224.

        Raises:
            ValueError: The shape is another, there are too many frames, or they are raw bytes.
        """
        tokens = self.get_frame_tokens(pixel_values, interpolate_pos_encoding=interpolate_pos_encoding)
        return self.pool_frame_tokens(tokens, interpolate_temporal=interpolate_temporal)

    def get_frame_tokens(self, pixel_values: Tensor, *, interpolate_pos_encoding: bool = False) -> Tensor:
        """The vision tower's tokens of every frame, to be stored where it is frozen: `(B, T, 1 + patches, width)`.

        Args:
            pixel_values: `(B, T, C, H, W)` float, or images `(B, C, H, W)`.
            interpolate_pos_encoding: As in `get_video_features`.

        Raises:
            ValueError: The shape is another, or they are raw bytes.
        """
        return self._run_vision(pixel_values, interpolate_pos_encoding=interpolate_pos_encoding)[0]

    def _run_vision(self, pixel_values: Tensor, **options: Any) -> tuple[Tensor, BaseModelOutputWithPooling]:
        if pixel_values.ndim == 4:
            pixel_values = pixel_values[:, None]
        if pixel_values.ndim != 5 or not pixel_values.is_floating_point():
            raise ValueError(
                f"pixel_values is {tuple(pixel_values.shape)}, {pixel_values.dtype}; it must be float (batch, frames, "
                "channels, height, width) from VidCLIPProcessor"
            )
        positions = self.vision_model.embeddings.position_embedding.weight
        if options["interpolate_pos_encoding"] and positions.is_meta and not pixel_values.is_meta:
            size = cast("CLIPVisionConfig", self.config.vision_config).image_size
            raise ValueError(
                "interpolate_pos_encoding=True reads the positions of patches, which are offloaded; give frames of "
                f"{size} pixels, or keep 'vision_model.embeddings' in memory by a device_map"
            )
        frames = pixel_values.flatten(0, 1)
        seen = self.vision_model(pixel_values=at_least_one_row(frames), return_dict=True, **options)
        tokens = self.vision_model.post_layernorm(seen.last_hidden_state)[: frames.shape[0]]
        return tokens.unflatten(0, pixel_values.shape[:2]), seen

    def pool_frame_tokens(self, frame_tokens: Tensor, *, interpolate_temporal: bool = False) -> Tensor:
        """Embed videos from the tokens of their frames: unit-norm `(B, D)`; see `get_video_features`.

        Args:
            frame_tokens: `(B, T, 1 + patches, width)` of any float type, for instance stored ones.
            interpolate_temporal: As in `get_video_features`.
        """
        return self._pool(frame_tokens, interpolate_temporal=interpolate_temporal)[0]

    def get_video_tokens(self, frame_tokens: Tensor) -> Tensor:
        """What the decoder attends to, the output of the first pooler: `(B, num_pooler_queries, width)`.

        Args:
            frame_tokens: As in `pool_frame_tokens`.
        """
        return self._pool(frame_tokens)[1]

    def _pool(self, frame_tokens: Tensor, *, interpolate_temporal: bool = False) -> tuple[Tensor, Tensor]:
        tokens = at_least_one_row(frame_tokens.to(self.dtype))
        pooled, summaries = self.video_pooler(tokens, interpolate_temporal=interpolate_temporal)
        rows = frame_tokens.shape[0]
        return F.normalize(self.visual_projection(pooled[:rows]), dim=-1), summaries[:rows]

    def get_text_features(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Embed texts: unit-norm `(N, D)`.

        Args:
            input_ids: `(N, L)` token ids, each text with its end-of-text token, L at most 160.
            attention_mask: `(N, L)`, 1 for tokens and 0 for padding.
        """
        return self._run_text(input_ids, attention_mask)[0]

    def _run_text(
        self, input_ids: Tensor, attention_mask: Tensor | None, **options: Any
    ) -> tuple[Tensor, BaseModelOutputWithPooling]:
        mask = attention_mask if input_ids.shape[0] else None
        read = self.text_model(input_ids=at_least_one_row(input_ids), attention_mask=mask, return_dict=True, **options)
        pooled = read.pooler_output[: input_ids.shape[0]]
        return F.normalize(self.text_projection(pooled), dim=-1), read

    def get_caption_logits(
        self, video_tokens: Tensor, input_ids: Tensor, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Predict each next token of text i given video i: logits `(N, L, vocabulary)`.

        Args:
            video_tokens: `(N, num_pooler_queries, width)` of `get_video_tokens`.
            input_ids: `(N, L)`; the logits at place t are of the token at t + 1 and depend on none after t.
            attention_mask: `(N, L)`, 1 for tokens and 0 for padding.

        Raises:
            ValueError: The model has no decoder.
        """
        return self._decode(self._run_text(input_ids, attention_mask)[1], attention_mask, video_tokens)

    def get_text_scores(self, video_tokens: Tensor, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Say how likely the decoder finds each text given each video: `(B, N)`, at most 0, higher fits better.

        It is the mean log-probability of the text's tokens after the first, so long texts are not at a disadvantage.

        Args:
            video_tokens: `(B, num_pooler_queries, width)` of `get_video_tokens`.
            input_ids: `(N, L)`, each text with its end-of-text token and at least one before it.
            attention_mask: `(N, L)`, 1 for tokens and 0 for padding.

        Raises:
            ValueError: The model has no decoder.
        """
        read = self._run_text(input_ids, attention_mask)[1]
        lengths = text_lengths(input_ids, self.text_model.eos_token_id)
        each = (self._decode(read, attention_mask, video.expand(len(input_ids), -1, -1)) for video in video_tokens)
        rows = [caption_log_likelihoods(logits, input_ids, lengths) for logits in each]
        return torch.stack(rows) / (lengths - 1).clamp(min=1)

    def _decode(self, read: BaseModelOutputWithPooling, attention_mask: Tensor | None, video_tokens: Tensor) -> Tensor:
        if self.captioner is None:
            raise ValueError(
                "this VidCLIP has no text decoder: its num_captioning_layers is 0; train one with captioning loss, "
                "which `subtle vidclip --captioning_weight 2` does"
            )
        states = cast("Tensor", read.last_hidden_state)
        logits: Tensor = self.captioner(states, attention_mask, video_tokens.to(states))
        return logits

    @can_return_tuple  # type: ignore[untyped-decorator]  # of transformers
    def forward(  # noqa: PLR0913  (what a model may take)
        self,
        pixel_values: Tensor | None = None,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        negative_input_ids: Tensor | None = None,
        negative_attention_mask: Tensor | None = None,
        negative_levels: Tensor | None = None,
        frame_tokens: Tensor | None = None,
        *,
        return_loss: bool | None = None,
        interpolate_temporal: bool = False,
        interpolate_pos_encoding: bool = False,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> VidCLIPOutput:
        """Compare videos with texts.

        In training mode under several processes the loss is over the rows of all of them, with gradient; every process
        must then call this together, all with negatives or all without.

        Args:
            pixel_values: `(B, T, C, H, W)`.
            input_ids: `(N, L)` tokens of the texts; for the loss text i belongs to video i.
            attention_mask: `(N, L)`, 1 for tokens and 0 for padding.
            negative_input_ids: `(B, K, M)` tokens of each video's negative texts.
            negative_attention_mask: `(B, K, M)`.
            negative_levels: `(B, K)` integers: how often each was disrupted, 0 where a row is only padded; default all
                1.
            frame_tokens: What `get_frame_tokens` gave, in place of `pixel_values`.
            return_loss: Compute `config.loss`, and add the weighted captioning loss where there is a decoder.
            interpolate_temporal: As in `get_video_features`.
            interpolate_pos_encoding: As in `get_video_features`.
            output_hidden_states: Give the towers' states between layers; default `config.output_hidden_states`.
            output_attentions: Give the towers' attention maps; default `config.output_attentions`.

        Returns:
            Embeddings and logits of this process's rows, and what was requested; with `return_dict=False` a tuple.

        Raises:
            ValueError: There is no text, not one of `pixel_values` and `frame_tokens`, or attention maps are requested
                of an attention implementation that does not make them.
        """
        if input_ids is None or (pixel_values is None) is (frame_tokens is None):
            raise ValueError("give input_ids, and either pixel_values or frame_tokens")
        options, seen = self._tower_options(output_hidden_states, output_attentions), None
        if frame_tokens is None:
            frame_tokens, seen = self._run_vision(
                cast("Tensor", pixel_values), interpolate_pos_encoding=interpolate_pos_encoding, **options
            )
        video, summaries = self._pool(frame_tokens, interpolate_temporal=interpolate_temporal)
        text, read = self._run_text(input_ids, attention_mask, **options)
        text = text.to(video.device)  # the towers may be on two devices
        negative = None
        if negative_input_ids is not None:
            if negative_levels is None:
                negative_levels = torch.ones_like(negative_input_ids[..., 0])
            negative = self._negative_features(negative_input_ids, negative_attention_mask, negative_levels)
            negative = negative.to(video.device)
        logits = video @ text.T * self.similarity_scale.to(video)
        loss = self._loss(video, text, negative, negative_levels) if return_loss else None
        caption_loss = None
        if loss is not None and self.captioner is not None and self.config.captioning_weight:
            caption_loss = self._caption_loss(read, input_ids, attention_mask, summaries)
            loss = loss + self.config.captioning_weight * caption_loss.to(loss)
        return VidCLIPOutput(
            loss=loss,
            logits_per_video=logits,
            logits_per_text=logits.T,
            video_embeds=video,
            text_embeds=text,
            negative_embeds=negative,
            text_model_output=read if any(options.values()) else None,
            vision_model_output=seen if any(options.values()) else None,
            caption_loss=caption_loss,
        )

    @property
    def similarity_scale(self) -> Tensor:
        """What cosines are multiplied by: the exponential of `logit_scale`, limited to `config.max_logit_scale`."""
        return limited_scale(self.logit_scale, self.config.max_logit_scale)

    @torch.no_grad()
    def limit_logit_scale_(self) -> None:
        """Reduce `logit_scale` to `config.max_logit_scale` if a step of the optimizer left it above, as CLIP does."""
        self.logit_scale.clamp_(max=self.config.max_logit_scale)

    def _tower_options(self, hidden_states: bool | None, attentions: bool | None) -> dict[str, bool | None]:
        hidden_states = self.config.output_hidden_states if hidden_states is None else hidden_states
        attentions = self.config.output_attentions if attentions is None else attentions
        for tower in (self.vision_model, self.text_model) if attentions else ():
            if (found := tower.config._attn_implementation) != "eager":
                raise ValueError(
                    f"output_attentions=True needs the attention 'eager', this model has {found!r}, which makes no "
                    'maps; call model.set_attn_implementation("eager") first'
                )
        return {"output_hidden_states": hidden_states, "output_attentions": attentions}

    def _negative_features(self, input_ids: Tensor, attention_mask: Tensor | None, levels: Tensor) -> Tensor:
        present = levels > 0
        mask = None if attention_mask is None else attention_mask[present]
        embeds = self.get_text_features(input_ids[present], mask)
        return embeds.new_zeros(*levels.shape, embeds.shape[1]).masked_scatter(present[..., None], embeds)

    def _loss(self, video: Tensor, text: Tensor, negative: Tensor | None, levels: Tensor | None) -> Tensor:
        config = self.config
        if config.loss != "clip" and negative is None:
            raise ValueError(f"the loss {config.loss!r} needs negative_input_ids; without them use loss 'clip'")
        # Only "clip", which does not read them, may be without.
        negative, levels = cast("Tensor", negative), cast("Tensor", levels)
        if self.training and world_size() > 1:
            video, text = gather_with_gradient(video), gather_with_gradient(text)
            if config.loss != "clip":
                negative, levels = _gather_negatives(negative, levels)
        if config.loss == "clip":
            return clip_loss(video, text, self.similarity_scale)
        if config.loss == "negclip":
            return negclip(video, text, negative, levels, self.similarity_scale)
        preference = comp_loss(
            (video.float() * text.float()).sum(-1),
            torch.einsum("bd,bkd->bk", video.float(), negative.float()),
            levels,
            pairs=config.preference_pairs,
            kind=config.preference_kind,
            scale=config.preference_scale,
            margin=config.preference_margin,
        )
        return clip_loss(video, text, self.similarity_scale) + config.preference_weight * preference

    def _caption_loss(
        self, read: BaseModelOutputWithPooling, input_ids: Tensor, mask: Tensor | None, video_tokens: Tensor
    ) -> Tensor:
        rows = input_ids.shape[0]
        logits = self._decode(read, mask if rows else None, at_least_one_row(video_tokens))[:rows]
        lengths = text_lengths(input_ids, self.text_model.eos_token_id)
        likelihoods = caption_log_likelihoods(logits, input_ids, lengths)
        if self.training and world_size() > 1:
            likelihoods, lengths = gather_with_gradient(likelihoods), gather_with_gradient(lengths)
        return captioning_loss(likelihoods, lengths)


def _gather_negatives(negative: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
    """Negatives of all processes, those of a process with fewer per video padded."""
    most = torch.tensor(levels.shape[1], device=levels.device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    missing = int(most) - levels.shape[1]
    negative, levels = F.pad(negative, (0, 0, 0, missing)), F.pad(levels, (0, missing))
    return gather_with_gradient(negative.contiguous()), gather_with_gradient(levels.contiguous())
