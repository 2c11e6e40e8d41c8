"""What every encoder does, and how it says what it does: the protocol, its defaults, the facts that a table prints."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F


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


class VideoTextEncoder(Protocol):
    """What a model must do to be compared with others.

    `num_frames` is how many frames of a video it reads. `encode_video`, `encode_text` and `encode_query` take a batch
    and give one row per item; `compare` takes rows of videos and texts, `compare_queries` rows of queries and videos.
    """

    num_frames: int
    usage: ClassVar[Usage]

    def encode_video(self, frames: Sequence[Tensor]) -> Tensor:
        """Videos, each `(num_frames, 3, height, width)` uint8, as rows."""
        ...

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Texts as rows."""
        ...

    def encode_query(self, frames: Sequence[Tensor], texts: Sequence[str]) -> Tensor:
        """Each video with its text, how what one looks for differs from it, as rows `(B, D)`."""
        ...

    def compare(self, videos: Tensor, texts: Tensor) -> Tensor:
        """Similarities `(videos, texts)`; higher fits better."""
        ...

    def compare_queries(self, queries: Tensor, videos: Tensor) -> Tensor:
        """Similarities `(queries, videos)`; higher fits better."""
        ...


class Encoder:
    """A model and its processor, with what most encoders have in common.

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

    def __init__(self, model: Any, processor: Any, num_frames: int) -> None:
        self.model, self.processor, self.num_frames = model, processor, num_frames

    @classmethod
    def fixed_frames(cls, config: Any) -> int | None:  # noqa: ARG003 for subclasses
        """The only number of frames that a model of this configuration takes, None where it takes any."""
        return None

    @property
    def depends_on(self) -> dict[str, str]:
        """What the embeddings depend on besides weights, processor, tokenizer and frames, by name."""
        return {}

    def encode_video(self, frames: Sequence[Tensor]) -> Tensor:
        """See `VideoTextEncoder`."""
        raise NotImplementedError

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """See `VideoTextEncoder`."""
        raise NotImplementedError

    def encode_query(self, frames: Sequence[Tensor], texts: Sequence[str]) -> Tensor:
        """Unit-norm `(B, D)`: the mean of each video and its text, each scaled to length 1.

        Raises:
            ValueError: There are not as many videos as texts.
        """
        check_pairs(frames, texts)
        return mean_of(self.encode_video(frames), self.encode_text(texts))

    def compare(self, videos: Tensor, texts: Tensor) -> Tensor:
        """Dot products `(B, N)`."""
        return videos @ texts.T

    def compare_queries(self, queries: Tensor, videos: Tensor) -> Tensor:
        """Cosines `(queries, videos)`."""
        return unit(queries) @ unit(videos).T

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
        fields = self.model.config.get_text_config()
        readable = getattr(fields, "max_position_embeddings", 10**6)
        longest = min(tokenizer.model_max_length, readable, most_tokens)
        padding = "max_length" if "siglip" in self.model.config.model_type else True  # as it was trained
        tokens = tokenizer(list(texts), padding=padding, truncation=True, max_length=longest, return_tensors="pt")
        wanted = ("input_ids", "attention_mask")
        return {name: tokens[name].to(self.model.device) for name in wanted if name in tokens}

    def images(self, frames: Sequence[Tensor]) -> dict[str, Tensor]:
        """What the image processor makes of all frames of all videos, one after another."""
        check_videos(frames)
        batch = self.processor.image_processor([frame for video in frames for frame in video], return_tensors="pt")
        return {name: self.on_device(value) for name, value in batch.items()}

    def videos(self, frames: Sequence[Tensor]) -> dict[str, Tensor]:
        """What the video processor makes of frames that are sampled already."""
        check_videos(frames)
        batch = self.processor.video_processor(list(frames), do_sample_frames=False, return_tensors="pt")
        return {name: self.on_device(value) for name, value in batch.items()}

    def on_device(self, value: Tensor) -> Tensor:
        """A tensor where the model is, real numbers as exact as its weights."""
        dtype = getattr(self.model, "dtype", None)
        return value.to(self.model.device, dtype if value.is_floating_point() else None)


def unit(rows: Tensor) -> Tensor:
    """Rows scaled to length 1, float32 whatever the model computes in."""
    return F.normalize(rows.float(), dim=-1)


def mean_of(*parts: Tensor) -> Tensor:
    """The unit-norm mean of rows, each scaled to length 1 first.

    Example:
        >>> mean_of(torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 0.5]])).tolist()
        [[0.70710..., 0.70710...]]
    """
    return unit(torch.stack([unit(part) for part in parts]).mean(0))


def mean_over_frames(embeds: Tensor, frames: Sequence[Tensor]) -> Tensor:
    """The unit-norm mean `(B, ..., D)` of each video's unit-norm frames.

    Args:
        embeds: `(frames of all videos, ..., D)`.
        frames: The videos, of which only the number of frames counts.
    """
    parts = unit(embeds).split([len(video) for video in frames])
    return unit(torch.stack([part.mean(0) for part in parts]))


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


def check_pairs(frames: Sequence[Tensor], texts: Sequence[str]) -> None:
    """Refuse queries of which one half is missing.

    Raises:
        ValueError: There are not as many videos as texts.
    """
    if len(frames) != len(texts):
        raise ValueError(f"a query is a video and a text; there are {len(frames)} videos and {len(texts)} texts")


def pooled(features: Any) -> Tensor:
    """The embeddings, whether the model gives them bare or in an output."""
    return features if isinstance(features, Tensor) else features.pooler_output
