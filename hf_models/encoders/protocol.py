"""What every encoder does, and how it says what it does: one class with its defaults, the facts that a table prints."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hf_models.fingerprints import processor_fingerprint, tokenizer_fingerprint, weights_fingerprint
from hf_models.frame_reading import FrameSize, frame_size_of, staged
from hf_models.query_texts import check_length, check_text


@dataclass(frozen=True)
class Usage:
    """How an encoder uses its family of models, in words that a table prints.

    Attributes:
        family: What the models are called.
        frames: How many frames, and how they become one embedding.
        prompt: What stands around a video or a text, verbatim.
        pooling: What of the model's output is the embedding.
        query: How a video and a text become one query.
        source: Paper and model card.
        license: Of the released weights.
        inferred: What neither paper nor released code says, and is our choice.
    """

    family: str
    frames: str
    prompt: str
    pooling: str
    query: str
    source: str
    license: str
    inferred: str = ""


class Encoder:
    """A model and its processor: videos, texts and both together as rows, with what most families have in common.

    Args:
        model: In evaluation mode, on its device.
        processor: Its own.
        num_frames: How many frames of a video it reads.
    """

    usage: ClassVar[Usage]
    model_class: ClassVar[str] = "AutoModel"
    """The class of transformers that holds all weights that the encoder uses."""
    processor_class: ClassVar[str] = "AutoProcessor"
    reads_texts: bool = True
    default_frames: ClassVar[int] = 16
    """Frames of a video where the configuration does not say how many."""
    spread: ClassVar[Literal["middles", "ends"]] = "middles"
    """Which frames of a video it reads: the middles of equal parts, or evenly from the first to the last."""
    similarity: str = "cosine"
    """What compares queries with videos: "cosine", "dot", or what no search by vectors can compute."""
    autocast: torch.dtype | None = None
    """What `vectors` computes in, by autocast, such as `torch.bfloat16`; None: in the type of the weights."""

    def __init__(self, model: Any, processor: Any, num_frames: int) -> None:
        self.model, self.processor, self.num_frames = model, processor, num_frames

    @classmethod
    def fixed_frames(cls, config: Any, processor: Any = None) -> int | None:  # noqa: ARG003 for subclasses
        """The only number of frames that a model of this configuration and processor takes, None where it takes any."""
        return None

    @classmethod
    def text_config(cls, config: Any) -> Any:
        """The part of a configuration that says how the model reads texts."""
        return config.get_text_config()

    @property
    def depends_on(self) -> dict[str, str]:
        """What the embeddings depend on besides weights, processor, tokenizer and frames, by name."""
        return {}

    @property
    def frames_processors(self) -> list[Any]:
        """What prepares frames; none where that is not known."""
        found = (getattr(self.processor, kind, None) for kind in ("video_processor", "image_processor"))
        return [part for part in found if part is not None]

    @property
    def frame_size(self) -> FrameSize:
        """What frames may be resized to while they are read."""
        return frame_size_of(*self.frames_processors[:1])

    @cached_property
    def dimensions(self) -> int:
        """D of a search."""
        return int(self.vectors([torch.zeros(self.num_frames, 3, 64, 64, dtype=torch.uint8)]).shape[1])

    @property
    def fingerprint(self) -> dict[str, str]:
        """What vectors depend on, by name, besides the frames that are read: `frame_reading.frames_read` says these."""
        found = {"encoder": type(self).__name__, "weights": self.weights}
        if self.frames_processors:
            found["processor"] = " ".join(map(processor_fingerprint, self.frames_processors))
        if hasattr(tokenizer := getattr(self.processor, "tokenizer", None), "backend_tokenizer"):
            number_words = getattr(self.processor, "number_words", None)
            found["tokenizer"] = tokenizer_fingerprint(tokenizer, number_words=number_words)
        if self.autocast is not None:
            found["autocast"] = str(self.autocast)
        return found | self.depends_on

    @cached_property
    def weights(self) -> str:
        """Their fingerprint, which takes a minute for a large model; they must not change from here on."""
        return weights_fingerprint(self.model)

    def encode_video(self, frames: Sequence[Tensor]) -> Tensor:
        """Videos, each `(num_frames, 3, height, width)` uint8, as rows."""
        raise NotImplementedError

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Texts as rows."""
        raise NotImplementedError

    def encode_query(self, frames: Sequence[Tensor] | None, texts: Sequence[str] | None) -> Tensor:
        """What one looks for as rows `(B, D)`: videos, texts, or each video with how the wanted one differs from it.

        Raises:
            ValueError: There is neither, or there are not as many videos as texts.
        """
        if texts is None:
            if frames is None:
                raise ValueError("give a clip, a text or both")
            return self.encode_video(frames)
        if frames is None:
            return self.encode_text(texts)
        if len(frames) != len(texts):
            raise ValueError(f"a query is a video and a text; there are {len(frames)} videos and {len(texts)} texts")
        return self.compose(frames, texts)

    def compose(self, frames: Sequence[Tensor], texts: Sequence[str]) -> Tensor:
        """As many videos as texts as rows `(B, D)`, unit-norm: the mean of each video and its text, both unit-norm."""
        return mean_of(self.embeds(self.encode_video(frames)), self.embeds(self.encode_text(texts)))

    def embeds(self, rows: Tensor) -> Tensor:
        """The `(B, D)` in rows of videos that queries are compared with."""
        return rows

    def see(self, frames: Sequence[Tensor]) -> Tensor:
        """What is computed once of a video that stands in a gallery and in queries: see `target` and `query_of`."""
        return unit_rows(self.encode_video(frames))

    def target(self, seen: Tensor) -> Tensor:
        """Unit-norm `(B, D)` of videos that `see` has seen."""
        return seen

    def query_of(self, seen: Tensor | None, texts: Sequence[str] | None) -> Tensor:
        """Unit-norm `(B, D)` of what `see` has seen, of texts or of both: the mean of what is given."""
        read = None if texts is None else self.encode_text(texts).float().cpu()
        return mean_of(*(half for half in (seen, read) if half is not None))

    @torch.inference_mode()
    def vectors(self, frames: Sequence[Tensor]) -> np.ndarray:
        """Videos as a search keeps them, `(B, D)` float32. A larger dot product fits better."""
        with torch.autocast(self.model.device.type, self.autocast, enabled=self.autocast is not None):
            rows = self.embeds(self.encode_video(frames))
        found: np.ndarray = self.scaled(rows).cpu().numpy()
        return found

    @torch.inference_mode()
    def query(self, frames: Tensor | None = None, text: str | None = None) -> np.ndarray:
        """Embed what to look for: a clip, a text, or a clip and how the moment differs from it.

        Args:
            frames: `(num_frames, 3, height, width)` uint8.
            text: In words; no longer than the model reads.

        Returns:
            `(D,)` float32.

        Raises:
            ValueError: There is neither, or the model reads no such text.
        """
        found: np.ndarray = self.queries(None if frames is None else [frames], None if text is None else [text])[0]
        return found

    @torch.inference_mode()
    def queries(self, frames: Sequence[Tensor] | None = None, texts: Sequence[str] | None = None) -> np.ndarray:
        """Embed queries of one kind together, as `query` does each: `(Q, D)` float32.

        Raises:
            ValueError: As `query`.
        """
        for text in texts or ():
            self.check_text(text)
        found: np.ndarray = self.scaled(self.encode_query(frames, texts)).cpu().numpy()
        return found

    def check_text(self, text: str) -> None:
        """Refuse a text that the model would not read, or not to its end.

        Raises:
            ValueError: It is empty or too long, or the model reads none.
        """
        if not self.reads_texts:
            raise ValueError(
                "this model embeds videos only, so a query is a clip; index with a model that stage2.py trained, "
                "VidCLIP, CLIP or SigLIP to search by text"
            )
        check_text(text)
        check_length(*self.count_tokens(text))

    def scaled(self, rows: Tensor) -> Tensor:
        """Rows of length 1, float32, unless their length counts in a search."""
        return rows.float() if self.similarity == "dot" else unit_rows(rows)

    def count_tokens(self, text: str) -> tuple[int, int | None]:
        """How many tokens a text has, and the most that the model reads; None where that is unknown."""
        tokenizer = getattr(self.processor, "tokenizer", None)
        if tokenizer is None or not hasattr(self.model.config, "get_text_config"):
            return 0, None
        longest = getattr(self.text_config(self.model.config), "max_position_embeddings", None)
        return len(tokenizer(text)["input_ids"]), longest and min(longest, tokenizer.model_max_length)

    def compare(self, videos: Tensor, texts: Tensor) -> Tensor:
        """Similarities `(videos, texts)`, here dot products; higher fits better."""
        return videos @ texts.T

    def compare_queries(self, queries: Tensor, videos: Tensor) -> Tensor:
        """Similarities `(queries, videos)`, here cosines; higher fits better."""
        return unit_rows(queries) @ unit_rows(self.embeds(videos)).T

    def tokens(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Token ids of texts, padded on the right, cut to the longest that the model reads.

        Raises:
            ValueError: There is no text.
        """
        return self.cut_tokens(texts, 10**6)

    def cut_tokens(self, texts: Sequence[str], most_tokens: int) -> dict[str, Tensor]:
        """`tokens` of texts that are cut at `most_tokens`, where the released code gives the model no longer ones.

        Raises:
            ValueError: There is no text.
        """
        if not texts:
            raise ValueError("there is no text to encode; give at least one")
        tokenizer = self.processor.tokenizer
        readable = getattr(self.text_config(self.model.config), "max_position_embeddings", 10**6)
        longest = min(tokenizer.model_max_length, readable, most_tokens)
        padding = "max_length" if "siglip" in self.model.config.model_type else True  # as it was trained
        tokens = tokenizer(list(texts), padding=padding, truncation=True, max_length=longest, return_tensors="pt")
        wanted = ("input_ids", "attention_mask")
        return {name: tokens[name].to(self.model.device) for name in wanted if name in tokens}

    def images(self, frames: Sequence[Tensor]) -> dict[str, Tensor]:
        """What the image processor makes of all frames of all videos, one after another."""
        check_videos(frames)
        processor = self.processor.image_processor
        images = [frame for video in staged(frames, processor, self.model.device) for frame in video]
        batch = processor(images, return_tensors="pt")
        return {name: self.on_device(value) for name, value in batch.items()}

    def videos(self, frames: Sequence[Tensor]) -> dict[str, Tensor]:
        """What the video processor makes of frames that are sampled already."""
        check_videos(frames)
        processor = self.processor.video_processor
        batch = processor(staged(frames, processor, self.model.device), do_sample_frames=False, return_tensors="pt")
        return {name: self.on_device(value) for name, value in batch.items()}

    def on_device(self, value: Tensor) -> Tensor:
        """A tensor where the model is, real numbers as exact as its weights."""
        dtype = getattr(self.model, "dtype", None)
        return value.to(self.model.device, dtype if value.is_floating_point() else None)


def unit_rows(rows: Tensor) -> Tensor:
    """Rows scaled to length 1, float32 whatever the model computes in."""
    return F.normalize(rows.float(), dim=-1)


def mean_of(*parts: Tensor) -> Tensor:
    """The unit-norm mean of rows, each scaled to length 1 first.

    Example:
        >>> mean_of(torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 0.5]])).tolist()
        [[0.70710..., 0.70710...]]
    """
    return unit_rows(torch.stack([unit_rows(part) for part in parts]).mean(0))


def mean_over_frames(embeds: Tensor, frames: Sequence[Tensor]) -> Tensor:
    """The unit-norm mean `(B, ..., D)` of each video's unit-norm frames.

    Args:
        embeds: `(frames of all videos, ..., D)`.
        frames: The videos, of which only the number of frames counts.
    """
    parts = unit_rows(embeds).split([len(video) for video in frames])
    return unit_rows(torch.stack([part.mean(0) for part in parts]))


def check_videos(frames: Sequence[Tensor], num_frames: int | None = None) -> None:
    """Refuse what is not a batch of videos.

    Args:
        frames: The videos.
        num_frames: How many frames each must have; None for any number.

    Raises:
        ValueError: There is none, or one is not `(frames, 3, height, width)`, or has another number of frames.
    """
    if not len(frames):
        raise ValueError("there is no video to encode; give at least one")
    for video in frames:
        if video.ndim != 4 or video.shape[1] != 3 or not len(video):
            raise ValueError(f"a video is (frames, 3, height, width), not {tuple(video.shape)}")
        if num_frames not in {None, len(video)}:
            raise ValueError(f"this model takes {num_frames} frames of a video, not {len(video)}; sample as many")


def pooled(features: Any) -> Tensor:
    """The embeddings, whether the model gives them bare or in an output."""
    return features if isinstance(features, Tensor) else features.pooler_output
