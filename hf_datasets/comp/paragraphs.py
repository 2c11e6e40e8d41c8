"""From captioned events to one coherent paragraph (VideoComp, sections 3.1.1 and 3.1.3)."""

import re
from collections.abc import Sequence

from hf_datasets.records import CaptionedEvent, CaptionedVideo, Rejection

GLOBAL_EVENTS = 2
"""A caption that covers more other events than this describes the whole video."""
COVERED = 0.5
"""Minimum share of an event that lies inside another for that one to cover it; the paper does not say."""
MAX_IOU = {"activitynet": 0.5, "youcook2": 1.0}
"""Temporal IoU above which two captions describe the same event: how much the paper does not say, but that YouCook2's
events, which do not overlap, are not filtered."""
MIN_OVERLAP = 0.8
"""Minimum word precision and recall of a rewritten paragraph."""
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def select_events(
    video: CaptionedVideo, *, max_iou: float = MAX_IOU["activitynet"]
) -> tuple[tuple[CaptionedEvent, ...], list[Rejection]]:
    """The events that follow one another, by start time: global captions and near-duplicates in time dropped.

    Args:
        video: The video with its events in any order.
        max_iou: Of two events with a larger temporal IoU the longer is kept (the earlier, if equally long).

    Returns:
        The events kept, sorted by start, then by end, and a rejection for each of the others.
    """
    events = sorted(video.events, key=lambda event: (event.start_seconds, event.end_seconds))
    spanning = [event for event in events if _count_covered(event, events) > GLOBAL_EVENTS]
    reason = "caption spans more than two events"
    rejections = [Rejection(reason, event.caption, video.video_id) for event in spanning]
    kept: list[CaptionedEvent] = []
    for event in sorted((event for event in events if event not in spanning), key=_length, reverse=True):
        if any(temporal_iou(event, other) > max_iou for other in kept):
            rejections.append(Rejection("overlaps a longer event", event.caption, video.video_id))
        else:
            kept.append(event)
    return tuple(sorted(kept, key=lambda event: (event.start_seconds, event.end_seconds))), rejections


def temporal_iou(first: CaptionedEvent, second: CaptionedEvent) -> float:
    """Intersection over union of two events, in [0, 1].

    Example:
        >>> temporal_iou(CaptionedEvent(0, 4, ""), CaptionedEvent(2, 6, ""))
        0.3333333333333333
    """
    shared = _intersection(first, second)
    return shared / (_length(first) + _length(second) - shared)


def as_sentence(caption: str) -> str:
    """A caption with a full stop; nothing else is changed.

    Example:
        >>> as_sentence("pick the ends off"), as_sentence("A man runs.")
        ('pick the ends off.', 'A man runs.')
    """
    return caption if caption[-1] in ".!?" else caption.rstrip(",;:- ") + "."


def join(sentences: Sequence[str]) -> str:
    """The sentences as one paragraph."""
    return " ".join(sentences)


def split_sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph, at full stops, question and exclamation marks."""
    return SENTENCE_END.split(paragraph.strip())


def word_overlap(text: str, original: str) -> tuple[float, float]:
    """Precision and recall of the *sets* of words, punctuation attached and case kept (section 3.1.3).

    Example:
        >>> word_overlap("Then a man runs.", "A man runs.")
        (0.5, 0.6666666666666666)
    """
    words, expected = set(text.split()), set(original.split())
    shared = len(words & expected)
    return shared / max(1, len(words)), shared / max(1, len(expected))


def keeps_words(text: str, original: str) -> bool:
    """Whether both precision and recall of the words reach `MIN_OVERLAP`."""
    return min(word_overlap(text, original)) >= MIN_OVERLAP


def _length(event: CaptionedEvent) -> float:
    return event.end_seconds - event.start_seconds


def _intersection(first: CaptionedEvent, second: CaptionedEvent) -> float:
    latest = max(first.start_seconds, second.start_seconds)
    return max(0.0, min(first.end_seconds, second.end_seconds) - latest)


def _count_covered(event: CaptionedEvent, events: Sequence[CaptionedEvent]) -> int:
    others = (other for other in events if other is not event)
    return sum(_intersection(event, other) >= COVERED * _length(other) for other in others)
