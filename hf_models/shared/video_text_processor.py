"""What processors of clips and texts share."""

from collections.abc import Iterable
from typing import Any, cast

from transformers import BatchFeature, ProcessorMixin
from transformers.processing_utils import AudioKwargs, ImagesKwargs, TextKwargs, VideosKwargs

# Keywords for prompts with placeholders and for pairs of texts, which a text tower does not read.
NOT_FOR_TEXTS = {
    "return_mm_token_type_ids",
    "return_text_replacement_offsets",
    "sanitize_control_tokens",
    "text_pair",
    "text_target",
    "text_pair_target",
}


class VideoTextProcessor(ProcessorMixin):
    """Clips to frames of pixels, texts to tokens.

    Attributes:
        own_keywords: Keywords of a call beside those of the tokenizer and of the video processor.
    """

    videos_kwargs = {"return_tensors": "pt"}  # noqa: RUF012 (where the base class reads defaults)
    own_keywords: frozenset[str] = frozenset()

    @property
    def max_tokens(self) -> int:
        """Longer texts lose their end."""
        raise NotImplementedError

    @property
    def text_kwargs(self) -> TextKwargs:  # type: ignore[override]  # transformers only reads it
        """The tokenizer's keywords where a call does not give them."""
        return {
            "padding": True,
            "truncation": True,
            "max_length": self.max_tokens,
            "return_attention_mask": True,
            "return_token_type_ids": False,
            "return_tensors": "pt",
        }

    def process(self, videos: Any, text: str | Iterable[str] | None, given: dict[str, Any]) -> BatchFeature:
        """Process videos, texts or both with the keywords of a call.

        Raises:
            ValueError: Neither videos nor texts are given.
            TypeError: A keyword is unknown, which the base class and its parts would ignore with a warning at most.
        """
        if videos is None and text is None:
            raise ValueError("give videos, text or both")
        self._check_keywords(given)
        keywords = cast("dict[str, Any]", self._merge_kwargs(**given))
        data: dict[str, Any] = {}
        if videos is not None:
            data |= self.video_processor(videos, **keywords["videos_kwargs"])
        if text is not None:
            texts = [text] if isinstance(text, str) else list(text)
            data |= self.tokenizer(texts, **keywords["text_kwargs"])
        return BatchFeature(data)

    def _check_keywords(self, given: dict[str, Any]) -> None:
        known = {
            "text_kwargs": TextKwargs.__annotations__.keys() - NOT_FOR_TEXTS,
            "videos_kwargs": VideosKwargs.__annotations__.keys()
            | self.video_processor.valid_kwargs.__annotations__.keys(),
        }
        anywhere = {*self.own_keywords, *known["text_kwargs"], *known["videos_kwargs"]}
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
