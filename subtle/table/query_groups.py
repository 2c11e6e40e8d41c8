"""Results of variations by what a query asks for: the kind of change, what labels differ in, and which were trained."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl

from hf_datasets.drafts import replacing
from hf_datasets.miniature.actions import ALL_ACTIONS
from hf_datasets.miniature.differences import SAME_TEXT_LABELS, difference_between
from subtle.run.intervals import interval_of_mean
from subtle.run.over_seeds import in_percent
from subtle.run.printing import show
from subtle.table.differences import MAIN_METRIC, VariationResult, read_queries
from subtle.tfcovr.shown_queries import NOT_STATED

MORE = "more than one"
GROUPINGS = ("change_type", "difference", "trained_labels")


def groups_of(queries: Iterable[Mapping[str, Any]], held_out: Mapping[str, str] = MappingProxyType({})) -> pl.DataFrame:
    """The groups of each query: `query_id`, `target_label` and `GROUPINGS`.

    Args:
        queries: Rows of TF-CoVR.
        held_out: What `measure.held_out_groups` gave.

    Returns:
        With `difference` where its labels are rendered ones, and `trained_labels` where labels are held out.
    """
    rows = [
        {
            "query_id": query["query_id"],
            "target_label": query["target_label"],
            "change_type": query["change_type"] or NOT_STATED,
            "difference": difference_of(query["query_label"], query["target_label"]),
            "trained_labels": held_out.get(query["query_id"]),
        }
        for query in queries
    ]
    return pl.DataFrame(rows, dict.fromkeys(("query_id", "target_label", *GROUPINGS), pl.String))


def difference_of(source: str | None, target: str | None) -> str | None:
    """Count, direction, order, shape or more than one of them; None for labels that are not rendered."""
    if any(SAME_TEXT_LABELS.get(label or "", label) not in ALL_ACTIONS for label in (source, target)):
        return None
    return difference_between(str(source), str(target)) or MORE


def by_group(results: Iterable[VariationResult], groups: pl.DataFrame) -> pl.DataFrame:
    """The mean of `MAIN_METRIC` in each group of queries, with its deviation over seeds, and its interval.

    Returns:
        `variation, kind (of GROUPINGS), group, queries, seeds, mean, mean_std, low, high`. The deviation is null with
        one seed. The interval holds 95 %; of that over long videos and seeds and that over targets' labels and seeds it
        is the wider one, and null where both have but one.
    """
    rows = []
    for result in results:
        tables = [
            read_queries(row).join(groups, on="query_id", how="left", maintain_order="left")
            for row in result.rows.values()
        ]
        for kind in GROUPINGS:
            for group in sorted({name for table in tables for name in table[kind].drop_nulls()}):
                parts = [table.filter(pl.col(kind) == group) for table in tables]
                values = np.stack([part[MAIN_METRIC].to_numpy() for part in parts])
                means = values.mean(1)
                drawn = [parts[0][name].to_list() for name in ("video_id", "target_label")]
                over = [interval_of_mean(values, one, share=True) for one in drawn]
                bounds = [(one.low, one.high) for one in over if one.low is not None and one.high is not None]
                low, high = max(bounds, key=lambda both: both[1] - both[0], default=(None, None))
                deviation = float(means.std(ddof=1)) if len(means) > 1 else None
                row = {"variation": result.label, "kind": kind, "group": group, "queries": values.shape[1]}
                row |= {"seeds": len(means), "mean": float(means.mean()), "mean_std": deviation}
                rows.append({**row, "low": low, "high": high})
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
        show(head, cells, f"{MAIN_METRIC.replace('map', 'mAP')} by {kind.replace('_', ' ')}, %")
