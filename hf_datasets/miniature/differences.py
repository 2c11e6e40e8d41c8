"""In what two rendered labels differ: a count, the direction, the order of parts or the shape of the body."""

from dataclasses import asdict
from typing import Literal

from hf_datasets.miniature.actions import ALL_ACTIONS, Action

Difference = Literal["count", "direction", "order", "shape"]
DIFFERENCES: tuple[Difference, ...] = ("count", "direction", "order", "shape")
SAME_LEGS = frozenset({"switch leap", "split leap"})
"""Leaps of one highest pose, which the legs reach in another order."""

SAME_TEXT_LABELS = {"180": "216", "181": "217", "185": "222", "5253b": "5251b"}
"""Labels that read the same as one of `ALL_ACTIONS`; rows name the first of those that read the same."""


def difference_between(first: str, second: str) -> Difference | None:
    """The one thing in which two labels differ.

    Args:
        first: A key of `ALL_ACTIONS`, or a label with the text of one.
        second: Another one.

    Returns:
        `count`: turns or somersaults; `direction`: forward or backward, of a dive how it leaves the platform; `order`:
        the legs of a leap, or a turn that comes before the salto or vault instead of in it; `shape`: the pose. None if
        they differ in more than one of these, in apparatus or in the kind of motion, or not at all.

    Example:
        >>> difference_between("119", "118"), difference_between("127", "101"), difference_between("45", "46")
        ('count', 'direction', 'order')
        >>> difference_between("119", "127"), difference_between("119", "223")
        ('shape', None)
    """
    one, other = (ALL_ACTIONS[SAME_TEXT_LABELS.get(label, label)] for label in (first, second))
    if (one.kind, one.apparatus) != (other.kind, other.apparatus):
        return None
    values, others = asdict(one), asdict(other)
    found = {_difference(name, one, other) for name in values if name != "label" and values[name] != others[name]}
    if found == {"order", "direction"}:  # an arabian's half turn makes it a salto forward
        return "direction" if one.kind == "dive" else "order"
    return found.pop() if len(found) == 1 else None


def _difference(name: str, one: Action, other: Action) -> Difference:
    if name == "form":
        return "order" if {one.form, other.form} == SAME_LEGS else "shape"
    if name == "entry":
        return "direction" if one.kind == "dive" else "order"
    return "direction" if name == "direction" else "count"
