"""Configuration of ReLoCLNet, which adds contrastive losses over frames and over videos."""

from typing import Any, Literal

from huggingface_hub.dataclasses import strict

from .configuration_moments import MomentRetrievalConfig


@strict
class ReLoCLNetConfig(MomentRetrievalConfig):
    """Describe a ReLoCLNet (Zhang et al., SIGIR 2021, "Video Corpus Moment Retrieval with Contrastive Learning").

    The fields are those of `MomentRetrievalConfig`, with the settings of the released code, and those below.

    Args:
        frame_contrast_weight: Weight of the loss that draws the clips of a moment to its query.
        video_contrast_weight: Weight of the loss that draws a query to its video.

    Example:
        >>> ReLoCLNetConfig().long_videos
        'pool'
    """

    model_type = "reloclnet"

    hidden_size: int = 384
    num_attention_heads: int = 8
    max_video_clips: int = 128
    score_scale: float | int = 30.0
    long_videos: Literal["pool", "truncate"] = "pool"
    frame_contrast_weight: float | int = 0.03
    video_contrast_weight: float | int = 0.03

    def __post_init__(self, **kwargs: Any) -> None:
        """Name the files that travel with a saved model."""
        self.name_code(kwargs, "ReLoCLNet")
        super().__post_init__(**kwargs)
