"""Build TF-CoVR: label pairs -> modification texts -> triplets and queries, from the miniature or real annotations.

    python recipes/build_tfcovr.py
    python recipes/build_tfcovr.py --source annotations --model gpt-4o --dry_run
    python recipes/build_tfcovr.py --source annotations --model gpt-4o --max_usd 20

`--source` is a folder with the annotations of FineGym, FineDiving or both; without it the labels and clips of the
miniature are used. Without `--model` the offline writer writes, so no key is needed. A killed run started again goes
on where it was and pays for nothing twice. `load_dataset("tfcovr", "source", data_dir=OUTPUT_DIR)` opens the result.
"""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from config import option, parse_config, run_recipe
from shared_config import BuildConfig


@dataclass
class BuildTFCoVRConfig(BuildConfig):
    """What to build from; the defaults are for the miniature."""

    source: str | None = option(
        None, "Folder with the annotations of FineGym, FineDiving or both; none: the miniature."
    )
    threshold: float = option(0.6, "Least similarity (0 to 1) of two labels that make a pair.")
    top_n: int | None = option(None, "Most target labels per source label; none: all above the threshold.")
    max_triplets_per_pair: int | None = option(100, "Most triplets per pair of labels; none: all.")
    validation_fraction: float = option(0.1, "Share (0 to 1) of the videos for validation.")
    test_fraction: float = option(0.1, "Share (0 to 1) of the videos for test.")
    max_output_tokens: int = 128
    output_dir: str = "outputs/build_tfcovr"


if __name__ == "__main__":  # before the imports below, which take seconds
    CONFIG = parse_config(BuildTFCoVRConfig, __doc__)

import polars as pl
from build import Build, run

from hf_datasets.miniature import MiniatureConfig, plan_competitions
from hf_datasets.miniature.competitions import clip_rows
from hf_datasets.records import Rejection
from hf_datasets.tfcovr import builder
from hf_datasets.tfcovr.clips import check_clips, locate
from hf_datasets.tfcovr.collection import Collection, change_frame, compose, source_clips
from hf_datasets.tfcovr.labels import load_labels
from hf_datasets.tfcovr.pairs import propose_pairs
from hf_datasets.tfcovr.tasks import ModificationTask
from hf_datasets.tfcovr.triplets import SPLITS, split_by_video

CARD = Path(builder.__file__).with_name("README.md")


def read_clips(config: BuildTFCoVRConfig) -> tuple[pl.DataFrame, list[Rejection]]:
    """The clips with their splits, and those that were refused."""
    if config.source:
        clips, rejections, _ = source_clips(Path(config.source))
        fractions = {"validation_fraction": config.validation_fraction, "test_fraction": config.test_fraction}
        return split_by_video(clips, **fractions, seed=config.seed), rejections
    miniature = MiniatureConfig()
    rows = [row for one in plan_competitions(miniature) for row in clip_rows(one, miniature.fps)]
    clips, rejections = check_clips(pl.DataFrame(rows), source="the miniature's plan")
    return locate(clips, None)[0], rejections


def main(config: BuildTFCoVRConfig) -> int:
    build = Build(config)
    clips, rejections = read_clips(config)
    list(build.passed("clips", [*clips["clip_id"], *rejections]))
    present = set(clips["label"])
    labels = [label for label in load_labels() if label.label_id in present]
    pairs = build.passed("pairs", propose_pairs(labels, threshold=config.threshold, top_n=config.top_n))
    answers = build.ask(ModificationTask(), build.limited(pairs), name="modifications")
    changes, _ = change_frame(modification for _, modification in answers)
    rows, unused = compose(
        clips, changes, max_triplets_per_pair=config.max_triplets_per_pair, seed=config.seed
    )
    list(build.passed("labels per split", unused))
    found = Collection(clips, rows)
    return build.write(
        {
            "source": {split: rows[split]() for split in SPLITS},
            "source-clips": {split: found.clip_tables(split) for split in SPLITS},
        },
        card=CARD,
        source=config.source or "the miniature",
    )


if __name__ == "__main__":
    sys.exit(run_recipe(partial(run, main), CONFIG))
