"""The table of clips: checked row by row before any join, and joined with the paths of their videos."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import polars as pl
import pyarrow as pa

from hf_datasets.class_labels import labeled_features
from hf_datasets.long_videos import SPLITS, read_header
from hf_datasets.records import Rejection
from hf_datasets.tables import check_columns, check_rows, is_empty, is_span
from hf_datasets.tfcovr.labels import load_labels

CLIP_SCHEMA = pa.schema(
    {
        "clip_id": pa.string(),
        "video_id": pa.string(),
        "video": pa.string(),
        "start_seconds": pa.float64(),
        "end_seconds": pa.float64(),
        "label": pa.string(),
        "description": pa.string(),
        "split": pa.string(),
    }
)
CLIP_FEATURES = labeled_features(CLIP_SCHEMA, {"split": SPLITS})
"""How clips are stored. The tables of this package have `CLIP_SCHEMA`, with names."""
RECORD_SCHEMA = pl.Schema(
    {
        "clip_id": pl.String,
        "video_id": pl.String,
        "label": pl.String,
        "start_seconds": pl.Float64,
        "end_seconds": pl.Float64,
        "split": pl.String,
    }
)
"""The fields of a `Clip` record, as a Polars schema."""
DURATION_TOLERANCE_SECONDS = 1.0
"""Annotated ends are rounded, and containers round their length."""


def descriptions() -> dict[str, str]:
    """Label id -> text of the 306 labels."""
    return {label.label_id: label.description for label in load_labels()}


def frame_of(records: Iterable[Any], schema: pl.Schema) -> tuple[pl.DataFrame, list[Rejection]]:
    """Collect what a step gives.

    Args:
        records: Dataclasses and rejections.
        schema: Of the dataclasses' fields, such as `RECORD_SCHEMA`.

    Returns:
        The records in their order as rows, and the rejections in theirs.
    """
    found: list[Any] = []
    rejections: list[Rejection] = []
    for record in records:
        (rejections if isinstance(record, Rejection) else found).append(record)
    return pl.DataFrame([asdict(record) for record in found], schema=schema), rejections


def check_clips(
    clips: pl.DataFrame, *, source: str, durations: Mapping[str, float] | None = None
) -> tuple[pl.DataFrame, list[Rejection]]:
    """Reject invalid clips.

    Args:
        clips: At least the columns of `RECORD_SCHEMA`; others are left out.
        source: The file or folder they come from, for the messages.
        durations: Video id -> length in seconds, where it is known.

    Returns:
        The usable clips in their order, and a rejection with row (from 1) and fix for each other one: an empty id, a
        label outside the 306, an invalid span or one outside the video, a duplicate clip id.

    Raises:
        ValueError: A column is missing, a video is in two splits, or no clip is left.
    """
    list(check_columns(clips.columns, RECORD_SCHEMA.names(), source=source))
    clips = clips.select(RECORD_SCHEMA.names()).cast(RECORD_SCHEMA)
    lengths = {"video_id": list(durations or ()), "duration": list((durations or {}).values())}
    timed = clips.join(
        pl.DataFrame(lengths, schema={"video_id": pl.String, "duration": pl.Float64}),
        on="video_id",
        how="left",
        maintain_order="left",
    )
    start, end, latest = (
        pl.col("start_seconds"),
        pl.col("end_seconds"),
        pl.col("duration") + DURATION_TOLERANCE_SECONDS,
    )
    checks = {
        "empty id; fix the annotation": is_empty("clip_id") | is_empty("video_id"),
        "unknown label; hf_datasets/tfcovr/labels/labels.tsv lists the 306": ~pl.col("label")
        .fill_null("")
        .is_in(list(descriptions())),
        "unusable span; it is 0 <= start_seconds < end_seconds, or both are empty": ~is_span(start, end),
        "span outside the video; fix it, or fetch the whole video": (end > latest).fill_null(False),
        "duplicate clip id; the first is kept": ~pl.col("clip_id").is_first_distinct(),
    }
    accepted, rejections = check_rows(timed, checks, source=source, key="clip_id")
    check_splits(accepted, source=source)
    return accepted.drop("duration"), rejections


def check_splits(clips: pl.DataFrame, *, source: str) -> None:
    """Refuse clips of one video in two splits, because test videos would leak into training.

    Raises:
        ValueError: A video is in two splits.
    """
    in_two = (
        clips.filter(pl.col("split").is_not_null())
        .group_by("video_id", maintain_order=True)
        .agg(pl.col("split").unique().sort(), pl.col("clip_id").first())
        .filter(pl.col("split").list.len() > 1)
    )
    if not in_two.is_empty():
        video_id, splits, _ = in_two.row(0)
        raise ValueError(
            f"{source} has {len(in_two)} videos in two splits, the first {video_id!r} in {' and '.join(splits)}; "
            "give all clips of a video to one split"
        )


def locate_clips(
    clips: pl.DataFrame, video_dir: str | os.PathLike[str] | None, *, whole_videos: bool = False
) -> tuple[pl.DataFrame, str]:
    """Find each clip's file: one of its own, else the long video where the span is known.

    Args:
        clips: See `RECORD_SCHEMA`; a column `description` is kept; without one it gets the texts of the 306.
        video_dir: The folder of videos; None looks for none.
        whole_videos: A clip without a span is its whole long video, and none has a file of its own.

    Returns:
        The clips with `video`, a path or null (`CLIP_SCHEMA`); the span is null where the file is the clip's own. And
        a sentence with the coverage.

    Raises:
        ValueError: Several files have the id of a clip or video.
    """
    described = clips.with_columns(video=pl.lit(None, pl.String))
    if "description" not in clips.columns:
        texts = pl.col("label").replace_strict(descriptions(), default=None, return_dtype=pl.String)
        described = described.with_columns(description=texts)
    if video_dir is None:
        return described.select(CLIP_SCHEMA.names), "Videos: no folder was given, so `video` is null."
    has_span = pl.col("start_seconds").is_not_null() | whole_videos
    videos = _video_paths(clips.filter(has_span)["video_id"], video_dir)
    own = _video_paths(clips["clip_id"].clear() if whole_videos else clips["clip_id"], video_dir)
    found = (
        described.join(
            videos.rename({"id": "video_id", "path": "long"}),
            on="video_id",
            how="left",
            maintain_order="left",
        )
        .join(own.rename({"id": "clip_id", "path": "own"}), on="clip_id", how="left", maintain_order="left")
        .with_columns(pl.when(has_span).then(pl.coalesce("own", "long")).otherwise("own").alias("video"))
    )
    found = found.with_columns(
        pl.when(pl.col("own").is_null()).then(name).alias(name) for name in ("start_seconds", "end_seconds")
    )
    count = len(found) - found["video"].null_count()
    share = f"{count:,} of {len(found):,} clips ({count / max(len(found), 1):.3f})"
    return found.select(CLIP_SCHEMA.names), f"Videos: {share} have their video."


def _video_paths(ids: pl.Series, video_dir: str | os.PathLike[str]) -> pl.DataFrame:
    from hf_datasets.video import VideoStore

    store = VideoStore(video_dir)
    coverage = store.coverage(ids.drop_nulls())
    if coverage.ambiguous:
        raise ValueError(
            f"{len(coverage.ambiguous)} ids have several files in {video_dir}, the first {coverage.ambiguous[0]!r}; "
            "keep one of each"
        )
    paths = [str(store.path(video_id)) for video_id in coverage.found]
    return pl.DataFrame({"id": coverage.found, "path": paths}, schema={"id": pl.String, "path": pl.String})


def video_durations(clips: pl.DataFrame, video_dir: str | os.PathLike[str]) -> dict[str, float]:
    """Read the durations of the long videos in a folder.

    Args:
        clips: Clips; those without a span are separate files and skipped.
        video_dir: The folder of videos.

    Returns:
        Video id -> duration in seconds from the container, for the videos that are there and have one.
    """
    with_span = clips.filter(pl.col("start_seconds").is_not_null())
    found = {name: read_header(path)[0] for name, path in _video_paths(with_span["video_id"], video_dir).iter_rows()}
    return {video_id: duration for video_id, duration in found.items() if duration}
