"""CompPretrain: short clips and captions stacked into long ones with disrupted texts (VideoComp, section 3.3)."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from datasets import Dataset, IterableDataset, Video

from hf_datasets.comp.disruptions import choose_order
from hf_datasets.comp.paragraphs import as_sentence, join
from hf_datasets.seeds import generator_for

MAX_SIZE: Final = 8
ATTEMPTS: Final = 8
"""How often an order is drawn until the text differs; then the captions count as too similar."""

AnyDataset = TypeVar("AnyDataset", Dataset, IterableDataset)


@dataclass(frozen=True, slots=True)
class ClipColumns:
    """The columns of a video-caption dataset; `start` and `end` (seconds) None where a video is one clip."""

    video: str = "video"
    caption: str = "caption"
    start: str | None = None
    end: str | None = None


def stack_clips(
    dataset: AnyDataset,
    *,
    size: int = 4,
    seed: int = 0,
    columns: ClipColumns = ClipColumns(),
    buffer_size: int = 1000,
) -> AnyDataset:
    """Shuffle a video-caption dataset and put each `size` clips after one another into one row.

    Negatives are the captions in another order (level 1), some of them (level 1), and some of them in another order
    (level 2), as far as the stack is long enough and its captions differ. Fewer than `size` clips left at the end are
    dropped.

    Args:
        dataset: Of short clips with captions, map-style or streaming.
        size: Clips per row, 1 to 8; the paper uses 4, and 1 only changes the columns.
        seed: Decides which clips are stacked, and the negatives; use another for each epoch.
        columns: The names of the columns.
        buffer_size: How many rows a streaming dataset shuffles at a time.

    Returns:
        A dataset of the same kind with the columns `videos` (list, as they were; undecoded where they are of the type
        `Video`), `start_seconds` and `end_seconds` (lists, null where not given), `positive_text`, `negative_texts`,
        `negative_levels`.

    Raises:
        ValueError: The size is not 1 to 8, a column is missing; while iterating: a caption is empty.

    Example:
        >>> clips = Dataset.from_dict({"video": ["a", "b"], "caption": ["A man runs", "A dog sits"]})
        >>> row = stack_clips(clips, size=2)[0]
        >>> row["videos"], row["positive_text"], row["negative_texts"][0]
        (['a', 'b'], 'A man runs. A dog sits.', 'A dog sits. A man runs.')
    """
    if not 1 <= size <= MAX_SIZE:
        raise ValueError(f"size is {size}; a stack has 1 to {MAX_SIZE} clips")
    names = dataset.column_names or list(
        next(iter(dataset), {})
    )  # some streams have no column names before their first row
    wanted = [name for name in (columns.video, columns.caption, columns.start, columns.end) if name]
    missing = sorted(set(wanted) - set(names))
    if missing:
        raise ValueError(
            f"the dataset has no column {', '.join(missing)}, but {', '.join(names)}; name them in ClipColumns"
        )
    if dataset.features and isinstance(dataset.features.get(columns.video), Video):
        dataset = dataset.cast_column(columns.video, Video(decode=False))
    streaming = isinstance(dataset, IterableDataset)
    shuffled = dataset.shuffle(seed=seed, buffer_size=buffer_size) if streaming else dataset.shuffle(seed=seed)
    return shuffled.map(
        stack_rows,
        batched=True,
        batch_size=size,
        drop_last_batch=True,
        remove_columns=names,
        fn_kwargs={"columns": columns, "seed": seed},
    )


def frames_per_clip(num_frames: int, num_clips: int) -> list[int]:
    """How many of the model's frames each clip of a stack gets: equal parts, the first ones more where uneven.

    Raises:
        ValueError: There are more clips than frames.

    Example:
        >>> frames_per_clip(16, 4), frames_per_clip(8, 3)
        ([4, 4, 4, 4], [3, 3, 2])
    """
    if not 1 <= num_clips <= num_frames:
        raise ValueError(f"{num_frames} frames cannot show {num_clips} clips; take more frames or fewer clips")
    share, rest = divmod(num_frames, num_clips)
    return [share + (index < rest) for index in range(num_clips)]


def disrupt(captions: Sequence[str], generator: random.Random) -> list[tuple[str, int]]:
    """Negative texts of a stack with their level: shuffled (1), partial (1), partial and shuffled (2).

    Args:
        captions: In the order of the clips.
        generator: Decides orders and which captions are left out.

    Returns:
        No text for one caption, two for two, else three; fewer where captions are equal.

    Example:
        >>> disrupt(["A.", "B."], random.Random(0))
        [('B. A.', 1), ('B.', 1)]
    """
    count = len(captions)
    negatives: list[tuple[str | None, int]] = []
    if count > 1:
        shuffled = _shuffle(captions, generator)
        kept = _some_of(captions, generator, fewest=1)
        negatives = [(shuffled, 1), (join(kept), 1)]
    if count > 2:
        kept = _some_of(captions, generator, fewest=2)
        negatives.append((_shuffle(kept, generator), 2))
    return [(text, level) for text, level in negatives if text is not None]


def _shuffle(captions: Sequence[str], generator: random.Random) -> str | None:
    for _ in range(ATTEMPTS):
        shuffled = [captions[index] for index in choose_order(len(captions), generator)]
        if shuffled != list(captions):
            return join(shuffled)
    return None


def _some_of(captions: Sequence[str], generator: random.Random, *, fewest: int) -> list[str]:
    """Some captions in their order, at least one left out."""
    kept = generator.sample(range(len(captions)), generator.randint(fewest, len(captions) - 1))
    return [captions[index] for index in sorted(kept)]


def stack_rows(rows: dict[str, list[Any]], columns: ClipColumns, seed: int) -> dict[str, list[Any]]:
    """One row of `stack_clips`, as columns of length 1, of the columns of the clips that it stacks.

    Raises:
        ValueError: A caption is empty.
    """
    captions = rows[columns.caption]
    empty = [index for index, caption in enumerate(captions) if not (caption or "").strip()]
    if empty:
        raise ValueError(
            f"the caption of video {str(rows[columns.video][empty[0]])[:200]!r} is empty; leave such rows out before, "
            f"with dataset.filter(lambda row: (row[{columns.caption!r}] or '').strip())"
        )
    captions = [as_sentence(caption.strip()) for caption in captions]
    negatives = disrupt(captions, generator_for("\n".join(captions), seed))
    nothing = [None] * len(captions)
    return {
        "videos": [rows[columns.video]],
        "start_seconds": [rows[columns.start] if columns.start else nothing],
        "end_seconds": [rows[columns.end] if columns.end else nothing],
        "positive_text": [join(captions)],
        "negative_texts": [[text for text, _ in negatives]],
        "negative_levels": [[level for _, level in negatives]],
    }
