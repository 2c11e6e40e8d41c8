"""Charades-STA: one `VIDEO START END##sentence` per line; the videos' durations are in Charades' own table."""

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from hf_datasets.records import Moment, Rejection
from hf_datasets.sources.values import checked_moment, identifier, lines_of, number

LINE = re.compile(r"(?P<video>\S+) (?P<start>-?[\d.]+) (?P<end>-?[\d.]+)##(?P<sentence>.*)")


def read_charades_sta(path: str | Path, durations: Mapping[str, float]) -> Iterator[Moment | Rejection]:
    """Read `charades_sta_train.txt` or `charades_sta_test.txt`.

    Args:
        path: The annotation file.
        durations: Seconds by video id, see `read_charades_durations`.

    Yields:
        The moments in the order of the file, without a fine caption and with the number of the line, from 0, as
        `desc_id`; or a rejection for each unusable line.

    Raises:
        ValueError: The file is not UTF-8.
    """
    for place, line in lines_of(path):
        yield _moment_in_line(line.strip(), durations, place - 1, f"{Path(path).name}:{place}")


def read_charades_durations(path: str | Path) -> dict[str, float]:
    """Seconds by video id, from `Charades_v1_train.csv` or `Charades_v1_test.csv`.

    A row without a readable id or length gives no duration, and `read_charades_sta` refuses the moments of its video.

    Raises:
        ValueError: The table is not UTF-8, lacks the columns `id` and `length`, or has no readable row.
    """
    durations, unreadable = {}, []
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as table:
            rows = csv.reader(table)
            header = next(rows, [])
            if not {"id", "length"} <= set(header):
                raise ValueError(f"{path} lacks the columns id and length; give Charades_v1_train.csv or _test.csv")
            columns = header.index("id"), header.index("length")
            for row in _readable_rows(rows):
                try:
                    video_id, length = (row[column] for column in columns)
                    durations[identifier(video_id)] = number(length)
                except (ValueError, IndexError) as error:
                    unreadable.append(f"line {rows.line_num}: {error}")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error}); fetch it again") from None
    except csv.Error as error:
        raise ValueError(f"{path} is not a table ({error}); fetch it again") from None
    if not durations:
        first = f"; {unreadable[0]}" if unreadable else ""
        raise ValueError(f"{path} has no readable row{first}; fetch it again")
    return durations


def _readable_rows(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    # An empty row where the reader fails, for instance at a field of more than 128 KiB.
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except csv.Error:
            yield []


def _moment_in_line(line: str, durations: Mapping[str, float], desc_id: int, key: str) -> Moment | Rejection:
    found = LINE.fullmatch(line)
    if found is None:
        return Rejection(f"no line of the form VIDEO START END##sentence: {key}", line, key)
    try:
        start, end = number(found["start"]), number(found["end"])
    except ValueError as error:
        return Rejection(f"unreadable times: {error}: {key}", line, key)
    if found["video"] not in durations:
        return Rejection(f"no duration is known of the video: {key}", line, key)
    duration, caption = durations[found["video"]], found["sentence"].strip()
    return checked_moment(Moment(desc_id, found["video"], duration, start, end, caption, "", None), line, key)
