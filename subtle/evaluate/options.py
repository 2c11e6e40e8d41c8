"""The options of what measures, by recipe."""

from dataclasses import dataclass
from typing import Literal

from subtle.options import option
from subtle.run.model_folders import MINIATURE_CLIP, MINIATURE_VIDCLIP
from subtle.run.shared_config import (
    FIG_DATASETS,
    TFCOVR_DATASETS,
    BuildConfig,
    ContrastConfig,
    DataConfig,
    Device,
    FrameCacheConfig,
    Granularity,
    MomentDataConfig,
    Protocol,
    QueryParts,
    RunConfig,
    Selection,
)
from subtle.tfcovr.systems import SYSTEMS


@dataclass
class EvaluateConfig(RunConfig, FrameCacheConfig, DataConfig):
    """Which models to measure, on what, and how."""

    models: list[str] = option(["outputs/stage2/model"], "Model folders that stage2.py wrote, one for each seed.")
    name: str = option("two-stage", "Name of these models in tables.")
    embeddings: str = option("outputs/embeddings/stage1", "Folder of embed.py's embeddings; made where missing.")
    split: str | None = option(None, "Split to measure on; none: test, or where there is none validation.")
    gallery: Literal["clips", "targets"] = option(
        "clips", "What is ranked: every clip of the split, or only those that are the target of some query."
    )
    protocol: Protocol = option("standard", "Protocol; tfcovr-official gives what the released script would print.")
    query: QueryParts = option("both", "Parts of the query that the model sees.")
    query_frames: int | None = option(
        None, "Frames of a query's clip where they differ from a target's, as the model was trained; none: as many."
    )
    compare: bool = option(False, "Measure --systems instead of --models; what is missing is trained.")
    systems: list[str] = option([system.name for system in SYSTEMS], "Systems that --compare measures.")
    seeds: list[int] = option([0], "Seeds of the training that --compare does.")
    stage2_config: str | None = option(
        None, "YAML file of stage2.py for that training; none: as the first of --models was trained."
    )
    image_model: str = option(MINIATURE_CLIP, "Image model whose frame average is stage-2-only's video encoder.")
    runs_dir: str = option("outputs/systems", "Folder for the systems that --compare trains.")
    num_workers: int = option(2, "Processes that decode videos; 0: this one decodes.")
    output_dir: str = option("outputs/evaluation", "Folder for results.json and the predictions.")


@dataclass
class EvaluateCompConfig(ContrastConfig):
    """Which models to measure, and on what."""

    models: list[str] = option(
        ["outputs/vidclip/comploss/model", MINIATURE_VIDCLIP, MINIATURE_CLIP],
        "Model folders or names on the Hub.",
    )
    split: str | None = option(None, "Split to measure on; none: test, or where there is none validation.")
    pairs: str | None = option(
        None, "Table of counterfactual pairs of your own, to measure instead of --dataset; their videos: --video_dir."
    )
    threshold_split: str | None = option(
        None, "Split of --dataset on which each model's threshold for StrictVLE is fitted; none: no StrictVLE."
    )
    compare: bool = option(False, "Measure what each of --objectives trains instead of --models.")
    draws: int = option(1, "Drawings of orders, replacements and intervals to average over; published pairs have 1.")
    objectives: list[Literal["clip", "negclip", "comploss", "comppretrain", "captioning"]] = option(
        ["clip", "negclip", "comploss", "comppretrain"],
        "Objectives that --compare trains; comppretrain is CompLoss after CompPretrain, captioning is InfoNCE and "
        "CoCa's captioning loss.",
    )
    score: Literal["embedding", "likelihood"] = option(
        "embedding",
        "Compare by embeddings, or by the likelihood of the text given the video: captioning only, without R@1.",
    )
    seeds: list[int] = option([0], "Seeds of the fine-tuning that --compare does.")
    vidclip_config: str | None = option(
        None,
        "YAML file of vidclip.py for that fine-tuning, its captioning_weight for captioning alone; none: defaults.",
    )
    pretrain_config: str = option(
        "recipes/configs/vidclip_miniature_stacked.yaml",
        "YAML file of vidclip.py for CompPretrain.",
    )
    runs_dir: str = option("outputs/vidclip_runs", "Folder for the models that --compare trains.")
    num_frames: int | None = option(
        None, "Frames of each video; none: as each model was made for, 12 for an image model."
    )
    batch_size: int = option(32, "Videos per forward pass.")
    num_workers: int = option(0, "Processes that read videos; 0: this one reads them.")
    device: Device = option("auto", "Where to compute; auto: on the GPU where there is one.")
    output_dir: str = option("outputs/evaluate_comp", "Folder for results.json and the similarities.")
    seed: int = option(0, "Seed to record in results.json; --compare trains with --seeds.")

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise ValueError(f"--draws {self.draws}: at least 1 draw of the pairs is needed")
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
        if self.pairs and self.draws > 1:
            raise ValueError(f"--draws {self.draws}: the table of --pairs has no other drawings; leave --draws out")


@dataclass
class EvaluateVCMRConfig(MomentDataConfig):
    """Which models to measure, on what, and how."""

    models: list[str] = option(["outputs/vcmr/model"], "Model folders that vcmr.py wrote.")
    split: str | None = option(None, "Split to measure on; none: test, or where there is none validation.")
    queries: list[Granularity] = option(["fine"], "Captions to query with.")
    compare: bool = option(False, "Train what is missing of --architectures and measure it instead of --models.")
    architectures: list[Literal["xml", "reloclnet", "hero"]] = option(
        ["xml", "reloclnet", "hero"], "Architectures that --compare trains."
    )
    train_on: list[Granularity] = option(["coarse", "fine"], "Captions that --compare trains on.")
    seeds: list[int] = option([0], "Seeds of the training that --compare does.")
    vcmr_config: str | None = option(None, "YAML file of vcmr.py for that training; none: its defaults.")
    runs_dir: str = option("outputs/vcmr_runs", "Folder for the models that --compare trains.")
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
    max_queries: int | None = option(None, "Queries of --two_step, drawn by the seed; none: all.")
    legacy_truncate: bool = option(False, "Let NMS see the first 100 candidates only, as the released code does.")
    batch_size: int = option(64, "Queries or videos per forward pass.")
    memory_megabytes: float = option(96, "Memory for the scores of a block of the corpus, in megabytes.")
    corpus_dir: str | None = option(
        None, "Folder for the encoded corpus, where it is larger than memory; none: keep it in memory."
    )
    device: Device = option("auto", "Where to compute; auto: on the GPU where there is one.")
    output_dir: str = option("outputs/vcmr_evaluation", "Folder for results.json and the submissions.")
    seed: int = option(0, "Seed of what is drawn at random; --compare trains with --seeds.")

    def __post_init__(self) -> None:
        if not 0 <= self.without_moment < 1:
            raise ValueError(f"--without_moment must lie in [0, 1), not {self.without_moment}")


@dataclass
class EvaluateMTEBConfig:
    """Which models to measure, and on which tasks."""

    models: list[str] = option(["outputs/stage2/model"], "Model folders, or names that mteb knows.")
    baselines: list[Literal["none", "random", "text-only", "video-only"]] = option(
        ["random", "text-only", "video-only"], "Baselines to measure beside them; none: no baseline."
    )
    tasks: list[str] = option(["TFCoVR"], "Tasks, by name.")
    dataset: str | None = option(
        None,
        "Folder, or repository on the Hub, of the tasks' dataset; none: the datasets that the tasks are named after.",
    )
    dataset_config: str | None = option(
        None, "Configuration of the tasks' datasets: mini, release, source or own; none: mini, of a folder composed."
    )
    data_dir: str | None = option(None, "Folder of the annotations; none where they need none, as the miniature.")
    video_dir: str | None = option(None, "Folder of the videos; none where the dataset knows its own.")
    split: str | None = option(None, "Split to measure on; none: test, or where there is none validation.")
    as_sentence_transformer: bool = option(False, "Load every folder with sentence-transformers, also models of ours.")
    trust_remote_code: bool = option(False, "Let a folder of sentence-transformers run the code that it holds.")
    num_frames: int | None = option(
        12, "Frames that mteb gives a model of sentence-transformers; none: all, of which its processor takes some."
    )
    batch_size: int = option(16, "Videos or texts per forward pass.")
    num_workers: int = option(
        2, "Processes that decode videos; 0: this one decodes, and a video that hangs hangs the run."
    )
    device: Device = option("auto", "Where to compute; auto: on the GPU where there is one.")
    output_dir: str = option("outputs/evaluate_mteb", "Folder for results.json and mteb's results.")
    seed: int = option(0, "Seed of the random baseline.")


@dataclass
class JudgeConfig(BuildConfig, ContrastConfig):
    """What to judge, with how many frames of which size."""

    split: str | None = option(None, "Split to judge; none: test, or where there is none validation.")
    num_frames: int = option(8, "Frames of each video.")
    max_side: int = option(448, "Longer side of a frame, in pixels; smaller frames stay as they are.")
    max_output_tokens: int = 8
    counterfactual: bool = option(
        False, "Also ask three more questions of each segment mismatch, for text, video and group score."
    )
    max_answers: int = option(1, "Answers per row until it counts as unreadable; the paper requests one.")
    output_dir: str = "outputs/judge"


@dataclass
class ReportConfig(DataConfig):
    """What to report on and how much of it to show."""

    dataset: str | None = option(  # type: ignore[assignment]
        None, "Name of the dataset; none: that of the evaluation.", names=TFCOVR_DATASETS
    )
    dataset_config: str | None = option(  # type: ignore[assignment]
        None, "Its configuration: mini, release, source or own; none: that of the evaluation."
    )
    split: str | None = option(None, "Split that was measured; none: that of the evaluation.")
    evaluation_dir: str = option("outputs/evaluation", "Folder that evaluate.py tfcovr wrote.")
    output_dir: str = option("outputs/report", "Folder for index.html and per_label.csv.")
    title: str = option("Composed video retrieval", "Title of the page.")
    num_queries: int = option(20, "Queries to show with their clips; 0: none.")
    selection: Selection = option(
        "worst", "Which queries: the lowest average precision of each target first, or drawn from all."
    )
    ranks: int = option(12, "Most answers shown for a query: as many as are right and 2 more, up to this.")
    num_labels: int = option(10, "Labels in the table of the easiest and the hardest.")
    seed: int = option(0, "Seed of the draw of queries.")


@dataclass
class AnalyzeFIGConfig:
    """What to analyze, and how."""

    release: str | None = option(
        None, "Folder of the published files of one dataset; replaces the following three options."
    )
    dataset: str = option("charades_fig", "Name of the dataset.", names=FIG_DATASETS)
    dataset_config: str = option("mini", "Its configuration: mini, release or source.")
    data_dir: str | None = option(None, "Folder of its annotations; none where it needs none, as the miniature.")
    video_dir: str | None = option(None, "Folder of its videos; none where the dataset knows its own.")
    encoder: str = option(
        "tfidf",
        "What captions are compared by: tfidf (word statistics), or a text model's folder or name on the Hub.",
    )
    eps: float = option(0.01, "DBSCAN's eps: cosine distance below which two captions are the same.")
    min_samples: int = option(2, "Captions that make a cluster of DBSCAN.")
    tsne_min_samples: int = option(16, "The same for the clusters of the map.")
    tsne: bool = option(True, "Draw the map of captions (Figure 5).")
    user_study: bool = option(False, "Write the forms of the user study.")
    items_per_kind: int = option(50, "Captions of each kind in the user study.")
    items_per_form: int = option(30, "Captions in one form.")
    answers: str | None = option(None, "Folder of the forms and the exported answers, to add them up; none: analyze.")
    vote: Literal["single", "majority"] = option(
        "single", "What counts in the user study: each answer, or the majority for each caption."
    )
    output_dir: str = option("outputs/analysis", "Folder for plots, forms and results.json.")
    seed: int = option(0, "Seed of the map and of the draw of captions.")

    def __post_init__(self) -> None:
        if self.items_per_kind < 1 or self.items_per_form < 1 or self.min_samples < 1 or self.eps <= 0:
            raise ValueError("--items_per_kind, --items_per_form, --min_samples and --eps must be positive")


@dataclass
class AnalyzeTFCoVRConfig(DataConfig):
    """What to analyze."""

    top_words: int = option(30, "Words of the modification texts to list.")
    similarity_model: str | None = option(
        None,
        "CLIP-like text model or sentence encoder, a folder or a name on the Hub, whose pairs of TF-CoVR's 306 labels "
        "to compare with those by attributes; none: do not compare.",
    )
    output_dir: str = option("outputs/tfcovr_analysis", "Folder for the plots and results.json.")

    def __post_init__(self) -> None:
        if self.top_words < 1:
            raise ValueError("--top_words must be positive")
