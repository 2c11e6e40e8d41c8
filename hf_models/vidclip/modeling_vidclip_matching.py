"""VidCLIP with a head that reads a clip and a text together, and the two losses that it is trained with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import CLIPTextConfig, CLIPVisionConfig, PreTrainedModel
from transformers import initialization as init
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_vidclip import VidCLIPConfig
from .configuration_vidclip_matching import VidCLIPMatcherConfig
from .modeling_vidclip import VidCLIPModel


@dataclass
class Encoded:
    """Clips or texts after their own tower.

    Attributes:
        embeds: `(B, D)`, unit norm.
        states: `(B, N, W)`, what the matching head reads; for BLIP's clips `(B, T, N, W)`.
        mask: `(B, N)`, 1 for tokens; None for clips.
        input_ids: `(B, N)`; None for clips.
    """

    embeds: Tensor
    states: Tensor
    mask: Tensor | None = None
    input_ids: Tensor | None = None

    def take(self, rows: Tensor) -> "Encoded":
        """Some of them, in the order of `rows`."""
        mask = None if self.mask is None else self.mask[rows]
        input_ids = None if self.input_ids is None else self.input_ids[rows]
        return Encoded(self.embeds[rows], self.states[rows], mask, input_ids)


class MatchingHead(nn.Module):
    """Text tokens attend to the tokens of all frames and to each other; their mean says how well the two fit.

    Args:
        text_width: Width W of text states.
        vision_width: Width W of frame tokens.
        num_frames: Longest clip.
        num_layers: Layers of attention.
    """

    def __init__(self, text_width: int, vision_width: int, num_frames: int, *, num_layers: int = 2) -> None:
        super().__init__()
        width = text_width
        self.vision = nn.Linear(vision_width, width)
        self.time = nn.Parameter(torch.zeros(num_frames, 1, width))
        heads = max(1, width // 64)
        layer = nn.TransformerDecoderLayer(width, heads, 4 * width, batch_first=True, norm_first=True)
        self.fusion = nn.TransformerDecoder(layer, num_layers, norm=nn.LayerNorm(width))
        self.out = nn.Linear(width, 1)

    def forward(self, clips: Tensor, texts: Tensor, mask: Tensor) -> Tensor:
        """Logits `(n,)` of clips `(n, T, tokens, W)` and texts `(n, L, W)` with mask `(n, L)`."""
        memory = (self.vision(clips) + self.time[: clips.shape[1]]).flatten(1, 2)
        fused = self.fusion(texts, memory, tgt_key_padding_mask=mask == 0)
        weights = mask[..., None].to(fused.dtype)
        logits: Tensor = self.out((fused * weights).sum(1) / weights.sum(1))[:, 0]
        return logits


@dataclass
class VidCLIPMatcherOutput(ModelOutput):
    """What a forward pass gives.

    Attributes:
        logits: `(n,)`, how well clip i fits text i; higher fits better.
        video_embeds: `(n, D)`, unit norm.
        text_embeds: `(n, D)`, unit norm.
    """

    logits: Tensor | None = None
    video_embeds: Tensor | None = None
    text_embeds: Tensor | None = None


class VidCLIPMatcher(PreTrainedModel):
    """A VidCLIP and a `MatchingHead` that corrects its similarity (VERIFIED's noise evaluator).

    Attributes:
        model: The `VidCLIPModel`.
        head: The `MatchingHead`.
        max_frames: Frames of the longest clip.
        max_tokens: Tokens of the longest text.

    Example:
        >>> from .configuration_vidclip import VidCLIPConfig
        >>> small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> towers = VidCLIPConfig(vision_config={**small, "image_size": 8, "patch_size": 4},
        ...                        text_config={**small, "vocab_size": 9, "eos_token_id": 8}, projection_dim=16)
        >>> matcher = VidCLIPMatcher.from_vidclip(VidCLIPModel(towers)).eval()
        >>> matcher(torch.rand(2, 4, 3, 8, 8), torch.tensor([[1, 2, 8], [4, 5, 8]])).logits.shape
        torch.Size([2])
    """

    config: VidCLIPMatcherConfig
    config_class = VidCLIPMatcherConfig
    base_model_prefix = "vidclip_matcher"
    main_input_name = "pixel_values"
    input_modalities = ("video", "text")  # type: ignore[assignment]  # transformers' own models give tuples, too
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True
    _no_split_modules = (  # type: ignore[assignment]  # transformers only reads it
        *VidCLIPModel._no_split_modules,
        "MatchingHead",
    )

    def __init__(self, config: VidCLIPMatcherConfig) -> None:
        super().__init__(config)
        towers = cast("VidCLIPConfig", config.vidclip_config)
        self.model: VidCLIPModel = VidCLIPModel._from_config(towers)
        self.head = make_head(config)
        self.max_frames = towers.num_frames
        self.max_tokens = cast("CLIPTextConfig", towers.text_config).max_position_embeddings
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, MatchingHead):
            init.zeros_(module.time)
        elif isinstance(module, (nn.Linear, nn.LayerNorm)):
            module.reset_parameters()  # PyTorch's own, as a new head of `from_vidclip` has
        else:
            super()._init_weights(module)

    @classmethod
    def from_vidclip(cls, model: VidCLIPModel | str | Path, **config: Any) -> "VidCLIPMatcher":
        """Put a new matching head on a VidCLIP.

        Args:
            model: The model, which becomes a part of the matcher; or its folder or name on the Hub.
            **config: Other fields of `VidCLIPMatcherConfig`.

        Returns:
            The matcher.

        Raises:
            ValueError: Weights of the VidCLIP are missing.
        """
        found: Any = model
        if isinstance(model, (str, Path)):
            loaded: Any = VidCLIPModel.from_pretrained(model, output_loading_info=True)
            found, report = loaded
            if lost := sorted(report["missing_keys"]):
                raise ValueError(f"{len(lost)} weights of {model} are missing, such as {lost[0]}; copy it again")
        with torch.device("meta"):  # nothing is drawn for weights that are replaced
            matcher = cls(VidCLIPMatcherConfig(vidclip_config=found.config, **config))
        matcher.model, matcher.head = found, make_head(matcher.config)
        return matcher

    def get_input_embeddings(self) -> nn.Module:
        """The embedding of tokens."""
        return self.model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the embedding of tokens."""
        self.model.set_input_embeddings(value)

    @property
    def scale(self) -> Tensor:
        """What cosines are multiplied by."""
        return self.model.similarity_scale

    def limit_logit_scale_(self) -> None:
        """Take the scale back to its maximum if a step of the optimizer left it above."""
        self.model.limit_logit_scale_()

    def encode_clips(self, pixel_values: Tensor) -> Encoded:
        """Clips `(B, T, 3, H, W)`, T at most `max_frames`, as `Encoded` with states `(B, T, tokens, W)`."""
        tokens = self.model.get_frame_tokens(pixel_values)
        return Encoded(self.model.pool_frame_tokens(tokens), tokens)

    def encode_texts(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Encoded:
        """Texts `(N, L)`, L at most `max_tokens`, as `Encoded` with states `(N, L, W)`."""
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        output = self.model.text_model(input_ids=input_ids, attention_mask=attention_mask)
        embeds = F.normalize(self.model.text_projection(output.pooler_output), dim=-1)
        return Encoded(embeds, output.last_hidden_state, attention_mask, input_ids)

    def match(self, clips: Encoded, texts: Encoded) -> Tensor:
        """Logits `(n,)` of clip i with text i: the similarity of the towers, corrected by the head.

        A new head alone, trained on the miniature, separated negative from true actions no better than chance.
        """
        similarity = self.scale * (clips.embeds * texts.embeds).sum(-1)
        logits: Tensor = similarity + self.head(clips.states, texts.states, texts.mask)
        return logits

    @can_return_tuple  # type: ignore[untyped-decorator]  # of transformers
    def forward(
        self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor | None = None
    ) -> VidCLIPMatcherOutput:
        """Match clip i with text i.

        Args:
            pixel_values: `(n, T, 3, H, W)`.
            input_ids: `(n, L)`.
            attention_mask: `(n, L)`, 1 for tokens and 0 for padding.

        Returns:
            Logits and embeddings; with `return_dict=False` a tuple.
        """
        clips, texts = self.encode_clips(pixel_values), self.encode_texts(input_ids, attention_mask)
        return VidCLIPMatcherOutput(self.match(clips, texts), clips.embeds, texts.embeds)


def make_head(config: VidCLIPMatcherConfig) -> MatchingHead:
    """A new head of the sizes that the towers have."""
    towers = cast("VidCLIPConfig", config.vidclip_config)
    text, vision = cast("CLIPTextConfig", towers.text_config), cast("CLIPVisionConfig", towers.vision_config)
    return MatchingHead(text.hidden_size, vision.hidden_size, towers.num_frames, num_layers=config.num_matching_layers)


def contrastive_loss(
    clips: Encoded, positives: Encoded, owners: Tensor, negatives: Encoded, is_same: Tensor, scale: Tensor
) -> Tensor:
    """Each fitting text against all texts that do not fit its clip, and against the other clips.

    The text side is `-log(e^s(v, p) / (e^s(v, p) + sum_n e^s(v, n)))` for each positive p of clip v, where n runs over
    the other clips' texts and over all negatives; other positives of v are not in the sum.

    Args:
        clips: B of them.
        positives: P texts, each of which fits its clip.
        owners: `(P,)`, the clip of each.
        negatives: N texts that fit no clip.
        is_same: `(B, P)`, whether a positive fits a clip, its own or one with the same caption.
        scale: One over the temperature.

    Returns:
        A scalar, the mean of both sides.
    """
    to_positive = clips.embeds @ positives.embeds.T * scale  # (B, P)
    own = to_positive[owners, torch.arange(len(owners), device=owners.device)]  # (P,)
    others = to_positive.masked_fill(is_same, -torch.inf)
    wrong = torch.cat([others, clips.embeds @ negatives.embeds.T * scale], dim=1)[owners]  # (P, P + N)
    to_text = -(own - torch.cat([own[:, None], wrong], dim=1).logsumexp(1)).mean()
    to_clip = -(own - torch.cat([own[:, None], others.T], dim=1).logsumexp(1)).mean()
    return (to_text + to_clip) / 2


def matching_loss(fitting: Tensor, wrong: Tensor) -> Tensor:
    """Binary cross-entropy of the logits of pairs that fit and of pairs that do not, both classes with equal weight.

    Example:
        >>> matching_loss(torch.tensor([0.0]), torch.tensor([0.0, 0.0]))
        tensor(0.6931)
    """
    return (F.softplus(-fitting).mean() + F.softplus(wrong).mean()) / 2
