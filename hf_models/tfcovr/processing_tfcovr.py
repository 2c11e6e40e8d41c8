"""Processor of TF-CoVR: clips to frames of pixels, modification texts to tokens."""

from typing import Any, cast

from transformers import BatchFeature, PreTrainedTokenizerBase
from transformers.processing_utils import ProcessingKwargs, Unpack
from transformers.video_processing_utils import BaseVideoProcessor

from .modification_texts import normalize_modification
from .video_text_processor import VideoTextProcessor

MAX_TOKENS = 32


class TFCoVRProcessorKwargs(ProcessingKwargs, total=False):
    """Keyword arguments of a call: those of the tokenizer and of the video processor, and our own."""

    number_words: bool


class TFCoVRProcessor(VideoTextProcessor):
    """Turn clips and modification texts into what `TFCoVRForComposedRetrieval` takes.

    Args:
        video_processor: makes `pixel_values` from clips, for instance an `AIMVideoProcessor`.
        tokenizer: the text encoder's.
        number_words: apply `normalize_modification`, as the released code does; False feeds texts as they are.
    """

    valid_processor_kwargs = TFCoVRProcessorKwargs
    own_keywords = frozenset({"number_words"})

    def __init__(
        self,
        video_processor: BaseVideoProcessor | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        number_words: bool = True,
        **kwargs: Any,
    ) -> None:
        self.number_words = number_words
        super().__init__(video_processor, tokenizer, **kwargs)

    @property
    def max_tokens(self) -> int:
        """As the released code cuts modification texts."""
        return min(MAX_TOKENS, int(self.tokenizer.model_max_length))

    def __call__(
        self, videos: Any = None, text: str | list[str] | None = None, **kwargs: Unpack[TFCoVRProcessorKwargs]
    ) -> BatchFeature:
        """Process clips, texts or both.

        Args:
            videos: one clip or a list of them: `(T, C, H, W)` uint8 tensors, arrays or paths.
            text: one modification text or a list of them.
            **kwargs: what this call does differently, as for every processor of transformers: keywords of the
                tokenizer (`padding`, `max_length`, ...) and of the video processor (`num_frames`, `size`, ...), plain
                or in `text_kwargs={...}` and `videos_kwargs={...}`; `return_tensors` ("pt", or "np"); `number_words`.

        Returns:
            `pixel_values (B, T, C, H, W)` for clips; `input_ids` and `attention_mask`, both `(B, L)` with L at most 32
            tokens (`max_length`), for texts.

        Raises:
            ValueError: Neither clips nor texts are given.
            TypeError: A keyword is unknown.

        Example:
            >>> from transformers import AutoTokenizer
            >>> from hf_models import AIMVideoProcessor
            >>> tokenizer = AutoTokenizer.from_pretrained("recipes/weights/miniature-clip")
            >>> processor = TFCoVRProcessor(AIMVideoProcessor(), tokenizer)
            >>> processor(text=["show 2 turns", "tuck"], padding="max_length", max_length=12)["input_ids"].shape
            torch.Size([2, 12])
        """
        if text is not None and kwargs.get("number_words", self.number_words):
            text = [normalize_modification(one) for one in ([text] if isinstance(text, str) else text)]
        return self.process(videos, text, cast("dict[str, Any]", kwargs))
