"""The rule-based generator: the shortest instruction that leads from one label to another, from their attributes.

It follows the style of the paper's examples (section B): state what changes and nothing else, numbers and apparatus as
in the target, `with no turn` for what goes away.
"""

from typing import cast

from hf_datasets.tfcovr.labels import Attributes, describe, differences
from hf_datasets.tfcovr.labels.diving import DivingAttributes, number_and_noun
from hf_datasets.tfcovr.labels.gymnastics import GymnasticsAttributes
from hf_datasets.tfcovr.labels.template import number_text

TURNING = {"turns", "at_least", "turn_manner"}
RING_POSITION = "to ring position"
REMOVED_FINISHES = {
    "in side position": "without side position",
    "landing in side position": "without landing in side position",
    "landing in cross position": "without landing in cross position",
    "landing on one or both feet": "without landing on both feet",
    "to stand on one or two feet": "without stand on both feet",
    "feet land successively": "without feet landing successively",
    "feet land together": "without feet landing together",
    "with legs together": "without legs together",
    "swing down to cross straddle sit": "without swing down",
}
"""How to negate a finish whose words cannot follow `without`; others lose their preposition `to` or `at`."""


def write_modification(source: Attributes, target: Attributes) -> str:
    """The instruction that leads from `source` to `target`, in lower case but for names, without a full stop.

    >>> from hf_datasets.tfcovr.labels import find_label
    >>> write_modification(find_label("45").attributes, find_label("146").attributes)
    'show on Balance Beam with 1 turn'
    >>> write_modification(find_label("407c").attributes, find_label("205b").attributes)
    'change direction to back and show with 2.5 somersaults pike'

    Raises:
        ValueError: The labels say the same, or are of different sports.
    """
    changed = {change.attribute for change in differences(source, target)}
    if not changed:
        raise ValueError(f"{describe(source)!r} and {describe(target)!r} say the same: there is nothing to modify")
    if isinstance(source, DivingAttributes):  # so is the target: `differences` refuses different sports
        return diving_instruction(source, cast(DivingAttributes, target), changed)
    return gymnastics_instruction(source, cast(GymnasticsAttributes, target), changed)


def gymnastics_instruction(source: GymnasticsAttributes, target: GymnasticsAttributes, changed: set[str]) -> str:
    """The instruction between two gymnastics labels: skill, apparatus, turns, finish, as far as they change."""
    place = f"on {target.apparatus_text}" if "apparatus" in changed else ""
    if "family" in changed:
        clauses = [describe(target).partition(") ")[2], place]
    elif target.family == "vault":
        clauses = [vault_clause(source, target, changed)]
    else:
        skill = {"leap": leap_skill, "turn": turn_skill, "acrobatic": salto_skill}.get(target.family, bar_skill)
        clauses = [
            skill(target, changed),
            place,
            with_clause(source, target, changed),
            *removed(source, target, changed),
            *(getattr(target, name) for name in ("finish", "place") if name in changed and getattr(target, name)),
        ]
    return " ".join(["show", *(clause for clause in clauses if clause)])


def turn_words(target: GymnasticsAttributes) -> str:
    """The turns of the target: `1.5 turn`, `1 turn or more`, `hop 1 turn`, `1 turn on one arm before ...`."""
    words = f"{number_text(target.turns)} {target.turn_noun}" + (" or more" if target.at_least else "")
    if target.turn_manner in {"hop", "additional"}:
        return f"{target.turn_manner} {words}"
    if target.family == "circle" and target.turn_manner:
        return f"{words} {target.turn_manner}"
    return words


def with_clause(source: GymnasticsAttributes, target: GymnasticsAttributes, changed: set[str]) -> str:
    """The `with` clause of the target: turns and ring, where they change and are not in the skill's name."""
    gains = []
    if changed & TURNING and not (target.family == "turn" and changed & {"stance", "legs"}):
        additional = "additional " if source.turn_manner == "additional" else ""  # a johnson keeps its half turn
        gains.append(turn_words(target) if target.turns else f"no {additional}{source.turn_noun}")
    if "ring" in changed and target.ring and not names_skill(target, changed):
        gains.append("ring")
    return "with " + " and ".join(gains) if gains else ""


def removed(source: GymnasticsAttributes, target: GymnasticsAttributes, changed: set[str]) -> list[str]:
    """The `without` clauses: what the source has and the target lacks."""
    losses = []
    if "ring" in changed and source.ring and not names_skill(target, changed):
        losses.append("without ring")
    if "turn_manner" in changed and source.family == "circle" and target.turns and not target.turn_manner:
        losses.append("without hop" if source.turn_manner == "hop" else "without one arm")
    for name in ("finish", "place"):
        lost = getattr(source, name)
        if name in changed and lost and not getattr(target, name):
            losses.append(REMOVED_FINISHES.get(lost) or "without " + lost.removeprefix("to ").removeprefix("at "))
    return losses


def names_skill(target: GymnasticsAttributes, changed: set[str]) -> bool:
    """Whether a leap is named again: it changes, or its turns are removed ("a switch leap with no turn")."""
    return bool(changed & {"element", "legs"}) or ("turns" in changed and not target.turns)


def leap_skill(target: GymnasticsAttributes, changed: set[str]) -> str:
    """The leap by its name; a two-word name takes an article unless it is a "hop or jump", as in the paper."""
    if not names_skill(target, changed):
        return ""
    element = target.element.partition(" or ")[0]
    if target.legs and target.legs.startswith("free leg"):
        return f"{element} with {target.legs.removesuffix(' throughout')}"
    in_position = RING_POSITION if target.ring and "{ring}" in target.wording else ""
    ring = "ring" if target.ring and not in_position else ""
    name = " ".join(word for word in (target.legs, ring, element, in_position) if word)
    short = len(name.removesuffix(f" {RING_POSITION}").split()) == 2 and element == target.element
    return f"a {name}" if short else name


def turn_skill(target: GymnasticsAttributes, changed: set[str]) -> str:
    """The manner of a turn on one leg, after its number where that changes too."""
    if not changed & {"stance", "legs"}:
        return ""
    number = turn_words(target) if changed & TURNING else ""
    manner = f"{target.stance}, {target.legs}" if target.stance and "stance" in changed else f"with {target.legs}"
    return f"{number} {manner}".lstrip()


def salto_words(target: GymnasticsAttributes, *, shape_first: bool = False) -> str:
    """The salto itself: `double salto backward tucked`, in the order of vault `tucked double salto backward`."""
    salto = "double salto" if target.somersaults == 2 else "salto"
    direction = {"sideward": "side-ward"}.get(target.direction or "", target.direction)
    if target.entry in {"arabian", "gainer"} and "{direction}" not in target.wording:
        direction = None
    words = (target.shape, salto, direction) if shape_first else (salto, direction, target.shape)
    return " ".join(word for word in words if word)


def salto_skill(target: GymnasticsAttributes, changed: set[str]) -> str:
    """A salto by its one changed word (`tucked`, `backward`), or in full."""
    word = changed_word(target, changed, {"element", "entry", "entry_turns", "somersaults", "takeoff"})
    if word is not None:
        return word
    if target.element == "aerial walkover":
        return f"{target.element} {target.direction}"
    if target.element != "salto":
        return target.element
    entry = target.entry or ""
    if target.entry_turns:
        entry = f"{entry} with {number_text(target.entry_turns)} twist and"
    takeoff = f"take off from {target.takeoff}" if target.takeoff else ""
    return " ".join(words for words in (entry, salto_words(target), takeoff) if words)


def changed_word(target: GymnasticsAttributes, changed: set[str], naming: set[str]) -> str | None:
    """The one word for a change of only direction or shape; None where the skill must be named."""
    words = changed & {"direction", "shape"}
    if changed & naming or len(words) > 1:
        return None
    return getattr(target, words.pop()) if words else ""


def bar_skill(target: GymnasticsAttributes, changed: set[str]) -> str:
    """A circle or flight on the uneven bars by what changes, or in full."""
    if target.element == "transition flight":
        return " ".join(word for word in ("element" in changed and target.element, target.entry) if word)
    entry_matters = {"entry"} if target.entry else set()
    word = changed_word(target, changed, {"element", "somersaults"} | entry_matters)
    if word is not None:
        return word
    if target.family == "circle":
        return f"{target.element} {target.direction}"
    if target.element == "counter":
        return f"counter {target.shape} over high bar"
    entry = f"({target.entry})" if "entry" in changed else ""
    into = f"salto with {turn_words(target)} into" if target.element == "salto into salto" else ""
    salto = salto_words(target).removeprefix("double ") if into else salto_words(target)
    return " ".join(words for words in (entry, into, salto) if words)


def vault_clause(source: GymnasticsAttributes, target: GymnasticsAttributes, changed: set[str]) -> str:
    """What changes in a vault: the first flight, the second, or both joined by `and`."""
    second_changed = changed - {"entry", "entry_turns"}
    if "entry" in changed and target.entry == "tsukahara":
        return describe(target).partition(") ")[2]
    if changed & {"entry", "entry_turns"}:
        second = whole_second_flight(target) if second_changed or source.entry == "tsukahara" else ""
        return " and ".join(flight for flight in (first_flight(target, changed), second) if flight)
    if target.entry == "tsukahara":
        return tsukahara_clause(source, target, changed)
    if target.turn_manner or target.element == "flight":
        return whole_second_flight(target)
    salto = salto_words(target, shape_first=True) if second_changed - TURNING else ""
    return f"{salto} {with_clause(source, target, changed)}".strip()


def first_flight(target: GymnasticsAttributes, changed: set[str]) -> str:
    """The way onto the vault; its turns alone where only they change."""
    number = f"with {number_text(target.entry_turns)} turn" if target.entry_turns else ""
    if "entry" not in changed:
        return f"flic-flac {number or 'with no turn'}"
    return " ".join(words for words in (target.entry, number, "on") if words)


def whole_second_flight(target: GymnasticsAttributes) -> str:
    """The second flight, complete: a clause without turns means none."""
    if target.element == "flight":
        return f"{turn_words(target)} without salto"
    salto = salto_words(target, shape_first=True)
    if target.turn_manner:
        return f"{turn_words(target)} with {salto}"
    return f"{salto} with {turn_words(target)}" if target.turns else salto


def tsukahara_clause(source: GymnasticsAttributes, target: GymnasticsAttributes, changed: set[str]) -> str:
    """What changes between two tsukaharas: shape, salto, turns."""
    if target.element == "flight":
        words = [target.shape if "shape" in changed else "", "without salto"]
    else:
        words = [target.shape if "shape" in changed else "", "salto" if "element" in changed else ""]
        words.append(with_clause(source, target, changed))
    return " ".join(word for word in words if word)


def diving_instruction(source: DivingAttributes, target: DivingAttributes, changed: set[str]) -> str:
    """The instruction between two dives: take-off, then twists, somersaults and shape, as far as they change."""
    gains = []
    # Where only the place of the twists changes, it follows from the direction of the take-off.
    twists_matter = source.twists != target.twists or source.takeoff == target.takeoff
    if changed & {"twists_before", "twists_after"} and twists_matter:
        gains.append(twist_words(target))
    if "somersaults" in changed:
        # The paper names the tuck with every number of somersaults, the pike only where it changes.
        shape = f" {target.shape}" if "shape" in changed or target.shape == "tuck" else ""
        gains.append(number_and_noun(target.somersaults, "somersault") + shape)
    show = ["with " + " and ".join(gains)] if gains else []
    if "shape" in changed and "somersaults" not in changed:
        show.append(f"in {target.shape} position")
    if "armstand" in changed:
        show.insert(0, "from armstand" if target.armstand else "without armstand")
    clauses = [f"change direction to {target.takeoff}"] if "takeoff" in changed else []
    return " and ".join([*clauses, *(["show " + " ".join(show)] if show else [])])


def twist_words(target: DivingAttributes) -> str:
    """The twists of the target; their place where they have two."""
    before, after = target.twists_before, target.twists_after
    if before and after:
        return f"{number_and_noun(before, 'twist')} before and {number_and_noun(after, 'twist')} after"
    return number_and_noun(before or after, "twist") if before or after else "no twist"
