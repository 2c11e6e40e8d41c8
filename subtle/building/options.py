"""The options of `build tfcovr`, `build comp`, `build fig`, `caption write`, `caption rewrite`, `caption select`."""

from dataclasses import dataclass
from typing import Any, Literal

from subtle.options import option
from subtle.run.shared_config import BuildConfig, DataConfig, Device


@dataclass
class BuildTFCoVRConfig(BuildConfig):
    """What to build from; the defaults are for the miniature."""

    source: str | None = option(
        None, "Folder with the annotations of FineGym, FineDiving or both; none: the miniature."
    )
    data_dir: str | None = option(None, "Folder with a table of your own clips, or the table, in place of --source.")
    video_dir: str | None = option(None, "Folder of your videos; clips without theirs are left out.")
    marks: str | None = option(
        None, "Table of search results marked right or wrong, as demo.py writes it; the right ones become triplets."
    )
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
    max_triplets_per_pair: int | None = option(100, "Most triplets per pair of labels; none: all.")
    validation_fraction: float | None = option(
        None, "Share (0 to 1) of the videos for validation; none: 0.1, of own clips 0.2."
    )
    test_fraction: float | None = option(None, "Share (0 to 1) of the videos for test; none: 0.1, of own clips 0.2.")
    max_output_tokens: int = 128
    output_dir: str = "outputs/build_tfcovr"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source and self.data_dir:
            raise ValueError("--source has upstream annotations and --data_dir your own clips: give one of them")
        if self.video_dir and not self.data_dir:
            raise ValueError("--video_dir has the videos of your own clips: give their table with --data_dir")
        if self.marks and not self.video_dir:
            raise ValueError("--marks needs your own clips and videos: give --data_dir and --video_dir")
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
class BuildCompConfig(BuildConfig):
    """What to build from, and how."""

    source: str = option("", "Folder with train*.json and val*.json; needed.")
    dataset: Literal["auto", "activitynet", "youcook2"] = option(
        "auto", "What the annotations are of; auto: by the folder's name."
    )
    max_iou: float = option(0.5, "Of two events with a larger temporal IoU (0 to 1) the longer is kept.")
    output_dir: str = "outputs/build_comp"


@dataclass
class BuildFigConfig(BuildConfig):
    """What to build from, and how."""

    source: str = option("", "Folder with the coarse captions of one dataset; needed.")
    video_dir: str | None = option(None, "Folder of the videos; needed with --model.")
    num_frames: int = option(8, "Frames of each moment that questions are answered from.")
    rewritings: bool = option(True, "Also write the noise evaluator's training captions.")
    output_dir: str = "outputs/build_fig"


OUTPUT, SCORES = "outputs/captions", "outputs/caption_scores"


@dataclass
class CaptionWriteConfig(BuildConfig, DataConfig):
    """What to caption, with how many frames of which size."""

    split: str | None = option(None, "Split whose clips are captioned; none: test, or where there is none validation.")
    only_queries: bool = option(False, "Only the clips that a query starts from, which are all that TF-CVR needs.")
    sport: Literal["gymnastics", "diving"] | None = option(
        None, "Prompt for clips without a label of TF-CoVR; none: they are rejected. Labeled clips have their own."
    )
    num_frames: int = option(12, "Frames of each clip.")
    max_side: int = option(448, "Longer side of a frame, in pixels; smaller frames stay as they are.")
    any_form: bool = option(
        False, "Accept English lines without the form that the prompts ask for, as of models that do not keep to it."
    )
    captions: list[str] | None = option(
        None, f"Tables with clip_id and caption to score instead, of any origin; the result then goes to {SCORES}."
    )
    examples: int = option(5, "Labels of each sport that are shown beside a caption.")
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
class CaptionRewriteConfig(BuildConfig, DataConfig):
    """Which queries to rewrite, from which captions."""

    split: str | None = option(
        None, "Split whose queries are rewritten; none: test, or where there is none validation."
    )
    captions: str | None = option(
        None, "Table of the clips' captions, of `caption.py write`; none: captions of the clips' labels."
    )
    sport: Literal["gymnastics", "diving"] | None = option(
        None, "Sport of clips without a label of TF-CoVR; none: their queries are rejected."
    )
    any_form: bool = option(
        False, "Accept English lines without the form of the caption prompts, as for captions without it."
    )
    examples: int = option(5, "Labels of each sport that are shown beside a rewritten caption.")
    max_output_tokens: int = 160
    output_dir: str = "outputs/rewritten"


@dataclass
class CaptionSelectConfig:
    """Which captions to choose from, and with which model."""

    build: str = option("outputs/build_fig", "Folder that build.py fig wrote.")
    video_dir: str | None = option(None, "Folder of its videos; needed.")
    model: str = option(
        "outputs/noise_evaluator/model", "Noise evaluator, or a BLIP: a model folder or a name on the Hub."
    )
    num_frames: int = option(8, "Frames of each moment.")
    device: Device = option("auto", "Where to compute; auto: on the GPU where there is one.")
    output_dir: str = option("outputs/judged_fig", "Folder for the dataset with the chosen captions.")
