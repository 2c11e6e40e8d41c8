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
        id2label: the labels, by their place in the embeddings.
        label_factors: for each label what it consists of, see `FactoredClassifier`; None gives each label weights of
            its own.
        fused_dim: size of projected texts and of what the fusion gives to the classifier of queries; None takes what is
            given as `projection_dim`, or else the size of the video encoder's output.

    Raises:
        ValueError: The fusion is not "mlp", or the factors are not those of the labels.

    Example:
        >>> config = FactoredCoVRConfig(
        ...     id2label={0: "leap", 1: "leap with turn"}, label_factors=[["leap"], ["leap", "turn"]]
        ... )
        >>> config.num_labels, config.fusion
        (2, 'mlp')
    """

    model_type = "factored_covr"
    how_to_make: ClassVar[str] = (
        "FactoredCoVRForComposedRetrieval.from_vision_text_pretrained builds one on the weights of other models"
    )

    label_factors: list[list[str]] | None = None
    fused_dim: int | None = None  # type: ignore[assignment]  # an int from __post_init__ on

    def __post_init__(self, **kwargs: Any) -> None:
        """Name the files that travel with a saved model."""
        super().__post_init__(**kwargs)
        if self.fused_dim is None:
            self.fused_dim = cast("int", self.projection_dim)
        self.projection_dim = cast("int", self.num_labels)
        self.auto_map = {
            "AutoConfig": "configuration_factored_covr.FactoredCoVRConfig",
            "AutoModel": "modeling_factored_covr.FactoredCoVRForComposedRetrieval",
            "AutoProcessor": "processing_tfcovr.TFCoVRProcessor",
        }

    def validate_architecture(self) -> None:
        """Refuse what does not fit together.

        Raises:
            ValueError: Another fusion than "mlp", options of a loss or a projection that it does not have, or factors
                that are not those of the labels.
        """
        if self.fusion != "mlp":
            raise ValueError(f"FactoredCoVR classifies what fusion 'mlp' gives; {self.fusion!r} has no place in it")
        if self.learnable_temperature:
            raise ValueError("the loss of FactoredCoVR has no temperature; leave learnable_temperature out")
        if not self.project_targets:
            raise ValueError("FactoredCoVR classifies targets and projects none; leave project_targets out")
        super().validate_architecture()
        check_label_factors(self.label_factors, cast("int", self.num_labels))
