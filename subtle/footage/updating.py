"""Bringing an index up to date with its source: new, changed, moved and deleted files, committed group by group."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tqdm import tqdm

from hf_datasets.drafts import writing
from hf_datasets.footage.files import file_fingerprint
from hf_datasets.footage.moments import VideoMoment
from hf_models.index.store import IndexedModel, MomentIndex, moment_schema
from subtle.footage.planning import ReadFile
from subtle.footage.reading import BytesRead, EmbeddedMoments, GroupEnd, ReaderMessage, file_groups
from subtle.footage.sources import Source, WantedFile

Read = Callable[[Iterable[list[WantedFile]]], Iterator[ReaderMessage]]
"""What reads and embeds groups of files: `read_here` or `read_on_ray` of `engines`, with their other arguments."""


@dataclass
class Changes:
    """What an index lacks of its source.

    Attributes:
        todo: Files to read.
        moved: The new file, and the row of the file that it was.
        gone: Videos that are no more.
        unchanged: Files that are done.
    """

    todo: list[WantedFile] = field(default_factory=list)
    moved: list[tuple[WantedFile, dict[str, Any]]] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    unchanged: int = 0


@contextmanager
def storing(path: str) -> Iterator[None]:
    """Name an index, and the cure, where it cannot be written; LanceDB's own errors of a full disk are no OSError.

    Raises:
        OSError: It cannot be written.
    """
    with writing(Path(path)):
        try:
            yield
        except RuntimeError as error:
            number = re.search(r"\(os error (\d+)\)", str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


def find_changes(source: Source, done: dict[str, dict[str, Any]], incomplete: Set[str], *, retry: bool) -> Changes:
    """What changed since a file was read: a file is new content under its path, moved, or gone.

    Args:
        source: What the index is to hold.
        done: The rows of its files.
        incomplete: Videos whose moments are not those of their rows; they are read again, or gone.
        retry: Read quarantined files again that have not changed.
    """
    changes = Changes()
    wanted = {one.file.video: one for one in source.files}
    done = {video: row for video, row in done.items() if video not in incomplete}
    gone = {video: row for video, row in done.items() if video not in wanted}
    for video, one in wanted.items():
        row = done.get(video)
        if row is not None and is_unchanged(one, row) and not (retry and row["status"] == "quarantined"):
            changes.unchanged += 1
        elif row is None and (old := moved_from(one, gone)) is not None:
            changes.moved.append((one, gone.pop(old)))
        else:
            changes.todo.append(one)
    changes.gone = sorted(gone.keys() | (incomplete - wanted.keys()))
    return changes


def is_unchanged(wanted: WantedFile, row: dict[str, Any]) -> bool:
    """Whether a file is as it was when it was read: its size and time, or else its content."""
    file = wanted.file
    if row["moments_of"] != wanted.moments_of or row["size"] != file.size:
        return False
    return row["modified_ns"] == file.modified_ns or has_same_content(wanted, row)


def has_same_content(wanted: WantedFile, row: dict[str, Any]) -> bool:
    try:
        return bool(file_fingerprint(wanted.file.path) == row["fingerprint"])
    except OSError:
        return False


def moved_from(wanted: WantedFile, gone: dict[str, dict[str, Any]]) -> str | None:
    """The video that has this file's content and moments and is no more."""
    alike = [
        video
        for video, row in gone.items()
        if row["size"] == wanted.file.size and row["moments_of"] == wanted.moments_of and row["status"] == "indexed"
    ]
    return next((video for video in alike if has_same_content(wanted, gone[video])), None)


class Indexer:
    """Fills the tables of one model.

    Attributes:
        counts: Moments and files by what was done with them.
        postponed: By video, why it was left for the next run.
    """

    def __init__(self, index: MomentIndex, model: IndexedModel) -> None:
        self.index, self.model = index, model
        self.counts = dict.fromkeys(("files_indexed", "files_moved", "files_deleted", "files_unchanged", "moments"), 0)
        self.postponed: dict[str, str] = {}
        self.rows: list[tuple[VideoMoment, np.ndarray]] = []

    def run(self, changes: Changes, read: Read, *, keep_missing: bool, quiet: bool = False) -> None:
        """Do what changed: first what needs no model, then the files to read, with a progress bar unless `quiet`."""
        with storing(self.index.path):
            for wanted, row in changes.moved:
                self.move(wanted, row)
            if not keep_missing and changes.gone:
                self.index.remove(self.model.key, changes.gone)
                self.counts["files_deleted"] = len(changes.gone)
        self.counts["files_unchanged"] = changes.unchanged
        total = sum(wanted.file.size for wanted in changes.todo)
        if not changes.todo:
            return
        with tqdm(total=total, desc="indexing", unit="B", unit_scale=True, unit_divisor=1024, disable=quiet) as bar:
            self.consume(read(file_groups(changes.todo)), bar)

    def consume(self, messages: Iterator[ReaderMessage], bar: Any) -> None:
        """Commit what the reader gives."""
        done = 0
        with ThreadPoolExecutor(1) as writer:  # the model need not wait for the disk
            commit: Future[None] | None = None
            for message in messages:
                if isinstance(message, EmbeddedMoments):
                    self.rows += zip(message.moments, message.vectors, strict=True)
                elif isinstance(message, BytesRead):
                    bar.update(message.bytes)
                elif isinstance(message, GroupEnd):
                    if commit is not None:
                        commit.result()
                    commit, self.rows = writer.submit(self.commit, message.files, self.rows), []
                    done += sum(file.wanted.file.size for file in message.files)
                    bar.set_postfix_str(f"{self.counts['moments']:,} moments", refresh=False)
                    bar.update(done - bar.n)  # what could not be read is done, too
        if commit is not None:
            commit.result()
            bar.set_postfix_str(f"{self.counts['moments']:,} moments")

    def commit(self, files: Sequence[ReadFile], rows: Sequence[tuple[VideoMoment, np.ndarray]]) -> None:
        """Replace what the index knows of a group of files by these rows."""
        read = {file.wanted.file.video: file for file in files}
        self.postponed |= {video: file.reason or "" for video, file in read.items() if not file.is_lasting}
        usable = {video: file for video, file in read.items() if file.is_lasting}
        kept = [row for row in rows if (file := usable.get(row[0].video)) and file.reason is None]
        vectors = [vector for _, vector in kept] or np.zeros((0, self.model.dimensions))
        moments = moment_table([moment for moment, _ in kept], np.asarray(vectors, np.float32), usable)
        if usable:
            with storing(self.index.path):
                self.index.replace(self.model.key, moments, [file.as_row() for file in usable.values()])
        self.counts["moments"] += len(kept)
        self.counts["files_indexed"] += sum(file.as_row()["status"] == "indexed" for file in usable.values())

    def move(self, wanted: WantedFile, row: dict[str, Any]) -> None:
        """Give the moments of a file that moved its new path; nothing is encoded."""
        key, video, old = self.model.key, wanted.file.video, row["video"]
        rows = self.index.rows_of(key, [old, video]).select(moment_schema(self.model.dimensions).names).to_pylist()
        rows = [one for one in rows if one["fingerprint"] == row["fingerprint"]]
        modified = modified_at(wanted)
        for one in rows:
            own = one["moment_id"].removeprefix(f"{one['video']}#")
            is_own = own != one["moment_id"]
            one |= {"video": video, "modified": modified, "moment_id": f"{video}#{own}" if is_own else one["moment_id"]}
        moments = pa.Table.from_pylist(rows, schema=moment_schema(self.model.dimensions))
        described = row | {"video": video, "size": wanted.file.size, "modified_ns": wanted.file.modified_ns}
        self.index.replace(key, moments, [described], gone=[old])
        self.counts["files_moved"] += 1


def modified_at(wanted: WantedFile) -> datetime:
    """When a file was written, to the second."""
    return datetime.fromtimestamp(wanted.file.modified_ns // 10**9, UTC)


def moment_table(moments: Sequence[VideoMoment], vectors: np.ndarray, files: dict[str, ReadFile]) -> pa.Table:
    """Rows of the index."""
    dimensions = vectors.shape[1]
    columns = {
        **{name: [getattr(one, name) for one in moments] for name in ("moment_id", "video", "label", "text")},
        "fingerprint": [files[one.video].fingerprint for one in moments],
        **{name: [getattr(one, name) for one in moments] for name in ("start_seconds", "end_seconds")},
        "modified": [modified_at(files[one.video].wanted) for one in moments],
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), dimensions),
    }
    return pa.table(columns, schema=moment_schema(dimensions))
