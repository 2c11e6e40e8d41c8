"""Processor of VidCLIP: videos to frames of pixels, paragraphs to tokens."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from transformers import BatchFeature, PreTrainedTokenizerBase, ProcessorMixin
from transformers.processing_utils import AudioKwargs, ImagesKwargs, ProcessingKwargs, TextKwargs, Unpack, VideosKwargs
from transformers.video_processing_utils import BaseVideoProcessor

# Keywords for prompts with placeholders and for pairs of texts, which a text tower does not read.
NOT_FOR_TEXTS = {
    "return_mm_token_type_ids",
    "return_text_replacement_offsets",
    "sanitize_control_tokens",
    "text_pair",
    "text_target",
    "text_pair_target",
}


class VidCLIPProcessor(ProcessorMixin):
    """Turn videos and texts into what `VidCLIPModel` takes.

    Args:
        video_processor: Makes `pixel_values` from videos, for instance an `AIMVideoProcessor`.
        tokenizer: The text tower's; its texts must end with the token that CLIP reads a text from.
        max_text_tokens: Longer paragraphs lose their end; 160 in the paper.
    """

    videos_kwargs = {"return_tensors": "pt"}  # noqa: RUF012 (where the base class reads defaults)

    def __init__(
        self,
        video_processor: BaseVideoProcessor | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        max_text_tokens: int = 160,
        **kwargs: Any,
    ) -> None:
        self.max_text_tokens = max_text_tokens
        super().__init__(video_processor, tokenizer, **kwargs)

    @property
    def text_kwargs(self) -> TextKwargs:  # type: ignore[override]  # transformers only reads it
        """The tokenizer's keywords where a call does not give them."""
        return {
            "padding": True,
            "truncation": True,
            "max_length": self.max_text_tokens,
            "return_attention_mask": True,
            "return_token_type_ids": False,
            "return_tensors": "pt",
        }

    def __call__(
        self, videos: Any = None, text: str | Iterable[str] | None = None, **kwargs: Unpack[ProcessingKwargs]
    ) -> BatchFeature:
        """Process videos, texts or both.

        Args:
            videos: One video or a list of them: `(T, C, H, W)` uint8 tensors, arrays or paths.
            text: One text or a list of them.
            **kwargs: Keywords of the tokenizer and of the video processor, such as `padding="max_length"`,
                `max_length`, `return_tensors="np"` or `do_sample_frames=False`: by themselves, or in
                `text_kwargs={...}` and `videos_kwargs={...}`.

        Returns:
            `pixel_values (B, T, C, H, W)` for videos; `input_ids` and `attention_mask`, both `(B, L)` with L at most
            `max_length`, by default `max_text_tokens`, for texts.

        Raises:
            ValueError: Neither videos nor texts are given.
            TypeError: A keyword is unknown.

        Example:
            >>> processor = VidCLIPProcessor.from_pretrained("recipes/weights/miniature-vidclip")
            >>> batch = processor(text="A jump.", text_kwargs={"padding": "max_length", "max_length": 12})
            >>> batch["input_ids"].shape
            torch.Size([1, 12])
        """
        if videos is None and text is None:
            raise ValueError("give videos, text or both")
        self._check_keywords(cast("dict[str, Any]", kwargs))
        keywords = self._merge_kwargs(**kwargs)
        data: dict[str, Any] = {}
        if videos is not None:
            data |= self.video_processor(videos, **keywords["videos_kwargs"])
        if text is not None:
            texts = [text] if isinstance(text, str) else list(text)
            data |= self.tokenizer(texts, **keywords["text_kwargs"])
        return BatchFeature(data)

    def tokenize_contrasts(
        self, positives: Sequence[str], negatives: Sequence[Sequence[str]], levels: Sequence[Sequence[int]]
    ) -> BatchFeature:
        """Turn texts that fit their videos and texts that do not into what `VidCLIPModel` takes to train with CompLoss.

        Args:
            positives: The text that fits each of B videos.
            negatives: For each video, texts that do not; their number N may differ, missing ones are padded.
            levels: How far each negative is from its video, at least 1.

        Returns:
            `input_ids` and `attention_mask`, both `(B, L)`; `negative_input_ids` and `negative_attention_mask`, both
            `(B, N, L')`; `negative_levels (B, N)`, 0 for padding. N is at least 1.

        Raises:
            ValueError: The arguments differ in length.

        Example:
            >>> processor = VidCLIPProcessor.from_pretrained("recipes/weights/miniature-vidclip")
            >>> batch = processor.tokenize_contrasts(["A jump.", "A turn."], [["A fall.", "A roll."], []], [[1, 2], []])
            >>> batch["negative_input_ids"].shape[:2], batch["negative_levels"].tolist()
            (torch.Size([2, 2]), [[1, 2], [0, 0]])
        """
        if [len(texts) for texts in negatives] != [len(own) for own in levels] or len(positives) != len(negatives):
            raise ValueError(
                f"{len(positives)} positives with {[len(texts) for texts in negatives]} negatives and "
                f"{[len(own) for own in levels]} levels: give each positive a list of negatives and a level for each"
            )
        most = max([1, *map(len, negatives)])
        # A text stands for those that are missing; its level, 0, leaves it out.
        padded = [[*own, *[text] * (most - len(own))] for text, own in zip(positives, negatives, strict=True)]
        tokens = self(text=[text for texts in padded for text in texts])
        names = ("input_ids", "attention_mask")
        data = dict(self(text=positives)) | {
            f"negative_{name}": tokens[name].unflatten(0, (-1, most)) for name in names
        }
        data["negative_levels"] = torch.tensor([[*own, *[0] * (most - len(own))] for own in levels])
        return BatchFeature(data)

    def _check_keywords(self, given: dict[str, Any]) -> None:
        """Refuse what the base class and its parts would ignore with a warning.

        Raises:
            TypeError: A keyword is unknown.
        """
        known = {
            "text_kwargs": TextKwargs.__annotations__.keys() - NOT_FOR_TEXTS,
            "videos_kwargs": VideosKwargs.__annotations__.keys()
            | self.video_processor.valid_kwargs.__annotations__.keys(),
        }
        anywhere = known["text_kwargs"] | known["videos_kwargs"]
        known["common_kwargs"] = known["text_kwargs"] & known["videos_kwargs"]
        # Callers of any processor, such as sentence-transformers, give keywords for images and audio, too.
        known |= {
            "images_kwargs": ImagesKwargs.__annotations__.keys(),
            "audio_kwargs": AudioKwargs.__annotations__.keys(),
        }
        unknown = given.keys() - anywhere - known.keys()
        for group in given.keys() & known.keys():
            unknown |= {f"{group}[{name!r}]" for name in given[group].keys() - known[group]}
        if unknown:
            raise TypeError(
                f"{type(self).__name__} does not know {', '.join(sorted(unknown))}; it takes videos, text, and the "
                f"keywords {', '.join(sorted(anywhere))}, also in text_kwargs and videos_kwargs"
            )
