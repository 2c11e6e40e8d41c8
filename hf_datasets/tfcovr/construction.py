"""From clips and label pairs to triplets and queries; and the rows of the authors."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pyarrow as pa

from hf_datasets.long_videos import SPLITS, Split
from hf_datasets.records import LabelPair, Rejection
from hf_datasets.sharding import Tables, shards_of
from hf_datasets.sources.finegym import read_subaction_spans
from hf_datasets.tfcovr.annotations import ANNOTATION, find_one
from hf_datasets.tfcovr.clips import CLIP_SCHEMA, frame_of, locate_clips
from hf_datasets.tfcovr.labels import Label, answers_of
from hf_datasets.tfcovr.modifications.task import ModificationTask
from hf_datasets.tfcovr.release import read_released_triplets, release_clips
from hf_datasets.tfcovr.triplets import (
    CHANGE_SCHEMA,
    TRIPLET_SCHEMA,
    composed_queries,
    labels_without_clips,
    train_triplets,
)


@dataclass(frozen=True)
class Collection:
    """A dataset before it is written.

    Attributes:
        clips: The clips of all splits (`CLIP_SCHEMA`).
        rows: Split -> a function that returns its triplets or queries (`TRIPLET_SCHEMA`), in tables.
        rejections: The rows that were left out.
        coverage: A sentence on how many clips have their video.
    """

    clips: pl.DataFrame
    rows: Mapping[Split, Tables]
    rejections: list[Rejection] = field(default_factory=list)
    coverage: str = ""

    def clip_table(self, split: Split) -> pa.Table:
        """The clips of a split (`CLIP_SCHEMA`)."""
        clips = self.clips.filter(pl.col("split") == split)
        return clips.select(CLIP_SCHEMA.names).to_arrow().cast(CLIP_SCHEMA)


def compose(
    clips: pl.DataFrame,
    changes: pl.DataFrame,
    *,
    max_triplets_per_pair: int | None = None,
    seed: int = 0,
    labels: Iterable[Label] | None = None,
) -> tuple[dict[Split, Tables], list[Rejection]]:
    """Join clips and changes, each split separately.

    Args:
        clips: Clips with `clip_id`, `label` and `split`.
        changes: See `triplets.CHANGE_SCHEMA`.
        max_triplets_per_pair: See `triplets.plan_join`; queries are never capped.
        seed: See `triplets.plan_join`.
        labels: The labels of clips and changes; the 306 by default.

    Returns:
        Split -> its rows, and a rejection for each label of a change without a clip in a split.
    """
    rows: dict[Split, Tables] = {}
    rejections: list[Rejection] = []
    answers = answers_of(labels)
    for split in SPLITS:
        own = clips.filter(pl.col("split") == split)
        rejections += labels_without_clips(own, changes, split, answers=answers)
        if split == "train":
            rows[split] = train_triplets(
                own, changes, max_triplets_per_pair=max_triplets_per_pair, seed=seed, answers=answers
            )
        else:
            rows[split] = composed_queries(own, changes, split, answers=answers)
    return rows, rejections


def check_enough(
    clips: pl.DataFrame, labels: Iterable[Label], changes: pl.DataFrame, *, threshold: float
) -> dict[Split, Rejection]:
    """Find the splits for which clips and changes give no row.

    Args:
        clips: Clips with `label` and `split`.
        labels: Their labels.
        changes: See `triplets.CHANGE_SCHEMA`.
        threshold: The minimum similarity of the changes.

    Returns:
        The splits without a row, each with a rejection, if another split has rows.

    Raises:
        ValueError: No split has a row.
    """
    answers = answers_of(labels)
    readings = sorted(set(answers.values()))
    if len(readings) < 2:
        raise ValueError(
            f"all clips read the same, {readings[0]!r}, and a query leads from one label to another; give clips of two "
            "labels at least"
        )
    if changes.is_empty():
        raise ValueError(
            f"no pair of the {len(readings)} labels is as similar as {threshold:g} and has a text; lower threshold, or "
            "give descriptions with more words in common"
        )
    pairs = [(answers[source], answers[target]) for source, target in changes.select("source", "target").iter_rows()]
    found = {
        split: {answers[label] for label in clips.filter(pl.col("split") == split)["label"].unique()}
        for split in SPLITS
    }
    empty = [split for split in SPLITS if not any({*pair} <= found[split] for pair in pairs)]
    reasons = [
        f"no rows in {split}: its clips are of {len(found[split])} labels, of which no two are a pair; give it videos "
        "of two similar labels, by a split column or more videos"
        for split in empty
    ]
    if len(empty) == len(SPLITS):
        raise ValueError(f"there is no triplet and no query; {reasons[0]}")
    return {split: Rejection(reason, split, split) for split, reason in zip(empty, reasons, strict=True)}


def release_collection(data_dir: Path, *, video_dir: str | None = None) -> Collection:
    """Read the authors' release; see `release.read_released_triplets` and `release.release_clips`.

    The spans of gymnastics clips in their long videos are those of FineGym's annotation, where the folder holds it.
    """
    frames, rejections = read_released_triplets(data_dir)
    annotation = find_one(data_dir, ANNOTATION)
    spans = {} if annotation is None else read_subaction_spans(annotation)
    clips, refused = release_clips(frames, spans=spans)
    located, coverage = locate_clips(clips, video_dir)
    guessed = located.filter(pl.col("start_seconds").is_not_null() & ~pl.col("clip_id").is_in(list(spans)))
    if len(guessed):
        coverage += (
            f" Spans: {len(guessed):,} clips have the whole seconds that their id tells; put FineGym's "
            f"finegym_annotation_info_v1.1.json into {data_dir} for exact ones."
        )
    rows = {split: shards_of(frame.to_arrow().cast(TRIPLET_SCHEMA)) for split, frame in frames.items()}
    return Collection(located, rows, rejections + refused, coverage)


def write_changes(
    pairs: Iterable[LabelPair | Rejection], labels: Iterable[Label] | None = None
) -> tuple[pl.DataFrame, list[Rejection]]:
    """Write the modification text of each pair with the rule-based generator, and check it.

    Args:
        pairs: The outcomes of `pairs.propose_pairs`; its rejections are passed on.
        labels: The labels of the pairs; the 306 by default.

    Returns:
        The changes in their order (`triplets.CHANGE_SCHEMA`), and the rejections in theirs.
    """
    task = ModificationTask() if labels is None else ModificationTask({label.label_id: label for label in labels})
    written = (pair if isinstance(pair, Rejection) else task.parse(pair, task.write(pair)) for pair in pairs)
    return frame_of(written, CHANGE_SCHEMA)
