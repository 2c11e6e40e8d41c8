"""Builders of registered names, whose prepared data a process that imports only `datasets` finds.

`datasets` falls back to its own cache for a bare name: each configuration has a folder of its own hash there, and the
default one is always the newest, which is what the fallback opens.
"""

import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import datasets
import datasets.load
import pyarrow as pa
import pyarrow.parquet as pq
from datasets.builder import Key
from datasets.config import DATASET_INFO_FILENAME
from datasets.load import DatasetModule
from filelock import FileLock, Timeout

from hf_datasets.class_labels import with_labels
from hf_datasets.drafts import writing
from hf_datasets.records import Rejection
from hf_datasets.registry import BUILDERS
from hf_datasets.sharding import Shards, Tables

REUSE = datasets.DownloadMode.REUSE_DATASET_IF_EXISTS
WORKSHOP = ".preparing"
"""Where folders are prepared, beside the configurations; the search of `datasets` passes over names with a dot."""
BARE_LOAD = """
import json, sys
from datasets import load_dataset
failed = {}
for name in sys.argv[1:]:
    try:
        load_dataset(name)
    except Exception as error:
        failed[name] = f"{type(error).__name__}: {error}"
print(json.dumps(failed))
"""
REJECTIONS_FILE = "rejections.parquet"
REJECTION_SCHEMA = pa.schema({name: pa.string() for name in ("step", "key", "reason", "raw")})
FOLDERS = re.compile(r"(?<![\w.:/\\])(?:[A-Za-z]:)?[\\/](?:[^\\/\s'\",;:]+[\\/])+")
"""The folders of an absolute path in a text, up to its last name."""
RENDERED = ("mini", "hard", "unseen")
"""The configurations that are drawn here, keys of `hf_datasets.miniature.TIERS`."""
MINIATURE_TABLES = ("clips.parquet", "videos.parquet")
ANNOTATION_SUFFIXES = frozenset({".csv", ".json", ".jsonl", ".parquet", ".pkl", ".tsv", ".txt"})


def registered_module(name: str) -> DatasetModule:
    """The module description that `datasets` needs for a key of `BUILDERS`."""
    return DatasetModule(BUILDERS[name], source_hash(), {"dataset_name": name, "base_path": str(Path(__file__).parent)})


@functools.cache
def source_hash() -> str:
    """A hash of this package's code and tables, so that an edit of any of them makes the cache stale."""
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.suffix in {".py", ".tsv"}):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def folder_hash(folder: str | os.PathLike[str], describe: Callable[[Path], object]) -> str:
    """A hash of the files below `folder`, each as `describe` returns it; None leaves a file out."""
    root = Path(folder).expanduser()
    files = sorted(path for path in root.rglob("*") if path.is_file())
    described = [(path.relative_to(root).as_posix(), describe(path)) for path in files]
    return hashlib.sha256(repr([item for item in described if item[1] is not None]).encode()).hexdigest()


def annotation_state(path: Path) -> tuple[int, int] | None:
    """Size and modification time of an annotation file; None for anything else, such as a video."""
    if path.suffix not in ANNOTATION_SUFFIXES:
        return None
    state = path.stat()
    return state.st_size, state.st_mtime_ns


def own_cache(dataset: str) -> dict[str, str]:
    """The option of `load_dataset` that gives a folder a cache of its own, for as long as its tables stay as they are.

    `datasets` names the cache of a folder by the last part of its path and by its card alone: it would give the rows of
    another folder `data`, or those that this one had before it was built again.

    Args:
        dataset: A folder, or any other name, for which there is no option.
    """
    if not Path(dataset).is_dir():
        return {}
    state = f"{Path(dataset).resolve()} {folder_hash(dataset, annotation_state)}"
    name = hashlib.sha256(state.encode()).hexdigest()[:16]
    return {"cache_dir": str(Path(datasets.config.HF_DATASETS_CACHE, "folders", name))}


class RegisteredBuilder(datasets.ArrowBasedBuilder):  # type: ignore[misc]  # datasets has no types
    """A builder whose prepared data a process that imports only `datasets` finds under the bare name.

    Editing the code, the annotations in `data_dir` or the set of files in `video_dir` rebuilds the data. A builder
    collects refused rows in `rejections`: they are counted in the description and kept beside the data. All of them
    are known when `_split_generators` returns, because shards may be generated in other processes.
    """

    def __init__(self, *args: Any, hash: str | None = None, config_name: str | None = None, **kwargs: Any) -> None:
        self.rejections: list[Rejection] = []
        self.module_hash = hash
        name = config_name or self.DEFAULT_CONFIG_NAME
        states = [
            folder_hash(kwargs[key], describe)
            for key, describe in (("data_dir", annotation_state), ("video_dir", lambda path: path.name))
            if kwargs.get(key)
        ]
        own_hash = None if hash is None else self._hash_of(name, states)
        super().__init__(*args, hash=own_hash, config_name=config_name, **kwargs)

    def _hash_of(self, config_name: str | None, states: list[str]) -> str:
        return hashlib.sha256(":".join([str(self.module_hash), str(config_name), *states]).encode()).hexdigest()

    def download_and_prepare(
        self,
        output_dir: str | None = None,
        download_config: datasets.DownloadConfig | None = None,
        download_mode: datasets.DownloadMode | str | None = None,
        **kwargs: Any,
    ) -> None:
        """Prepare as `datasets` does, but in a folder that no search reads, moved into the cache as a whole at the end.

        A process that imports only `datasets` reads every folder of a name and fails on an unfinished one, so none may
        stand there, and the default configuration must be the newest at any time. Unfinished folders that a killed
        process left are removed.
        """
        kwargs |= {"download_config": download_config, "download_mode": download_mode}
        if output_dir is not None:
            super().download_and_prepare(output_dir, **kwargs)
            return
        final = Path(self._cache_dir)
        root = Path(self._cache_dir_root, self.dataset_name)
        workshop = root / WORKSHOP / hashlib.sha256(self._cache_dir.encode()).hexdigest()[:16]
        workshop.parent.mkdir(parents=True, exist_ok=True)
        remove_unfinished(root)
        with FileLock(f"{workshop}.lock"):
            reuse = download_mode in {None, REUSE, REUSE.value}
            if reuse and (final / DATASET_INFO_FILENAME).is_file():
                super().download_and_prepare(**kwargs)  # reads what is there
            else:
                self._prepare_in(workshop, final, **kwargs)
        self._touch_default()

    def _prepare_in(self, workshop: Path, final: Path, **kwargs: Any) -> None:
        shutil.rmtree(workshop, ignore_errors=True)
        # The description and splits of an earlier preparation are neither extended nor compared with.
        self.info.description, self.info.splits = self._info().description, None
        try:
            super().download_and_prepare(str(workshop / "new"), **kwargs)
            final.parent.mkdir(parents=True, exist_ok=True)
            self._touch_default()
            seconds = time.time() - (0 if self.config_id == self.DEFAULT_CONFIG_NAME else 1)
            os.utime(workshop / "new", (seconds, seconds))  # so that it comes in older than the default
            if final.exists():
                final.replace(workshop / "old")
            (workshop / "new").replace(final)
        finally:
            shutil.rmtree(workshop, ignore_errors=True)
            self._output_dir = str(final)

    def _touch_default(self) -> None:
        """Make the default configuration the newest: that of this version, or else the last one prepared."""
        root = Path(self._cache_dir_root, self.dataset_name, str(self.DEFAULT_CONFIG_NAME))
        own = root / str(self.VERSION) / self._hash_of(self.DEFAULT_CONFIG_NAME, [])
        prepared = [own] if own.is_dir() else [path for path in root.glob("*/*") if path.is_dir()]
        if prepared:
            os.utime(max(prepared, key=lambda path: path.stat().st_mtime))

    def _generators(self, splits: Mapping[Any, Tables]) -> list[datasets.SplitGenerator]:
        """What `_split_generators` returns: the shards of each split, which `_generate_tables` then gets."""
        shards = {split: rows.parts if isinstance(rows, Shards) else [rows] for split, rows in splits.items()}
        return [datasets.SplitGenerator(split, gen_kwargs={"shards": list(parts)}) for split, parts in shards.items()]

    def _generate_tables(self, shards: list[Tables]) -> Iterator[tuple[Key, pa.Table]]:
        for shard, tables in enumerate(shards):
            for number, table in enumerate(tables()):
                yield Key(shard, number), with_labels(table, self.info.features)

    def _data_dir(self) -> Path | None:
        """The folder in `data_dir`, None where none is given.

        Raises:
            FileNotFoundError: It is not there.
        """
        if self.config.data_dir is None:
            return None
        data_dir = Path(self.config.data_dir).expanduser()
        if not data_dir.is_dir():
            raise FileNotFoundError(f"data_dir {data_dir} is not a folder; give the one that holds the annotations")
        return data_dir

    def _miniature_dir(self) -> Path:
        """The folder of a rendered miniature: that in `data_dir`, or that of the configuration, drawn if it is missing.

        Raises:
            FileNotFoundError: `data_dir` holds something else.
        """
        data_dir = self._data_dir()
        if data_dir is None:
            from hf_datasets.miniature import TIERS, prepare_miniature  # imports the renderer

            tier = self.config.name.partition("-")[0]
            return prepare_miniature() if tier == "mini" else prepare_miniature(config=TIERS[tier])
        missing = [name for name in MINIATURE_TABLES if not (data_dir / name).is_file()]
        if missing:
            others = [name for name in self.builder_configs if name not in RENDERED and "-" not in name]
            calls = " or ".join(f"load_dataset({self.dataset_name!r}, {name!r}, data_dir=...)" for name in others)
            raise FileNotFoundError(
                f"data_dir {data_dir} holds no {' and no '.join(missing)}, so it is not a miniature, which the "
                f"configuration {self.config.name!r} reads; for other data name their configuration: {calls}"
            )
        return data_dir

    def _refuse(self, names: Iterable[str], why: str) -> None:
        """Refuse parameters that this configuration would ignore.

        Raises:
            ValueError: One of them is not the default.
        """
        default = self.builder_configs[self.config.name]
        given = [name for name in names if getattr(self.config, name) != getattr(default, name)]
        if given:
            raise ValueError(f"{', '.join(given)} cannot be chosen for {self.config.name!r}: {why}")

    def _download_and_prepare(self, *args: Any, **kwargs: Any) -> None:
        super()._download_and_prepare(*args, **kwargs)
        self._leave_out_empty_splits()
        if self.rejections:
            self.info.description = f"{self.info.description}\n\n{summarise(self.rejections)}"
            write_rejections(self._output_dir, ((None, rejection) for rejection in self.rejections))

    def _leave_out_empty_splits(self) -> None:
        # `datasets` opens no dataset that has a split without rows.
        splits = self.info.splits or {}
        empty = [name for name, split in splits.items() if not split.num_examples]
        if empty and len(empty) == len(splits):
            first = f", the first refused: {self.rejections[0].reason}" if self.rejections else ""
            raise ValueError(f"{self.dataset_name} {self.config_id} has no row in {', '.join(empty)}{first}")
        for name in empty:
            del splits[name]
        if empty:
            self.info.description += f" Without rows, so left out: {', '.join(empty)}."


def remove_unfinished(root: Path) -> None:
    """Remove the unfinished folders of a name that killed processes left; that of a living writer stays.

    Args:
        root: The folder of the name in the cache of `datasets`.
    """
    unfinished = {path: f"{path}.lock" for path in root.glob(f"{WORKSHOP}/*") if path.is_dir()}
    for path in root.glob("[!.]*/*/*"):  # `datasets` itself writes here: earlier versions of this class did
        if path.is_dir() and not (path / DATASET_INFO_FILENAME).is_file():
            unfinished[path] = f"{str(path).removesuffix('.incomplete')}_builder.lock"
    for path, lock in unfinished.items():
        with (
            contextlib.suppress(Timeout),
            FileLock(lock, timeout=0),
        ):  # its writer holds the lock as long as it lives
            shutil.rmtree(path, ignore_errors=True)


def write_rejections(folder: str | os.PathLike[str], rejections: Iterable[tuple[str | None, Rejection]]) -> None:
    """Write refused rows, each with the step that refused it where there are several, to `rejections.parquet`.

    Of files in the reasons, only the name is kept: the table is published, and folders are this machine's. For rows of
    a writer, `request` is the key of the request to it.
    """
    rows = [
        {
            "step": step,
            "key": rejection.key,
            "reason": FOLDERS.sub("", rejection.reason),
            "raw": rejection.raw,
            "request": rejection.request,
        }
        for step, rejection in rejections
    ]
    storable = [
        {name: value and value.encode("utf-8", "backslashreplace").decode() for name, value in row.items()}
        for row in rows
    ]
    has_requests = any(row["request"] for row in rows)
    schema = REJECTION_SCHEMA.append(pa.field("request", pa.string())) if has_requests else REJECTION_SCHEMA
    with writing(Path(folder, REJECTIONS_FILE)):
        pq.write_table(pa.Table.from_pylist(storable, schema=schema), Path(folder, REJECTIONS_FILE))


def summarise(rejections: list[Rejection]) -> str:
    """How many rows were refused, for which reasons; the reason up to its first colon is the kind."""
    kinds = Counter(rejection.reason.partition(":")[0] for rejection in rejections)
    counts = "; ".join(f"{count} x {kind}" for kind, count in kinds.most_common())
    return f"{len(rejections)} rows were refused ({counts}). Each is in {REJECTIONS_FILE} beside the data."


def prepare(name: str) -> dict[str, datasets.DatasetDict]:
    """Fill the cache with the default configuration of a registered name, and those that go with it.

    Args:
        name: A key of `BUILDERS`.

    Returns:
        Configuration name -> its splits, the default configuration first.

    Raises:
        ValueError: The name is not registered.
        OSError: What the cache holds of it is damaged.
    """
    if name not in BUILDERS:
        raise ValueError(f"unknown dataset {name!r}; there are {', '.join(sorted(BUILDERS))}")
    module = registered_module(name)
    builder = datasets.load.get_dataset_builder_class(module)
    default = builder.DEFAULT_CONFIG_NAME
    names = [config for config in builder.builder_configs if config == default or config.startswith(f"{default}-")]
    return {config: _prepared(name, builder, module, config) for config in sorted(names, key=len)}


def find_unopened(names: Iterable[str]) -> dict[str, str]:
    """Open prepared names in a process that imports only `datasets`, offline and in an empty folder.

    Args:
        names: Keys of `BUILDERS`.

    Returns:
        Name -> error, for those that do not open.
    """
    environment = os.environ | {
        "HF_DATASETS_CACHE": str(datasets.config.HF_DATASETS_CACHE),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-P", "-c", BARE_LOAD, *names],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it ended without a message"])[-1]
        return dict.fromkeys(names, last)
    failed: dict[str, str] = json.loads(done.stdout)
    return failed


def _prepared(name: str, builder: type[RegisteredBuilder], module: DatasetModule, config: str) -> datasets.DatasetDict:
    # Not load_dataset(name), which a folder of that name in the working directory would take over.
    folder = Path(datasets.config.HF_DATASETS_CACHE, name, config)
    with _readable(folder):
        own = builder(config_name=config, hash=module.hash, **module.builder_kwargs)
    own.download_and_prepare()
    with _readable(folder):
        if (refused := Path(own.cache_dir, REJECTIONS_FILE)).is_file():
            pq.read_metadata(refused)
        return own.as_dataset()


@contextlib.contextmanager
def _readable(folder: Path) -> Iterator[None]:
    try:
        yield
    except (json.JSONDecodeError, pa.ArrowException, OSError) as error:
        raise OSError(
            f"what {folder} holds is damaged, as by a power loss ({error}); remove it and prepare it again"
        ) from error
