"""Templates: one line of text with slots is both the parser and the printer of a wording."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

NUMBER_PATTERN = r"\d+(?:\.\d+)?"
SLOT = re.compile(r"\{(\w+)\}")
BRACKETS = re.compile(r"\[([^\]]*)\]")


def number_text(value: float) -> str:
    """The number as the labels write it: `2` and `1.5`.

    >>> number_text(2.0), number_text(1.5)
    ('2', '1.5')
    """
    return f"{value:g}"


@dataclass(frozen=True)
class Template:
    """A wording such as `{element} {direction}[ with {turns} turn]`.

    A `{slot}` stands for a value, a `[group]` is written only when one of its slots has a value. `vocabulary` maps
    the slots with a closed list of texts to the value of each text; every other slot is a number.

    >>> jump = Template("{legs} jump[ with {turns} turn]", {"legs": {"split": "split"}})
    >>> jump.parse("split jump with 0.5 turn")
    {'legs': 'split', 'turns': 0.5}
    >>> jump.format({"legs": "split", "turns": 0.0})
    'split jump'
    """

    text: str
    vocabulary: Mapping[str, Mapping[str, Any]]

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """The names of the slots, in order."""
        return tuple(SLOT.findall(self.text))

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The regular expression with one named group per slot."""
        pattern = re.sub(r"\\\[(.*?)\\\]", r"(?:\1)?", re.escape(self.text))
        return re.compile(re.sub(r"\\\{(\w+)\\\}", self._slot_pattern, pattern))

    def _slot_pattern(self, slot: re.Match[str]) -> str:
        texts = self.vocabulary.get(slot[1])
        alternatives = NUMBER_PATTERN if texts is None else "|".join(re.escape(text) for text in texts)
        return f"(?P<{slot[1]}>{alternatives})"

    def parse(self, text: str) -> dict[str, Any] | None:
        """The values of the slots that `text` fills, or None where it does not match this wording."""
        match = self.pattern.fullmatch(text)
        if match is None:
            return None
        found = {slot: surface for slot, surface in match.groupdict().items() if surface is not None}
        return {
            slot: self.vocabulary[slot][surface] if slot in self.vocabulary else float(surface)
            for slot, surface in found.items()
        }

    def format(self, values: Mapping[str, Any]) -> str:
        """The text of this wording with `values` in its slots."""
        kept = BRACKETS.sub(lambda group: group[1] if any(values[s] for s in SLOT.findall(group[1])) else "", self.text)
        return SLOT.sub(lambda slot: self._surface(slot[1], values[slot[1]]), kept)

    def _surface(self, slot: str, value: Any) -> str:
        if slot not in self.vocabulary:
            return number_text(value)
        return next(text for text, meaning in self.vocabulary[slot].items() if meaning == value)
