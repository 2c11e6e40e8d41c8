"""Word lists of the rule-based generators: things in captions, synonyms, and words of another or opposite meaning."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from hf_datasets.records import Moment
from hf_datasets.tagger import english_tagger

PEOPLE: Final = frozenset([
    "person", "man", "woman", "guy", "girl", "boy", "lady", "people", "child", "kid", "baby", "someone", "somebody",
    "he", "she", "they", "it", "one", "other", "another", "camera", "video", "hand", "hands", "head", "face", "arm",
    "arms", "back", "side", "front", "top", "way", "time",
])  # fmt: skip
"""Nouns that do not name a thing in the scene."""
MIN_SHARED: Final = 0.5
"""Minimum temporal IoU at which two captions describe the same time."""
SAME: Final = (
    ("closes", "shuts"), ("closing", "shutting"), ("begins", "starts"), ("puts", "places"), ("putting", "placing"),
    ("takes", "grabs"), ("taking", "grabbing"), ("couch", "sofa"), ("laptop", "computer"), ("person", "someone"),
    ("big", "large"), ("little", "small"), ("looks at", "watches"), ("looking at", "watching"), ("next to", "beside"),
    ("picks up", "lifts"), ("picking up", "lifting"), ("throws", "tosses"), ("throwing", "tossing"),
    ("stands up", "gets up"), ("child", "kid"), ("automobile", "car"), ("phone", "telephone"), ("television", "tv"),
)  # fmt: skip
OTHER_THINGS: Final = (
    ("man", "woman"), ("boy", "girl"), ("men", "women"), ("door", "window"), ("laptop", "television"),
    ("book", "newspaper"), ("cup", "plate"), ("glass", "bottle"), ("table", "bed"), ("chair", "couch"),
    ("sofa", "bench"), ("bag", "box"), ("shoes", "gloves"), ("towel", "blanket"), ("phone", "camera"),
    ("kitchen", "garage"), ("room", "garden"), ("red", "blue"), ("black", "white"), ("green", "yellow"),
    ("dog", "cat"), ("sandwich", "apple"), ("closet", "cabinet"), ("light", "fan"), ("left", "right"),
    ("shirt", "jacket"), ("food", "medicine"), ("pillow", "broom"), ("mirror", "picture"), ("little", "big"),
)  # fmt: skip
OTHER_ACTIONS: Final = (
    ("opens", "closes"), ("opening", "closing"), ("open", "close"), ("sits down", "stands up"),
    ("sitting down", "standing up"), ("sits", "stands"), ("sitting", "standing"), ("walks", "runs"),
    ("walking", "running"), ("puts down", "picks up"), ("putting down", "picking up"), ("puts", "takes"),
    ("putting", "taking"), ("turns on", "turns off"), ("turning on", "turning off"), ("enters", "leaves"),
    ("throws", "catches"), ("throwing", "catching"), ("eats", "drops"), ("eating", "dropping"), ("pushes", "pulls"),
    ("holding", "throwing"), ("holds", "throws"), ("laughing", "crying"), ("laughs", "cries"), ("drinking", "pouring"),
    ("drinks", "pours"), ("into", "out of"), ("starts", "stops"), ("begins", "stops"), ("up", "down"),
    ("towards", "away from"), ("washing", "breaking"), ("cleaning", "painting"), ("looking", "pointing"),
)  # fmt: skip


def replaced(caption: str, pairs: Iterable[tuple[str, str]]) -> list[str]:
    """The caption with one word or phrase replaced by its partner, once for each pair that has one.

    Example:
        >>> replaced("person sits down on a chair", OTHER_ACTIONS)
        ['person stands up on a chair']
    """
    found: list[str] = []
    taken = ""
    for pair in pairs:
        for old, new in (pair, pair[::-1]):
            changed = re.sub(rf"\b{old}\b", new, caption, count=1)
            if changed != caption and old not in taken:  # "sits" is not replaced again inside "sits down"
                found.append(changed)
                taken += f" {old}"
                break
    return found


def named_things(captions: Iterable[str]) -> tuple[str, ...]:
    """The things in the scene that captions name, with an indefinite article, each once, in order.

    Example:
        >>> named_things(["A person opens the brown bag.", "a person drinks from a glass."])
        ('a brown bag', 'a glass')
    """
    return tuple(dict.fromkeys(thing for caption in captions for thing in things_in(caption)))


@lru_cache(maxsize=100_000)
def things_in(caption: str) -> tuple[str, ...]:
    """The singular common nouns of a caption that stand behind an article, with one adjective at most."""
    words = [(word.lower(), tag) for word, _, tag in english_tagger().tag_sent(re.findall(r"[A-Za-z'-]+", caption))]
    found = []
    for index, (word, tag) in enumerate(words):
        follows = words[index + 1][1] if index + 1 < len(words) else ""
        if tag != "NN1" or follows.startswith("NN") or word in PEOPLE or index == 0:
            continue
        before, before_tag = words[index - 1]
        phrase = f"{before} {word}" if before_tag == "AJ0" else word
        determiner = words[index - 2][1] if before_tag == "AJ0" and index > 1 else before_tag
        if determiner == "AT0":
            found.append(f"{'an' if phrase[0] in 'aeiou' else 'a'} {phrase}")
    return tuple(found)


def beside(moment: Moment, others: Iterable[Moment]) -> tuple[tuple[str, str], ...]:
    """What else is annotated in the video, nearest first: (`while`, `after` or `before`, caption), each relation once.

    Example:
        >>> first = Moment(1, "v", 30.0, 2.0, 9.0, "a person eats.", "", None)
        >>> second = Moment(2, "v", 30.0, 10.0, 12.0, "a person drinks.", "", None)
        >>> beside(first, [second]), beside(second, [first])
        ((('before', 'a person drinks.'),), (('after', 'a person eats.'),))
    """
    found: dict[str, str] = {}
    middle = moment.start_seconds + moment.end_seconds
    for other in sorted(
        others, key=lambda other: (abs(other.start_seconds + other.end_seconds - middle), other.desc_id)
    ):
        relation = _relation(moment, other)
        if relation and _caption_words(other) != _caption_words(moment):
            found.setdefault(relation, other.coarse_caption.strip())
    return tuple(found.items())


def _caption_words(moment: Moment) -> set[str]:
    return set(moment.coarse_caption.lower().rstrip(". ").split())


def _relation(moment: Moment, other: Moment) -> str | None:
    if other.end_seconds <= moment.start_seconds:
        return "after"
    if other.start_seconds >= moment.end_seconds:
        return "before"
    shared = min(moment.end_seconds, other.end_seconds) - max(moment.start_seconds, other.start_seconds)
    union = max(moment.end_seconds, other.end_seconds) - min(moment.start_seconds, other.start_seconds)
    return "while" if shared >= MIN_SHARED * union else None
