"""VidCLIP: CLIP's two towers for videos and paragraphs, pooled over time by attention."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, CLIPModel, CLIPTextModel, CLIPVisionModel, PreTrainedModel
from transformers import initialization as init
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_vidclip import VidCLIPConfig
from .gathering import gather_with_gradient, world_size
from .layers_vidclip import AttentionPooler, TemporalEmbedding, VideoPooler, temporal_positions
from .losses import comp_loss, infonce, negclip

ADDED_TO_CLIP = "video_pooler."


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
    """

    loss: Tensor | None = None
    logits_per_video: Tensor | None = None
    logits_per_text: Tensor | None = None
    video_embeds: Tensor | None = None
    text_embeds: Tensor | None = None
    negative_embeds: Tensor | None = None


def extend_positions(positions: Tensor, num_positions: int, num_kept: int = 20) -> Tensor:
    """Stretch learned text positions as Long-CLIP does (Zhang et al., ECCV 2024, section 3.2).

    CLIP was trained on captions of about 20 tokens, so its first positions are well learned and stay as they are; the
    later ones are interpolated linearly.

    Args:
        positions: `(n, width)`.
        num_positions: How many there shall be, at least n.
        num_kept: How many at the start stay.

    Returns:
        `(num_positions, width)`.

    Raises:
        ValueError: Fewer positions are asked for than there are, or none is left to stretch.

    Example:
        >>> extend_positions(torch.arange(4.0)[:, None], 6, num_kept=2).flatten()
        tensor([0.0000, 1.0000, 2.0000, 2.3333, 2.6667, 3.0000])
    """
    if num_positions == len(positions):
        return positions.clone()
    if num_positions < len(positions) or num_kept >= len(positions):
        raise ValueError(
            f"{len(positions)} text positions cannot become {num_positions} with the first {num_kept} kept: ask for more "
            f"than {len(positions)} and keep fewer"
        )
    later = positions[num_kept:].T[None]
    stretched = F.interpolate(later, size=num_positions - num_kept, mode="linear", align_corners=True)
    return torch.cat([positions[:num_kept], stretched[0].T])


class VidCLIPModel(PreTrainedModel):
    """A CLIP for videos and paragraphs (VideoComp, section 4.1).

    The vision tower sees each frame alone. Its tokens get their place in time after the last layer and are pooled
    over all frames by two attention poolers, the first with 196 queries, the second with one. The text tower reads up
    to 160 tokens; its summary (the paper's CLS) is CLIP's end-of-text token, the only one that attends to all others.
    Attributes have CLIP's names, so that whatever finds its way in a `CLIPModel` finds it here.

    Example:
        >>> small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> config = VidCLIPConfig(vision_config={**small, "image_size": 8, "patch_size": 4},
        ...                        text_config={**small, "vocab_size": 9, "eos_token_id": 8}, projection_dim=16)
        >>> model = VidCLIPModel(config).eval()
        >>> output = model(torch.rand(2, 4, 3, 8, 8), torch.tensor([[1, 2, 8], [3, 8, 8], [4, 5, 8]]))
        >>> output.logits_per_video.shape, output.logits_per_text.shape
        (torch.Size([2, 3]), torch.Size([3, 2]))
    """

    config: VidCLIPConfig
    config_class = VidCLIPConfig
    base_model_prefix = "vidclip"
    main_input_name = "pixel_values"
    input_modalities = ("video", "text")
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True
    _no_split_modules = ("CLIPTextEmbeddings", "CLIPEncoderLayer", "CLIPVisionEmbeddings", "AttentionPooler")

    def __init__(self, config: VidCLIPConfig) -> None:
        super().__init__(config)
        self.text_model = CLIPTextModel._from_config(config.text_config)
        self.vision_model = CLIPVisionModel._from_config(config.vision_config)
        self.video_pooler = VideoPooler(config)
        self.visual_projection = nn.Linear(
            config.vision_config.hidden_size, config.projection_dim, bias=False
        )
        self.text_projection = nn.Linear(config.text_config.hidden_size, config.projection_dim, bias=False)
        self.logit_scale = nn.Parameter(torch.tensor(float(config.logit_scale_init_value)))
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if getattr(module, "starts_at_zero", False):
            init.zeros_(module.weight)
        elif isinstance(module, TemporalEmbedding):
            init.copy_(module.weight, temporal_positions(*module.weight.shape))
        elif isinstance(module, AttentionPooler):
            init.normal_(module.query)
            for projection in (module.q_proj, module.k_proj, module.v_proj, module.out_proj):
                init.xavier_uniform_(projection.weight)  # else all queries attend alike, and long do
        elif isinstance(module, VidCLIPModel):
            init.constant_(module.logit_scale, self.config.logit_scale_init_value)

    def get_input_embeddings(self) -> nn.Module:
        """The embedding of tokens."""
        return self.text_model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the embedding of tokens."""
        self.text_model.set_input_embeddings(value)

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
        clip = _load_clip(name_or_path, revision)
        text = {**clip.config.text_config.to_dict(), "max_position_embeddings": max_text_tokens}
        fields = {"class_token_residual": True, "logit_scale_init_value": clip.logit_scale.item(), **config}
        fields |= {"num_frames": num_frames, "projection_dim": clip.config.projection_dim}
        vision = clip.config.vision_config.to_dict()
        model = cls(VidCLIPConfig(vision_config=vision, text_config=text, **fields))
        weights = clip.state_dict()
        positions = "text_model.embeddings.position_embedding.weight"
        weights[positions] = extend_positions(weights[positions], max_text_tokens)
        left = model.load_state_dict(weights, strict=False)
        unfilled = [key for key in left.missing_keys if not key.startswith(ADDED_TO_CLIP)]
        if left.unexpected_keys or unfilled:
            raise ValueError(
                f"{str(name_or_path)!r} and VidCLIP differ in {left.unexpected_keys + unfilled}; is this a CLIP checkpoint?"
            )
        return model.eval()

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
            interpolate_pos_encoding: Stretch the positions of patches to frames of another size, such as the paper's 256
                pixels for a tower trained with 224.

        Raises:
            ValueError: The shape is another, there are too many frames, or they are raw bytes.
        """
        tokens = self.get_frame_tokens(pixel_values, interpolate_pos_encoding=interpolate_pos_encoding)
        return self.pool_frame_tokens(tokens, interpolate_temporal=interpolate_temporal)

    def get_frame_tokens(self, pixel_values: Tensor, *, interpolate_pos_encoding: bool = False) -> Tensor:
        """What the vision tower says of every frame, to be kept where the tower is frozen: `(B, T, 1 + patches, width)`.

        Args:
            pixel_values: `(B, T, C, H, W)` float, or images `(B, C, H, W)`.
            interpolate_pos_encoding: As in `get_video_features`.

        Raises:
            ValueError: The shape is another, or they are raw bytes.
        """
        if pixel_values.ndim == 4:
            pixel_values = pixel_values[:, None]
        if pixel_values.ndim != 5 or not pixel_values.is_floating_point():
            raise ValueError(
                f"pixel_values is {tuple(pixel_values.shape)}, {pixel_values.dtype}; it must be float (batch, frames, "
                "channels, height, width) from VidCLIPProcessor"
            )
        frames = pixel_values.flatten(0, 1)
        seen = self.vision_model(pixel_values=frames, interpolate_pos_encoding=interpolate_pos_encoding)
        tokens = self.vision_model.post_layernorm(seen.last_hidden_state)
        return tokens.unflatten(0, pixel_values.shape[:2])

    def pool_frame_tokens(self, frame_tokens: Tensor, *, interpolate_temporal: bool = False) -> Tensor:
        """Embed videos from the tokens of their frames: unit-norm `(B, D)`; see `get_video_features`."""
        pooled = self.video_pooler(frame_tokens, interpolate_temporal=interpolate_temporal)
        return F.normalize(self.visual_projection(pooled), dim=-1)

    def get_text_features(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Embed texts: unit-norm `(N, D)`.

        Args:
            input_ids: `(N, L)` token ids, each text with its end-of-text token, L at most 160.
            attention_mask: `(N, L)`, 1 for tokens and 0 for padding.
        """
        pooled = self.text_model(input_ids=input_ids, attention_mask=attention_mask).pooler_output
        return F.normalize(self.text_projection(pooled), dim=-1)

    @can_return_tuple
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
        return_loss: bool = False,
        interpolate_temporal: bool = False,
        interpolate_pos_encoding: bool = False,
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
            negative_levels: `(B, K)` integers: how often each was disrupted, 0 where a row is only padded; default all 1.
            frame_tokens: What `get_frame_tokens` gave, in place of `pixel_values`.
            return_loss: Compute `config.loss`.
            interpolate_temporal: As in `get_video_features`.
            interpolate_pos_encoding: As in `get_video_features`.

        Returns:
            Embeddings and logits of this process's rows, and the loss where asked for.

        Raises:
            ValueError: There is no text, or not one of `pixel_values` and `frame_tokens`.
        """
        if input_ids is None or (pixel_values is None) is (frame_tokens is None):
            raise ValueError("give input_ids, and either pixel_values or frame_tokens")
        if frame_tokens is None:
            frame_tokens = self.get_frame_tokens(
                pixel_values, interpolate_pos_encoding=interpolate_pos_encoding
            )
        video = self.pool_frame_tokens(frame_tokens, interpolate_temporal=interpolate_temporal)
        text = self.get_text_features(input_ids, attention_mask)
        negative = None
        if negative_input_ids is not None:
            if negative_levels is None:
                negative_levels = torch.ones_like(negative_input_ids[..., 0])
            negative = self._negative_features(negative_input_ids, negative_attention_mask, negative_levels)
        logits = video @ text.T * self._logit_scale().to(video.dtype)
        return VidCLIPOutput(
            loss=self._loss(video, text, negative, negative_levels) if return_loss else None,
            logits_per_video=logits,
            logits_per_text=logits.T,
            video_embeds=video,
            text_embeds=text,
            negative_embeds=negative,
        )

    def _logit_scale(self) -> Tensor:
        return self.logit_scale.clamp(max=self.config.max_logit_scale).exp()

    def _negative_features(self, input_ids: Tensor, attention_mask: Tensor | None, levels: Tensor) -> Tensor:
        present = levels > 0
        if not present.any():
            width = self.config.projection_dim
            return self.text_projection.weight.new_zeros(*levels.shape, width)
        embeds = self.get_text_features(
            input_ids[present], None if attention_mask is None else attention_mask[present]
        )
        return embeds.new_zeros(*levels.shape, embeds.shape[1]).masked_scatter(present[..., None], embeds)

    def _loss(self, video: Tensor, text: Tensor, negative: Tensor | None, levels: Tensor | None) -> Tensor:
        config = self.config
        if config.loss != "clip" and negative is None:
            raise ValueError(
                f"the loss {config.loss!r} needs negative_input_ids; without them use loss 'clip'"
            )
        if self.training and world_size() > 1:
            video, text = gather_with_gradient(video), gather_with_gradient(text)
            if config.loss != "clip":
                negative, levels = _gather_negatives(negative, levels)
        if config.loss == "clip":
            return infonce(video, text, self._logit_scale())
        if config.loss == "negclip":
            return negclip(video, text, negative, levels, self._logit_scale())
        preference = comp_loss(
            (video.float() * text.float()).sum(-1),
            torch.einsum("bd,bkd->bk", video.float(), negative.float()),
            levels,
            pairs=config.preference_pairs,
            kind=config.preference_kind,
            scale=config.preference_scale,
            margin=config.preference_margin,
        )
        return infonce(video, text, self._logit_scale()) + config.preference_weight * preference


def _gather_negatives(negative: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
    """Negatives of all processes, those of a process with fewer per video padded."""
    most = torch.tensor(levels.shape[1], device=levels.device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    missing = int(most) - levels.shape[1]
    negative, levels = F.pad(negative, (0, 0, 0, missing)), F.pad(levels, (0, missing))
    return gather_with_gradient(negative.contiguous()), gather_with_gradient(levels.contiguous())


def _load_clip(name_or_path: str, revision: str) -> CLIPModel:
    try:
        found = AutoConfig.from_pretrained(name_or_path, revision=revision).model_type
        if found != "clip":
            raise ValueError(f"it is a {found!r} model")
        clip, info = CLIPModel.from_pretrained(
            name_or_path, revision=revision, output_loading_info=True, ignore_mismatched_sizes=True
        )
    except (OSError, ValueError) as error:
        raise ValueError(f"{str(name_or_path)!r} is no CLIP checkpoint with both towers: {error}") from error
    if lost := sorted({*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])}):
        raise ValueError(
            f"{str(name_or_path)!r} is no whole CLIP: {len(lost)} weights are missing or of another shape, among them "
            f"{', '.join(lost[:5])}"
        )
    return clip
