"""mAP@K for retrieval with several relevant items per query, as composed video retrieval needs it.

AP@K is the sum of the precisions at the ranks of the hits up to K, divided by min(number of relevant items, K);
mAP@K is its mean over the queries. Rankings with duplicates, queries without relevant items and ids of mixed
kinds are refused with the query and the cure, and every result states its protocol in one line.
"""

from typing import Any

import evaluate
from datasets import Features, List, Value

from .average_precision import average_precision_at, find_hits
from .buffer import BufferedMetric
from .id_lists import IdLists, read_id_lists
from .inputs import check_lengths, quoted
from .scoring import mean_average_precision
from .significance import compare

# evaluate copies only the files that are imported here, and takes a comment on such a line for an address.
__all__ = ["MapAtK", "average_precision_at", "compare", "find_hits", "mean_average_precision", "quoted"]

_CITATION = """\
@inproceedings{baldrati2023circo,
  title={Zero-Shot Composed Image Retrieval with Textual Inversion},
  author={Baldrati, Alberto and Agnolucci, Lorenzo and Bertini, Marco and Del Bimbo, Alberto},
  booktitle={ICCV},
  year={2023}
}
@article{gupta2025play,
  title={From Play to Replay: Composed Video Retrieval for Temporally Fine-Grained Videos},
  author={Gupta, Animesh and Parmar, Jay and Dave, Ishan Rajendrakumar and Shah, Mubarak},
  year={2025},
  eprint={2506.05274},
  archivePrefix={arXiv}
}
"""


class MapAtK(BufferedMetric):
    """mAP@K of ranked ids against sets of relevant ids.

    Arguments, options and results are those of `mean_average_precision`; `compare` takes two results of
    `compute(..., per_query=True)` over the same queries.

    Examples:
        >>> import evaluate
        >>> map_at_k = evaluate.load("map_at_k")
        >>> result = map_at_k.compute(predictions=[[1, 9, 2, 8, 3, 7]], references=[[1, 2, 3]], k=[1, 2, 3])
        >>> [round(result[f"map@{k}"], 6) for k in (1, 2, 3)]
        [1.0, 0.5, 0.555556]
        >>> result["signature"].split("|")[:3]
        ['map@k', 'protocol:standard', 'denominator:min(relevant,k)']
        >>> runs = [
        ...     map_at_k.compute(predictions=rankings, references=[["a"], ["c"]], k=1, per_query=True)
        ...     for rankings in ([["a", "b"], ["c", "a"]], [["b", "a"], ["c", "b"]])
        ... ]
        >>> map_at_k.compare(*runs)["map@1"]["difference"]
        0.5
    """

    _compute = staticmethod(mean_average_precision)
    compare = staticmethod(compare)

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=__doc__ or "",
            citation=_CITATION,
            inputs_description=mean_average_precision.__doc__,
            features=[
                Features({"predictions": List(Value(kind)), "references": List(Value(kind))})
                for kind in ("string", "int64")
            ],
        )

    def _read(self, predictions: Any, references: Any) -> tuple[IdLists, IdLists]:
        columns = read_id_lists(predictions, "predictions"), read_id_lists(references, "references")
        check_lengths(*columns)
        return columns
