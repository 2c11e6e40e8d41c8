"""Comprehensive accuracy of video-text compositionality: right on every kind of disruption at once.

A model is shown a video with its true paragraph and with a disrupted one. It is right when it strictly prefers
the true one. The comprehensive accuracy is the product of the accuracies per disruption type (VideoComp), so a
model that is blind to one type cannot make up for it with the others; chance is 1/2 to the number of types.
"""

import evaluate
from datasets import Features, Value

from .buffer import BufferedMetric
from .inputs import quoted
from .judging import judge
from .scoring import comprehensive_accuracy

# evaluate copies only the files that are imported here, and takes a comment on such a line for an address.
__all__ = ["ComprehensiveAccuracy", "comprehensive_accuracy", "quoted"]

_CITATION = """\
@inproceedings{kim2025videocomp,
  title={VideoComp: Advancing Fine-Grained Compositional and Temporal Alignment in Video-Text Models},
  author={Kim, Dahun and Piergiovanni, AJ and Mallya, Ganesh and Angelova, Anelia},
  booktitle={CVPR},
  year={2025},
  eprint={2504.03970},
  archivePrefix={arXiv}
}
"""


class ComprehensiveAccuracy(BufferedMetric):
    """Accuracy per disruption type and the product over the types present.

    Arguments, options and results are those of `comprehensive_accuracy`.

    Examples:
        >>> import evaluate
        >>> comprehensive_accuracy = evaluate.load("comprehensive_accuracy")
        >>> result = comprehensive_accuracy.compute(
        ...     predictions=[{"positive": 0.9, "negative": 0.1}, {"positive": 0.2, "negative": 0.2}],
        ...     references=["temporal_reorder", "action_replace"],
        ... )
        >>> result["accuracy/temporal_reorder"], result["accuracy/action_replace"]
        (1.0, 0.0)
        >>> result["comprehensive_accuracy"]
        0.0
        >>> answers = [{"disruption_type": "multi", "answer": "1"}, {"disruption_type": "multi", "answer": "2"}]
        >>> comprehensive_accuracy.compute(predictions=["1", "(1)"], references=answers)["comprehensive_accuracy"]
        0.5
    """

    _read = staticmethod(judge)
    _compute = staticmethod(comprehensive_accuracy)

    def _info(self) -> evaluate.MetricInfo:
        number, text = Value("float64"), Value("string")
        return evaluate.MetricInfo(
            description=__doc__ or "",
            citation=_CITATION,
            inputs_description=comprehensive_accuracy.__doc__,
            features=[
                Features({"predictions": {"positive": number, "negative": number}, "references": text}),
                Features({"predictions": text, "references": {"disruption_type": text, "answer": text}}),
            ],
        )
