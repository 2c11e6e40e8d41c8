"""Text, video and group score of counterfactual pairs, and StrictVLE: which of two texts goes with which video?

Two videos differ in one thing, and so do their texts. Text, video and group score (Winoground, Vinoground) ask that
both videos, both texts, or all of them prefer their own; chance is 25, 25 and 16.7 %. StrictVLE (VELOCITI) asks that a
video's own text is called true and the other one false; chance is at most 25 %.
"""

from collections.abc import Mapping
from typing import Any

import evaluate
from datasets import Features, List, Value

from .buffer import BufferedMetric
from .groups import Kinds, Similarities, read_groups
from .inputs import quoted
from .scoring import counterfactual_accuracy, fit_threshold
from .significance import PERMUTATIONS
from .significance import compare as compare_runs

# evaluate copies only the files that are imported here, and takes a comment on such a line for an address.
__all__ = ["CounterfactualAccuracy", "counterfactual_accuracy", "fit_threshold", "quoted"]

_CITATION = """\
@inproceedings{thrush2022winoground,
  title={Winoground: Probing Vision and Language Models for Visio-Linguistic Compositionality},
  author={Thrush, Tristan and Jiang, Ryan and Bartolo, Max and Singh, Amanpreet and Williams, Adina and Kiela, Douwe
    and Ross, Candace},
  booktitle={CVPR},
  year={2022}
}
@article{zhang2024vinoground,
  title={Vinoground: Scrutinizing LMMs over Dense Temporal Reasoning with Short Videos},
  author={Zhang, Jianrui and Cai, Mu and Lee, Yong Jae},
  year={2024}
}
@inproceedings{saravanan2025velociti,
  title={VELOCITI: Benchmarking Video-Language Compositional Reasoning with Strict Entailment},
  author={Saravanan, Darshana and Gupta, Varun and Singh, Darshan and Khan, Zeeshan and Gandhi, Vineet and
    Tapaswi, Makarand},
  booktitle={CVPR},
  year={2025}
}
"""


class CounterfactualAccuracy(BufferedMetric):
    """Text, video and group score, ClassicVLE and StrictVLE.

    Args:
        predictions: `[[a, b], [c, d]]` per group: row i holds the similarities of video i with both texts, and text i
            fits video i. Or `[[a, b]]`: one video with the text that fits it, then one that does not.
        references: The kind of each group, for results by kind; may be left out.
        threshold: Similarity above which a text counts as true of a video, for `strict_vle`; see `fit_threshold`.
        per_query: Also give the results of every group.
        confidence: Level of an interval over groups, such as 0.95.
        clusters: What each group is cut from, such as its long video, over which the interval is then.

    Returns:
        `text_score`, `video_score`, `group_score` (of groups of two videos), `classic_vle` and, with a threshold,
        `strict_vle` as fractions in [0, 1], the same for every kind as `<name>/<kind>`, and `signature`.

    Examples:
        >>> import evaluate
        >>> counterfactual_accuracy = evaluate.load("counterfactual_accuracy")
        >>> groups = [[[0.9, 0.4], [0.7, 0.8]], [[0.9, 0.4], [0.7, 0.6]]]
        >>> result = counterfactual_accuracy.compute(predictions=groups, threshold=0.5)
        >>> [result[name] for name in ("text_score", "video_score", "group_score", "classic_vle", "strict_vle")]
        [0.5, 1.0, 0.5, 0.75, 0.5]
        >>> result["signature"]
        'counterfactual_accuracy|groups:2|videos:2|ties:wrong|threshold:0.5|version:1.0.0'
        >>> counterfactual_accuracy.fit_threshold(predictions=[[[0.75, 0.25]], [[0.5, 0.0]]])
        0.375
    """

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=__doc__ or "",
            citation=_CITATION,
            inputs_description=type(self).__doc__ or "",
            features=Features({"predictions": List(List(Value("float64"))), "references": Value("string")}),
        )

    def add_batch(self, *, predictions: Any = None, references: Any = None) -> None:
        """Add groups; `references` may be left out."""
        if references is None and self.num_process > 1:  # evaluate's files have both columns
            references = [None] * len(read_groups(predictions)[0])
        super().add_batch(predictions=predictions, references=references)

    def _read(self, predictions: Any, references: Any) -> tuple[Similarities, Kinds]:
        return read_groups(predictions, references)

    def _compute(
        self,
        predictions: Any,
        references: Any,
        threshold: float | None = None,
        per_query: bool = False,
        confidence: float | None = None,
        clusters: Any = None,
    ) -> dict[str, Any]:
        return counterfactual_accuracy(
            predictions,
            references,
            threshold=threshold,
            per_query=per_query,
            confidence=confidence,
            clusters=clusters,
        )

    def fit_threshold(self, predictions: Any) -> float:
        """The threshold at which `strict_vle` is highest; fit it on data that is not measured."""
        return fit_threshold(predictions)

    def compare(
        self, a: Mapping[str, Any], b: Mapping[str, Any], *, permutations: int = PERMUTATIONS, seed: int = 0
    ) -> dict[str, dict[str, float]]:
        """Paired permutation test of two results of `compute(..., per_query=True)` over the same groups."""
        return compare_runs(a, b, permutations=permutations, seed=seed)
