"""Build TF-CoVR's triplets and queries from published annotations or your own clips.

    python recipes/build_tfcovr.py
    python recipes/build_tfcovr.py --source annotations --model gpt-4o --dry_run
    python recipes/build_tfcovr.py --source annotations --model gpt-4o --max_usd 20
    python recipes/build_tfcovr.py --data_dir myclips --video_dir myclips/videos --model gpt-4o

Pairs of labels get modification texts, and from these follow triplets and queries. `--source` is a folder with the
annotations of FineGym, FineDiving or both; without it the labels and clips of the miniature are used. `--data_dir` is a
folder with a table of your own clips instead (hf_datasets/tfcovr/README.md has its columns), whose labels may be any
words. Without `--model` the rule-based generator writes, so no key is needed. A killed run started again goes on where
it was and pays for nothing twice. `load_dataset("tfcovr", "source", data_dir=OUTPUT_DIR)` opens the result, for own
clips the configuration `own` with `video_dir`.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from harness.config import option, parse_config, run_recipe
from harness.shared_config import BuildConfig


@dataclass
class BuildTFCoVRConfig(BuildConfig):
    """What to build from; the defaults are for the miniature."""

    source: str | None = option(
        None, "Folder with the annotations of FineGym, FineDiving or both; none: the miniature."
    )
    data_dir: str | None = option(None, "Folder with a table of your own clips, or the table, in place of --source.")
    video_dir: str | None = option(None, "Folder of your videos; clips without theirs are left out.")
    marks: str | None = option(
        None, "Table of search results marked right or wrong, as demo.py writes it; the right ones become triplets."
    )
    similarity_model: str | None = option(
        None,
        "CLIP-like text model or sentence encoder whose cosines say how similar labels are; none: their attributes, "
        "or the characters of their descriptions.",
    )
    threshold: float | None = option(
        None,
        "Least similarity (-1 to 1) of two labels that make a pair; none: 0.6 of attributes, else 0.",
    )
    top_n: int | None = option(
        None, "Most target labels per source label; none: all above the threshold, of own clips 5."
    )
    max_triplets_per_pair: int | None = option(100, "Most triplets per pair of labels; none: all.")
    validation_fraction: float | None = option(
        None, "Share (0 to 1) of the videos for validation; none: 0.1, of own clips 0.2."
    )
    test_fraction: float | None = option(None, "Share (0 to 1) of the videos for test; none: 0.1, of own clips 0.2.")
    max_output_tokens: int = 128
    output_dir: str = "outputs/build_tfcovr"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source and self.data_dir:
            raise ValueError("--source has upstream annotations and --data_dir your own clips: give one of them")
        if self.video_dir and not self.data_dir:
            raise ValueError("--video_dir has the videos of your own clips: give their table with --data_dir")
        if self.marks and not self.video_dir:
            raise ValueError("--marks needs your own clips and videos: give --data_dir and --video_dir")
        is_own = self.data_dir is not None
        defaults = {"top_n": 5 if is_own else None}
        defaults |= dict.fromkeys(("validation_fraction", "test_fraction"), 0.2 if is_own else 0.1)
        for name, value in defaults.items():
            if getattr(self, name) is None:
                setattr(self, name, value)

    @property
    def name(self) -> str:
        """The configuration that opens the result."""
        return "own" if self.data_dir else "source"


if __name__ == "__main__":  # before the imports below, which take seconds
    CONFIG = parse_config(BuildTFCoVRConfig, __doc__)

import polars as pl
import pyarrow as pa
from datasets import Features

from harness.build import Build, run
from hf_datasets.class_labels import with_labels
from hf_datasets.miniature import MiniatureConfig, plan_competitions
from hf_datasets.miniature.competitions import clip_rows
from hf_datasets.records import Rejection
from hf_datasets.tfcovr import builder
from hf_datasets.tfcovr.annotations import source_clips
from hf_datasets.tfcovr.clips import CLIP_FEATURES, check_clips, locate
from hf_datasets.tfcovr.construction import Collection, change_frame, check_enough, compose
from hf_datasets.tfcovr.labels import Label, load_labels
from hf_datasets.tfcovr.marks import Marks, read_marks
from hf_datasets.tfcovr.modifications.task import ModificationTask
from hf_datasets.tfcovr.own_clips import read_own_clips
from hf_datasets.tfcovr.pairs import default_threshold, propose_pairs, text_encoder
from hf_datasets.tfcovr.triplets import SPLITS, TRIPLET_FEATURES, split_by_video

CARD = Path(builder.__file__).with_name("README.md")


def read_clips(config: BuildTFCoVRConfig) -> tuple[pl.DataFrame, Sequence[Label], list[Rejection]]:
    """The clips with their splits, the labels of their vocabulary, and the rows that were refused."""
    fractions = {"validation_fraction": config.validation_fraction, "test_fraction": config.test_fraction}
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
    return locate(clips, None)[0], load_labels(), rejections


def main(config: BuildTFCoVRConfig) -> int:
    build = Build(config)
    clips, vocabulary, rejections = read_clips(config)
    list(build.passed("clips", [*clips["clip_id"], *rejections]))
    present = set(clips["label"])
    labels = [label for label in vocabulary if label.label_id in present]
    encoder = text_encoder(config.similarity_model) if config.similarity_model else None
    threshold = config.threshold
    if threshold is None:
        threshold = 0.0 if encoder else default_threshold(labels)
    proposed = propose_pairs(labels, embeddings=encoder, threshold=threshold, top_n=config.top_n)
    pairs = list(build.limited(build.passed("pairs", proposed)))
    task = ModificationTask({label.label_id: label for label in labels})
    answers = build.ask(task, pairs, name="modifications")
    changes, _ = change_frame(modification for _, modification in answers)
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
    marked = Marks()
    if config.marks:
        marked = read_marks(Path(config.marks), clips, Path(str(config.video_dir)).expanduser())
        list(build.passed("marks", [*marked.triplets, *marked.rejections]))
        clips = marked.with_clips(clips)
    found = Collection(clips, rows)
    return build.write(
        {
            config.name: {split: labeled(rows[split](), TRIPLET_FEATURES) for split in SPLITS}
            | {"train": chain(labeled(rows["train"](), TRIPLET_FEATURES), marked.tables())},
            f"{config.name}-clips": {split: labeled(found.clip_tables(split), CLIP_FEATURES) for split in SPLITS},
        },
        card=CARD,
        source=config.data_dir or config.source or "the miniature",
    )


def labeled(tables: Iterable[pa.Table], features: Features) -> Iterator[pa.Table]:
    return (with_labels(table, features) for table in tables)


if __name__ == "__main__":
    sys.exit(run_recipe(partial(run, main), CONFIG))
