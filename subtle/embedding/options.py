"""The options of `embed`, `embed moments`."""

from dataclasses import dataclass

from subtle.options import option
from subtle.run.model_folders import MINIATURE_CLIP
from subtle.run.shared_config import (
    MINIATURE_CLIP_SECONDS,
    ActorConfig,
    MomentFeaturesConfig,
    ReadingConfig,
    RunConfig,
    ShardsConfig,
    TowersConfig,
    VideosConfig,
)


@dataclass
class EmbedMomentsConfig(
    RunConfig, MomentFeaturesConfig, VideosConfig, ShardsConfig, ReadingConfig, TowersConfig, ActorConfig
):
    """What to encode, with what, and where to put it."""

    vision_model: str = MINIATURE_CLIP
    frames_per_clip: int | None = option(
        None,
        "Frames read for each vector; none: as many as a video model was trained with, 4 for an image model.",
    )
    output_dir: str | None = None  # type: ignore[assignment]  # outputs/features/DATASET
    batch_size: int = 64
    shard_size: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip_seconds is None:
            self.clip_seconds = MINIATURE_CLIP_SECONDS if self.dataset_config == "mini" else 1.0
        if self.clip_seconds <= 0 or (self.frames_per_clip is not None and self.frames_per_clip < 1):
            raise ValueError("--clip_seconds must be positive and --frames_per_clip at least 1")
