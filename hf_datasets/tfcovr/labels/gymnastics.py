"""The grammar of the 259 FineGym descriptions: apparatus, entry, element, shape, saltos, turns, legs and finish."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal

from hf_datasets.sources.finegym import APPARATUS, Apparatus
from hf_datasets.tfcovr.labels.template import Template

Family = Literal["vault", "leap", "turn", "acrobatic", "circle", "flight"]
Direction = Literal["forward", "backward", "sideward"]
Shape = Literal["tucked", "piked", "stretched", "straddled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GymnasticsAttributes:
    """The attributes of a gymnastics description; None, 0 and False where it does not state them.

    Two descriptions with the same meaning in different words ("stag-ring jump", "stag ring jump") are equal: `wording`
    is only for printing and not compared.

    Attributes:
        apparatus: The event.
        family: The kind of element, which decides the other attributes that apply.
        entry: What leads into the element: `round-off, flic-flac`, `tsukahara`, `arabian`, `gainer`, `swing forward`.
        entry_turns: Turns during the entry.
        element: `salto`, `leap`, `jump`, `hop or jump`, `turn`, `giant circle`, ...; `flight` for a vault's second
            flight without salto.
        direction: Of the salto, walkover or circle; stated, or implied by the entry (arabian, gainer).
        shape: Body shape.
        somersaults: Number of saltos.
        turns: Number of turns or twists about the long axis.
        at_least: Whether the number of turns is a lower bound ("or more").
        turn_manner: How the turn is made: `hop`, `additional`, `before the salto`, ...
        legs: Leg position of a leap (`split`, `switch`, `stag`, ...) or of the free leg in a turn.
        ring: Whether the leap reaches the ring position.
        stance: What a turn stands on.
        takeoff: What the gymnast takes off from, where stated.
        finish: Final position, with its preposition: `to handstand`, `landing in side position`.
        place: Where on the beam a dismount leaves it.
        wording: The template of the words.
    """

    apparatus: Apparatus
    family: Family
    entry: str | None = None
    entry_turns: float = 0.0
    element: str
    direction: Direction | None = None
    shape: Shape | None = None
    somersaults: float = 0.0
    turns: float = 0.0
    at_least: bool = False
    turn_manner: str | None = None
    legs: str | None = None
    ring: bool = False
    stance: str | None = None
    takeoff: str | None = None
    finish: str | None = None
    place: str | None = None
    wording: str = field(compare=False, repr=False)

    @property
    def apparatus_text(self) -> str:
        """The apparatus as the description writes it: `Balance Beam` or `BB`."""
        return self.wording[1 : self.wording.index(")")]

    @property
    def turn_noun(self) -> Literal["turn", "twist"]:
        """The noun for the element's turns: "twist" for saltos on floor and beam, else "turn"."""
        twists = self.family == "acrobatic" and self.direction != "sideward"
        return "twist" if twists else "turn"


def same(*texts: str) -> dict[str, str]:
    """A vocabulary in which each text means itself."""
    return {text: text for text in texts}


VOCABULARY: dict[str, dict[str, Any]] = {
    "direction": {"forward": "forward", "backward": "backward", "side-ward": "sideward"},
    "shape": same("tucked", "piked", "stretched", "straddled"),
    "somersaults": {"salto": 1.0, "double salto": 2.0},
    "at_least": {"or more": True},
    "ring": {"to ring position": True},
    "turn_manner": same("hop", "additional", "on one arm before handstand phase"),
    "entry": same(
        "round-off, flic-flac", "handspring forward", "gainer", "arabian", "swing forward", "swing backward",
        "swing backward or front support", "swing forward or hip circle backward", "under-swing or clear under-swing",
        "from high bar", "from low bar",
    ),
    "element": same(
        "leap", "jump", "hop", "hop or jump", "giant circle", "pike sole circle", "clear hip circle",
        "clear pike circle", "stalder",
    ),
    "legs": same(
        "switch", "split", "stag", "cat", "sheep", "wolf", "tuck", "pike", "stretched", "straddle pike",
        "straddle pike or side split", "free leg extended above horizontal throughout",
        "free leg held upward in 180 split position", "free leg straight", "free leg optional",
        "free leg optional below horizontal", "knee of free leg at horizontal",
        "heel of free leg forward at horizontal", "thigh of free leg at horizontal, backward upward",
    ),
    "stance": same("in tuck stand on one leg", "in back attitude", "on one leg"),
    "takeoff": same("one leg"),
    "finish": same(
        "to handstand", "to hang", "to hang on high bar", "to high bar", "to low bar", "in side position",
        "landing in side position", "landing in cross position", "landing on one or both feet", "to cross stand",
        "to side stand", "to stand on one or two feet", "feet land successively", "feet land together",
        "with legs together", "swing down to cross straddle sit",
    ),
    "place": same("at end of beam", "to side of beam"),
}  # fmt: skip

SALTO = {"element": "salto"}
ONE_SALTO = {"element": "salto", "somersaults": 1.0}

WORDINGS: tuple[tuple[Family, str, dict[str, Any]], ...] = (
    ("vault", "{entry}[ with {entry_turns} turn] on, {shape} {somersaults} {direction}[ with {turns} turn] off", SALTO),
    ("vault", "{entry}[ with {entry_turns} turn] on, {turns} turn to {shape} {somersaults} {direction} off",
     SALTO | {"turn_manner": "before the salto"}),
    ("vault", "{entry} on, {turns} turn off", {"element": "flight"}),
    ("vault", "tsukahara {shape} with {turns} turn", ONE_SALTO | {"entry": "tsukahara"}),
    ("vault", "tsukahara {shape} {somersaults}", SALTO | {"entry": "tsukahara"}),
    ("vault", "tsukahara {shape} without salto", {"element": "flight", "entry": "tsukahara"}),
    ("leap", "{legs} {element}[ with {turns} turn][ {at_least}][ {ring}][ {finish}]", {}),
    ("leap", "{legs} {element} {ring} with {turns} turn", {}),
    ("leap", "{legs} leap forward", {"element": "leap"}),
    ("leap", "ring {element}", {"ring": True}),
    ("leap", "{legs} ring {element}", {"ring": True}),
    ("leap", "{legs}-ring {element}", {"ring": True}),
    ("leap", "straddle pike jump or side split jump[ {finish}]",
     {"legs": "straddle pike or side split", "element": "jump"}),
    ("leap", "{legs} jump/hop with {turns} turn", {"element": "hop or jump"}),
    ("leap", "johnson[ with {turn_manner} {turns} turn]", {"element": "johnson"}),
    ("leap", "{element} with {turns} turn {legs}", {}),
    ("turn", "{turns} turn[ {at_least}] with {legs} throughout turn", {"element": "turn"}),
    ("turn", "{turns} turn {stance}, {legs} throughout turn", {"element": "turn"}),
    ("turn", "{turns} turn {stance}, {legs}", {"element": "turn"}),
    ("acrobatic", "{somersaults} {direction} {shape}[ with {turns} twist][ {finish}]", SALTO),
    ("acrobatic", "{somersaults} {direction} {shape}, {finish}", SALTO),
    ("acrobatic", "[{entry} ]{somersaults} {direction} {shape}-step out ({finish})", SALTO),
    ("acrobatic", "{somersaults} {direction} {shape} (take-off from {takeoff} {finish})", SALTO),
    ("acrobatic", "{somersaults} {direction} {shape}[ with {turns} turn], take off from {takeoff} {finish}", SALTO),
    ("acrobatic", "{entry} {somersaults} {direction} {shape}[ with {turns} twist][ {place}]", SALTO),
    ("acrobatic", "arabian {somersaults} {shape}", SALTO | {"entry": "arabian", "direction": "forward"}),
    ("acrobatic", "gainer {somersaults} {shape}[ with {turns} twist] {place}",
     SALTO | {"entry": "gainer", "direction": "backward"}),
    ("acrobatic", "gainer {somersaults} {shape} {finish} at end of the beam",
     SALTO | {"entry": "gainer", "direction": "backward", "place": "at end of beam"}),
    ("acrobatic", "jump forward with {entry_turns} twist and {somersaults} {direction} {shape}",
     SALTO | {"entry": "jump forward"}),
    ("acrobatic", "aerial cartwheel", {"element": "aerial cartwheel", "direction": "sideward"}),
    ("acrobatic", "free aerial cartwheel {finish}", {"element": "aerial cartwheel", "direction": "sideward"}),
    ("acrobatic", "aerial walkover {direction}", {"element": "aerial walkover"}),
    ("acrobatic", "free aerial walkover {direction}, {finish}", {"element": "aerial walkover"}),
    ("acrobatic", "flic-flac[ with {turns} twist], {finish}", {"element": "flic-flac", "direction": "backward"}),
    ("circle", "{element} {direction}[ with {turns} turn] {finish}", {}),
    ("circle", "{element} {direction} with {turn_manner} {turns} turn {finish}", {}),
    # A giant circle starts and ends in handstand whether or not its description says so.
    ("circle", "giant circle {direction}", {"element": "giant circle", "finish": "to handstand"}),
    ("circle", "giant circle {direction} with {turns} turn {turn_manner}",
     {"element": "giant circle", "finish": "to handstand"}),
    ("flight", "counter {shape} over high bar[ with {turns} turn] {finish}", {"element": "counter"}),
    ("flight", "counter straddle over high bar[ with {turns} turn] {finish}",
     {"element": "counter", "shape": "straddled"}),
    ("flight", "({entry}) {somersaults} {direction}[ {shape}][ with {turns} turn][ {finish}]", SALTO),
    ("flight", "({entry}) {somersaults} {direction} with {turns} turn {shape} {finish}", SALTO),
    ("flight", "({entry}) salto with {turns} turn into salto {direction} {shape}",
     {"element": "salto into salto", "somersaults": 2.0}),
    ("flight", "transition flight {entry} {finish}", {"element": "transition flight"}),
)  # fmt: skip
"""Every wording of the label table: family, template, and the attributes that it implies without a slot."""

SKILL_FAMILIES: dict[Apparatus, tuple[Family, ...]] = {
    "Vault": ("vault",),
    "Floor Exercise": ("leap", "turn", "acrobatic"),
    "Balance Beam": ("leap", "turn", "acrobatic"),
    "Uneven Bar": ("circle", "flight"),
}


@cache
def templates(apparatus: Apparatus) -> tuple[tuple[Family, Template, dict[str, Any]], ...]:
    """The wordings of an apparatus."""
    known = SKILL_FAMILIES[apparatus]
    return tuple((family, Template(text, VOCABULARY), implied) for family, text, implied in WORDINGS if family in known)


def readings(description: str) -> Iterator[GymnasticsAttributes]:
    """Every parse of a description; exactly one for each label of the table.

    Yields:
        The attributes of one parse.
    """
    name, _, phrase = description.removeprefix("(").partition(") ")
    apparatus = APPARATUS.get(name, name)
    if not description.startswith("(") or apparatus not in SKILL_FAMILIES:
        return
    for family, template, implied in templates(apparatus):
        found = template.parse(phrase)
        if found is not None:
            wording = f"({name}) {template.text}"
            yield GymnasticsAttributes(apparatus=apparatus, family=family, wording=wording, **implied, **found)


def parse_gymnastics(description: str) -> GymnasticsAttributes:
    """The attributes of a description such as `(Vault) tsukahara stretched with 2 turn`.

    >>> skill = parse_gymnastics("(Balance Beam) switch leap with 0.5 turn")
    >>> skill.apparatus, skill.legs, skill.element, skill.turns
    ('Balance Beam', 'switch', 'leap', 0.5)

    Raises:
        ValueError: The grammar does not generate the description.
    """
    attributes = next(readings(description), None)
    if attributes is None:
        raise ValueError(
            f"{description!r} is not a gymnastics description: expected '(APPARATUS) skill' with APPARATUS one of "
            f"{', '.join(SKILL_FAMILIES)} and a skill worded as in hf_datasets/tfcovr/labels/labels.tsv"
        )
    return attributes


def describe_gymnastics(attributes: GymnasticsAttributes) -> str:
    """The description with these attributes, in their wording: the inverse of `parse_gymnastics`.

    >>> describe_gymnastics(parse_gymnastics("(FX) stag-ring jump"))
    '(FX) stag-ring jump'
    """
    values = {slot.name: getattr(attributes, slot.name) for slot in fields(attributes)}
    prefix, _, phrase = attributes.wording.partition(") ")
    return f"{prefix}) {Template(phrase, VOCABULARY).format(values)}"
