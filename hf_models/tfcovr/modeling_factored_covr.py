"""FactoredCoVR: compose a video and a modification text into the label that they ask for, and compare labels."""

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, PreTrainedModel
from transformers import initialization as init

from .configuration_factored_covr import FactoredCoVRConfig
from .distributed_gather import gather_with_gradient
from .factored_classifier import FactoredClassifier
from .layers_aim import make_classifier
from .modeling_aim import AIMForVideoClassification
from .modeling_tfcovr import TFCoVRForComposedRetrieval


class FactoredCoVRForComposedRetrieval(TFCoVRForComposedRetrieval):
    """Composed video retrieval between distributions over labels, whose classifiers share what labels have in common.

    A clip is embedded as the square root of its probabilities of all labels, and a query as that of the label that
    clip and text ask for. Such vectors have unit length, and their product is the Bhattacharyya coefficient of the two
    distributions: 1 where they are equal, 0 where they have no label in common. Stage 1 gives the classifier of clips,
    stage 2 trains that of queries by cross-entropy: it needs no negatives, and no batch of a certain size.

    It finds what its labels describe; between clips of one label it does not tell apart.

    Example:
        >>> from transformers import BertConfig
        >>> from hf_models import AIMConfig
        >>> small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> vision = AIMConfig(image_size=8, patch_size=4, num_frames=4, temporal_pooling="gru", **small)
        >>> labels = {"id2label": {0: "leap", 1: "turn", 2: "leap with turn"}}
        >>> config = FactoredCoVRConfig(vision_config=vision, text_config=BertConfig(vocab_size=9, **small),
        ...                             label_factors=[["leap"], ["turn"], ["leap", "turn"]], **labels)
        >>> model = FactoredCoVRForComposedRetrieval(config).eval()
        >>> query = model.get_query_features(torch.rand(2, 4, 3, 8, 8), torch.tensor([[1, 2], [3, 4]]))
        >>> query.shape, query.norm(dim=1).allclose(torch.ones(2))
        (torch.Size([2, 3]), True)
    """

    config: FactoredCoVRConfig
    config_class = FactoredCoVRConfig
    base_model_prefix = "factored_covr"

    def __init__(self, config: FactoredCoVRConfig) -> None:
        super().__init__(config)
        labels = (cast("int", config.num_labels), config.label_factors)
        self.target_projection = nn.Identity()
        self.target_classifier = make_classifier(config.video_embed_dim, *labels)
        self.query_classifier = make_classifier(cast("int", config.fused_dim), *labels)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, FactoredClassifier):
            init.copy_(module.membership, module.make_membership())

    @classmethod
    def from_vision_text_pretrained(
        cls, vision_model_name_or_path: str | Path, text_model_name_or_path: str | Path, **config: Any
    ) -> "FactoredCoVRForComposedRetrieval":
        """A model with the video encoder and the classifier of stage 1, a text encoder, and a fresh fusion.

        Args:
            vision_model_name_or_path: an `AIMForVideoClassification`, or a FactoredCoVR.
            text_model_name_or_path: a text model, or one that contains it.
            **config: fields of `FactoredCoVRConfig`.

        Returns:
            The model in evaluation mode.

        Raises:
            ValueError: The video model has no classifier, or an encoder's weights are not all there.
        """
        found = AutoConfig.from_pretrained(vision_model_name_or_path)
        sources: dict[str, type[PreTrainedModel]] = {
            "aim": AIMForVideoClassification,
            FactoredCoVRConfig.model_type: FactoredCoVRForComposedRetrieval,
        }
        if found.model_type not in sources or "AIMModel" in (found.architectures or ()):
            raise ValueError(
                f"{vision_model_name_or_path} is a {found.model_type!r} model without a classifier of labels; give the "
                "model that stage1.py wrote, or a FactoredCoVR"
            )
        config = {"id2label": found.id2label, "label2id": found.label2id, "label_factors": found.label_factors} | config
        model = super().from_vision_text_pretrained(vision_model_name_or_path, text_model_name_or_path, **config)
        loaded = sources[found.model_type].from_pretrained(vision_model_name_or_path, output_loading_info=True)
        trained, info = cast("tuple[Any, dict[str, Any]]", loaded)
        if lost := sorted(name for name in info["missing_keys"] if "classifier." in name):
            raise ValueError(
                f"{vision_model_name_or_path} does not hold the weights of its classifier of labels: {lost[:5]} are "
                "missing, which would leave it random; give the model that stage1.py wrote, or a FactoredCoVR"
            )
        classifier = trained.classifier if found.model_type == "aim" else trained.target_classifier
        cast("nn.Module", model.target_classifier).load_state_dict(classifier.state_dict())
        return cast("FactoredCoVRForComposedRetrieval", model)

    def freeze_encoders(self) -> None:
        """Leave only the text projection, the fusion and the classifier of queries to train (stage 2)."""
        super().freeze_encoders()
        self.target_classifier.requires_grad_(False)

    # The loss reads log-probabilities: a probability's root is 0 in float32, without gradient, from 174.7 below 0 on.
    def _query_output(self, fused: Tensor) -> Tensor:
        logits: Tensor = self.query_classifier(fused)
        return logits.float().log_softmax(-1)

    def _target_output(self, video_embeds: Tensor) -> Tensor:
        logits: Tensor = self.target_classifier(self._in_own_dtype(video_embeds))
        return logits.float().log_softmax(-1)

    def _embeds(self, output: Tensor) -> Tensor:
        return (output / 2).exp()

    def _loss(self, query: Tensor, target: Tensor, target_labels: Tensor | None) -> Tensor:
        if target_labels is None:
            raise ValueError("FactoredCoVR learns from target_labels, the place of each target's label in id2label")
        if self.training:
            query, target = gather_with_gradient(query), gather_with_gradient(target)
            target_labels = gather_with_gradient(target_labels)
        loss = F.nll_loss(query, target_labels)
        if any(weight.requires_grad for weight in self.target_classifier.parameters()):
            loss = loss + F.nll_loss(target, target_labels)
        return loss
