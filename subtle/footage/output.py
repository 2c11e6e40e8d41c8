"""Found moments as a table for people, JSON or CSV."""

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from subtle.running import CONTROL_CHARACTERS, visible

Say = Callable[[str], None]
FOUND_COLUMNS = ("video", "start_seconds", "end_seconds", "score", "label")
OF_SECOND_STEP = ("window_start_seconds", "window_end_seconds", "vector_score", "span_score", "rerank_score")
"""Where a refined moment was, and the score of each step; None where a step has no score."""
FORMULA = re.compile(r"^\s*[=+\-@\uff0b\uff0d\uff1d\uff20]|^[\t\r\n]")  # as in hf_datasets.spreadsheets


def records(found: Sequence[dict[str, Any]], *, with_ids: bool = False) -> list[dict[str, Any]]:
    """What is given of each moment; after a second step also what that changed, and replays where they are grouped."""
    rows = []
    for row in found:
        record = {name: row[name] for name in moment_columns(found)}
        if "replays" in row:
            record["replays"] = records(row["replays"], with_ids=with_ids)
        if with_ids:
            record["moment_id"] = row["moment_id"]
        rows.append(record)
    return rows


def line_records(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A record for each line: the replays of a moment beneath it, with its number."""
    lines = []
    for number, record in enumerate(records(found), start=1):
        replays = record.pop("replays", None)
        lines.append(record | ({} if replays is None else {"replay_of": None}))
        lines += [replay | {"replay_of": number} for replay in replays or ()]
    return lines


def moment_columns(found: Sequence[dict[str, Any]]) -> list[str]:
    """The columns of some moments."""
    return [*FOUND_COLUMNS, *(name for name in OF_SECOND_STEP if found and name in found[0])]


def as_json(found: Sequence[dict[str, Any]]) -> str:
    """A list of records, with the ids that `--more_like` and `--less_like` take."""
    text = json.dumps(records(found, with_ids=True), indent=2, ensure_ascii=False)
    return "\n".join(CONTROL_CHARACTERS.sub(lambda one: f"\\u{ord(one[0]):04x}", line) for line in text.split("\n"))


def moments_as_csv(found: Sequence[dict[str, Any]]) -> str:
    r"""CSV with a header; a text that a spreadsheet would run has an apostrophe before it, and none moves a cursor.

    >>> row = {"video": "a.mp4", "start_seconds": 0.0, "end_seconds": 4.0, "score": 0.5, "label": "=1+1"}
    >>> moments_as_csv([row])
    "video,start_seconds,end_seconds,score,label\na.mp4,0.0,4.0,0.5,'=1+1"
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    rows = line_records(found)
    writer.writerow(rows[0] if rows else FOUND_COLUMNS)
    for row in rows:
        writer.writerow([csv_value(value) for value in row.values()])
    return file.getvalue().rstrip("\n")


def csv_value(value: Any) -> Any:
    """A value of a CSV file."""
    if not isinstance(value, str):
        return value
    return visible(f"'{value}" if FORMULA.search(value) else value, kept="\n\t")


def as_table(found: Sequence[dict[str, Any]]) -> str:
    """Aligned columns; what would move a terminal's cursor is shown as text."""
    if not found:
        return "no moment fits"
    lines = line_records(found)
    names = list(lines[0])
    rows = [names, *([shown(value) for value in row.values()] for row in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(names))]
    is_number = [name not in {"video", "label"} for name in names]
    aligned = [
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, is_number, strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join(aligned)


def shown(value: Any) -> str:
    r"""A value as a person reads it.

    >>> shown(None), shown(0.123456), shown("red\x1b[31m")
    ('', '0.123', 'red\\x1b[31m')
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}"
    return visible(str(value))


OUTPUT_FORMATS = {"table": as_table, "json": as_json, "csv": moments_as_csv}
