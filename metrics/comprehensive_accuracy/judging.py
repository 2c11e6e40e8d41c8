"""Which of two texts was preferred, row by row, from similarities or from a judge's answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .inputs import Names, quoted, read_array, read_number, read_rows

CHOICES = ("1", "2")
REFERENCE = {"disruption_type", "answer"}


@dataclass(frozen=True, eq=False)
class Verdicts:
    """`right` and `unreadable` are `(num_rows,)` bool; only a judge's answer can be unreadable."""

    right: np.ndarray
    unreadable: np.ndarray

    def __len__(self) -> int:
        return len(self.right)

    @staticmethod
    def concatenate(parts: Sequence["Verdicts"]) -> "Verdicts":
        """The verdicts of all parts in order."""
        columns = (np.concatenate([getattr(part, name) for part in parts]) for name in ("right", "unreadable"))
        return Verdicts(*columns)


def judge(predictions: Any, references: Any) -> tuple[Verdicts, Names]:
    """Judge every row, and give the disruption types as `Names`.

    Args:
        predictions: Similarities, `{"positive": float, "negative": float}` per row or one record of two columns;
            or a judge's answers, one string per row.
        references: The disruption type of each row; with answers, `{"disruption_type", "answer"}` of each row.

    Raises:
        ValueError: Naming the row, for rows of any other form, a similarity that is not finite, or differing lengths.

    Example:
        >>> verdicts, types = judge([{"positive": 0.4, "negative": 0.4}], ["multi"])
        >>> verdicts.right, types.names
        (array([False]), ['multi'])
        >>> judge(["(2)", "I think 2"], [{"disruption_type": "multi", "answer": "2"}] * 2)[0].right
        array([ True, False])
    """
    if isinstance(predictions, Verdicts):
        return predictions, references
    references = read_rows(references, "references", "one entry per row")
    if isinstance(predictions, Mapping):
        columns = [_column(predictions, name) for name in ("positive", "negative")]
    else:
        predictions = read_rows(predictions, "predictions", "one entry per row")
        if any(isinstance(row, str) for row in predictions):
            _check_lengths(predictions, references)
            return _judge_answers(predictions, references)
        columns = [_similarities(predictions, name) for name in ("positive", "negative")]
    _check_lengths(columns[0], columns[1], "positive similarities", "negative ones")
    _check_lengths(columns[0], references)
    for row, name in enumerate(references):
        if not isinstance(name, str) or not name:
            raise ValueError(
                f"references[{row}] must be a disruption type such as 'action_replace', not {quoted(name)}; of a label "
                "in a dataset take the name: rows.features['disruption_type'].int2str(rows['disruption_type'])"
            )
    right = columns[0] > columns[1]  # a tie is wrong
    return Verdicts(right, np.zeros(len(right), dtype=bool)), Names(references)


def _judge_answers(predictions: list[Any], references: list[Any]) -> tuple[Verdicts, Names]:
    right, unreadable, types = [], [], []
    for row, (answer, reference) in enumerate(zip(predictions, references, strict=True)):
        if not isinstance(answer, str):
            raise ValueError(f"predictions[{row}] must be a judge's answer such as '1' or '(1)', not {quoted(answer)}")
        if not isinstance(reference, Mapping) or not reference.keys() >= REFERENCE:
            raise ValueError(
                f"references[{row}] must be {{'disruption_type': ..., 'answer': '1' or '2'}} beside a judge's answer, "
                f"not {quoted(reference)}"
            )
        if not all(isinstance(reference[name], str) for name in REFERENCE) or reference["answer"] not in CHOICES:
            raise ValueError(
                f"references[{row}] must have the answer '1' or '2' and a disruption type, not {quoted(reference)}"
            )
        given = answer.strip()
        right.append(given in {reference["answer"], f"({reference['answer']})"})
        unreadable.append(given not in {"1", "(1)", "2", "(2)"})
        types.append(reference["disruption_type"])
    return Verdicts(np.array(right, dtype=bool), np.array(unreadable, dtype=bool)), Names(types)


def _column(columns: Mapping[str, Any], name: str) -> np.ndarray:
    if name not in columns:
        raise ValueError(f"predictions must have a column of numbers {name!r}, one per row")
    values = columns[name]
    if hasattr(values, "__array__"):
        values = read_array(values, f"the column {name!r} of predictions")
        if values.ndim == 1 and values.dtype.kind in "iuf":
            return _finite(values.astype(np.float64), name)
    return _numbers(read_rows(values, f"the column {name!r} of predictions", "one number per row"), name)


def _similarities(rows: list[Any], name: str) -> np.ndarray:
    for row, record in enumerate(rows):
        if not isinstance(record, Mapping) or name not in record:
            raise ValueError(
                f"predictions[{row}] must be {{'positive': number, 'negative': number}}, not {quoted(record)}"
            )
    return _numbers([record[name] for record in rows], name)


def _numbers(given: list[Any], name: str) -> np.ndarray:
    values = [value if type(value) is float else read_number(value) for value in given]
    if None in values:
        row = values.index(None)
        raise ValueError(f"predictions[{row}] has {name} similarity {quoted(given[row])}; give a number")
    return _finite(np.array(values, dtype=np.float64), name)


def _finite(values: np.ndarray, name: str) -> np.ndarray:
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise ValueError(f"predictions[{wrong[0]}] has {name} similarity {values[wrong[0]]}; similarities are finite")
    return values


def _check_lengths(left: Any, right: Any, left_name: str = "predictions", right_name: str = "references") -> None:
    if len(left) != len(right):
        raise ValueError(f"{len(left)} {left_name} but {len(right)} {right_name}; give one of each per row")
