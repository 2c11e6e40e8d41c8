"""Hard negatives from the grammar of labels: labels that differ from the target in count, direction or composition."""

from collections.abc import Sequence

from hf_datasets.caption_negatives import CaptionNegative, NegativeKind, negatives_of_caption
from hf_datasets.tfcovr.labels import Label, differences, folded_text
from hf_datasets.tfcovr.pairs import kind as family_of

COUNTED_ATTRIBUTES = {"turns", "entry_turns", "at_least", "somersaults", "twists_before", "twists_after"}
DIRECTION_ATTRIBUTES = {"direction", "takeoff"}


def kind_of_negative(source: Label, target: Label, other: Label) -> NegativeKind | None:
    """How a label is a hard negative of `target` for a query that starts from `source`; None where it is none.

    `count` and `direction`: it differs from the target in that alone. `composition`: it has a part of the changes only,
    or none, as the source itself.

    Example:
        >>> from hf_datasets.tfcovr.labels import find_label
        >>> switch_half, split, switch = (find_label(label) for label in ("40", "46", "45"))
        >>> kind_of_negative(switch_half, split, switch)
        'composition'
        >>> kind_of_negative(split, switch, switch_half)
        'count'
    """
    text, target_text, source_text = (folded_text(label.description) for label in (other, target, source))
    if text in {target_text, source_text}:
        return "composition" if text != target_text else None
    parts = (source.attributes, target.attributes, other.attributes)
    if any(part is None for part in parts) or len({family_of(part) for part in parts if part is not None}) > 1:
        return None
    changed, missing = (
        {change.attribute for change in differences(one, target.attributes)}  # type: ignore[arg-type]
        for one in (other.attributes, source.attributes)
    )
    is_part = changed <= missing and all(
        getattr(other.attributes, name) == getattr(source.attributes, name) for name in changed
    )
    kinds: dict[NegativeKind, bool] = {
        "count": changed <= COUNTED_ATTRIBUTES,
        "direction": changed <= DIRECTION_ATTRIBUTES,
        "composition": is_part,
    }
    return next((kind for kind, fits in kinds.items() if fits), None)


def write_negatives(source: Label, target: Label, labels: Sequence[Label]) -> list[CaptionNegative]:
    """Descriptions that do not answer the query from `source` to `target` and are near its answer.

    Those of other labels come first, then the target's own with words replaced (see `negatives_of_caption`).

    Args:
        source: Where the query starts from.
        target: Its answer.
        labels: Whose descriptions may be negatives.

    Example:
        >>> from hf_datasets.tfcovr.labels import find_label
        >>> switch, switch_half, split = (find_label(label) for label in ("45", "40", "46"))
        >>> for kind, text in write_negatives(split, switch, [switch, switch_half, split]):
        ...     print(f"{kind}: {text}")
        count: (Floor Exercise) switch leap with 0.5 turn
        composition: (Floor Exercise) split leap forward
        negation: (Floor Exercise) no switch leap
    """
    near = [(kind_of_negative(source, target, other), other.description) for other in labels]
    found = [CaptionNegative(kind, text) for kind, text in near if kind]
    known = {folded_text(target.description), *(folded_text(one.text) for one in found)}
    return found + [one for one in negatives_of_caption(target.description) if folded_text(one.text) not in known]
