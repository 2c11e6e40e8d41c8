"""Analyze captions of moments as VERIFIED does: scores, duplicates, clusters, and a user study."""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import polars as pl
from datasets import DatasetDict, concatenate_datasets
from matplotlib.figure import Figure
from rich.table import Table

from hf_datasets.drafts import replacing_files, write_json, writing
from hf_datasets.fig.clusters import TFIDF, CaptionMap, plot_maps
from hf_datasets.fig.moments import PUBLISHED_FOLDER
from hf_datasets.fig.release import FILES
from hf_datasets.fig.statistics import PAPER_COUNTS, counts_of, duplicate_captions, plot_scores, statistics
from hf_datasets.paper_counts import beside_paper
from subtle.evaluate.options import AnalyzeFIGConfig
from subtle.fig.user_study import LEAST_ANSWERS, aggregate, read_answer_files, write_forms
from subtle.run.data import open_dataset
from subtle.run.model_folders import check_model_folder
from subtle.run.printing import show_beside_paper
from subtle.run.results import write_results
from subtle.run.screen import Screen

EPS, MIN_SAMPLES, MIN_SAMPLES_DRAWN = 0.01, 2, 16
"""DBSCAN's of Table 2, and the least captions of a cluster in Figure 5, as in the paper."""
GRANULARITIES = ("coarse", "fine")


def dataset_in(folder: str) -> str:
    """Which dataset's published files a folder holds."""
    names = [name for name, files in FILES.items() if any(any(Path(folder).rglob(file)) for file in files.values())]
    if len(names) != 1:
        wanted = ", ".join(file for files in FILES.values() for file in files.values())
        what = f"files of {' and '.join(names)}" if names else "none of the published files"
        raise SystemExit(f"--release {folder} holds {what}; give a folder with those of one dataset: {wanted}")
    return names[0]


def read_kinds(config: AnalyzeFIGConfig) -> pl.DataFrame:
    """`desc_id` and `kind` of a built dataset; no row where the kind is not known, as in the release."""
    files = sorted((Path(config.data_dir or "") / PUBLISHED_FOLDER).glob("*.parquet"))
    if config.dataset_config != "source" or not files:
        return pl.DataFrame(schema={"desc_id": pl.Int64, "kind": pl.String})
    return pl.read_parquet(files, columns=["desc_id", "kind"])


def table_1(data: DatasetDict, kinds: pl.DataFrame) -> dict[str, Any]:
    """Statistics of each split and of all, and of each kind of caption where it is known."""
    splits = {name: asdict(statistics(rows)) for name, rows in data.items()}
    found: dict[str, Any] = {"splits": splits, "all": asdict(statistics(*data.values()))}
    if not kinds.is_empty():
        rows = concatenate_datasets(list(data.values())).to_polars().join(kinds, on="desc_id")
        scores = rows.group_by("kind").agg(captions=pl.len(), score=pl.col("fine_caption_score").mean())
        found["kinds"] = {kind: {"captions": n, "score": score} for kind, n, score in scores.sort("kind").iter_rows()}
    return found


def table_2(data: DatasetDict, maps: dict[str, CaptionMap]) -> dict[str, Any]:
    """Clusters of the captions, and how many are equal letter for letter."""
    found = {}
    for granularity, captions in maps.items():
        clusters = captions.cluster(eps=EPS, min_samples=MIN_SAMPLES)
        caption: Any = f"{granularity}_caption"
        equal = duplicate_captions(*data.values(), caption=caption)
        found[granularity] = {
            "clusters": clusters.classes,
            "clustered": clusters.instances,
            "equal_texts": equal[0],
            "with_an_equal_text": equal[1],
        }
    return found


def compare(data: DatasetDict, kinds: pl.DataFrame, tables: dict[str, Any], config: AnalyzeFIGConfig) -> dict[str, Any]:
    """The paper's Tables 1 and 2 beside these; clusters only of an encoder, as the paper's, not of word statistics."""
    if config.dataset_config == "mini":
        return {}
    rows = {split: part.to_polars() for split, part in data.items()}
    if not kinds.is_empty():
        rows = {split: part.join(kinds, on="desc_id", how="left") for split, part in rows.items()}
    counts = counts_of(config.dataset, rows)
    for granularity, found in tables["table_2"].items() if config.encoder != TFIDF else ():
        counts[config.dataset] |= {f"{granularity}_{name}": found[name] for name in ("clusters", "clustered")}
    return beside_paper(PAPER_COUNTS, counts)


def print_statistics(tables: dict[str, Any], config: AnalyzeFIGConfig) -> None:
    console = Screen()
    first = Table("split", "moments", "videos", "span (s)", "score", "late ends", "coarse words", "fine words")
    first.columns[0].no_wrap = True
    for name, row in {**tables["table_1"]["splits"], "all": tables["table_1"]["all"]}.items():
        score = f"{row['score']['mean']:.2f}" if row["scored"] else "none"
        means = [f"{row[key]['mean']:.2f}" for key in ("span_seconds", "coarse_words", "fine_words")]
        counts = [f"{row[key]:,}" for key in ("moments", "videos", "ends_after_video")]
        first.add_row(name, *counts[:2], means[0], score, counts[2], *means[1:])
    console.print(first)
    for kind, row in tables["table_1"].get("kinds", {}).items():
        score = "none" if row["score"] is None else f"{row['score']:.2f}"
        console.print(f"{kind}: {row['captions']:,} captions, mean score {score}")
    second = Table("captions", "clusters", "clustered", "equal texts", "with an equal text")
    for granularity, row in tables["table_2"].items():
        second.add_row(granularity, *(f"{value:,}" for value in row.values()))
    console.print(second)
    console.print(f"clusters: DBSCAN, cosine, eps {EPS}, min_samples {MIN_SAMPLES}, encoder {config.encoder}")


def draw(data: DatasetDict, maps: dict[str, CaptionMap], config: AnalyzeFIGConfig, folder: Path) -> dict[str, str]:
    """Draw Figures 4 and 5 into a folder; returns why one could not be."""
    undrawn = {}

    def attempt(name: str, make: Callable[[], Figure]) -> None:
        try:
            figure = make()
        except ValueError as error:
            undrawn[name] = str(error)
            print(f"no {name}: {undrawn[name]}")
            return
        with writing(Path(config.output_dir) / name):
            figure.savefig(folder / name, dpi=150)

    attempt("scores.png", lambda: plot_scores(data))
    options: dict[str, Any] = {"eps": EPS, "min_samples": MIN_SAMPLES_DRAWN, "seed": config.seed}
    attempt("captions.png", lambda: plot_maps(maps["coarse"], maps["fine"], **options))
    return undrawn


def make_forms(data: DatasetDict, kinds: pl.DataFrame, config: AnalyzeFIGConfig, folder: Path) -> None:
    """Write the user study's forms into a folder, from the moments that have their video."""
    videos = pl.concat(
        [split.to_polars() for split in open_dataset(config, part="-videos", video_dir=config.video_dir).values()]
    )
    moments = concatenate_datasets(list(data.values())).to_polars()
    joined = moments.join(videos.select("video_id", "video").unique("video_id"), on="video_id", how="left")
    joined = joined.join(kinds, on="desc_id", how="left", maintain_order="left")
    shown = joined.filter(pl.col("video").is_not_null())
    print(f"user study: {len(shown):,} of {len(joined):,} moments have their video")
    if shown.is_empty():
        raise SystemExit(
            "no moment has its video, so there is no clip for a form; name the folder of the videos with --video_dir"
        )
    title = f"{config.dataset} {config.dataset_config}"
    _, unreadable = write_forms(shown.to_dicts(), folder, title=title, seed=config.seed)
    if unreadable:
        print(f"{len(unreadable)} moments cannot be read and are in no form: desc_id {', '.join(map(str, unreadable))}")


def run(config: AnalyzeFIGConfig) -> dict[str, Any]:
    """Tables 1 and 2, the plots, and with --user_study the forms."""
    if config.release is not None:
        found: dict[str, Any] = {
            "dataset": dataset_in(config.release),
            "dataset_config": "release",
            "data_dir": config.release,
        }
        config = replace(config, **found)
    if config.encoder != TFIDF:
        check_model_folder(config.encoder)
    data, kinds = open_dataset(config), read_kinds(config)
    maps = {
        granularity: CaptionMap(
            [caption for rows in data.values() for caption in rows[f"{granularity}_caption"]], config.encoder
        )
        for granularity in GRANULARITIES
    }
    tables = {"table_1": table_1(data, kinds), "table_2": table_2(data, maps)}
    print_statistics(tables, config)
    compared = compare(data, kinds, tables, config)
    show_beside_paper(compared)
    output_dir = Path(config.output_dir)
    with replacing_files(output_dir) as draft:
        undrawn = draw(data, maps, config, draft)
        if config.user_study:
            make_forms(data, kinds, config, draft / "user-study")
        if compared:
            write_json(draft / "statistics.json", compared)
        source = next(iter(data.values())).info.description
        write_results(draft, tables, config=config, seed=config.seed, undrawn=undrawn, source=source)
        written = [output_dir / path.relative_to(draft) for path in sorted(draft.rglob("*"))]
    for path in written:
        if path.suffix in {".png", ".html"}:
            print(f"{'picture' if path.suffix == '.png' else 'form'}: {path.resolve()}")
    return tables


def add_up(config: AnalyzeFIGConfig) -> dict[str, Any]:
    """Table 3."""
    folder = Path(str(config.answers))
    kinds, files = read_answer_files(folder)
    results, total = aggregate(kinds, files)
    left_out = len(kinds) - sum(result.items for result in results.values())
    table = Table("captions", "items", "answers", "R_s (%)", "R_d (%)", "S")
    for kind, result in results.items():
        rates = (f"{result.static_percent:.0f}", f"{result.dynamic_percent:.0f}", f"{result.accuracy:.2f}")
        table.add_row(kind, str(result.items), str(result.answers), *rates)
    console = Screen()
    console.print(table)
    console.print(f"total S {total:.2f}; R counts each answer")
    if left_out:
        console.print(f"left out: {left_out} of {len(kinds)} items, with fewer than {LEAST_ANSWERS} answers")
    rows: dict[str, Any] = {kind: asdict(result) for kind, result in results.items()}
    rows |= {"total_accuracy": total, "items_left_out": left_out}
    write_results(folder, rows, config=config, seed=config.seed)
    return rows


def main(config: AnalyzeFIGConfig) -> None:
    if config.answers:
        add_up(config)
    else:
        run(config)
