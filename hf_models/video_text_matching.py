"""Models that match clips and texts: a contrastive similarity, and a head that reads both together.

VERIFIED fine-tunes a video foundation model with both objectives. Here it is VidCLIP with a fused head, or BLIP's
image-text matching averaged over frames; both are trained and used in the same way.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer, BlipForImageTextRetrieval, BlipTextConfig

from hf_models.checkpoints import open_whole, opening
from hf_models.vidclip.layers_vidclip import limited_scale
from hf_models.vidclip.modeling_vidclip import VidCLIPModel
from hf_models.vidclip.modeling_vidclip_matching import Encoded, VidCLIPMatcher

MAX_TEXT_TOKENS = 64
MAX_LOGIT_SCALE = math.log(100)  # CLIP's


class BlipMatcher(nn.Module):
    """BLIP, whose image-text matching is averaged over the frames."""

    def __init__(self, model: BlipForImageTextRetrieval, *, max_frames: int = 8) -> None:
        super().__init__()
        self.model = model
        self.max_frames = max_frames
        self.max_tokens = min(MAX_TEXT_TOKENS, cast("BlipTextConfig", model.config.text_config).max_position_embeddings)
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
        """Logits `(n,)` of clip i with text i: the logit of "fits" less that of "does not", averaged over frames."""
        frames = clips.states.shape[1]
        fused = self.model.text_encoder(
            input_ids=cast("Tensor", texts.input_ids).repeat_interleave(frames, 0),
            attention_mask=cast("Tensor", texts.mask).repeat_interleave(frames, 0),
            encoder_hidden_states=clips.states.flatten(0, 1),
        ).last_hidden_state
        logits = self.model.itm_head(fused[:, 0])
        fits: Tensor = (logits[:, 1] - logits[:, 0]).unflatten(0, (-1, frames)).mean(1)
        return fits

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the weights."""
        self.model.save_pretrained(folder)


Matcher = VidCLIPMatcher | BlipMatcher


def load_matcher(
    name_or_path: str, *, num_frames: int = 8, needs_trained_head: bool = False
) -> tuple[Matcher, Any, Any]:
    """A matcher with its image processor and tokenizer.

    Args:
        name_or_path: A folder or a name on the Hub: a `VidCLIPMatcher`, a VidCLIP (its head is new), a CLIP
            (poolers and head are new) or a BLIP.
        num_frames: Frames of the longest clip, for a CLIP or BLIP.
        needs_trained_head: Refuse a VidCLIP or CLIP whose head would be new.

    Raises:
        ValueError: The model is of another family, or its head would be new and must not be.
    """
    with opening(name_or_path):
        kind = AutoConfig.from_pretrained(name_or_path).model_type
        if kind not in ("vidclip_matcher", "vidclip", "clip", "blip"):
            raise ValueError(f"{name_or_path} is a {kind} model; give a CLIP, a VidCLIP or a BLIP")
        if needs_trained_head and kind in ("vidclip", "clip"):
            raise ValueError(
                f"{name_or_path} is a {kind} model, so its matching head is untrained; `subtle noise_evaluator` trains "
                "one"
            )
        if kind == "blip":
            matcher: Matcher = BlipMatcher(open_whole(BlipForImageTextRetrieval, name_or_path), max_frames=num_frames)
        elif kind == "vidclip_matcher":
            matcher = open_whole(VidCLIPMatcher, name_or_path)
        elif kind == "vidclip":
            matcher = VidCLIPMatcher.from_vidclip(name_or_path)
        else:
            longest = AutoConfig.from_pretrained(name_or_path).text_config.max_position_embeddings
            tokens = max(MAX_TEXT_TOKENS, longest)
            model = VidCLIPModel.from_clip(name_or_path, num_frames=num_frames, max_text_tokens=tokens)
            matcher = VidCLIPMatcher.from_vidclip(model)
        return (
            matcher,
            AutoImageProcessor.from_pretrained(name_or_path),
            AutoTokenizer.from_pretrained(name_or_path),
        )


class Scorer:
    """A matcher as a callable: `scorer(frames, texts)` gives one logit per text, higher where it fits better.

    Args:
        matcher: In evaluation mode.
        processor: Its image processor.
        tokenizer: Its tokenizer.
        batch_size: Texts at a time.

    Example:
        >>> scorer = Scorer(*load_matcher("recipes/weights/miniature-clip", num_frames=4))
        >>> _ = scorer.matcher.eval()
        >>> len(scorer(torch.zeros(4, 3, 64, 64, dtype=torch.uint8), ["a vault", "a dive"]))
        2
    """

    def __init__(self, matcher: Matcher, processor: Any, tokenizer: Any, *, batch_size: int = 64) -> None:
        self.matcher, self.processor, self.tokenizer = matcher, processor, tokenizer
        self.batch_size = batch_size

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
        pixel_values: Tensor = made.unflatten(0, clips.shape[:2]).to(self.device)
        return pixel_values

    def tokens(self, texts: list[str]) -> dict[str, Tensor]:
        """`input_ids` and `attention_mask`; longer texts lose their end."""
        options = {"padding": True, "truncation": True, "max_length": self.matcher.max_tokens}
        made = self.tokenizer(texts, return_tensors="pt", **options)
        return {name: made[name].to(self.device) for name in ("input_ids", "attention_mask")}

    @torch.inference_mode()
    def __call__(self, frames: Tensor, texts: Sequence[str]) -> list[float]:
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

    def save_pretrained(self, folder: str | Path) -> None:
        """Write model, processor and tokenizer, for `load_matcher`."""
        self.matcher.save_pretrained(folder)
        self.processor.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
