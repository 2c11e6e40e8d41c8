"""CSV for spreadsheets: cells that begin as formulas do are texts, all others are as they were."""

import csv
import io

import polars as pl
import pytest

from hf_datasets.spreadsheets import as_csv


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1", "=cmd|' /C calc'!A0", "\uff1d1", '="a,b"']
)
def test_a_cell_or_a_name_that_begins_as_a_formula_does_gets_an_apostrophe(text):
    table = pl.DataFrame({"name": [text, "plain", None], "kind": pl.Series([text] * 3, dtype=pl.Categorical)})
    rows = list(csv.reader(io.StringIO(as_csv(table.with_columns(pl.lit(1).alias(text))), newline="")))
    assert rows[0] == ["name", "kind", f"'{text}"]
    assert rows[1] == [f"'{text}", f"'{text}", "1"]
    assert rows[2] == ["plain", f"'{text}", "1"]
    assert rows[3] == ["", f"'{text}", "1"]


def test_numbers_and_other_texts_stay_as_they_are():
    table = pl.DataFrame({"score": [-0.5, 1e-7], "count": [-1, 2], "text": ["a=b", "1-2"], "seen": [True, None]})
    assert as_csv(table) == table.write_csv()
