"""Which labels are taken for which: counted at rank 1 and drawn."""

import base64
import io

import polars as pl
from matplotlib.figure import Figure

NUM_LABELS = 16
NUM_OTHERS = 8


def confusion_counts(predictions: pl.DataFrame, clips: pl.DataFrame) -> pl.DataFrame:
    """How often (`count`) a label was asked for (`asked`) and another or the same came at rank 1 (`came`).

    Labels with the same description are one: their clips answer each other's queries.
    """
    same = dict(clips.group_by("description").agg(pl.col("label").min()).iter_rows())
    label_of = {clip: same[text] for clip, text in clips.select("clip_id", "description").iter_rows()}
    first = predictions.select(
        asked=pl.col("target_clip_ids").list.first().replace_strict(label_of, default=None),
        came=pl.col("ranked_clip_ids").list.first().replace_strict(label_of, default=None),
    )
    return first.drop_nulls().group_by("asked", "came").len("count").sort("asked", "came")


def draw_confusion(counts: pl.DataFrame, descriptions: dict[str, str]) -> Figure:
    """A heat map of the labels that are mistaken most: rows asked for, columns received."""
    wrong = counts.filter(pl.col("asked") != pl.col("came"))
    if wrong.is_empty():
        figure = Figure(figsize=(5, 1))
        figure.text(0.5, 0.5, "Nothing was taken for anything else.", ha="center", va="center")
        return figure
    rows = most(wrong, "asked")[:NUM_LABELS]
    others = most(wrong.filter(pl.col("asked").is_in(rows) & ~pl.col("came").is_in(rows)), "came")[
        :NUM_OTHERS
    ]
    columns = rows + others
    table = {(asked, came): count for asked, came, count in counts.iter_rows()}
    values = [[table.get((row, column), 0) for column in columns] for row in rows]
    figure = Figure(figsize=(3.8 + 0.34 * len(columns), 1.4 + 0.27 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(values, cmap="Blues", aspect="auto")
    dark = 0.6 * max(map(max, values))
    for (y, x), value in (((y, x), value) for y, line in enumerate(values) for x, value in enumerate(line)):
        if value:
            axes.text(
                x, y, value, ha="center", va="center", fontsize=7, color="white" if value > dark else "black"
            )
    axes.set_xticks(range(len(columns)), columns, rotation=60, fontsize=7)
    axes.set_yticks(range(len(rows)), [f"{descriptions[row]}  {row}" for row in rows], fontsize=7)
    axes.set_xlabel("label that came", fontsize=8)
    return figure


def most(counts: pl.DataFrame, column: str) -> list[str]:
    """The values of a column, those with the highest count first."""
    summed = counts.group_by(column).agg(pl.col("count").sum())
    return summed.sort("count", column, descending=[True, False])[column].to_list()


def as_png(figure: Figure) -> str:
    """The figure as base64."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return base64.b64encode(buffer.getvalue()).decode()
