"""Processor of TF-CoVR: clips to frames of pixels, modification texts to tokens."""

from typing import Any, cast

from transformers import BatchFeature, PreTrainedTokenizerBase, ProcessorMixin
from transformers.processing_utils import AudioKwargs, ImagesKwargs, ProcessingKwargs, TextKwargs, Unpack, VideosKwargs
from transformers.video_processing_utils import BaseVideoProcessor

from .modification_texts import normalize_modification

MAX_TOKENS = 32
# Keywords for prompts with placeholders and for pairs of texts, which a text encoder does not read.
NOT_FOR_TEXTS = {
    "return_mm_token_type_ids",
    "return_text_replacement_offsets",
    "sanitize_control_tokens",
    "text_pair",
    "text_target",
    "text_pair_target",
}


class TFCoVRProcessorKwargs(ProcessingKwargs, total=False):
    """Keyword arguments of a call: those of the tokenizer and of the video processor, and our own."""

    number_words: bool


class TFCoVRProcessor(ProcessorMixin):
    """Turn clips and modification texts into what `TFCoVRForComposedRetrieval` takes.

    Args:
        video_processor: makes `pixel_values` from clips, for instance an `AIMVideoProcessor`.
        tokenizer: the text encoder's.
        number_words: apply `normalize_modification`, as the released code does; False feeds texts as they are.
    """

    valid_processor_kwargs = TFCoVRProcessorKwargs
    videos_kwargs = {"return_tensors": "pt"}  # noqa: RUF012 (where the base class reads defaults)

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
    def text_kwargs(self) -> TextKwargs:  # type: ignore[override]  # transformers only reads it
        """The tokenizer's keywords where a call does not give them."""
        return {
            "padding": True,
            "truncation": True,
            "max_length": min(MAX_TOKENS, self.tokenizer.model_max_length),
            "return_attention_mask": True,
            "return_token_type_ids": False,
            "return_tensors": "pt",
        }

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
        if videos is None and text is None:
            raise ValueError("give videos, text or both")
        self._check_keywords(cast("dict[str, Any]", kwargs))
        keywords = self._merge_kwargs(**kwargs)
        data: dict[str, Any] = {}
        if videos is not None:
            data |= self.video_processor(videos, **keywords["videos_kwargs"])
        if text is not None:
            texts = [text] if isinstance(text, str) else list(text)
            if keywords["number_words"]:
                texts = [normalize_modification(modification) for modification in texts]
            data |= self.tokenizer(texts, **keywords["text_kwargs"])
        return BatchFeature(data)

    def _check_keywords(self, given: dict[str, Any]) -> None:
        """Refuse what the base class and its parts would ignore with a warning at most.

        Raises:
            TypeError: A keyword is unknown.
        """
        known = {
            "text_kwargs": TextKwargs.__annotations__.keys() - NOT_FOR_TEXTS,
            "videos_kwargs": VideosKwargs.__annotations__.keys()
            | self.video_processor.valid_kwargs.__annotations__.keys(),
        }
        anywhere = {"number_words", *known["text_kwargs"], *known["videos_kwargs"]}
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
