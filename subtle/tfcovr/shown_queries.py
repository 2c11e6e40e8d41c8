"""The queries that a report shows, each with its clips and which answers are right; names of clips and targets."""

from collections.abc import Iterator
from typing import Any

import polars as pl
from tqdm import tqdm

from subtle.run.inline_video import clip_data_url

EXTRA_ANSWERS = 2
NOT_STATED = "not stated"
NAME_COLUMNS = ("description", "label", "clip_id")
"""Columns of a clip: what it is called is in the first of them that says something."""


def select_queries(predictions: pl.DataFrame, *, num_queries: int, seed: int) -> pl.DataFrame:
    """The worst query of each target and kind of change, then the second worst of each, and so on; worst of all first.

    Args:
        predictions: One row per query with `target`, `change_type` and `ap`.
        num_queries: How many, at most.
        seed: Decides which of equally bad queries is taken.
    """
    drawn = predictions.sample(fraction=1.0, shuffle=True, seed=seed)
    place = pl.int_range(pl.len()).over("target", "change_type")
    drawn = drawn.sort("ap", maintain_order=True).with_columns(place=place)
    drawn = drawn.sort("place", "ap", maintain_order=True).drop("place")
    return drawn.head(num_queries).sort("ap", maintain_order=True)


def show_queries(drawn: pl.DataFrame, clips: pl.DataFrame, *, ranks: int) -> Iterator[dict[str, Any]]:
    """Each query with its clip, its answers, and where its right answers stand; videos are data URLs.

    As many answers are shown as a query has right ones, and `EXTRA_ANSWERS` more, but at most `ranks`. Where none of
    them is right, `missed` is a right one.
    """
    shown = ShownClips(clips)
    for query in tqdm(drawn.iter_rows(named=True), total=len(drawn), desc="clips", unit="query"):
        targets, ranked = set(query["target_clip_ids"]), query["ranked_clip_ids"]
        place = {clip: ranked.index(clip) + 1 for clip in targets.intersection(ranked)}
        statuses = answer_statuses(ranked[: min(ranks, len(targets) + EXTRA_ANSWERS)], targets)
        best_missed = min(query["target_clip_ids"], key=lambda clip: place.get(clip, len(ranked) + 1))
        yield {
            "clip": shown[query["query_clip_id"]],
            "text": query["modification_text"],
            "target": query["target"],
            "change_type": query["change_type"] or NOT_STATED,
            "ranks_text": ranks_text(sorted(place.values()), len(targets), len(ranked)),
            "ap": query["ap"],
            "answers": [
                shown[clip] | {"rank": rank, "status": status}
                for rank, (clip, status) in enumerate(zip(ranked, statuses, strict=False), start=1)
            ],
            "missed": None if "right" in statuses else shown[best_missed] | {"rank": place.get(best_missed)},
        }


def answer_statuses(answers: list[str], targets: set[str]) -> list[str]:
    """For each answer, best first, "right", "wrong", or "extra" where all right answers are ranked before it."""
    statuses, missing = [], set(targets)
    for clip in answers:
        statuses.append("right" if clip in targets else "wrong" if missing else "extra")
        missing.discard(clip)
    return statuses


def ranks_text(right_ranks: list[int], num_targets: int, num_ranked: int) -> str:
    """Where the right answers stand, such as "4 right answers: ranks 1, 2, 5; 1 not in the first 50"."""
    plural = "" if num_targets == 1 else "s"
    places = [f"rank{'' if len(right_ranks) == 1 else 's'} {', '.join(map(str, right_ranks))}"] if right_ranks else []
    missing = num_targets - len(right_ranks)
    if missing:
        places.append(f"{missing} not in the first {num_ranked}")
    return f"{num_targets} right answer{plural}: {'; '.join(places)}"


class ShownClips:
    """The clips of a split, each encoded once: `self[clip_id]` is its video as a data URL and what to write below."""

    def __init__(self, clips: pl.DataFrame) -> None:
        self.rows = {row["clip_id"]: row for row in clips.iter_rows(named=True)}
        self.captions = clip_captions(clips)
        self.encoded: dict[str, str | None] = {}

    def __getitem__(self, clip_id: str) -> dict[str, Any]:
        row = self.rows.get(clip_id)
        if row is None:
            return {"caption": clip_id, "facts": [], "video": None, "missing": "not in the dataset"}
        if clip_id not in self.encoded:
            self.encoded[clip_id] = clip_data_url(row)
        return {
            "caption": self.captions[clip_id],
            "facts": clip_facts(row, self.captions[clip_id]),
            "video": self.encoded[clip_id],
            "missing": "the video cannot be read" if row["video"] else "no video",
        }


def clip_facts(row: dict[str, Any], caption: str) -> list[str]:
    """Label (unless it is the caption), video id and seconds of a clip."""
    label = [] if row["label"] in (None, caption) else [f"label {row['label']}"]
    return [*label, f"video {row['video_id']}", span_text(row["start_seconds"], row["end_seconds"])]


def span_text(start: float | None, end: float | None) -> str:
    if start is None and end is None:
        return "whole file"
    return f"{start or 0:.1f}-{'end' if end is None else f'{end:.1f}'} s"


def text_column(column: str) -> pl.Expr:
    """A column as text, null where it is empty."""
    words = pl.col(column).cast(pl.String)
    return pl.when(words.str.strip_chars() != "").then(words)


def clip_captions(clips: pl.DataFrame) -> dict[str, str]:
    """Clip id -> what to write below the clip."""
    return dict(clips.select("clip_id", name=pl.coalesce(map(text_column, NAME_COLUMNS))).iter_rows())


def label_descriptions(clips: pl.DataFrame) -> dict[str, str]:
    """Label -> the description that all of its clips share; the label where they have none, or several."""
    described = clips.select(label=text_column("label"), description=text_column("description")).drop_nulls("label")
    texts = described.group_by("label").agg(pl.col("description").drop_nulls().unique())
    return {label: found[0] if len(found) == 1 else label for label, found in texts.iter_rows()}


def clip_classes(clips: pl.DataFrame) -> dict[str, str]:
    """Clip id -> the name of its class: of its label where it has one; two labels of one description are one class."""
    label = text_column("label")
    named = label.replace_strict(label_descriptions(clips), default=None, return_dtype=pl.String)
    return dict(clips.select("clip_id", name=pl.coalesce(named, *map(text_column, NAME_COLUMNS))).iter_rows())


def name_targets(predictions: pl.DataFrame, clips: pl.DataFrame) -> pl.DataFrame:
    """The predictions with `target`, the name of what a query asks for, and `target_label` without nulls.

    A label that no clip of the split carries is named by the description of its first target; a query without a label
    by the class of its first target.
    """
    first = pl.col("target_clip_ids").list.first()
    described = clips.select("clip_id", text=text_column("description")).drop_nulls()
    known = [label_descriptions(clips), dict(described.iter_rows()), clip_classes(clips)]
    by_label, by_clip, by_class = (
        column.replace_strict(names, default=None, return_dtype=pl.String)
        for column, names in zip((text_column("target_label"), first, first), known, strict=True)
    )
    label = text_column("target_label")
    return predictions.with_columns(
        target=pl.when(label.is_null())
        .then(pl.coalesce(by_class, first))
        .otherwise(pl.coalesce(by_label, by_clip, label)),
    ).with_columns(target_label=pl.coalesce(label, "target"))
