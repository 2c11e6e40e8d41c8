"""Results of variations by what a query asks for: the kind of change, and the one thing in which labels differ."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from hf_datasets.miniature.actions import ALL_ACTIONS
from hf_datasets.miniature.differences import SAME_TEXT, difference_between
from subtle.run.over_seeds import in_percent
from subtle.run.printing import show
from subtle.run.results import replacing
from subtle.table.differences import SHOWN, Result, read_queries

MORE = "more than one"
NOT_STATED = "not stated"


def groups_of(queries: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """The groups of each query: `query_id`, `change_type`, and `difference` where its labels are rendered ones.

    Args:
        queries: Rows of TF-CoVR.
    """
    rows = [
        {
            "query_id": query["query_id"],
            "change_type": query["change_type"] or NOT_STATED,
            "difference": difference_of(query["query_label"], query["target_label"]),
        }
        for query in queries
    ]
    return pl.DataFrame(rows, {"query_id": pl.String, "change_type": pl.String, "difference": pl.String})


def difference_of(source: str | None, target: str | None) -> str | None:
    """Count, direction, order, shape or more than one of them; None for labels that are not rendered."""
    if any(SAME_TEXT.get(label or "", label) not in ALL_ACTIONS for label in (source, target)):
        return None
    return difference_between(str(source), str(target)) or MORE


def by_group(results: Iterable[Result], groups: pl.DataFrame) -> pl.DataFrame:
    """The mean of `SHOWN` in each group of queries, with its deviation over seeds.

    Returns:
        `variation, kind ("change_type" or "difference"), group, queries, seeds, mean, mean_std`, the last null with
        one seed.
    """
    rows = []
    for result in results:
        tables = [read_queries(row).join(groups, on="query_id", how="left") for row in result.rows.values()]
        for kind in ("change_type", "difference"):
            for group in sorted({name for table in tables for name in table[kind].drop_nulls()}):
                own = [table.filter(pl.col(kind) == group)[SHOWN] for table in tables]
                means = np.array([values.mean() for values in own])
                deviation = float(means.std(ddof=1)) if len(means) > 1 else None
                row = {"variation": result.label, "kind": kind, "group": group, "queries": len(own[0])}
                rows.append({**row, "seeds": len(means), "mean": float(means.mean()), "mean_std": deviation})
    return pl.DataFrame(rows, infer_schema_length=None)


def write_groups(found: pl.DataFrame, output_dir: Path) -> None:
    """Write `groups.csv`, and print a table for each kind of groups."""
    with replacing(output_dir / "groups.csv") as draft:
        draft.write_bytes(found.write_csv().encode())
    for kind in dict.fromkeys(found["kind"]):
        own = found.filter(pl.col("kind") == kind)
        groups = own.select("group", "queries").unique(maintain_order=True)
        head = ["row", *(f"{name} ({queries:,})" for name, queries in groups.iter_rows())]
        cells = [
            [str(name[0]), *(in_percent(row, "mean") for row in rows.iter_rows(named=True))]
            for name, rows in own.group_by("variation", maintain_order=True)
        ]
        show(head, cells, f"{SHOWN.replace('map', 'mAP')} by {kind.replace('_', ' ')}, %")
