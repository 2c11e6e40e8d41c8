"""Rule-based negatives of a caption: the same words with another count, direction or order, or the opposite.

For training from texts alone, where a model learns from them that one word decides (TARA's idea). The rules know words,
not the world: each negative differs from the caption in what it says, whatever the caption is about.
"""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

NegativeKind = Literal["count", "direction", "order", "negation", "composition"]
NEGATIVE_KINDS: tuple[NegativeKind, ...] = ("count", "direction", "order", "negation", "composition")
THEN = ", then "
"""Between the events of a caption that tells several."""

COUNT_IN_DIGITS = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w]|\.\d)")
COUNTS = {"two": "three", "three": "two", "four": "three", "double": "triple", "triple": "double"}
COUNTS |= {"once": "twice", "twice": "once"}
_PAIRS = (
    "left right, forward backward, forwards backwards, front back, up down, upward downward, upwards downwards, "
    "clockwise counterclockwise, inward outward, inside outside, above below, over under, onto off"
)
OPPOSITE_DIRECTIONS = {
    word: other for pair in _PAIRS.split(", ") for word, other in (pair.split(" "), reversed(pair.split(" ")))
}
LATIN_WORD = re.compile(r"[A-Za-z]+")


class CaptionNegative(NamedTuple):
    """A text that is near a caption and does not fit what the caption describes."""

    kind: NegativeKind
    text: str


def negatives_of_caption(caption: str) -> list[CaptionNegative]:
    """The negatives that the rules find, each text once, in the order of the rules; none has the caption's text.

    Example:
        >>> for kind, text in negatives_of_caption("salto forward tucked with 1 twist"):
        ...     print(f"{kind}: {text}")
        count: salto forward tucked with 2 twist
        direction: salto backward tucked with 1 twist
        negation: salto forward tucked without 1 twist
        >>> negatives_of_caption("he sits, then he stands")[0]
        CaptionNegative(kind='order', text='he stands, then he sits')
    """
    found = [*_other_counts(caption), *_directions(caption), *_orders(caption), *_negations(caption)]
    texts = {caption}
    return [one for one in found if one.text not in texts and not texts.add(one.text)]  # type: ignore[func-returns-value]


def _other_counts(caption: str) -> Iterator[CaptionNegative]:
    for match in COUNT_IN_DIGITS.finditer(caption):
        value = float(match[0])
        for other in (value + 1, value - 1):
            if other > 0:
                yield CaptionNegative("count", f"{caption[: match.start()]}{other:g}{caption[match.end() :]}")
    yield from (CaptionNegative("count", text) for text in _replaced(caption, COUNTS))


def _directions(caption: str) -> Iterator[CaptionNegative]:
    yield from (CaptionNegative("direction", text) for text in _replaced(caption, OPPOSITE_DIRECTIONS))


def _orders(caption: str) -> Iterator[CaptionNegative]:
    events = caption.split(THEN)
    if len(events) > 1:
        yield CaptionNegative("order", THEN.join(reversed(events)))


def _negations(caption: str) -> Iterator[CaptionNegative]:
    for word, other in ((" with no ", " with "), (" without ", " with "), (" with ", " without ")):
        if word in caption:
            yield CaptionNegative("negation", caption.replace(word, other, 1))
            return
    place = re.match(r"\([^)]*\) ", caption)  # the apparatus in front stays
    start = place.end() if place else 0
    yield CaptionNegative("negation", f"{caption[:start]}no {caption[start:]}")


def _replaced(caption: str, words: dict[str, str]) -> Iterator[str]:
    # Each word of the table in turn, capitalized as it was.
    for match in LATIN_WORD.finditer(caption):
        other = words.get(match[0].lower())
        if other:
            other = other.capitalize() if match[0][0].isupper() else other
            yield f"{caption[: match.start()]}{other}{caption[match.end() :]}"
