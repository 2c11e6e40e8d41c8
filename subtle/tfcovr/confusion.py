"""Which targets are mistaken for which at rank 1, as counts and as a table."""

from collections.abc import Mapping
from typing import Any

import polars as pl

NUM_LABELS = 12
NUM_OTHERS = 6
NUM_PAIRS = 10
NUM_SHADES = 5
NOTHING = "(no clip was ranked)"


def confusion_counts(predictions: pl.DataFrame, class_of: Mapping[str, str]) -> pl.DataFrame:
    """How often (`count`) a query for `true` got a clip of `predicted` at rank 1.

    Args:
        predictions: One row per query with `target` (the name of what it asks for), `target_clip_ids` and
            `ranked_clip_ids`.
        class_of: Clip id -> the name of what it shows; a clip that is not in it is named by its id.
    """
    columns = predictions.select("target", "target_clip_ids", "ranked_clip_ids").iter_rows()
    pairs = [(target, predicted_name(target, targets, ranked, class_of)) for target, targets, ranked in columns]
    table = pl.DataFrame(pairs, {"true": pl.String, "predicted": pl.String}, orient="row")
    return table.group_by("true", "predicted").len("count").sort("true", "predicted")


def predicted_name(target: str, targets: list[str], ranked: list[str], class_of: Mapping[str, str]) -> str:
    """The name of the clip at rank 1; that of the target where it is a right answer."""
    if not ranked:
        return NOTHING
    return target if ranked[0] in targets else class_of.get(ranked[0], ranked[0])


def most_confused(counts: pl.DataFrame) -> list[dict[str, Any]]:
    """The pairs that are mistaken most often: `true`, `predicted`, `count`, and `total`, the queries for `true`."""
    totals = counts.with_columns(total=pl.col("count").sum().over("true"))
    wrong = totals.filter(pl.col("true") != pl.col("predicted"))
    return wrong.sort("count", "true", "predicted", descending=[True, False, False]).head(NUM_PAIRS).to_dicts()


def confusion_table(counts: pl.DataFrame) -> dict[str, Any] | None:
    """The targets that are mistaken most, row by row, against the predictions; None where nothing is mistaken.

    Returns:
        `columns`: names; `rows`: `name`, `total` (its queries, also those of columns left out), and `cells` with
        `count`, `shade` (0 for none to `NUM_SHADES`) and `right`.
    """
    wrong = counts.filter(pl.col("true") != pl.col("predicted"))
    if wrong.is_empty():
        return None
    names = most(wrong, "true")[:NUM_LABELS]
    among = wrong.filter(pl.col("true").is_in(names) & ~pl.col("predicted").is_in(names))
    columns = names + most(among, "predicted")[:NUM_OTHERS]
    table = {(true, predicted): count for true, predicted, count in counts.iter_rows()}
    totals = dict(counts.group_by("true").agg(pl.col("count").sum()).iter_rows())
    largest = max(table.get((row, column), 0) for row in names for column in columns)
    rows = [
        {
            "name": row,
            "total": totals[row],
            "cells": [
                {
                    "count": (count := table.get((row, column), 0)),
                    "shade": -(-NUM_SHADES * count // largest),
                    "right": row == column,
                }
                for column in columns
            ],
        }
        for row in names
    ]
    return {"columns": columns, "rows": rows}


def most(counts: pl.DataFrame, column: str) -> list[str]:
    """The values of a column, those with the highest count first."""
    summed = counts.group_by(column).agg(pl.col("count").sum())
    return summed.sort("count", column, descending=[True, False])[column].to_list()
