"""Clips x label changes -> triplets to train on, and queries with all their targets to evaluate on (section 3).

A *change* is an ordered pair of labels with the text that leads from one to the other. Labels with the same text are
one answer: no text can tell their clips apart, so a clip of either label is a target of the query. `answers` maps each
label to the first one with the same text (see `labels.answers_of`); the default is that of the 306. Clips and changes
are Polars frames; their rows are joined by number, and become ids and text only in the final tables. The functions of
`Tables` use NumPy and Arrow alone: `DataLoader` forks its workers, and Polars hangs in a forked process.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from typing import NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from hf_datasets.class_labels import labeled_features
from hf_datasets.long_videos import Split
from hf_datasets.records import ChangeType, Rejection
from hf_datasets.sharding import Shards, Tables, even_spans, weighed_spans
from hf_datasets.tfcovr.labels import answers_of

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
TRIPLET_FEATURES = labeled_features(TRIPLET_SCHEMA, {"change_type": get_args(ChangeType)})
"""How rows are stored. The tables of this package have `TRIPLET_SCHEMA`, with names."""
CHANGE_SCHEMA = pl.Schema(
    {"source": pl.String, "target": pl.String, "change_type": pl.String, "modification_text": pl.String}
)
JOINED_ROWS = 1 << 22
"""Triplets joined at once, as row numbers (48 MB)."""
TABLE_ROWS = 1 << 17
"""Triplets written at once, as ids and text."""

Answers = Mapping[str, str]


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
        raise ValueError(f"fractions {validation_fraction} and {test_fraction} must be at least 0 and sum below 1")
    np.random.default_rng(seed).shuffle(videos)
    first, second = (np.array([test_fraction, test_fraction + validation_fraction]) * len(videos)).round().astype(int)
    names = np.full(len(videos), "train", dtype=object)
    names[:first], names[first:second] = "test", "validation"
    of_video = pl.DataFrame({"video_id": videos, "split": names}, schema={"video_id": pl.String, "split": pl.String})
    return clips.drop("split", strict=False).join(of_video, on="video_id", how="left", maintain_order="left")


def labels_without_clips(
    clips: pl.DataFrame, changes: pl.DataFrame, split: Split, *, answers: Answers | None = None
) -> Iterator[Rejection]:
    """Find the labels of `changes` without clips in the split, with the number of changes that give no row for it.

    Yields:
        One rejection per label, in the order of the changes; the clips of a label with the same text count.
    """
    answers = answers_of() if answers is None else answers
    present = set(_with_answers(clips, "label", answers)["answer"])
    sides = pl.concat([changes["source"], changes["target"].rename("source")])
    for label, count in sides.value_counts(sort=False).sort("source").iter_rows():
        if answers[label] not in present:
            reason = f"label without clips in {split}: {label!r} has none, so {count} changes give nothing"
            yield Rejection(reason, label, label)


class PlannedChange(NamedTuple):
    """A change with the clips that it joins, as row numbers (uint32) of the clips.

    Attributes:
        change: Row number of the change.
        queries: The clips of its source.
        targets: The clips of its target, or of a label with the same text.
        drawn: The pairs to keep, as places in their order by query, then by target; None keeps all.
    """

    change: int
    queries: npt.NDArray[np.uint32]
    targets: npt.NDArray[np.uint32]
    drawn: npt.NDArray[np.uint32] | None

    @property
    def num_rows(self) -> int:
        """How many pairs are kept."""
        return len(self.queries) * len(self.targets) if self.drawn is None else len(self.drawn)


def plan_join(
    clips: pl.DataFrame,
    changes: pl.DataFrame,
    *,
    max_triplets_per_pair: int | None = None,
    seed: int = 0,
    answers: Answers | None = None,
) -> list[PlannedChange]:
    """Find for each change the clips that `join_clips` pairs.

    Args:
        clips: Clips of one split with `clip_id` (unique) and `label`.
        changes: `source` and `target` labels; see `CHANGE_SCHEMA`.
        max_triplets_per_pair: Draw that many at random of a change that has more; None keeps all.
        seed: Decides which are drawn.
        answers: The labels with the same text, see the module.

    Returns:
        The changes that have clips on both sides, in their order.

    Raises:
        ValueError: A change is between labels with the same text, or the cap is below 1.
    """
    if max_triplets_per_pair is not None and max_triplets_per_pair < 1:
        raise ValueError(f"max_triplets_per_pair is {max_triplets_per_pair}; it is None or at least 1")
    answers = answers_of() if answers is None else answers
    numbered = _with_answers(clips.select("label"), "label", answers).with_row_index("clip")
    sources, targets = (
        {name: np.array(rows, dtype=np.uint32) for name, rows in numbered.group_by(column).agg("clip").iter_rows()}
        for column in ("label", "answer")
    )
    draws: dict[int, npt.NDArray[np.uint32]] = {}
    plan = []
    for change, source, answer in _distinct(changes, answers).select("change", "source", "answer").iter_rows():
        if source not in sources or answer not in targets:
            continue
        size = len(sources[source]) * len(targets[answer])
        if max_triplets_per_pair is not None and size > max_triplets_per_pair and size not in draws:
            places = pl.select(pl.int_range(size).shuffle(seed=seed)).to_series().to_numpy()
            draws[size] = np.flatnonzero(places < max_triplets_per_pair).astype(np.uint32)
        plan.append(PlannedChange(change, sources[source], targets[answer], draws.get(size)))
    return plan


def join_clips(plan: Iterable[PlannedChange]) -> Iterator[pa.Table]:
    """Join every clip of a change's source with every clip of its target.

    Args:
        plan: The result of `plan_join`.

    Yields:
        Batches with row numbers `query`, `target` (of the clips) and `change` (of the changes), uint32, in the order
        of changes, then queries, then targets. No two rows are equal and no clip is its own target.
    """
    parts: list[tuple[npt.NDArray[np.uint32], ...]] = []
    count = 0
    for change, queries, targets, drawn in plan:
        pairs = np.repeat(queries, len(targets)), np.tile(targets, len(queries))
        query, target = pairs if drawn is None else (side[drawn] for side in pairs)
        parts.append((query, target, np.full(len(query), change, dtype=np.uint32)))
        count += len(query)
        if count >= JOINED_ROWS:
            yield _joined(parts)
            parts, count = [], 0
    if parts:
        yield _joined(parts)


def _joined(parts: list[tuple[npt.NDArray[np.uint32], ...]]) -> pa.Table:
    columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    return pa.table(dict(zip(("query", "target", "change"), columns, strict=True)))


def train_triplets(
    clips: pl.DataFrame,
    changes: pl.DataFrame,
    *,
    max_triplets_per_pair: int | None = None,
    seed: int = 0,
    answers: Answers | None = None,
) -> Tables:
    """Make the triplets of `join_clips`, one row each, as ids and text.

    Args:
        clips: Clips of one split with `clip_id` (unique) and `label`.
        changes: See `CHANGE_SCHEMA`.
        max_triplets_per_pair: See `plan_join`.
        seed: See `plan_join`.
        answers: See `plan_join`.

    Returns:
        A function that returns tables of `TRIPLET_SCHEMA`, in shards; `target_clip_ids` holds one id and
        `target_label` is that clip's own label.
    """
    plan = plan_join(clips, changes, max_triplets_per_pair=max_triplets_per_pair, seed=seed, answers=answers)
    tables = _as_text(clips, "clip_id", "label"), _as_text(changes, "change_type", "modification_text")
    sizes = [change.num_rows for change in plan]
    before = [0, *accumulate(sizes)]
    spans = weighed_spans(sizes)
    return Shards([partial(_triplet_tables, plan[start:stop], *tables, before[start]) for start, stop in spans])


def _triplet_tables(
    plan: list[PlannedChange], clips: pa.Table, changes: pa.Table, first_number: int
) -> Iterator[pa.Table]:
    count = first_number
    for joined in join_clips(plan):
        for start in range(0, len(joined), TABLE_ROWS):
            batch = joined.slice(start, TABLE_ROWS)
            query, target, change = (
                clips.take(batch["query"]),
                clips.take(batch["target"]),
                changes.take(batch["change"]),
            )
            numbers = pa.array(np.arange(count, count + len(batch))).cast(pa.string())
            columns = {
                "query_id": pc.binary_join_element_wise("train", numbers, "-"),
                "query_clip_id": query["clip_id"],
                "query_label": query["label"],
                "modification_text": change["modification_text"],
                "change_type": change["change_type"],
                "target_clip_ids": pa.ListArray.from_arrays(
                    np.arange(len(batch) + 1, dtype=np.int32), target["clip_id"].combine_chunks()
                ),
                "target_label": target["label"],
            }
            count += len(batch)
            yield pa.table(columns).cast(TRIPLET_SCHEMA)


def composed_queries(
    clips: pl.DataFrame, changes: pl.DataFrame, split: Split, *, answers: Answers | None = None
) -> Tables:
    """Make the composed queries of a split: every clip with every change of its label, and all target clips.

    Args:
        clips: Clips of that split with `clip_id` (unique) and `label`.
        changes: See `CHANGE_SCHEMA`.
        split: Its name, which begins the query ids.
        answers: See `plan_join`.

    Returns:
        A function that returns tables of `TRIPLET_SCHEMA`, in shards, in the order of changes, then clips; targets
        are in the order of the clips. `target_label` is the first label with the target's text.

    Raises:
        ValueError: A change is between labels with the same text.
    """
    answers = answers_of() if answers is None else answers
    answered = (
        _with_answers(clips, "label", answers).group_by("answer").agg(target_clip_ids="clip_id").with_row_index("place")
    )
    queries = (
        _distinct(changes, answers)
        .join(clips.select(source="label", query_clip_id="clip_id"), on="source", maintain_order="left_right")
        .join(answered.select("answer", "place"), on="answer", maintain_order="left")
        .with_row_index("number")
        .select(
            pl.format("{}-{}", pl.lit(split), "number").alias("query_id"),
            "query_clip_id",
            pl.col("source").alias("query_label"),
            "modification_text",
            "change_type",
            pl.col("answer").alias("target_label"),
            "place",
        )
    )
    targets = answered["target_clip_ids"].to_arrow().cast(TRIPLET_SCHEMA.field("target_clip_ids").type)
    table = queries.to_arrow()
    return Shards([partial(_query_tables, table, targets, *span) for span in even_spans(len(table))])


def _query_tables(table: pa.Table, targets: pa.Array, start: int, stop: int) -> Iterator[pa.Table]:
    queries = table.slice(start, stop - start)
    rows = queries.append_column("target_clip_ids", targets.take(queries["place"].combine_chunks()))
    yield rows.select(TRIPLET_SCHEMA.names).cast(TRIPLET_SCHEMA)


def _as_text(frame: pl.DataFrame, *names: str) -> pa.Table:
    return frame.select(names).to_arrow().cast(pa.schema({name: pa.string() for name in names}))


def _with_answers(frame: pl.DataFrame, column: str, answers: Answers) -> pl.DataFrame:
    return frame.with_columns(answer=pl.col(column).replace_strict(dict(answers), return_dtype=pl.String))


def _distinct(changes: pl.DataFrame, answers: Answers) -> pl.DataFrame:
    # A change to each of two labels with the same text would repeat every triplet, so the first one is kept.
    own = _with_answers(changes.with_row_index("change"), "source", answers).rename({"answer": "own"})
    answered = _with_answers(own, "target", answers)
    same = answered.filter(pl.col("own") == pl.col("answer"))
    if not same.is_empty():
        source, target = same.select("source", "target").row(0)
        raise ValueError(f"labels {source!r} and {target!r} read the same, so no change leads from one to the other")
    return answered.unique(["source", "answer"], keep="first", maintain_order=True)
