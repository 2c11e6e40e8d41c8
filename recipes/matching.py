"""Models that match clips and texts: a contrastive similarity, and a head that reads both together.

VERIFIED fine-tunes a video foundation model with both objectives. Here it is VidCLIP with a fused head, or BLIP's
image-text matching averaged over frames; both are trained and asked in the same way.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoImageProcessor, AutoModel, AutoTokenizer, BlipForImageTextRetrieval

from harness.models import check_model_folder
from hf_models import VidCLIPModel
from hf_models.vidclip.layers_vidclip import limited_scale

HEAD_FILE = "matching_head.safetensors"
MAX_TEXT_TOKENS = 64
MAX_LOGIT_SCALE = math.log(100)  # CLIP's


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
        parts = (self.embeds, self.states, self.mask, self.input_ids)
        return Encoded(*(part if part is None else part[rows] for part in parts))


class MatchingHead(nn.Module):
    """Text tokens look at the tokens of all frames and at each other; their mean says how well they fit.

    Args:
        text_width: W of text states.
        vision_width: W of frame tokens.
        num_frames: longest clip.
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
        return self.out((fused * weights).sum(1) / weights.sum(1))[:, 0]


class VidCLIPMatcher(nn.Module):
    """VidCLIP and a `MatchingHead`."""

    def __init__(self, model: VidCLIPModel) -> None:
        super().__init__()
        config = model.config
        self.model = model
        self.head = MatchingHead(config.text_config.hidden_size, config.vision_config.hidden_size, config.num_frames)
        self.max_frames = config.num_frames
        self.max_tokens = config.text_config.max_position_embeddings

    @property
    def scale(self) -> Tensor:
        """What cosines are multiplied by."""
        return self.model.similarity_scale

    def limit_logit_scale_(self) -> None:
        """Take the scale back to its maximum if a step of the optimizer left it above."""
        self.model.limit_logit_scale_()

    def encode_clips(self, pixel_values: Tensor) -> Encoded:
        """Clips `(B, T, 3, H, W)`."""
        vision = self.model.vision_model
        seen = vision(pixel_values=pixel_values.flatten(0, 1))
        tokens = vision.post_layernorm(seen.last_hidden_state).unflatten(0, pixel_values.shape[:2])
        pooled = self.model.video_pooler(tokens, interpolate_temporal=False)
        return Encoded(F.normalize(self.model.visual_projection(pooled), dim=-1), tokens)

    def encode_texts(self, input_ids: Tensor, attention_mask: Tensor) -> Encoded:
        """Texts `(N, L)`."""
        output = self.model.text_model(input_ids=input_ids, attention_mask=attention_mask)
        embeds = F.normalize(self.model.text_projection(output.pooler_output), dim=-1)
        return Encoded(embeds, output.last_hidden_state, attention_mask, input_ids)

    def match(self, clips: Encoded, texts: Encoded) -> Tensor:
        """Logits `(n,)` of clip i with text i: what the towers say, corrected by the head.

        A head alone, new and trained on the miniature, told disturbed actions from right ones no better than chance.
        """
        similarity = self.scale * (clips.embeds * texts.embeds).sum(-1)
        return similarity + self.head(clips.states, texts.states, texts.mask)

    def save(self, folder: Path) -> None:
        """Write the weights of both parts."""
        self.model.save_pretrained(folder)
        save_file({name: value.contiguous() for name, value in self.head.state_dict().items()}, folder / HEAD_FILE)


class BlipMatcher(nn.Module):
    """BLIP, whose image-text matching is averaged over the frames."""

    def __init__(self, model: BlipForImageTextRetrieval, *, max_frames: int = 8) -> None:
        super().__init__()
        self.model = model
        self.max_frames = max_frames
        self.max_tokens = min(MAX_TEXT_TOKENS, model.config.text_config.max_position_embeddings)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    @property
    def scale(self) -> Tensor:
        """What cosines are multiplied by."""
        return limited_scale(self.logit_scale, MAX_LOGIT_SCALE)

    @torch.no_grad()
    def limit_logit_scale_(self) -> None:
        """Take the scale back to its maximum if a step of the optimizer left it above."""
        self.logit_scale.clamp_(max=MAX_LOGIT_SCALE)

    def encode_clips(self, pixel_values: Tensor) -> Encoded:
        """Clips `(B, T, 3, H, W)`."""
        states = self.model.vision_model(pixel_values=pixel_values.flatten(0, 1)).last_hidden_state
        states = states.unflatten(0, pixel_values.shape[:2])
        embeds = F.normalize(self.model.vision_proj(states[:, :, 0]), dim=-1).mean(1)
        return Encoded(F.normalize(embeds, dim=-1), states)

    def encode_texts(self, input_ids: Tensor, attention_mask: Tensor) -> Encoded:
        """Texts `(N, L)`."""
        states = self.model.text_encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return Encoded(F.normalize(self.model.text_proj(states[:, 0]), dim=-1), states, attention_mask, input_ids)

    def match(self, clips: Encoded, texts: Encoded) -> Tensor:
        """Logits `(n,)` of clip i with text i: how much more "fits" says than "does not", averaged over frames."""
        frames = clips.states.shape[1]
        fused = self.model.text_encoder(
            input_ids=texts.input_ids.repeat_interleave(frames, 0),
            attention_mask=texts.mask.repeat_interleave(frames, 0),
            encoder_hidden_states=clips.states.flatten(0, 1),
        ).last_hidden_state
        logits = self.model.itm_head(fused[:, 0])
        return (logits[:, 1] - logits[:, 0]).unflatten(0, (-1, frames)).mean(1)

    def save(self, folder: Path) -> None:
        """Write the weights."""
        self.model.save_pretrained(folder)


Matcher = VidCLIPMatcher | BlipMatcher


def load_matcher(name_or_path: str, *, num_frames: int = 8) -> tuple[Matcher, Any, Any]:
    """A matcher with its image processor and tokenizer: from a CLIP (the head is new), a BLIP, or a folder of our own."""
    check_model_folder(name_or_path)
    found = AutoConfig.from_pretrained(name_or_path)
    if found.model_type == "blip":
        matcher: Matcher = BlipMatcher(BlipForImageTextRetrieval.from_pretrained(name_or_path), max_frames=num_frames)
    elif found.model_type == "vidclip":
        matcher = VidCLIPMatcher(AutoModel.from_pretrained(name_or_path))
        if (Path(name_or_path) / HEAD_FILE).is_file():
            matcher.head.load_state_dict(load_file(Path(name_or_path) / HEAD_FILE))
    elif found.model_type == "clip":
        tokens = max(MAX_TEXT_TOKENS, found.text_config.max_position_embeddings)
        model = VidCLIPModel.from_clip(name_or_path, num_frames=num_frames, max_text_tokens=tokens)
        matcher = VidCLIPMatcher(model)
    else:
        raise SystemExit(f"{name_or_path} is a {found.model_type} model; give a CLIP, a VidCLIP or a BLIP")
    return (
        matcher,
        AutoImageProcessor.from_pretrained(name_or_path),
        AutoTokenizer.from_pretrained(name_or_path),
    )


class Scorer:
    """A matcher as the callable that `hf_datasets.fig.noise` asks: `scorer(frames, texts)` -> one logit per text.

    Args:
        matcher: in evaluation mode.
        processor: its image processor.
        tokenizer: its tokenizer.
        batch_size: texts at a time.
    """

    def __init__(self, matcher: Matcher, processor: Any, tokenizer: Any, *, batch_size: int = 64) -> None:
        self.matcher, self.processor, self.tokenizer, self.batch_size = (
            matcher,
            processor,
            tokenizer,
            batch_size,
        )

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.matcher.parameters()).device

    @property
    def frame_size(self) -> tuple[int, int]:
        """Height and width that the image processor ends with."""
        cropped = getattr(self.processor, "do_center_crop", False)
        size = self.processor.crop_size if cropped else self.processor.size
        side = size.get("shortest_edge")
        return (side, side) if side else (size["height"], size["width"])

    def pixels(self, clips: Tensor) -> Tensor:
        """`pixel_values (B, T, 3, H, W)` of uint8 clips `(B, T, 3, h, w)`."""
        made = self.processor(images=list(clips.flatten(0, 1)), return_tensors="pt")["pixel_values"]
        return made.unflatten(0, clips.shape[:2]).to(self.device)

    def tokens(self, texts: list[str]) -> dict[str, Tensor]:
        """`input_ids` and `attention_mask`; longer texts lose their end."""
        options = {"padding": True, "truncation": True, "max_length": self.matcher.max_tokens}
        made = self.tokenizer(texts, return_tensors="pt", **options)
        return {name: made[name].to(self.device) for name in ("input_ids", "attention_mask")}

    @torch.inference_mode()
    def __call__(self, frames: Tensor, texts: list[str]) -> list[float]:
        """Score each text for a clip of uint8 frames `(T, 3, H, W)`; frames beyond the model's are left out evenly."""
        if len(frames) > self.matcher.max_frames:
            frames = frames[torch.linspace(0, len(frames) - 1, self.matcher.max_frames).round().long()]
        clip = self.matcher.encode_clips(self.pixels(frames[None]))
        scores: list[float] = []
        for first in range(0, len(texts), self.batch_size):
            batch = self.matcher.encode_texts(**self.tokens(list(texts[first : first + self.batch_size])))
            rows = torch.zeros(len(batch.embeds), dtype=torch.long, device=self.device)
            scores += self.matcher.match(clip.take(rows), batch).float().tolist()
        return scores

    def save(self, folder: Path) -> None:
        """Write model, processor and tokenizer."""
        self.matcher.save(folder)
        self.processor.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def contrastive_loss(
    clips: Encoded, positives: Encoded, owners: Tensor, negatives: Encoded, is_same: Tensor, scale: Tensor
) -> Tensor:
    """Each fitting text against all texts that do not fit its clip, and against the other clips.

    The text side is `-log(e^s(v, p) / (e^s(v, p) + sum_n e^s(v, n)))` for each positive p of clip v, where n runs over
    the other clips' texts and over all disturbed ones; other positives of v are not in the sum.

    Args:
        clips: B of them.
        positives: P texts.
        owners: `(P,)`, the clip of each.
        negatives: texts that were disturbed.
        is_same: `(B, P)`, whether a positive fits a clip, its own or one with the same caption.
        scale: one over the temperature.
    """
    to_positive = clips.embeds @ positives.embeds.T * scale  # (B, P)
    own = to_positive[owners, torch.arange(len(owners), device=owners.device)]  # (P,)
    others = to_positive.masked_fill(is_same, -torch.inf)
    wrong = torch.cat([others, clips.embeds @ negatives.embeds.T * scale], dim=1)[owners]  # (P, P + N)
    to_text = -(own - torch.cat([own[:, None], wrong], dim=1).logsumexp(1)).mean()
    to_clip = -(own - torch.cat([own[:, None], others.T], dim=1).logsumexp(1)).mean()
    return (to_text + to_clip) / 2


def matching_loss(fitting: Tensor, wrong: Tensor) -> Tensor:
    """Binary cross-entropy of the head's logits, both classes with equal weight."""
    return (F.softplus(-fitting).mean() + F.softplus(wrong).mean()) / 2
