"""Count and plot what a TF-CoVR dataset holds: labels, targets, texts and durations."""

import math
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
from datasets import Dataset, DatasetDict, concatenate_datasets
from matplotlib.figure import Figure
from rich.table import Table

from hf_datasets.drafts import replacing_files, write_json, write_text, writing
from hf_datasets.paper_counts import beside_paper
from hf_datasets.spreadsheets import as_csv
from hf_datasets.tfcovr import statistics
from hf_datasets.tfcovr.labels import load_labels
from hf_datasets.tfcovr.pairs import text_encoder
from subtle.evaluate.options import AnalyzeTFCoVRConfig
from subtle.run.data import load_splits
from subtle.run.model_folders import check_model_folder
from subtle.run.printing import show_beside_paper
from subtle.run.results import write_results
from subtle.run.screen import Screen
from subtle.tfcovr.label_pairs import CHANGES, GROUPS, PairComparison, compare_pairs
from subtle.tfcovr.measure import held_out_groups

TOP_WORDS = 30


def summary_of(values: pl.Series) -> dict[str, float | None]:
    """The numbers of a distribution; None, which JSON knows, where nothing was counted."""
    summary = asdict(statistics.summarise_values(values))
    return {name: None if math.isnan(value) else value for name, value in summary.items()}


def row_statistics(rows: Dataset) -> dict[str, Any]:
    """Counts of triplets or queries, and the spread of their targets and of the words of their texts."""
    frame = rows.select_columns(["query_clip_id", "query_label", "target_label", "modification_text"]).to_polars()
    return {
        "rows": len(rows),
        "query_clips": frame["query_clip_id"].n_unique(),
        "label_pairs": frame.select("query_label", "target_label").drop_nulls().n_unique(),
        "texts": frame["modification_text"].n_unique(),
        "targets": summary_of(statistics.targets_per_query(rows)),
        "words": summary_of(statistics.modification_lengths(rows)),
    }


def clip_statistics(clips: Dataset) -> dict[str, Any]:
    """Counts of clips, long videos and labels, and the spread of the clips' durations."""
    frame = clips.select_columns(["video_id", "label"]).to_polars()
    return {
        "clips": len(clips),
        "videos": frame["video_id"].drop_nulls().n_unique(),
        "labels": frame["label"].drop_nulls().n_unique(),
        "seconds": summary_of(statistics.durations(clips)),
    }


def range_text(summary: dict[str, float | None], digits: int = 2) -> str:
    """Smallest, mean and largest value; "unknown" where there is none."""
    if summary["mean"] is None:
        return "unknown"
    return f"{summary['minimum']:.{digits}f} / {summary['mean']:.2f} / {summary['maximum']:.{digits}f}"


def print_counts(tables: dict[str, Any]) -> None:
    """Print the statistics of rows and clips, a line per split."""
    console = Screen(width=None if sys.stdout.isatty() else 120)
    first = Table("split", "rows", "query clips", "label pairs", "texts", "targets", "words of a text")
    for name, split in tables["rows"].items():
        counts = (f"{split[key]:,}" for key in ("rows", "query_clips", "label_pairs", "texts"))
        first.add_row(name, *counts, range_text(split["targets"], 0), range_text(split["words"], 0))
    console.print(first)
    second = Table("split", "clips", "videos", "labels", "seconds of a clip")
    for name, split in tables["clips"].items():
        counts = (f"{split[key]:,}" for key in ("clips", "videos", "labels"))
        second.add_row(name, *counts, range_text(split["seconds"]))
    console.print(second)
    console.print("targets, words and seconds: smallest / mean / largest")
    for name, groups in tables["held_out"].items():
        numbers = ", ".join(f"{group.replace('_', ' ')} {count:,}" for group, count in groups.items())
        console.print(f"{name}, by whether the labels of query and target have training clips: {numbers}")
    words = ", ".join(f"{row['word']} {100 * row['share']:.0f} %" for row in tables["words"][:10])
    console.print(f"most frequent words, and the share of texts that have them: {words}")


def show_pairs(found: dict[str, Any], model: str) -> None:
    """Print in what the pairs by attributes and by texts differ."""
    console = Screen(width=None if sys.stdout.isatty() else 120)
    table = Table("change", "pairs", "mean cosine", "both", "only attributes", "only texts", "neither")
    for row in found["changes"]:
        cosine = "none" if row["cosine"] is None else f"{row['cosine']:.2f}"
        table.add_row(CHANGES[row["change"]], f"{row['pairs']:,}", cosine, *(f"{row[name]:,}" for name in GROUPS))
    table.add_row("all", f"{sum(found['pairs'].values()):,}", "", *(f"{found['pairs'][name]:,}" for name in GROUPS))
    console.print(table)
    alone = found["labels_without_a_partner"]
    print(
        f"pairs of labels by attributes: at least {found['least_attributes']:g} of them agree; by texts: cosine at "
        f"least {found['least_cosine']:.3f}, encoder {model}\n"
        f"labels without a partner: {alone['attributes']} by attributes, {alone['texts']} by texts"
    )
    for name, reason in (("attributes", "though the texts are unlike"), ("texts", "though the attributes differ")):
        for row in found["examples"][name]:
            texts = f"{row['source_description']!r} and {row['target_description']!r}"
            print(f"only by {name}, {reason}: {texts} (cosine {row['cosine']:.2f}, attributes {row['attributes']:.2f})")


def figures_by_file(rows: DatasetDict, clips: Dataset) -> dict[str, Figure]:
    """Name of a file -> figure. Targets are those of validation and test: a training triplet has one."""
    queries = [split for name, split in rows.items() if name != "train"] or list(rows.values())
    texts = concatenate_datasets(list(rows.values()))
    counts = statistics.clips_per_label(clips)
    sources = counts.filter(counts["clips"] > 0)["source"].unique(maintain_order=True)
    return {
        **{f"clips_{source}.png": statistics.plot_clips_per_label(clips, source) for source in sources},
        "targets.png": statistics.plot_targets_per_query(concatenate_datasets(queries)),
        "text_lengths.png": statistics.plot_text_lengths(texts),
        "durations.png": statistics.plot_durations(clips),
        "words.png": statistics.plot_modification_lexicon(texts, top=TOP_WORDS),
    }


def run(config: AnalyzeTFCoVRConfig) -> dict[str, Any]:
    """Print the statistics of every split, and write them with the plots."""
    comparison: PairComparison | None = None
    if config.similarity_model:
        check_model_folder(config.similarity_model)
        comparison = compare_pairs(load_labels(), text_encoder(config.similarity_model))
    rows, clips = load_splits(config), load_splits(config, clips=True)
    every_row, every_clip = (concatenate_datasets(list(data.values())) for data in (rows, clips))
    groups_of = {name: held_out_groups(config, split) for name, split in rows.items() if name != "train"}
    tables: dict[str, Any] = {
        "rows": {name: row_statistics(split) for name, split in rows.items()},
        "clips": {name: clip_statistics(split) for name, split in clips.items()} | {"all": clip_statistics(every_clip)},
        "held_out": {name: Counter(groups.values()) for name, groups in groups_of.items() if groups},
        "words": statistics.modification_lexicon(every_row).head(TOP_WORDS).to_dicts(),
        "clips_per_label": dict(statistics.clips_per_label(every_clip).select("label", "clips").iter_rows()),
    }
    print_counts(tables)
    if comparison and config.similarity_model:
        tables["label_pairs"] = comparison.summary()
        show_pairs(tables["label_pairs"], config.similarity_model)
    compared: dict[str, Any] = {}
    if config.dataset == "tfcovr" and config.dataset_config in ("release", "source"):
        compared = beside_paper(statistics.PAPER_COUNTS, statistics.counts_of(rows, every_clip))
    show_beside_paper(compared)
    folder = Path(config.output_dir)
    figures = figures_by_file(rows, every_clip)
    with replacing_files(folder) as draft:
        for name, figure in figures.items():
            with writing(folder / name):
                figure.savefig(draft / name, dpi=150)
        if comparison:
            write_text(draft / "label_pairs.csv", as_csv(comparison.pairs))
        if compared:
            write_json(draft / "statistics.json", compared)
        source = next(iter(rows.values())).info.description
        write_results(draft, tables, config=config, seed=0, source=source)
    for name in figures:
        print(f"figure: {(folder / name).resolve()}")
    return tables


def main(config: AnalyzeTFCoVRConfig) -> None:
    run(config)
