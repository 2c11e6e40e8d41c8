"""User-supplied tables: read as text, with an error for an unreadable file and a rejection for each bad row."""

import csv
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from hf_datasets.class_labels import label_names
from hf_datasets.records import Rejection

ROW = "row of the file"
"""The column with the number of a row, from 1, without the header."""
REASON = "reason of the refusal"
SPAN = ("start_seconds", "end_seconds")
"""The columns of a stretch of a video."""


def read_table(path: Path) -> tuple[pl.DataFrame, list[Rejection]]:
    """Read a csv file, all columns as text, or a Parquet file as it is.

    Returns:
        The rows with their number in the column `ROW`, and a rejection for each malformed row of a csv file.

    Raises:
        ValueError: The file is empty or damaged as a whole.
    """
    rejections: list[Rejection] = []
    try:
        if path.suffix == ".parquet":
            table = pl.read_parquet(path).drop(ROW, strict=False).with_row_index(ROW, offset=1)
        else:
            table, rejections = _read_csv(path)
    except pl.exceptions.NoDataError:
        raise ValueError(f"{path} is empty; fetch it again") from None
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ValueError(f"{path} cannot be read ({error}); fetch it again") from None
    if table.is_empty():
        why = f"; the first: {rejections[0].reason}" if rejections else ""
        raise ValueError(f"{path} has no row; fetch it again{why}")
    return table, rejections


def _read_csv(path: Path) -> tuple[pl.DataFrame, list[Rejection]]:
    try:
        table = pl.read_csv(path, infer_schema=False)
    except pl.exceptions.NoDataError:
        raise
    except pl.exceptions.PolarsError:
        return _read_damaged_csv(path)
    return table.drop(ROW, strict=False).with_row_index(ROW, offset=1), []


def _read_damaged_csv(path: Path) -> tuple[pl.DataFrame, list[Rejection]]:
    """Read the readable rows of a csv file that Polars refuses as a whole, an empty field as null.

    Returns:
        The rows; one that is too short is filled with nulls. And a rejection, with the row's number, for each that has
        more fields than the header, a field of more than 128 KiB, or bytes that are not UTF-8.

    Raises:
        ValueError: The header cannot be read, or a quote is never closed; file and row are named.
    """
    rows: list[list[str | None]] = []
    rejections = []
    # Bytes that are not UTF-8 come in as half characters, which no file can hold, so that their row is known.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, [])
        except csv.Error as error:
            raise ValueError(f"{path} has no readable header ({error}); fetch it again") from None
        if len(set(header)) < len(header) or _fault(header, len(header)):
            raise ValueError(f"{path} has no readable header; give each column one name, in UTF-8")
        number = 0
        while True:
            number += 1
            fields: list[str] = []
            try:
                fields = next(reader)
                fault = _fault(fields, len(header))
            except StopIteration:
                break
            except csv.Error as error:
                if "unexpected end" in str(error):
                    raise ValueError(
                        f"{path}, row {number}: a quote is opened and never closed; close it, "
                        'and write "" for a quote in a text'
                    ) from None
                fault = str(error)
            if fault:
                raw = ",".join(fields)[:2_000]
                reason = f"unreadable row: row {number} of {path}, {fault}; save it again as UTF-8"
                rejections.append(Rejection(reason, raw, str(number)))
            elif fields:
                missing = [None] * (len(header) - len(fields))
                rows.append([str(number), *(field or None for field in fields), *missing])
            else:
                number -= 1  # an empty line is not a row
    frame = pl.DataFrame(rows, schema=dict.fromkeys([ROW, *header], pl.String), orient="row")
    return frame.with_columns(pl.col(ROW).cast(pl.UInt32)), rejections


def _fault(fields: list[str], columns: int) -> str | None:
    if len(fields) > columns:
        return f"{len(fields)} fields where the header has {columns}"
    if any("\ud800" <= character <= "\udfff" for field in fields if not field.isascii() for character in field):
        return "bytes that are not UTF-8"
    return None


def read_text_table(path: Path) -> tuple[pl.DataFrame, list[Rejection]]:
    """Read a user's table with all its columns as text: csv, tsv, JSON, JSON lines or Parquet, by the ending.

    Returns:
        The rows, and a rejection for each line of a `.jsonl` file that is not a JSON object.

    Raises:
        ValueError: The file has no row, is damaged or is not UTF-8, or a column of it holds no plain values.
    """
    rejections: list[Rejection] = []
    try:
        match path.suffix.lower():
            case ".jsonl":
                table, rejections = _read_json_lines(path)
            case ".json":
                table = _read_json(path)
            case ".parquet":
                table = _read_parquet(path).select(pl.all().cast(pl.String))
            case suffix:
                separator = "\t" if suffix == ".tsv" else _separator(path)
                table = pl.read_csv(path, separator=separator, infer_schema=False)
                if separator != ",":  # of a spreadsheet in a language that writes decimals so
                    seconds = pl.col("^.*_seconds$")
                    table = table.with_columns(seconds.str.replace(r"^([\s\d:]*\d),(\d+\s*)$", "$1.$2"))
    except pl.exceptions.NoDataError:
        raise ValueError(f"{path} is empty; write a header and one row per clip") from None
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        cure = "save it as UTF-8 with plain values and the same number of fields in every row"
        raise ValueError(f"{path} cannot be read ({error}); {cure}") from None
    if table.is_empty():
        why = f"; the first line: {rejections[0].reason}" if rejections else ""
        raise ValueError(f"{path} has no row; write one row per clip{why}")
    return table, rejections


def _separator(path: Path) -> str:
    with path.open(encoding="utf-8-sig") as file:
        header = file.readline()
    return ";" if header.count(";") > header.count(",") else ","


def _read_parquet(path: Path) -> pl.DataFrame:
    table = pl.read_parquet(path)
    for name, names in label_names(pq.read_schema(path)).items():  # a table that was written with `datasets`
        named = pl.col(name).replace_strict(dict(enumerate(names)), default=None, return_dtype=pl.String)
        table = table.with_columns(named)
    return table


def _read_json_lines(path: Path) -> tuple[pl.DataFrame, list[Rejection]]:
    rows, rejections = [], []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            reason = f"not a JSON object: line {number} of {path}; write one object per line"
            rejections.append(Rejection(reason, line, str(number)))
    return table_of_objects(path, rows), rejections


def _read_json(path: Path) -> pl.DataFrame:
    try:
        rows = json.loads(path.read_text(encoding="utf-8-sig"))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read as JSON ({error}); write a list of objects") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} is not a list of JSON objects; write one object per clip: [{{...}}, ...]")
    return table_of_objects(path, rows)


def table_of_objects(path: Path, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """JSON objects as a table of texts, with a column for each name that one of them has.

    Raises:
        ValueError: A text is not valid; the file is named.
    """
    texts = [
        {name: value if value is None or isinstance(value, str) else json.dumps(value) for name, value in row.items()}
        for row in rows
    ]
    try:
        return pl.DataFrame(texts, schema={name: pl.String for row in texts for name in row})
    except UnicodeEncodeError as error:
        what = f"half a character, {error.object[:80]!r}"
        raise ValueError(f"{path} cannot be read ({what}); save it as UTF-8") from error


def check_columns(
    columns: Collection[str],
    required: Collection[str],
    *,
    source: str,
    optional: Collection[str] = (),
    aliases: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Rejection]:
    """Check which columns a table has.

    Args:
        columns: Of the table.
        required: Those that it needs.
        source: The file, for the messages.
        optional: Those that it may have.
        aliases: Other names of required ones, which the message gives where one is missing.

    Yields:
        A rejection for each column that is neither required nor optional, because it is left out.

    Raises:
        ValueError: A required column is missing.
    """
    missing = []
    for name in required:
        others = ", ".join(other for other, meant in aliases.items() if meant == name)
        if name not in columns:
            missing.append(f"{name} (or {others})" if others else name)
    if missing:
        raise ValueError(f"{source} has no column {', '.join(missing)}; it has {', '.join(columns)}")
    for name in columns:
        if name not in required and name not in optional and name != ROW:
            yield Rejection(f"unknown column: {name!r} of {source} is left out", name, name)


def check_rows(
    table: pl.DataFrame, checks: Mapping[str, pl.Expr], *, source: str, key: str
) -> tuple[pl.DataFrame, list[Rejection]]:
    """Refuse the rows that fail a check.

    Args:
        table: The rows, in the order of the file, numbered where it has the column `ROW`.
        checks: `kind; cure` -> whether a row fails; the first that it fails is its reason.
        source: The file or folder, for the messages.
        key: The column that identifies a row.

    Returns:
        The rows that pass every check, and a rejection for each other row with its number (from 1) and the cure.

    Raises:
        ValueError: No row is left.
    """
    reason = pl.coalesce(*(pl.when(failed).then(pl.lit(why)) for why, failed in checks.items()))
    numbered = table if ROW in table.columns else table.with_row_index(ROW, offset=1)
    judged = numbered.with_columns(reason.alias(REASON))
    rejections = []
    for row in judged.filter(pl.col(REASON).is_not_null()).iter_rows(named=True):
        kind, _, cure = row.pop(REASON).partition("; ")
        place = f"row {row.pop(ROW)} of {source}"
        message = f"{kind}: {place}, {key} {row[key]!r}; {cure}"
        raw = json.dumps(row, default=str, ensure_ascii=False)
        rejections.append(Rejection(message, raw, str(row[key] or place)))
    accepted = judged.filter(pl.col(REASON).is_null()).drop(ROW, REASON)
    if accepted.is_empty():
        why = f"; the first: {rejections[0].reason}" if rejections else ""
        raise ValueError(f"{source} has no usable row among {len(table)}{why}")
    return accepted, rejections


def is_empty(column: str) -> pl.Expr:
    """Whether a text is null or has no character but white space."""
    return pl.col(column).fill_null("").str.strip_chars().eq("")


def as_seconds(column: str) -> pl.Expr:
    """Times as numbers: of seconds such as `12.5`, or of a clock with hours such as `00:00:12.50`; else null."""
    clock = pl.col(column).str.extract_groups(r"^(?P<hours>\d+):(?P<minutes>[0-5]\d):(?P<seconds>[0-5]\d(\.\d+)?)$")
    hours, minutes, seconds = (
        clock.struct.field(name).cast(pl.Float64, strict=False) for name in ("hours", "minutes", "seconds")
    )
    return pl.coalesce(pl.col(column).cast(pl.Float64, strict=False), 3600 * hours + 60 * minutes + seconds)


def with_times(table: pl.DataFrame, required: Sequence[str], optional: Sequence[str]) -> pl.DataFrame:
    """The columns of a user's table of texts: stripped, null where nothing is left, `..._seconds` as numbers.

    What was written there instead of a number is in `said_..._seconds`, for `time_checks`.
    """
    missing = [pl.lit(None, pl.String).alias(name) for name in optional if name not in table.columns]
    text = table.with_columns(missing).select(pl.col(*required, *optional).str.strip_chars())
    text = text.with_columns(pl.when(pl.all() != "").then(pl.all()))
    times = [name for name in text.columns if name.endswith("_seconds")]
    said = [pl.col(name).alias(f"said_{name}") for name in times]
    return text.with_columns(*said, *(as_seconds(name).alias(name) for name in times))


def time_checks(*spans: tuple[str, str]) -> dict[str, pl.Expr]:
    """For `check_rows`: which rows of `with_times` have times that are no numbers, or no spans."""
    is_number = [pl.col(f"said_{name}").is_null() | pl.col(name).is_not_null() for span in spans for name in span]
    are_spans = [is_span(pl.col(start), pl.col(end)) for start, end in spans]
    return {
        "time that is not a number; write seconds such as 12.5 or a time such as 00:00:12.50, or leave both empty for "
        "the whole video": ~pl.all_horizontal(is_number),
        "unusable span; it is 0 <= start_seconds < end_seconds, or both are empty for the whole video": (
            ~pl.all_horizontal(are_spans)
        ),
    }


def is_span(start: pl.Expr, end: pl.Expr) -> pl.Expr:
    """Whether two times are a stretch of a video, or both null: the whole file."""
    whole = start.is_null() & end.is_null()
    return whole | ((start >= 0) & (start < end) & end.is_finite()).fill_null(False)
