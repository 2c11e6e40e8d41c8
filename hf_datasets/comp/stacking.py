"""CompPretrain: captions of stacked clips, and disruptions of them (VideoComp, section 3.3); see `contrasts.Stacks`."""

import random
from collections.abc import Sequence
from typing import Final

from hf_datasets.comp.disruptions import choose_order
from hf_datasets.comp.paragraphs import as_sentence, join
from hf_datasets.seeds import generator_for

MAX_SIZE: Final = 8
ATTEMPTS: Final = 8
"""How often an order is drawn until the text differs; then the captions count as too similar."""


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


def stack_texts(captions: Sequence[str], seed: int) -> tuple[str, list[tuple[str, int]]]:
    """The captions as one text, and its negatives with their levels, see `disrupt`.

    Args:
        captions: In the order of the clips, none empty.
        seed: Decides the negatives, for these captions alone.

    Example:
        >>> stack_texts(["A man runs", "A dog sits"], seed=0)
        ('A man runs. A dog sits.', [('A dog sits. A man runs.', 1), ('A man runs.', 1)])
    """
    sentences = [as_sentence(caption.strip()) for caption in captions]
    return join(sentences), disrupt(sentences, generator_for("\n".join(sentences), seed))


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
