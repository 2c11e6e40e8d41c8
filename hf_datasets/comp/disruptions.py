"""Disruptions of a paragraph so that it no longer fits its video (VideoComp, section 3.1.2), chosen by seed."""

import random
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from hf_datasets.records import CaptionedEvent

MIN_DIFFERENCE = 2
"""Minimum number of events that are in only one of two intervals."""

EventRange = tuple[int, int]
"""Half-open range of events."""


class Segments(NamedTuple):
    """The interval that the video is cropped to, and the one whose text it is mismatched with."""

    shown: EventRange
    told: EventRange


def choose_order(count: int, generator: random.Random) -> tuple[int, ...]:
    """A random order of `count` sentences, never the one they are in.

    Raises:
        ValueError: There are fewer than two.

    Example:
        >>> choose_order(2, random.Random(0))
        (1, 0)
    """
    if count < 2:
        raise ValueError(f"{count} sentence cannot be reordered; at least 2 are needed")
    order = list(range(count))
    while order == sorted(order):
        generator.shuffle(order)
    return tuple(order)


@cache  # the pairs grow with the fourth power of the events
def segment_choices(count: int) -> tuple[Segments, ...]:
    """All ordered pairs of intervals of `count` events that differ by at least two events.

    Example:
        >>> segment_choices(2)
        (Segments(shown=(0, 1), told=(1, 2)), Segments(shown=(1, 2), told=(0, 1)))
    """
    intervals = [(start, end) for start in range(count) for end in range(start + 1, count + 1)]
    return tuple(
        Segments(shown, told)
        for shown in intervals
        for told in intervals
        if len(set(range(*shown)) ^ set(range(*told))) >= MIN_DIFFERENCE
    )


def choose_segments(count: int, generator: random.Random) -> Segments:
    """One of `segment_choices`.

    Raises:
        ValueError: There are fewer than two events.
    """
    choices = segment_choices(count)
    if not choices:
        raise ValueError(f"{count} event leaves no two intervals that differ; at least 2 are needed")
    return generator.choice(choices)


def crop(events: Sequence[CaptionedEvent], interval: EventRange) -> tuple[float, float]:
    """The stretch of video that an interval of events covers, in seconds: from its first start to its last end."""
    chosen = events[slice(*interval)]
    return min(event.start_seconds for event in chosen), max(event.end_seconds for event in chosen)
