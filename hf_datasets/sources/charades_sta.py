"""Charades-STA: one `VIDEO START END##sentence` per line; the videos' durations are in Charades' own table."""

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from hf_datasets.records import Moment, Rejection

LINE = re.compile(r"(?P<video>\S+) (?P<start>-?[\d.]+) (?P<end>-?[\d.]+)##(?P<sentence>.*)")


def read_charades_sta(
    path: str | Path, durations: Mapping[str, float], *, first_id: int = 0
) -> Iterator[Moment | Rejection]:
    """Read `charades_sta_train.txt` or `charades_sta_test.txt`.

    Args:
        path: The annotation file.
        durations: Seconds by video id, see `read_durations`.
        first_id: The `desc_id` of the first line; the others count on.

    Yields:
        The moments in the order of the file, without a fine caption, or why a line is none.
    """
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if line.strip():
                yield _moment(line.strip(), durations, first_id + number, f"{Path(path).name}:{number + 1}")


def read_durations(path: str | Path) -> dict[str, float]:
    """Seconds by video id, from `Charades_v1_train.csv` or `Charades_v1_test.csv`.

    Raises:
        ValueError: The table lacks the columns `id` and `length`.
    """
    with Path(path).open(encoding="utf-8", newline="") as table:
        rows = csv.DictReader(table)
        if not {"id", "length"} <= set(rows.fieldnames or ()):
            raise ValueError(
                f"{path} lacks the columns id and length; give Charades_v1_train.csv or _test.csv"
            )
        return {row["id"]: float(row["length"]) for row in rows}


def _moment(line: str, durations: Mapping[str, float], desc_id: int, key: str) -> Moment | Rejection:
    found = LINE.fullmatch(line)
    if found is None:
        return Rejection("no line of the form VIDEO START END##sentence", line, key)
    try:
        start, end = float(found["start"]), float(found["end"])
    except ValueError:
        return Rejection("unreadable times", line, key)
    if found["video"] not in durations:
        return Rejection("no duration is known of the video", line, key)
    if not found["sentence"].strip():
        return Rejection("empty caption", line, key)
    if not 0 <= start < end:
        return Rejection("the moment does not end after it starts", line, key)
    return Moment(
        desc_id, found["video"], durations[found["video"]], start, end, found["sentence"].strip(), "", None
    )
