"""Retrieval benchmarks in mteb's layout: a corpus, queries and relevance judgements, as a folder of tables.

    corpus/   id, video                     Parquet, JSON lines or csv/tsv; files `<part>/<split>-*.parquet`,
    queries/  id, video, text               `<part>/<split>.jsonl`, `<part>.jsonl`, `data/<part>-*.parquet` and the
    qrels/    query-id, corpus-id, score    like, or those that the YAML of README.md names

That is what `hf download org/name --repo-type dataset` leaves of a benchmark of mteb. Several benchmarks in one folder
have names before the part (`tv2v-queries`); `_id` is `id`, `query` is `queries`, `default` is `qrels`. A video is a
name that is looked up in a folder of videos, or bytes in the table, which are written to files once. `start_seconds`
and `end_seconds`, where a table has them, make it a stretch of the file. What is read is data, nothing is executed.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from hf_datasets.drafts import draft_of, replacing
from hf_datasets.records import Rejection
from hf_datasets.tables import read_text_table
from hf_datasets.video import VIDEO_EXTENSIONS, VideoStore

PARTS: Mapping[str, tuple[str, ...]] = {
    "corpus": ("corpus",),
    "queries": ("queries", "query"),
    "qrels": ("qrels", "default"),
}
SUFFIXES = (".parquet", ".jsonl", ".json", ".csv", ".tsv")
ROWS_AT_ONCE = 16
"""Rows read at once: a row may hold a video."""
QUERY_ID, CORPUS_ID, SCORE = "query-id", "corpus-id", "score"
SPLIT = "test"


@dataclass(frozen=True)
class Video:
    """A stretch of a video: the file, or None where there is none; `name` tells it from others also then."""

    name: str
    path: str | None
    start_seconds: float | None = None
    end_seconds: float | None = None


@dataclass
class Benchmark:
    """A benchmark in memory, without the pixels.

    Attributes:
        corpus: Id -> video, in the order of the file.
        queries: Id -> video and text.
        relevant: Query id -> ids of the corpus, those with a positive score.
        rejections: What was left out.
    """

    corpus: dict[str, Video] = field(default_factory=dict)
    queries: dict[str, tuple[Video, str]] = field(default_factory=dict)
    relevant: dict[str, list[str]] = field(default_factory=dict)
    rejections: list[Rejection] = field(default_factory=list)


def read_mteb_layout(
    folder: str | os.PathLike[str],
    *,
    extract_to: str | os.PathLike[str],
    video_dir: str | os.PathLike[str] | None = None,
    subset: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> Benchmark:
    """Read a composed benchmark: of each part the split `test`, or the only one.

    Args:
        folder: See the module.
        extract_to: Folder for the videos that the tables hold as bytes; their names are hashes of their content.
        video_dir: Folder in which other videos are looked up by name; None looks for none.
        subset: What stands before the names of the parts, such as "tv2v"; None: nothing, or the only one whose queries
            have videos.
        columns: Name of a column in the files -> `id`, `video`, `text`, `start_seconds`, `end_seconds`, `query-id`,
            `corpus-id` or `score`, where they are called something else.

    Raises:
        FileNotFoundError: A part is missing.
        ValueError: A file is damaged or lacks a column, the queries start from images, or no query can be used.
    """
    root = Path(folder).expanduser()
    renames = {"_id": "id", **(columns or {})}
    files = {part: _files(root, part, subset, renames) for part in PARTS}
    reader = _VideoReader(VideoStore(video_dir) if video_dir else None, Path(extract_to))
    found = Benchmark()
    _read_documents(found, files["corpus"], renames, reader)
    _read_queries(found, files["queries"], renames, reader)
    _read_judgements(found, files["qrels"], renames)
    if not found.relevant:
        raise ValueError(
            f"{root}: no query has a video, a text and a relevant document of the corpus "
            f"({len(found.queries)} queries, {len(found.corpus)} documents); check the ids, or name the columns"
        )
    return found


def write_mteb_layout(
    folder: str | os.PathLike[str],
    corpus: Sequence[Mapping[str, Any]],
    queries: Sequence[Mapping[str, Any]],
    qrels: Sequence[Mapping[str, Any]],
    *,
    split: str = "test",
) -> None:
    """Write a benchmark as Parquet files and a README.md whose YAML names them; as a whole or not at all.

    Args:
        folder: A new folder, or one that this wrote.
        corpus: `id`, `video` (a name) and, for stretches, `start_seconds` and `end_seconds`.
        queries: The same with `text`.
        qrels: `query-id`, `corpus-id`, `score`.
        split: Name of the split.

    Raises:
        ValueError: The folder holds something else.
    """
    target = Path(folder)
    unknown = sorted({path.name for path in target.iterdir()} - {*PARTS, "README.md"}) if target.is_dir() else []
    if unknown or target.is_file():
        raise ValueError(f"{target} holds something else ({', '.join(unknown) or 'it is a file'}); name a new folder")
    name = f"{split}-00000-of-00001.parquet"
    configs = [
        {"config_name": part, "data_files": [{"split": split, "path": f"{part}/{split}-*.parquet"}]} for part in PARTS
    ]
    text, number = pa.string(), pa.float64()
    video = {"id": text, "video": text, "start_seconds": number, "end_seconds": number}
    schemas = {
        "corpus": video,
        "queries": video | {"text": text},
        "qrels": {QUERY_ID: text, CORPUS_ID: text, SCORE: pa.int32()},
    }
    with draft_of(target) as draft:
        for part, rows in (("corpus", corpus), ("queries", queries), ("qrels", qrels)):
            (draft / part).mkdir()
            pq.write_table(pa.Table.from_pylist(list(map(dict, rows)), pa.schema(schemas[part])), draft / part / name)
        header = yaml.safe_dump({"configs": configs}, sort_keys=False)
        (draft / "README.md").write_text(f"---\n{header}---\n", encoding="utf-8")


def _read_documents(found: Benchmark, files: list[Path], renames: Mapping[str, str], reader: "_VideoReader") -> None:
    for row in _rows(files, ("id", "video"), renames):
        if _is_new(row["id"], found.corpus, files[0], found.rejections):
            found.corpus[str(row["id"])] = reader.video(row)


def _read_queries(found: Benchmark, files: list[Path], renames: Mapping[str, str], reader: "_VideoReader") -> None:
    for row in _rows(files, ("id", "video", "text"), renames):
        if row["video"] is None or not str(row["text"] or "").strip():
            found.rejections.append(_refused("query without video or text", row["id"], files[0]))
        elif _is_new(row["id"], found.queries, files[0], found.rejections):
            found.queries[str(row["id"])] = (reader.video(row), str(row["text"]))


def _read_judgements(found: Benchmark, files: list[Path], renames: Mapping[str, str]) -> None:
    for row in _rows(files, (QUERY_ID, CORPUS_ID, SCORE), renames):
        query, document = str(row[QUERY_ID]), str(row[CORPUS_ID])
        if (_number(row[SCORE], f"{SCORE} of {query!r}") or 0) <= 0:
            continue
        if query not in found.queries or document not in found.corpus:
            key = f"{query} {document}"
            found.rejections.append(_refused("judgement of an unknown query or document", key, files[0]))
        elif document not in found.relevant.setdefault(query, []):
            found.relevant[query].append(document)


def _files(root: Path, part: str, subset: str | None, renames: Mapping[str, str]) -> list[Path]:
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is not a folder; give the one that holds corpus, queries and qrels")
    names = [f"{subset}-{name}" if subset else name for name in PARTS[part]]
    if part == "corpus" and subset:
        names.append("corpus")  # which several benchmarks of a folder may share
    declared = _declared(root)
    for name in names:
        if found := _files_of(root, name, declared):
            return found
    if not subset and part != "corpus":
        others = _subsets(root, declared)
        composed = [one for one in others if _has_videos(root, one, declared, renames)]
        if len(composed) == 1:
            return _files(root, part, composed[0], renames)
        if others:
            which = f"several with videos: {', '.join(composed)}" if composed else f"no videos in {', '.join(others)}"
            raise ValueError(f"{root}: its queries are of several benchmarks, {which}; name one as subset")
    raise FileNotFoundError(
        f"{root} holds no {' or '.join(names)} (as {', '.join(SUFFIXES)}); give the folder of a benchmark in mteb's "
        "layout, with corpus, queries and qrels"
    )


def _subsets(root: Path, declared: Mapping[str, Any]) -> list[str]:
    known = [*declared, *(path.name.split(".")[0] for path in root.iterdir())]
    return sorted({match[1] for name in known if (match := re.fullmatch(r"(.+)-quer(?:ies|y)", name))})


def _has_videos(root: Path, subset: str, declared: Mapping[str, Any], renames: Mapping[str, str]) -> bool:
    files = [path for name in PARTS["queries"] for path in _files_of(root, f"{subset}-{name}", declared)]
    return bool(files) and "video" in {renames.get(name, name) for name in _column_names(files[0])}


def _declared(root: Path) -> dict[str, Any]:
    # The `configs` in the YAML of README.md: name -> its data files.
    card = root / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    match = re.match(r"---\n(.*?)\n---", text, re.DOTALL)
    try:
        header = yaml.safe_load(match[1]) if match else None
    except yaml.YAMLError as error:
        raise ValueError(f"{card}: its YAML cannot be read ({error}); fetch it again") from None
    configs = header.get("configs") if isinstance(header, dict) else None
    return {
        str(one["config_name"]): one.get("data_files")
        for one in (configs if isinstance(configs, list) else [])
        if isinstance(one, dict) and "config_name" in one
    }


def _files_of(root: Path, name: str, declared: Mapping[str, Any]) -> list[Path]:
    patterns = _patterns(declared.get(name))
    for pattern in patterns:
        if not pattern or Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise ValueError(f"{root}/README.md names {pattern!r} outside the folder; it must name files inside")
    if patterns:
        return sorted({path for pattern in patterns for path in _tables(root, pattern)})
    for place in (f"{name}/{SPLIT}", f"{name}/{SPLIT}-*", f"data/{name}/{SPLIT}*", f"data/{name}-*", name, f"{name}/*"):
        found = [path for suffix in SUFFIXES for path in _tables(root, place + suffix)]
        splits = {path.stem.partition("-")[0] for path in found if place.endswith("/*")}
        if len(splits) > 1:
            raise ValueError(f"{root / name} has the splits {', '.join(sorted(splits))} and no {SPLIT!r}; keep one")
        if found:
            return sorted(found)
    return []


def _tables(root: Path, pattern: str) -> list[Path]:
    return [path for path in root.glob(pattern) if path.is_file() and path.suffix in SUFFIXES]


def _patterns(data_files: Any) -> list[str]:
    """Of one configuration's data files, in any form that a dataset card allows, those of the split or the only one."""
    if isinstance(data_files, str):
        return [data_files]
    if not isinstance(data_files, list) or not data_files:
        return []
    if all(isinstance(one, str) for one in data_files):
        return [str(one) for one in data_files]
    by_split = {str(one.get("split")): one.get("path") for one in data_files if isinstance(one, dict)}
    chosen = by_split.get(SPLIT) or (next(iter(by_split.values())) if len(by_split) == 1 else None)
    if isinstance(chosen, str):
        return [chosen]
    return [str(path) for path in chosen] if isinstance(chosen, list) else []


def _column_names(path: Path) -> list[str]:
    if path.suffix == ".parquet":
        try:
            names: list[str] = pq.read_schema(path).names
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise ValueError(f"{path} is not a Parquet file ({error}); fetch it again") from None
        return names
    if path.suffix == ".json":
        raise ValueError(f"{path}: JSON is read line by line; rename it to {path.with_suffix('.jsonl').name}")
    return read_text_table(path)[0].columns


def _rows(files: Sequence[Path], needed: Sequence[str], renames: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    optional = ("start_seconds", "end_seconds")
    for path in files:
        names = {renames.get(name, name): name for name in _column_names(path)}
        missing = [name for name in needed if name not in names]
        if "video" in missing and "image" in names:
            raise ValueError(
                f"{path}: its queries are images (mteb's it2v, such as WebVid-CoVR); composed retrieval starts from a "
                "video here: give a benchmark of category vt2v"
            )
        if missing:
            raise ValueError(f"{path} has no column {', '.join(missing)}; it has {', '.join(names)}; name the columns")
        wanted = {names[name]: name for name in (*needed, *optional) if name in names}
        for row in _raw_rows(path, list(wanted)):
            yield {name: row[column] for column, name in wanted.items()}


def _raw_rows(path: Path, columns: list[str]) -> Iterator[dict[str, Any]]:
    if path.suffix == ".parquet":
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(ROWS_AT_ONCE, columns=columns):
                    yield from batch.to_pylist()
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise ValueError(f"{path} is damaged ({error}); fetch it again") from None
        return
    table, rejections = read_text_table(path)
    if rejections:
        raise ValueError(rejections[0].reason)
    yield from table.select(pl.col(columns)).iter_rows(named=True)


def _is_new(key: Any, known: Mapping[str, Any], path: Path, rejections: list[Rejection]) -> bool:
    is_new = key is not None and str(key) not in known
    if not is_new:
        rejections.append(_refused("empty or duplicate id", key, path))
    return is_new


def _refused(kind: str, key: Any, path: Path) -> Rejection:
    return Rejection(f"{kind}: {key!r} of {path}", str(key), str(key))


def _number(value: Any, what: str) -> float | None:
    if value is None or value == "":
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{what} must be a number, not {str(value)[:40]!r}; correct the file") from None


class _VideoReader:
    def __init__(self, store: VideoStore | None, extract_to: Path) -> None:
        self.store, self.extract_to = store, extract_to

    def video(self, row: Mapping[str, Any]) -> Video:
        times = [_number(row.get(name), f"{name} of {row['id']!r}") for name in ("start_seconds", "end_seconds")]
        value = row["video"]
        value = {"bytes": value} if isinstance(value, bytes) else value
        content = value.get("bytes") if isinstance(value, dict) else None
        name = value.get("path") if isinstance(value, dict) else value
        if content is not None:
            written = self._extract(content, str(name or ""))
            return Video(written.name, str(written), *times)
        if name is None:
            return Video(f"no video of {row['id']}", None, *times)
        path = self._find(str(name))
        return Video(str(name), None if path is None else str(path), *times)

    def _find(self, name: str) -> Path | None:
        if self.store is None:
            return None
        coverage = self.store.coverage([name])
        return None if coverage.missing else self.store.path(name)  # which says what is wrong with several

    def _extract(self, content: bytes, name: str) -> Path:
        extension = Path(name).suffix.lower()
        extension = extension if extension in VIDEO_EXTENSIONS else ".mp4"
        path = self.extract_to / f"{hashlib.sha256(content).hexdigest()[:40]}{extension}"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as draft:
                draft.write_bytes(content)
        return path
