"""The parser of instructions from any writer: stems of words, counts, directions and negations."""

import re
from dataclasses import dataclass
from typing import Final

from hf_datasets.sources.finegym import APPARATUS
from hf_datasets.tfcovr.modifications.normalization import WHOLE

Token = str | float

INSTRUCTION_VERBS: Final = frozenset(
    re.findall(
        r"\w+",
        "show change switch replace perform execute do make use keep convert modify adjust set have add include "
        "remove drop omit increase raise decrease reduce lower start finish go",
    )
)
"""The first words of instructions."""
NEUTRAL: Final = INSTRUCTION_VERBS - {"switch"} | frozenset(
    re.findall(
        r"\w+",
        "a an the it its this that as and or but then while also only just with by for of to in into on at from "
        "off out over before after during both no not without instead rather than be is take direction number "
        "count time times exercise apparatus event element move skill",
    )
)
"""Words that carry no information about a label."""
INCREASING: Final = frozenset({"increase", "raise"})
DECREASING: Final = frozenset({"decrease", "reduce", "lower"})

STEMS: Final = {
    "turns": "turn",
    "twist": "turn",
    "twists": "turn",
    "twisting": "turn",
    "som": "somersault",
    "soms": "somersault",
    "somersaults": "somersault",
    "saltos": "salto",
    "tucked": "tuck",
    "piked": "pike",
    "stretched": "stretch",
    "layout": "stretch",
    "straddled": "straddle",
    "backward": "back",
    "backwards": "back",
    "forwards": "forward",
    "sidewards": "sideward",
    "sideways": "sideward",
    "arm": "armstand",
    "legs": "leg",
    "feet": "foot",
    "landing": "land",
    "leaps": "leap",
    "jumps": "jump",
    "circles": "circle",
    "standing": "stand",
}
JOINED: Final = {
    "take-off": "takeoff",
    "take off": "takeoff",
    "side-ward": "sideward",
    "round off": "round-off",
    "flic flac": "flic-flac",
    "under swing": "under-swing",
    "one arm": "one-arm",
    "arm stand": "armstand",
    "hand stand": "handstand",
}
"""Spellings of one word as two."""
WHOLE_WORDS: Final = {"round-off", "flic-flac", "under-swing", "one-arm"}
COUNT_WORDS: Final = {word: float(value) for value, word in enumerate(WHOLE, start=1)} | {
    "zero": 0.0,
    "half": 0.5,
    "full": 1.0,
    "single": 1.0,
    "double": 2.0,
    "twice": 2.0,
    "triple": 3.0,
}
UNITS: Final = {"turn", "salto", "somersault"}
LIMB_WORDS: Final = {"leg", "foot"}
APPARATUS_PHRASES: Final = (
    (r"\b(?:balance beam|bb)\b|(?<=\bon )(?:the )?beam\b", "BB"),
    (r"\b(?:floor exercise|floor|fx)\b", "FX"),
    (r"\b(?:uneven bars?|ub)\b|(?<=\bon )(?:the )?bars?\b", "UB"),
    (r"\b(?:vault|vt)\b", "VT"),
)
NEGATION: Final = re.compile(r"\b(?:no|not|without|remove|drop|omit|instead of|rather than)\b")
SCOPE_END: Final = {"and", "but", "with", "then", "while", "show", ","}
TOKEN: Final = re.compile(r"\d+(?:\.\d+)?|[a-z]+(?:-[a-z]+)*|,|~|@[A-Z]+")


@dataclass(frozen=True, slots=True)
class Count:
    """A number, what it counts, and the word that it follows, empty at the start of an instruction."""

    value: float
    unit: str
    after: str


@dataclass(frozen=True, slots=True)
class Instruction:
    """The parsed content of an instruction or a description.

    Attributes:
        verb: The first word.
        words: Stems of the words that carry information about a label.
        denied: What the text denies, the words of each denial together.
        apparatus: The apparatuses named.
        numbers: Every number that counts.
        counts: The numbers with a unit; 0 for a denied one.
        trends: `increase` or `decrease`, where the verb means it.
        directions: `forward`, `back`, `sideward` of the element.
        entry_directions: The same, of what leads into it.
    """

    verb: str
    words: frozenset[str]
    denied: tuple[frozenset[str], ...]
    apparatus: frozenset[str]
    numbers: frozenset[float]
    counts: tuple[Count, ...]
    trends: frozenset[str]
    directions: frozenset[str]
    entry_directions: frozenset[str]


def read_instruction(text: str, present: frozenset[str] = frozenset()) -> Instruction:
    """The parsed `text`. A denial reaches as far as the next word that is `present` in the target.

    >>> instruction = read_instruction("show a switch leap on BB with no turn")
    >>> sorted(instruction.words), instruction.denied, sorted(instruction.apparatus)
    (['leap', 'switch'], (frozenset({'turn'}),), ['Balance Beam'])
    >>> read_instruction("Show with 2.5 twists and one and a half somersaults").counts
    (Count(value=2.5, unit='turn', after=''), Count(value=1.5, unit='somersault', after='turn'))
    """
    tokens = tokenize(text)
    affirmed, denied = part_denials(tokens, present)
    stated = [token for token in affirmed if isinstance(token, str)]
    words = [word for word in stated if word not in NEUTRAL and word[0] not in ",@!"]
    directions, entry_directions = directions_in(words)
    return Instruction(
        verb=next((token for token in tokens if isinstance(token, str) and token[0] not in "~,"), ""),
        words=frozenset(words),
        denied=denied,
        apparatus=frozenset(APPARATUS[token[1:]] for token in tokens if isinstance(token, str) and token[0] == "@"),
        numbers=frozenset(token for token in tokens if isinstance(token, float)),
        counts=tuple(counts_in(affirmed)),
        trends=frozenset(
            trend for trend, verbs in (("increase", INCREASING), ("decrease", DECREASING)) if verbs & set(stated)
        ),
        directions=directions,
        entry_directions=entry_directions,
    )


def tokenize(text: str) -> list[Token]:
    """Stems and numbers in order; `@BB` for an apparatus, `~` where a denial begins.

    >>> tokenize("Show two and a half twists without ring on Balance Beam")
    ['show', 2.5, 'turn', '~', 'ring', 'on', '@BB']
    """
    text = text.lower()
    for phrase, abbreviation in APPARATUS_PHRASES:
        text = re.sub(phrase, f"@{abbreviation}", text)
    for spelling, word in JOINED.items():
        text = re.sub(rf"\b{spelling}\b", word, text)
    text = re.sub(r"\bswitch (?=to\b|from\b|it\b)", "change ", text)
    text = NEGATION.sub("~", text)
    words = [word for match in TOKEN.findall(text) for word in ([match] if match in WHOLE_WORDS else match.split("-"))]
    return join_numbers([STEMS.get(word, word) for word in words])


def join_numbers(words: list[str]) -> list[Token]:
    """The words with `two and a half` as 2.5, and without the numbers of legs and feet, which do not count turns."""
    tokens: list[Token] = []
    position = 0
    while position < len(words):
        word = words[position]
        value = COUNT_WORDS.get(word, float(word) if word[0].isdigit() else None)
        position += 1
        if value is None:
            tokens.append(word)
            continue
        if words[position : position + 3] == ["and", "a", "half"]:
            value, position = value + 0.5, position + 3
        after = [other for other in words[position : position + 3] if other not in {"or", "both", "two"}]
        if not after or after[0] not in LIMB_WORDS:
            tokens.append(value)
    return tokens


def part_denials(tokens: list[Token], present: frozenset[str]) -> tuple[list[Token], tuple[frozenset[str], ...]]:
    """The tokens that are affirmed, and the words that each `~` denies; a denied unit stays as `0 !unit`.

    A denial takes the next word that carries information, then all others up to a comma, `and`, `with`, a number, an
    apparatus or a word that the target has.
    """
    affirmed: list[Token] = []
    denials: list[set[str]] = []
    in_denial = False
    for token in tokens:
        if token == "~":
            denials.append(set())
            in_denial = True
            continue
        in_denial = in_denial and not ends_denial(token, present, begun=bool(denials[-1]))
        if not in_denial:
            affirmed.append(token)
        elif token not in NEUTRAL:
            denials[-1].add(str(token))
            affirmed += [0.0, f"!{token}"] if token in UNITS else []
    return affirmed, tuple(frozenset(words) for words in denials if words)


def ends_denial(token: Token, present: frozenset[str], *, begun: bool) -> bool:
    """Whether a denial stops before this token; it always takes one word."""
    if isinstance(token, float) or token in SCOPE_END or token[0] == "@":
        return True
    return begun and token in present


def counts_in(tokens: list[Token]) -> list[Count]:
    """The numbers with the unit that follows them, at most two words later."""
    counts = []
    after = ""
    for position, token in enumerate(tokens):
        if isinstance(token, str):
            after = after if token in NEUTRAL or token[0] in ",@!" else token
            continue
        following = [str(word).removeprefix("!") for word in tokens[position + 1 : position + 4]]
        unit = next((word for word in following if word in UNITS), None)
        if unit is not None:
            counts.append(Count(token, unit, after))
    return counts


def directions_in(words: list[str]) -> tuple[frozenset[str], frozenset[str]]:
    """The directions of the element and those of its entry, told apart by the word before."""
    element: set[str] = set()
    entry: set[str] = set()
    for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
        if word not in {"forward", "back", "sideward"} or before == "leg" or after == "attitude":
            continue
        (entry if before in {"swing", "jump", "handspring"} else element).add(word)
    return frozenset(element), frozenset(entry)
