"""A CLIP whose image tower is a ResNet: timm's, which ends in the space of images and texts."""

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import CLIPTextConfig, CLIPTextModel, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

from .configuration_clip_resnet import CLIPResNetConfig, CLIPResNetVisionConfig


class CLIPResNetVisionModel(PreTrainedModel):
    """The image tower; its pooled output `(B, hidden_size)` is the embedding."""

    config: CLIPResNetVisionConfig
    config_class = CLIPResNetVisionConfig
    base_model_prefix = "vision_model"
    main_input_name = "pixel_values"
    input_modalities = ("image",)  # type: ignore[assignment]  # transformers' own models give tuples, too

    def __init__(self, config: CLIPResNetVisionConfig) -> None:
        super().__init__(config)
        try:
            import timm
        except ImportError as error:
            raise ImportError("CLIP's ResNets need timm: pip install 'subtle-video[perception]'") from error
        given: dict[str, Any] = {"img_size": config.image_size, "num_classes": config.hidden_size}
        self.tower = timm.create_model(config.architecture, pretrained=False, **given)
        self.post_init()

    def forward(self, pixel_values: Tensor, **_: Any) -> BaseModelOutputWithPooling:
        """Embed images `(B, 3, image_size, image_size)`."""
        return BaseModelOutputWithPooling(pooler_output=self.tower(pixel_values))


class CLIPResNetModel(PreTrainedModel):
    """Both towers."""

    config: CLIPResNetConfig
    config_class = CLIPResNetConfig
    input_modalities = ("image", "text")  # type: ignore[assignment]  # transformers' own models give tuples, too

    def __init__(self, config: CLIPResNetConfig) -> None:
        super().__init__(config)
        text_config = cast("CLIPTextConfig", config.text_config)
        self.text_model = CLIPTextModel._from_config(text_config)
        self.text_projection = nn.Linear(text_config.hidden_size, config.projection_dim, bias=False)
        self.vision_model = CLIPResNetVisionModel._from_config(config.vision_config)
        self.logit_scale = nn.Parameter(torch.tensor(2.6592))  # the logarithm of 1 / .07
        self.post_init()

    def get_image_features(self, pixel_values: Tensor) -> Tensor:
        """Embeddings `(B, projection_dim)` of images, of any length."""
        embeds: Tensor = self.vision_model(pixel_values).pooler_output
        return embeds

    def get_text_features(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Embeddings `(N, projection_dim)` of texts, of any length."""
        pooled = self.text_model(input_ids=input_ids, attention_mask=attention_mask).pooler_output
        embeds: Tensor = self.text_projection(pooled)
        return embeds


for _class in (CLIPResNetVisionConfig, CLIPResNetConfig):
    _class.register_for_auto_class()
