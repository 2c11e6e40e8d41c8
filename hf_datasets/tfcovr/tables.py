"""Tables that people hand in: read as text, with an error for a file that is none and a rejection for each bad row."""

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import polars as pl

from hf_datasets.records import Rejection


def read_table(path: Path) -> pl.DataFrame:
    """Read a csv file, all columns as text, or a Parquet file as it is.

    Raises:
        ValueError: The file is empty, damaged or not UTF-8.
    """
    try:
        table = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path, infer_schema=False)
    except pl.exceptions.NoDataError:
        raise ValueError(f"{path} is empty; fetch it again") from None
    except pl.exceptions.PolarsError as error:
        cure = "fetch it again, or save it as UTF-8 with the same number of fields in every row"
        raise ValueError(f"{path} cannot be read ({error}); {cure}") from None
    if table.is_empty():
        raise ValueError(f"{path} has no row; fetch it again")
    return table


def check_columns(
    columns: Collection[str], required: Collection[str], *, source: str, optional: Collection[str] = ()
) -> Iterator[Rejection]:
    """Check which columns a table has.

    Yields:
        A rejection for each column that is neither required nor optional, because it is left out.

    Raises:
        ValueError: A required column is missing.
    """
    missing = [name for name in required if name not in columns]
    if missing:
        raise ValueError(f"{source} has no column {', '.join(missing)}; it has {', '.join(columns)}")
    for name in columns:
        if name not in required and name not in optional:
            yield Rejection(f"unknown column: {name!r} of {source} is left out", name, name)


def judge(
    table: pl.DataFrame, checks: Mapping[str, pl.Expr], *, source: str, key: str
) -> tuple[pl.DataFrame, list[Rejection]]:
    """Refuse the rows that fail a check.

    Args:
        table: The rows, in the order of the file.
        checks: `kind; cure` -> whether a row fails; the first that it fails is its reason.
        source: The file or folder, for the messages.
        key: The column that identifies a row.

    Returns:
        The rows that fail none, and a rejection for each other one that names its row (from 1) and the cure.

    Raises:
        ValueError: No row is left.
    """
    reason = pl.coalesce(*(pl.when(failed).then(pl.lit(why)) for why, failed in checks.items()))
    judged = table.with_row_index("row", offset=1).with_columns(reason=reason)
    rejections = []
    for row in judged.filter(pl.col("reason").is_not_null()).iter_rows(named=True):
        kind, _, cure = row.pop("reason").partition("; ")
        message = f"{kind}: row {row.pop('row')} of {source}, {key} {row[key]!r}; {cure}"
        rejections.append(Rejection(message, json.dumps(row, default=str, ensure_ascii=False), str(row[key])))
    accepted = judged.filter(pl.col("reason").is_null()).drop("row", "reason")
    if accepted.is_empty():
        why = f"; the first: {rejections[0].reason}" if rejections else ""
        raise ValueError(f"{source} has no usable row among {len(table)}{why}")
    return accepted, rejections


def is_empty(column: str) -> pl.Expr:
    """Whether a text is null or has no character but white space."""
    return pl.col(column).fill_null("").str.strip_chars().eq("")
