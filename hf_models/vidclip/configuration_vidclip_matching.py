"""Configuration of a VidCLIP with a head that reads a clip and a text together."""

from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .configuration_vidclip import VidCLIPConfig
from .own_architecture import OwnArchitecture


@strict
class VidCLIPMatcherConfig(OwnArchitecture, PreTrainedConfig):
    """Describe a `VidCLIPMatcher`.

    Args:
        vidclip_config: Of the two towers, a `VidCLIPConfig` or its fields.
        num_matching_layers: Layers of the head.

    Example:
        >>> VidCLIPMatcherConfig(vidclip_config={"num_frames": 8}).vidclip_config.num_frames
        8
    """

    model_type = "vidclip_matcher"
    how_to_make: ClassVar[str] = (
        "VidCLIPMatcher.from_vidclip puts a matching head on a VidCLIP, a new one or that of its folder"
    )
    sub_configs_defaults = {"vidclip_config": SubConfigSpec(VidCLIPConfig)}  # noqa: RUF012 - read as a class attribute

    vidclip_config: dict[str, Any] | VidCLIPConfig | None = None
    num_matching_layers: int = 2

    def __post_init__(self, **kwargs: Any) -> None:
        """Fill in the paper's towers, and name the files that travel with a saved model."""
        if not isinstance(self.vidclip_config, PreTrainedConfig):
            self.vidclip_config = VidCLIPConfig(**(self.vidclip_config or {}))
        self.auto_map = {
            "AutoConfig": "configuration_vidclip_matching.VidCLIPMatcherConfig",
            "AutoModel": "modeling_vidclip_matching.VidCLIPMatcher",
        }
        kwargs.pop("auto_map", None)
        super().__post_init__(**kwargs)

    def validate_architecture(self) -> None:
        """Refuse a head without layers.

        Raises:
            ValueError: If `num_matching_layers` is below 1.
        """
        if self.num_matching_layers < 1:
            raise ValueError(f"num_matching_layers is {self.num_matching_layers}; it must be at least 1")
