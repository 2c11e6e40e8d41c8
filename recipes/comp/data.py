"""The rows and clips that VidCLIP trains on and is measured with, as the configuration names them."""

from typing import Any

from datasets import load_dataset

from harness.shared_config import ContrastConfig
from hf_datasets.comp.contrasts import Contrast, span_of, stacks, unreadable_files
from hf_datasets.video.pool import NO_FILE


def load_rows(
    config: ContrastConfig, split: str, *, draw: int = 0, num_workers: int = 0
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The rows of a split whose video can be read, and how many there are and were left out for which reason.

    Each `draw` has other orders, replacements and intervals; published rows have no other than 0.
    """
    options: dict[str, Any] = {"video_dir": config.video_dir} if config.video_dir else {}
    options |= {"seed": draw} if draw else {}
    name = config.dataset_config
    try:
        rows = list(load_dataset(config.dataset, name, data_dir=config.data_dir, split=split, **options))
    except (ValueError, FileNotFoundError) as error:  # which also says that a split has no row
        raise SystemExit(f"the split {split!r} of {config.dataset!r}, {name!r}, cannot be read: {error}") from error
    failures = unreadable_files([span_of(row) for row in rows if row["video"]], num_workers=num_workers)
    kept = [row for row in rows if row["video"] and row["video"] not in failures]
    no_file = sum(row["video"] is None for row in rows)
    coverage = {
        "rows": len(rows),
        "used": len(kept),
        NO_FILE: no_file,
        "does not decode": len(rows) - len(kept) - no_file,
    }
    if not kept:
        raise SystemExit(
            f"none of the {len(rows)} rows of {config.dataset!r} ({split}) has a video that can be read ({no_file} without "
            "a file); name the folder of videos with --video_dir"
        )
    return kept, coverage


def load_stacks(name: str, config_name: str, data_dir: str | None, *, size: int, seed: int) -> list[Contrast]:
    """Short clips of a dataset stacked for CompPretrain; another seed makes other stacks."""
    # In memory, else every epoch leaves its stacks on the disk.
    clips = load_dataset(name, config_name, data_dir=data_dir, split="train", keep_in_memory=True)
    return stacks(clips, size=size, seed=seed)
