"""Contrasts to train and evaluate video-text models: stretches of video, a text that fits and texts that do not."""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import torch
from datasets import Dataset, IterableDataset, Video
from torch import Tensor

from hf_datasets.class_labels import with_names
from hf_datasets.comp.stacking import MAX_SIZE, frames_per_clip, stack_texts
from hf_datasets.video import VideoError, VideoFrames, read_frames
from hf_datasets.video.pool import VideoFailure, VideoReaderPool, VideoRequest, unreadable
from hf_datasets.video.reading import Spread

VIDEO_CURE = "remove this video from the video folder, or fetch it again"
SPANS_AHEAD = 64
"""Most spans whose frames wait for those of one before them."""


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


def level_of(row: dict[str, Any]) -> int:
    """How many disruptions a row's negative text has, by which CompLoss orders negatives; 2 where a row does not say.

    Example:
        >>> kinds = ["temporal_reorder", "action_replace", "segment_mismatch"]
        >>> level_of({"disruption_type": "action_replace"})
        1
        >>> level_of({"disruption_type": "multi", "decision": json.dumps({"kinds": kinds})})
        3
    """
    if row["disruption_type"] != "multi":
        return 1
    return len(json.loads(row.get("decision") or "{}").get("kinds", (0, 0)))


def group(rows: Iterable[dict[str, Any]]) -> list[Contrast]:
    """The rows that share a stretch of video and its text, as one contrast with several negatives.

    Args:
        rows: With `video`, `query_start_seconds`, `query_end_seconds`, `positive_text`, `negative_text` and
            `disruption_type`: a dataset, or rows with the name of each disruption.

    Example:
        >>> row = {"video": "a.mp4", "query_start_seconds": 0.0, "query_end_seconds": 9.0, "positive_text": "A. B."}
        >>> kinds = {"temporal_reorder": "B. A.", "multi": "C. A."}
        >>> group({**row, "disruption_type": kind, "negative_text": text} for kind, text in kinds.items())
        [Contrast(spans=(Span(...),), positive='A. B.', negatives=('B. A.', 'C. A.'), levels=(1, 2))]
    """
    if isinstance(rows, Dataset | IterableDataset):
        rows = with_names(rows)
    grouped: dict[tuple[Span, str], list[tuple[str, int]]] = {}
    for row in rows:
        negative = (row["negative_text"], level_of(row))
        grouped.setdefault((span_of(row), row["positive_text"]), []).append(negative)
    return [
        Contrast((span,), positive, *(tuple(column) for column in zip(*negatives, strict=True)))
        for (span, positive), negatives in grouped.items()
    ]


def draw_negatives(contrasts: Sequence[Contrast], count: int, generator: random.Random) -> list[Contrast]:
    """The contrasts with at most `count` of their negatives each."""
    drawn = []
    for contrast in contrasts:
        places = generator.sample(range(len(contrast.negatives)), min(count, len(contrast.negatives)))
        negatives = tuple(contrast.negatives[place] for place in places)
        levels = tuple(contrast.levels[place] for place in places)
        drawn.append(replace(contrast, negatives=negatives, levels=levels))
    return drawn


class Stacks(Sequence[Contrast]):
    """Short clips stacked for CompPretrain, each `size` after one another, each stack made when it is asked for.

    Negatives are the captions in another order (level 1), some of them (level 1), and some of them in another order
    (level 2), as far as the stack is long enough and its captions differ. Fewer than `size` clips left at the end are
    dropped.

    Args:
        clips: With `video` (a path, or as `datasets.Video` holds one), `caption` (not empty) and, where a clip is part
            of its video, `start_seconds` and `end_seconds`.
        size: Clips per stack, 1 to 8; the paper uses 4.
        seed: Decides which clips are stacked, and the negatives; use another for each epoch.

    Raises:
        ValueError: The size is not 1 to 8; when a stack is asked for: a caption is empty.

    Example:
        >>> clips = Dataset.from_dict({"video": ["a", "b"], "caption": ["A man runs", "A dog sits"]})
        >>> (contrast,) = Stacks(clips, size=2, seed=0)
        >>> contrast.spans[0].path, contrast.positive, contrast.levels
        ('a', 'A man runs. A dog sits.', (1, 1))
    """

    def __init__(self, clips: Dataset, *, size: int, seed: int) -> None:
        if not 1 <= size <= MAX_SIZE:
            raise ValueError(f"size is {size}; a stack has 1 to {MAX_SIZE} clips")
        if isinstance(clips.features["video"], Video):
            clips = clips.cast_column("video", Video(decode=False))
        self.clips = clips.shuffle(seed=seed, keep_in_memory=True)  # their order alone
        self.size, self.seed = size, seed

    def __len__(self) -> int:
        return len(self.clips) // self.size

    @overload
    def __getitem__(self, index: int) -> Contrast: ...

    @overload
    def __getitem__(self, index: slice) -> list[Contrast]: ...

    def __getitem__(self, index: int | slice) -> Contrast | list[Contrast]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(f"there is no stack {index} of {len(self)}")
        columns = self.clips[index * self.size : (index + 1) * self.size]
        spans = []
        for values in zip(*columns.values(), strict=True):
            clip = dict(zip(columns, values, strict=True))
            path = clip["video"]["path"] if isinstance(clip["video"], dict) else clip["video"]
            if not (clip["caption"] or "").strip():
                raise ValueError(
                    f"the caption of video {str(path)[:200]!r} is empty; leave such rows out before, with "
                    "dataset.filter(lambda row: (row['caption'] or '').strip())"
                )
            spans.append(Span(path, clip.get("start_seconds"), clip.get("end_seconds")))
        positive, negatives = stack_texts(columns["caption"], self.seed)
        texts, levels = zip(*negatives, strict=True) if negatives else ((), ())
        return Contrast(tuple(spans), positive, texts, levels)


def unreadable_files(spans: Iterable[Span], *, num_workers: int | None = None) -> dict[str, str]:
    """Video files of which a frame of the last of the spans cannot be read, with the reason.

    Args:
        spans: Of any number of files.
        num_workers: Number of reading processes, as in `VideoReaderPool`.
    """
    last: dict[str, Span] = {}
    for span in spans:
        if span.path not in last or (span.start_seconds or 0) > (last[span.path].start_seconds or 0):
            last[span.path] = span
    requests = [VideoRequest(path, path, span.start_seconds, span.end_seconds) for path, span in last.items()]
    return {str(path): reason for path, reason in unreadable(requests, num_workers=num_workers).items()}


class SpanReader:
    """Reads the frames of spans and can keep them in memory, so that later epochs read no file.

    Args:
        size: Height and width in pixels; None leaves the frames as they are.
        keep: Whether frames are kept in memory, by each process what it read.
        transform: Applied to the frames `(T, 3, height, width)` before they are kept, such as a frozen vision tower.
    """

    def __init__(
        self,
        size: tuple[int, int] | None = None,
        *,
        keep: bool = False,
        transform: Callable[[Tensor], Tensor] = Tensor.contiguous,
    ) -> None:
        self.size, self.keep, self.transform = size, keep, transform
        self.kept: dict[tuple[Span, int, Spread], Tensor] = {}

    def __call__(self, spans: Sequence[Span], num_frames: int, spread: Spread = "middles") -> Tensor:
        """`(num_frames, 3, height, width)` uint8 after `transform`: the share of each span, in order.

        For `spread` see `hf_datasets.video.frame_indices`.

        Raises:
            VideoError: If a span cannot be read.
            ValueError: If there are more spans than frames.
        """
        shares = frames_per_clip(num_frames, len(spans))
        return torch.cat([self.read(span, share, spread) for span, share in zip(spans, shares, strict=True)])

    def read(self, span: Span, num_frames: int, spread: Spread = "middles") -> Tensor:
        """`(num_frames, ...)` of one span.

        Raises:
            VideoError: If it cannot be read.
        """
        if (frames := self.kept.get((span, num_frames, spread))) is not None:
            return frames
        try:
            seconds = span.start_seconds, span.end_seconds
            read = read_frames(span.path, num_frames, *seconds, size=self.size, spread=spread)
        except VideoError as error:
            raise VideoError(f"{error}; {VIDEO_CURE}") from error
        return self._taken(span, num_frames, spread, read.frames)

    def read_all(
        self, spans: Sequence[Span], num_frames: int, spread: Spread = "middles", *, num_workers: int = 0
    ) -> Iterator[Tensor]:
        """What `read` gives of each of several distinct spans, in their order, read ahead by `num_workers` processes.

        Yields:
            `(num_frames, ...)` of a span.

        Raises:
            VideoError: If a span cannot be read.
        """
        missing = [span for span in spans if (span, num_frames, spread) not in self.kept]
        arrived: dict[Span, VideoFrames | VideoFailure] = {}

        def requests() -> Iterator[VideoRequest | None]:
            for span in missing:
                while len(arrived) > SPANS_AHEAD:  # others wait for one that takes longer
                    yield None
                yield VideoRequest(span, span.path, span.start_seconds, span.end_seconds)

        with VideoReaderPool(num_frames, num_workers=num_workers, size=self.size, spread=spread) as pool:
            answers = pool.read_on_demand(requests())
            for span in spans:
                if (frames := self.kept.get((span, num_frames, spread))) is None:
                    while span not in arrived:
                        key, answer = next(answers)
                        arrived[key] = answer
                    if isinstance(read := arrived.pop(span), VideoFailure):
                        raise VideoError(f"{read.reason}; {VIDEO_CURE}")
                    frames = self._taken(span, num_frames, spread, read.frames)
                yield frames

    def _taken(self, span: Span, num_frames: int, spread: Spread, frames: Tensor) -> Tensor:
        frames = self.transform(frames)
        if self.keep:
            self.kept[span, num_frames, spread] = frames
        return frames


class ContrastFrames(torch.utils.data.Dataset[tuple[Tensor, Contrast]]):
    """Contrasts with their frames: items `(frames, contrast)`, indexed by the contrast.

    Args:
        reader: Reads their frames.
        num_frames: Frames per contrast, shared by its spans.
    """

    def __init__(self, reader: SpanReader, num_frames: int) -> None:
        self.reader, self.num_frames = reader, num_frames

    def __getitem__(self, contrast: Contrast) -> tuple[Tensor, Contrast]:
        return self.reader(contrast.spans, self.num_frames), contrast
