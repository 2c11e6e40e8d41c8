"""The options of `embed`, `embed moments`."""

from dataclasses import dataclass

from subtle.options import option
from subtle.run.model_folders import MINIATURE_CLIP
from subtle.run.shared_config import FIG_DATASETS, MINIATURE_CLIP_SECONDS, ActorConfig, Granularity, RunConfig


@dataclass
class EmbedMomentsConfig(RunConfig, ActorConfig):
    """What to encode, with what, and where to put it."""

    dataset: str = option("charades_fig", "Name of the dataset.", names=FIG_DATASETS)
    dataset_config: str = option("mini", "Its configuration: mini, release or source.")
    data_dir: str | None = option(None, "Folder of its annotations; none where it needs none, as the miniature.")
    video_dir: str | None = option(None, "Folder of its videos; none where the dataset knows its own.")
    vision_model: str = option(MINIATURE_CLIP, "Image or video model: a model folder or a name on the Hub.")
    text_model: str = option(MINIATURE_CLIP, "Text model: a model folder or a name on the Hub.")
    clip_seconds: float | None = option(
        None,
        f"Seconds of video for one feature vector; none: {MINIATURE_CLIP_SECONDS} for the miniature, whose moments are "
        "short, and 1 otherwise.",
    )
    frames_per_clip: int | None = option(
        None,
        "Frames read for each vector; none: as many as a video model was trained with, 4 for an image model.",
    )
    granularities: list[Granularity] = option(["fine", "coarse"], "Captions to encode.")
    output_dir: str | None = option(None, "Folder for the features; none: outputs/features/DATASET.")
    batch_size: int = option(64, "Captions per forward pass.")
    shard_size: int = option(64, "Videos per file; a kill costs at most one file.")
    num_workers: int = option(2, "Processes that decode; 0: this one decodes.")
    timeout_seconds: float = option(60.0, "Longest wait for the frames of one request, in seconds.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip_seconds is None:
            self.clip_seconds = MINIATURE_CLIP_SECONDS if self.dataset_config == "mini" else 1.0
        if self.clip_seconds <= 0 or (self.frames_per_clip is not None and self.frames_per_clip < 1):
            raise ValueError("--clip_seconds must be positive and --frames_per_clip at least 1")
