"""Marks of search results as right or wrong, and the training triplets that the right ones make.

`subtle serve` writes such tables: a query clip, the text of the change, a clip that was found, and whether it is right.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from hf_datasets.class_labels import with_labels
from hf_datasets.footage.moments import moment_name
from hf_datasets.records import Rejection
from hf_datasets.tables import check_columns, check_rows, is_empty, read_text_table, time_checks, with_times
from hf_datasets.tfcovr.clips import CLIP_SCHEMA
from hf_datasets.tfcovr.triplets import TRIPLET_FEATURES, TRIPLET_SCHEMA

MARK_COLUMNS = ("query_video", "text", "video", "is_right")
MARK_TIMES = ("query_start_seconds", "query_end_seconds", "start_seconds", "end_seconds")
MARK_EXTRAS = (*MARK_TIMES, "label")
TRUTH_VALUES = dict.fromkeys(("true", "1", "yes"), True) | dict.fromkeys(("false", "0", "no"), False)
KEPT_UPLOADS = "marked_queries/"
SAME_SECONDS = 0.01
"""Clips of one video whose times differ by no more are one clip."""

Row = dict[str, Any]


@dataclass
class Additions:
    """What a table of marks adds to a user's clips.

    Attributes:
        clips: Marked clips that the user's table does not have (`CLIP_SCHEMA`), without a label, all in `train`.
        triplets: One row for each right mark (`TRIPLET_SCHEMA`).
        rejections: Marks that are not used, among them the wrong ones.
    """

    clips: list[Row] = field(default_factory=list)
    triplets: list[Row] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)

    def with_clips(self, clips: pl.DataFrame) -> pl.DataFrame:
        """The user's clips and these."""
        return pl.concat([clips, pl.DataFrame(self.clips, schema=clips.schema)])

    def tables(self) -> list[pa.Table]:
        """The triplets as they are stored; no table where there are none."""
        if not self.triplets:
            return []
        return [with_labels(pa.Table.from_pylist(self.triplets, schema=TRIPLET_SCHEMA), TRIPLET_FEATURES)]


def read_marks(path: Path, clips: pl.DataFrame, video_dir: Path) -> Additions:
    """Read the columns `query_video, text, video, is_right` and, optionally, the seconds of both clips and `label`.

    A right mark is a triplet: the query clip, the text, the clip that was found. A mark is not used where it is wrong
    (as a negative it adds next to nothing), where a video is missing or held out, and where a search
    began without a clip or without a text.

    Args:
        path: CSV, TSV, JSON, JSON lines or Parquet.
        clips: The user's clips with their splits and videos (`CLIP_SCHEMA`).
        video_dir: The folder of the videos of marks and clips.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It cannot be read, or has no usable row.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file; give the table of marks that `subtle serve` wrote")
    table, rejections = read_text_table(path)
    rejections += check_columns(table.columns, MARK_COLUMNS, source=str(path), optional=MARK_EXTRAS)
    rows, refused = check_rows(_typed_marks(table), _mark_checks(), source=str(path), key="video")
    found = Additions(rejections=rejections + refused)
    _add(found, rows, clips, (video_dir, path.absolute().parent), source=str(path))
    return found


def _typed_marks(table: pl.DataFrame) -> pl.DataFrame:
    is_right = pl.col("is_right").str.to_lowercase().replace_strict(TRUTH_VALUES, default=None, return_dtype=pl.Boolean)
    return with_times(table, MARK_COLUMNS, MARK_EXTRAS).with_columns(is_right=is_right)


def _mark_checks() -> dict[str, pl.Expr]:
    return {
        "empty video; fill it in": is_empty("video"),
        "mark that is neither right nor wrong; write true or false into is_right": pl.col("is_right").is_null(),
        "mark of a search without a clip or without a text; only a change of a clip can be trained": (
            is_empty("query_video") | is_empty("text")
        ),
        **time_checks(MARK_TIMES[:2], MARK_TIMES[2:]),
    }


def _add(found: Additions, rows: pl.DataFrame, clips: pl.DataFrame, folders: tuple[Path, Path], *, source: str) -> None:
    from hf_datasets.video import VideoError, VideoStore  # imports torch

    store, beside = map(VideoStore, folders)
    places = _Places(clips)

    def refuse(row: Row, reason: str) -> None:
        found.rejections.append(Rejection(reason, str(row), row["video"]))

    for number, row in enumerate(rows.iter_rows(named=True)):
        if not row["is_right"]:
            refuse(
                row, "wrong mark: as a negative it adds less than half a point to mAP (RESULTS.md), so it is not used"
            )
            continue
        try:
            of_query = beside if row["query_video"].startswith(KEPT_UPLOADS) else store
            paths = [str(of_query.path(row["query_video"])), str(store.path(row["video"]))]
        except VideoError as error:
            refuse(row, f"missing video: a mark of {source}; {error}")
            continue
        held_out = next((path for path in paths if places.splits.get(path, "train") != "train"), None)
        if held_out is not None:
            refuse(row, f"held-out video: a mark of {source} is of {Path(held_out).name}, which only measures")
            continue
        query = places.clip(row["query_video"], paths[0], row["query_start_seconds"], row["query_end_seconds"])
        target = places.clip(row["video"], paths[1], row["start_seconds"], row["end_seconds"])
        if query["clip_id"] == target["clip_id"]:
            refuse(row, "query as its own answer: nothing to train on")
            continue
        found.triplets.append(
            {
                "query_id": f"mark-{number}",
                "query_clip_id": query["clip_id"],
                "query_label": query["label"],
                "modification_text": row["text"],
                "change_type": None,
                "target_clip_ids": [target["clip_id"]],
                # In the loss, targets of one label are right answers to each other's queries.
                "target_label": target["label"] or row["label"] or row["text"],
            }
        )
    found.clips = places.new


class _Places:
    """The clips by file and time: those of the user's table, and those that marks add."""

    def __init__(self, clips: pl.DataFrame) -> None:
        self.of_video: dict[str, list[Mapping[str, Any]]] = {}
        for row in clips.drop_nulls("video").iter_rows(named=True):
            self.of_video.setdefault(row["video"], []).append(row)
        self.splits = {video: rows[0]["split"] for video, rows in self.of_video.items()}
        self.new: list[Row] = []

    def clip(self, video_id: str, path: str, start: float | None, end: float | None) -> Mapping[str, Any]:
        """The clip there, which is added where there is none."""
        for known in self.of_video.get(path, ()):
            if _is_same(known["start_seconds"], start) and _is_same(known["end_seconds"], end):
                return known
        video_id = next((one["video_id"] for one in self.of_video.get(path, ())), video_id)
        row: Row = dict.fromkeys(CLIP_SCHEMA.names)
        row |= {"clip_id": moment_name(video_id, start, end), "video_id": video_id, "video": path}
        row |= {"start_seconds": start, "end_seconds": end, "split": "train"}
        self.new.append(row)
        self.of_video.setdefault(path, []).append(row)
        return row


def _is_same(one: float | None, other: float | None) -> bool:
    return one is other if one is None or other is None else abs(one - other) <= SAME_SECONDS
