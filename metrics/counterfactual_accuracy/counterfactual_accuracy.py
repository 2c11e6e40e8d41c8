"""Text, video and group score of counterfactual pairs, and StrictVLE: which of two texts goes with which video?

Two videos differ in one thing, and so do their texts. Text, video and group score (Winoground, Vinoground) ask that
both videos, both texts, or all of them prefer their own; chance is 25, 25 and 16.7 %. StrictVLE (VELOCITI) asks that a
video's own text is called true and the other one false; chance is at most 25 %.
"""

from typing import Any

import evaluate
from datasets import Features, List, Value

from .buffer import BufferedMetric
from .groups import read_groups
from .inputs import quoted
from .scoring import counterfactual_accuracy, fit_threshold
from .significance import compare

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

    Arguments, options and results are those of `counterfactual_accuracy`; `compare` takes two results of
    `compute(..., per_query=True)` over the same groups.

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

    _read = staticmethod(read_groups)
    _compute = staticmethod(counterfactual_accuracy)
    fit_threshold = staticmethod(fit_threshold)
    compare = staticmethod(compare)

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=__doc__ or "",
            citation=_CITATION,
            inputs_description=counterfactual_accuracy.__doc__,
            features=Features({"predictions": List(List(Value("float64"))), "references": Value("string")}),
        )

    def add_batch(self, *, predictions: Any = None, references: Any = None) -> None:
        """Add groups; `references` may be left out."""
        if references is None and self.num_process > 1:  # evaluate's files have both columns
            references = [None] * len(read_groups(predictions)[0])
        super().add_batch(predictions=predictions, references=references)
