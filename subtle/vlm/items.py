"""What a model embeds in training: clips, texts and both, with the frames of the clips read ahead."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from hf_datasets.video import read_frames
from hf_models.encoders import LanguageModelEncoder
from subtle.run.loading import BatchLoader

Frames = dict[str, Tensor]


class Item(NamedTuple):
    """A clip, a text, or a query of both."""

    clip_id: str | None = None
    text: str | None = None


@dataclass(frozen=True)
class TrainingBatch:
    """This process's part of a training batch.

    Attributes:
        queries: n of them.
        targets: n of them, the answers of the queries.
        negatives: Any number; none of them answers the query that it was chosen for.
        labels: `(n,)` int64, what answers each query.
        negative_labels: What each negative is; -1 for what answers no query.
    """

    queries: list[Item]
    targets: list[Item]
    negatives: list[Item]
    labels: Tensor
    negative_labels: Tensor

    @property
    def items(self) -> list[Item]:
        """Queries, targets and negatives, in this order."""
        return [*self.queries, *self.targets, *self.negatives]

    @property
    def sizes(self) -> list[int]:
        """How many there are of each."""
        return [len(self.queries), len(self.targets), len(self.negatives)]


def embed_items(encoder: LanguageModelEncoder, items: Sequence[Item], frames: Mapping[str, Tensor]) -> Tensor:
    """Rows `(N, D)` of items that are all of one kind, by the encoder's own methods."""
    first = items[0]
    if first.clip_id is None:
        return encoder.encode_text([str(item.text) for item in items])
    videos = [frames[str(item.clip_id)] for item in items]
    if first.text is None:
        return encoder.encode_video(videos)
    return encoder.encode_query(videos, [str(item.text) for item in items])


def chunks_of(items: Sequence[Item], size: int) -> list[list[Item]]:
    """Items in their order, at most `size` of one kind at a time.

    >>> [len(chunk) for chunk in chunks_of([Item("a"), Item("b"), Item("c"), Item(text="d")], 2)]
    [2, 1, 1]
    """
    chunks: list[list[Item]] = []
    for item in items:
        if chunks and len(chunks[-1]) < size and item_kind(chunks[-1][0]) == item_kind(item):
            chunks[-1].append(item)
        else:
            chunks.append([item])
    return chunks


def item_kind(item: Item) -> tuple[bool, bool]:
    return item.clip_id is not None, item.text is not None


def with_frames(groups: Sequence[Sequence[Item]], loader: BatchLoader) -> Iterator[Frames]:
    """For each group of items the frames `(num_frames, 3, height, width)` uint8 of its clips; texts open no video.

    The loader is that of `clip_loader`.
    """
    wanted = [sorted({item.clip_id for item in group if item.clip_id is not None}) for group in groups]
    yield from loader.read(wanted) if any(wanted) else ({} for _ in wanted)


def clip_loader(
    clips: Mapping[str, Mapping[str, Any]], num_frames: int, config: Any, device: torch.device
) -> BatchLoader:
    """Reads the frames of clips, rows by clip id, with the configuration's `frame_size` and `num_workers`."""
    data = ClipFrames(clips, num_frames, config.frame_size)
    return BatchLoader(data, num_workers=config.num_workers, device=device, collate=dict)


class ClipFrames(Dataset[tuple[str, Tensor]]):
    """Clips by their id: the id, and the frames."""

    def __init__(self, clips: Mapping[str, Mapping[str, Any]], num_frames: int, size: int | None) -> None:
        self.clips, self.num_frames, self.size = clips, num_frames, size

    def __getitem__(self, clip_id: str) -> tuple[str, Tensor]:
        clip = self.clips[clip_id]
        span = clip["start_seconds"], clip["end_seconds"]
        return clip_id, read_frames(clip["video"], self.num_frames, *span, size=self.size).frames
