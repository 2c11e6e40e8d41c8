"""The labeled clips that a classifier is trained, validated and tested on, decided before any video is decoded."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from hf_datasets.long_videos import SPLITS
from hf_datasets.records import ClipRow
from hf_datasets.tfcovr.splitting import held_out_videos
from subtle.run.data import load_splits, refused_rows
from subtle.run.shared_config import DataConfig

Validation = Literal["auto", "split", "train"]


@dataclass(frozen=True)
class LabeledSplits:
    """Clips by split, and what had to be decided about them.

    Attributes:
        clips: Split -> clips with a label and a video file; `test` is absent where it cannot be measured.
        coverage: Split -> how many `clips` it has, and how many of them are `unlabelled` or `without_video`, if any.
        notes: Split -> a sentence where it is not simply the dataset's.
        refused: The dataset's notice about rejected rows, or None.
    """

    clips: dict[str, list[ClipRow]]
    coverage: dict[str, dict[str, int]]
    notes: dict[str, str] = field(default_factory=dict)
    refused: str | None = None


def labeled_splits(
    config: DataConfig, *, validation: Validation = "auto", validation_fraction: float = 0.1, seed: int = 0
) -> LabeledSplits:
    """Choose the clips of each split.

    Args:
        config: Which dataset.
        validation: `split` takes the labeled clips of the split `validation`; `train` holds long videos of the
            training clips out instead; `auto` does so where that split has no label.
        validation_fraction: Share of the long videos to hold out.
        seed: Decides which.

    Raises:
        SystemExit: A split that is needed has no usable clip; names it, and the fix.
    """
    if not 0 < validation_fraction < 1:
        raise SystemExit(f"--validation_fraction is {validation_fraction}; it is a share between 0 and 1")
    loaded = load_splits(config, clips=True)
    every: dict[str, list[ClipRow]] = {split: list(loaded[split]) if split in loaded else [] for split in SPLITS}
    coverage = {split: counts(clips) for split, clips in every.items()}
    clips = {split: [clip for clip in part if is_labeled(clip) and clip["video"]] for split, part in every.items()}
    refused = next((refused_rows(part) for part in loaded.values()), None)
    found = LabeledSplits(clips, coverage, refused=refused)
    if not clips["train"]:
        raise SystemExit(f"there is nothing to train on: {lacks('train', every['train'])}")
    if not clips["test"]:
        found.notes["test"] = f"not measured: {lacks('test', every['test'])}"
        del clips["test"], coverage["test"]
    has_labels = any(map(is_labeled, every["validation"]))
    if validation == "train" or (validation == "auto" and not has_labels):
        why = "as configured" if validation == "train" else lacks("validation", every["validation"])
        hold_out(found, validation_fraction, seed, why)
    elif not clips["validation"]:
        hint = "; --validation train holds training clips out instead" if not has_labels else ""
        raise SystemExit(f"there is nothing to validate on: {lacks('validation', every['validation'])}{hint}")
    return found


def hold_out(found: LabeledSplits, fraction: float, seed: int, why: str) -> None:
    """Move the clips of some long videos from training to validation, and note it."""
    train = found.clips["train"]
    frame = pl.DataFrame({name: [clip[name] for clip in train] for name in ("video_id", "label")})
    total = frame["video_id"].n_unique()
    videos = set(held_out_videos(frame, max(1, round(fraction * total)), seed=seed))
    if not videos:
        raise SystemExit(
            f"there is nothing to validate on ({why}), and no training video can be held out: each of {total} is the "
            "only one of some label; give videos that share labels, or labels for the split 'validation'"
        )
    found.clips["train"] = [clip for clip in train if clip["video_id"] not in videos]
    found.clips["validation"] = [clip for clip in train if clip["video_id"] in videos]
    held = len(found.clips["validation"])
    found.coverage["train"]["clips"] -= held
    found.coverage["validation"] = {"clips": held}
    found.notes["validation"] = (
        f"{held:,} training clips of {len(videos):,} of {total:,} long videos, held out with seed {seed} ({why})"
    )


def is_labeled(clip: ClipRow) -> bool:
    return clip["label"] is not None


def counts(clips: Sequence[ClipRow]) -> dict[str, int]:
    """How many clips there are, and what some of them lack."""
    lacking = {
        "unlabelled": sum(not is_labeled(clip) for clip in clips),
        "without_video": sum(is_labeled(clip) and not clip["video"] for clip in clips),
    }
    return {"clips": len(clips)} | {name: count for name, count in lacking.items() if count}


def lacks(split: str, clips: Sequence[ClipRow]) -> str:
    """Why no clip of a split can be used."""
    if not clips:
        return f"the split {split!r} has no clip"
    if not any(map(is_labeled, clips)):
        return f"none of the {len(clips):,} clips of {split!r} has a label"
    return f"none of the labeled clips of {split!r} has its video; give the folder of videos as --video_dir"
