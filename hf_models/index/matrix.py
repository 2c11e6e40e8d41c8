"""The vectors of an index in memory-mapped files, for exact search; LanceDB would decode the column for each query.

The index stays the store of record. The files lie in the user's cache, as an index may come from anyone, may be on a
bucket, or read-only; they are made from its table, brought up to date when it has a new version, and made again where
they are damaged. A matrix consists of parts that never change:

    NAME.vectors      (N, D) float32
    NAME.row_ids      (N,) uint64, LanceDB's, none of which ever stands for another moment of the same table
    NAME.columns      an Arrow file in batches of `ROWS_PER_BATCH`, the columns that a search gives
    NAME-TOKEN.kept   (N,) bool, which rows are still in the table; missing while all are
    matrix.json       what belongs together, written last
"""

import hashlib
import json
import os
import shutil
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import pyarrow as pa
from filelock import FileLock

from hf_models.atomic_files import replacing, to_disk
from hf_models.index.durability import reading
from hf_models.index.filters import understood
from hf_models.index.store import IndexDamagedError, IndexedModel, MomentIndex, damaged, moment_schema

COLUMNS = ("moment_id", "video", "start_seconds", "end_seconds", "label", "text", "fingerprint")
ROWS_PER_BATCH = 16_384
ROWS_PER_PRODUCT = 65_536
MOST_PARTS = 8
MOST_DEAD = 0.25
"""Rows that are no longer in the table, as a share of those that are, until all are written again."""
LARGEST_VALUE = 1e15  # the products of larger ones may not be finite
KEPT_FILTERS = 8
STATE = "matrix.json"


@dataclass(frozen=True)
class Block:
    """Some rows of a matrix, in memory-mapped arrays.

    Attributes:
        name: Of its files.
        vectors: `(N, D)` float32.
        row_ids: `(N,)` uint64, ascending.
        columns: Gives the rows' columns.
        kept: `(N,)` bool; None: all.
        kept_file: Where it is.
    """

    name: str
    vectors: np.ndarray
    row_ids: np.ndarray
    columns: pa.ipc.RecordBatchFileReader
    kept: np.ndarray | None = None
    kept_file: str | None = None

    def places(self, row_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of some row ids are here, and where."""
        places = np.searchsorted(self.row_ids, row_ids)
        places[places == len(self.row_ids)] = 0
        found = self.row_ids[places] == row_ids if len(self.row_ids) else np.zeros(len(row_ids), bool)
        return found, places[found]

    def take(self, places: np.ndarray) -> pa.Table:
        """The columns of some rows, in their order."""
        order = np.argsort(places, kind="stable")
        batches, starts = np.unique(places[order] // ROWS_PER_BATCH, return_index=True)
        taken = [
            self.columns.get_batch(int(batch)).take(pa.array(rows % ROWS_PER_BATCH))
            for batch, rows in zip(batches, np.split(places[order], starts)[1:], strict=True)
        ]
        table = pa.Table.from_batches(taken, schema=schema_of(COLUMNS))
        return table.take(pa.array(np.argsort(order)))


class MomentMatrix:
    """The vectors of a model of an index, for exact search; threads may share it.

    Its files lie in the user's cache, by the place of the index.

    Args:
        index: The index.
        model: One of its models.

    Example:
        >>> matrix = MomentMatrix(index, index.active)  # doctest: +SKIP
        >>> matrix.refresh()  # doctest: +SKIP
        >>> matrix.nearest(np.ones((1, 256), np.float32), 10)[0]["video"]  # doctest: +SKIP
    """

    def __init__(self, index: MomentIndex, model: IndexedModel) -> None:
        from huggingface_hub import cached_assets_path

        self.index, self.model = index, model
        self.place = index.place
        of_index, of_model = (hashlib.sha256(part.encode()).hexdigest()[:24] for part in (self.place, model.key))
        self.folder = cached_assets_path("subtle-video", "vectors", of_index) / of_model
        self.parts: tuple[Block, ...] = ()
        self.stamp = ""
        self.filters: OrderedDict[str, list[np.ndarray]] = OrderedDict()
        self.lock = RLock()

    def refresh(self) -> tuple[Block, ...]:
        """Bring the files up to date with the table; what has not changed is not read again.

        Returns:
            The parts that are to be searched; another refresh does not change them.

        Raises:
            OSError: The files cannot be written, or the index not read.
            ValueError: A vector of the index cannot be searched.
        """
        with self.lock:
            stamp = self.newest()  # before the table is opened: what comes between is looked at the next time
            if stamp == self.stamp:
                return self.parts
            table = self.index.moments(self.model.key)
            with reading(self.index.path):
                versions = {one["version"]: one["timestamp"].isoformat() for one in table.list_versions()}
            now = [table.version, versions.get(table.version)]
            made_of, parts = self.read_state()
            if made_of != now:
                if not self.folder.exists():
                    self.sweep()
                with caching(self.folder):
                    self.folder.mkdir(parents=True, exist_ok=True)
                    lock = FileLock(self.folder / "lock").acquire()
                with lock:
                    made_of, parts = self.read_state()
                    if made_of != now:
                        # Where the version is there no more, another table may be in its place, with the same row ids.
                        is_of_table = versions.get(made_of[0], "") == made_of[1]
                        parts = self.brought_up_to_date(table, parts if is_of_table else ())
                        self.write_state(now, parts)
            self.parts, self.stamp = parts, stamp
            self.filters.clear()
            return parts

    def newest(self) -> str:
        """What tells the newest version of the table from every other one; of a folder without opening the table."""
        if "://" not in self.place:
            with suppress(OSError, ValueError):
                # The names of versions count down.
                with os.scandir(Path(self.place, f"moments_{self.model.key}.lance", "_versions")) as entries:
                    newest = min((one for one in entries if one.name.endswith(".manifest")), key=lambda one: one.name)
                return f"{newest.name} {newest.stat().st_mtime_ns}"
        return f"{self.index.moments(self.model.key).version}"

    def brought_up_to_date(self, table: Any, parts: tuple[Block, ...]) -> tuple[Block, ...]:
        """The parts with what the table has, and without what it has no longer."""
        with reading(self.index.path):
            found = table.search().select(["moment_id"]).with_row_id(True).limit(None).to_arrow()
        row_ids = found["_rowid"].to_numpy()
        is_new = np.ones(len(row_ids), bool)
        kept_parts = []
        for part in parts:
            is_here, places = part.places(row_ids)
            is_new &= ~is_here
            kept = np.zeros(len(part.row_ids), bool)
            kept[places] = True
            kept_parts.append(self.with_kept(part, kept))
        num_rows = sum(len(part.row_ids) for part in parts)
        num_left = len(row_ids) - int(is_new.sum())
        if len(parts) == MOST_PARTS or num_rows - num_left > num_left * MOST_DEAD:
            kept_parts, is_new[:] = [], True
        return (*kept_parts, *([self.written(table, row_ids[is_new])] if is_new.any() else []))

    def with_kept(self, part: Block, kept: np.ndarray) -> Block:
        """A part of which these rows are left."""
        if kept.all():
            return replace(part, kept=None, kept_file=None)
        if part.kept is not None and np.array_equal(part.kept, kept):
            return part
        name = f"{part.name}-{uuid.uuid4().hex[:12]}.kept"
        with caching(self.folder):
            (self.folder / name).write_bytes(kept.tobytes())
        to_disk(self.folder / name)
        return replace(part, kept=kept, kept_file=name)

    def written(self, table: Any, row_ids: np.ndarray) -> Block:
        """A new part with some rows of the table, in memory for a batch.

        Raises:
            ValueError: A vector is missing, not finite or too large.
        """
        name = uuid.uuid4().hex[:12]
        paths = [self.folder / f"{name}.{kind}" for kind in ("vectors", "row_ids", "columns")]
        with ExitStack() as stack:
            with caching(self.folder):
                vectors, ids, columns = (stack.enter_context(path.open("wb")) for path in paths)
                writer = stack.enter_context(pa.ipc.new_file(columns, schema_of(COLUMNS)))
            for batch in rebatched(self.rows(table, np.sort(row_ids))):
                checked = self.checked_vectors(batch)
                with caching(self.folder):
                    vectors.write(checked.data)
                    ids.write(batch["_rowid"].to_numpy())
                    writer.write_batch(batch.select(COLUMNS))
        to_disk(*paths)
        return self.read_part(name, None)

    def rows(self, table: Any, row_ids: np.ndarray) -> Iterator[pa.RecordBatch]:
        """Rows of the table in the order of their ids.

        Yields:
            Their columns, vectors and ids.
        """
        names = [*COLUMNS, "vector"]
        with reading(self.index.path):
            if len(row_ids) == table.count_rows():
                yield from table.search().select(names).with_row_id(True).limit(None).to_batches(ROWS_PER_BATCH)
            else:
                for some in np.array_split(row_ids, len(row_ids) // ROWS_PER_BATCH + 1):
                    yield from table.take_row_ids(some.tolist()).select(names).with_row_id().to_arrow().to_batches()

    def checked_vectors(self, batch: pa.RecordBatch) -> np.ndarray:
        """The vectors `(N, D)` float32 of a batch.

        Raises:
            IndexDamagedError: One is missing, not finite or too large.
        """
        column = batch["vector"].fill_null([float("nan")] * self.model.dimensions)
        vectors: np.ndarray = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, self.model.dimensions)
        largest = np.abs(vectors).max(axis=1, initial=0)  # of NaN it is NaN
        if wrong := np.flatnonzero(~(largest < LARGEST_VALUE)).tolist():
            moment = batch["moment_id"][wrong[0]].as_py()
            what = f"the vector of the moment {moment!r} is missing, not finite or beyond 1e15"
            raise IndexDamagedError(damaged(self.index.path, what))
        return np.ascontiguousarray(vectors)

    def read_part(self, name: str, kept_file: str | None) -> Block:
        """A part from its files.

        Raises:
            OSError: One is missing.
            ValueError: One is damaged.
        """
        row_ids = np.memmap(self.folder / f"{name}.row_ids", np.uint64, "r")
        vectors = np.memmap(self.folder / f"{name}.vectors", np.float32, "r")
        columns = pa.ipc.open_file(pa.memory_map(str(self.folder / f"{name}.columns")))
        rows = len(row_ids)
        last = columns.get_batch(columns.num_record_batches - 1).num_rows if columns.num_record_batches else 0
        in_columns = (columns.num_record_batches - 1) * ROWS_PER_BATCH + last
        if (
            vectors.size != rows * self.model.dimensions
            or in_columns != rows
            or (np.diff(row_ids.view(np.int64)) <= 0).any()
        ):
            raise ValueError(f"{name}: files of different lengths")
        kept = None
        if kept_file is not None:
            kept = np.fromfile(self.folder / kept_file, bool)
            if len(kept) != rows:
                raise ValueError(f"{kept_file} is cut short")
        return Block(name, vectors.reshape(rows, -1), row_ids, columns, kept, kept_file)

    def read_state(self) -> tuple[list[Any], tuple[Block, ...]]:
        """Version and time of the table that the files were made of, and their parts; or nothing that can be used."""
        known = {(part.name, part.kept_file): part for part in self.parts}
        try:
            state = json.loads((self.folder / STATE).read_text(encoding="utf-8"))
            parts = [known.get((name, kept)) or self.read_part(name, kept) for name, kept in state["parts"]]
            version, time = state["made_of"]
            return [int(version), str(time)], tuple(parts)
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            return [0, None], ()

    def write_state(self, made_of: list[Any], parts: Sequence[Block]) -> None:
        """Write what belongs together, then remove what belongs to nothing; who reads removed files keeps them open."""
        state = {"made_of": made_of, "parts": [(part.name, part.kept_file) for part in parts], "place": self.place}
        with caching(self.folder), replacing(self.folder / STATE) as unfinished:
            unfinished.write_text(json.dumps(state), encoding="utf-8")
        names = {part.name for part in parts}
        for path in self.folder.iterdir():
            is_kept = path.name in {STATE, "lock", *(part.kept_file for part in parts)}
            if not is_kept and (path.suffix == ".kept" or path.stem not in names):
                with suppress(OSError):
                    path.unlink()

    def sweep(self) -> None:
        """Remove the files of indexes that were folders of this machine and are there no more."""
        for path in self.folder.parents[1].glob(f"*/*/{STATE}"):
            with suppress(OSError, ValueError, KeyError, TypeError):
                place = json.loads(path.read_text(encoding="utf-8"))["place"]
                if "://" not in place and not Path(place).is_dir():
                    shutil.rmtree(path.parent)

    def keep(self, condition: str) -> list[np.ndarray]:
        """For each part which of its rows fulfil a condition on the columns, in SQL.

        Raises:
            ValueError: The store does not understand it.
        """
        with self.lock:
            if condition not in self.filters:
                with understood(condition), reading(self.index.path):
                    found = self.index.moments(self.model.key).search().where(condition).select(["moment_id"])
                    row_ids = found.with_row_id(True).limit(None).to_arrow()["_rowid"].to_numpy()
                masks = [np.zeros(len(part.row_ids), bool) for part in self.parts]
                for part, mask in zip(self.parts, masks, strict=True):
                    mask[part.places(row_ids)[1]] = True
                self.filters[condition] = masks
                if len(self.filters) > KEPT_FILTERS:
                    self.filters.popitem(last=False)
            return self.filters[condition]

    def nearest(self, queries: np.ndarray, number: int, condition: str = "") -> list[pa.Table]:
        """For each query the moments with the largest products, in no order, with their vectors.

        Args:
            queries: `(Q, D)` float32.
            number: Moments of each.
            condition: See `keep`.
        """
        with self.lock:
            parts = self.refresh()
            kept: list[np.ndarray | None] = [part.kept for part in parts]
            if condition:
                kept = [
                    mask if part.kept is None else mask & part.kept
                    for part, mask in zip(parts, self.keep(condition), strict=True)
                ]
        best = [best_rows(queries, part.vectors, number, mask) for part, mask in zip(parts, kept, strict=True)]
        return [self.gathered(parts, [of_part[row] for of_part in best], number) for row in range(len(queries))]

    def gathered(self, parts: Sequence[Block], best: Sequence[tuple[np.ndarray, np.ndarray]], number: int) -> pa.Table:
        """The best rows of all parts, of which each gives scores and places."""
        schema = schema_of([*COLUMNS, "vector"], self.model.dimensions)
        scores = np.concatenate([part for part, _ in best]) if best else np.empty(0, np.float32)
        least = np.partition(scores, -number)[-number] if len(scores) > number else -np.inf
        tables = []
        for part, (of_part, places) in zip(parts, best, strict=True):
            chosen = np.sort(places[of_part >= least])
            vectors = pa.FixedSizeListArray.from_arrays(
                pa.array(part.vectors[chosen].reshape(-1)), self.model.dimensions
            )
            tables.append(part.take(chosen).append_column(schema.field("vector"), vectors))
        return pa.concat_tables(tables) if tables else schema.empty_table()


@contextmanager
def caching(folder: Path) -> Iterator[None]:
    """Say where to put the files of a matrix where their folder cannot be written.

    Raises:
        OSError: It cannot.
    """
    try:
        yield
    except OSError as error:
        raise OSError(
            f"{folder} cannot be written ({error}), where the vectors of an index are kept for exact search; set "
            "HF_ASSETS_CACHE to a folder that can be, with room for 4 bytes of each number"
        ) from error


def best_rows(queries: np.ndarray, vectors: np.ndarray, number: int, kept: np.ndarray | None) -> list[Any]:
    """For each query scores and places of the rows with the largest products, of those that are kept."""
    if len(queries) > 1:
        from hf_models.retrieval import search  # which imports torch: a text is searched for without it

        rows, scores = search(queries, vectors, number, keep=kept)
        return [(score[row >= 0], row[row >= 0]) for row, score in zip(rows.numpy(), scores.numpy(), strict=True)]
    found = []
    for start in range(0, len(vectors), ROWS_PER_PRODUCT):
        scores = vectors[start : start + ROWS_PER_PRODUCT] @ queries[0]
        places = np.arange(len(scores)) if kept is None else np.flatnonzero(kept[start : start + ROWS_PER_PRODUCT])
        if len(places) > number:
            places = places[np.argpartition(scores[places], -number)[-number:]]
        found.append((scores[places], places + start))
    return [tuple(np.concatenate(part) for part in zip(*found, strict=True))]


def rebatched(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of one size.

    Yields:
        `ROWS_PER_BATCH` rows, at last those that are left.
    """
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        while sum(map(len, waiting)) >= ROWS_PER_BATCH:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, ROWS_PER_BATCH).combine_chunks().to_batches()[0]
            waiting = table.slice(ROWS_PER_BATCH).to_batches()
    if waiting:
        yield pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]


def schema_of(columns: Sequence[str], dimensions: int = 1) -> pa.Schema:
    """Of some columns of moments."""
    whole = moment_schema(dimensions)
    return pa.schema([whole.field(name) for name in columns])
