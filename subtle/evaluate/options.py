"""The options of what measures, by recipe."""

from dataclasses import dataclass, field
from typing import Literal

from subtle.options import option
from subtle.run.model_folders import MINIATURE_CLIP, MINIATURE_VIDCLIP
from subtle.run.shared_config import (
    AnnotationsConfig,
    BatchConfig,
    BuildConfig,
    ChatFramesConfig,
    CompareConfig,
    ContrastConfig,
    DataConfig,
    DrawnContrastConfig,
    FrameCacheConfig,
    FramesConfig,
    GalleryConfig,
    Granularity,
    MachineConfig,
    ModelsConfig,
    MomentDataConfig,
    MomentsConfig,
    OutputConfig,
    QueryConfig,
    RunConfig,
    SampleConfig,
    SeedConfig,
    SplitConfig,
    TrustConfig,
    VideosConfig,
)
from subtle.tfcovr.systems import SYSTEMS


@dataclass
class EvaluateConfig(RunConfig, CompareConfig, QueryConfig, GalleryConfig, FrameCacheConfig, DataConfig):
    """Which models to measure, on what, and how."""

    models: list[str] = field(default_factory=lambda: ["outputs/stage2/model"])
    name: str = option("two-stage", "Name of these models in tables.")
    systems: list[str] = option([system.name for system in SYSTEMS], "Systems that --compare measures.")
    stage2_config: str | None = option(
        None, "YAML file of stage2.py for what --compare trains; none: as the first of --models was trained."
    )
    image_model: str = option(MINIATURE_CLIP, "Image model whose frame average is stage-2-only's video encoder.")
    runs_dir: str = "outputs/systems"
    output_dir: str = "outputs/evaluation"


@dataclass
class EvaluateCompConfig(
    SeedConfig, CompareConfig, SampleConfig, MachineConfig, BatchConfig, FramesConfig, DrawnContrastConfig
):
    """Which models to measure, and on what."""

    models: list[str] = field(
        default_factory=lambda: ["outputs/vidclip/comploss/model", MINIATURE_VIDCLIP, MINIATURE_CLIP]
    )
    pairs: str | None = option(
        None, "Table of counterfactual pairs of your own, to measure instead of --dataset; their videos: --video_dir."
    )
    retrieval: Literal["msrvtt_1ka", "msrvtt", "activitynet"] | None = option(
        None,
        "Retrieval benchmark to measure instead of --dataset: MSR-VTT's 1k-A, its whole test split, or paragraphs of "
        "ActivityNet's val_1; its split file: --data_dir, its videos: --video_dir.",
    )
    dual_softmax: bool = option(
        False, "Weigh similarities by their softmax over all queries before ranking, which a search cannot."
    )
    threshold_split: str | None = option(
        None, "Split of --dataset on which each model's threshold for StrictVLE is fitted; none: no StrictVLE."
    )
    objectives: list[Literal["clip", "negclip", "comploss", "comppretrain", "captioning"]] = option(
        ["clip", "negclip", "comploss", "comppretrain"],
        "Objectives that --compare trains; comppretrain is CompLoss after CompPretrain, captioning is InfoNCE and "
        "CoCa's captioning loss.",
    )
    score: Literal["embedding", "likelihood"] = option(
        "embedding",
        "Compare by embeddings, or by the likelihood of the text given the video: captioning only, without R@1.",
    )
    vidclip_config: str | None = option(
        None,
        "YAML file of vidclip.py for that fine-tuning, its captioning_weight for captioning alone; none: defaults.",
    )
    pretrain_config: str = option("vidclip_miniature_stacked.yaml", "YAML file of vidclip.py for CompPretrain.")
    runs_dir: str = "outputs/vidclip_runs"
    batch_size: int = 32
    num_workers: int = 0
    output_dir: str = "outputs/evaluate_comp"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split and self.threshold_split == self.split and not self.pairs:
            other = "train" if self.split == "validation" else "validation"
            raise ValueError(
                f"--threshold_split {self.split} is the split that is measured; fit the threshold on another, such as "
                f"{other}"
            )
        if self.compare and self.score == "likelihood" and set(self.objectives) != {"captioning"}:
            raise ValueError(
                "--score likelihood needs models with a text decoder, which only the objective captioning trains: give "
                "--objectives captioning"
            )
        if (self.pairs or self.retrieval) and self.draws > 1:
            raise ValueError(f"--draws {self.draws}: only --dataset has other drawings; leave --draws out")
        if self.retrieval and (self.pairs or self.threshold_split or self.score == "likelihood"):
            raise ValueError("--retrieval ranks by embeddings alone; leave --pairs, --threshold_split and --score out")


@dataclass
class EvaluateVCMRConfig(SeedConfig, CompareConfig, SampleConfig, MachineConfig, BatchConfig, MomentDataConfig):
    """Which models to measure, on what, and how."""

    models: list[str] = field(default_factory=lambda: ["outputs/vcmr/model"])
    queries: list[Granularity] = option(["fine"], "Captions to query with.")
    architectures: list[Literal["xml", "reloclnet", "hero"]] = option(
        ["xml", "reloclnet", "hero"], "Architectures that --compare trains."
    )
    train_on: list[Granularity] = option(["coarse", "fine"], "Captions that --compare trains on.")
    vcmr_config: list[str] | None = option(
        None,
        "YAML files of vcmr.py for that training, of which each overrides those before it; one that names a model is "
        "for this architecture alone. None: its defaults.",
    )
    runs_dir: str = "outputs/vcmr_runs"
    without_moment: float = option(
        0.0, "Share (0 to 1) of the queries whose video is taken out, to measure how many are told so; 0: do not."
    )
    calibration_split: str | None = option(
        None,
        "Split that chooses the threshold of --without_moment; none: validation, or where there is none train.",
    )
    two_step: bool = option(False, "Measure what the models add to an index of windows, as search.py --refine.")
    matchers: list[str] = option([], "Cross-encoders for --two_step to re-rank with: one, or one for each seed.")
    index_model: str = option(MINIATURE_CLIP, "Model of the vectors of --two_step: a model folder or a Hub name.")
    window_seconds: float = option(2.0, "Length of a window of --two_step; one begins every half of it.")
    shortlist: int = option(50, "Windows that the second step of --two_step looks at.")
    rerank_shortlist: int = option(20, "Moments that --matchers look at.")
    legacy_truncate: bool = option(False, "Let NMS see the first 100 candidates only, as the released code does.")
    batch_size: int = 64
    output_dir: str = "outputs/vcmr_evaluation"

    def __post_init__(self) -> None:
        if not 0 <= self.without_moment < 1:
            raise ValueError(f"--without_moment must lie in [0, 1), not {self.without_moment}")


@dataclass
class EvaluateMTEBConfig(
    SeedConfig, ModelsConfig, AnnotationsConfig, VideosConfig, TrustConfig, BatchConfig, MachineConfig, FramesConfig
):
    """Which models to measure, and on which tasks."""

    models: list[str] = field(default_factory=lambda: ["outputs/stage2/model"])
    baselines: list[Literal["none", "random", "text-only", "video-only"]] = option(
        ["random", "text-only", "video-only"], "Baselines to measure beside them; none: no baseline."
    )
    tasks: list[str] = option(["TFCoVR"], "Tasks, by name.")
    dataset: str | None = option(
        None,
        "Folder, or repository on the Hub, of the tasks' dataset; none: the datasets that the tasks are named after.",
    )
    dataset_config: str | None = None  # type: ignore[assignment]  # mini, of a folder composed
    as_sentence_transformer: bool = option(False, "Load every folder with sentence-transformers, also models of ours.")
    num_frames: int | None = 12
    output_dir: str = "outputs/evaluate_mteb"


@dataclass
class JudgeConfig(BuildConfig, SplitConfig, SampleConfig, ChatFramesConfig, ContrastConfig):
    """What to judge, with how many frames of which size."""

    num_frames: int = 8
    max_output_tokens: int = 8
    counterfactual: bool = option(
        False, "Also ask three more questions of each segment mismatch, for text, video and group score."
    )
    own_questions: bool = option(
        False,
        "Ask the paper's question, the texts in an order that the seed decides, instead of the data's own question.",
    )
    leave_out_unreadable: bool = option(
        False, "Leave replies that are not an answer out of the accuracy, instead of counting them as wrong."
    )
    max_answers: int = 1  # as the paper requests
    output_dir: str = "outputs/judge"


@dataclass
class ReportConfig(SeedConfig, SplitConfig, DataConfig):
    """What to report on and how much of it to show."""

    dataset: str | None = None  # type: ignore[assignment]  # that of the evaluation
    dataset_config: str | None = None  # type: ignore[assignment]  # likewise
    evaluation_dir: str = option("outputs/evaluation", "Folder that evaluate.py tfcovr wrote.")
    output_dir: str = "outputs/report"
    num_queries: int = option(20, "Queries to show with their clips; 0: none.")
    title: str = option("Composed video retrieval", "Title of the page.")


@dataclass
class AnalyzeFIGConfig(SeedConfig, MomentsConfig, VideosConfig):
    """What to analyze, and how."""

    release: str | None = option(
        None, "Folder of the published files of one dataset; replaces the options of the dataset."
    )
    encoder: str = option(
        "tfidf",
        "What captions are compared by: tfidf (word statistics), or a text model's folder or name on the Hub.",
    )
    user_study: bool = option(False, "Write the forms of the user study.")
    answers: str | None = option(None, "Folder of the forms and the exported answers, to add them up; none: analyze.")
    output_dir: str = "outputs/analysis"


@dataclass
class AnalyzeTFCoVRConfig(OutputConfig, DataConfig):
    """What to analyze."""

    similarity_model: str | None = option(
        None,
        "CLIP-like text model or sentence encoder, a folder or a name on the Hub, whose pairs of TF-CoVR's 306 labels "
        "to compare with those by attributes; none: do not compare.",
    )
    output_dir: str = "outputs/tfcovr_analysis"


@dataclass
class AnalyzeCompConfig(OutputConfig, ContrastConfig):
    """What to count."""

    output_dir: str = "outputs/comp_analysis"
