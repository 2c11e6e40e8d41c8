"""TF-CoVR as its authors publish it: csv or Parquet files, one triplet or one composed query per row.

All knowledge of the release's column names, of which there are two generations, is in this module. Its lists and
dictionaries are Python literals in text; they are parsed as data, limited in size and depth, and never evaluated.
"""

import ast
import contextlib
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from hf_datasets.long_videos import SPLITS, Split
from hf_datasets.records import Rejection
from hf_datasets.sources.finegym import CLIP_ID, whole_seconds
from hf_datasets.sources.values import is_utf8
from hf_datasets.tables import ROW, check_columns, check_rows, is_empty, read_table
from hf_datasets.tfcovr.clips import RECORD_SCHEMA, descriptions
from hf_datasets.tfcovr.labels import labels_by_id
from hf_datasets.tfcovr.pairs import change_type

DATASET_ID = "ucf-crcv/TF-CoVR"
FILE_PATTERNS = ("*.csv", "*.parquet")
FILE_PREFIXES: dict[Split, tuple[str, ...]] = {"train": ("train",), "validation": ("val",), "test": ("test",)}
OLDER_COLUMNS = {
    "source_label": "label1",
    "target_label": "label2",
    "target_labels_modification": "modification",
}
"""Column of the older generation -> of the current one."""
TRAIN_COLUMNS = ("query_video", "target_video", "label1", "label2", "modification")
QUERY_COLUMNS = ("query_id", "query_video", "modification", "target_video", "target_videos_ids")
OPTIONAL_COLUMNS = frozenset({"label1", "label2", "target_labels", "description", "Unnamed: 0", ""})
MAX_LITERAL_LENGTH = 1 << 20
MAX_LITERAL_DEPTH = 4
VIDEO_OF_CLIP = (rf"^{CLIP_ID.pattern}$", r"^(?P<video>.+)_\d+$")
"""FineGym's clip ids, then FineDiving's: `<competition>_<instance>`."""


def find_triplet_files(data_dir: Path) -> dict[Split, Path]:
    """Find the annotation file of each split below a folder: `train*`, `val*` and `test*`, csv or Parquet.

    Files of the description-based baseline (`*_desc`) are ignored.

    Raises:
        FileNotFoundError: The folder holds no train or no test file.
        ValueError: A split has several files.
    """
    paths = [path for pattern in FILE_PATTERNS for path in sorted(data_dir.rglob(pattern))]
    files: dict[Split, Path] = {}
    for split, prefixes in FILE_PREFIXES.items():
        named = [path for path in paths if path.name.startswith(prefixes) and not path.stem.endswith("_desc")]
        if len(named) > 1:
            raise ValueError(f"{split} has several files: {', '.join(map(str, named))}; keep one in {data_dir}")
        if named:
            files[split] = named[0]
    if not {"train", "test"} <= files.keys():
        raise FileNotFoundError(
            f"{data_dir} holds no train*.csv and test*.csv (or .parquet) of TF-CoVR; fetch the annotation files of the "
            f"dataset {DATASET_ID} from the Hugging Face Hub into it"
        )
    return files


def download(token: bool | str | None = None) -> Path:
    """Fetch the published annotation files from the Hub, or find them in its cache.

    Returns:
        The folder that holds them.

    Raises:
        FileNotFoundError: The Hub cannot be reached; the message says what to fetch from where.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        return Path(snapshot_download(DATASET_ID, repo_type="dataset", allow_patterns=list(FILE_PATTERNS), token=token))
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, ConnectionError) as error:
        raise FileNotFoundError(
            f"the TF-CoVR annotations could not be fetched ({type(error).__name__}). Download the csv or Parquet files "
            f"of the dataset {DATASET_ID} from the Hugging Face Hub where there is a network, for example with `hf "
            f"download {DATASET_ID} --repo-type dataset --local-dir DIR`, and pass data_dir=DIR"
        ) from None


def read_released_triplets(data_dir: Path) -> tuple[dict[Split, pl.DataFrame], list[Rejection]]:
    """Read the published annotations.

    Args:
        data_dir: Folder of the files, see `find_triplet_files`.

    Returns:
        Split -> rows with the columns of `TRIPLET_SCHEMA`, in the order of the file; `query_label`, `change_type` and
        `target_label` are null in queries whose file has no labels. And a rejection for each row or column left out,
        with file and row (from 1, without the header).

    Raises:
        FileNotFoundError: See `find_triplet_files`.
        ValueError: A file is empty, is not UTF-8, lacks a column or has no usable row.
    """
    rows: dict[Split, pl.DataFrame] = {}
    rejections: list[Rejection] = []
    for split, path in find_triplet_files(data_dir).items():
        table, unreadable = read_table(path)
        rejections += unreadable
        table = table.rename(
            {old: new for old, new in OLDER_COLUMNS.items() if old in table.columns and new not in table.columns}
        )
        required = TRAIN_COLUMNS if split == "train" else QUERY_COLUMNS
        rejections += check_columns(table.columns, required, source=str(path), optional=OPTIONAL_COLUMNS)
        try:
            rows[split], refused = (_triplets if split == "train" else _queries)(table, path)
        except pl.exceptions.PolarsError as error:
            raise ValueError(f"{path} has a column of an unexpected type ({error}); fetch it again") from None
        rejections += refused
    return rows, rejections


def _triplets(table: pl.DataFrame, path: Path) -> tuple[pl.DataFrame, list[Rejection]]:
    table = table.select(ROW, pl.col(TRAIN_COLUMNS).cast(pl.String)).with_columns(
        pl.col("label1", "label2").str.strip_suffix(
            ".0"
        )  # pandas writes integers in a column with empty cells as floats
    )
    table = table.join(
        _texts(table), on=["modification", "label2"], how="left", nulls_equal=True, maintain_order="left"
    )
    checks = {
        "empty clip id; fetch the file again": is_empty("query_video") | is_empty("target_video"),
        "unknown label; hf_datasets/tfcovr/labels/labels.tsv lists the 306": ~_is_label("label1")
        | ~_is_label("label2"),
        "no modification text for label2; fix the cell": is_empty("text"),
        "own target; a clip does not answer itself": pl.col("query_video") == pl.col("target_video"),
        "duplicate triplet; the first is kept": ~pl.struct("query_video", "target_video", "text").is_first_distinct(),
    }
    accepted, rejections = check_rows(table, checks, source=str(path), key="query_video")
    rows = (
        _with_change_types(accepted)
        .with_row_index("number")
        .select(
            pl.format("train-{}", "number").alias("query_id"),
            pl.col("query_video").alias("query_clip_id"),
            pl.col("label1").alias("query_label"),
            pl.col("text").alias("modification_text"),
            "change_type",
            pl.concat_list("target_video").alias("target_clip_ids"),
            pl.col("label2").alias("target_label"),
        )
    )
    return rows, rejections


def _queries(table: pl.DataFrame, path: Path) -> tuple[pl.DataFrame, list[Rejection]]:
    labels = [name for name in ("label1", "label2") if name not in table.columns]
    table = table.with_columns(pl.lit(None, pl.String).alias(name) for name in labels).with_columns(
        pl.col("query_id", "query_video", "modification", "target_video", "label1", "label2").cast(pl.String),
        targets=_targets(table["target_videos_ids"]),
    )
    same = pl.struct("query_video", "modification")
    checks = {
        "empty query; fetch the file again": is_empty("query_id") | is_empty("query_video") | is_empty("modification"),
        "no list of targets; fix the cell": pl.col("targets").is_null(),
        "conflicting query_id; one id is one clip with one text": same != same.first().over("query_id"),
    }
    accepted, rejections = check_rows(table, checks, source=str(path), key="query_id")
    targets = (
        accepted.select(
            "query_id", "query_video", target=pl.concat_list(pl.col("target_video").fill_null(""), "targets")
        )
        .explode("target")
        .filter(~is_empty("target"))
        .unique(maintain_order=True)
    )
    is_own = pl.col("target") == pl.col("query_video")
    for query_id, clip_id in targets.filter(is_own).select("query_id", "target").iter_rows():
        reason = f"own target: query {query_id!r} of {path}; a clip does not answer itself, its other targets stay"
        rejections.append(Rejection(reason, clip_id, query_id))
    answers = targets.filter(~is_own).group_by("query_id", maintain_order=True).agg(target_clip_ids="target")
    queries = accepted.unique("query_id", keep="first", maintain_order=True)
    for query_id in queries.join(answers, on="query_id", how="anti")["query_id"]:
        rejections.append(Rejection(f"no target: query {query_id!r} of {path}; give a target", query_id, query_id))
    rows = _with_change_types(queries.join(answers, on="query_id", maintain_order="left")).select(
        "query_id",
        pl.col("query_video").alias("query_clip_id"),
        pl.col("label1").alias("query_label"),
        pl.col("modification").alias("modification_text"),
        "change_type",
        "target_clip_ids",
        pl.col("label2").alias("target_label"),
    )
    return rows, rejections


def release_clips(
    rows: Mapping[Split, pl.DataFrame], *, spans: Mapping[str, tuple[float, float]]
) -> tuple[pl.DataFrame, list[Rejection]]:
    """List the clips in the published rows.

    Args:
        rows: The rows of `read_released_triplets`.
        spans: Clip id -> start and end in its long video, of `finegym.read_subaction_spans`.

    Returns:
        The clips of each split in the order of their ids (`RECORD_SCHEMA`), with the long video that the id names, the
        label, null where no row has it, and the span: that of `spans`, else the whole seconds of FineGym's id, else
        null, as a dive of FineDiving is a video of its own. And a rejection for each label that contradicts an earlier
        one, and each long video in two splits.
    """
    parts = []
    for split, table in rows.items():
        queries = table.select(clip_id="query_clip_id", label="query_label")
        targets = table.select(clip_id="target_clip_ids", label="target_label").explode("clip_id")
        parts.append(pl.concat([queries, targets]).unique(maintain_order=True).with_columns(split=pl.lit(split)))
    mentioned = pl.concat(parts)
    labeled = mentioned.drop_nulls("label").with_columns(first=pl.col("label").first().over("clip_id"))
    conflicts = labeled.filter(pl.col("label") != pl.col("first")).unique(["clip_id", "label"], maintain_order=True)
    rejections = [
        Rejection(
            f"conflicting label: clip {clip_id!r} has {first!r} and {label!r}; the first is kept",
            label,
            clip_id,
        )
        for clip_id, label, first in conflicts.select("clip_id", "label", "first").iter_rows()
    ]
    clips = (
        mentioned.sort(pl.col("label").is_null(), maintain_order=True)
        .unique(["clip_id", "split"], keep="first", maintain_order=True)
        .with_columns(
            pl.coalesce(*(pl.col("clip_id").str.extract(pattern, 1) for pattern in VIDEO_OF_CLIP), "clip_id").alias(
                "video_id"
            ),
        )
        .join(_spans(mentioned["clip_id"].unique(), spans), on="clip_id", how="left", maintain_order="left")
        .sort(pl.col("split").replace_strict({split: place for place, split in enumerate(SPLITS)}), "clip_id")
        .select(RECORD_SCHEMA.names())
    )
    shared = clips.group_by("video_id", maintain_order=True).agg(pl.col("split").unique(maintain_order=True))
    for video_id, splits in shared.filter(pl.col("split").list.len() > 1).iter_rows():
        reason = f"video in two splits: {video_id!r} is in {' and '.join(splits)} of the release; its clips stay"
        rejections.append(Rejection(reason, video_id, video_id))
    return clips, rejections


def _spans(clip_ids: pl.Series, spans: Mapping[str, tuple[float, float]]) -> pl.DataFrame:
    found = [(clip_id, *(spans.get(clip_id) or whole_seconds(clip_id) or (None, None))) for clip_id in clip_ids]
    schema = {name: RECORD_SCHEMA[name] for name in ("clip_id", "start_seconds", "end_seconds")}
    return pl.DataFrame(found, schema=schema, orient="row")


def _is_label(column: str) -> pl.Expr:
    return pl.col(column).fill_null("").is_in(list(descriptions()))


def _texts(table: pl.DataFrame) -> pl.DataFrame:
    # A text belongs to a pair of labels, so a few thousand distinct cells stand for all rows.
    cells = table.select("modification", "label2").unique(maintain_order=True)
    texts = [modification_text(cell, label) for cell, label in cells.iter_rows()]
    return cells.with_columns(pl.Series("text", texts, dtype=pl.String))


def _targets(column: pl.Series) -> pl.Series:
    if column.dtype != pl.String:
        return column.cast(pl.List(pl.String))
    return pl.Series([_ids(text) for text in column], dtype=pl.List(pl.String))


def _ids(text: str | None) -> list[str] | None:
    value = parse_literal(text)
    if not isinstance(value, list | tuple) or not all(isinstance(item, str | int) for item in value):
        return None
    ids = [str(item) for item in value]
    return ids if all(map(is_utf8, ids)) else None


def _with_change_types(rows: pl.DataFrame) -> pl.DataFrame:
    labels = labels_by_id()
    pairs = rows.select("label1", "label2").unique()
    types = [
        change_type(labels[source], labels[target]) if {source, target} <= labels.keys() else None
        for source, target in pairs.iter_rows()
    ]
    typed = pairs.with_columns(pl.Series("change_type", types, dtype=pl.String))
    return rows.join(typed, on=["label1", "label2"], how="left", nulls_equal=True, maintain_order="left")


def modification_text(cell: str | None, label: str | None) -> str | None:
    """The text for a target label in a cell of the training file.

    >>> modification_text("{'40': {'modification': 'show a switch leap'}}", "40")
    'show a switch leap'

    Args:
        cell: The text of a dictionary, or already the modification.
        label: The target's label id.

    Returns:
        The modification; None if the cell has none for the label.
    """
    if cell is None or not cell.lstrip().startswith("{"):
        return cell
    value = parse_literal(cell)
    by_label = {str(key): inner for key, inner in value.items()} if isinstance(value, dict) else {}
    inner = by_label.get(str(label))
    text = inner.get("modification") if isinstance(inner, dict) else inner
    return text if isinstance(text, str) and is_utf8(text) else None


def parse_literal(text: str | None) -> Any:
    """The list or dictionary that a cell holds as JSON or as a Python literal; nothing in it is executed.

    >>> parse_literal("['a_1', 'b_2']"), parse_literal("__import__('os')")
    (['a_1', 'b_2'], None)

    Args:
        text: At most 1 MiB long and four brackets deep.

    Returns:
        The value; None if the text is not a literal, too long or too deep.
    """
    if text is None or len(text) > MAX_LITERAL_LENGTH:
        return None
    steps = ((character in "[{(") - (character in "]})") for character in text)
    if max(itertools.accumulate(steps), default=0) > MAX_LITERAL_DEPTH:
        return None
    for parse in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return parse(text)
    return None
