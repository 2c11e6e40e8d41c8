"""Composed benchmarks of others, in mteb's layout, as queries and clips of ours: `load_dataset("tfcovr", "composed")`.

The corpus is the split `test` of the clips, which is the gallery. A query's own clip is the document of the corpus that
is the same stretch of the same file; where there is none, it is a clip of the split `queries`, which is not ranked.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import polars as pl
import pyarrow as pa

from hf_datasets.long_videos import Split
from hf_datasets.records import Rejection
from hf_datasets.sharding import Tables, shards_of
from hf_datasets.sources.mteb_layout import Video, read_mteb_layout
from hf_datasets.tfcovr.clips import CLIP_SCHEMA
from hf_datasets.tfcovr.construction import Collection
from hf_datasets.tfcovr.triplets import TRIPLET_SCHEMA

COMPOSED_HELP = (
    "the composed configuration reads, from data_dir, a benchmark of composed video retrieval in mteb's layout: "
    "corpus, queries and qrels, as `hf download org/name --repo-type dataset` fetches them"
)
GALLERY: Split = "test"
QUERIES = "queries"


def read_composed(
    data_dir: Path,
    *,
    video_dir: str | os.PathLike[str] | None = None,
    subset: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> Collection:
    """Read a benchmark; see `sources.mteb_layout.read_mteb_layout` for the arguments and errors.

    Returns:
        The clips of the splits `test` and `queries`, and the queries of the split `test`. Labels are null: such
        benchmarks have none.

    Raises:
        ValueError: No query has a target.
    """
    extract_to = Path(datasets.config.HF_DATASETS_CACHE) / "subtle-composed-videos"
    found = read_mteb_layout(data_dir, extract_to=extract_to, video_dir=video_dir, subset=subset, columns=columns)
    document_of: dict[tuple[Any, ...], str] = {}
    for document, video in found.corpus.items():
        document_of.setdefault(_key(video), document)
    clips = [_clip(document, video, GALLERY) for document, video in found.corpus.items()]
    only_asked: dict[tuple[Any, ...], str] = {}
    rows: list[dict[str, Any]] = []
    rejections: list[Rejection] = list(found.rejections)
    for query, (video, text) in found.queries.items():
        own = document_of.get(_key(video)) or only_asked.get(_key(video))
        if own is None:
            own = f"query {query}"
            while own in found.corpus:
                own += "'"
            only_asked[_key(video)] = own
            clips.append(_clip(own, video, QUERIES))
        targets = [document for document in found.relevant.get(query, ()) if document != own]
        if targets:
            rows.append(dict.fromkeys(TRIPLET_SCHEMA.names) | {
                "query_id": query, "query_clip_id": own, "modification_text": text, "target_clip_ids": targets,
            })  # fmt: skip
        else:
            why = f"query without a target: {query!r} of {data_dir} has no relevant document but its own clip"
            rejections.append(Rejection(why, query, query))
    if not rows:
        raise ValueError(f"{data_dir}: no query has a relevant document that is not its own clip; check qrels")
    tables: dict[Split, Tables] = {GALLERY: shards_of(pa.Table.from_pylist(rows, TRIPLET_SCHEMA))}
    frame = pl.DataFrame(clips, schema=dict.fromkeys(CLIP_SCHEMA.names, pl.String) | {
        "start_seconds": pl.Float64, "end_seconds": pl.Float64,
    })  # fmt: skip
    return Collection(frame, tables, rejections, _coverage(frame, len(document_of), len(rows), len(only_asked)))


def _key(video: Video) -> tuple[Any, ...]:
    return (video.path or video.name, video.start_seconds, video.end_seconds)


def _clip(clip_id: str, video: Video, split: str) -> dict[str, Any]:
    times = {"start_seconds": video.start_seconds, "end_seconds": video.end_seconds}
    place = {"clip_id": clip_id, "video_id": Path(video.name).stem, "video": video.path, "split": split}
    return dict.fromkeys(CLIP_SCHEMA.names) | place | times


def _coverage(clips: pl.DataFrame, num_distinct: int, num_queries: int, num_outside: int) -> str:
    gallery = clips.filter(pl.col("split") == GALLERY)
    found = len(clips) - clips["video"].null_count()
    text = f"Videos: {found:,} of {len(clips):,} clips ({found / len(clips):.3f}) have their video."
    text += f" {num_queries:,} queries, {len(gallery):,} clips in the gallery; {num_outside:,} query clips are not."
    repeated = len(gallery) - num_distinct
    return f"{text} {repeated:,} clips of the gallery repeat another one's video." if repeated else text
