"""A metric that keeps its rows as arrays in memory, where evaluate writes them through Arrow files.

Every metric holds the same copy of this file, because a Space must stand alone.
"""

import abc
import copy
from typing import Any

import evaluate


class BufferedMetric(evaluate.Metric, abc.ABC):  # type: ignore[misc]  # evaluate has no types
    """An `evaluate.Metric` whose batches are checked when they are added and kept as columns of arrays.

    A malformed batch is refused as a whole when it is added, and earlier batches stay. With `num_process > 1` the
    checked rows still travel through evaluate's Arrow files, because those are what the processes share.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._batches: list[tuple[Any, Any]] = []

    @abc.abstractmethod
    def _read(self, predictions: Any, references: Any) -> tuple[Any, Any]:
        """Two checked columns of one length; a column has `__len__` and a static `concatenate`."""

    @abc.abstractmethod
    def _compute(self, predictions: Any, references: Any) -> dict[str, Any]:
        """The results; takes rows as the user gave them or columns that `_read` made."""

    def __len__(self) -> int:
        return sum(len(predictions) for predictions, _ in self._batches) or super().__len__()

    def add_batch(self, *, predictions: Any = None, references: Any = None) -> None:
        """Add rows: one prediction and one reference per query."""
        columns = self._read(predictions, references)
        if self.num_process > 1:
            super().add_batch(predictions=predictions, references=references)
        else:
            self._batches.append(copy.deepcopy(columns))  # the caller may write to the arrays afterwards

    def add(
        self,
        *,
        prediction: Any = None,
        reference: Any = None,
        predictions: Any = None,
        references: Any = None,
    ) -> None:
        """Add one row; the plural names are the ones that `evaluate.combine` passes."""
        self.add_batch(
            predictions=[prediction if predictions is None else predictions],
            references=[reference if references is None else references],
        )

    def compute(self, *, predictions: Any = None, references: Any = None, **options: Any) -> dict[str, Any] | None:
        """Compute the metric over all rows added so far and the ones given here.

        The options are those of `_compute`. If this raises, rows given here are dropped and rows added before stay.

        Raises:
            ValueError: If there are no rows, or for what `_compute` refuses.
        """
        if self.num_process > 1:
            joint: dict[str, Any] | None = super().compute(predictions=predictions, references=references, **options)
            return joint
        batches = list(self._batches)
        if predictions is not None or references is not None:
            batches.append(self._read(predictions, references))
        if not batches:
            raise ValueError("nothing to compute: give predictions and references, or add rows first")
        columns = [parts[0].concatenate(parts) for parts in zip(*batches, strict=True)]
        result = self._compute(predictions=columns[0], references=columns[1], **options)
        self._batches = []
        return result
