"""Accuracy per disruption type and the product over the types."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .inputs import quoted, read_rows
from .judging import judge

VERSION = "1.0.0"
DISRUPTION_TYPES = ("temporal_reorder", "action_replace", "segment_mismatch", "multi")


def comprehensive_accuracy(
    predictions: Any, references: Any, *, types: Sequence[str] = DISRUPTION_TYPES
) -> dict[str, Any]:
    """Accuracy per disruption type, and their product, the comprehensive accuracy of VideoComp.

    A row is right when the similarity of its positive text is strictly greater than that of its negative text,
    or when the judge's answer is the right one, with or without round brackets. Chance is 1/2 per type.

    Args:
        predictions: `{"positive": float, "negative": float}` per row, or one record of two columns; or a judge's
            answers, one string per row, such as "1" or "(1)".
        references: The disruption type of each row; with answers, `{"disruption_type", "answer"}`.
        types: The disruption types that may occur, in the order of the result.

    Returns:
        `accuracy/<type>` for every type present, `comprehensive_accuracy`, their product, as fractions in [0, 1],
        and `signature`, which counts the rows of each type; with answers also `unreadable_answers`, the number
        of answers, counted as wrong, that are neither of the two choices.

    Raises:
        ValueError: Naming the row and the cure, for a malformed row, an unknown type or differing lengths.

    Example:
        >>> similarities = [{"positive": 0.9, "negative": 0.1}, {"positive": 0.2, "negative": 0.3}]
        >>> comprehensive_accuracy(similarities, ["action_replace", "action_replace"])["comprehensive_accuracy"]
        0.5
    """
    types = _checked_types(types)
    verdicts, disruptions = judge(predictions, references)
    if not len(verdicts):
        raise ValueError("there is no row; give at least one prediction and one reference")
    unknown = next(((row, name) for row, name in enumerate(disruptions.names) if name not in types), None)
    if unknown:
        raise ValueError(
            f"references[{unknown[0]}] has the disruption type {quoted(unknown[1])}; known are {quoted(types)}. "
            "Correct it, or name your own types with types=[...]"
        )
    places = {name: place for place, name in enumerate(types)}
    of_row = np.array([places[name] for name in disruptions.names])
    rows = {name: verdicts.right[of_row == place] for name, place in places.items() if place in of_row}
    accuracies = {name: float(right.mean()) for name, right in rows.items()}
    result: dict[str, Any] = {f"accuracy/{name}": accuracy for name, accuracy in accuracies.items()}
    result["comprehensive_accuracy"] = float(np.prod(list(accuracies.values())))
    if verdicts.unreadable.any():
        result["unreadable_answers"] = int(verdicts.unreadable.sum())
    counts = ",".join(f"{name}={len(right)}" for name, right in rows.items())
    result["signature"] = f"comprehensive_accuracy|rows:{counts}|ties:wrong|product:types-present|version:{VERSION}"
    return result


def _checked_types(types: Any) -> list[str]:
    names = read_rows(types, "types", "the names of disruption types")
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"types must be one or more names of disruption types, not {quoted(names)}")
    return names
