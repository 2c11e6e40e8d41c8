"""The similarities of each group: two videos that differ in one thing, and the texts that tell them apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from .inputs import Names, quoted, read_array, read_number, read_rows

ROW = "[[a, b], [c, d]], two videos (rows) by their two texts (columns), or [[a, b]] of one video"


@dataclass(frozen=True, eq=False)
class Similarities:
    """`values` is `(num_groups, num_videos, 2)` float64, finite; text i fits video i. `num_videos` is 2 or 1."""

    values: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    @staticmethod
    def concatenate(parts: Sequence["Similarities"]) -> "Similarities":
        """The groups of all parts in order.

        Raises:
            ValueError: Some have one video, others two.
        """
        filled = [part for part in parts if len(part)]
        if len({part.values.shape[1] for part in filled}) > 1:
            raise ValueError(
                "some groups have one video and some have two; measure them apart, their scores have other chances"
            )
        return Similarities(np.concatenate([part.values for part in filled])) if filled else parts[0]


def read_groups(predictions: Any, references: Any = None) -> tuple[Similarities, Names]:
    """Check every group, and give the kinds as `Names`.

    Args:
        predictions: `[[a, b], [c, d]]` per group, where row i holds the similarities of video i with both texts and
            text i fits video i; or `[[a, b]]`, one video with its text and another one. An array
            `(num_groups, 2 or 1, 2)` will do.
        references: The kind of each group, a text or None; None: no group has one.

    Raises:
        ValueError: Naming the row, for rows of any other form, a similarity that is not finite, groups of one video
            among groups of two, or differing lengths.

    Example:
        >>> similarities, kinds = read_groups([[[0.4, 0.3], [0.1, 0.2]]])
        >>> similarities.values.shape, kinds.names
        ((1, 2, 2), [None])
    """
    if isinstance(predictions, Similarities):
        return predictions, references
    values = _values(predictions)
    wrong = np.argwhere(~np.isfinite(values))
    if len(wrong):
        row, video, text = wrong[0].tolist()
        given = values[row, video, text]
        raise ValueError(
            f"predictions[{row}] has the similarity {given} of video {video} with text {text}; similarities are finite"
        )
    names = [None] * len(values) if references is None else read_rows(references, "references", "one kind per group")
    if len(names) != len(values):
        raise ValueError(f"{len(values)} predictions but {len(names)} references; give one of each per group")
    for row, name in enumerate(names):
        if name is not None and (not isinstance(name, str) or not name):
            raise ValueError(f"references[{row}] must be the kind of the group, a text, or None, not {quoted(name)}")
    return Similarities(values), Names(names)


def _values(predictions: Any) -> np.ndarray:
    if hasattr(predictions, "__array__"):
        array = read_array(predictions, "predictions")
        if array.ndim == 3 and array.shape[1] in {1, 2} and array.shape[2] == 2 and array.dtype.kind in "iuf":
            return array.astype(np.float64)
    matrices = [
        _matrix(row, f"predictions[{place}]")
        for place, row in enumerate(read_rows(predictions, "predictions", "the similarities of one group per row"))
    ]
    other = next((place for place, rows in enumerate(matrices) if len(rows) != len(matrices[0])), None)
    if other is not None:
        raise ValueError(
            f"predictions[{other}] has {len(matrices[other])} of the two videos and predictions[0] has "
            f"{len(matrices[0])}; measure groups of one video apart, their scores have other chances"
        )
    return np.array(matrices, dtype=np.float64) if matrices else np.zeros((0, 2, 2))


def _matrix(given: Any, name: str) -> list[list[float]]:
    rows = [read_rows(row, name, ROW) for row in read_rows(given, name, ROW)]
    if len(rows) not in {1, 2} or any(len(row) != 2 for row in rows):
        raise ValueError(f"{name} must be {ROW}, not {quoted(given)}")
    read = []
    for value in chain(*rows):
        number = value if type(value) is float else read_number(value)
        if number is None:
            raise ValueError(f"{name} has the similarity {quoted(value)}; give a number")
        read.append(number)
    return [read[:2], read[2:]][: len(rows)]
