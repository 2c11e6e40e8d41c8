"""Counterfactual pairs: two videos, and two texts that tell them apart; text i fits video i.

A segment mismatch of VideoComp is one: its negative text describes another stretch of the same video. Others, such as
Vinoground's, are read from a table.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from hf_datasets.comp.contrasts import Span
from hf_datasets.records import Rejection
from hf_datasets.tables import check_columns, check_rows, is_empty, is_span, read_text_table
from hf_datasets.video import VideoError, VideoStore

PAIR_COLUMNS = ("video_0", "text_0", "video_1", "text_1")
TIMES = ("start_seconds_0", "end_seconds_0", "start_seconds_1", "end_seconds_1")
PAIR_EXTRAS = ("key", "kind", *TIMES)
TOLD = "told_seconds"
"""Where `decision` of a segment mismatch has the start and the end of what the negative text describes."""


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """Two stretches of video and their texts, in the same order; `kind` is what differs, where it is known."""

    key: str
    videos: tuple[Span, Span]
    texts: tuple[str, str]
    kind: str | None = None


def counterfactual_of(row: dict[str, Any]) -> Counterfactual | None:
    """The pair of a row of VideoComp: what is shown with the text that fits, and what the negative text describes.

    Args:
        row: With the name of its disruption, and its `video`.

    Returns:
        None for other disruptions than `segment_mismatch`, and where `decision` does not say which stretch the negative
        text describes.

    Raises:
        ValueError: That stretch is not two times.

    Example:
        >>> row = {"key": "v/segment_mismatch", "disruption_type": "segment_mismatch", "video": "v.mp4"}
        >>> row |= {"query_start_seconds": 0.0, "query_end_seconds": 4.0, "decision": '{"told_seconds": [4.0, 9.0]}'}
        >>> pair = counterfactual_of(row | {"positive_text": "He runs.", "negative_text": "He sits."})
        >>> [video.start_seconds for video in pair.videos], pair.texts
        ([0.0, 4.0], ('He runs.', 'He sits.'))
    """
    if row["disruption_type"] != "segment_mismatch" or not row["decision"]:
        return None
    told = json.loads(row["decision"]).get(TOLD)
    if told is None:
        return None
    if not is_stretch(told):
        raise ValueError(f"{TOLD} in decision of {row['key']!r} must be [start, end] in seconds, not {told!r:.80}")
    shown = Span(row["video"], row["query_start_seconds"], row["query_end_seconds"])
    texts = (row["positive_text"], row["negative_text"])
    return Counterfactual(row["key"], (shown, Span(row["video"], float(told[0]), float(told[1]))), texts)


def is_stretch(times: Any) -> bool:
    """Whether a value is the start and the end of a stretch of video, in seconds.

    Example:
        >>> is_stretch([0, 4.5]), is_stretch([4.5, 0]), is_stretch(["0", "4"])
        (True, False, False)
    """
    numbers = isinstance(times, list) and [type(time) for time in times] in (
        [first, second] for first in (int, float) for second in (int, float)
    )
    return numbers and 0 <= times[0] < times[1] < math.inf


def read_counterfactuals(path: Path, video_dir: Path | None = None) -> tuple[list[Counterfactual], list[Rejection]]:
    """Read a table of pairs: csv, tsv, JSON lines or Parquet.

    Args:
        path: With the columns `video_0`, `text_0`, `video_1`, `text_1`, where text i fits video i, and if need be
            `kind`, `key`, and `start_seconds_0`, `end_seconds_0`, `start_seconds_1`, `end_seconds_1` where a video is a
            part of its file. A video is named by its file, with or without the extension.
        video_dir: The folder of the videos; None: `videos` beside the table.

    Returns:
        The pairs, and a rejection for each row that cannot be used, with the reason, and each column left out.

    Raises:
        ValueError: The table cannot be read, lacks a column, has no usable row, or the kind of some rows only.
        FileNotFoundError: There is no table, or no folder of videos.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file; name a table with the columns {', '.join(PAIR_COLUMNS)}")
    folder = path.parent / "videos" if video_dir is None else Path(video_dir)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder of videos; name the one that has them with video_dir")
    table, rejections = read_text_table(path)
    rejections += check_columns(table.columns, PAIR_COLUMNS, source=str(path), optional=PAIR_EXTRAS)
    absent = [name for name in PAIR_EXTRAS if name not in table.columns]
    table = table.with_columns(*(pl.lit(None, dtype=pl.String).alias(name) for name in absent))
    times = {f"{name}_number": pl.col(name).str.strip_chars().cast(pl.Float64, strict=False) for name in TIMES}
    table = table.with_columns(**times)
    checks = {f"{name} is empty; fill it in": is_empty(name) for name in PAIR_COLUMNS}
    checks |= {
        f"{name} is not a number; give seconds": ~is_empty(name) & pl.col(f"{name}_number").is_null() for name in TIMES
    }
    checks |= {
        f"video {number} has no stretch; give a start before its end, or neither for the whole file": ~is_span(
            pl.col(f"start_seconds_{number}_number"), pl.col(f"end_seconds_{number}_number")
        )
        for number in (0, 1)
    }
    checks["the two texts are the same; they must tell the videos apart"] = pl.col("text_0") == pl.col("text_1")
    accepted, refused = check_rows(table, checks, source=str(path), key="video_0")
    pairs: list[Counterfactual] = []
    for read in _located(accepted, VideoStore(folder)):
        (refused if isinstance(read, Rejection) else pairs).append(read)  # type: ignore[arg-type]
    if not pairs:
        raise ValueError(f"{path} has no usable row; the first: {refused[0].reason}")
    without = next((pair.key for pair in pairs if pair.kind is None), None)
    if without is not None and any(pair.kind for pair in pairs):
        raise ValueError(f"{path}: {without!r} has no kind and others have one; fill it in, or leave the column out")
    return pairs, rejections + refused


def _located(table: pl.DataFrame, store: VideoStore) -> Iterator[Counterfactual | Rejection]:
    for row in table.iter_rows(named=True):
        key = row["key"] or f"{row['video_0']}/{row['video_1']}"
        try:
            paths = [str(store.path(row[name].strip())) for name in ("video_0", "video_1")]
        except VideoError as error:
            yield Rejection(f"no video: {error}", json.dumps(row, default=str), key)
            continue
        shown = [
            Span(path, row[f"start_seconds_{place}_number"], row[f"end_seconds_{place}_number"])
            for place, path in enumerate(paths)
        ]
        if shown[0] == shown[1]:
            yield Rejection("the two videos are the same", json.dumps(row, default=str), key)
            continue
        yield Counterfactual(key, (shown[0], shown[1]), (row["text_0"], row["text_1"]), row["kind"] or None)
