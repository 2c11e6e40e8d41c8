"""The table of moments: read, checked across rows, and joined with the paths of their videos."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import polars as pl
import pyarrow as pa

from hf_datasets.fig.release import read_released_moments
from hf_datasets.long_videos import VIDEO_SCHEMA, Split
from hf_datasets.publishing.shards import published_tables
from hf_datasets.records import Moment, Rejection
from hf_datasets.tables import check_rows, is_empty

MOMENT_SCHEMA = pa.schema(
    {
        "desc_id": pa.int64(),
        "video_id": pa.string(),
        "duration_seconds": pa.float64(),
        "start_seconds": pa.float64(),
        "end_seconds": pa.float64(),
        "coarse_caption": pa.string(),
        "fine_caption": pa.string(),
        "fine_caption_score": pa.float64(),
    }
)
PUBLISHED_FOLDER = "source"
"""The folder of the moments in what `recipes/build.py fig` writes."""
FRAME_SCHEMA = pl.Schema({
    "desc_id": pl.Int64, "video_id": pl.String, "duration_seconds": pl.Float64, "start_seconds": pl.Float64,
    "end_seconds": pl.Float64, "coarse_caption": pl.String, "fine_caption": pl.String,
    "fine_caption_score": pl.Float64, "split": pl.String,
})  # fmt: skip
"""`MOMENT_SCHEMA` and the split, as a Polars schema."""


def moments_of_splits(files: Mapping[Split, Path]) -> tuple[pl.DataFrame, list[Rejection]]:
    """Read the published files of a dataset.

    Args:
        files: Split -> file, see `release.find_moment_files`.

    Returns:
        See `check_moments`; the rejections of single lines come first.

    Raises:
        ValueError: See `check_moments`, or a file has no usable row.
    """
    rows: list[dict[str, Any]] = []
    rejections: list[Rejection] = []
    for split, path in files.items():
        before = len(rows)
        for record in read_released_moments(path):
            if isinstance(record, Moment):
                rows.append(asdict(record) | {"split": split})
            else:
                rejections.append(record)
        if len(rows) == before:
            first = f", the first: {rejections[-1].reason}" if rejections else "; fetch it again"
            raise ValueError(f"{path} has no usable row{first}")
    source = ", ".join(path.name for path in files.values())
    moments, refused = check_moments(pl.DataFrame(rows, schema=FRAME_SCHEMA), source=source)
    return moments, rejections + refused


def published_moments(data_dir: Path) -> tuple[pl.DataFrame, list[Rejection]]:
    """Read the moments in a folder that `recipes/build.py fig` wrote.

    Raises:
        FileNotFoundError: The folder holds none.
        ValueError: A file lacks a column or is not a Parquet file.
    """
    parts = [
        cast(pl.DataFrame, pl.from_arrow(pa.concat_tables(tables()))).with_columns(split=pl.lit(split))
        for split, tables in published_tables(data_dir / PUBLISHED_FOLDER, MOMENT_SCHEMA).items()
    ]
    if not parts:
        raise FileNotFoundError(
            f"{data_dir} holds no {PUBLISHED_FOLDER}/*.parquet; `subtle build fig` makes such a folder"
        )
    return check_moments(pl.concat(parts), source=str(data_dir))


def check_moments(moments: pl.DataFrame, *, source: str) -> tuple[pl.DataFrame, list[Rejection]]:
    """Reject the rows that contradict others or lack a caption. Moments that end after their video are kept.

    Args:
        moments: See `FRAME_SCHEMA`.
        source: The files, for the messages.

    Returns:
        The usable moments in their order, and a rejection for each other one.

    Raises:
        ValueError: A video is in `train` and in another split, or no row is left.
    """
    checks = {
        "empty caption; fix the row": is_empty("coarse_caption") | is_empty("fine_caption"),
        "duplicate desc_id; the first is kept": ~pl.col("desc_id").is_first_distinct(),
        "second duration of a video; give all its rows one": pl.col("duration_seconds")
        != pl.col("duration_seconds").first().over("video_id"),
    }
    accepted, rejections = check_rows(moments, checks, source=source, key="desc_id")
    trained = accepted.filter(pl.col("split") == "train")["video_id"].unique()
    leaked = accepted.filter((pl.col("split") != "train") & pl.col("video_id").is_in(trained.implode()))
    if not leaked.is_empty():
        raise ValueError(
            f"{source} has {leaked['video_id'].n_unique()} videos in train and in another split, the first "
            f"{leaked['video_id'][0]!r}; give all moments of a video to one split"
        )
    return accepted, rejections


def clip_to_duration(moments: pl.DataFrame, *, source: str) -> tuple[pl.DataFrame, list[Rejection]]:
    """Clip the end of every moment to its video; one that starts after its video ends is rejected.

    Args:
        moments: See `FRAME_SCHEMA`.
        source: The files, for the messages.

    Returns:
        The moments with `end_seconds` at most `duration_seconds`, and a rejection for each moment outside its video.
    """
    outside = {
        "starts after its video ends; fix the row, or load it without clip_to_duration": pl.col("start_seconds")
        >= pl.col("duration_seconds")
    }
    inside, rejections = check_rows(moments, outside, source=source, key="desc_id")
    return inside.with_columns(end_seconds=pl.min_horizontal("end_seconds", "duration_seconds")), rejections


def describe_ends(moments: pl.DataFrame) -> str:
    """How many moments of each split end after their video, and by how much at most, as one sentence per split."""
    sentences = []
    for (split,), part in moments.group_by("split", maintain_order=True):
        excess = part["end_seconds"] - part["duration_seconds"]
        late = int((excess > 0).sum())
        counts = f"{split}: {len(part):,} moments of {part['video_id'].n_unique():,} videos"
        ends = (
            f"{late:,} end after their video, by {cast(float, excess.max()):.2f} s at most"
            if late
            else "all end within their video"
        )
        sentences.append(f"{counts}; {ends}.")
    return " ".join(sentences)


def videos_of(moments: pl.DataFrame) -> pl.DataFrame:
    """The corpus of each split: its videos with their duration, sorted by id; all else is null (`VIDEO_SCHEMA`).

    Args:
        moments: See `FRAME_SCHEMA`.
    """
    videos = moments.group_by("split", "video_id").agg(pl.col("duration_seconds").first())
    unknown = {"video": pl.lit(None, pl.String), "frame_rate": pl.lit(None, pl.Float64)}
    return videos.with_columns(**unknown).select(VIDEO_SCHEMA.names).sort("split", "video_id")


def locate_videos(rows: pl.DataFrame, video_dir: str | os.PathLike[str]) -> tuple[pl.DataFrame, str]:
    """Find each row's video by its id, with any extension; ActivityNet's ids with or without their `v_`.

    Args:
        rows: Rows with `video_id`.
        video_dir: The folder of videos.

    Returns:
        The rows with `video`, a path or null, and a sentence with the coverage.

    Raises:
        ValueError: A video id has several files, or could leave the folder.
    """
    from hf_datasets.video import VideoStore  # imports torch

    store = VideoStore(video_dir)
    ids = rows["video_id"].unique(maintain_order=True).to_list()
    coverage = store.coverage(ids)
    found = {video_id: str(store.path(video_id)) for video_id in coverage.found}
    bare = {video_id.removeprefix("v_"): video_id for video_id in coverage.missing}
    without_prefix = store.coverage(bare)
    found |= {bare[video_id]: str(store.path(video_id)) for video_id in without_prefix.found}
    ambiguous = [*coverage.ambiguous, *without_prefix.ambiguous]
    if ambiguous:
        raise ValueError(
            f"{len(ambiguous)} ids have several files in {video_dir}, the first {ambiguous[0]!r}; keep one of each"
        )
    paths = pl.col("video_id").replace_strict(found, default=None, return_dtype=pl.String)
    share = f"{len(found):,} of {len(ids):,} videos ({len(found) / max(len(ids), 1):.3f})"
    return rows.with_columns(video=paths), f"Videos: {share} are there."
