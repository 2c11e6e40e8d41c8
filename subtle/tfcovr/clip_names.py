"""Names of clips and targets: their description, else their label, else the clip's id."""

import polars as pl

NAMES = ("description", "label", "clip_id")


def text(column: str) -> pl.Expr:
    """A column as text, null where it is empty."""
    words = pl.col(column).cast(pl.String)
    return pl.when(words.str.strip_chars() != "").then(words)


def clip_captions(clips: pl.DataFrame) -> dict[str, str]:
    """Clip id -> what to write below the clip."""
    return dict(clips.select("clip_id", name=pl.coalesce(map(text, NAMES))).iter_rows())


def label_names(clips: pl.DataFrame) -> dict[str, str]:
    """Label -> the description that all of its clips share; the label where they have none, or several."""
    described = clips.select(label=text("label"), description=text("description")).drop_nulls("label")
    texts = described.group_by("label").agg(pl.col("description").drop_nulls().unique())
    return {label: found[0] if len(found) == 1 else label for label, found in texts.iter_rows()}


def clip_classes(clips: pl.DataFrame) -> dict[str, str]:
    """Clip id -> the name of its class: of its label where it has one; two labels of one description are one class."""
    label = text("label")
    named = label.replace_strict(label_names(clips), default=None, return_dtype=pl.String)
    return dict(clips.select("clip_id", name=pl.coalesce(named, *map(text, NAMES))).iter_rows())


def name_targets(predictions: pl.DataFrame, clips: pl.DataFrame) -> pl.DataFrame:
    """The predictions with `target`, the name of what a query asks for, and `target_label` without nulls.

    A label that no clip of the split carries is named by the description of its first target; a query without a label
    by the class of its first target.
    """
    first = pl.col("target_clip_ids").list.first()
    described = clips.select("clip_id", text=text("description")).drop_nulls()
    known = [label_names(clips), dict(described.iter_rows()), clip_classes(clips)]
    by_label, by_clip, by_class = (
        column.replace_strict(names, default=None, return_dtype=pl.String)
        for column, names in zip((text("target_label"), first, first), known, strict=True)
    )
    label = text("target_label")
    return predictions.with_columns(
        target=pl.when(label.is_null())
        .then(pl.coalesce(by_class, first))
        .otherwise(pl.coalesce(by_label, by_clip, label)),
    ).with_columns(target_label=pl.coalesce(label, "target"))
