"""How much of a clip's label a caption says: each attribute right, wrong or not said (Tables C1 and C2 of the paper).

Both texts are read by the parser of instructions (`modifications.parser`), so a caption may have any form. Scored is
what the paper's prompts ask for and the labels state:

* gymnastics: apparatus, entry, skill, direction, saltos, turns (or twists), position (body shape, or that of the legs);
* diving: takeoff, armstand, somersaults, twists, position. The labels do not say how high the platform is.

An attribute counts where the label states it; a number or an armstand also where only the caption does, as a label
without turns has none. It is right if all that the caption says of it is the label's (also where it says only a part,
"circle" of "giant circle"), and not said if it says nothing. Words of no skill ("flip", "pose", "jumps down") say
nothing.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from hf_datasets.sources.finegym import APPARATUS
from hf_datasets.tfcovr.captions import caption_of
from hf_datasets.tfcovr.labels import Label, Sport, describe, sport_of
from hf_datasets.tfcovr.labels.diving import DivingAttributes
from hf_datasets.tfcovr.labels.gymnastics import GymnasticsAttributes
from hf_datasets.tfcovr.modifications.parser import Instruction, read_instruction

Said = Mapping[str, frozenset[str | float]]
"""Attribute -> all that a text says of it; empty where it says nothing."""

ATTRIBUTES: Final[dict[Sport, tuple[str, ...]]] = {
    "gymnastics": ("apparatus", "entry", "skill", "direction", "saltos", "turns", "position"),
    "diving": ("takeoff", "armstand", "somersaults", "twists", "position"),
}
NUMBERS: Final = {"saltos", "turns", "somersaults", "twists"}
NONE_IF_ABSENT: Final = NUMBERS | {"armstand"}
"""Where a label states none of these, there is none."""
NONE: Final = frozenset[str | float]({0.0})

SKILLS: Final = frozenset([
    "salto", "leap", "jump", "hop", "giant", "circle", "sole", "hip", "stalder", "counter", "transition", "cartwheel",
    "walkover", "flic-flac", "johnson",
])  # fmt: skip
ENTRIES: Final = frozenset([
    "round-off", "flic-flac", "handspring", "tsukahara", "gainer", "arabian", "swing", "under-swing",
])  # fmt: skip
POSITIONS: Final = frozenset([
    "tuck", "pike", "stretch", "straddle", "switch", "split", "stag", "cat", "sheep", "wolf", "ring", "attitude",
    "knee", "heel", "thigh",
])  # fmt: skip
DIVE_POSITIONS: Final = frozenset(("tuck", "pike", "stretch", "free"))
TAKEOFFS: Final = frozenset(("forward", "back", "reverse", "inward"))
TURN_ON_ONE_LEG = re.compile(r"\bon one leg\b|\bfree leg\b|\btuck stand\b|\battitude\b|\bpirouettes?\b", re.IGNORECASE)
APPARATUS_NAMES: Final = {
    "VT": re.compile(r"\b(?:vt|vault)\b", re.IGNORECASE),
    "FX": re.compile(r"\bfx\b|\bfloor exercise\b|\bon (?:the )?floor\b|\bapparatus: ?\[?floor\b", re.IGNORECASE),
    "BB": re.compile(r"\b(?:bb|beam)\b", re.IGNORECASE),
    "UB": re.compile(r"\b(?:ub|bars?)\b", re.IGNORECASE),
}
"""Where a caption names the apparatus; somebody who "falls to the floor" does not."""

DEGREES = re.compile(r"\b(180|360|540|720|900|1080)(?:°|[ -]?degrees?\b)", re.IGNORECASE)
SPELLINGS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), spelling)
    for pattern, spelling in (
        (r"\b(\d+)(?: ?½|[ -]1/2\b)", r"\1.5"),
        (r"½|\b1/2\b", "0.5"),
        (r"\b(turns?|twists?|somersaults?|saltos?) ?: ?(\d+(?:\.\d+)?)", r"\2 \1"),
        (r"\b(back|front)flips?\b", r"\1 flip"),
        (r"\bback(?:wards?)? handsprings?\b", "flic-flac"),
        (r"\bfront\b(?! support)", "forward"),
        (r"\bforwards? handsprings?\b", "handspring forward"),
        (r"(?<!leg )\bstraight\b", "stretched"),
        (r"\b(?:jumps|leaps|hops)\b", " "),  # what somebody does; labels name skills in the singular
    )
)
"""How captions spell what labels spell otherwise."""


@dataclass(frozen=True, slots=True)
class CaptionScore:
    """Which attributes of its label a caption says right, wrong or not at all, in the order of `ATTRIBUTES`."""

    right: tuple[str, ...]
    wrong: tuple[str, ...]
    not_said: tuple[str, ...]

    @property
    def all_right(self) -> bool:
        """Whether the caption says every attribute, and none wrong."""
        return not self.wrong and not self.not_said


def score_caption(caption: str, label: Label) -> CaptionScore:
    """Score a caption of a clip by the clip's label.

    >>> from hf_datasets.tfcovr.labels import find_label
    >>> score = score_caption("Switch leap with 1 turn.", find_label("40"))  # (Floor Exercise) switch leap, 0.5 turn
    >>> score.right, score.wrong, score.not_said
    (('skill', 'position'), ('turns',), ('apparatus',))

    Raises:
        ValueError: It is a label of another vocabulary.
    """
    return score_said(read_caption(caption, sport_of(label)), label)


def read_caption(text: str, sport: Sport) -> Said:
    """What a text says of each attribute of a sport.

    >>> said = read_caption("Reverse takeoff, 1.5 somersaults, 1 twist, pike. (Platform: 3m)", "diving")
    >>> {attribute: sorted(values) for attribute, values in said.items() if values}
    {'takeoff': ['reverse'], 'somersaults': [1.5], 'twists': [1.0], 'position': ['pike']}
    """
    text = DEGREES.sub(lambda degrees: f"{int(degrees[1]) / 360:g}", text)
    for pattern, spelling in SPELLINGS:
        text = pattern.sub(spelling, text)
    instruction = read_instruction(text)
    turns = frozenset(count.value for count in instruction.counts if count.unit == "turn")
    saltos = frozenset(count.value for count in instruction.counts if count.unit != "turn")
    words = instruction.words
    if sport == "diving":
        return {
            "takeoff": words & TAKEOFFS,
            "armstand": frozenset({"armstand"} if words & {"armstand", "handstand"} else ()),
            "somersaults": saltos,
            "twists": turns,
            "position": words & DIVE_POSITIONS,
        }
    return {
        "apparatus": frozenset(APPARATUS[short] for short, name in APPARATUS_NAMES.items() if name.search(text)),
        "entry": words & ENTRIES,
        "skill": skills_in(text, instruction),
        "direction": instruction.directions,
        "saltos": saltos or saltos_in(text, instruction),
        "turns": turns,
        "position": words & POSITIONS,
    }


def skills_in(text: str, instruction: Instruction) -> frozenset[str]:
    """The words of skills: of a turn on one leg only where no other skill is named, as most skills have turns."""
    words = set(instruction.words & SKILLS)
    words |= {"salto"} if saltos_in(text, instruction) else set()
    return frozenset(words) or frozenset({"turn"} if TURN_ON_ONE_LEG.search(text) else ())


def saltos_in(text: str, instruction: Instruction) -> frozenset[float]:
    """The number of saltos where no number counts them: a salto is one, and so is a tsukahara."""
    denied = any("salto" in words for words in instruction.denied)
    if denied or not instruction.words & {"salto", "somersault", "tsukahara"}:
        return frozenset()
    return frozenset({2.0 if "into salto" in text.lower() else 1.0})


@lru_cache(maxsize=1024)
def stated_by(label: Label) -> Said:
    """What a label states of each attribute; of dives as its attributes say, as any of two twists may be named."""
    attributes = label.attributes
    if isinstance(attributes, DivingAttributes):
        # Where a dive number ends in "d", the position is free, and FineDiving names one that is taken in it.
        is_free = label.label_id.endswith("d")
        twists = {attributes.twists, attributes.twists_before, attributes.twists_after}
        return {
            "takeoff": frozenset({attributes.takeoff}),
            "armstand": frozenset({"armstand"} if attributes.armstand else ()),
            "somersaults": frozenset({attributes.somersaults}),
            "twists": frozenset(twists - {0.0}),
            "position": frozenset({attributes.shape, "free"} if is_free else {attributes.shape}),
        }
    assert isinstance(attributes, GymnasticsAttributes)
    said = dict(read_caption(describe(attributes), "gymnastics"))
    if attributes.family == "turn":
        said["skill"] = frozenset({"turn"})
    else:
        said["skill"] = read_instruction(attributes.element).words & SKILLS
    if attributes.entry is None:
        said["entry"] = frozenset()
    if attributes.direction is None:
        said["direction"] = frozenset()
    return said


def score_said(said: Said, label: Label) -> CaptionScore:
    """Compare what a caption says with what a label states."""
    stated = stated_by(label)
    found: dict[str, list[str]] = {"right": [], "wrong": [], "not_said": []}
    for attribute in ATTRIBUTES[sport_of(label)]:
        own, told = stated[attribute], said[attribute]
        if attribute == "skill":
            told -= skills_beside(label) - own
        if attribute in NONE_IF_ABSENT and told:
            own = own or NONE
        if own:
            found["not_said" if not told else "right" if told <= own else "wrong"].append(attribute)
    return CaptionScore(*(tuple(names) for names in found.values()))


@lru_cache(maxsize=1024)
def skills_beside(label: Label) -> frozenset[str]:
    """Words of skills beside the label's own: of its entry, of its turns ("hop"), and a flic-flac, a common entry."""
    beside = [getattr(label.attributes, name, None) or "" for name in ("entry", "turn_manner")]
    return read_instruction(" ".join(beside)).words | {"flic-flac"}


@dataclass
class CaptionTally:
    """Scores of many captions of one sport, added up; weights need not be whole.

    >>> from hf_datasets.tfcovr.labels import find_label
    >>> tally = CaptionTally("diving")
    >>> tally.add(score_caption("Inward takeoff, 2.5 somersaults", find_label("407c")))  # Inward, 3.5 Soms.Tuck
    >>> tally.figures()["takeoff/right"], tally.figures()["somersaults/wrong"], tally.figures()["all_right"]
    (1.0, 1.0, 0.0)
    """

    sport: Sport
    captions: float = 0.0
    all_right: float = 0.0
    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, score: CaptionScore, weight: float = 1.0) -> None:
        """Add the score of a caption."""
        self.captions += weight
        self.all_right += weight * score.all_right
        for verdict in ("right", "wrong", "not_said"):
            for attribute in getattr(score, verdict):
                self.verdicts[attribute, verdict] += weight  # type: ignore[assignment]

    def figures(self) -> dict[str, float]:
        """Shares, 0 to 1: `all_right` of the captions; `turns/right` (`wrong`, `not_said`) of those where it counts.

        `attributes/right` and so on are of all attributes together.
        """
        shares = {"all_right": self.all_right / self.captions} if self.captions else {}
        for name in ("attributes", *ATTRIBUTES[self.sport]):
            names = ATTRIBUTES[self.sport] if name == "attributes" else (name,)
            counts = {v: sum(self.verdicts[one, v] for one in names) for v in ("right", "wrong", "not_said")}
            if total := sum(counts.values()):
                shares |= {f"{name}/{verdict}": count / total for verdict, count in counts.items()}
        return shares


def majority(labels: Iterable[Label], sport: Sport) -> CaptionTally:
    """The score of saying of every clip what most labels state of each attribute; of a number also that there is none.

    Args:
        labels: The labels of the clips of a sport, one for each clip.
        sport: Their sport.
    """
    counted = Counter(labels)
    said: dict[str, frozenset[str | float]] = {}
    for attribute in ATTRIBUTES[sport]:
        values: Counter[frozenset[str | float]] = Counter()
        for label, count in counted.items():
            none = NONE if attribute in NUMBERS else frozenset()
            values[stated_by(label)[attribute] or none] += count
        if attribute not in NONE_IF_ABSENT:
            del values[frozenset()]
        said[attribute] = max(values, key=lambda value: (values[value], sorted(map(str, value))), default=frozenset())
    tally = CaptionTally(sport)
    for label, count in counted.items():
        tally.add(score_said(said, label), count)
    return tally


def chance(labels: Iterable[Label], sport: Sport) -> CaptionTally:
    """The expected score of giving each clip the label caption of a clip drawn at random from all of its sport.

    Args:
        labels: The labels of the clips of a sport, one for each clip.
        sport: Their sport.
    """
    counted = Counter(labels)
    total = sum(counted.values())
    tally = CaptionTally(sport)
    for drawn, times in counted.items():
        said = read_caption(caption_of(drawn), sport)
        for label, count in counted.items():
            tally.add(score_said(said, label), count * times / total)
    return tally
