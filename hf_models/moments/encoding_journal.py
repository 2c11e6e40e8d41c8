"""What is encoded in the folder of a corpus that is being made, so that a killed run goes on."""

import hashlib
import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from hf_models.atomic_files import replacing

JOURNAL = "encoded.jsonl"


@dataclass(frozen=True)
class EncodedBatch:
    """A batch of videos whose vectors are written.

    Attributes:
        video_ids: one for each video.
        num_clips: of each.
        clip_seconds: of each.
        digest: of what was read, see `digest_of`.
    """

    video_ids: list[str]
    num_clips: list[int]
    clip_seconds: list[float]
    digest: str


def digest_of(ids: list[str], arrays: Iterable[Tensor | None]) -> str:
    """A hash of ids and arrays."""
    digest = hashlib.blake2b(json.dumps(ids).encode(), digest_size=16)
    for array in arrays:
        if array is not None:
            digest.update(f"{tuple(array.shape)} {array.dtype}".encode())
            digest.update(array.contiguous().numpy().data)
    return digest.hexdigest()


class EncodingJournal:
    """The batches that are written into a folder, in order: a line for each behind one that says what made them.

    Args:
        folder: Of the corpus; what was made in another way is removed from it. None keeps nothing.
        made_by: What the vectors depend on beside the videos; JSON values.
    """

    def __init__(self, folder: Path | None, made_by: dict[str, Any]) -> None:
        self.folder, self.made_by = folder, made_by
        self.batches: list[EncodedBatch] = []
        if folder is None:
            return
        if is_made_by(folder, made_by):
            self.batches = [EncodedBatch(**line) for line in _lines(folder)[1:]]
            self._write()  # without a line that a kill cut
        else:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            self._write()

    def has(self, number: int, digest: str) -> bool:
        """Whether this batch is written."""
        return number < len(self.batches) and self.batches[number].digest == digest

    def forget_from(self, number: int) -> None:
        """Forget the batches from this place on, whose vectors are about to be replaced."""
        if number < len(self.batches):
            del self.batches[number:]
            self._write()

    def append(self, batch: EncodedBatch) -> None:
        """Note the next batch, whose vectors are written."""
        self.batches.append(batch)
        if self.folder is not None:
            with (self.folder / JOURNAL).open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(batch)) + "\n")

    def _write(self) -> None:
        """All lines anew."""
        if self.folder is not None:
            lines = [self.made_by, *map(asdict, self.batches)]
            with replacing(self.folder / JOURNAL) as unfinished:
                unfinished.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def is_made_by(folder: Path, made_by: dict[str, Any]) -> bool:
    """Whether a folder has a journal of vectors that were made in this way."""
    return _lines(folder)[:1] == [made_by]


def _lines(folder: Path) -> list[Any]:
    """The whole lines of a journal; a kill may cut the last one."""
    path = folder / JOURNAL
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]
