"""The grammar of the 47 FineDiving descriptions, and the dive numbers of the international federation."""

import re
from dataclasses import dataclass, field
from typing import Literal, cast

from hf_datasets.tfcovr.labels.template import NUMBER, number_text

Takeoff = Literal["forward", "back", "reverse", "inward"]
DiveShape = Literal["pike", "tuck"]
DivePosition = Literal["straight", "pike", "tuck", "free"]

TAKEOFFS: dict[str, Takeoff] = {"1": "forward", "2": "back", "3": "reverse", "4": "inward"}
POSITIONS: dict[str, DivePosition] = {"a": "straight", "b": "pike", "c": "tuck", "d": "free"}
TWISTING_GROUP, ARMSTAND_GROUP = "5", "6"

DIVE_NUMBER = re.compile(r"(?:[1-4][01][1-9]|[56][1-4][1-9][1-9]|6[1-4][1-9])[abcd]")
DESCRIPTION = re.compile(
    rf"(?P<armstand>Arm\.)?(?P<takeoff>Forward|Back|Reverse|Inward)"
    rf"(?:, (?P<before>{NUMBER}) (?P<before_noun>Twists?))?"
    rf", (?P<somersaults>{NUMBER}) (?P<som_noun>Soms?)\.(?P<shape>Pike|Tuck)"
    rf"(?:, (?P<after>{NUMBER}) (?P<after_noun>Twists?))?"
    rf"(?P<entry>, Entry)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiveNumber:
    """What a dive number stands for (World Aquatics diving rules, numerical designation).

    Attributes:
        takeoff: Direction of the take-off.
        armstand: Whether it starts from an armstand.
        flying: Whether the first half somersault is flown.
        somersaults: In halves: 2.5.
        twists: In halves: 1.5.
        position: Body position; `free` is any combination.
    """

    takeoff: Takeoff
    armstand: bool
    flying: bool
    somersaults: float
    twists: float
    position: DivePosition


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


def decode_dive_number(number: str) -> DiveNumber:
    """The dive that a number such as `5253b` stands for.

    >>> decode_dive_number("5253b")
    DiveNumber(takeoff='back', armstand=False, flying=False, somersaults=2.5, twists=1.5, position='pike')

    Raises:
        ValueError: It is not a dive number.
    """
    if not DIVE_NUMBER.fullmatch(number):
        raise ValueError(
            f"{number!r} is not a dive number: expected three or four digits and one of a, b, c, d, such as '107b' "
            "(group, flight, half somersaults), '5253b' or '6245d' (group, direction, half somersaults, half twists)"
        )
    digits = number[:-1]
    group = digits[0]
    special = group in {TWISTING_GROUP, ARMSTAND_GROUP}
    return DiveNumber(
        takeoff=TAKEOFFS[digits[1] if special else group],
        armstand=group == ARMSTAND_GROUP,
        flying=not special and digits[1] == "1",
        somersaults=int(digits[2]) / 2,
        twists=int(digits[3]) / 2 if len(digits) > 3 else 0.0,
        position=POSITIONS[number[-1]],
    )


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


def counted(number: float, noun: str) -> str:
    """The number and its noun, as FineDiving writes them: `0.5 Twist`, `1 Twist`, `1.5 Twists`."""
    return f"{number_text(number)} {noun}{'s' if number > 1 else ''}"


def describe_diving(attributes: DivingAttributes) -> str:
    """The description with these attributes: the inverse of `parse_diving`.

    >>> describe_diving(DivingAttributes(takeoff="inward", somersaults=0.5, shape="pike"))
    'Inward, 0.5 Som.Pike, Entry'
    """
    phases = [
        ("Arm." if attributes.armstand else "") + attributes.takeoff.capitalize(),
        counted(attributes.twists_before, "Twist") if attributes.twists_before else "",
        f"{counted(attributes.somersaults, 'Som')}.{attributes.shape.capitalize()}",
        counted(attributes.twists_after, "Twist") if attributes.twists_after else "",
        "Entry" if attributes.entry else "",
    ]
    return ", ".join(phase for phase in phases if phase)


def dive_disagreements(number: str, attributes: DivingAttributes) -> list[str]:
    """How a dive number and a description contradict each other; empty where they agree.

    >>> dive_disagreements("5251b", parse_diving("Back, 1.5 Twists, 2.5 Soms.Pike, Entry"))
    ['the number says 0.5 twists, the description 1.5']
    """
    dive = decode_dive_number(number)
    pairs: list[tuple[str, object, object]] = [
        ("take-off", dive.takeoff, attributes.takeoff),
        ("armstand", dive.armstand, attributes.armstand),
        ("somersaults", dive.somersaults, attributes.somersaults),
        ("twists", dive.twists, attributes.twists),
        ("position", dive.position, attributes.shape if dive.position != "free" else "free"),
    ]
    found = [
        f"the number says {number_text(coded)} {name}, the description {number_text(described)}"
        if isinstance(coded, float) and isinstance(described, float)
        else f"the number says {name} {coded}, the description {described}"
        for name, coded, described in pairs
        if coded != described
    ]
    if not attributes.entry:
        found.append("the description ends without the entry")
    return found
