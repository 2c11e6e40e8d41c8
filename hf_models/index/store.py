"""Moments of videos with their vectors in LanceDB: one table for each model, one of which is active.

An index is a LanceDB database:

    models            one row for each model: `key`, `name`, `made_by` (JSON), `dimensions`, `root`, `details` (JSON),
                      `activated` (a number; the largest is the active model), `format`
    moments_<key>     one row for each moment, see `moment_schema`
    files_<key>       one row for each video file that is done, see `FILES_SCHEMA`

What belongs to some videos is replaced in one commit, first the moments, then the files: a file that is listed has all
its moments, and after a kill the others are made again. Rows are merged by their first column, the primary key, so that
of two writers, as on a bucket, the later one meets the rows of the earlier one.
"""

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, Json, ValidationError

from hf_models.index.durability import FilesOnDisk, connect, go_back, reading

INDEX_FORMAT = 3  # since the frames of a moment are spread over its time
MODELS = "models"
NAMES_PER_DELETION = 500
FEWEST_PARTITIONED = 50_000  # moments from which on an approximate index is of use
COMMITS_PER_COMPACTION = 50  # each one adds a file, and all files are looked into by the next
GROWTH_BEFORE_TRAINING = 2  # an approximate index is trained again on so many times the moments it was trained on
APPROXIMATE = re.compile(r"vector_(flat|sq)_(\d{1,15})")  # the name of one: its kind, and the moments it was trained on
KEEP_VERSIONS_SECONDS = 600.0  # searches that are running read them


def primary_key(name: str) -> pa.Field:
    """A column by which LanceDB tells that two writers add the same row."""
    return pa.field(name, pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"})


MODEL_SCHEMA = pa.schema(
    [
        primary_key("key"),
        *((name, pa.string()) for name in ("name", "made_by", "root", "details")),
        *((name, pa.int64()) for name in ("dimensions", "activated", "format")),
    ]
)
FILES_SCHEMA = pa.schema(
    [
        primary_key("video"),
        *((name, pa.string()) for name in ("fingerprint", "moments_of", "status", "reason", "failures")),
        *((name, pa.int64()) for name in ("size", "modified_ns", "num_moments")),
    ]
)
"""A file: `moments_of` says which moments were asked for, `status` is "indexed" or "quarantined", `failures` JSON."""


def moment_schema(dimensions: int) -> pa.Schema:
    """The columns of moments; seconds from the video's start, `modified` when its file was written."""
    return pa.schema(
        [
            primary_key("moment_id"),
            *((name, pa.string()) for name in ("video", "label", "text", "fingerprint")),
            *((name, pa.float64()) for name in ("start_seconds", "end_seconds")),
            ("modified", pa.timestamp("s", tz="UTC")),
            ("vector", pa.list_(pa.float32(), dimensions)),
        ]
    )


class IndexDamagedError(ValueError):
    """An index holds what cannot be, or was made by another version of this package."""


class ModelChangedError(ValueError):
    """What is in the place of a model is not what made the vectors of an index."""


class _Details(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")
    files: dict[str, list[int]] | None = None
    num_frames: Annotated[int, Field(ge=1, le=100_000)] | None = None
    mixed_precision: Literal["no", "bf16"] = "no"
    trust_remote_code: bool = False


class _ModelRow(BaseModel):
    """What a row of the table of models may hold; an index may come from anyone."""

    model_config = ConfigDict(strict=True)
    key: Annotated[str, Field(pattern=r"^\w{1,64}$")]
    name: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,4096}$")]
    made_by: Json[dict[str, str]]
    root: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,4096}$")]
    details: Json[_Details]
    dimensions: Annotated[int, Field(ge=1, le=1_000_000)]
    activated: Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class IndexedModel:
    """A model whose vectors an index holds.

    Attributes:
        key: See `fingerprints.key_of`.
        name: Folder or Hub name that it was loaded from.
        made_by: What the vectors depend on, by name: see `Encoder.fingerprint`, and `frame_reading.frames_read`.
        dimensions: D.
        root: The folder of the videos.
        details: JSON values: how it is loaded again, and the versions of libraries.
        activated: The largest of an index is that of the active model.
    """

    key: str
    name: str
    made_by: Mapping[str, str]
    dimensions: int
    root: str
    details: Mapping[str, Any] = field(default_factory=dict)
    activated: int = 0

    def as_row(self) -> dict[str, Any]:
        """The row of the table of models."""
        as_json = {"made_by": json.dumps(dict(self.made_by)), "details": json.dumps(dict(self.details))}
        return vars(self) | as_json | {"format": INDEX_FORMAT}


class MomentIndex:
    """An index that exists.

    Args:
        path: Folder, or the address of a bucket that LanceDB knows.

    Attributes:
        went_back: The tables whose newest versions `create` could not read and took back.

    Raises:
        ImportError: LanceDB is not installed.
        FileNotFoundError: There is no index.
        OSError: It cannot be read.
        ValueError: It was made by another version, or is damaged.
    """

    went_back: Sequence[str] = ()

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        if "://" not in self.path and not Path(self.path).is_dir():
            raise FileNotFoundError(
                f"there is no index {self.path}; make it with `subtle index FOLDER --output {self.path}`"
            )
        self.database = connect(self.path)
        if MODELS not in self.tables():
            raise FileNotFoundError(
                f"{self.path} holds no index; make one with `subtle index FOLDER --output {self.path}`"
            )
        self.models = self._read_models()
        self._is_shared = "://" in self.path  # no lock keeps others from writing
        self._on_disk = FilesOnDisk(Path(self.path))
        self.matrices: dict[str, Any] = {}  # key of a model -> what searches it exactly
        self._commits, self._tidied = 0, time.monotonic() - KEEP_VERSIONS_SECONDS

    @classmethod
    def create(cls, path: str | Path) -> "MomentIndex":
        """Open an index to write to it, or make an empty one; one whose newest files were cut short goes back.

        Raises:
            ImportError: LanceDB is not installed.
            ValueError: The folder holds something else, or an index of another version.
        """
        if "://" not in str(path):
            folder = Path(path)
            folder.mkdir(parents=True, exist_ok=True)
            others = [item.name for item in folder.iterdir() if item.suffix != ".lance" and item.name not in OWN_FILES]
            if others and not (folder / f"{MODELS}.lance").exists():
                raise ValueError(f"{folder} holds {sorted(others)[0]!r} and no index; name an empty folder as output")
            went_back = go_back(folder)
        else:
            went_back = []
        with _reading(str(path)):
            connect(str(path)).create_table(MODELS, schema=MODEL_SCHEMA, exist_ok=True)
        index = cls(path)
        index.went_back = went_back
        return index

    @property
    def place(self) -> str:
        """Where the index is, the same from every working directory."""
        return self.path if "://" in self.path else str(Path(self.path).resolve())

    def tables(self) -> list[str]:
        """The names of all tables."""
        names: list[str] = []
        answer = self.database.list_tables()
        names += answer.tables
        while answer.page_token:
            answer = self.database.list_tables(page_token=answer.page_token)
            names += answer.tables
        return names

    def _read_models(self) -> dict[str, IndexedModel]:
        with _reading(self.path):
            rows = self.database.open_table(MODELS).to_arrow()
        _check_columns(self.path, rows.schema, MODEL_SCHEMA)
        models = {}
        for row in rows.to_pylist():
            if row.pop("format") != INDEX_FORMAT:
                raise IndexDamagedError(_of_another_version(self.path, f"its format is not {INDEX_FORMAT}"))
            try:
                model = _ModelRow(**row).model_dump()
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                place = ".".join(map(str, first["loc"]))
                raise IndexDamagedError(
                    damaged(self.path, f"{place} of the model {row['key']!r}: {first['msg']}")
                ) from None
            models[row["key"]] = IndexedModel(**model)
        return models

    @property
    def active(self) -> IndexedModel:
        """The model that searches use.

        Raises:
            ValueError: The index has no model yet.
        """
        if not self.models:
            raise ValueError(f"{self.path} is empty; fill it with `subtle index FOLDER --output {self.path}`")
        return max(self.models.values(), key=lambda model: model.activated)

    def find(self, name: str | None) -> IndexedModel:
        """A model by its key, name, path, or the last parts of its name; None: the active one.

        Raises:
            ValueError: There is none, or there are several.
        """
        if name is None:
            return self.active
        found = [model for model in self.models.values() if name == model.key] or [
            model
            for model in self.models.values()
            if Path(name).resolve() == Path(model.name).resolve() or f"/{model.name}".endswith(f"/{name}")
        ]
        known = ", ".join(f"{model.key} ({model.name})" for model in self.models.values()) or "none"
        if len(found) != 1:
            what = f"several models of {self.path} are called" if found else f"{self.path} holds no vectors of"
            raise ValueError(
                f"{what} {name!r}; it has {known}: give a key, or make vectors with `subtle index FOLDER --output "
                f"{self.path} --model {name}`"
            )
        return found[0]

    def add(self, model: IndexedModel) -> IndexedModel:
        """Add a model, or update what is known of it; the first one is active.

        Raises:
            RuntimeError: It cannot be written.
        """
        known = self.models.get(model.key)
        activated = known.activated if known else 0 if self.models else 1
        model = replace(model, activated=activated)
        if known != model:
            self._write_model(model)
        from lancedb.index import BTree

        tables = (f"moments_{model.key}", moment_schema(model.dimensions)), (f"files_{model.key}", FILES_SCHEMA)
        for name, schema in tables:
            with _reading(self.path):
                table = self.database.create_table(name, schema=schema, exist_ok=True)
            is_indexed = {column for index in table.list_indices() for column in index.columns}
            for column in sorted({schema.names[0], "video"} - is_indexed):  # a merge reads all rows without them
                try:
                    table.create_index(column, config=BTree())
                except RuntimeError as error:
                    if not self._is_shared or "concurrent transaction" not in str(error):
                        raise  # else another writer just made the table, too; the next run makes what is missing
        self._to_disk()
        return model

    def activate(self, name: str) -> IndexedModel:
        """Search with this model from now on; the others' vectors stay."""
        model = replace(self.find(name), activated=self.active.activated + 1)
        self._write_model(model)
        return model

    def _write_model(self, model: IndexedModel) -> None:
        rows = pa.Table.from_pylist([model.as_row()], schema=MODEL_SCHEMA)
        table = self.database.open_table(MODELS)
        table.merge_insert("key").when_matched_update_all().when_not_matched_insert_all().execute(rows)
        self.models[model.key] = model
        self._to_disk()

    def _to_disk(self) -> None:
        """Wait until all that was committed is on the disk; a bucket has it there already."""
        if not self._is_shared:
            self._on_disk.add_new()

    def moments(self, key: str) -> Any:
        """The LanceDB table of a model's moments.

        Raises:
            ValueError: It is missing or damaged.
        """
        return self._table(f"moments_{key}", moment_schema(self.models[key].dimensions))

    def files(self, key: str) -> dict[str, dict[str, Any]]:
        """What is done, by video.

        Raises:
            IndexDamagedError: The table is missing or damaged.
        """
        table = self._table(f"files_{key}", FILES_SCHEMA)
        with _reading(self.path):
            rows = table.to_arrow().to_pylist()
        if wrong := [row for row in rows if not _is_file(row)]:
            raise IndexDamagedError(damaged(self.path, f"the file {wrong[0]['video']!r} has no complete row"))
        return {row["video"]: row for row in rows}

    def _table(self, name: str, schema: pa.Schema) -> Any:
        with _reading(self.path):
            table = self.database.open_table(name)
        _check_columns(self.path, table.schema, schema)
        return table

    def incomplete(self, key: str) -> set[str]:
        """Videos that have fewer or more moments than their files' rows say, as after `create` went back.

        Raises:
            IndexDamagedError: A moment names no video.
        """
        with _reading(self.path):
            videos = self.moments(key).search().select(["video"]).limit(None).to_arrow()["video"]
        if videos.null_count:
            raise IndexDamagedError(damaged(self.path, "a moment names no video"))
        found = {row["values"]: row["counts"] for row in videos.combine_chunks().value_counts().to_pylist()}
        expected = {video: row["num_moments"] for video, row in self.files(key).items() if row["num_moments"]}
        return {video for video, _ in found.items() ^ expected.items()}

    def replace(
        self, key: str, moments: pa.Table, files: Sequence[Mapping[str, Any]], *, gone: Iterable[str] = ()
    ) -> None:
        """Replace all that is known of the videos of `files`, and remove the videos `gone`."""
        gone = list(gone)
        videos = [row["video"] for row in files] + gone
        is_theirs = f"video IN ({', '.join(map(quoted, videos))})"
        table = self.moments(key)
        is_known = table.count_rows(is_theirs) > 0
        if moments.num_rows:
            merge = table.merge_insert("moment_id").when_matched_update_all().when_not_matched_insert_all()
            # Only where it has to: a merge that deletes reads the ids of the whole table.
            (merge.when_not_matched_by_source_delete(is_theirs) if is_known else merge).execute(moments)
        elif is_known:
            table.delete(is_theirs)
        done = self.database.open_table(f"files_{key}")
        rows = pa.Table.from_pylist([dict(row) for row in files], schema=FILES_SCHEMA)
        merge = done.merge_insert("video").when_matched_update_all().when_not_matched_insert_all()
        if gone:
            merge = merge.when_not_matched_by_source_delete(f"video IN ({', '.join(map(quoted, gone))})")
        merge.execute(rows)
        self._to_disk()
        self._commits += 1
        if self._commits % COMMITS_PER_COMPACTION == 0:
            self.tidy(key)

    def remove(self, key: str, videos: Sequence[str]) -> None:
        """Forget videos."""
        for start in range(0, len(videos), NAMES_PER_DELETION):
            names = ", ".join(map(quoted, videos[start : start + NAMES_PER_DELETION]))
            self.moments(key).delete(f"video IN ({names})")
            self.database.open_table(f"files_{key}").delete(f"video IN ({names})")
        self._to_disk()

    def rows_of(self, key: str, videos: Sequence[str]) -> pa.Table:
        """All moments of some videos, with their vectors."""
        return self.moments(key).search().where(f"video IN ({', '.join(map(quoted, videos))})").limit(None).to_arrow()

    def vectors_of(self, key: str, moment_ids: Sequence[str]) -> np.ndarray:
        """The vectors `(N, D)` float32 of some moments, in their order.

        Raises:
            IndexDamagedError: A vector is missing or not finite.
            ValueError: There is no such moment.
        """
        if not moment_ids:
            return np.empty((0, 0), np.float32)
        wanted = f"moment_id IN ({', '.join(map(quoted, dict.fromkeys(moment_ids)))})"
        with _reading(self.path):
            found = self.moments(key).search().where(wanted).select(["moment_id", "vector"]).limit(None).to_arrow()
        vectors = {row["moment_id"]: row["vector"] for row in found.to_pylist()}
        for name in moment_ids:
            if name not in vectors:
                raise ValueError(f"{self.path} has no moment {name!r}; moments of a search have their moment_id")
            if vectors[name] is None or not np.isfinite(vectors[name]).all():
                raise IndexDamagedError(
                    damaged(self.path, f"the vector of the moment {name!r} is missing or not finite")
                )
        return np.array([vectors[name] for name in moment_ids], np.float32)

    def partition(self, key: str, *, kind: Literal["flat", "sq"] = "flat") -> None:
        """Build an approximate index of a model's vectors: parts about centers, of which a search visits some.

        There are as many parts as the square root of the number of moments. The scores of what a search finds stay
        exact. `tidy` adds what came after it, and at twice the moments that it was trained on it is trained again.

        Args:
            key: Of the model.
            kind: "flat" keeps the vectors once more, "sq" a byte of each number.

        Raises:
            ValueError: There are too few moments for it to be of use.
        """
        table = self.moments(key)
        if (count := table.count_rows()) < FEWEST_PARTITIONED:
            raise ValueError(
                f"{count:,} moments are searched exactly in a moment; an approximate index is for "
                f"{FEWEST_PARTITIONED:,} or more"
            )
        before = approximate_of(table)
        if before is not None and before[0] == kind and count < GROWTH_BEFORE_TRAINING * before[1]:
            return
        from lancedb.index import IvfFlat, IvfSq

        name = f"vector_{kind}_{count}"
        config = {"flat": IvfFlat, "sq": IvfSq}[kind](distance_type="dot", num_partitions=round(count**0.5))
        table.create_index("vector", config=config, name=name)
        for index in table.list_indices():
            if index.columns == ["vector"] and index.name != name:
                table.drop_index(index.name)
        self._to_disk()

    def tidy(self, key: str) -> None:
        """Merge small files, and remove what no search reads any more.

        In a folder that are the versions before the last time; of a bucket, which may have other writers, old ones.

        Raises:
            RuntimeError: It cannot be written.
        """
        now = time.monotonic()
        keep = KEEP_VERSIONS_SECONDS if self._is_shared else min(KEEP_VERSIONS_SECONDS, now - self._tidied)
        self._tidied = now
        for older_than in (None, timedelta(seconds=keep)):  # what is replaced goes once all of the new is on the disk
            for name in (MODELS, f"moments_{key}", f"files_{key}"):
                try:
                    self.database.open_table(name).optimize(cleanup_older_than=older_than)
                except RuntimeError as error:
                    if not self._is_shared or "commit conflict" not in str(error):
                        raise  # else another writer merges the same files; the next time comes soon
            self._to_disk()


OWN_FILES = {"run.lock", "results.json", "text_queries"}


def approximate_of(table: Any) -> tuple[str, int] | None:
    """The kind of a table's approximate index, and how many moments it was trained on; None without one.

    Two are there after a run that was killed while it replaced one, and one whose name says nothing is trained again.
    """
    names = [index.name for index in table.list_indices() if index.columns == ["vector"]]
    known = [APPROXIMATE.fullmatch(name) for name in names]
    found = [(match[1], int(match[2])) for match in known if match and len(names) == 1]
    return (found or [("", 0)])[0] if names else None


def quoted(text: str) -> str:
    """A text in SQL.

    Example:
        >>> quoted("coach's cut.mp4")
        "'coach''s cut.mp4'"
    """
    return "'" + text.replace("'", "''") + "'"


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        with reading(path):
            yield
    except (ValueError, RuntimeError) as error:  # LanceDB's own are either
        if "(os error " in str(error):  # of a disk, not of what is on it
            raise
        raise IndexDamagedError(damaged(path, str(error).partition("\n")[0])) from error


def _check_columns(path: str, schema: pa.Schema, expected: pa.Schema) -> None:
    if missing := sorted(set(expected.names) - set(schema.names)):
        raise IndexDamagedError(_of_another_version(path, f"it lacks {', '.join(missing)}"))
    if wrong := [field for field in expected if schema.field(field.name).type != field.type]:
        found = schema.field(wrong[0].name).type
        raise IndexDamagedError(damaged(path, f"{wrong[0].name} is {found}, not {wrong[0].type}"))


def _is_file(row: Mapping[str, Any]) -> bool:
    if any(row[name] is None for name in ("video", "moments_of", "status", "failures", "size", "modified_ns")):
        return False
    try:
        failures = json.loads(row["failures"])
    except (ValueError, RecursionError):
        return False
    return isinstance(failures, dict) and all(isinstance(why, str) for why in failures.values())


def damaged(path: str, why: str) -> str:
    """What to say of an index that holds what cannot be."""
    return (
        f"the index {path} is damaged, or somebody changed it ({why}); make it again in another folder with "
        "`subtle index FOLDER --output OTHER`"
    )


def _of_another_version(path: str, why: str) -> str:
    return (
        f"the index {path} was made by another version of this package ({why}); make it again in another folder with "
        "`subtle index FOLDER --output OTHER`, or install that version"
    )
