"""Configuration of a CLIP whose image tower is a ResNet, as OpenAI's RN50, which transformers does not have."""

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import CLIPTextConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec


@strict
class CLIPResNetVisionConfig(PreTrainedConfig):
    """Describe the image tower.

    Args:
        architecture: its name in timm.
        image_size: side of an image, in pixels.
        hidden_size: of its output, which is in the space of images and texts.
    """

    model_type = "clip_resnet_vision"

    architecture: str = "resnet50_clip"
    image_size: int = 224
    hidden_size: int = 1024


@strict
class CLIPResNetConfig(PreTrainedConfig):
    """Describe both towers; the defaults are those of RN50 (arXiv:2103.00020).

    Args:
        text_config: of the text tower, as of any CLIP.
        vision_config: of the image tower.
        projection_dim: size of the space of images and texts.

    Example:
        >>> CLIPResNetConfig().vision_config.architecture
        'resnet50_clip'
    """

    model_type = "clip_resnet"
    sub_configs_defaults = {  # noqa: RUF012 - the base class reads a plain class attribute
        "text_config": SubConfigSpec(CLIPTextConfig),
        "vision_config": SubConfigSpec(CLIPResNetVisionConfig),
    }

    text_config: dict[str, Any] | PreTrainedConfig | None = None
    vision_config: dict[str, Any] | PreTrainedConfig | None = None
    projection_dim: int = 1024
