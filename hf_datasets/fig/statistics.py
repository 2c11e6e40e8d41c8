"""Statistics of fine-grained moments: those of the paper's Table 1 and Figure 4, and counts of bad rows.

Functions take splits from `load_dataset`; `plot_*` draw Matplotlib figures, which a caller saves or shows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

import polars as pl
from datasets import Dataset
from matplotlib.figure import Figure

Caption = Literal["coarse_caption", "fine_caption"]
MOMENT = ("video_id", "start_seconds", "end_seconds")
COLOR = "#2a6f97"
NEGATIVE_COLOR = "#c1666b"
COUNT_NAMES = (
    *("moments", "span_seconds", "static", "static_score", "dynamic", "dynamic_score", "score"),
    *("coarse_clusters", "coarse_clustered", "fine_clusters", "fine_clustered"),
)
PAPER_COUNTS: Final[dict[str, dict[str, float]]] = {
    dataset: dict(zip(COUNT_NAMES, figures, strict=True))
    for dataset, figures in (
        ("charades_fig", (16_128, 8.23, 11_885, 1.20, 4_243, 1.65, 1.32, 1_393, 8_805, 194, 422)),
        ("didemo_fig", (41_091, 6.49, 22_703, 1.41, 18_388, 1.80, 1.58, 703, 1_925, 32, 65)),
        ("activitynet_fig", (71_656, 37.09, 47_999, 3.30, 23_649, 2.90, 3.17, 505, 1_691, 3, 6)),
    )
} | {
    f"{dataset}/{split}": {"moments": moments}
    for dataset, splits in (
        ("charades_fig", {"train": 12_408, "test": 3_720}),
        ("didemo_fig", {"train": 32_903, "validation": 4_175, "test": 4_013}),
        ("activitynet_fig", {"train": 37_261, "validation": 17_429, "test": 16_966}),
    )
    for split, moments in splits.items()
}
"""VERIFIED's supplement: Table 1 (spans, kinds and mean scores) and Table 2 (clusters); `moments` are those of the
release's dataset document. Table 1's two kinds of ActivityNet-FIG add up to 71,648, 8 fewer."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Seven numbers of a distribution, NaN if it is empty; `deviation` is divided by n, quartiles are interpolated."""

    mean: float
    deviation: float
    minimum: float
    lower_quartile: float
    median: float
    upper_quartile: float
    maximum: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of one split, or of several together.

    Attributes:
        moments: Number of rows.
        videos: Number of videos.
        most_per_video: Moments of the video with the most.
        span_seconds: Length of the moments.
        duration_seconds: Length of the videos, each counted once per moment.
        score: Of the noise evaluator, a logit; rows without one are left out.
        scored: Number of rows with a score.
        negative_scores: Number of scores below 0.
        coarse_words: Words of the coarse captions.
        fine_words: Words of the fine captions.
        ends_after_video: Moments that end after their video.
        most_seconds_after_video: By how much at most; 0 if none does.
        starts_after_video: Moments that start when their video has ended.
        repeated_moments: Rows with the video and times of an earlier row.
        repeated_coarse: Rows with the video, times and coarse caption of an earlier row.
        repeated_fine: Rows with the video and fine caption of an earlier row.
        padded_captions: Captions of either kind with white space at the start or end.
    """

    moments: int
    videos: int
    most_per_video: int
    span_seconds: Distribution
    duration_seconds: Distribution
    score: Distribution
    scored: int
    negative_scores: int
    coarse_words: Distribution
    fine_words: Distribution
    ends_after_video: int
    most_seconds_after_video: float
    starts_after_video: int
    repeated_moments: int
    repeated_coarse: int
    repeated_fine: int
    padded_captions: int


def statistics(*splits: Dataset) -> Statistics:
    """The statistics of one split, or of several together.

    Raises:
        ValueError: There is no row.
    """
    rows = _rows_of(*splits)
    if rows.is_empty():
        raise ValueError("there is no moment to describe; give at least one split with rows")
    score = rows["fine_caption_score"].drop_nulls()
    excess = rows["end_seconds"] - rows["duration_seconds"]
    return Statistics(
        moments=len(rows),
        videos=rows["video_id"].n_unique(),
        most_per_video=cast(int, rows["video_id"].value_counts()["count"].max()),
        span_seconds=_distribution(rows["end_seconds"] - rows["start_seconds"]),
        duration_seconds=_distribution(rows["duration_seconds"]),
        score=_distribution(score),
        scored=len(score),
        negative_scores=int((score < 0).sum()),
        coarse_words=_distribution(_word_counts(rows, "coarse_caption")),
        fine_words=_distribution(_word_counts(rows, "fine_caption")),
        ends_after_video=int((excess > 0).sum()),
        most_seconds_after_video=max(cast(float, excess.max()), 0.0),
        starts_after_video=int((rows["start_seconds"] >= rows["duration_seconds"]).sum()),
        repeated_moments=_repeated(rows, *MOMENT),
        repeated_coarse=_repeated(rows, *MOMENT, "coarse_caption"),
        repeated_fine=_repeated(rows, "video_id", "fine_caption"),
        padded_captions=sum(
            int((rows[name].str.strip_chars() != rows[name]).sum()) for name in ("coarse_caption", "fine_caption")
        ),
    )


def counts_of(dataset: str, splits: Mapping[str, pl.DataFrame]) -> dict[str, dict[str, float]]:
    """Figures of moments under the names of `PAPER_COUNTS`; without scores and kinds where they are not known.

    Args:
        dataset: `charades_fig`, `didemo_fig` or `activitynet_fig`.
        splits: Split -> its rows, with the columns of a configuration and perhaps `kind` (static, dynamic).
    """
    rows = pl.concat(list(splits.values()), how="diagonal_relaxed")
    found: dict[str, float] = {"moments": len(rows)}
    found["span_seconds"] = cast(float, (rows["end_seconds"] - rows["start_seconds"]).mean())
    parts = rows.partition_by("kind", as_dict=True) if "kind" in rows.columns else {}
    for name, part in {"": rows, **{f"{kind}_": part for (kind,), part in parts.items()}}.items():
        if name:
            found[name.rstrip("_")] = len(part)
        if (score := part["fine_caption_score"].mean()) is not None:
            found[f"{name}score"] = cast(float, score)
    return {dataset: found} | {f"{dataset}/{split}": {"moments": float(len(part))} for split, part in splits.items()}


def duplicate_captions(*splits: Dataset, caption: Caption) -> tuple[int, int]:
    """Captions that several rows share exactly: the number of such captions, and of rows that have them.

    Example:
        >>> duplicate_captions(Dataset.from_dict({"coarse_caption": ["a", "b", "a"]}), caption="coarse_caption")
        (1, 2)
    """
    counts = _rows_of(*splits)[caption].value_counts()["count"]
    shared = counts.filter(counts > 1)
    return len(shared), int(shared.sum())


def plot_scores(splits: Mapping[str, Dataset]) -> Figure:
    """Draw the histogram of the noise evaluator's scores (Figure 4), those below 0 in another color.

    Args:
        splits: Name -> rows; one panel each, on one scale.

    Returns:
        The figure.

    Raises:
        ValueError: No row has a score.
    """
    scores = {name: _rows_of(rows)["fine_caption_score"].drop_nulls() for name, rows in splits.items()}
    known = pl.concat(list(scores.values()))
    if known.is_empty():
        raise ValueError("no row has a score; `subtle caption select` gives them to a built dataset")
    floors = known.floor().cast(pl.Int64)
    first, last = cast(int, floors.min()), cast(int, floors.max()) + 1
    edges = [first + step / 4 for step in range(4 * (last - first) + 1)]
    figure = Figure(figsize=(4.6 * len(scores), 3.4), layout="constrained")
    panels = figure.subplots(1, len(scores), squeeze=False)[0]
    for axes, (name, values) in zip(panels, scores.items(), strict=True):
        _, _, bars = axes.hist(values, bins=edges, color=COLOR, rwidth=0.92)
        for bar in bars:
            if bar.get_x() < 0:
                bar.set_facecolor(NEGATIVE_COLOR)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel("score (logit)")
        axes.set_ylabel("moments")
        below = cast(float, (values < 0).mean()) if len(values) else 0.0
        mean = cast(float | None, values.mean()) or 0
        axes.set_title(f"{name}: mean {mean:.2f}, {100 * below:.0f} % below 0")
    return figure


def _rows_of(*splits: Dataset) -> pl.DataFrame:
    frames = [cast(pl.DataFrame, pl.from_arrow(rows.with_format("arrow")[:])) for rows in splits]
    return pl.concat(frames, how="vertical_relaxed")


def _distribution(values: pl.Series) -> Distribution:
    quartiles = [values.quantile(share, "linear") for share in (0.25, 0.5, 0.75)]
    numbers = cast(
        tuple[float | None, ...], (values.mean(), values.std(ddof=0), values.min(), *quartiles, values.max())
    )
    return Distribution(*(float("nan") if number is None else float(number) for number in numbers))


def _word_counts(rows: pl.DataFrame, caption: Caption) -> pl.Series:
    return rows[caption].str.count_matches(r"\S+")


def _repeated(rows: pl.DataFrame, *columns: str) -> int:
    return len(rows) - rows.select(columns).unique().height
