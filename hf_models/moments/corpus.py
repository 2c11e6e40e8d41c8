"""Encoded videos that moments are searched in, in memory or mapped from disk."""

import hashlib
import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hf_models.atomic_files import replacing
from hf_models.fingerprints import weights_fingerprint

from .modeling_moments import MomentRetrievalModel

DESCRIPTION, JOURNAL = "corpus.json", "encoded.jsonl"


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
    """Arrays of zeros, or those of the folder where they are there."""
    if folder is None:
        return {name: torch.zeros(shape) for name, shape in shapes.items()}
    arrays = {}
    for name, shape in shapes.items():
        path = folder / f"{name}.npy"
        kind = {"mode": "r+"} if path.is_file() else {"mode": "w+", "dtype": np.float32, "shape": shape}
        arrays[name] = torch.from_numpy(np.lib.format.open_memmap(path, **kind))
    return arrays


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
            all. A killed run goes on after the batches that it encoded, and those of a corpus that is there are kept,
            where model and features are the same. None keeps it in memory.

    Returns:
        The corpus.

    Raises:
        ValueError: If there are more or fewer videos, one comes twice, has no clip, or is longer than `max_clips`.
    """
    config = model.config
    length = config.max_video_clips if max_clips is None else max_clips
    streams, width = config.num_streams, config.hidden_size
    shapes = {
        "retrieval": (streams, num_videos, length, width),
        "localization": (num_videos, length, streams * width),
    }
    made_by: dict[str, Any] = {"weights": weights_fingerprint(model)} if folder else {}
    made_by |= {"mask_similarity": config.mask_similarity, "shapes": shapes}
    writer = _CorpusWriter(None if folder is None else Path(folder), shapes, json.loads(json.dumps(made_by)))
    first = 0
    for number, batch in enumerate(batches):
        stop = first + len(batch.video_ids)
        lengths = batch.video_mask.sum(1).long()
        if stop > num_videos or not lengths.all() or int(lengths.max()) > length:
            raise ValueError(
                f"videos {first} to {stop} have {int(lengths.min())} to {int(lengths.max())} clips; there may be at "
                f"most {num_videos} videos of 1 to {length} clips"
            )
        digest = "" if folder is None else _digest_of(batch)
        if not writer.has(number, digest):
            retrieval, localization = _encode(model, batch)
            writer.write(first, stop, retrieval.cpu(), localization.cpu())
            done = {"video_ids": batch.video_ids, "num_clips": lengths.tolist()}
            writer.note(done | {"clip_seconds": batch.clip_seconds.tolist(), "digest": digest})
        first = stop
    return writer.finish(first, num_videos)


class _CorpusWriter:
    """Writes what is encoded, in memory or in a folder beside the one that the corpus gets.

    The file `JOURNAL` there says first what made the vectors, then in a line for each batch that is written its videos
    and the digest of what was read, so that a killed run goes on.

    Args:
        folder: Of the corpus, or None.
        shapes: Of its arrays.
        made_by: What they depend on; JSON values.
    """

    def __init__(self, folder: Path | None, shapes: dict[str, tuple[int, ...]], made_by: dict[str, Any]) -> None:
        self.folder, self.shapes, self.made_by = folder, shapes, made_by
        self.scratch = None if folder is None else folder.with_name(f".{folder.name}-unfinished")
        # A corpus that is there is taken if all of it is what it would be; its arrays are never written to.
        self.is_there = folder is not None and (folder / DESCRIPTION).is_file() and _journal(folder)[:1] == [made_by]
        self._begin()

    def _begin(self) -> None:
        """Take over what is written; what was made in another way is removed."""
        self.place = self.folder if self.is_there else self.scratch
        self.batches: list[dict[str, Any]] = []
        if self.place is not None:
            made_by, *batches = _journal(self.place) or [None]
            if made_by == self.made_by:
                self.batches = batches
            else:
                shutil.rmtree(self.place, ignore_errors=True)
                self.place.mkdir(parents=True)
        self._write_journal()  # without a line that a kill cut
        self.arrays = {} if self.is_there else _allocate(self.shapes, self.scratch)

    def has(self, number: int, digest: str) -> bool:
        """Whether a batch is written already; if not, it and those behind it are about to be."""
        if number < len(self.batches) and self.batches[number]["digest"] == digest:
            return True
        if self.is_there and self.folder is not None and self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)
            shutil.copytree(self.folder, self.scratch)
            self.is_there = False
            self._begin()
        if number < len(self.batches):
            del self.batches[number:]
            self._write_journal()
        return False

    def write(self, first: int, stop: int, retrieval: Tensor, localization: Tensor) -> None:
        """Write `retrieval (M, V, L, D)` and `localization (V, L, M * D)` of videos `[first, stop)`."""
        here = slice(0, min(self.shapes["retrieval"][2], retrieval.shape[2]))
        self.arrays["retrieval"][:, first:stop, here] = retrieval[:, :, here]
        self.arrays["retrieval"][:, first:stop, here.stop :] = retrieval[:, :, :1]
        self.arrays["localization"][first:stop, here] = localization[:, here]
        self.arrays["localization"][first:stop, here.stop :] = 0

    def note(self, batch: dict[str, Any]) -> None:
        """Note the next batch, whose vectors are written."""
        self.batches.append(batch)
        if self.place is not None:
            with (self.place / JOURNAL).open("a", encoding="utf-8") as file:
                file.write(json.dumps(batch) + "\n")

    def _write_journal(self) -> None:
        if self.place is not None:
            with replacing(self.place / JOURNAL) as unfinished:
                lines = (json.dumps(line) + "\n" for line in [self.made_by, *self.batches])
                unfinished.write_text("".join(lines), encoding="utf-8")

    def finish(self, given: int, announced: int) -> MomentCorpus:
        """The corpus, whole.

        Raises:
            ValueError: Other videos came than were announced.
        """
        columns: dict[str, list[Any]] = {
            name: [one for batch in self.batches for one in batch[name]]
            for name in ("video_ids", "num_clips", "clip_seconds")
        }
        different = len(set(columns["video_ids"]))
        if not given == different == announced:
            raise ValueError(f"{announced} different videos were announced and {different} came in {given} rows")
        if self.folder is None or self.scratch is None:
            seconds = torch.tensor(columns["clip_seconds"], dtype=torch.float64)
            return MomentCorpus(columns["video_ids"], torch.tensor(columns["num_clips"]), seconds, **self.arrays)
        if not self.is_there:
            with replacing(self.scratch / DESCRIPTION) as unfinished:
                unfinished.write_text(json.dumps(columns), encoding="utf-8")
            self.arrays = {}
            shutil.rmtree(self.folder, ignore_errors=True)
            self.scratch.replace(self.folder)
        return MomentCorpus.open(self.folder)


def _journal(folder: Path) -> list[Any]:
    """The whole lines of a journal; a kill may cut the last one."""
    path = folder / JOURNAL
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def _digest_of(batch: VideoBatch) -> str:
    """A hash of what is read of a batch."""
    digest = hashlib.blake2b(json.dumps(batch.video_ids).encode(), digest_size=16)
    for array in (batch.video_features, batch.video_mask, batch.clip_seconds, batch.subtitle_features):
        if array is not None:
            digest.update(f"{tuple(array.shape)} {array.dtype}".encode())
            digest.update(array.contiguous().numpy().data)
    return digest.hexdigest()


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
