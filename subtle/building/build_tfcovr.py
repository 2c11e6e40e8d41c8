"""Build TF-CoVR's triplets and queries from published annotations or your own clips."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from datasets import Features

from hf_datasets.class_labels import with_labels
from hf_datasets.long_videos import SPLITS
from hf_datasets.miniature import MiniatureConfig, plan_competitions
from hf_datasets.miniature.competitions import clip_rows
from hf_datasets.paper_counts import beside_paper
from hf_datasets.records import LabelPair, Rejection
from hf_datasets.tfcovr import builder
from hf_datasets.tfcovr.annotations import source_clips
from hf_datasets.tfcovr.clips import CLIP_FEATURES, check_clips, frame_of, locate_clips
from hf_datasets.tfcovr.construction import Collection, check_enough, compose
from hf_datasets.tfcovr.labels import Label, load_labels
from hf_datasets.tfcovr.marks import Additions, read_marks
from hf_datasets.tfcovr.modifications.task import ModificationTask
from hf_datasets.tfcovr.own_clips import read_own_clips
from hf_datasets.tfcovr.pair_review import read_review, write_review
from hf_datasets.tfcovr.pairs import default_threshold, propose_pairs, text_encoder
from hf_datasets.tfcovr.splitting import hold_out_labels
from hf_datasets.tfcovr.statistics import PAPER_COUNTS, counts_of
from hf_datasets.tfcovr.triplets import CHANGE_SCHEMA, TRIPLET_FEATURES, split_by_video
from subtle.building.options import BuildTFCoVRConfig
from subtle.run.build import Build

TFCOVR_CARD = Path(builder.__file__).with_name("README.md")


def read_clips_and_labels(config: BuildTFCoVRConfig) -> tuple[pl.DataFrame, Sequence[Label], list[Rejection]]:
    """The clips with their splits, the labels of their vocabulary, and the rows that were refused."""
    fractions: dict[str, Any] = {
        "validation_fraction": config.validation_fraction,
        "test_fraction": config.test_fraction,
    }
    if config.data_dir:
        folder = Path(config.data_dir).expanduser()
        own = read_own_clips(folder, video_dir=config.video_dir, **fractions, seed=config.seed)
        return own.clips, own.labels, own.rejections
    if config.source:
        clips, rejections, _ = source_clips(Path(config.source))
        return split_by_video(clips, **fractions, seed=config.seed), load_labels(), rejections
    miniature = MiniatureConfig()
    rows = [row for competition in plan_competitions(miniature) for row in clip_rows(competition, miniature.fps)]
    clips, rejections = check_clips(pl.DataFrame(rows), source="the miniature's plan")
    return locate_clips(clips, None)[0], load_labels(), rejections


def main(config: BuildTFCoVRConfig, build: Build | None = None) -> int:
    build = build or Build(config)
    clips, vocabulary, rejections = read_clips_and_labels(config)
    list(build.passed("clips", [*clips["clip_id"], *rejections]))
    present = set(clips["label"])
    labels = [label for label in vocabulary if label.label_id in present]
    if config.unseen_labels:
        clips, held_out = hold_out_labels(clips, labels, config.unseen_labels, seed=config.seed)
        print(held_out)
    threshold = config.threshold
    if threshold is None:
        threshold = 0.0 if config.similarity_model else default_threshold(labels)
    sheet = None if config.pairs is None else Path(config.pairs)
    if sheet is not None and sheet.is_file():
        proposed = read_review(sheet, labels)
    else:
        encoder = text_encoder(config.similarity_model) if config.similarity_model else None
        proposed = propose_pairs(labels, embeddings=encoder, threshold=threshold, top_n=config.top_n)
        if sheet is not None and not config.dry_run:
            number = write_review(sheet, (pair for pair in proposed if isinstance(pair, LabelPair)), labels)
            print(f"{sheet}: {number:,} pairs to review; write yes or no into the column keep of each, and run again")
            return 0
    pairs = list(build.limited(build.passed("pairs", proposed)))
    task = ModificationTask({label.label_id: label for label in labels}, prompts=config.prompts)
    answers = build.ask(task, pairs, name="modifications")
    changes, _ = frame_of((modification for _, modification in answers), CHANGE_SCHEMA)
    rows, unused = compose(
        clips,
        changes,
        max_triplets_per_pair=config.max_triplets_per_pair,
        seed=config.seed,
        labels=vocabulary,
    )
    if config.data_dir and not (config.dry_run or build.stopped) and (answers or not pairs):
        unused += check_enough(clips, labels, changes, threshold=threshold).values()
    list(build.passed("labels per split", unused))
    marked = Additions()
    if config.marks:
        marked = read_marks(Path(config.marks), clips, Path(str(config.video_dir)).expanduser())
        list(build.passed("marks", [*marked.triplets, *marked.rejections]))
        clips = marked.with_clips(clips)
    found = Collection(clips, rows)

    def compare(folder: Path) -> dict[str, Any]:
        columns = ["target_clip_ids", "modification_text"]
        paths = {split: sorted((folder / config.name).glob(f"{split}-*.parquet")) for split in SPLITS}
        written: dict[str, Any] = {split: pl.read_parquet(of, columns=columns) for split, of in paths.items() if of}
        return beside_paper(PAPER_COUNTS, counts_of(written, clips))

    return build.write(
        {
            config.name: {split: labeled(rows[split](), TRIPLET_FEATURES) for split in SPLITS}
            | {"train": chain(labeled(rows["train"](), TRIPLET_FEATURES), marked.tables())},
            f"{config.name}-clips": {split: labeled([found.clip_table(split)], CLIP_FEATURES) for split in SPLITS},
        },
        card=TFCOVR_CARD,
        compare=compare if config.source else None,
        source=config.data_dir or config.source or "the miniature",
    )


def labeled(tables: Iterable[pa.Table], features: Features) -> Iterator[pa.Table]:
    return (with_labels(table, features) for table in tables)
