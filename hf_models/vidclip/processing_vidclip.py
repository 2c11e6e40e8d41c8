"""Processor of VidCLIP: videos to frames of pixels, paragraphs to tokens."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from transformers import BatchFeature, PreTrainedTokenizerBase
from transformers.processing_utils import ProcessingKwargs, Unpack
from transformers.video_processing_utils import BaseVideoProcessor

from .video_text_processor import VideoTextProcessor


class VidCLIPProcessor(VideoTextProcessor):
    """Turn videos and texts into what `VidCLIPModel` takes.

    Args:
        video_processor: Makes `pixel_values` from videos, for instance an `AIMVideoProcessor`.
        tokenizer: The text tower's; its texts must end with the token that CLIP reads a text from.
        max_text_tokens: Longer paragraphs lose their end; 160 in the paper.
    """

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
    def max_tokens(self) -> int:
        """As it was made with."""
        return self.max_text_tokens

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
        return self.process(videos, text, cast("dict[str, Any]", kwargs))

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
