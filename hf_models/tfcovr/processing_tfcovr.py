"""Processor of TF-CoVR: clips to frames of pixels, modification texts to tokens."""

import re
from typing import Any

from transformers import BatchFeature, PreTrainedTokenizerBase, ProcessorMixin
from transformers.video_processing_utils import BaseVideoProcessor

MAX_WORDS = 30
MAX_TOKENS = 32
WHOLE_NUMBERS = ("", "one", "two", "three", "four", "five", "six", "seven")


def normalize_modification(text: str) -> str:
    """A modification text as the released code feeds it to its text encoder.

    Numbers from 0.5 to 7 in steps of a half become words, letters lower-case, the signs `! " ( ) * # : ; ~` spaces,
    runs of spaces one; at most 30 words stay. The length statistics of the paper (2 to 19 words) are of this form.

    Example:
        >>> normalize_modification("Show with 2.5 somersaults Tuck.")
        'show with two and a half somersaults tuck.'
    """
    text = re.sub(r"\b\d+(?:\.\d+)?\b", lambda match: _number_words(match.group()), text).lower()
    words = re.sub(r'[!"()*#:;~]', " ", text).split()
    return " ".join(words[:MAX_WORDS])


def _number_words(digits: str) -> str:
    halves = float(digits) * 2
    if halves != int(halves) or not 1 <= halves <= 14:
        return digits
    whole, half = divmod(int(halves), 2)
    if not whole:
        return "half"
    return f"{WHOLE_NUMBERS[whole]} and a half" if half else WHOLE_NUMBERS[whole]


class TFCoVRProcessor(ProcessorMixin):
    """Turn clips and modification texts into what `TFCoVRForComposedRetrieval` takes.

    Args:
        video_processor: makes `pixel_values` from clips, for instance an `AIMVideoProcessor`.
        tokenizer: the text encoder's.
        number_words: apply `normalize_modification`, as the released code does; False feeds texts as they are.
    """

    def __init__(
        self,
        video_processor: BaseVideoProcessor | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        number_words: bool = True,
        **kwargs: Any,
    ) -> None:
        self.number_words = number_words
        super().__init__(video_processor, tokenizer, **kwargs)

    def __call__(
        self,
        videos: Any = None,
        text: str | list[str] | None = None,
        *,
        return_tensors: str = "pt",
        **kwargs: Any,
    ) -> BatchFeature:
        """Process clips, texts or both.

        Args:
            videos: one clip or a list of them: `(T, C, H, W)` uint8 tensors, arrays or paths.
            text: one modification text or a list of them.
            return_tensors: "pt" or "np".
            **kwargs: passed on to the video processor.

        Returns:
            `pixel_values (B, T, C, H, W)` for clips; `input_ids` and `attention_mask`, both `(B, L)` with L at most 32
            tokens, for texts.

        Raises:
            ValueError: Neither clips nor texts are given.
        """
        if videos is None and text is None:
            raise ValueError("give videos, text or both")
        data = {}
        if videos is not None:
            data |= self.video_processor(videos, return_tensors=return_tensors, **kwargs)
        if text is not None:
            texts = [text] if isinstance(text, str) else list(text)
            if self.number_words:
                texts = [normalize_modification(one) for one in texts]
            max_length = min(MAX_TOKENS, self.tokenizer.model_max_length)
            tokens = self.tokenizer(
                texts, padding=True, truncation=True, max_length=max_length, return_tensors=return_tensors
            )
            data |= {name: tokens[name] for name in ("input_ids", "attention_mask")}
        return BatchFeature(data)
