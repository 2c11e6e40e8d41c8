"""Configuration of VidCLIP, a CLIP whose vision tower reads frames and whose text tower reads paragraphs."""

import os
from typing import Any, ClassVar, Literal, cast

from huggingface_hub.dataclasses import strict
from transformers import CLIPConfig, CLIPTextConfig, CLIPVisionConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .own_architecture import OwnArchitecture
from .sentence_transformers_files import write_sentence_transformers_files

# VidCLIP-base (VideoComp, section 4.1): ViT-L for frames and 12 layers for up to 160 tokens. The paper leaves open the
# patch size (196 = 14 x 14 pooler queries suggest 16 at 224 pixels) and the text width (128 M parameters suggest 768).
VISION_DEFAULTS = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "patch_size": 16,
    "image_size": 224,
}
TEXT_DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "max_position_embeddings": 160,
}


@strict
class VidCLIPConfig(OwnArchitecture, PreTrainedConfig):
    """Describe a VidCLIP (VideoComp, section 4.1); the defaults are the paper's VidCLIP-base and its fine-tuning.

    Args:
        vision_config: Of the tower that sees each frame, a `CLIPVisionConfig` or its fields.
        text_config: Of the text tower, a `CLIPTextConfig` or its fields.
        projection_dim: Size D of the embeddings.
        num_frames: Frames per video; the length of the temporal embedding.
        num_pooler_queries: Queries of the first attention pooler; the second has one.
        pooler_num_attention_heads: Heads of both poolers; None is those of the vision tower.
        class_token_residual: Add the output of the poolers to the mean of the frames' class tokens, which CLIP was
            trained to summarize images with. `VidCLIPModel.from_clip` sets it, and starts the poolers' part at zero.
        logit_scale_init_value: Logarithm of what similarities are multiplied by at first.
        max_logit_scale: Highest logarithm that training may reach; log(100), as in CLIP.
        loss: "clip" (`losses.clip_loss`), "negclip", or "comploss" ("clip" and the weighted preference).
        preference_weight: Of the preference in "comploss".
        preference_pairs: See `losses.comp_loss`.
        preference_kind: See `losses.comp_loss`.
        preference_scale: See `losses.comp_loss`.
        preference_margin: See `losses.comp_loss`.
        num_captioning_layers: Layers of CoCa's multimodal text decoder, which reads the states of the text tower and
            attends to what the first attention pooler gives of the video; 0, the paper's VidCLIP, is without it. CoCa
            has as many as its text tower.
        captioning_weight: Of the captioning loss, which is added to `loss` where there is a decoder; 2 in CoCa.

    With a decoder the model is VidCLIP with CoCa's captioning loss, which makes it like VideoCoCa (arXiv:2212.04979);
    VideoComp trains without. What is inferred: the text tower is CLIP's, whose layers are causal and whose end-of-text
    token is CoCa's CLS at the end, so its states are the decoder's input after the tower's last normalization, and the
    end of the text is predicted too; the embedding of tokens and the head of the decoder are two matrices.

    Example:
        >>> config = VidCLIPConfig(text_config={"num_hidden_layers": 2})
        >>> config.text_config.max_position_embeddings, config.vision_config.hidden_size
        (160, 1024)
    """

    model_type = "vidclip"
    how_to_make: ClassVar[str] = (
        "VidCLIPModel.from_clip builds a VidCLIP from a CLIP, and AutoModel.from_pretrained loads what the folder holds"
    )
    sub_configs_defaults = {  # noqa: RUF012 - the base class reads a plain class attribute
        "vision_config": SubConfigSpec(CLIPVisionConfig),
        "text_config": SubConfigSpec(CLIPTextConfig),
    }

    vision_config: dict[str, Any] | CLIPVisionConfig | None = None
    text_config: dict[str, Any] | CLIPTextConfig | None = None
    projection_dim: int = 768
    num_frames: int = 16
    num_pooler_queries: int = 196
    pooler_num_attention_heads: int | None = None
    class_token_residual: bool = False
    logit_scale_init_value: float | int = 2.6592
    max_logit_scale: float | int = 4.6052
    loss: Literal["clip", "negclip", "comploss"] = "comploss"
    preference_weight: float | int = 100.0
    preference_pairs: Literal["adjacent", "all", "positive"] = "adjacent"
    preference_kind: Literal["logistic", "hinge"] = "logistic"
    preference_scale: float | int = 1.0
    preference_margin: float | int = 0.0
    num_captioning_layers: int = 0
    captioning_weight: float | int = 2.0
    initializer_range: float | int = 0.02

    def __post_init__(self, **kwargs: Any) -> None:
        """Fill in the paper's towers, and name the files that travel with a saved model."""
        if not isinstance(self.vision_config, PreTrainedConfig):
            self.vision_config = CLIPVisionConfig(**{**VISION_DEFAULTS, **(self.vision_config or {})})
        if not isinstance(self.text_config, PreTrainedConfig):
            self.text_config = CLIPTextConfig(**{**TEXT_DEFAULTS, **(self.text_config or {})})
        self.auto_map = {
            "AutoConfig": "configuration_vidclip.VidCLIPConfig",
            "AutoModel": "modeling_vidclip.VidCLIPModel",
            "AutoProcessor": "processing_vidclip.VidCLIPProcessor",
        }
        kwargs.pop("auto_map", None)
        super().__post_init__(**kwargs)
        if self.pooler_num_attention_heads is None:
            self.pooler_num_attention_heads = self.vision_config.num_attention_heads

    @classmethod
    def from_clip_config(
        cls, clip: CLIPConfig, *, num_frames: int = 16, max_text_tokens: int = 160, **fields: Any
    ) -> "VidCLIPConfig":
        """Describe a VidCLIP made of the towers and projections of a CLIP; see `VidCLIPModel.from_clip`.

        Args:
            clip: Of the whole CLIP.
            num_frames: Frames per video.
            max_text_tokens: Longest text.
            **fields: Other fields of `VidCLIPConfig`.
        """
        text = cast(CLIPTextConfig, clip.text_config).to_dict() | {"max_position_embeddings": max_text_tokens}
        vision = cast(CLIPVisionConfig, clip.vision_config).to_dict()
        fields = {"class_token_residual": True, **fields, "projection_dim": clip.projection_dim}
        return cls(vision_config=vision, text_config=text, num_frames=num_frames, **fields)

    def save_pretrained(self, save_directory: str | os.PathLike[str], push_to_hub: bool = False, **kwargs: Any) -> None:
        """Write `config.json`, and what lets sentence-transformers load the model that is saved with it.

        Args:
            save_directory: As in transformers.
            push_to_hub: As in transformers.
            **kwargs: As in transformers.
        """
        super().save_pretrained(save_directory, push_to_hub, **kwargs)
        methods = {"text": "get_text_features", "video": "get_video_features"}
        write_sentence_transformers_files(save_directory, methods)

    def validate_architecture(self) -> None:
        """Refuse fields that contradict each other or lie outside what they may be.

        Raises:
            ValueError: If the poolers' heads do not divide the width, or a number is out of its range.
        """
        width = cast("CLIPVisionConfig", self.vision_config).hidden_size
        heads = cast("int", self.pooler_num_attention_heads)
        if heads < 1 or width % heads:
            raise ValueError(f"pooler_num_attention_heads is {heads}; it must divide the width {width}")
        for name in ("num_frames", "num_pooler_queries", "projection_dim"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        weights = ("preference_weight", "preference_scale", "preference_margin", "captioning_weight")
        for name in (*weights, "num_captioning_layers"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must not be negative")
        if self.logit_scale_init_value > self.max_logit_scale:
            raise ValueError(
                f"logit_scale_init_value {self.logit_scale_init_value} exceeds max_logit_scale {self.max_logit_scale}; "
                "lower the one or raise the other"
            )
