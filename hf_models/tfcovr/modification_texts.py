"""Modification texts as the released code of TF-CoVR feeds them to its text encoder; imports no torch."""

import re

KEPT_WORDS = 30
WHOLE_NUMBERS = ("", "one", "two", "three", "four", "five", "six", "seven")


def normalize_modification(text: str) -> str:
    """A modification text as the released code feeds it to its text encoder.

    Numbers from 0.5 to 7 in steps of a half become words, letters lower-case, the signs `! " ( ) * # : ; ~` spaces,
    runs of spaces one; at most 30 words stay. The length statistics of the paper (2 to 19 words) are of this form.

    Example:
        >>> normalize_modification("Show with 2.5 somersaults Tuck.")
        'show with two and a half somersaults tuck.'
    """
    text = re.sub(r"\b\d+(?:\.\d+)?\b", lambda match: _number_words(match.group()), text).lower()
    words = re.sub(r'[!"()*#:;~]', " ", text).split()
    return " ".join(words[:KEPT_WORDS])


def _number_words(digits: str) -> str:
    halves = float(digits) * 2
    if halves != int(halves) or not 1 <= halves <= 14:
        return digits
    whole, half = divmod(int(halves), 2)
    if not whole:
        return "half"
    return f"{WHOLE_NUMBERS[whole]} and a half" if half else WHOLE_NUMBERS[whole]
