"""Moments of videos to index: of a table with start and end seconds, of OpenSportsLib's JSON, or cut by a rule."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from hf_datasets.footage.opensportslib import is_opensportslib, rows_of_opensportslib
from hf_datasets.records import Rejection
from hf_datasets.tables import (
    SPAN,
    check_columns,
    check_rows,
    is_empty,
    read_text_table,
    table_of_objects,
    time_checks,
    with_times,
)

TABLES = (".csv", ".tsv", ".jsonl", ".parquet", ".json")
MOMENT_COLUMNS = ("video", "start_seconds", "end_seconds")
MOMENT_EXTRAS = ("moment_id", "label", "text")
ALIASES = {"video_id": "video", "path": "video", "clip_id": "moment_id", "description": "text"}
CONTROL_CODES = r"[\x00-\x1f\x7f-\x9f]"


@dataclass(frozen=True, slots=True)
class VideoMoment:
    """A stretch of a video, half-open `[start_seconds, end_seconds)`; None, None is the whole video.

    Attributes:
        moment_id: Distinct among all moments of an index.
        video: The path of its file below the folder.
        start_seconds: Where it starts, from 0.
        end_seconds: Where it ends.
        label: A word for what happens, or None.
        text: A description, or None.
    """

    moment_id: str
    video: str
    start_seconds: float | None
    end_seconds: float | None
    label: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one length, each beginning `stride_seconds` after the one before; the last one ends with the video.

    Raises:
        ValueError: A length is not positive, or there would be gaps.
    """

    seconds: float
    stride_seconds: float

    def __post_init__(self) -> None:
        if not 0 < self.stride_seconds <= self.seconds < float("inf"):
            raise ValueError(
                f"windows of {self.seconds:g} s every {self.stride_seconds:g} s: the stride must be positive and not "
                "longer than the window, or the seconds between two windows would not be found"
            )

    def spans(self, end_seconds: float) -> list[tuple[float, float]]:
        """The windows of a video that ends at `end_seconds`; a shorter video is one window.

        Where less than a tenth of a window is left over, the last window is that much longer.

        Example:
            >>> Windows(4.0, 2.0).spans(9.0)
            [(0.0, 4.0), (2.0, 6.0), (4.0, 8.0), (5.0, 9.0)]
            >>> Windows(4.0, 2.0).spans(8.04)
            [(0.0, 4.0), (2.0, 6.0), (4.0, 8.04)]
        """
        end_seconds = round(end_seconds, 3)
        if end_seconds <= self.seconds:
            return [(0.0, end_seconds)]
        number = int((end_seconds - self.seconds) / self.stride_seconds + 1e-9) + 1
        starts = [place * self.stride_seconds for place in range(number)]
        spans = [(round(start, 3), round(start + self.seconds, 3)) for start in starts]
        left = end_seconds - spans[-1][1]
        if left > self.seconds / 10:
            spans.append((round(end_seconds - self.seconds, 3), end_seconds))
        elif left:
            spans[-1] = spans[-1][0], end_seconds
        return spans


def shots(edges: Sequence[float]) -> list[tuple[float, float]]:
    """The spans between the edges of shots.

    Example:
        >>> shots([0.0, 2.5, 9.0])
        [(0.0, 2.5), (2.5, 9.0)]
    """
    return [(round(first, 3), round(last, 3)) for first, last in pairwise(edges) if last - first > 1e-3]


def cut_moments(video: str, spans: Iterable[tuple[float, float]]) -> list[VideoMoment]:
    """Moments of a video without labels; their ids name the video and the seconds."""
    return [VideoMoment(moment_name(video, start, end), video, start, end) for start, end in spans]


def moment_name(video: str | None, start_seconds: float | None, end_seconds: float | None) -> str:
    """The id of a moment that has no other: the video with the seconds as a media fragment.

    Example:
        >>> moment_name("a.mp4", 0.5, 7200.0)
        'a.mp4#t=0.5,7200'
    """
    times = ["" if time is None else f"{time:.3f}".rstrip("0").rstrip(".") for time in (start_seconds, end_seconds)]
    return f"{video}#t={','.join(times)}"


def read_moments(
    path: Path, *, seconds_before: float = 2.0, seconds_after: float = 3.0
) -> tuple[list[VideoMoment], list[Rejection]]:
    """Read a table of moments: `video, start_seconds, end_seconds[, moment_id, label, text]`.

    A column may also be called as in TF-CoVR's clips: `video_id`, `clip_id`, `description`. Both times may be empty:
    the whole video. OpenSportsLib's JSON has events at one time, which become moments around it.

    Args:
        path: CSV, TSV, JSON, JSON lines or Parquet.
        seconds_before: Of an event at one time, how much before it belongs to the moment.
        seconds_after: And how much after it.

    Returns:
        The moments in the order of the file, with the videos as the file names them, and a rejection for each row or
        column that is left out.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not such a table, cannot be read, or has no usable row.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file; give a table of moments ({', '.join(TABLES)})")
    if path.suffix.lower() not in TABLES:
        raise ValueError(f"{path} is no table of moments; give one of {', '.join(TABLES)}, or a folder of videos")
    table, rejections = _read_moment_table(path, seconds_before, seconds_after)
    known = table.columns
    table = table.rename({old: new for old, new in ALIASES.items() if old in known and new not in known})
    source = str(path)
    rejections += check_columns(table.columns, MOMENT_COLUMNS, source=source, optional=MOMENT_EXTRAS, aliases=ALIASES)
    rows, refused = check_rows(_typed_moments(table), _moment_checks(), source=source, key="moment_id")
    columns = rows.select("moment_id", "video", *SPAN, "label", "text")
    return [VideoMoment(*row) for row in columns.iter_rows()], rejections + refused


def _read_moment_table(path: Path, seconds_before: float, seconds_after: float) -> tuple[pl.DataFrame, list[Rejection]]:
    if path.suffix.lower() != ".json":
        return read_text_table(path)
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read as JSON ({error}); fetch it again") from None
    rejections: list[Rejection] = []
    rows: Any
    if is_opensportslib(value):
        rows, rejections = rows_of_opensportslib(
            value, source=str(path), seconds_before=seconds_before, seconds_after=seconds_after
        )
    else:
        rows = value.get("moments") if isinstance(value, dict) else value
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        why = f"; the first: {rejections[0].reason}" if rejections else ""
        raise ValueError(f"{path} has no moment: give a JSON list of objects with {', '.join(MOMENT_COLUMNS)}{why}")
    return table_of_objects(path, rows), rejections


def _typed_moments(table: pl.DataFrame) -> pl.DataFrame:
    typed = with_times(table, MOMENT_COLUMNS, MOMENT_EXTRAS)
    own = pl.Series([moment_name(*row) for row in typed.select("video", *SPAN).iter_rows()], dtype=pl.String)
    repeated = pl.int_range(pl.len()).over("own")
    own_and_number = pl.when(repeated > 0).then(pl.format("{}#{}", "own", repeated)).otherwise("own")
    return typed.with_columns(own=own).with_columns(moment_id=pl.coalesce("moment_id", own_and_number))


def _moment_checks() -> dict[str, pl.Expr]:
    return {
        "empty video; fill it in": is_empty("video"),
        "control character in video or moment_id; remove it": pl.any_horizontal(
            pl.col(name).str.contains(CONTROL_CODES) for name in ("video", "moment_id")
        ),
        **time_checks(SPAN),
        "duplicate moment id; the first is kept": ~pl.col("moment_id").is_first_distinct(),
    }
