"""The statistics of TF-CoVR in the paper (section 3; figures A1 and A2), for any configuration of it.

Functions take datasets from `load_dataset` and return frames or records; `plot_*` draw them as Matplotlib
figures, which a caller saves or shows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import polars as pl
from datasets import Dataset
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hf_datasets.tfcovr.labels import LabelSource, labels_by_id, load_labels
from hf_datasets.tfcovr.modifications.normalization import MARKS, expand_numbers

Rows: TypeAlias = Dataset | pl.DataFrame
COLORS: Mapping[LabelSource, str] = {"finegym": "#2a6f97", "finediving": "#c1666b", "own": "#5f8f4e"}
SOURCE_TITLES: Mapping[LabelSource, str] = {"finegym": "FineGym", "finediving": "FineDiving", "own": "own labels"}
FUNCTION_WORDS = frozenset(["a", "an", "and", "by", "in", "it", "of", "off", "on", "the", "then", "to", "with"])
"""Words that the lexicon leaves out."""
PAPER_COUNTS: Final[dict[str, dict[str, float]]] = {
    "train": {"rows": 180_000},
    "test": {"rows": 473, "targets_mean": 3.94},
    "texts": {"words_minimum": 2, "words_mean": 6.11, "words_maximum": 19},
    "clips": {"labels": 306, "seconds_minimum": 0.03, "seconds_mean": 1.90, "seconds_maximum": 29.0},
    "finegym": {"labels": 259, "clips": 32_697, "videos": 167, "seconds_mean": 1.7},
    "finediving": {"labels": 47, "clips": 3_000},
}
"""TF-CoVR, section 3, "TF-CoVR Statistics" (`train` is rounded there: "180K"); clips, videos and mean seconds of the
last two are those of the datasets that it is drawn from, of which the section gives 288 and 52 labels."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of a distribution, NaN if it is empty; of `count` values, `missing` are unknown and left out of it."""

    count: int
    missing: int
    minimum: float
    mean: float
    median: float
    maximum: float


def summarise_values(values: pl.Series) -> Summary:
    """The summary of a column; nulls count as missing.

    >>> summarise_values(pl.Series([1.0, 4.0, None]))
    Summary(count=3, missing=1, minimum=1.0, mean=2.5, median=2.5, maximum=4.0)
    """
    known = values.drop_nulls()
    numbers = cast(tuple[float | None, ...], (known.min(), known.mean(), known.median(), known.max()))
    return Summary(
        len(values),
        values.null_count(),
        *(float("nan") if number is None else float(number) for number in numbers),
    )


def clips_per_label(clips: Dataset) -> pl.DataFrame:
    """How many clips each label has (figures A1 and A2), the most frequent first.

    Args:
        clips: A `*-clips` configuration.

    Returns:
        `label`, `source` (finegym, finediving or own), `description`, `clips`. Of clips with TF-CoVR's labels all 306,
        with 0 where there is no clip; of clips with other labels those that they have.
    """
    counts = _frame(clips, "label").drop_nulls().group_by("label").len("clips")
    if not counts["label"].is_in(list(labels_by_id())).all():
        own = _frame(clips, "label", "description").drop_nulls("label").unique("label")
        described = own.select("label", pl.lit("own").alias("source"), "description")
        return described.join(counts, on="label").sort("clips", "label", descending=[True, False])
    labels = pl.DataFrame(
        [(label.label_id, label.source, label.description) for label in load_labels()],
        schema=["label", "source", "description"],
        orient="row",
    )
    joined = labels.join(counts, on="label", how="left", maintain_order="left")
    return joined.with_columns(pl.col("clips").fill_null(0)).sort("clips", descending=True, maintain_order=True)


def targets_per_query(queries: Rows) -> pl.Series:
    """How many clips answer each row's query, in the order of the rows; 3.94 on average in the paper's test set."""
    return _frame(queries, "target_clip_ids")["target_clip_ids"].list.len().cast(pl.Int64).alias("targets")


def modification_lengths(rows: Rows) -> pl.Series:
    """Words of each row's modification text once numbers are spelled out; 2 to 19, 6.11 on average in the paper."""
    return _modification_words(rows)["words"].list.len().cast(pl.Int64).alias("words")


def durations(clips: Rows) -> pl.Series:
    """Seconds of each clip, null where the clip is a file of its own; 0.03 to 29.00, 1.90 on average in the paper."""
    frame = _frame(clips, "start_seconds", "end_seconds")
    return frame.select(seconds=pl.col("end_seconds") - pl.col("start_seconds")).to_series()


def counts_of(rows: Mapping[str, Rows], clips: Rows) -> dict[str, dict[str, float]]:
    """Figures under the names of `PAPER_COUNTS`; without those that are unknown, as seconds of clips that are files.

    Args:
        rows: Split -> its triplets or queries.
        clips: Those of all splits.
    """
    found: dict[str, dict[str, float]] = {split: {"rows": len(data)} for split, data in rows.items()}
    if "test" in rows:
        found["test"]["targets_mean"] = summarise_values(targets_per_query(rows["test"])).mean
    words = summarise_values(pl.concat([modification_lengths(data) for data in rows.values()]))
    found["texts"] = {f"words_{name}": getattr(words, name) for name in ("minimum", "mean", "maximum")}
    frame = _frame(clips, "video_id", "label", "start_seconds", "end_seconds")
    for source in ("clips", "finegym", "finediving"):
        ids = [name for name, label in labels_by_id().items() if source in ("clips", label.source)]
        own = frame.filter(pl.col("label").is_in(ids))
        seconds = summarise_values(durations(own))
        videos = own["video_id"].drop_nulls().n_unique()
        found[source] = {"labels": own["label"].n_unique(), "clips": len(own), "videos": videos}
        found[source] |= {f"seconds_{name}": getattr(seconds, name) for name in ("minimum", "mean", "maximum")}
    return {of: {name: figure for name, figure in figures.items() if figure == figure} for of, figures in found.items()}


def modification_lexicon(rows: Dataset) -> pl.DataFrame:
    """The words of modification texts, the most frequent first.

    Returns:
        `word` (lower case, numbers spelled out), `texts` (rows that contain it) and `share` of the rows, in (0, 1].
        Function words such as "with" are left out.
    """
    words = _modification_words(rows).with_row_index("row").explode("words").drop_nulls().unique(["row", "words"])
    counted = words.filter(~pl.col("words").is_in(list(FUNCTION_WORDS))).group_by(word="words").len("texts")
    return counted.with_columns(share=pl.col("texts") / len(rows)).sort("texts", "word", descending=[True, False])


def plot_clips_per_label(clips: Dataset, source: LabelSource) -> Figure:
    """Draw figure A1 (`finegym`), A2 (`finediving`) or that of own labels (`own`): clips per label, logarithmic."""
    counts = clips_per_label(clips).filter((pl.col("source") == source) & (pl.col("clips") > 0))
    figure, axes = _axes(width=min(4 + len(counts) * 0.09, 16))
    axes.bar(range(len(counts)), counts["clips"], color=COLORS[source], width=0.8)
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.8)
    axes.set_xlim(-0.8, max(len(counts) - 0.2, 1))
    if len(counts) <= 60:
        axes.set_xticks(range(len(counts)), counts["label"], rotation=90, fontsize=8)
        axes.set_xlabel("label")
    else:
        axes.set_xlabel("labels by frequency")
    axes.set_ylabel("clips (log scale)")
    axes.set_title(f"{SOURCE_TITLES[source]}: {counts['clips'].sum():,} clips of {len(counts)} labels")
    return figure


def plot_targets_per_query(queries: Dataset) -> Figure:
    """Draw how many queries have how many targets."""
    return _plot_counts(targets_per_query(queries), "targets per query", "queries")


def plot_text_lengths(rows: Dataset) -> Figure:
    """Draw how many modification texts have how many words."""
    return _plot_counts(modification_lengths(rows), "words per modification text", "texts")


def plot_durations(clips: Dataset) -> Figure:
    """Draw how long the clips are."""
    seconds = durations(clips)
    summary = summarise_values(seconds)
    # Bins of at least a few frames, or the frame rate shows as gaps.
    bins = 1 if len(seconds) == summary.missing else max(1, min(40, round((summary.maximum - summary.minimum) / 0.1)))
    figure, axes = _axes()
    axes.hist(seconds.drop_nulls(), bins=bins, color=COLORS["finegym"], rwidth=0.9)
    axes.set_xlabel("seconds")
    axes.set_ylabel("clips")
    axes.set_title(_title("Seconds per clip", summary))
    return figure


def plot_modification_lexicon(rows: Dataset, *, top: int = 30) -> Figure:
    """Draw the most frequent words of modification texts and the share of texts that contain them."""
    lexicon = modification_lexicon(rows).head(top).reverse()
    figure, axes = _axes(height=1.2 + 0.22 * max(len(lexicon), 1))
    axes.barh(range(len(lexicon)), lexicon["share"] * 100, color=COLORS["finegym"])
    axes.set_yticks(range(len(lexicon)), lexicon["word"])
    axes.set_xlabel("modification texts with the word (%)")
    axes.set_ylim(-0.8, len(lexicon) - 0.2)
    axes.set_title(f"Modification lexicon: the {len(lexicon)} most frequent words")
    return figure


def _plot_counts(values: pl.Series, unit: str, what: str) -> Figure:
    counts = values.drop_nulls().value_counts(sort=False)
    figure, axes = _axes()
    axes.bar(counts[values.name], counts["count"], color=COLORS["finegym"], width=0.8)
    axes.set_xlim(left=0)
    axes.margins(x=0.05)
    cast(MaxNLocator, axes.xaxis.get_major_locator()).set_params(integer=True)
    axes.set_xlabel(unit)
    axes.set_ylabel(what)
    axes.set_title(_title(unit.capitalize(), summarise_values(values)))
    return figure


def _title(what: str, summary: Summary) -> str:
    unknown = f", {summary.missing:,} unknown" if summary.missing else ""
    return f"{what}: {summary.minimum:.4g} to {summary.maximum:.4g}, mean {summary.mean:.2f}{unknown}"


def _axes(*, width: float = 7, height: float = 3.6) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _frame(dataset: Rows, *columns: str) -> pl.DataFrame:
    if isinstance(dataset, pl.DataFrame):
        return dataset.select(columns)
    return cast(pl.DataFrame, pl.from_arrow(dataset.select_columns(list(columns)).with_format("arrow")[:]))


def _modification_words(rows: Rows) -> pl.DataFrame:
    texts = _frame(rows, "modification_text")
    # A text belongs to a pair of labels, so there are few distinct ones.
    distinct = texts.unique(maintain_order=True)
    spelled = [
        [word.strip(".,") for word in MARKS.sub(" ", expand_numbers(text).lower()).split()]
        for text in distinct["modification_text"]
    ]
    words = distinct.with_columns(pl.Series("words", spelled, dtype=pl.List(pl.String)))
    return texts.join(words, on="modification_text", how="left", maintain_order="left")
