"""Configuration of TF-CoVR-Base: a video encoder, a text encoder, how they are fused and what trains them."""

import os
from typing import Any, ClassVar, Literal, cast

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .configuration_aim import AIMConfig
from .own_architecture import OwnArchitecture
from .sentence_transformers_files import write_sentence_transformers_files

COMPOSED_MODEL_TYPES = ("tfcovr", "factored_covr")
"""What `config.json` of a model says that composes queries as `TFCoVRForComposedRetrieval` does."""


@strict
class TFCoVRConfig(OwnArchitecture, PreTrainedConfig):
    """Describe a composed-retrieval model of TF-CoVR (section 4).

    The defaults are what the paper says. Its released code differs; each difference that belongs to the model is an
    option here:

    | what | paper (the default) | released code |
    |---|---|---|
    | fusion | "mlp", two hidden ReLU layers | "gated", 84,960,001 parameters, dropout 0.5 |
    | targets | projected into a shared space | `project_targets=False`: only normalized |
    | loss | HN-NCE, beta 0 (the best row) | `beta=0.5`, `row_normalization="official"` |
    | text encoder | frozen BLIP-2 | BERT with a trainable text path |
    | number words in the text | counted with them | `TFCoVRProcessor(number_words=True)` |

    Args:
        vision_config: configuration of the video encoder, an instance or a dict with `model_type`: AIM (the default),
            any other video model, or an image model, which is applied to each frame and averaged.
        text_config: configuration of the text encoder: BERT (the default), CLIP, BLIP, BLIP-2 or any other text model.
        vision_model_class: class of transformers for the video encoder where it is not `AutoModel`'s choice, such as
            "CLIPVisionModelWithProjection".
        text_model_class: the same for the text encoder; None is "CLIPTextModelWithProjection" for CLIP.
        fusion: "mlp" (the paper: two hidden ReLU layers on the concatenation), "gated" (the released code) or
            "average" (no parameters, for zero-shot).
        projection_dim: size D of the embeddings; None is the size of the video encoder's output, the only one that
            "gated" and "average" allow.
        fusion_projection_dim: hidden size of each half in "gated".
        fusion_hidden_dim: hidden size of the fused vector in "mlp" and "gated".
        fusion_dropout: dropout after each hidden layer.
        project_text: whether texts get a linear layer and unit norm before the fusion ("average": unit norm alone);
            False: they enter it as the encoder gives them, as in the released baselines on CLIP and BLIP-2.
        project_targets: whether targets get a linear layer; None is True for "mlp" and False for the others.
        standardize_video: subtract the mean of the training clips' embeddings and divide by their deviation before
            anything else, see `TFCoVRForComposedRetrieval.set_video_statistics`; neither paper nor code do. Features
            of an image model often share one large component, in which what tells clips apart drowns.
        temperature: what similarities are divided by in the loss.
        learnable_temperature: train the temperature, starting from that value.
        loss: "hn_nce", "infonce", or "multi_positive", which needs `target_labels`.
        alpha: weight of the positive in HN-NCE.
        beta: hardness of the negatives in HN-NCE.
        row_normalization: "official" repeats a slip of the released HN-NCE; see `losses.hn_nce`.
        imported_video: what made the stored video embeddings that the model works on in place of a video encoder, such
            as those that the authors publish: at least `size`, theirs. `vision_config` is then not read.

    Example:
        >>> config = TFCoVRConfig(fusion="gated")
        >>> config.vision_config.model_type, config.text_config.model_type, config.projection_dim
        ('aim', 'bert', 768)
    """

    model_type = "tfcovr"
    how_to_make: ClassVar[str] = (
        "TFCoVRForComposedRetrieval.from_vision_text_pretrained builds one on the weights of other models"
    )
    checked_together: ClassVar[tuple[str, ...]] = ("label_factors",)
    sub_configs_defaults = {  # noqa: RUF012 - the base class reads a plain class attribute
        "vision_config": SubConfigSpec(AIMConfig),
        "text_config": SubConfigSpec(AutoConfig, model_type="bert"),
    }

    vision_config: dict[str, Any] | PreTrainedConfig | None = None
    text_config: dict[str, Any] | PreTrainedConfig | None = None
    vision_model_class: str | None = None
    text_model_class: str | None = None
    fusion: Literal["mlp", "gated", "average"] = "mlp"
    projection_dim: int | None = None
    fusion_projection_dim: int = 3072
    fusion_hidden_dim: int = 6144
    fusion_dropout: float | int = 0.5
    project_text: bool = True
    project_targets: bool | None = None
    standardize_video: bool = False
    temperature: float | int = 0.07
    learnable_temperature: bool = False
    loss: Literal["hn_nce", "infonce", "multi_positive"] = "hn_nce"
    alpha: float | int = 1.0
    beta: float | int = 0.0
    row_normalization: Literal["row", "official"] = "row"
    imported_video: dict[str, Any] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        """Build the encoders' configurations and settle what None leaves open."""
        if not isinstance(self.vision_config, PreTrainedConfig):
            fields = dict(self.vision_config or {})
            kind = fields.pop("model_type", "aim")
            # AIM comes from the file beside this one, so that a saved folder works where nothing registered it.
            self.vision_config = AIMConfig(**fields) if kind == "aim" else AutoConfig.for_model(kind, **fields)
        self.auto_map = {
            "AutoConfig": "configuration_tfcovr.TFCoVRConfig",
            "AutoModel": "modeling_tfcovr.TFCoVRForComposedRetrieval",
            "AutoProcessor": "processing_tfcovr.TFCoVRProcessor",
        }
        kwargs.pop("auto_map", None)
        super().__post_init__(**kwargs)
        if self.text_model_class is None and cast("PreTrainedConfig", self.text_config).model_type == "clip_text_model":
            self.text_model_class = "CLIPTextModelWithProjection"
        if self.projection_dim is None:
            self.projection_dim = self.video_embed_dim
        if self.project_targets is None:
            self.project_targets = self.fusion == "mlp"

    def save_pretrained(self, save_directory: str | os.PathLike[str], push_to_hub: bool = False, **kwargs: Any) -> None:
        """Write `config.json`, and what lets sentence-transformers load the model that is saved with it.

        Args:
            save_directory: As in transformers.
            push_to_hub: As in transformers.
            **kwargs: As in transformers.
        """
        super().save_pretrained(save_directory, push_to_hub, **kwargs)
        methods = {"text": "get_query_features", "video": "get_target_features", "text+video": "get_query_features"}
        # Its cached losses trim padding from every tensor with as many columns as there are tokens: clips would lose
        # frames where texts have 12 tokens. Texts padded to their limit have more.
        processing = {"text": {"padding": "max_length"}}
        write_sentence_transformers_files(save_directory, methods, processing=processing)

    @property
    def fused_dim(self) -> int:
        """Size of projected texts and of what the fusion gives."""
        return cast("int", self.projection_dim)

    @property
    def video_embed_dim(self) -> int:
        """Size of the video encoder's output, the last dimension of `video_embeds`."""
        if self.imported_video:
            return int(self.imported_video["size"])
        return _embed_dim(cast("PreTrainedConfig", self.vision_config), self.vision_model_class)

    @property
    def text_embed_dim(self) -> int:
        """Size of the text encoder's output, the last dimension of `text_embeds`."""
        return _embed_dim(cast("PreTrainedConfig", self.text_config), self.text_model_class)

    def validate_architecture(self) -> None:
        """Refuse sizes that do not fit together.

        Raises:
            ValueError: "gated" or "average" with embeddings of another size than the video's, targets of another size
                than queries, or a number out of its range.
        """
        if self.fusion != "mlp" and self.projection_dim != self.video_embed_dim:
            raise ValueError(
                f"fusion {self.fusion!r} adds the video embedding itself, so projection_dim must be its size "
                f"{self.video_embed_dim}, not {self.projection_dim}; use fusion 'mlp' for another size"
            )
        if self.fusion == "average" and self.text_embed_dim != self.video_embed_dim:
            raise ValueError(
                f"fusion 'average' needs a shared space, but video embeddings have {self.video_embed_dim} and text "
                f"embeddings {self.text_embed_dim} dimensions; name encoders with projections, such as "
                "vision_model_class='CLIPVisionModelWithProjection', or another fusion"
            )
        if not self.project_text and self.text_embed_dim != self.fused_dim:
            raise ValueError(
                f"project_text=False needs text embeddings of size {self.fused_dim}, not {self.text_embed_dim}; "
                "name encoders with projections into one space, or project_text=True"
            )
        if not self.project_targets and self.projection_dim != self.video_embed_dim:
            raise ValueError(
                f"project_targets=False needs projection_dim {self.video_embed_dim}, not {self.projection_dim}"
            )
        if self.temperature <= 0:
            raise ValueError(f"temperature must be positive, not {self.temperature}")
        if not 0 < self.alpha <= 1 or self.beta < 0:
            raise ValueError(f"alpha must lie in (0, 1] and beta be at least 0, not {self.alpha} and {self.beta}")


def _embed_dim(config: PreTrainedConfig, model_class: str | None) -> int:
    if config.model_type == "blip-2":
        size: int = config.image_text_hidden_size
    else:
        size = config.projection_dim if (model_class or "").endswith("WithProjection") else config.hidden_size
    return size
