"""The TF-CoVR labels that the miniature renders, of 306, and the motion of each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Apparatus = Literal["vault", "floor", "beam", "bars", "platform"]
Kind = Literal["salto", "leap", "pivot", "circle", "dismount", "vault", "dive"]
APPARATUS: tuple[Apparatus, ...] = ("vault", "floor", "beam", "bars", "platform")


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
        entry: How the vault table is reached, how a dive leaves the platform; "" elsewhere.
    """

    label: str
    apparatus: Apparatus
    kind: Kind
    form: str
    somersaults: float = 0.0
    direction: int = 0
    turns: float = 0.0
    entry: str = ""


# Each table: what the members share -> {turns (or what the key says): label}. Members of one row differ only in count.
SALTOS: Mapping[tuple[Apparatus, int, float, str], Mapping[float, str]] = {
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
LEAPS: Mapping[tuple[Apparatus, str], Mapping[float, str]] = {
    ("floor", "switch leap"): {0: "45", 0.5: "40", 1: "41"},
    ("floor", "split leap"): {0: "46", 0.5: "42", 1: "43"},
    ("floor", "split jump"): {0: "51", 0.5: "48", 1: "47"},
    ("beam", "switch leap"): {0: "148", 0.5: "145", 1: "146"},
    ("beam", "split leap"): {0: "150", 1: "147"},
    ("beam", "split jump"): {0: "136", 0.5: "134", 1: "135"},
}
PIVOTS: Mapping[tuple[Apparatus, str], Mapping[float, str]] = {
    ("floor", "leg below horizontal"): {1: "93", 2: "92", 3: "91"},
    ("floor", "leg held upward"): {1: "83", 2: "82", 3: "81"},
    ("beam", "leg below horizontal"): {1: "172", 1.5: "171", 2: "170"},
    ("beam", "heel forward"): {1: "169", 1.5: "167", 2: "168"},
}
CIRCLES: Mapping[tuple[int, str], Mapping[float, str]] = {
    (-1, "giant circle"): {0: "241", 0.5: "240", 1: "239", 1.5: "237"},
    (1, "giant circle"): {0: "246", 0.5: "245", 1: "243", 1.5: "244"},
    (-1, "clear hip circle"): {0: "249", 0.5: "248", 1: "247"},
    (1, "clear hip circle"): {0: "251"},
    (-1, "stalder"): {0: "258", 0.5: "257", 1: "256"},
    (1, "stalder"): {0: "260"},
}
DISMOUNTS: Mapping[tuple[int, float, str], Mapping[float, str]] = {
    (-1, 2, "tucked"): {0: "277", 1: "276", 2: "275"},
}
VAULTS: Mapping[tuple[str, int, str], Mapping[float, str]] = {
    ("round-off", -1, "stretched"): {0: "15", 0.5: "13", 1: "11", 1.5: "12", 2: "10"},
    ("round-off", -1, "tucked"): {0: "17"},
    ("tsukahara", -1, "stretched"): {0: "22", 1: "19", 2: "18"},
    ("handspring", 1, "stretched"): {0.5: "28", 1: "29", 1.5: "27"},
    ("handspring", 1, "tucked"): {0: "36", 1: "34"},
}
# Dives: (take-off, shape, turns) -> {somersaults: label}; the order of twist and pike is the label's own.
DIVES: Mapping[tuple[str, str, float], Mapping[float, str]] = {
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
DIVE_DIRECTION = {"forward": 1, "inward": 1, "armstand forward": 1, "back": -1, "reverse": -1}


def _actions() -> Iterator[Action]:
    for (apparatus, direction, somersaults, form), row in SALTOS.items():
        yield from (Action(i, apparatus, "salto", form, somersaults, direction, n) for n, i in row.items())
    tables: tuple[tuple[Kind, Mapping[tuple[Apparatus, str], Mapping[float, str]]], ...] = (
        ("leap", LEAPS),
        ("pivot", PIVOTS),
    )
    for kind, table in tables:
        for (apparatus, form), row in table.items():
            yield from (Action(i, apparatus, kind, form, turns=n) for n, i in row.items())
    for (direction, form), row in CIRCLES.items():
        yield from (Action(i, "bars", "circle", form, 1, direction, n) for n, i in row.items())
    for (direction, somersaults, form), row in DISMOUNTS.items():
        yield from (Action(i, "bars", "dismount", form, somersaults, direction, n) for n, i in row.items())
    for (entry, direction, form), row in VAULTS.items():
        yield from (Action(i, "vault", "vault", form, 1, direction, n, entry) for n, i in row.items())
    for (entry, form, turns), row in DIVES.items():
        way = DIVE_DIRECTION[entry]
        yield from (Action(i, "platform", "dive", form, n, way, turns, entry) for n, i in row.items())


ACTIONS: Mapping[str, Action] = {action.label: action for action in _actions()}
"""Label id -> motion, in a fixed order."""
