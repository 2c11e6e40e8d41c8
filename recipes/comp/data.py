"""The rows and clips that VidCLIP trains on and is measured with, as the configuration names them."""

from typing import Any

from datasets import load_dataset

from harness.data import missing_by_reason, open_dataset
from harness.shared_config import ContrastConfig
from hf_datasets.comp.contrasts import Contrast, span_of, stacks, unreadable_files
from hf_datasets.video.pool import NO_FILE


def load_rows(
    config: ContrastConfig, split: str, *, draw: int = 0, num_workers: int = 0
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The rows of a split whose video can be read, and how many there are and were left out for which reason.

    Each `draw` has other orders, replacements and intervals; published rows have no other than 0.
    """
    rows = list(open_dataset(config, split, video_dir=config.video_dir, seed=draw))
    failures = unreadable_files([span_of(row) for row in rows if row["video"]], num_workers=num_workers)
    reasons = [failures.get(row["video"]) if row["video"] else NO_FILE for row in rows]
    kept = [row for row, reason in zip(rows, reasons, strict=True) if reason is None]
    missing = missing_by_reason(reason for reason in reasons if reason is not None)
    coverage = {"rows": len(rows), "used": len(kept), **missing}
    if not kept:
        raise SystemExit(
            f"none of the {len(rows)} rows of {config.dataset!r} ({split}) has a video that can be read "
            f"({missing[NO_FILE]} without a file); name the folder of videos with --video_dir"
        )
    return kept, coverage


def load_stacks(name: str, config_name: str, data_dir: str | None, *, size: int, seed: int) -> list[Contrast]:
    """Short clips of a dataset stacked for CompPretrain; another seed makes other stacks."""
    # In memory, else every epoch leaves its stacks on the disk.
    clips = load_dataset(name, config_name, data_dir=data_dir, split="train", keep_in_memory=True)
    return stacks(clips, size=size, seed=seed)
