"""Configuration of XML, cross-modal moment localization."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_moments import MomentRetrievalConfig


@strict
class XMLConfig(MomentRetrievalConfig):
    """Describe an XML model (Lei et al., ECCV 2020, "TVR"), with the settings of its released code.

    The fields are those of `MomentRetrievalConfig`.

    Example:
        >>> XMLConfig(subtitle_feature_size=768).num_streams
        2
    """

    model_type = "xml_moment_retrieval"

    def __post_init__(self, **kwargs: Any) -> None:
        """Name the files that travel with a saved model."""
        self.name_code(kwargs, "XML")
        super().__post_init__(**kwargs)
