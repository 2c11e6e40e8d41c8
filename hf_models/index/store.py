"""Moments of videos with their vectors in LanceDB: one table for each model, one of which is active.

An index is a LanceDB database:

    models            one row for each model: `key`, `name`, `made_by` (JSON), `dimensions`, `root`, `details` (JSON),
                      `activated` (a number; the largest is the active model), `format`
    moments_<key>     one row for each moment, see `moment_schema`
    files_<key>       one row for each video file that is done, see `FILES`

What belongs to some videos is replaced in one commit, first the moments, then the files: a file that is listed has all
its moments, and after a kill the others are made again.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, Json, ValidationError

from hf_models.vector_database import FEWEST_PARTITIONED, connect

FORMAT = 1
MODELS = "models"
NAMES_PER_DELETION = 500
KEEP_VERSIONS = timedelta(minutes=10)  # searches that are running read them

MODEL_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("key", "name", "made_by", "root", "details")),
        *((name, pa.int64()) for name in ("dimensions", "activated", "format")),
    ]
)
FILES = pa.schema(
    [
        *((name, pa.string()) for name in ("video", "fingerprint", "moments_of", "status", "reason", "failures")),
        *((name, pa.int64()) for name in ("size", "modified_ns", "num_moments")),
    ]
)
"""A file: `moments_of` says which moments were asked for, `status` is "indexed" or "quarantined", `failures` JSON."""


def moment_schema(dimensions: int) -> pa.Schema:
    """The columns of moments; seconds from the video's start, `modified` when its file was written."""
    return pa.schema(
        [
            *((name, pa.string()) for name in ("moment_id", "video", "label", "text", "fingerprint")),
            *((name, pa.float64()) for name in ("start_seconds", "end_seconds")),
            ("modified", pa.timestamp("s", tz="UTC")),
            ("vector", pa.list_(pa.float32(), dimensions)),
        ]
    )


class _Details(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")
    files: dict[str, list[int]] | None = None
    num_frames: Annotated[int, Field(ge=1, le=100_000)] | None = None
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
        key: See `moment_encoders.key_of`.
        name: Folder or Hub name that it was loaded from.
        made_by: See `MomentEncoder.made_by`.
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
        return {
            "key": self.key,
            "name": self.name,
            "made_by": json.dumps(dict(self.made_by)),
            "root": self.root,
            "details": json.dumps(dict(self.details)),
            "dimensions": self.dimensions,
            "activated": self.activated,
            "format": FORMAT,
        }


class MomentIndex:
    """An index that exists.

    Args:
        path: Folder, or the address of a bucket that LanceDB knows.

    Raises:
        ImportError: LanceDB is not installed.
        FileNotFoundError: There is no index.
        ValueError: It was made by another version, or is damaged.
    """

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

    @classmethod
    def create(cls, path: str | Path) -> "MomentIndex":
        """Open an index, or make an empty one.

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
        with _reading(str(path)):
            connect(str(path)).create_table(MODELS, schema=MODEL_SCHEMA, exist_ok=True)
        return cls(path)

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
            if row.pop("format") != FORMAT:
                raise ValueError(_of_another_version(self.path, f"its format is not {FORMAT}"))
            try:
                model = _ModelRow(**row).model_dump()
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                place = ".".join(map(str, first["loc"]))
                raise ValueError(_damaged(self.path, f"{place} of the model {row['key']!r}: {first['msg']}")) from None
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
        """A model by its key, name, or the last part of its name; None: the active one.

        Raises:
            ValueError: There is none, or there are several.
        """
        if name is None:
            return self.active
        exact = [model for model in self.models.values() if name == model.key]
        named = [model for model in self.models.values() if same_name(name, model.name)]
        found = exact or named
        known = ", ".join(f"{model.key} ({model.name})" for model in self.models.values()) or "none"
        if len(found) != 1:
            what = f"several models of {self.path} are called" if found else f"{self.path} holds no vectors of"
            raise ValueError(
                f"{what} {name!r}; it has {known}: give a key, or make vectors with `subtle index FOLDER --output "
                f"{self.path} --model {name}`"
            )
        return found[0]

    def add(self, model: IndexedModel) -> IndexedModel:
        """Add a model, or update what is known of it; the first one is active."""
        known = self.models.get(model.key)
        activated = known.activated if known else 0 if self.models else 1
        model = IndexedModel(**{**model.__dict__, "activated": activated})
        if known != model:
            self._write_model(model)
        for table, schema in ((f"moments_{model.key}", moment_schema(model.dimensions)), (f"files_{model.key}", FILES)):
            with _reading(self.path):
                self.database.create_table(table, schema=schema, exist_ok=True)
        return model

    def activate(self, name: str) -> IndexedModel:
        """Search with this model from now on; the others' vectors stay."""
        found = self.find(name)
        model = IndexedModel(**{**found.__dict__, "activated": self.active.activated + 1})
        self._write_model(model)
        return model

    def _write_model(self, model: IndexedModel) -> None:
        rows = pa.Table.from_pylist([model.as_row()], schema=MODEL_SCHEMA)
        table = self.database.open_table(MODELS)
        table.merge_insert("key").when_matched_update_all().when_not_matched_insert_all().execute(rows)
        self.models[model.key] = model

    def moments(self, key: str) -> Any:
        """The LanceDB table of a model's moments.

        Raises:
            ValueError: It is missing or damaged.
        """
        return self._table(f"moments_{key}", moment_schema(self.models[key].dimensions))

    def files(self, key: str) -> dict[str, dict[str, Any]]:
        """What is done, by video.

        Raises:
            ValueError: The table is missing or damaged.
        """
        table = self._table(f"files_{key}", FILES)
        with _reading(self.path):
            rows = table.to_arrow().to_pylist()
        if wrong := [row for row in rows if not _is_file(row)]:
            raise ValueError(_damaged(self.path, f"the file {wrong[0]['video']!r} has no complete row"))
        return {row["video"]: row for row in rows}

    def _table(self, name: str, schema: pa.Schema) -> Any:
        with _reading(self.path):
            table = self.database.open_table(name)
        _check_columns(self.path, table.schema, schema)
        return table

    def replace(
        self, key: str, moments: pa.Table, files: Sequence[Mapping[str, Any]], *, gone: Iterable[str] = ()
    ) -> None:
        """Replace all that is known of the videos of `files`, and remove the videos `gone`."""
        gone = list(gone)
        videos = [row["video"] for row in files] + gone
        is_theirs = f"video IN ({', '.join(map(quoted, videos))})"
        table = self.moments(key)
        if moments.num_rows and not table.count_rows(is_theirs + _or_named_as(moments)):
            table.add(moments)  # as nearly always; a merge would read all ids of the table
        elif moments.num_rows:
            merge = table.merge_insert("moment_id").when_matched_update_all().when_not_matched_insert_all()
            merge.when_not_matched_by_source_delete(is_theirs).execute(moments)
        elif table.count_rows(is_theirs):
            table.delete(is_theirs)
        done = self.database.open_table(f"files_{key}")
        rows = pa.Table.from_pylist([dict(row) for row in files], schema=FILES)
        merge = done.merge_insert("video").when_matched_update_all().when_not_matched_insert_all()
        merge.when_not_matched_by_source_delete(f"video IN ({', '.join(map(quoted, gone or ['']))})").execute(rows)

    def remove(self, key: str, videos: Sequence[str]) -> None:
        """Forget videos."""
        for start in range(0, len(videos), NAMES_PER_DELETION):
            names = ", ".join(map(quoted, videos[start : start + NAMES_PER_DELETION]))
            self.moments(key).delete(f"video IN ({names})")
            self.database.open_table(f"files_{key}").delete(f"video IN ({names})")

    def rows_of(self, key: str, videos: Sequence[str]) -> pa.Table:
        """All moments of some videos, with their vectors."""
        return self.moments(key).search().where(f"video IN ({', '.join(map(quoted, videos))})").limit(None).to_arrow()

    def partition(self, key: str) -> None:
        """Build an approximate index of a model's vectors: parts about centers, of which a search visits some.

        The vectors are kept as they are, so scores stay exact. `tidy` adds what came after it.

        Raises:
            ValueError: There are too few moments for it to be of use.
        """
        table = self.moments(key)
        if (count := table.count_rows()) < FEWEST_PARTITIONED:
            raise ValueError(
                f"{count:,} moments are searched exactly in a moment; an approximate index is for "
                f"{FEWEST_PARTITIONED:,} or more"
            )
        if not table.list_indices():
            from lancedb.index import IvfFlat

            table.create_index("vector", config=IvfFlat(distance_type="dot"))

    def tidy(self, key: str) -> None:
        """Merge small files, and remove what no search reads any more."""
        for name in (MODELS, f"moments_{key}", f"files_{key}"):
            self.database.open_table(name).optimize(cleanup_older_than=KEEP_VERSIONS)


OWN_FILES = {"run.lock", "results.json", "text_queries"}


def same_name(name: str, other: str) -> bool:
    """Whether two names are of one model: a folder by its whole path, or by its last parts."""
    if Path(name).exists() or Path(other).exists():
        return Path(name).resolve() == Path(other).resolve() or f"/{other}".endswith(f"/{name}")
    return f"/{other}".endswith(f"/{name}")


def _or_named_as(moments: pa.Table) -> str:
    """The condition that a row has the id of a moment, of those whose ids do not name their video."""
    rows = moments.select(["moment_id", "video"]).to_pylist()
    names = [row["moment_id"] for row in rows if not row["moment_id"].startswith(f"{row['video']}#")]
    return f" OR moment_id IN ({', '.join(map(quoted, names))})" if names else ""


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
        yield
    except (ValueError, RuntimeError) as error:  # LanceDB's own are either
        if "(os error " in str(error):  # of a disk, not of what is on it
            raise
        raise ValueError(_damaged(path, str(error).partition("\n")[0])) from error


def _check_columns(path: str, schema: pa.Schema, expected: pa.Schema) -> None:
    if missing := sorted(set(expected.names) - set(schema.names)):
        raise ValueError(_of_another_version(path, f"it lacks {', '.join(missing)}"))
    if wrong := [field for field in expected if schema.field(field.name).type != field.type]:
        found = schema.field(wrong[0].name).type
        raise ValueError(_damaged(path, f"{wrong[0].name} is {found}, not {wrong[0].type}"))


def _is_file(row: Mapping[str, Any]) -> bool:
    if any(row[name] is None for name in ("video", "moments_of", "status", "failures", "size", "modified_ns")):
        return False
    try:
        failures = json.loads(row["failures"])
    except (ValueError, RecursionError):
        return False
    return isinstance(failures, dict) and all(isinstance(why, str) for why in failures.values())


def _damaged(path: str, why: str) -> str:
    return (
        f"the index {path} is damaged, or somebody changed it ({why}); make it again in another folder with "
        "`subtle index FOLDER --output OTHER`"
    )


def _of_another_version(path: str, why: str) -> str:
    return (
        f"the index {path} was made by another version of this package ({why}); make it again in another folder with "
        "`subtle index FOLDER --output OTHER`, or install that version"
    )
