"""Configuration of a VidCLIP with a head that reads a clip and a text together."""

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .configuration_vidclip import VidCLIPConfig


@strict
class VidCLIPMatcherConfig(PreTrainedConfig):
    """Describe a `VidCLIPMatcher`.

    Args:
        vidclip_config: Of the two towers, a `VidCLIPConfig` or its fields.
        num_matching_layers: Layers of the head.

    Example:
        >>> VidCLIPMatcherConfig(vidclip_config={"num_frames": 8}).vidclip_config.num_frames
        8
    """

    model_type = "vidclip_matcher"
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

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> "VidCLIPMatcherConfig":
        """Read what `to_dict` wrote; a configuration of another architecture is refused.

        Args:
            config_dict: The contents of `config.json`.
            **kwargs: Fields that replace those read.

        Returns:
            The configuration.

        Raises:
            ValueError: If it describes another architecture.
        """
        found = config_dict.get("model_type", cls.model_type)
        if found != cls.model_type:
            raise ValueError(
                f"this is a {found!r} configuration, not a {cls.model_type!r} one; VidCLIPMatcher.from_vidclip puts a "
                "matching head on a VidCLIP, a new one or that of its folder"
            )
        return super().from_dict(config_dict, **kwargs)

    def validate_architecture(self) -> None:
        """Refuse a head without layers.

        Raises:
            ValueError: If `num_matching_layers` is below 1.
        """
        if self.num_matching_layers < 1:
            raise ValueError(f"num_matching_layers is {self.num_matching_layers}; it must be at least 1")
