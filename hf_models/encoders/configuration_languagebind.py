"""Configuration of LanguageBind for video: a CLIP whose vision tower has attention over time."""

from huggingface_hub.dataclasses import strict
from transformers import CLIPConfig


@strict
class LanguageBindConfig(CLIPConfig):
    """Describe a LanguageBind for video (arXiv:2310.01852); the fields are those of `CLIPConfig` and one more.

    Args:
        num_frames: Frames of a video; the model has a place for each.

    Example:
        >>> LanguageBindConfig(text_config={}, vision_config={}).num_frames
        8
    """

    model_type = "languagebind"

    num_frames: int = 8
