"""Encoded videos that moments are searched in, in memory or mapped from disk."""

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .modeling_moments import MomentRetrievalModel

DESCRIPTION = "corpus.json"


@dataclass(frozen=True)
class VideoBatch:
    """Videos to encode.

    Args:
        video_ids: One for each video.
        video_features: `(V, L, video_feature_size)`, float.
        video_mask: `(V, L)`, 1 for clips, 0 for padding; clips come first.
        clip_seconds: `(V,)` float, how long a clip of each video lasts: the true width where a long video was pooled.
        subtitle_features: `(V, L, subtitle_feature_size)`, for a model with subtitles.
    """

    video_ids: list[str]
    video_features: Tensor
    video_mask: Tensor
    clip_seconds: Tensor
    subtitle_features: Tensor | None = None


@dataclass(frozen=True)
class MomentCorpus:
    """Encoded videos, laid out for search.

    Args:
        video_ids: V ids.
        num_clips: `(V,)` int64.
        clip_seconds: `(V,)` float64.
        retrieval: `(M, V, L, D)` float32 of unit norm; the padding repeats the first clip, which cannot change a
            maximum.
        localization: `(V, L, M * D)` float32; the padding is zero, but for a model without `mask_similarity`.
    """

    video_ids: list[str]
    num_clips: Tensor
    clip_seconds: Tensor
    retrieval: Tensor
    localization: Tensor

    def __len__(self) -> int:
        return len(self.video_ids)

    @classmethod
    def open(cls, folder: Path | str) -> "MomentCorpus":
        """Map a corpus that `encode_corpus` wrote; memory holds only what a search is reading.

        Args:
            folder: Where it was written.

        Raises:
            FileNotFoundError: If there is none.
        """
        folder = Path(folder)
        if not (folder / DESCRIPTION).is_file():
            raise FileNotFoundError(f"{folder} holds no corpus; encode_corpus(..., folder=...) writes one")
        stored = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        # "c": torch wants writable arrays; nothing is ever written back
        mapped = {name: np.load(folder / f"{name}.npy", mmap_mode="c") for name in FEATURES}
        return cls(
            stored["video_ids"],
            torch.tensor(stored["num_clips"]),
            torch.tensor(stored["clip_seconds"], dtype=torch.float64),
            **{name: torch.from_numpy(array) for name, array in mapped.items()},
        )


FEATURES = ("retrieval", "localization")


def _allocate(shapes: dict[str, tuple[int, ...]], folder: Path | None) -> dict[str, Tensor]:
    if folder is None:
        return {name: torch.zeros(shape) for name, shape in shapes.items()}
    return {
        name: torch.from_numpy(
            np.lib.format.open_memmap(folder / f"{name}.npy", mode="w+", dtype=np.float32, shape=shape)
        )
        for name, shape in shapes.items()
    }


@torch.inference_mode()
def encode_corpus(
    model: MomentRetrievalModel,
    batches: Iterable[VideoBatch],
    *,
    num_videos: int,
    max_clips: int | None = None,
    folder: Path | str | None = None,
) -> MomentCorpus:
    """Encode the videos of a corpus once, for any number of searches.

    Args:
        model: In evaluation mode.
        batches: Of videos.
        num_videos: How many there are in all.
        max_clips: Of the longest video; default: what the model can read.
        folder: Write the corpus there and map it, for one that is larger than memory; it appears complete or not at
            all. None keeps it in memory.

    Returns:
        The corpus.

    Raises:
        ValueError: If there are more or fewer videos, one comes twice, has no clip, or is longer than `max_clips`.
    """
    config = model.config
    length = config.max_video_clips if max_clips is None else max_clips
    scratch = None if folder is None else Path(folder).with_name(f".{Path(folder).name}-unfinished")
    if scratch:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
    streams, width = config.num_streams, config.hidden_size
    shapes = {
        "retrieval": (streams, num_videos, length, width),
        "localization": (num_videos, length, streams * width),
    }
    arrays = _allocate(shapes, scratch)
    video_ids: list[str] = []
    num_clips: list[int] = []
    clip_seconds: list[float] = []
    for batch in batches:
        first, stop = len(video_ids), len(video_ids) + len(batch.video_ids)
        lengths = batch.video_mask.sum(1).long()
        if stop > num_videos or not lengths.all() or int(lengths.max()) > length:
            raise ValueError(
                f"videos {first} to {stop} have {int(lengths.min())} to {int(lengths.max())} clips; there may be at "
                f"most {num_videos} videos of 1 to {length} clips"
            )
        retrieval, localization = _encode(model, batch)
        here = slice(0, min(length, retrieval.shape[2]))
        arrays["retrieval"][:, first:stop, here] = retrieval[:, :, here].cpu()
        arrays["retrieval"][:, first:stop, here.stop :] = retrieval[:, :, :1].cpu()
        arrays["localization"][first:stop, here] = localization[:, here].cpu()
        video_ids += batch.video_ids
        num_clips += lengths.tolist()
        clip_seconds += batch.clip_seconds.tolist()
    if len(video_ids) != num_videos or len(set(video_ids)) != num_videos:
        raise ValueError(
            f"{num_videos} different videos were announced and {len(set(video_ids))} came in {len(video_ids)} rows"
        )
    if folder is None or scratch is None:
        seconds = torch.tensor(clip_seconds, dtype=torch.float64)
        return MomentCorpus(video_ids, torch.tensor(num_clips), seconds, **arrays)
    description = {"video_ids": video_ids, "num_clips": num_clips, "clip_seconds": clip_seconds}
    (scratch / DESCRIPTION).write_text(json.dumps(description), encoding="utf-8")
    del arrays
    shutil.rmtree(folder, ignore_errors=True)
    scratch.replace(folder)
    return MomentCorpus.open(folder)


def _encode(model: MomentRetrievalModel, batch: VideoBatch) -> tuple[Tensor, Tensor]:
    """`retrieval (M, V, L, D)` and `localization (V, L, M * D)` of a batch."""
    device = model.execution_device
    features, mask, subtitles = batch.video_features.to(device), batch.video_mask.to(device), batch.subtitle_features
    subtitles = None if subtitles is None else subtitles.to(device)
    videos = model.encode_video(features, mask, subtitle_features=subtitles)
    padding = ~videos.mask[:, None, :, None]
    unit = F.normalize(videos.retrieval.float(), dim=-1)
    unit = torch.where(padding, unit[:, :, :1], unit)
    localization = videos.localization.float()
    if model.config.mask_similarity:
        localization = localization.masked_fill(padding, 0)
    return unit.transpose(0, 1), localization.permute(0, 2, 1, 3).flatten(2)
