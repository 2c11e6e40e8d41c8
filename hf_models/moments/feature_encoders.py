"""Image, video and text models of the Hub as encoders: one vector for each clip of a video or token of a text."""

import math
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoImageProcessor, AutoModel, AutoTokenizer, AutoVideoProcessor

from hf_models.checkpoints import open_whole, opening
from hf_models.fingerprints import processor_fingerprint, tokenizer_fingerprint, weights_fingerprint
from hf_models.frame_reading import frame_size_of, staged

FRAMES_PER_CLIP = 4
CLIPS_PER_READ = 16
"""Clips of a video that are read together, from which the frames of each are chosen."""


class ClipEncoder:
    """A vision model that gives one vector per clip: the maximum over its frames, or what a video model pools.

    Attributes:
        model: in evaluation mode; move it to where clips are to be encoded.
        frames_per_clip: T, how many frames of a clip it sees.

    Args:
        model: a folder or a name on the Hub of an image or video model with its processor.
        frames_per_clip: T; None: as many as a video model was trained with, `FRAMES_PER_CLIP` for an image model.
    """

    def __init__(self, model: str | Path, *, frames_per_clip: int | None = None) -> None:
        self.model = _vision_tower(open_whole(AutoModel, model, part=_vision_tower).eval())
        self.sees_videos = "video" in self.model.input_modalities
        loader = AutoVideoProcessor if self.sees_videos else AutoImageProcessor
        with opening(model, checked=True):
            self.processor = loader.from_pretrained(model)
        trained_with = getattr(self.model.config, "num_frames", None) if self.sees_videos else None
        self.frames_per_clip = frames_per_clip or trained_with or FRAMES_PER_CLIP

    @property
    def size(self) -> int | None:
        """The short side that the processor asks for; None leaves frames as they are."""
        if timm := getattr(self.processor, "data_config", None):
            return int(min(timm["input_size"][1:]) / timm["crop_pct"])
        size = frame_size_of(self.processor)
        return min(size) if isinstance(size, tuple) else size

    @property
    def sampler(self) -> str:
        """The choice of frames in words, for `FeatureStore`."""
        return f"{self.frames_per_clip} frames of each clip, maximum"

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """What a vector depends on beside the choice of frames, for `FeatureStore`."""
        return {"weights": weights_fingerprint(self.model), "processor": processor_fingerprint(self.processor)}

    @torch.inference_mode()
    def __call__(self, clips: Tensor) -> Tensor:
        """Encode clips.

        Args:
            clips: `(n, T, 3, H, W)` uint8.

        Returns:
            `(n, D)` float32, on the CPU.
        """
        device = self.model.device
        if self.sees_videos:
            videos = staged(list(clips), self.processor, device)
            pixels = self.processor(videos, do_sample_frames=False, return_tensors="pt")
            output = self.model(pixel_values=next(iter(pixels.values())).to(device))
            states = output.last_hidden_state
            per_frame = states.ndim == 3 and states.shape[1] == clips.shape[1]
            vectors = states.amax(1) if per_frame else _pooled_output(output)
        else:
            images = [image for clip in staged(list(clips), self.processor, device) for image in clip]
            pixels = self.processor(images=images, return_tensors="pt")["pixel_values"]
            output = self.model(pixel_values=pixels.to(device))
            vectors = _pooled_output(output).unflatten(0, clips.shape[:2]).amax(1)
        return vectors.float().cpu()


def _vision_tower(whole: Any) -> Any:
    """Not what a CLIP projects for whole captions: half the width, and less about colors and counts."""
    return whole if "video" in whole.input_modalities else getattr(whole, "vision_model", whole)


def _text_tower(whole: Any) -> Any:
    tower = getattr(whole, "text_model", whole)
    return tower.get_encoder() if tower.config.is_encoder_decoder else tower


def _pooled_output(output: Any) -> Tensor:
    """One vector per image or video: the model's own pooling, or the mean of its states."""
    if getattr(output, "pooler_output", None) is not None:
        vectors: Tensor = output.pooler_output.flatten(1)
    else:
        vectors = output.last_hidden_state.flatten(1, -2).mean(1)
    return vectors


class TokenEncoder:
    """A text model that gives one vector per token, the special ones included.

    Attributes:
        model: in evaluation mode; move it to where texts are to be encoded.
        max_tokens: the longest text that is read whole.

    Args:
        model: a folder or a name on the Hub of a text model with its tokenizer.
    """

    def __init__(self, model: str | Path) -> None:
        self.model = _text_tower(open_whole(AutoModel, model, part=_text_tower, unread="pooler").eval())
        with opening(model, checked=True):
            self.tokenizer = AutoTokenizer.from_pretrained(model)
        positions = getattr(self.model.config, "max_position_embeddings", None) or math.inf
        self.max_tokens = int(min(self.tokenizer.model_max_length, positions, 1 << 20))

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """What a vector depends on, for `FeatureStore`."""
        return {"weights": weights_fingerprint(self.model), "tokenizer": tokenizer_fingerprint(self.tokenizer)}

    @torch.inference_mode()
    def __call__(self, texts: list[str]) -> list[Tensor]:
        """Encode texts; what is longer than `max_tokens` is cut.

        Args:
            texts: at least one.

        Returns:
            For each text `(tokens, D)` float32, on the CPU.
        """
        options = {"padding": True, "truncation": True, "max_length": self.max_tokens}
        tokens = self.tokenizer(texts, return_tensors="pt", **options).to(self.model.device)
        states = self.model(tokens["input_ids"], attention_mask=tokens["attention_mask"]).last_hidden_state
        mask = tokens["attention_mask"].bool()
        return [state[kept].float().cpu() for state, kept in zip(states, mask, strict=True)]

    def count_cut(self, texts: list[str]) -> int:
        """How many texts are longer than the model reads."""
        lengths = self.tokenizer(texts, truncation=False, return_length=True, verbose=False)["length"]
        return sum(length > self.max_tokens for length in lengths)
