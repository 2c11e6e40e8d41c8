"""Write an HTML page about an evaluation: tables, mistakes, worst queries with their clips."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from datasets import Dataset

from hf_datasets.drafts import replacing_files, write_text
from hf_datasets.spreadsheets import as_csv
from subtle.evaluate.options import ReportConfig
from subtle.run.data import load_split
from subtle.run.intervals import interval_of_mean
from subtle.run.over_seeds import in_percent
from subtle.run.pages import render_page
from subtle.run.printing import percent
from subtle.run.results import read_json
from subtle.run.shared_config import DataConfig
from subtle.tfcovr.measure import CUTOFFS
from subtle.tfcovr.shown_queries import NOT_STATED, clip_classes, name_targets, select_queries, show_queries
from subtle.tuning.verdict import average_precisions

MOST_ANSWERS, MOST_LABELS = 12, 10
"""Of a query, and in the table of the easiest and the hardest."""
NUM_LABELS, NUM_OTHERS, NUM_PAIRS, NUM_SHADES = 12, 6, 10, 5
"""Of the tables of mistakes: rows, columns beyond these, pairs, and shades of a cell."""
NOTHING = "(no clip was ranked)"


def read_evaluation(folder: Path) -> tuple[dict[str, Any], pl.DataFrame]:
    """The results, and the predictions with `ap`, each query's average precision at the last cut-off."""
    missing = [name for name in ("results.json", "predictions.parquet") if not (folder / name).is_file()]
    if missing:
        raise SystemExit(
            f"{folder} has no {' and no '.join(missing)}; make it with `python recipes/evaluate.py tfcovr`"
        )
    results = read_json(folder / "results.json", config=dict, figures=dict)
    if "protocol" not in results["config"] or not isinstance(results.get("coverage"), dict):
        raise SystemExit(
            f"{folder / 'results.json'} is not what evaluate.py tfcovr writes; give the folder that it wrote to"
        )
    predictions = pl.read_parquet(folder / "predictions.parquet")
    values = average_precisions(predictions, CUTOFFS, results["config"]["protocol"])
    return results, predictions.with_columns(ap=pl.Series(values[:, -1], dtype=pl.Float64))


def as_evaluated(config: ReportConfig, results: dict[str, Any]) -> ReportConfig:
    """The configuration with the evaluation's dataset and split wherever it does not name its own."""
    evaluated = {"split": "test"} | {field.name: field.default for field in fields(DataConfig)} | results["config"]
    names = ["split", *(field.name for field in fields(DataConfig))]
    return replace(config, **{name: evaluated[name] for name in names if getattr(config, name) is None})


def load_evaluated_clips(config: ReportConfig, predictions: pl.DataFrame) -> pl.DataFrame:
    """The clips of the split, which must be those that were evaluated."""
    source = ", ".join(f"{field.name}={getattr(config, field.name)!r}" for field in fields(DataConfig))
    hint = "where it has moved, or is another, give these flags, such as --data_dir"
    assert config.split is not None  # `as_evaluated` filled it
    try:
        clips: Dataset = load_split(config, config.split, clips=True)
    except SystemExit as error:
        raise SystemExit(f"{error}\nThe report is on {source}; {hint}") from error
    table: pl.DataFrame = clips.to_polars()
    if not predictions["query_clip_id"].is_in(table["clip_id"].to_list()).any():
        raise SystemExit(
            f"none of the evaluated queries' clips, such as {predictions['query_clip_id'][0]!r}, is in the split "
            f"{config.split!r} of {source}; {hint}"
        )
    return table


def interval_text(values: np.ndarray, videos: Sequence[str]) -> list[str]:
    """The interval of each column's mean over long videos and seeds, in percent; empty where all are of one video.

    Args:
        values: `(seeds, queries, columns)`; the released protocol has some that are not finite, or above 1.
        videos: That of each query.
    """
    if not values.size or not np.isfinite(values).all():
        return [""] * values.shape[-1]
    columns, share = np.moveaxis(values, -1, 0), bool(values.max() <= 1)
    return [interval_of_mean(column, videos, share=share).bounds_in_percent() for column in columns]


def system_rows(folder: Path, results: dict[str, Any], videos: dict[str, str]) -> list[dict[str, Any]]:
    """One row per system: mean, deviation over seeds where there are several, and interval over videos and seeds."""
    rows = []
    for name, values in results["figures"].items():
        found = system_values(folder, name, results)
        intervals = [""] * len(CUTOFFS)
        if found is not None:
            intervals = interval_text(found[0], [videos.get(clip, clip) for clip in found[1]])
        means = [in_percent(values, f"map@{k}", digits=2) for k in CUTOFFS]
        rows.append({"name": name, "cells": list(zip(means, intervals, strict=True))})
    return rows


def system_values(folder: Path, name: str, results: dict[str, Any]) -> tuple[np.ndarray, list[str]] | None:
    """A system's average precisions `(seeds, queries, cut-offs)` and the queries' clips; None without its rankings."""
    num_runs = len(results.get("by_seed", {}).get(name, [name]))
    stems = {str(number) for number in range(num_runs)}
    files = [
        path
        for path in sorted((folder / "predictions").glob("*/*.parquet"))
        if path.parent.name == name.replace(" ", "-") and path.stem in stems
    ]
    if len(files) < num_runs:
        if num_runs > 1 or name != next(iter(results["figures"])):
            return None
        files = [folder / "predictions.parquet"]
    protocol = results["config"]["protocol"]
    tables = [pl.read_parquet(path) for path in files]
    clips: list[str] = tables[0]["query_clip_id"].to_list()
    if any(table["query_clip_id"].to_list() != clips for table in tables):
        return None  # seeds that were asked other queries
    return np.stack([average_precisions(table, CUTOFFS, protocol) for table in tables]), clips


def breakdown(predictions: pl.DataFrame, column: str) -> pl.DataFrame:
    """Queries and mean average precision per value of `column`, lowest first."""
    grouped = predictions.group_by(name=column).agg(
        queries=pl.len(), value=pl.col("ap").mean(), values="ap", videos="video", target=pl.col("target").first()
    )
    return grouped.sort("value", "name")


def table_rows(table: pl.DataFrame, *, name: str = "name") -> list[dict[str, Any]]:
    return [
        {
            "name": row[name] or NOT_STATED,
            "queries": row["queries"],
            "value": percent(row["value"]),
            "interval": interval_text(np.array(row["values"])[None, :, None], row["videos"])[0],
        }
        for row in table.iter_rows(named=True)
    ]


def confusion_counts(predictions: pl.DataFrame, class_of: Mapping[str, str]) -> pl.DataFrame:
    """How often (`count`) a query for `true` got a clip of `predicted` at rank 1.

    Args:
        predictions: One row per query with `target` (the name of what it asks for), `target_clip_ids` and
            `ranked_clip_ids`.
        class_of: Clip id -> the name of what it shows; a clip that is not in it is named by its id.
    """
    pairs = []
    for target, targets, ranked in predictions.select("target", "target_clip_ids", "ranked_clip_ids").iter_rows():
        first = ranked[0] if ranked else None
        predicted = NOTHING if first is None else target if first in targets else class_of.get(first, first)
        pairs.append((target, predicted))
    table = pl.DataFrame(pairs, {"true": pl.String, "predicted": pl.String}, orient="row")
    return table.group_by("true", "predicted").len("count").sort("true", "predicted")


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


def coverage_sentence(results: dict[str, Any]) -> str:
    coverage = next(iter(results["coverage"].values()))
    return (
        f"{coverage['queries_ranked']:,} of {coverage['queries']:,} queries could be ranked, against "
        f"{coverage['gallery_clips_ranked']:,} of {coverage['gallery_clips']:,} clips; "
        f"{coverage['targets_in_gallery']:,} of {coverage['targets']:,} right answers are among them."
    )


def render(config: ReportConfig) -> tuple[str, pl.DataFrame]:
    """The page, and the mean average precision of every target label."""
    folder = Path(config.evaluation_dir)
    results, predictions = read_evaluation(folder)
    config = as_evaluated(config, results)
    clips = load_evaluated_clips(config, predictions)
    videos = dict(clips.select("clip_id", "video_id").iter_rows())
    video = pl.col("query_clip_id").replace_strict(videos, default=pl.col("query_clip_id"))
    predictions = name_targets(predictions, clips).with_columns(video=video)
    per_label = breakdown(predictions, "target_label")
    ends = per_label
    if len(per_label) > MOST_LABELS:
        ends = pl.concat([per_label.head(MOST_LABELS // 2), per_label.tail(MOST_LABELS // 2)])
    counts = confusion_counts(predictions, clip_classes(clips))
    drawn = select_queries(predictions, num_queries=config.num_queries, seed=config.seed)
    shown = [query | {"ap": percent(query["ap"])} for query in show_queries(drawn, clips, ranks=MOST_ANSWERS)]
    page = render_page(
        "report.html",
        title=config.title,
        data={"dataset": config.dataset, "configuration": config.dataset_config, "split": config.split},
        summary=coverage_sentence(results),
        shown=next(iter(results["figures"])),
        protocol=results["signature"],
        cutoffs=CUTOFFS,
        systems=system_rows(folder, results, videos),
        change_types=table_rows(breakdown(predictions, "change_type")),
        labels=table_rows(ends, name="target"),
        num_labels=len(per_label),
        confusion=confusion_table(counts),
        pairs=most_confused(counts),
        queries=shown,
        num_queries=len(predictions),
        provenance=json.dumps({k: v for k, v in results.items() if k != "by_seed"}, indent=2),
    )
    return page, per_label.select("name", "queries", "value", description="target")


def main(config: ReportConfig) -> None:
    page, per_label = render(config)
    output_dir = Path(config.output_dir)
    with replacing_files(output_dir) as draft:
        write_text(draft / "per_label.csv", as_csv(per_label))
        write_text(draft / "index.html", page)
    print(f"report: {(output_dir / 'index.html').resolve()}")
