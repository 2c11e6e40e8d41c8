"""Normalization of modification texts for a model: numbers in words, lower case, no marks, at most 30 words."""

import re
from typing import Final

MAX_WORDS: Final = 30
MARKS = re.compile(r'[!"()*#:;~]')
NUMBER = re.compile(r"\b\d+(?:\.\d+)?\b")
WHOLE = ("one", "two", "three", "four", "five", "six", "seven")
NUMBER_WORDS: dict[float, str] = (
    {0.5: "half"}
    | {float(value): word for value, word in enumerate(WHOLE, start=1)}
    | {value + 0.5: f"{word} and a half" for value, word in enumerate(WHOLE[:-1], start=1)}
)
"""The numbers that have words: 0.5 to 7 in halves; every other number stays in digits."""


def expand_numbers(text: str) -> str:
    """The text with its numbers in words.

    >>> expand_numbers("2.5 somersaults, 0.5 Twist, 180 split, 2nd")
    'two and a half somersaults, half Twist, 180 split, 2nd'
    """
    return NUMBER.sub(lambda number: NUMBER_WORDS.get(float(number[0]), number[0]), text)


def normalise_text(text: str) -> str:
    """The text as TF-CoVR's loaders give it to the text encoder (finegd_covr.py of the release).

    Numbers become words, letters lower case, the marks `! " ( ) * # : ; ~` spaces; full stops and commas stay; runs
    of white space become one space, and what follows the 30th word is cut.

    >>> normalise_text("Show (swing backward) double salto with 0.5 turn.")
    'show swing backward double salto with half turn.'
    """
    words = MARKS.sub(" ", expand_numbers(text).lower()).split()
    return " ".join(words[:MAX_WORDS])


def count_words(text: str) -> int:
    """The number of words once numbers are spelled out, as the paper counts them (2 to 19, 6.11 on average).

    >>> count_words("Show with 1.5 somersaults.")
    7
    """
    return len(MARKS.sub(" ", expand_numbers(text)).split())
