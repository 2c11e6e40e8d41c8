"""Processor of VidCLIP: videos to frames of pixels, paragraphs to tokens."""

from typing import Any

from transformers import BatchFeature, PreTrainedTokenizerBase, ProcessorMixin
from transformers.video_processing_utils import BaseVideoProcessor


class VidCLIPProcessor(ProcessorMixin):
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

    def __call__(
        self,
        videos: Any = None,
        text: str | list[str] | None = None,
        *,
        return_tensors: str = "pt",
        **kwargs: Any,
    ) -> BatchFeature:
        """Process videos, texts or both.

        Args:
            videos: One video or a list of them: `(T, C, H, W)` uint8 tensors, arrays or paths.
            text: One text or a list of them.
            return_tensors: "pt" or "np".
            **kwargs: Passed on to the video processor.

        Returns:
            `pixel_values (B, T, C, H, W)` for videos; `input_ids` and `attention_mask`, both `(B, L)` with L at most
            `max_text_tokens`, for texts.

        Raises:
            ValueError: Neither videos nor texts are given.
        """
        if videos is None and text is None:
            raise ValueError("give videos, text or both")
        data = {}
        if videos is not None:
            data |= self.video_processor(videos, return_tensors=return_tensors, **kwargs)
        if text is not None:
            tokens = self.tokenizer(
                [text] if isinstance(text, str) else list(text),
                padding=True,
                truncation=True,
                max_length=self.max_text_tokens,
                return_tensors=return_tensors,
            )
            data |= {name: tokens[name] for name in ("input_ids", "attention_mask")}
        return BatchFeature(data)
