"""The judge of modification texts, whoever wrote them: what changes is named, and nothing else is said to.

A text passes when it is one short English instruction, each of its words and numbers belongs to the target, and each
attribute that changes is named. Everything outside the vocabulary of labels and instructions is refused, which is what
keeps out refusals, other languages, repeated prompts and instructions hidden in the data.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from hf_datasets.tfcovr.labels import Attributes, Change, describe, differences
from hf_datasets.tfcovr.labels.diving import DivingAttributes
from hf_datasets.tfcovr.labels.gymnastics import GymnasticsAttributes
from hf_datasets.tfcovr.modifications.normalization import count_words
from hf_datasets.tfcovr.modifications.parser import UNITS, VERBS, Instruction, read_instruction

MIN_WORDS: Final = 2
MAX_WORDS: Final = 19
"""Section 3 of the paper: modification texts have 2 to 19 words."""
MAX_CHARACTERS: Final = 200
ALLOWED_CHARACTERS = re.compile(r"[A-Za-z0-9 .,()/-]*")
ENTRY_WORD: Final = "flic-flac"
"""The turns that follow it belong to the way onto the vault."""
COUNTED: Final = {
    "turns",
    "at_least",
    "turn_manner",
    "entry_turns",
    "somersaults",
    "twists_before",
    "twists_after",
}


def objection_to(source: Attributes, target: Attributes, text: str) -> str | None:
    """Why `text` is no instruction from `source` to `target`, or None where it is one.

    >>> from hf_datasets.tfcovr.labels import find_label
    >>> switch_leap, with_turn = find_label("45").attributes, find_label("41").attributes
    >>> objection_to(switch_leap, with_turn, "Show with 1 turn.")
    >>> objection_to(switch_leap, with_turn, "Show with 2 turns.")
    'says 2 turn, the target has 1'
    >>> objection_to(switch_leap, with_turn, "Show a switch leap.")
    "does not name what changes: turns to '1'"
    """
    changes = differences(source, target)
    if not changes:
        return f"there is nothing to modify: both labels say {describe(target)!r}"
    form = objection_to_form(text)
    if form:
        return form
    target_says = says(target)
    source_says = says(source)
    said = read_instruction(text, target_says.words)
    checks: tuple[Callable[[], str | None], ...] = (
        lambda: objection_to_words(said, source_says, target_says, target),
        lambda: objection_to_apparatus(said, target),
        lambda: objection_to_numbers(said, target_says, target),
        lambda: objection_to_trend(said, changes),
        lambda: objection_to_direction(said, target_says, target),
    )
    found = next((reason for check in checks if (reason := check())), None)
    if found:
        return found
    missing = [
        change
        for change in changes
        if not follows(change, source, target) and not is_named(change, said, target_says, target)
    ]
    if missing:
        names = ", ".join(f"{change.attribute} to {shown(change.target)!r}" for change in missing)
        return f"does not name what changes: {names}"
    return None


def shown(value: object) -> str:
    """A value as a reason shows it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def objection_to_form(text: str) -> str | None:
    """What is wrong with a text before it is read: its characters, length and opening."""
    if len(text) > MAX_CHARACTERS:
        return f"has {len(text)} characters, {MAX_CHARACTERS} at most"
    if not ALLOWED_CHARACTERS.fullmatch(text):
        strange = ALLOWED_CHARACTERS.sub("", text)[0]
        return f"holds the character {strange!r}: expected one line of English letters, digits and , . ( ) / -"
    words = count_words(text)
    if not MIN_WORDS <= words <= MAX_WORDS:
        return f"has {words} words with its numbers spelled out, expected {MIN_WORDS} to {MAX_WORDS}"
    first = re.split(r"[^a-z]+", text.lower().strip(), maxsplit=1)[0]
    if first not in VERBS:
        return f"begins with {first!r}, which is no instruction: expected a verb such as 'show' or 'change'"
    return None


def objection_to_words(
    said: Instruction, source: Instruction, target: Instruction, attributes: Attributes
) -> str | None:
    """A word that the target does not have, or a denied one that it has or that the source lacks."""
    present = target.words | implied_words(attributes)
    for word in sorted(said.words - present):
        if word in source.words:
            return f"says {word!r}, which the source has and the target has not"
        return f"says {word!r}, which is no word of the target or of an instruction"
    for denied in said.denied:
        phrase = " ".join(sorted(denied))
        if not denied & (source.words | UNITS):
            return f"denies {phrase!r}, which the source does not have"
        if denied - UNITS and denied <= target.words:
            return f"denies {phrase!r}, which the target has"
    return None


def implied_words(attributes: Attributes) -> set[str]:
    """Words that fit a label though its description does not use them."""
    if isinstance(attributes, DivingAttributes):
        return {"takeoff", "position"}
    implied = {"position", "handstand"} if attributes.family == "circle" else {"position"}
    if attributes.somersaults:
        implied |= {"salto", "somersault"}
    if attributes.direction:
        implied.add(direction_word(attributes))
    return implied


def objection_to_apparatus(said: Instruction, target: Attributes) -> str | None:
    """An apparatus that is not the target's."""
    own = target.apparatus if isinstance(target, GymnasticsAttributes) else None
    others = sorted(said.apparatus - {own})
    if others:
        return f"names {others[0]}, the target is {f'on {own}' if own else 'a dive'}"
    return None


def objection_to_numbers(said: Instruction, target_says: Instruction, target: Attributes) -> str | None:
    """A number that the target does not have, or that counts something else there."""
    for count in said.counts:
        allowed = allowed_counts(target, count.unit, count.after)
        if count.value not in allowed:
            has = " or ".join(shown(value) for value in sorted(allowed))
            return f"says {shown(count.value)} {count.unit}, the target has {has}"
    strange = said.numbers - target_says.numbers - {count.value for count in said.counts}
    if strange:
        return f"says {shown(min(strange))}, a number that the target does not have"
    return None


def allowed_counts(target: Attributes, unit: str, after: str) -> set[float]:
    """How many of a unit the target has there; two numbers where it turns in two phases and the text does not say."""
    if unit != "turn":
        return {target.somersaults}
    if isinstance(target, DivingAttributes):
        return {target.twists} | ({target.twists_before, target.twists_after} - {0.0})
    if target.family == "vault" and after == ENTRY_WORD:
        return {target.entry_turns}
    either = target.entry_turns and (target.family != "vault" or not (target.turns or after))
    return {target.turns, target.entry_turns} if either else {target.turns}


def objection_to_trend(said: Instruction, changes: tuple[Change, ...]) -> str | None:
    """`increase` where no number grows, `reduce` where none shrinks."""
    steps = [change.target - change.source for change in changes if isinstance(change.target, float)]
    if "increase" in said.trends and not any(step > 0 for step in steps):
        return "says that a number increases, and none does"
    if "decrease" in said.trends and not any(step < 0 for step in steps):
        return "says that a number decreases, and none does"
    return None


def objection_to_direction(said: Instruction, target_says: Instruction, target: Attributes) -> str | None:
    """A direction of the element that belongs to its entry, or the other way round."""
    if isinstance(target, DivingAttributes):
        return None
    own = target_says.directions | ({direction_word(target)} if target.direction else set())
    wrong = (said.directions - own) | (said.entry_directions - target_says.entry_directions)
    return f"says {min(wrong)!r} of what goes the other way in the target" if wrong else None


def direction_word(target: GymnasticsAttributes) -> str:
    """The stem of a direction: `backward` is `back`, as in dives."""
    return {"backward": "back"}.get(target.direction, target.direction)


def follows(change: Change, source: Attributes, target: Attributes) -> bool:
    """Whether a change needs no words: kind of element, stance given by the legs, manner of turns gone, place of twists."""
    if change.attribute in {"twists_before", "twists_after"}:
        return source.twists == target.twists and source.takeoff != target.takeoff
    if change.attribute == "turn_manner":
        return not target.turns
    if change.attribute == "stance":
        return target.stance is None
    return change.attribute == "family"


def is_named(change: Change, said: Instruction, target_says: Instruction, target: Attributes) -> bool:
    """Whether the instruction says what this attribute becomes, or it follows from what it says."""
    if change.attribute == "apparatus":
        return change.target in said.apparatus
    if change.attribute in COUNTED:
        return is_counted(change, said, target)
    if not change.target:
        lost = stems(change.attribute if change.source is True else change.source)
        return bool(lost & denied_words(said)) or restates(said, target)
    words = stems(change.attribute if change.target is True else change.target) & target_says.words
    # A new element is named by any of its words ("hop" of "hop or jump"), all else by the words that are new.
    known = change.source if isinstance(change.source, str) and change.attribute != "element" else ""
    new = words - stems(known)
    return not words or bool((new or words) & said.words)


def denied_words(said: Instruction) -> frozenset[str]:
    """All words that are said to be absent."""
    return frozenset().union(*said.denied)


@lru_cache(maxsize=4096)
def says(attributes: Attributes) -> Instruction:
    """What the description with these attributes says."""
    return read_instruction(describe(attributes))


@lru_cache(maxsize=4096)
def stems(text: object) -> frozenset[str]:
    """The stems of an attribute's value."""
    return read_instruction(str(text)).words


def restates(said: Instruction, target: Attributes) -> bool:
    """Whether the element is named: what is then not said of it is not there.

    A tsukahara is named by its entry, a dive by its take-off, a vault's flight by the salto it lacks.
    """
    if isinstance(target, DivingAttributes):
        return target.takeoff in said.words
    if target.element == "flight" and "salto" in denied_words(said):
        return True
    return bool((stems(target.element) | stems(target.entry or "")) & said.words)


def is_counted(change: Change, said: Instruction, target: Attributes) -> bool:
    """Whether a change of number is named by its count, or by naming the element without one."""
    if isinstance(target, DivingAttributes):
        return is_counted_dive(change, said, target)
    turns = {count.value for count in said.counts if count.unit == "turn"}
    match change.attribute:
        case "turns":
            return target.turns in turns or (not target.turns and restates(said, target))
        case "at_least":
            return "more" in said.words or not target.at_least
        case "turn_manner":
            return is_turn_manner_named(change, said, turns)
        case "entry_turns":
            entry = stems(target.entry or "")
            return target.entry_turns in turns or (not target.entry_turns and (not entry or bool(entry & said.words)))
        case _:
            saltos = {count.value for count in said.counts if count.unit != "turn"}
            plain = target.somersaults < 2 or target.element == "salto into salto"
            said_plainly = "salto" in said.words and plain
            return target.somersaults in saltos or said_plainly or "salto" not in says(target).words


def is_turn_manner_named(change: Change, said: Instruction, turns: set[float]) -> bool:
    """Whether the way to turn is named: by its words, or, where it is plain, by the turn or its absence."""
    words = stems(change.target or "") - {"salto", "phase"}
    if change.target in {None, "before the salto"}:
        return bool(turns) or bool(stems(change.source) & denied_words(said))
    return bool(words & said.words)


def is_counted_dive(change: Change, said: Instruction, target: DivingAttributes) -> bool:
    """Whether a change of twists or somersaults is named; the place of the twists follows from the take-off."""
    units = {count.unit: count.value for count in said.counts}
    if change.attribute == "somersaults":
        return units.get("somersault") == target.somersaults
    counts = {count.value for count in said.counts if count.unit == "turn"}
    phases = {target.twists_before, target.twists_after} - {0.0}
    return target.twists in counts or bool(phases and phases <= counts)
