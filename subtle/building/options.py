"""The options of `build` and `caption`, by their second words."""

from dataclasses import dataclass
from typing import Any, Literal

from subtle.options import option
from subtle.run.shared_config import (
    BuildConfig,
    CaptionFormConfig,
    CaptionsConfig,
    ChatFramesConfig,
    DataConfig,
    DeviceConfig,
    FramesConfig,
    OutputConfig,
    OwnClipsConfig,
    SplitConfig,
    VideosConfig,
)


@dataclass
class PromptedConfig(BuildConfig):
    """The chat model, its server and its prices."""

    prompts: Literal["own", "paper"] = option(
        "own",
        "Prompts of --model: this project's, or word for word those that the papers print, where they print one.",
    )


@dataclass
class AnnotatedConfig(PromptedConfig):
    """What to build from, and how."""

    source: str = option("", "Folder with the annotations; needed.")


@dataclass
class BuildTFCoVRConfig(PromptedConfig, OwnClipsConfig):
    """What to build from; the defaults are for the miniature."""

    source: str | None = option(
        None, "Folder with the annotations of FineGym, FineDiving or both; none: the miniature."
    )
    data_dir: str | None = option(None, "Folder with a table of your own clips, or the table, in place of --source.")
    similarity_model: str | None = option(
        None,
        "CLIP-like text model or sentence encoder whose cosines say how similar labels are; none: their attributes, "
        "or the characters of their descriptions.",
    )
    threshold: float | None = option(
        None,
        "Least similarity (-1 to 1) of two labels that make a pair; none: 0.6 of attributes, else 0.",
    )
    top_n: int | None = option(
        None, "Most target labels per source label; none: all above the threshold, of own clips 5."
    )
    pairs: str | None = option(
        None,
        "Sheet of pairs to review (CSV): where it is missing, it is written and the build stops; filled in with yes or "
        "no, its pairs are built. None: no review.",
    )
    max_triplets_per_pair: int | None = option(100, "Most triplets per pair of labels; none: all.")
    unseen_labels: float = option(
        0.0, "Share (0 to 1) of the labels to test on and not train on, a third as many to validate on; 0: none."
    )
    max_output_tokens: int = 128
    output_dir: str = "outputs/build_tfcovr"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source and self.data_dir:
            raise ValueError("--source has upstream annotations and --data_dir your own clips: give one of them")
        if self.data_dir and self.prompts == "paper":
            raise ValueError("--prompts paper is for TF-CoVR's labels: the paper prints no prompt for others")
        if self.video_dir and not self.data_dir:
            raise ValueError("--video_dir has the videos of your own clips: give their table with --data_dir")
        if self.marks and not self.video_dir:
            raise ValueError("--marks needs your own clips and videos: give --data_dir and --video_dir")
        if self.marks and self.unseen_labels:
            raise ValueError("--marks are trained on, whatever their labels: leave them or --unseen_labels out")
        is_own = self.data_dir is not None
        defaults: dict[str, Any] = {"top_n": 5 if is_own else None}
        defaults |= dict.fromkeys(("validation_fraction", "test_fraction"), 0.2 if is_own else 0.1)
        for name, value in defaults.items():
            if getattr(self, name) is None:
                setattr(self, name, value)

    @property
    def name(self) -> str:
        """The configuration that opens the result."""
        return "own" if self.data_dir else "source"


@dataclass
class BuildClipsConfig(DataConfig, OutputConfig):
    """What to cut, and where to."""

    dataset_config: str = "release"
    output_dir: str = "outputs/clips"


@dataclass
class BuildCompConfig(AnnotatedConfig):
    """What to build from, and how."""

    dataset: Literal["auto", "activitynet", "youcook2"] = option(
        "auto", "What the annotations are of; auto: by the folder's name."
    )
    output_dir: str = "outputs/build_comp"


@dataclass
class BuildFigConfig(AnnotatedConfig, FramesConfig, VideosConfig):
    """What to build from, and how."""

    num_frames: int = 8
    rewritings: bool = option(True, "Also write the noise evaluator's training captions.")
    output_dir: str = "outputs/build_fig"


OUTPUT, SCORES = "outputs/captions", "outputs/caption_scores"


@dataclass
class ScoredCaptionsConfig(BuildConfig, SplitConfig, CaptionFormConfig, DataConfig):
    """Captions."""

    examples: int = option(5, "Labels of each sport that are shown beside a caption.")


@dataclass
class CaptionWriteConfig(ScoredCaptionsConfig, PromptedConfig, ChatFramesConfig):
    """What to caption, with how many frames of which size."""

    only_queries: bool = option(False, "Only the clips that a query starts from, which are all that TF-CVR needs.")
    num_frames: int = 12
    captions: list[str] | None = option(
        None, f"Tables with clip_id and caption to score instead, of any origin; the result then goes to {SCORES}."
    )
    max_output_tokens: int = 128
    output_dir: str = OUTPUT

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.captions and self.model:
            raise ValueError("--captions scores captions that there are, --model asks for new ones: give one of them")
        if self.num_frames < 1 or self.max_side < 1:
            raise ValueError(f"--num_frames and --max_side are at least 1, not {self.num_frames} and {self.max_side}")
        if self.captions and self.output_dir == OUTPUT:
            self.output_dir = SCORES


@dataclass
class CaptionRewriteConfig(ScoredCaptionsConfig, CaptionsConfig):
    """Which queries to rewrite, from which captions."""

    max_output_tokens: int = 160
    output_dir: str = "outputs/rewritten"


@dataclass
class CaptionSelectConfig(DeviceConfig, OutputConfig, FramesConfig, VideosConfig):
    """Which captions to choose from, and with which model."""

    build: str = option("outputs/build_fig", "Folder that `build.py fig` wrote.")
    model: str = option(
        "outputs/noise_evaluator/model", "Noise evaluator, or a BLIP: a model folder or a name on the Hub."
    )
    num_frames: int = 8
    output_dir: str = "outputs/judged_fig"
