"""The TF-CoVR labels that are rendered, of 306, and the motion of each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

DrawnApparatus = Literal["vault", "floor", "beam", "bars", "platform"]
ActionKind = Literal["salto", "leap", "pivot", "circle", "dismount", "vault", "dive"]
DRAWN_APPARATUS: tuple[DrawnApparatus, ...] = ("vault", "floor", "beam", "bars", "platform")


@dataclass(frozen=True, slots=True)
class Action:
    """One label's motion.

    Attributes:
        label: One of the 306 label ids.
        apparatus: Where it happens; "platform" is diving, the others are gymnastics.
        kind: Which motion program of `motion.py` animates it.
        form: Body shape (tucked, piked, stretched), leg shape of a leap or pivot, or grip of a circle.
        somersaults: Full rotations about the lateral axis in the part the label counts, at least 0.
        direction: +1 rotates forward, -1 backward, 0 not at all.
        turns: Rotations about the long axis, in turns, at least 0.
        entry: How the vault table is reached, how a dive leaves the platform, "arabian" for a salto forward after half
            a twist from a backward take-off; "" elsewhere.
    """

    label: str
    apparatus: DrawnApparatus
    kind: ActionKind
    form: str
    somersaults: float = 0.0
    direction: int = 0
    turns: float = 0.0
    entry: str = ""


LabelsByCount = Mapping[float, str]
"""Turns (of a dive somersaults) -> label: the members of a row, which differ only in this count."""
Saltos = Mapping[tuple[DrawnApparatus, int, float, str], LabelsByCount]
Leaps = Mapping[tuple[DrawnApparatus, str], LabelsByCount]
Circles = Mapping[tuple[int, str], LabelsByCount]
Dismounts = Mapping[tuple[int, float, str], LabelsByCount]
Vaults = Mapping[tuple[str, int, str], LabelsByCount]
Dives = Mapping[tuple[str, str, float], LabelsByCount]

# Each table: what the members of a row share -> the row. First those of the miniature, whose order decides its plan.
SALTOS: Saltos = {
    ("floor", -1, 1, "stretched"): {0: "119", 0.5: "123", 1: "118", 1.5: "122", 2: "117", 2.5: "121"},
    ("floor", -1, 2, "stretched"): {0: "115", 1: "113", 2: "112"},
    ("floor", -1, 2, "tucked"): {0: "126", 1: "125", 2: "124"},
    ("floor", -1, 2, "piked"): {0: "129"},
    ("floor", -1, 1, "tucked"): {0: "127"},
    ("floor", 1, 1, "stretched"): {0: "111", 0.5: "109", 1: "107", 1.5: "108", 2: "106"},
    ("floor", 1, 1, "tucked"): {0: "101"},
    ("floor", 1, 2, "tucked"): {0: "100"},
    ("floor", 1, 1, "piked"): {0: "104"},
    ("floor", 1, 2, "piked"): {0: "103"},
    ("beam", -1, 1, "stretched"): {0: "223", 1.5: "225", 2: "221"},
    ("beam", 1, 1, "tucked"): {0: "209"},
}
LEAPS: Leaps = {
    ("floor", "switch leap"): {0: "45", 0.5: "40", 1: "41"},
    ("floor", "split leap"): {0: "46", 0.5: "42", 1: "43"},
    ("floor", "split jump"): {0: "51", 0.5: "48", 1: "47"},
    ("beam", "switch leap"): {0: "148", 0.5: "145", 1: "146"},
    ("beam", "split leap"): {0: "150", 1: "147"},
    ("beam", "split jump"): {0: "136", 0.5: "134", 1: "135"},
}
PIVOTS: Leaps = {
    ("floor", "leg below horizontal"): {1: "93", 2: "92", 3: "91"},
    ("floor", "leg held upward"): {1: "83", 2: "82", 3: "81"},
    ("beam", "leg below horizontal"): {1: "172", 1.5: "171", 2: "170"},
    ("beam", "heel forward"): {1: "169", 1.5: "167", 2: "168"},
}
CIRCLES: Circles = {
    (-1, "giant circle"): {0: "241", 0.5: "240", 1: "239", 1.5: "237"},
    (1, "giant circle"): {0: "246", 0.5: "245", 1: "243", 1.5: "244"},
    (-1, "clear hip circle"): {0: "249", 0.5: "248", 1: "247"},
    (1, "clear hip circle"): {0: "251"},
    (-1, "stalder"): {0: "258", 0.5: "257", 1: "256"},
    (1, "stalder"): {0: "260"},
}
DISMOUNTS: Dismounts = {
    (-1, 2, "tucked"): {0: "277", 1: "276", 2: "275"},
}
VAULTS: Vaults = {
    ("round-off", -1, "stretched"): {0: "15", 0.5: "13", 1: "11", 1.5: "12", 2: "10"},
    ("round-off", -1, "tucked"): {0: "17"},
    ("tsukahara", -1, "stretched"): {0: "22", 1: "19", 2: "18"},
    ("handspring", 1, "stretched"): {0.5: "28", 1: "29", 1.5: "27"},
    ("handspring", 1, "tucked"): {0: "36", 1: "34"},
}
# Dives: (take-off, shape, turns) -> {somersaults: label}; the order of twist and pike is the label's own.
DIVE_LABELS: Dives = {
    ("forward", "piked", 0): {1.5: "103b", 2.5: "105b", 3.5: "107b"},
    ("forward", "tucked", 0): {3.5: "107c"},
    ("back", "piked", 0): {2.5: "205b", 3.5: "207b"},
    ("back", "tucked", 0): {2.5: "205c", 3.5: "207c"},
    ("reverse", "tucked", 0): {2.5: "305c", 3.5: "307c"},
    ("inward", "piked", 0): {1.5: "403b", 2.5: "405b", 3.5: "407b"},
    ("inward", "tucked", 0): {2.5: "405c", 3.5: "407c"},
    ("forward", "piked", 1): {1.5: "5132d", 2.5: "5152b"},
    ("forward", "piked", 2): {2.5: "5154b"},
    ("back", "piked", 0.5): {1.5: "5231d"},
    ("back", "piked", 1.5): {1.5: "5233d", 2.5: "5251b"},
    ("back", "piked", 2.5): {1.5: "5235d"},
    ("armstand forward", "piked", 0): {2: "614b"},
}

# What the harder tier has besides: more of the rows above, and rows that differ from them in direction or order.
MORE_SALTOS: Saltos = {
    ("floor", -1, 1, "stretched"): {3: "116"},
    ("floor", -1, 2, "stretched"): {0.5: "114"},
    ("floor", -1, 2, "piked"): {1: "128"},
    ("floor", 1, 2, "tucked"): {0.5: "99"},
    ("beam", -1, 1, "stretched"): {0.5: "226", 1: "222", 2.5: "224", 3: "220"},
    ("beam", -1, 1, "tucked"): {0: "217", 1: "216", 1.5: "218"},
    ("beam", -1, 1, "piked"): {0: "182"},
    ("beam", -1, 2, "tucked"): {0: "215", 1: "214"},
    ("beam", -1, 2, "piked"): {0: "219"},
    ("beam", 1, 1, "tucked"): {1: "208"},
    ("beam", 1, 1, "piked"): {0: "210"},
    ("beam", 1, 1, "stretched"): {0: "213", 1: "212", 1.5: "211"},
}
ARABIANS: Saltos = {
    ("floor", 1, 2, "tucked"): {0: "98"},
    ("floor", 1, 2, "piked"): {0: "102"},
    ("beam", 1, 1, "tucked"): {0: "192"},
    ("beam", 1, 2, "tucked"): {0: "207"},
}
MORE_LEAPS: Leaps = {
    ("floor", "split jump"): {1.5: "49"},
    ("floor", "split leap"): {1.5: "44"},
    ("floor", "tuck jump"): {1: "66", 2: "67"},
    ("floor", "wolf jump"): {0: "73", 1: "71"},
    ("floor", "straddle jump"): {0: "56", 0.5: "55", 1: "54"},
    ("beam", "tuck jump"): {0.5: "156", 1: "155"},
    ("beam", "wolf jump"): {0: "162", 0.5: "161", 1: "160"},
    ("beam", "straddle jump"): {0: "141", 0.5: "138", 1: "139"},
}
MORE_PIVOTS: Leaps = {
    ("floor", "heel forward"): {1: "95", 2: "94"},
    ("floor", "tuck stand"): {1: "86", 2: "85", 3: "84"},
    ("beam", "leg held upward"): {1: "166", 1.5: "165"},
    ("beam", "tuck stand"): {1: "178", 1.5: "175", 2: "177", 2.5: "174", 3: "176"},
}
MORE_CIRCLES: Circles = {
    (1, "clear hip circle"): {0.5: "250"},
    (1, "stalder"): {0.5: "259"},
    (-1, "pike sole circle"): {0: "235", 0.5: "234", 1: "233", 1.5: "232"},
    (1, "pike sole circle"): {0.5: "236"},
}
MORE_DISMOUNTS: Dismounts = {
    (-1, 2, "tucked"): {1.5: "273"},
    (-1, 2, "piked"): {0: "282"},
    (-1, 2, "stretched"): {0: "285", 1: "284", 2: "283"},
    (-1, 1, "stretched"): {0: "287", 2: "286"},
    (1, 2, "tucked"): {0: "278", 0.5: "280"},
}
MORE_VAULTS: Vaults = {
    ("round-off", -1, "stretched"): {2.5: "14"},
    ("round-off", -1, "piked"): {0: "16"},
    ("half on", 1, "stretched"): {0.5: "1", 1: "2", 1.5: "0", 2: "3"},
    ("half on", 1, "piked"): {0: "6", 0.5: "5"},
    ("full on", -1, "stretched"): {1: "8"},
    ("full on", -1, "piked"): {0: "9"},
    ("tsukahara", -1, "stretched"): {0.5: "21", 1.5: "20"},
    ("tsukahara", -1, "tucked"): {1: "25"},
    ("handspring", 1, "tucked"): {0.5: "33"},
    ("handspring", 1, "piked"): {0: "32", 0.5: "30", 1: "31"},
}
MORE_DIVES: Dives = {
    ("forward", "piked", 0): {4.5: "109b"},
    ("forward", "tucked", 0): {4.5: "109c"},
    ("reverse", "tucked", 0): {1.5: "303c"},
    ("inward", "tucked", 0): {4.5: "409c"},
    ("forward", "piked", 1): {3.5: "5172b"},
    ("forward", "piked", 3): {2.5: "5156b"},
    ("back", "piked", 2.5): {2.5: "5255b"},
    ("reverse", "piked", 0.5): {1.5: "5331d"},
    ("reverse", "piked", 1.5): {2.5: "5353b"},
    ("reverse", "piked", 2.5): {1.5: "5335d", 2.5: "5355b"},
    ("armstand back", "piked", 0): {3: "626b"},
    ("armstand back", "tucked", 0): {3: "626c"},
    ("armstand back", "piked", 1.5): {2: "6243d"},
    ("armstand back", "piked", 2.5): {2: "6245d"},
}
DIVE_DIRECTION = {
    "forward": 1, "inward": 1, "armstand forward": 1,
    "back": -1, "reverse": -1, "armstand back": -1,
}  # fmt: skip


def _saltos(table: Saltos, entry: str = "") -> Iterator[Action]:
    for (apparatus, direction, somersaults, form), row in table.items():
        yield from (Action(i, apparatus, "salto", form, somersaults, direction, n, entry) for n, i in row.items())


def _leaps(kind: ActionKind, table: Leaps) -> Iterator[Action]:
    for (apparatus, form), row in table.items():
        yield from (Action(i, apparatus, kind, form, turns=n) for n, i in row.items())


def _circles(table: Circles) -> Iterator[Action]:
    for (direction, form), row in table.items():
        yield from (Action(i, "bars", "circle", form, 1, direction, n) for n, i in row.items())


def _dismounts(table: Dismounts) -> Iterator[Action]:
    for (direction, somersaults, form), row in table.items():
        yield from (Action(i, "bars", "dismount", form, somersaults, direction, n) for n, i in row.items())


def _vaults(table: Vaults) -> Iterator[Action]:
    for (entry, direction, form), row in table.items():
        yield from (Action(i, "vault", "vault", form, 1, direction, n, entry) for n, i in row.items())


def _dives(table: Dives) -> Iterator[Action]:
    for (entry, form, turns), row in table.items():
        way = DIVE_DIRECTION[entry]
        yield from (Action(i, "platform", "dive", form, n, way, turns, entry) for n, i in row.items())


def _by_label(*groups: Iterator[Action]) -> dict[str, Action]:
    return {action.label: action for group in groups for action in group}


ACTIONS: Mapping[str, Action] = _by_label(
    _saltos(SALTOS),
    _leaps("leap", LEAPS),
    _leaps("pivot", PIVOTS),
    _circles(CIRCLES),
    _dismounts(DISMOUNTS),
    _vaults(VAULTS),
    _dives(DIVE_LABELS),
)
"""Label id -> motion of the 112 labels of the miniature, in a fixed order."""

ALL_ACTIONS: Mapping[str, Action] = dict(ACTIONS) | _by_label(
    _saltos(MORE_SALTOS),
    _saltos(ARABIANS, "arabian"),
    _leaps("leap", MORE_LEAPS),
    _leaps("pivot", MORE_PIVOTS),
    _circles(MORE_CIRCLES),
    _dismounts(MORE_DISMOUNTS),
    _vaults(MORE_VAULTS),
    _dives(MORE_DIVES),
)
"""Label id -> motion of every label that can be rendered: those of `ACTIONS`, then those of the harder tier alone."""
