"""The grammar of the 47 FineDiving descriptions.

Their ids are the dive numbers of the international federation, which some descriptions contradict: 5251b has half a
twist by its number, 612b one somersault, 6142d one twist, and 6241b begins backward. A label means what its text says.
"""

import re
from dataclasses import dataclass, field
from typing import Literal, cast

from hf_datasets.tfcovr.labels.template import NUMBER_PATTERN, number_text

Takeoff = Literal["forward", "back", "reverse", "inward"]
DiveShape = Literal["pike", "tuck"]

DESCRIPTION = re.compile(
    rf"(?P<armstand>Arm\.)?(?P<takeoff>Forward|Back|Reverse|Inward)"
    rf"(?:, (?P<before>{NUMBER_PATTERN}) (?P<before_noun>Twists?))?"
    rf", (?P<somersaults>{NUMBER_PATTERN}) (?P<som_noun>Soms?)\.(?P<shape>Pike|Tuck)"
    rf"(?:, (?P<after>{NUMBER_PATTERN}) (?P<after_noun>Twists?))?"
    rf"(?P<entry>, Entry)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DivingAttributes:
    """The attributes of a diving description, phase by phase.

    Attributes:
        takeoff: Direction of the take-off.
        armstand: Whether it starts from an armstand.
        twists_before: Twists named before the somersaults.
        somersaults: Number of somersaults.
        shape: Body shape during the somersaults.
        twists_after: Twists named after the somersaults.
        entry: Whether the description ends with the entry into the water. Every dive does: where the word is
            missing, the annotation is wrong, so it is not compared.
    """

    takeoff: Takeoff
    armstand: bool = False
    twists_before: float = 0.0
    somersaults: float
    shape: DiveShape
    twists_after: float = 0.0
    entry: bool = field(default=True, compare=False)

    @property
    def twists(self) -> float:
        """All twists of the dive."""
        return self.twists_before + self.twists_after


def parse_diving(description: str) -> DivingAttributes:
    """The attributes of a description such as `Back, 1.5 Twists, 2.5 Soms.Pike, Entry`.

    >>> dive = parse_diving("Arm.Back, 2.5 Twists, 2 Soms.Pike, Entry")
    >>> dive.takeoff, dive.armstand, dive.twists, dive.somersaults, dive.shape
    ('back', True, 2.5, 2.0, 'pike')

    Raises:
        ValueError: The grammar does not generate the description.
    """
    match = DESCRIPTION.fullmatch(description)
    if match is None:
        raise ValueError(
            f"{description!r} is not a diving description: expected 'TAKEOFF[, N Twists], N Soms.SHAPE[, N Twists], "
            "Entry' with TAKEOFF one of Forward, Back, Reverse, Inward (after 'Arm.' from an armstand) and SHAPE "
            "one of Pike, Tuck"
        )
    return DivingAttributes(
        takeoff=cast(Takeoff, match["takeoff"].lower()),
        armstand=match["armstand"] is not None,
        twists_before=float(match["before"] or 0),
        somersaults=float(match["somersaults"]),
        shape=cast(DiveShape, match["shape"].lower()),
        twists_after=float(match["after"] or 0),
        entry=match["entry"] is not None,
    )


def number_and_noun(number: float, noun: str) -> str:
    """The number and its noun, as FineDiving writes them: `0.5 Twist`, `1 Twist`, `1.5 Twists`."""
    return f"{number_text(number)} {noun}{'s' if number > 1 else ''}"


def describe_diving(attributes: DivingAttributes) -> str:
    """The description with these attributes: the inverse of `parse_diving`.

    >>> describe_diving(DivingAttributes(takeoff="inward", somersaults=0.5, shape="pike"))
    'Inward, 0.5 Som.Pike, Entry'
    """
    phases = [
        ("Arm." if attributes.armstand else "") + attributes.takeoff.capitalize(),
        number_and_noun(attributes.twists_before, "Twist") if attributes.twists_before else "",
        f"{number_and_noun(attributes.somersaults, 'Som')}.{attributes.shape.capitalize()}",
        number_and_noun(attributes.twists_after, "Twist") if attributes.twists_after else "",
        "Entry" if attributes.entry else "",
    ]
    return ", ".join(phase for phase in phases if phase)
