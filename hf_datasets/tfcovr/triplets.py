"""Clips x label changes -> triplets to train on, and queries with all their targets to evaluate on (section 3).

A *change* is an ordered pair of labels with the text that leads from one to the other. Labels that read the same
are one answer: no text can tell their clips apart, so a clip of either answers the query. Clips and changes are
Polars frames; their rows are joined by number, and become ids and text only when a batch leaves.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from hf_datasets.records import Rejection
from hf_datasets.tfcovr.labels import answer_class, load_labels

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
TRIPLET_SCHEMA = pa.schema(
    {
        "query_id": pa.string(),
        "query_clip_id": pa.string(),
        "query_label": pa.string(),
        "modification_text": pa.string(),
        "change_type": pa.string(),
        "target_clip_ids": pa.list_(pa.string()),
        "target_label": pa.string(),
    }
)
CHANGE_SCHEMA = pl.Schema(
    {"source": pl.String, "target": pl.String, "change_type": pl.String, "modification_text": pl.String}
)
JOINED_ROWS = 1 << 22
"""Triplets joined at once, as row numbers (48 MB)."""
TABLE_ROWS = 1 << 17
"""Triplets written at once, as ids and text."""


def split_by_video(
    clips: pl.DataFrame, *, validation_fraction: float = 0.1, test_fraction: float = 0.1, seed: int = 0
) -> pl.DataFrame:
    """Give every long video, with all its clips, to one split.

    Args:
        clips: Clips with a `video_id`.
        validation_fraction: Share of the videos for validation, in [0, 1).
        test_fraction: Share of the videos for test, in [0, 1).
        seed: Decides which videos.

    Returns:
        The clips in their order with `split`.

    Raises:
        ValueError: The fractions leave no video to train on.
    """
    videos = clips["video_id"].unique().sort().to_numpy().copy()
    if min(validation_fraction, test_fraction) < 0 or validation_fraction + test_fraction >= 1:
        raise ValueError(
            f"fractions {validation_fraction} and {test_fraction} must be at least 0 and sum below 1"
        )
    np.random.default_rng(seed).shuffle(videos)
    first, second = (
        (np.array([test_fraction, test_fraction + validation_fraction]) * len(videos)).round().astype(int)
    )
    names = np.full(len(videos), "train", dtype=object)
    names[:first], names[first:second] = "test", "validation"
    of_video = pl.DataFrame(
        {"video_id": videos, "split": names}, schema={"video_id": pl.String, "split": pl.String}
    )
    return clips.drop("split", strict=False).join(of_video, on="video_id", how="left", maintain_order="left")


def labels_without_clips(clips: pl.DataFrame, changes: pl.DataFrame, split: Split) -> Iterator[Rejection]:
    """Find the labels of `changes` that no clip of the split has, with how many changes come to nothing for it.

    Yields:
        One rejection per label, in the order of the changes; the clips of an identically worded label count.
    """
    answers = set(_with_answers(clips, "label")["answer"])
    sides = pl.concat([changes["source"], changes["target"].rename("source")])
    for label, count in sides.value_counts(sort=False).sort("source").iter_rows():
        if answer_class(label)[0] not in answers:
            reason = f"label without clips in {split}: {label!r} has none, so {count} changes give nothing"
            yield Rejection(reason, label, label)


def join(
    clips: pl.DataFrame, changes: pl.DataFrame, *, max_triplets_per_pair: int | None = None, seed: int = 0
) -> Iterator[pl.DataFrame]:
    """Join every clip of a change's source with every clip of its target.

    Args:
        clips: Clips of one split with `clip_id` (unique) and `label`.
        changes: `source` and `target` labels; see `CHANGE_SCHEMA`.
        max_triplets_per_pair: Draw that many at random of a change that has more; None keeps all.
        seed: Decides which are drawn.

    Yields:
        Batches with row numbers `query`, `target` (of `clips`) and `change` (of `changes`), uint32, in the order
        of changes, then queries, then targets. No two rows are equal and no clip is its own target.

    Raises:
        ValueError: A change is between labels that read the same, or the cap is below 1.
    """
    if max_triplets_per_pair is not None and max_triplets_per_pair < 1:
        raise ValueError(f"max_triplets_per_pair is {max_triplets_per_pair}; it is None or at least 1")
    numbered = _with_answers(clips.select("label"), "label").with_row_index("clip")
    sources = numbered.select(source="label", query="clip")
    targets = numbered.select("answer", target="clip")
    sizes = sources.group_by("source").len("sources"), targets.group_by("answer").len("targets")
    sized = (
        _distinct(changes)
        .join(sizes[0], on="source", maintain_order="left")
        .join(sizes[1], on="answer", maintain_order="left")
        .with_columns(batch=(pl.col("sources").cast(pl.Int64) * pl.col("targets")).cum_sum() // JOINED_ROWS)
    )
    for batch in sized.partition_by("batch", maintain_order=True):
        joined = (
            batch.lazy()
            .select("source", "answer", "change")
            .join(sources.lazy(), on="source", maintain_order="left_right")
            .join(targets.lazy(), on="answer", maintain_order="left_right")
            .select("query", "target", "change")
            .collect()
        )
        if max_triplets_per_pair is not None:
            place = pl.int_range(pl.len()).shuffle(seed=seed).over("change")
            joined = joined.filter(place < max_triplets_per_pair)
        yield joined


def train_triplets(
    clips: pl.DataFrame, changes: pl.DataFrame, *, max_triplets_per_pair: int | None = None, seed: int = 0
) -> Iterator[pa.Table]:
    """Make the triplets of `join`, one row each, as ids and text.

    Args:
        clips: Clips of one split with `clip_id` (unique) and `label`.
        changes: See `CHANGE_SCHEMA`.
        max_triplets_per_pair: See `join`.
        seed: See `join`.

    Yields:
        Tables of `TRIPLET_SCHEMA`; `target_clip_ids` holds one id and `target_label` is that clip's own label.
    """
    clip_ids, labels = (clips[name].to_arrow().cast(pa.string()) for name in ("clip_id", "label"))
    texts = {
        name: changes[name].to_arrow().cast(pa.string()) for name in ("change_type", "modification_text")
    }
    count = 0
    for joined in join(clips, changes, max_triplets_per_pair=max_triplets_per_pair, seed=seed):
        for batch in joined.iter_slices(TABLE_ROWS):
            query, target, change = (batch[name].to_arrow() for name in ("query", "target", "change"))
            numbers = pa.array(np.arange(count, count + len(batch))).cast(pa.string())
            columns = {
                "query_id": pc.binary_join_element_wise("train", numbers, "-"),
                "query_clip_id": clip_ids.take(query),
                "query_label": labels.take(query),
                "modification_text": texts["modification_text"].take(change),
                "change_type": texts["change_type"].take(change),
                "target_clip_ids": pa.ListArray.from_arrays(
                    np.arange(len(batch) + 1, dtype=np.int32), clip_ids.take(target)
                ),
                "target_label": labels.take(target),
            }
            count += len(batch)
            yield pa.table(columns).cast(TRIPLET_SCHEMA)


def composed_queries(clips: pl.DataFrame, changes: pl.DataFrame, split: Split) -> Iterator[pa.Table]:
    """Make the composed queries of a split: every clip with every change of its label, and all clips that answer.

    Args:
        clips: Clips of that split with `clip_id` (unique) and `label`.
        changes: See `CHANGE_SCHEMA`.
        split: Its name, which begins the query ids.

    Yields:
        A table of `TRIPLET_SCHEMA` in the order of changes, then clips; targets are in the order of the clips.
        `target_label` is the first label of those that read as the target does.

    Raises:
        ValueError: A change is between labels that read the same.
    """
    answers = _with_answers(clips, "label").group_by("answer").agg(target_clip_ids="clip_id")
    queries = (
        _distinct(changes)
        .join(clips.select(source="label", query_clip_id="clip_id"), on="source", maintain_order="left_right")
        .join(answers, on="answer", maintain_order="left")
        .with_row_index("number")
        .select(
            pl.format("{}-{}", pl.lit(split), "number").alias("query_id"),
            "query_clip_id",
            pl.col("source").alias("query_label"),
            "modification_text",
            "change_type",
            "target_clip_ids",
            pl.col("answer").alias("target_label"),
        )
    )
    yield queries.to_arrow().cast(TRIPLET_SCHEMA)


def _with_answers(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    answers = {label.label_id: answer_class(label.label_id)[0] for label in load_labels()}
    return frame.with_columns(answer=pl.col(column).replace_strict(answers, return_dtype=pl.String))


def _distinct(changes: pl.DataFrame) -> pl.DataFrame:
    # A change to each of two labels that read the same would repeat every triplet, so the first one stands for both.
    answered = _with_answers(
        _with_answers(changes.with_row_index("change"), "source").rename({"answer": "own"}), "target"
    )
    same = answered.filter(pl.col("own") == pl.col("answer"))
    if not same.is_empty():
        source, target = same.select("source", "target").row(0)
        raise ValueError(
            f"labels {source!r} and {target!r} read the same, so no change leads from one to the other"
        )
    return answered.unique(["source", "answer"], keep="first", maintain_order=True)
