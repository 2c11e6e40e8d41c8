"""CSV for spreadsheets: a text that would be run as a formula stays a text."""

import re

import polars as pl

FORMULA = r"^\s*[=+\-@\uff0b\uff0d\uff1d\uff20]|^[\t\r\n]"
"""How a cell begins that a spreadsheet takes for a formula (the full-width signs count, too)."""


def as_csv(table: pl.DataFrame) -> str:
    r"""The table as CSV, with an apostrophe before every text and column name that begins as a formula does.

    Numbers stay as they are, also negative ones. An id such as `-Hv_d_vqJ00` begins as a formula and gets its
    apostrophe; programs should read the Parquet or JSON files instead.

    Example:
        >>> as_csv(pl.DataFrame({"label": ["=1+1", "a=b"], "map": [-0.5, 1.0]}))
        "label,map\n'=1+1,-0.5\na=b,1.0\n"

    Args:
        table: Columns of text, numbers and truth values.

    Returns:
        The text of a file with a header, in UTF-8 when it is written as such.
    """
    texts = table.with_columns((pl.selectors.categorical() | pl.selectors.enum()).cast(pl.String))
    column = pl.selectors.string()
    marked = texts.with_columns(pl.when(column.str.contains(FORMULA)).then("'" + column).otherwise(column).name.keep())
    return marked.rename(lambda name: f"'{name}" if re.search(FORMULA, name) else name).write_csv()
