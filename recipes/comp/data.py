"""What VidCLIP trains on and is measured with: stretches of video, a text that fits and texts that do not."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from datasets import load_dataset
from torch import Tensor
from torch.utils.data import Dataset

from harness.shared_config import ContrastConfig
from hf_datasets.comp.stacking import ClipColumns, frames_per_clip, stack_clips
from hf_datasets.video import VideoError, read_frames
from hf_datasets.video.pool import VideoFailure, VideoReaderPool, VideoRequest

LEVELS = {"temporal_reorder": 1, "action_replace": 1, "segment_mismatch": 1, "multi": 2}


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a video file; None, None is all of it."""

    path: str
    start_seconds: float | None
    end_seconds: float | None


@dataclass(frozen=True, slots=True)
class Contrast:
    """Spans that are shown one after another, the text that fits them, and texts that do not, with their levels."""

    spans: tuple[Span, ...]
    positive: str
    negatives: tuple[str, ...] = ()
    levels: tuple[int, ...] = ()


def span_of(row: dict[str, Any]) -> Span:
    """The stretch of video that the texts of a row are judged on."""
    return Span(row["video"], row["query_start_seconds"], row["query_end_seconds"])


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
    failures = unreadable([span_of(row) for row in rows if row["video"]], num_workers)
    kept = [row for row in rows if row["video"] and row["video"] not in failures]
    no_file = sum(row["video"] is None for row in rows)
    coverage = {
        "rows": len(rows),
        "used": len(kept),
        "no video file": no_file,
        "does not decode": len(rows) - len(kept) - no_file,
    }
    if not kept:
        raise SystemExit(
            f"none of the {len(rows)} rows of {config.dataset!r} ({split}) has a video that can be read ({no_file} without "
            "a file); name the folder of videos with --video_dir"
        )
    return kept, coverage


def group(rows: Iterable[dict[str, Any]]) -> list[Contrast]:
    """The rows that share a stretch of video and its text, as one contrast with several negatives."""
    grouped: dict[tuple[Span, str], list[tuple[str, int]]] = {}
    for row in rows:
        negative = (row["negative_text"], LEVELS[row["disruption_type"]])
        grouped.setdefault((span_of(row), row["positive_text"]), []).append(negative)
    return [
        Contrast((span,), positive, *(tuple(column) for column in zip(*negatives, strict=True)))
        for (span, positive), negatives in grouped.items()
    ]


def draw_negatives(contrasts: Sequence[Contrast], count: int, generator: random.Random) -> list[Contrast]:
    """The contrasts with at most `count` of their negatives each."""
    drawn = []
    for one in contrasts:
        places = generator.sample(range(len(one.negatives)), min(count, len(one.negatives)))
        negatives, levels = (tuple(column[place] for place in places) for column in (one.negatives, one.levels))
        drawn.append(replace(one, negatives=negatives, levels=levels))
    return drawn


def load_stacks(name: str, config_name: str, data_dir: str | None, *, size: int, seed: int) -> list[Contrast]:
    """Short clips of a data set stacked for CompPretrain; another seed stacks them anew."""
    # In memory, else every epoch leaves its stacks on the disk.
    clips = load_dataset(name, config_name, data_dir=data_dir, split="train", keep_in_memory=True)
    clips = clips.filter(lambda path: path is not None, input_columns="video")
    spanned = {"start_seconds", "end_seconds"} <= set(clips.column_names)
    columns = ClipColumns(start="start_seconds", end="end_seconds") if spanned else ClipColumns()
    return [
        Contrast(
            tuple(Span(*span) for span in zip(row["videos"], row["start_seconds"], row["end_seconds"], strict=True)),
            row["positive_text"],
            tuple(row["negative_texts"]),
            tuple(row["negative_levels"]),
        )
        for row in stack_clips(clips, size=size, seed=seed, columns=columns)
    ]


def unreadable(spans: Iterable[Span], num_workers: int) -> dict[str, str]:
    """Video files of which a frame of the last span that is asked of them cannot be read, with the reason."""
    last: dict[str, Span] = {}
    for span in spans:
        if span.path not in last or (span.start_seconds or 0) > (last[span.path].start_seconds or 0):
            last[span.path] = span
    if num_workers:  # where a bad video can hang no more than its worker
        requests = [VideoRequest(s.path, s.path, s.start_seconds, s.end_seconds) for s in last.values()]
        with VideoReaderPool(1, size=(16, 16), num_workers=num_workers) as pool:
            return {path: read.reason for path, read in pool.read(requests) if isinstance(read, VideoFailure)}
    reasons = {path: reason_why_unreadable(span) for path, span in last.items()}
    return {path: reason for path, reason in reasons.items() if reason}


def reason_why_unreadable(span: Span) -> str | None:
    """Why no frame of a span can be read; None where one can."""
    try:
        read_frames(span.path, 1, span.start_seconds, span.end_seconds)
    except VideoError as error:
        return str(error)
    return None


class SpanReader:
    """Frames of spans; small ones are kept in memory, so that every later epoch reads no file.

    Args:
        size: Height and width; None leaves the frames as they are.
        keep: Whether what was read is kept.
        see: What is to be made of the frames `(T, 3, height, width)` before they are kept, such as the tokens of a
            tower that does not learn.
    """

    def __init__(
        self,
        size: tuple[int, int] | None = None,
        *,
        keep: bool = False,
        see: Callable[[Tensor], Tensor] = torch.Tensor.contiguous,
    ) -> None:
        self.size, self.keep, self.see = size, keep, see
        self.kept: dict[tuple[Span, int], Tensor] = {}

    def __call__(self, spans: Sequence[Span], num_frames: int) -> Tensor:
        """`(num_frames, 3, height, width)` uint8, or what `see` makes of them: each span's share, in order."""
        shares = frames_per_clip(num_frames, len(spans))
        return torch.cat([self.read(span, share) for span, share in zip(spans, shares, strict=True)])

    def read(self, span: Span, num_frames: int) -> Tensor:
        """`(num_frames, ...)` of one span."""
        if (frames := self.kept.get((span, num_frames))) is not None:
            return frames
        try:
            read = read_frames(span.path, num_frames, span.start_seconds, span.end_seconds, size=self.size)
        except VideoError as error:
            raise SystemExit(f"{error}; leave this video out of --video_dir, or fetch it again") from error
        frames = self.see(read.frames)
        if self.keep:
            self.kept[span, num_frames] = frames
        return frames


class ContrastFrames(Dataset):
    """Contrasts with their frames."""

    def __init__(self, contrasts: Sequence[Contrast], reader: SpanReader, num_frames: int) -> None:
        self.contrasts, self.reader, self.num_frames = contrasts, reader, num_frames

    def __len__(self) -> int:
        return len(self.contrasts)

    def __getitem__(self, index: int) -> tuple[Tensor, Contrast]:
        contrast = self.contrasts[index]
        return self.reader(contrast.spans, self.num_frames), contrast


def tokenize(processor: Any, contrasts: Sequence[Contrast], *, negatives: bool) -> dict[str, Tensor]:
    """Texts of a batch as VidCLIP takes them; missing negatives are padded with the positive at level 0."""
    tokens = processor(text=[one.positive for one in contrasts])
    batch = {name: tokens[name] for name in ("input_ids", "attention_mask")}
    if negatives:
        most = max(1, *(len(one.negatives) for one in contrasts))
        padded = [[*one.negatives, *[one.positive] * (most - len(one.negatives))] for one in contrasts]
        tokens = processor(text=[text for texts in padded for text in texts])
        levels = [[*one.levels, *[0] * (most - len(one.levels))] for one in contrasts]
        batch |= {
            "negative_input_ids": tokens["input_ids"].unflatten(0, (-1, most)),
            "negative_attention_mask": tokens["attention_mask"].unflatten(0, (-1, most)),
            "negative_levels": torch.tensor(levels),
        }
    return batch


def batched(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Slices of at most `size` items."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
