"""A csv file that Polars refuses as a whole, read row by row: malformed rows are rejected, the others are kept."""

import csv
from pathlib import Path

import polars as pl

from hf_datasets.records import Rejection

ROW = "row of the file"
"""The column with the number of a row, from 1, without the header."""


def read_damaged_csv(path: Path, *, separator: str = ",") -> tuple[pl.DataFrame, list[Rejection]]:
    """Read the readable rows of a csv file.

    Args:
        path: The file.
        separator: The character between its fields.

    Returns:
        The rows, all columns as text, an empty field null, with the column `ROW`; a row that is too short is filled
        with nulls. And a rejection, with the row's number, for each that has more fields than the header, a field of
        more than 128 KiB, or bytes that are not UTF-8.

    Raises:
        ValueError: The header cannot be read, or a quote is never closed; file and row are named.
    """
    rows: list[list[str | None]] = []
    rejections = []
    # Bytes that are not UTF-8 come in as half characters, which no file can hold, so that their row is known.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file, delimiter=separator, strict=True)
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
                raw = separator.join(fields)[:2_000]
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
