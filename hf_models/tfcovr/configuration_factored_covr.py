"""Configuration of FactoredCoVR: composed retrieval in the space of labels, whose classifiers share label factors."""

from typing import Any, ClassVar, cast

from huggingface_hub.dataclasses import strict

from .configuration_aim import check_label_factors
from .configuration_tfcovr import TFCoVRConfig


@strict
class FactoredCoVRConfig(TFCoVRConfig):
    """Describe a FactoredCoVR: the encoders and the fusion of TF-CoVR, and the labels between which it composes.

    Its embeddings have one entry for each label, so `projection_dim` is always their number. `loss`, `temperature`,
    `alpha`, `beta`, `row_normalization`, `learnable_temperature` and `project_targets` of TF-CoVR have no meaning here
    and are left at their defaults: the loss is the cross-entropy of the target's label.

    Args:
        id2label: the labels, by their place in the embeddings: first those that are trained on, then those that are
            put together from their words, see `compose_labels`.
        num_trained_labels: how many are trained on; None: all.
        label_factors: for each label that is trained on what it consists of, see `FactoredClassifier`; None gives each
            label weights of its own.
        label_words: for each label its words; None: each label is a word of its own.
        word_tokens: for each word, in the order in which labels have them first, the ids of its tokens, by which it is
            found in a text; None: no word is looked for.
        fused_dim: size of projected texts and of what the fusion gives to the classifier of queries; None takes what is
            given as `projection_dim`, or else the size of the video encoder's output.

    Raises:
        ValueError: The fusion is not "mlp", or the factors, words or tokens are not those of the labels.

    Example:
        >>> config = FactoredCoVRConfig(
        ...     id2label={0: "leap", 1: "leap with turn"}, label_words=[["leap"], ["leap", "with", "turn"]]
        ... )
        >>> config.num_labels, config.num_trained_labels, config.words
        (2, 2, ['leap', 'with', 'turn'])
    """

    model_type = "factored_covr"
    how_to_make: ClassVar[str] = (
        "FactoredCoVRForComposedRetrieval.from_vision_text_pretrained builds one on the weights of other models"
    )

    num_trained_labels: int | None = None
    label_factors: list[list[str]] | None = None
    label_words: list[list[str]] | None = None
    word_tokens: list[list[int]] | None = None
    fused_dim: int | None = None  # type: ignore[assignment]  # an int from __post_init__ on

    def __post_init__(self, **kwargs: Any) -> None:
        """Name the files that travel with a saved model."""
        super().__post_init__(**kwargs)
        if self.fused_dim is None:
            self.fused_dim = cast("int", self.projection_dim)
        num_labels = cast("int", self.num_labels)
        self.projection_dim = num_labels
        if self.num_trained_labels is None:
            self.num_trained_labels = num_labels
        if self.label_words is None:
            self.label_words = [[str(place)] for place in range(num_labels)]
        self.auto_map = {
            "AutoConfig": "configuration_factored_covr.FactoredCoVRConfig",
            "AutoModel": "modeling_factored_covr.FactoredCoVRForComposedRetrieval",
            "AutoProcessor": "processing_tfcovr.TFCoVRProcessor",
        }

    @property
    def words(self) -> list[str]:
        """The words of all labels, in the order in which labels have them first."""
        return list(dict.fromkeys(word for words in self.label_words or () for word in words))

    @property
    def text_embed_dim(self) -> int:
        """Size of `text_embeds`: of the text encoder's output, and after it whether the text has each word."""
        return super().text_embed_dim + len(self.words)

    def validate_architecture(self) -> None:
        """Refuse what does not fit together.

        Raises:
            ValueError: Another fusion than "mlp", options of a loss or a projection that it does not have, or factors,
                words or tokens that are not those of the labels.
        """
        if self.fusion != "mlp":
            raise ValueError(f"FactoredCoVR classifies what fusion 'mlp' gives; {self.fusion!r} has no place in it")
        if self.learnable_temperature:
            raise ValueError("the loss of FactoredCoVR has no temperature; leave learnable_temperature out")
        if not self.project_targets:
            raise ValueError("FactoredCoVR classifies targets and projects none; leave project_targets out")
        if not self.project_text:
            raise ValueError("FactoredCoVR projects texts with the words that they have; leave project_text out")
        super().validate_architecture()
        trained, num_labels = cast("int", self.num_trained_labels), cast("int", self.num_labels)
        if not 0 < trained <= num_labels:
            raise ValueError(f"num_trained_labels must lie between 1 and the {num_labels} labels, not be {trained}")
        check_label_factors(self.label_factors, trained)
        check_label_factors(self.label_words, num_labels, "label_words")
        if self.word_tokens is not None and len(self.word_tokens) != len(self.words):
            raise ValueError(
                f"word_tokens are those of {len(self.word_tokens)} words, but labels have {len(self.words)}"
            )
