"""Composed queries and training triplets as positions in lists of clips and texts, and what could not be placed."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import torch
from torch import Tensor


@dataclass(frozen=True)
class Triplets:
    """Training triplets by position; their number is `len`.

    Attributes:
        query: `(n,)` int64, positions of the query clips.
        text: `(n,)` int64, positions of the texts.
        target: `(n,)` int64, positions of the target clips.
        label: `(n,)` int64, a number for each target label.
        coverage: `triplets`, how many there are, and `usable`, how many of them could be placed.
    """

    query: Tensor
    text: Tensor
    target: Tensor
    label: Tensor
    coverage: dict[str, int]

    def __len__(self) -> int:
        return len(self.query)


def place_triplets(
    rows: pl.DataFrame,
    clips: Mapping[str, int],
    texts: Mapping[str, int],
    labels: Mapping[str, int] | None = None,
) -> Triplets:
    """Training triplets whose clips and text are known; the others are counted in `coverage`.

    Args:
        rows: TF-CoVR's columns `query_clip_id`, `modification_text`, `target_clip_ids` (a list; one triplet for each)
            and `target_label`, such as `Dataset.to_polars()` gives.
        clips: Clip id -> position.
        texts: Text -> position.
        labels: Target label -> its number; None: numbers in the order of the labels that there are.

    Raises:
        ValueError: A target label has no number, or no triplet has both clips and its text.

    Example:
        >>> row = {"query_clip_id": "a", "modification_text": "slower", "target_label": "x"}
        >>> row["target_clip_ids"] = ["b", "gone"]
        >>> triplets = place_triplets(pl.DataFrame([row]), {"a": 0, "b": 1}, {"slower": 0})
        >>> triplets.target, triplets.coverage
        (tensor([1]), {'triplets': 2, 'usable': 1})
    """
    table = rows.explode("target_clip_ids").rename({"target_clip_ids": "target"})
    placed = table.select(
        query=position(table["query_clip_id"], clips),
        text=position(table["modification_text"], texts),
        target=position(table["target"], clips),
        label=numbers_of(table["target_label"], labels),
    )
    known = placed.filter(pl.all_horizontal(pl.col("query", "text", "target") >= 0))
    if known.is_empty():
        raise ValueError(
            f"of {len(placed):,} triplets none has both clips and its text among the embeddings or videos; make "
            "embeddings of this dataset's clips with `subtle embed clips`"
        )
    columns = {name: torch.from_numpy(known[name].to_numpy(writable=True)) for name in known.columns}
    return Triplets(**columns, coverage={"triplets": len(placed), "usable": len(known)})


def numbers_of(names: pl.Series, labels: Mapping[str, int] | None) -> pl.Series:
    """The number of each label.

    Raises:
        ValueError: A label has none.
    """
    if labels is None:
        return names.rank("dense").cast(pl.Int64)
    numbers = position(names, labels)
    if unknown := sorted(set(names.filter(numbers < 0))):
        raise ValueError(
            f"{len(unknown)} target labels are none of the model's {len(labels)}, such as {unknown[0]!r}; train stage "
            "1 on clips of these labels, too"
        )
    return numbers


@dataclass(frozen=True)
class Queries:
    """Composed queries to rank and the gallery to rank.

    Attributes:
        rows: the dataset's rows that can be ranked, in order.
        query: `(n,)` positions of the query clips.
        text: `(n,)` positions of the texts.
        gallery_ids: ids of the gallery in order; under the official protocol with repetitions.
        gallery: their positions.
        exclude: for each query the gallery places of its own clip.
        coverage: how many queries, targets and gallery clips there are, and how many of them can be ranked.
    """

    rows: list[dict[str, Any]]
    query: Tensor
    text: Tensor
    gallery_ids: list[str]
    gallery: Tensor
    exclude: list[list[int]]
    coverage: dict[str, int]

    def __len__(self) -> int:
        return len(self.rows)


def place_queries(
    rows: Collection[Mapping[str, Any]],
    gallery_ids: Sequence[str],
    clips: Mapping[str, int],
    texts: Mapping[str, int],
) -> Queries:
    """Queries whose clip and text are known against the gallery clips that are.

    A query without its own clip cannot be composed and is left out; a target outside the gallery stays a target that
    is never found. Both are counted in `coverage`. A query's own clip is not a target, since it is not ranked.

    Args:
        rows: Queries with TF-CoVR's fields `query_clip_id`, `modification_text` and `target_clip_ids`.
        gallery_ids: Clips to rank, in the order that breaks ties.
        clips: Clip id -> position.
        texts: Text -> position.

    Raises:
        ValueError: No query has its clip, its text and a target.

    Example:
        >>> row = {"query_clip_id": "a", "modification_text": "slower", "target_clip_ids": ["b"]}
        >>> queries = place_queries([row], ["a", "b"], {"a": 0, "b": 1}, {"slower": 0})
        >>> queries.gallery, queries.exclude
        (tensor([0, 1]), [[0]])
    """
    kept = [
        {**row, "target_clip_ids": [clip for clip in row["target_clip_ids"] if clip != row["query_clip_id"]]}
        for row in rows
        if row["query_clip_id"] in clips and row["modification_text"] in texts
    ]
    kept = [row for row in kept if row["target_clip_ids"]]
    if not kept:
        raise ValueError(
            f"none of {len(rows):,} queries has its clip and text among the embeddings; make embeddings of this split "
            "with `subtle embed clips`"
        )
    known = [clip for clip in gallery_ids if clip in clips]
    places: dict[str, list[int]] = {}
    for place, clip in enumerate(known):
        places.setdefault(clip, []).append(place)
    targets = [clip for row in kept for clip in row["target_clip_ids"]]
    return Queries(
        rows=kept,
        query=torch.tensor([clips[row["query_clip_id"]] for row in kept]),
        text=torch.tensor([texts[row["modification_text"]] for row in kept]),
        gallery_ids=known,
        gallery=torch.tensor([clips[clip] for clip in known], dtype=torch.int64),
        exclude=[places.get(row["query_clip_id"], []) for row in kept],
        coverage={
            "queries": len(rows),
            "queries_ranked": len(kept),
            "targets": len(targets),
            "targets_in_gallery": sum(clip in places for clip in targets),
            "gallery_clips": len(gallery_ids),
            "gallery_clips_ranked": len(known),
        },
    )


def position(values: pl.Series, places: Mapping[str, int]) -> pl.Series:
    """Each value's place, -1 where it has none."""
    table = pl.DataFrame(
        {"value": list(places), "place": list(places.values())}, {"value": pl.String, "place": pl.Int64}
    )
    joined = pl.DataFrame({"value": values}).join(table, on="value", how="left", maintain_order="left")
    return joined["place"].fill_null(-1)


def index_of(ids: Sequence[str]) -> dict[str, int]:
    """Id -> position."""
    return {item_id: place for place, item_id in enumerate(ids)}
