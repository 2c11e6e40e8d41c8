"""The published Charades-FIG, DiDeMo-FIG and ActivityNet-FIG: one JSON object per line, read as `Moment`s."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hf_datasets.records import Moment, Rejection


def read_release(path: str | Path) -> Iterator[Moment | Rejection]:
    """Read one published file (`charades_fig_test.jsonl`, ...).

    Texts, times and scores stay as published: an end, and once a start, lies beyond the video; scores are logits and
    may be negative.

    Args:
        path: The file of JSON lines.

    Yields:
        The moments in the order of the file, or why a line is none.
    """
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _read_line(line, f"{Path(path).name}:{number}")


def _read_line(line: str, key: str) -> Moment | Rejection:
    try:
        row: dict[str, Any] = json.loads(line)
        start, end = (float(seconds) for seconds in row["time"])
        score = row.get("fig_desc_score")
        moment = Moment(
            desc_id=int(row["desc_id"]),
            video_id=str(row["video"]),
            duration_seconds=float(row["duration"]),
            start_seconds=start,
            end_seconds=end,
            coarse_caption=str(row["cog_desc"]),
            fine_caption=str(row.get("fig_desc") or ""),
            fine_caption_score=None if score is None else float(score),
        )
    except (ValueError, KeyError, TypeError) as error:
        return Rejection(f"unreadable line: {type(error).__name__}: {error}", line, key)
    if not moment.coarse_caption.strip():
        return Rejection("empty caption", line, key)
    if not (math.isfinite(start) and math.isfinite(end)) or start < 0 or start >= end:
        return Rejection("the moment does not end after it starts", line, key)
    return moment
