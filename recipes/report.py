"""Make one HTML page from an evaluation: tables, breakdowns, confusions, and a gallery of playable clips.

    python recipes/report.py
    python recipes/report.py --evaluation_dir outputs/evaluation --output_dir outputs/report --num_queries 30

Reads what `evaluate_tfcovr.py` wrote and the clips of the data set; writes `index.html` and `per_label.csv`. The page
carries its clips and pictures with it, so it opens from disk and can be sent on; where the videos must stay where
they are, use `--num_queries 0`. About 10 s for the miniature.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import evaluate
import jinja2
import polars as pl
from clip_encoding import encode_clip
from config import parse_config
from confusion import as_png, confusion_counts, draw_confusion
from queries import DataConfig, load_split
from ranking import CUTOFFS
from results import write_text
from tqdm import tqdm

import metrics  # noqa: F401 - registers the metrics' names

LAST = CUTOFFS[-1]


@dataclass
class ReportConfig(DataConfig):
    """What to report on and how much of it to show."""

    evaluation_dir: str = "outputs/evaluation"
    output_dir: str = "outputs/report"
    split: str = "test"
    title: str = "Composed video retrieval"
    num_queries: int = 12
    ranks: int = 5
    num_labels: int = 10
    seed: int = 0


def read_evaluation(folder: Path) -> tuple[dict[str, Any], pl.DataFrame]:
    """The results, and the predictions with `ap`, each query's average precision at the last cut-off."""
    missing = [name for name in ("results.json", "predictions.parquet") if not (folder / name).is_file()]
    if missing:
        raise SystemExit(
            f"{folder} has no {' and no '.join(missing)}; make it with `python recipes/evaluate_tfcovr.py`"
        )
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    predictions = pl.read_parquet(folder / "predictions.parquet")
    evaluate.logging.set_verbosity_error()  # it warns that the installed metric is the one it uses
    measured = evaluate.load("map_at_k").compute(
        predictions=predictions["ranked_clip_ids"].to_list(),
        references=predictions["target_clip_ids"].to_list(),
        k=LAST,
        per_query=True,
        protocol=results["config"]["protocol"],
    )
    return results, predictions.with_columns(ap=pl.Series(measured["per_query"][f"map@{LAST}"]))


def percent(value: float) -> str:
    return f"{100 * value:.2f}"


def breakdown(predictions: pl.DataFrame, column: str) -> pl.DataFrame:
    """Queries and mean average precision per value of `column`, lowest first."""
    grouped = predictions.group_by(name=column).agg(queries=pl.len(), value=pl.col("ap").mean())
    return grouped.sort("value", "name")


def described_targets(predictions: pl.DataFrame, clips: pl.DataFrame) -> dict[str, str]:
    """Target label -> the text of its clips, which may carry another label of the same text."""
    texts = dict(clips.select("clip_id", "description").iter_rows())
    first = predictions.select("target_label", pl.col("target_clip_ids").list.first()).unique("target_label")
    return {label: texts[clip] for label, clip in first.iter_rows() if clip in texts}


def table_rows(table: pl.DataFrame, names: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {**row, "name": names.get(row["name"], row["name"]), "value": percent(row["value"])}
        for row in table.iter_rows(named=True)
    ]


def both_ends(table: pl.DataFrame, num_rows: int) -> pl.DataFrame:
    """The first and the last rows of a table that is longer than `num_rows`."""
    return (
        table if len(table) <= num_rows else pl.concat([table.head(num_rows // 2), table.tail(num_rows // 2)])
    )


def figure_rows(figures: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """One row per system: the mean, with the deviation over seeds where there are several."""
    return [
        {
            "name": name,
            "cells": [
                percent(values[f"map@{k}"])
                + (f" ± {percent(values[f'map@{k}_std'])}" if f"map@{k}_std" in values else "")
                for k in CUTOFFS
            ],
        }
        for name, values in figures.items()
    ]


def gallery(predictions: pl.DataFrame, clips: pl.DataFrame, config: ReportConfig) -> Iterator[dict[str, Any]]:
    """Queries drawn at random, with their clips as data URLs."""
    rows = {row["clip_id"]: row for row in clips.iter_rows(named=True)}
    encoded: dict[str, str | None] = {}

    def show(clip_id: str, *, right: bool | None = None) -> dict[str, Any]:
        if clip_id not in encoded:
            encoded[clip_id] = encode_clip(rows[clip_id])
        return {"video": encoded[clip_id], "caption": rows[clip_id]["description"], "right": right}

    drawn = predictions.sample(min(config.num_queries, len(predictions)), seed=config.seed)
    for query in tqdm(drawn.iter_rows(named=True), total=len(drawn), desc="clips", unit="query"):
        targets = set(query["target_clip_ids"])
        yield {
            "clip": show(query["query_clip_id"]),
            "text": query["modification_text"],
            "change_type": query["change_type"],
            "num_targets": len(targets),
            "ap": percent(query["ap"]),
            "answers": [
                show(clip, right=clip in targets) for clip in query["ranked_clip_ids"][: config.ranks]
            ],
        }


def describe(results: dict[str, Any]) -> str:
    coverage = next(iter(results["coverage"].values()))
    return (
        f"{coverage['queries_ranked']:,} of {coverage['queries']:,} queries could be ranked, against "
        f"{coverage['gallery_clips_ranked']:,} of {coverage['gallery_clips']:,} clips; "
        f"{coverage['targets_in_gallery']:,} of {coverage['targets']:,} right answers are among them."
    )


def render(config: ReportConfig) -> tuple[str, pl.DataFrame]:
    """The page, and the figures of every target label."""
    results, predictions = read_evaluation(Path(config.evaluation_dir))
    clips = load_split(config, config.split, clips=True).to_polars()
    descriptions = dict(clips.select("label", "description").unique().iter_rows()) | described_targets(
        predictions, clips
    )
    per_label = breakdown(predictions, "target_label")
    counts = confusion_counts(predictions, clips)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    page = environment.get_template("report.html").render(
        title=config.title,
        summary=describe(results),
        shown=next(iter(results["figures"])),
        protocol=results["signature"],
        cutoffs=CUTOFFS,
        figures=figure_rows(results["figures"]),
        change_types=table_rows(breakdown(predictions, "change_type"), {}),
        labels=table_rows(both_ends(per_label, config.num_labels), descriptions),
        num_labels=len(per_label),
        confusion_png=as_png(draw_confusion(counts, descriptions)),
        queries=list(gallery(predictions, clips, config)),
        ranks=config.ranks,
        seed=config.seed,
        provenance=json.dumps({k: v for k, v in results.items() if k != "by_seed"}, indent=2),
    )
    return page, per_label.with_columns(description=pl.col("name").replace_strict(descriptions, default=None))


def main() -> None:
    config = parse_config(ReportConfig, __doc__)
    page, per_label = render(config)
    output_dir = Path(config.output_dir)
    write_text(output_dir / "per_label.csv", per_label.write_csv())
    write_text(output_dir / "index.html", page)
    print(f"report: {(output_dir / 'index.html').resolve()}")


if __name__ == "__main__":
    main()
