"""Checks of modification texts from any writer: they name each change, and nothing else.

A text passes if it is one short English instruction, each of its words and numbers belongs to the target, and each
attribute that changes is named. Everything outside the vocabulary of labels and instructions is rejected, which
excludes refusals, other languages, repeated prompts and instructions hidden in the data.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from hf_datasets.tfcovr.labels import Attributes, Change, describe, differences
from hf_datasets.tfcovr.labels.diving import DivingAttributes
from hf_datasets.tfcovr.labels.gymnastics import Direction, GymnasticsAttributes
from hf_datasets.tfcovr.modifications.normalization import count_words
from hf_datasets.tfcovr.modifications.parser import INSTRUCTION_VERBS, UNITS, Instruction, read_instruction

MIN_PAPER_WORDS: Final = 2
MAX_PAPER_WORDS: Final = 19
"""Section 3 of the paper: modification texts have 2 to 19 words."""
MAX_INSTRUCTION_CHARACTERS: Final = 200
ALLOWED_CHARACTERS = re.compile(r"[A-Za-z0-9 .,()/-]*")
ENTRY_WORD: Final = "flic-flac"
"""Turns that follow this word belong to the entry of a vault."""
COUNTED: Final = {"turns", "at_least", "turn_manner", "entry_turns", "somersaults", "twists_before", "twists_after"}


def modification_fault(source: Attributes, target: Attributes, text: str) -> str | None:
    """Why `text` is not an instruction from `source` to `target`, or None where it is one.

    >>> from hf_datasets.tfcovr.labels import find_label
    >>> switch_leap, with_turn = find_label("45").attributes, find_label("41").attributes
    >>> modification_fault(switch_leap, with_turn, "Show with 1 turn.")
    >>> modification_fault(switch_leap, with_turn, "Show with 2 turns.")
    'says 2 turn, the target has 1'
    >>> modification_fault(switch_leap, with_turn, "Show a switch leap.")
    "does not name what changes: turns to '1'"
    """
    changes = differences(source, target)
    if not changes:
        return f"there is nothing to modify: both labels say {describe(target)!r}"
    reason = check_form(text)
    if reason:
        return reason
    target_text = read_attributes(target)
    source_text = read_attributes(source)
    instruction = read_instruction(text, target_text.words)
    checks: tuple[Callable[[], str | None], ...] = (
        lambda: check_words(instruction, source_text, target_text, target),
        lambda: check_apparatus(instruction, target),
        lambda: check_numbers(instruction, target_text, target),
        lambda: check_trend(instruction, changes),
        lambda: check_direction(instruction, target_text, target),
    )
    found = next((reason for check in checks if (reason := check())), None)
    if found:
        return found
    missing = [
        change
        for change in changes
        if not follows(change, source, target) and not is_named(change, instruction, target_text, target)
    ]
    if missing:
        names = ", ".join(f"{change.attribute} to {reason_value(change.target)!r}" for change in missing)
        return f"does not name what changes: {names}"
    return None


def reason_value(value: object) -> str:
    """A value as reasons show it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def check_form(text: str) -> str | None:
    """A wrong form, before the text is parsed: its characters, length and first word."""
    if len(text) > MAX_INSTRUCTION_CHARACTERS:
        return f"has {len(text)} characters, {MAX_INSTRUCTION_CHARACTERS} at most"
    if not ALLOWED_CHARACTERS.fullmatch(text):
        strange = ALLOWED_CHARACTERS.sub("", text)[0]
        return f"holds the character {strange!r}: expected one line of English letters, digits and , . ( ) / -"
    words = count_words(text)
    if not MIN_PAPER_WORDS <= words <= MAX_PAPER_WORDS:
        return f"has {words} words with its numbers spelled out, expected {MIN_PAPER_WORDS} to {MAX_PAPER_WORDS}"
    first = re.split(r"[^a-z]+", text.lower().strip(), maxsplit=1)[0]
    if first not in INSTRUCTION_VERBS:
        return f"begins with {first!r}, which is no instruction: expected a verb such as 'show' or 'change'"
    return None


def check_words(
    instruction: Instruction, source: Instruction, target: Instruction, attributes: Attributes
) -> str | None:
    """A word that the target does not have, or a denied one that it has or that the source lacks."""
    present = target.words | implied_words(attributes)
    for word in sorted(instruction.words - present):
        if word in source.words:
            return f"says {word!r}, which the source has and the target has not"
        return f"says {word!r}, which is no word of the target or of an instruction"
    for denied in instruction.denied:
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
        implied.add(direction_word(attributes.direction))
    return implied


def check_apparatus(instruction: Instruction, target: Attributes) -> str | None:
    """An apparatus that is not the target's."""
    own = target.apparatus if isinstance(target, GymnasticsAttributes) else None
    others = sorted(instruction.apparatus - {own})
    if others:
        return f"names {others[0]}, the target is {f'on {own}' if own else 'a dive'}"
    return None


def check_numbers(instruction: Instruction, target_text: Instruction, target: Attributes) -> str | None:
    """A number that the target does not have, or that counts something else there."""
    for count in instruction.counts:
        allowed = allowed_counts(target, count.unit, count.after)
        if count.value not in allowed:
            has = " or ".join(reason_value(value) for value in sorted(allowed))
            return f"says {reason_value(count.value)} {count.unit}, the target has {has}"
    strange = instruction.numbers - target_text.numbers - {count.value for count in instruction.counts}
    if strange:
        return f"says {reason_value(min(strange))}, a number that the target does not have"
    return None


def allowed_counts(target: Attributes, unit: str, after: str) -> set[float]:
    """How many of a unit the target has there; two numbers where it turns in two phases and the text names neither."""
    if unit != "turn":
        return {target.somersaults}
    if isinstance(target, DivingAttributes):
        return {target.twists} | ({target.twists_before, target.twists_after} - {0.0})
    if target.family == "vault" and after == ENTRY_WORD:
        return {target.entry_turns}
    either = target.entry_turns and (target.family != "vault" or not (target.turns or after))
    return {target.turns, target.entry_turns} if either else {target.turns}


def check_trend(instruction: Instruction, changes: tuple[Change, ...]) -> str | None:
    """`increase` where no number grows, `reduce` where none shrinks."""
    steps = [change.target - change.source for change in changes if isinstance(change.target, float)]
    if "increase" in instruction.trends and not any(step > 0 for step in steps):
        return "says that a number increases, and none does"
    if "decrease" in instruction.trends and not any(step < 0 for step in steps):
        return "says that a number decreases, and none does"
    return None


def check_direction(instruction: Instruction, target_text: Instruction, target: Attributes) -> str | None:
    """A direction of the element that belongs to its entry, or the other way round."""
    if isinstance(target, DivingAttributes):
        return None
    own = target_text.directions | ({direction_word(target.direction)} if target.direction else set())
    wrong = (instruction.directions - own) | (instruction.entry_directions - target_text.entry_directions)
    return f"says {min(wrong)!r} of what goes the other way in the target" if wrong else None


def direction_word(direction: Direction) -> str:
    """The stem of a direction: `backward` is `back`, as in dives."""
    return "back" if direction == "backward" else direction


def follows(change: Change, source: Attributes, target: Attributes) -> bool:
    """Whether a change follows from others: family, stance given by the legs, manner of lost turns, place of twists."""
    if isinstance(source, DivingAttributes) and isinstance(target, DivingAttributes):
        is_place = change.attribute in {"twists_before", "twists_after"}
        return is_place and source.twists == target.twists and source.takeoff != target.takeoff
    if isinstance(target, GymnasticsAttributes) and change.attribute == "turn_manner":
        return not target.turns
    if isinstance(target, GymnasticsAttributes) and change.attribute == "stance":
        return target.stance is None
    return change.attribute == "family"


def is_named(change: Change, instruction: Instruction, target_text: Instruction, target: Attributes) -> bool:
    """Whether the instruction names the new value of this attribute, directly or by implication."""
    if change.attribute == "apparatus":
        return change.target in instruction.apparatus
    if change.attribute in COUNTED:
        return is_counted(change, instruction, target)
    if not change.target:
        lost = stems(change.attribute if change.source is True else change.source)
        return bool(lost & denied_words(instruction)) or restates(instruction, target)
    words = stems(change.attribute if change.target is True else change.target) & target_text.words
    # A new element is named by any of its words ("hop" of "hop or jump"), all else by the words that are new.
    known = change.source if isinstance(change.source, str) and change.attribute != "element" else ""
    new = words - stems(known)
    return not words or bool((new or words) & instruction.words)


def denied_words(instruction: Instruction) -> frozenset[str]:
    """All words that are denied."""
    return frozenset().union(*instruction.denied)


@lru_cache(maxsize=4096)
def read_attributes(attributes: Attributes) -> Instruction:
    """The description with these attributes, parsed like an instruction."""
    return read_instruction(describe(attributes))


@lru_cache(maxsize=4096)
def stems(text: object) -> frozenset[str]:
    """The stems of an attribute's value."""
    return read_instruction(str(text)).words


def restates(instruction: Instruction, target: Attributes) -> bool:
    """Whether the element is named: attributes that are then not mentioned are absent.

    A tsukahara is named by its entry, a dive by its take-off, a vault's flight by the salto it lacks.
    """
    if isinstance(target, DivingAttributes):
        return target.takeoff in instruction.words
    if target.element == "flight" and "salto" in denied_words(instruction):
        return True
    return bool((stems(target.element) | stems(target.entry or "")) & instruction.words)


def is_counted(change: Change, instruction: Instruction, target: Attributes) -> bool:
    """Whether a change of number is named by its count, or by naming the element without one."""
    if isinstance(target, DivingAttributes):
        return is_counted_dive(change, instruction, target)
    turns = {count.value for count in instruction.counts if count.unit == "turn"}
    match change.attribute:
        case "turns":
            return target.turns in turns or (not target.turns and restates(instruction, target))
        case "at_least":
            return "more" in instruction.words or not target.at_least
        case "turn_manner":
            return is_turn_manner_named(change, instruction, turns)
        case "entry_turns":
            entry = stems(target.entry or "")
            return target.entry_turns in turns or (
                not target.entry_turns and (not entry or bool(entry & instruction.words))
            )
        case _:
            saltos = {count.value for count in instruction.counts if count.unit != "turn"}
            plain = target.somersaults < 2 or target.element == "salto into salto"
            named_plainly = "salto" in instruction.words and plain
            return target.somersaults in saltos or named_plainly or "salto" not in read_attributes(target).words


def is_turn_manner_named(change: Change, instruction: Instruction, turns: set[float]) -> bool:
    """Whether the way to turn is named: by its words, or, where it is plain, by the turn or its absence."""
    words = stems(change.target or "") - {"salto", "phase"}
    if change.target in {None, "before the salto"}:
        return bool(turns) or bool(stems(change.source) & denied_words(instruction))
    return bool(words & instruction.words)


def is_counted_dive(change: Change, instruction: Instruction, target: DivingAttributes) -> bool:
    """Whether a change of twists or somersaults is named; the place of the twists follows from the take-off."""
    units = {count.unit: count.value for count in instruction.counts}
    if change.attribute == "somersaults":
        return units.get("somersault") == target.somersaults
    counts = {count.value for count in instruction.counts if count.unit == "turn"}
    phases = {target.twists_before, target.twists_after} - {0.0}
    return target.twists in counts or bool(phases and phases <= counts)
