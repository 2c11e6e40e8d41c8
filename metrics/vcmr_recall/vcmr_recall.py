"""Recall of moment retrieval: the video and the moment (VCMR), the moment (SVMR) or the video (VR).

A query counts as answered at K when one of its first K predictions is right: in the right video and, except for VR,
with an IoU that reaches the threshold. The semantics are those of the TVR evaluator: 100 predictions per query,
thresholds inclusive, two of four annotators. Malformed records, reversed spans and missing queries are refused
with the query and the cure.
"""

from typing import Any

import evaluate
from datasets import Features, List, Value

from .buffer import BufferedMetric
from .id_lists import IdLists
from .inputs import check_lengths, quoted
from .matching import match
from .moments import Moments, RankedSpans, read_moments, read_ranked_spans
from .scoring import moment_retrieval_recall
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

    Arguments, options and results are those of `moment_retrieval_recall`.

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

    _compute = staticmethod(moment_retrieval_recall)
    read_tvr_submission = staticmethod(read_tvr_submission)

    def _info(self) -> evaluate.MetricInfo:
        seconds = Value("float64")
        return evaluate.MetricInfo(
            description=__doc__ or "",
            citation=_CITATION,
            inputs_description=moment_retrieval_recall.__doc__,
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
