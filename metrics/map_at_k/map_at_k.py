"""mAP@K for retrieval with several relevant items per query, as composed video retrieval needs it.

AP@K is the sum of the precisions at the ranks of the hits up to K, divided by min(number of relevant items, K);
mAP@K is its mean over the queries. Rankings with duplicates, queries without relevant items and ids of mixed
kinds are refused with the query and the cure, and every result states its protocol in one line.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import evaluate
from datasets import Features, List, Value

from .average_precision import average_precision_at, find_hits
from .buffer import BufferedMetric
from .id_lists import IdLists, read_id_lists
from .inputs import check_lengths, quoted
from .scoring import Protocol, WhenEmpty, mean_average_precision
from .significance import PERMUTATIONS
from .significance import compare as compare_runs

# evaluate copies only the files that are imported here, and takes a comment on such a line for an address.
__all__ = ["MapAtK", "average_precision_at", "compare_runs", "find_hits", "mean_average_precision", "quoted"]

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

    Args:
        predictions: Ranked ids of each query, best first; strings or integers, lists of any length or a 2-D array.
        references: Relevant ids of each query, in any order.
        k: Cut-offs, by default 5, 10, 25 and 50.
        exclude: One id per query, its reference clip, that is taken out of the ranking before the cut.
        recall: Also give `recall@K`, the mean share of the relevant ids among the first K.
        per_query: Also give the results of every query.
        protocol: `standard`, or `tfcovr-official` to reproduce the released script with its bugs.
        empty: `error`, or `skip` to leave out and count queries without relevant ids.
        confidence: Level of an interval over queries, such as 0.95.

    Returns:
        `map@K` for every K as fractions in [0, 1], and `signature`, the line that states the protocol.

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

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=__doc__ or "",
            citation=_CITATION,
            inputs_description=type(self).__doc__ or "",
            features=[
                Features({"predictions": List(Value(kind)), "references": List(Value(kind))})
                for kind in ("string", "int64")
            ],
        )

    def _read(self, predictions: Any, references: Any) -> tuple[IdLists, IdLists]:
        columns = read_id_lists(predictions, "predictions"), read_id_lists(references, "references")
        check_lengths(*columns)
        return columns

    def _compute(
        self,
        predictions: Any,
        references: Any,
        k: int | Sequence[int] = (5, 10, 25, 50),
        exclude: Any = None,
        recall: bool = False,
        per_query: bool = False,
        protocol: Protocol = "standard",
        empty: WhenEmpty = "error",
        confidence: float | None = None,
    ) -> dict[str, Any]:
        return mean_average_precision(
            predictions,
            references,
            k=k,
            exclude=exclude,
            recall=recall,
            per_query=per_query,
            protocol=protocol,
            empty=empty,
            confidence=confidence,
        )

    def compare(
        self, a: Mapping[str, Any], b: Mapping[str, Any], *, permutations: int = PERMUTATIONS, seed: int = 0
    ) -> dict[str, dict[str, float]]:
        """Paired permutation test of two results of `compute(..., per_query=True)` over the same queries."""
        return compare_runs(a, b, permutations=permutations, seed=seed)
