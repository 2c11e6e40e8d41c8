"""The rows of TF-CoVR as positions in lists of clips and texts, and what could not be placed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import torch
from datasets import Dataset, DatasetDict, load_dataset
from torch import Tensor

import hf_datasets  # noqa: F401 - registers the data sets' names
from harness.shared_config import DataConfig
from hf_datasets.registration import REJECTIONS_FILE
from hf_datasets.video import VideoError


def load_splits(config: DataConfig, *, clips: bool = False) -> DatasetDict:
    """All splits that there are of the queries, or of the clips they speak of."""
    return _load(config, None, clips=clips)


def load_split(config: DataConfig, split: str, *, clips: bool = False) -> Dataset:
    """One split of the queries, or of the clips they speak of; an empty one is an error."""
    data = _load(config, split, clips=clips)
    if not len(data):
        name = f"{config.dataset_config}-clips" if clips else config.dataset_config
        raise SystemExit(
            f"the split {split!r} of {config.dataset!r}, {name!r}, is empty; check the data or name another split"
        )
    return data


def refused_rows(data: Dataset) -> str | None:
    """What the dataset says of the rows that it refused, and where each is listed; None where it refused none."""
    said = next((line for line in data.info.description.splitlines() if " rows were refused " in line), None)
    if said is None or not data.cache_files:
        return said
    return f"{said} That is {Path(data.cache_files[0]['filename']).with_name(REJECTIONS_FILE)}"


def _load(config: DataConfig, split: str | None, *, clips: bool) -> Any:
    name = f"{config.dataset_config}-clips" if clips else config.dataset_config
    # Queries get the folder of videos, too, so that they speak of the same clips.
    options = {"video_dir": config.video_dir} if config.video_dir else {}
    try:
        return load_dataset(config.dataset, name, data_dir=config.data_dir, split=split, **options)
    except (ValueError, FileNotFoundError, VideoError) as error:  # which also says that a split has no row
        what = f"the split {split!r}" if split else "the data"
        raise SystemExit(f"{what} of {config.dataset!r}, {name!r}, cannot be read: {error}") from error


@dataclass(frozen=True)
class Triplets:
    """Training triplets: `(n,)` int64 positions of query clips, texts and target clips, and target labels."""

    query: Tensor
    text: Tensor
    target: Tensor
    label: Tensor
    coverage: dict[str, int]

    def __len__(self) -> int:
        return len(self.query)


def place_triplets(rows: Dataset, clips: Mapping[str, int], texts: Mapping[str, int]) -> Triplets:
    """Training rows whose clips and text are known; the others are counted in `coverage`."""
    table = rows.to_polars().explode("target_clip_ids").rename({"target_clip_ids": "target"})
    placed = table.select(
        query=position(table["query_clip_id"], clips),
        text=position(table["modification_text"], texts),
        target=position(table["target"], clips),
        label=table["target_label"].rank("dense").cast(pl.Int64),
    )
    known = placed.filter(pl.all_horizontal(pl.col("query", "text", "target") >= 0))
    if known.is_empty():
        raise SystemExit(
            f"of {len(placed):,} triplets none has both clips and its text among the embeddings or videos; make "
            "embeddings of this data set's clips with `python recipes/embed.py`"
        )
    columns = {name: torch.from_numpy(known[name].to_numpy(writable=True)) for name in known.columns}
    return Triplets(**columns, coverage={"triplets": len(placed), "usable": len(known)})


@dataclass(frozen=True)
class Queries:
    """Composed queries to rank and the gallery to rank.

    Attributes:
        rows: the data set's rows that can be ranked, in order.
        query: `(n,)` positions of the query clips.
        text: `(n,)` positions of the texts.
        gallery_ids: ids of the gallery in order; under the official protocol with repetitions.
        gallery: their positions.
        exclude: for each query the gallery places of its own clip.
        coverage: what was asked for and what of it can be ranked.
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
    rows: Dataset, gallery_ids: Sequence[str], clips: Mapping[str, int], texts: Mapping[str, int]
) -> Queries:
    """Queries whose clip and text are known against the gallery clips that are.

    A query without its own clip cannot be composed and is left out; a target outside the gallery stays a target that
    is never found. Both are counted in `coverage`. A clip that answers itself is no target, since it is not ranked.
    """
    kept = [
        row | {"target_clip_ids": [clip for clip in row["target_clip_ids"] if clip != row["query_clip_id"]]}
        for row in rows
        if row["query_clip_id"] in clips and row["modification_text"] in texts
    ]
    kept = [row for row in kept if row["target_clip_ids"]]
    if not kept:
        raise SystemExit(
            f"none of {len(rows):,} queries has its clip and text among the embeddings; make embeddings of this split with "
            "`python recipes/embed.py`"
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
    """Id -> place."""
    return {one: place for place, one in enumerate(ids)}
