"""The rows and clips that VidCLIP trains on and is measured with, as the configuration names them."""

from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset, load_dataset

from hf_datasets.comp.contrasts import Span, span_of, unreadable_files
from hf_datasets.comp.counterfactuals import Counterfactual, counterfactual_of, read_counterfactuals
from hf_datasets.records import Rejection
from hf_datasets.sources.retrieval_splits import SPLIT_FILES, RetrievalSplit, read_retrieval_split
from hf_datasets.video import VideoStore
from hf_datasets.video.pool import NO_FILE
from subtle.run.data import DOES_NOT_DECODE, missing_by_reason, open_dataset
from subtle.run.shared_config import ContrastConfig


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


def pairs_of(rows: list[dict[str, Any]], *, num_workers: int = 0) -> tuple[list[Counterfactual], dict[str, int]]:
    """The counterfactual pairs among rows, and how many there are and were left out for which reason."""
    mismatches = [row for row in rows if row["disruption_type"] == "segment_mismatch"]
    pairs = [pair for row in mismatches if (pair := counterfactual_of(row))]
    kept, rejections = readable(pairs, num_workers)
    absent = len(mismatches) - len(pairs)
    return kept, {"pairs": len(kept), "without times of the other video": absent, DOES_NOT_DECODE: len(rejections)}


def load_pairs(
    path: str, video_dir: str | None, *, num_workers: int = 0
) -> tuple[list[Counterfactual], list[Rejection], dict[str, int]]:
    """The pairs of a user's table whose videos can be read, what was left out and why, and how many there are."""
    pairs, rejections = read_counterfactuals(Path(path), None if video_dir is None else Path(video_dir))
    kept, broken = readable(pairs, num_workers)
    rejections += broken
    if not kept:
        raise ValueError(f"no pair of {path} has videos that can be read; the first: {broken[0].reason}")
    left_out = sum(not one.reason.startswith("unknown column") for one in rejections)
    return kept, rejections, {"rows": len(kept) + left_out, "used": len(kept), "left out": left_out}


def load_retrieval(
    split: RetrievalSplit, data_dir: str | None, video_dir: str | None, *, num_workers: int = 0
) -> tuple[list[tuple[Span, str]], list[Rejection], dict[str, int]]:
    """The videos of a retrieval benchmark with each of their texts, what was left out and why, and how many."""
    if data_dir is None or video_dir is None:
        wanted = " or ".join(SPLIT_FILES[split])
        raise SystemExit(f"--retrieval {split} needs --data_dir, the folder of {wanted}, and --video_dir")
    store, refused = VideoStore(video_dir), []
    videos: dict[Span, tuple[str, ...]] = {}
    for read in read_retrieval_split(Path(data_dir), split):
        if isinstance(read, Rejection):
            refused.append(read)
        elif store.coverage([read[0]]).found:
            videos[Span(str(store.path(read[0])), None, None)] = read[1]
        else:
            refused.append(Rejection(NO_FILE, read[1][0], read[0]))
    damaged = unreadable_files(videos, num_workers=num_workers)
    refused += [Rejection(f"{DOES_NOT_DECODE}: {reason}", "", Path(path).stem) for path, reason in damaged.items()]
    pairs = [(span, text) for span, texts in videos.items() if span.path not in damaged for text in texts]
    absent = sum(one.reason == NO_FILE for one in refused)
    used = len(videos) - len(damaged)
    coverage = {"rows": len(videos) + absent, "used": used, NO_FILE: absent, DOES_NOT_DECODE: len(damaged)}
    if not pairs:
        raise SystemExit(f"none of the {coverage['rows']} videos of {split} can be read from --video_dir {video_dir}")
    return pairs, refused, coverage | {"texts": len(pairs)}


def readable(pairs: list[Counterfactual], num_workers: int) -> tuple[list[Counterfactual], list[Rejection]]:
    """The pairs whose videos decode, and the others."""
    failures = unreadable_files([span for pair in pairs for span in pair.videos], num_workers=num_workers)
    kept, rejections = [], []
    for pair in pairs:
        reason = next((failures[span.path] for span in pair.videos if span.path in failures), None)
        if reason is None:
            kept.append(pair)
        else:
            rejections.append(Rejection(f"{DOES_NOT_DECODE}: {reason}", "; ".join(pair.texts), pair.key))
    return kept, rejections


def clips_to_stack(name: str, config_name: str, *, size: int) -> tuple[Dataset, dict[str, int]]:
    """Short clips to stack by `size` for CompPretrain, and how many there are and have a video and a caption."""
    clips = load_dataset(name, config_name, split="train")
    if missing := [column for column in ("video", "caption") if column not in clips.column_names]:
        there = ", ".join(clips.column_names)
        raise SystemExit(f"the clips of {name!r}, {config_name!r}, have no column {', '.join(missing)}, but {there}")
    # Of the choice only the numbers of the rows are held, which are not left on the disk either.
    choose = partial(clips.filter, input_columns=["video", "caption"], keep_in_memory=True)
    kept = choose(lambda video, caption: video is not None and bool((caption or "").strip()))
    if len(kept) < size:
        raise SystemExit(
            f"{len(kept)} of the {len(clips)} clips of {name!r}, {config_name!r}, have a video and a caption, too few "
            f"for --stack {size}"
        )
    return kept, {"rows": len(clips), "used": len(kept)}
