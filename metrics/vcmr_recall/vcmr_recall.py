"""Recall of moment retrieval: the video and the moment (VCMR), the moment (SVMR) or the video (VR).

A query counts as answered at K when one of its first K predictions is right: in the right video and, except for VR,
with an IoU that reaches the threshold. The semantics are those of the TVR evaluator: 100 predictions per query,
thresholds inclusive, two of four annotators. Malformed records, reversed spans and missing queries are refused
with the query and the cure.
"""

from collections.abc import Sequence
from typing import Any

import evaluate
from datasets import Features, List, Value

from .buffer import BufferedMetric
from .id_lists import IdLists
from .inputs import check_lengths, quoted
from .matching import match
from .moments import Moments, RankedSpans, read_moments, read_ranked_spans
from .scoring import Extra, Found, Task, WhenMissing, moment_retrieval_recall
from .tvr import read_tvr_submission

# evaluate copies only the files that are imported here, and takes a comment on such a line for an address.
__all__ = ["IdLists", "VcmrRecall", "match", "moment_retrieval_recall", "quoted", "read_tvr_submission"]

_CITATION = """\
@inproceedings{lei2020tvr,
  title={TVR: A Large-Scale Dataset for Video-Subtitle Moment Retrieval},
  author={Lei, Jie and Yu, Licheng and Berg, Tamara L and Bansal, Mohit},
  booktitle={ECCV},
  year={2020}
}
"""


class VcmrRecall(BufferedMetric):
    """R@K of moment retrieval at IoU thresholds.

    Args:
        predictions: One record per query of parallel lists `video_id`, `start`, `end` (seconds), best first, and with
            a threshold `score`; or one record of `(queries, ranks)` arrays.
        references: One record per query with `video_id` and `spans`, a list of [start, end] in seconds; None and []
            for a query without a moment.
        task: `vcmr` (video and moment), `svmr` (the moment, other videos skipped) or `vr` (the video).
        k: Ranks, by default 1, 5, 10 and 100.
        iou: Thresholds, by default 0.5 and 0.7.
        extra: Any of `miou`, `mrr` and `median_rank`.
        types: One type per query, for results per type.
        missing: `error`, or `miss` to count queries without prediction (None) as misses.
        max_predictions: How many predictions per query count, by default 100.
        moments: `one` (spans are annotators' marks of one moment), or how many of several moments are to be found:
            `any` or `all`.
        threshold: Predictions with a lower score count as none.
        per_query: Also give the results of every query.

    Returns:
        `<task>_recall@K_iou@T` (`vr_recall@K` for vr) as fractions in [0, 1], and `signature`, the line that
        states the protocol. With a threshold or queries without a moment also `<task>_answered`,
        `<task>_true_rejection` and `queries_without_moment`.

    Examples:
        >>> import evaluate
        >>> vcmr_recall = evaluate.load("vcmr_recall")
        >>> result = vcmr_recall.compute(
        ...     predictions=[{"video_id": ["a", "b"], "start": [0.0, 2.0], "end": [4.0, 6.0]}],
        ...     references=[{"video_id": "b", "spans": [[2.0, 7.0]]}],
        ...     k=[1, 5],
        ... )
        >>> {name: value for name, value in result.items() if name.endswith("0.7")}
        {'vcmr_recall@1_iou@0.7': 0.0, 'vcmr_recall@5_iou@0.7': 1.0}
    """

    read_tvr_submission = staticmethod(read_tvr_submission)

    def _info(self) -> evaluate.MetricInfo:
        seconds = Value("float64")
        return evaluate.MetricInfo(
            description=__doc__ or "",
            citation=_CITATION,
            inputs_description=type(self).__doc__ or "",
            features=[
                Features(
                    {
                        "predictions": {
                            "video_id": List(Value(kind)),
                            "start": List(seconds),
                            "end": List(seconds),
                            "score": List(seconds),
                        },
                        "references": {"video_id": of_query, "spans": List(List(seconds))},
                    }
                )
                for kind in ("string", "int64")
                for of_query in (Value(kind), List(Value(kind)))
            ],
        )

    def add_batch(self, *, predictions: Any = None, references: Any = None) -> None:
        """Add rows: one prediction and one reference per query."""
        if self.num_process > 1 and isinstance(predictions, list):  # files need every column in every row
            predictions = [{"score": None, **row} if isinstance(row, dict) else row for row in predictions]
        super().add_batch(predictions=predictions, references=references)

    def _read(self, predictions: Any, references: Any) -> tuple[RankedSpans, Moments]:
        columns = read_ranked_spans(predictions), read_moments(references)
        check_lengths(*columns)
        return columns

    def _compute(  # noqa: PLR0913 (its options)
        self,
        predictions: Any,
        references: Any,
        task: Task = "vcmr",
        k: int | Sequence[int] = (1, 5, 10, 100),
        iou: float | Sequence[float] = (0.5, 0.7),
        extra: Sequence[Extra] = (),
        types: Sequence[str] | None = None,
        missing: WhenMissing = "error",
        max_predictions: int = 100,
        moments: Found = "one",
        threshold: float | None = None,
        per_query: bool = False,
    ) -> dict[str, Any]:
        return moment_retrieval_recall(
            predictions,
            references,
            task=task,
            k=k,
            iou=iou,
            extra=extra,
            types=types,
            missing=missing,
            max_predictions=max_predictions,
            moments=moments,
            threshold=threshold,
            per_query=per_query,
        )
