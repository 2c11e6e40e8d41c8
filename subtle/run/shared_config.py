"""The options that several verbs have; imports nothing that takes long.

A verb inherits what it needs, and a class that only changes a default repeats `name: type = value`. Classes with the
same docstring are one group of `--help`.
"""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from subtle.options import option
from subtle.run.model_folders import MINIATURE_CLIP

Device = Literal["auto", "cpu", "cuda"]
MixedPrecision = Literal["no", "fp16", "bf16", "fp8"]
QueryParts = Literal["both", "video", "text"]  # as in hf_models.tfcovr.ranking, like the next
Protocol = Literal["standard", "tfcovr-official"]
Granularity = Literal["fine", "coarse"]
EndConvention = Literal[
    "inclusive", "exclusive", "xml_legacy", "hero_legacy"
]  # as in hf_models.moments.configuration_moments

TFCOVR_DATASETS = ("tfcovr",)
COMP_DATASETS = ("activitynet_comp", "youcook2_comp")
FIG_DATASETS = ("charades_fig", "didemo_fig", "activitynet_fig")
MINIATURE_CLIP_SECONDS = 0.5


@dataclass
class OutputConfig:
    """The run."""

    output_dir: str = option("outputs", "Folder for all that is written.")


@dataclass
class SeedConfig(OutputConfig):
    """The run."""

    seed: int = option(0, "Seed of everything random.")


@dataclass
class DeviceConfig:
    """The run."""

    device: Device = option("auto", "Where to compute; auto: on the GPU where there is one.")


@dataclass
class MachineConfig(DeviceConfig):
    """The run."""

    num_workers: int = option(2, "Processes that read videos; 0: this one reads, and a video that hangs hangs the run.")


@dataclass
class RunConfig(MachineConfig, SeedConfig):
    """The run."""

    mixed_precision: MixedPrecision | None = option(
        None, "Floating-point type of the forward pass; none: as `accelerate launch` is configured."
    )


@dataclass
class ReadingConfig(MachineConfig):
    """The run."""

    timeout_seconds: float = option(60.0, "Longest wait for the frames of one read, in seconds.")


@dataclass
class VideosConfig:
    """The dataset."""

    video_dir: str | None = option(None, "Folder of the videos; none: as the dataset, table or index knows them.")


@dataclass
class DataDirConfig:
    """The dataset."""

    data_dir: str | None = option(None, "Folder of the annotations; none where they need none, as the miniature.")


@dataclass
class AnnotationsConfig(DataDirConfig):
    """The dataset."""

    dataset_config: str = option(
        "mini", "Configuration of the dataset: mini, release or source; of TF-CoVR also hard, unseen, own or composed."
    )


@dataclass
class DataConfig(AnnotationsConfig, VideosConfig):
    """The dataset."""

    dataset: str = option("tfcovr", "Name of the dataset.", names=TFCOVR_DATASETS)

    @property
    def spread(self) -> Literal["middles", "seconds"]:
        """Over what the frames of a clip are spread: of one's own footage as an index does it, else as the papers."""
        return "seconds" if self.dataset_config == "own" else "middles"


@dataclass
class ContrastConfig(DataConfig):
    """The dataset."""

    dataset: str = option("activitynet_comp", "Name of the dataset.", names=COMP_DATASETS)


@dataclass
class DrawnContrastConfig(ContrastConfig):
    """The dataset."""

    draws: int = option(1, "Drawings of orders and replacements, each with its own; published pairs have 1.")

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise ValueError(f"--draws {self.draws}: at least 1 draw of the pairs is needed")


@dataclass
class MomentsConfig(AnnotationsConfig):
    """The dataset."""

    dataset: str = option("charades_fig", "Name of the dataset.", names=FIG_DATASETS)


@dataclass
class MomentFeaturesConfig(MomentsConfig):
    """The features of moments, and the spans to look for."""

    clip_seconds: float | None = option(
        None,
        "Seconds of video that one feature vector stands for; none: as the features say, which are made with "
        f"{MINIATURE_CLIP_SECONDS} for the miniature, whose moments are short, and 1 otherwise.",
    )


@dataclass
class MomentDataConfig(MomentFeaturesConfig):
    """The features of moments, and the spans to look for."""

    features: str = option(
        "outputs/features/charades_fig",
        "Folder of the features that `embed.py moments` wrote, or of the authors' HDF5 files.",
    )
    preset: str | None = option(
        None, "The following four values by the name of a dataset, or miniature; none: those of the dataset."
    )
    min_clips: int | None = option(None, "Shortest moment to look for, in clips; none: as the preset says.")
    max_clips: int | None = option(None, "Longest moment to look for, in clips; none: as the preset says.")
    max_video_clips: int | None = option(None, "Clips of a video that the model reads; none: as the preset says.")
    nms_threshold: float | None = option(
        None, "Temporal IoU (0 to 1) above which the lower-ranked span is dropped; none: as the preset says."
    )


@dataclass
class SplitConfig:
    """The dataset."""

    split: str | None = option(None, "Split to work on; none: test, or where there is none validation.")


@dataclass
class ModelsConfig(SplitConfig):
    """What is measured."""

    models: list[str] = option([], "Model folders, or names on the Hub.")


@dataclass
class SeedsConfig:
    """What is measured."""

    seeds: list[int] = option([0], "Seeds of what is trained, each of which is measured.")


@dataclass
class CompareConfig(ModelsConfig, SeedsConfig):
    """What is measured."""

    compare: bool = option(False, "Train what is missing of what is compared, and measure it instead of --models.")
    runs_dir: str = option("outputs/runs", "Folder for what --compare trains.")


@dataclass
class SampleConfig:
    """What is measured."""

    max_queries: int | None = option(None, "Queries to measure on, drawn by the seed; none: all.")


@dataclass
class GalleryConfig:
    """What is measured."""

    gallery: Literal["clips", "targets"] = option(
        "clips", "What is ranked: every clip of the split, or only those that are the target of some query."
    )
    protocol: Protocol = option("standard", "Protocol; tfcovr-official gives what the released script would print.")


@dataclass
class EmbeddingsConfig:
    """The encoders, and how clips and texts are prepared for them."""

    embeddings: str = option(
        "outputs/embeddings/stage1", "Folder of the embeddings of `embed.py clips`; made where missing."
    )


@dataclass
class QueryConfig(EmbeddingsConfig):
    """The encoders, and how clips and texts are prepared for them."""

    query: QueryParts = option("both", "Parts of the query that the model sees; text and video are baselines.")
    query_frames: int | None = option(
        None, "Frames of a query's clip where they differ from a target's, such as 1: the middle one; none: as many."
    )


@dataclass
class FramesConfig:
    """The encoders, and how clips and texts are prepared for them."""

    num_frames: int | None = option(None, "Frames of each clip; none: as the model was made for.")


@dataclass
class ChatFramesConfig(FramesConfig):
    """The encoders, and how clips and texts are prepared for them."""

    max_side: int = option(448, "Longer side of a frame, in pixels; smaller frames stay as they are.")


@dataclass
class BatchConfig:
    """The encoders, and how clips and texts are prepared for them."""

    batch_size: int = option(16, "Clips, texts or queries of a forward pass, of each process.")


@dataclass
class ShardsConfig(BatchConfig):
    """The encoders, and how clips and texts are prepared for them."""

    shard_size: int = option(256, "Clips, texts or videos per file of embeddings; a kill costs at most one file.")


@dataclass
class IndexModelConfig:
    """What to search."""

    model: str | None = option(None, "Model of the index, by name or key; none: the active one.")


@dataclass
class TrustConfig:
    """The run."""

    trust_remote_code: bool = option(False, "Run the code that a model's folder or repository holds.")


@dataclass
class DryRunConfig:
    """The run."""

    dry_run: bool = option(False, "Print what would be done, and what it takes or costs; do none of it.")


@dataclass
class CaptionsConfig:
    """Captions."""

    captions: str | None = option(
        None, "Table of clip_id and caption, as `caption.py write` makes it; none: made of the clips' labels."
    )


@dataclass
class CaptionFormConfig:
    """Captions."""

    sport: Literal["gymnastics", "diving"] | None = option(
        None, "Sport of clips without a label of TF-CoVR; none: they are rejected. Labels say their own."
    )
    any_form: bool = option(
        False, "Accept English lines without the form that the prompts ask for, as of models that do not keep to it."
    )


@dataclass
class OwnClipsConfig(VideosConfig):
    """The dataset."""

    marks: str | None = option(
        None, "Table of search results marked right or wrong, as serve.py writes it; the right ones are trained on."
    )
    validation_fraction: float | None = option(
        None, "Share (0 to 1) of the videos for validation; none: 0.1, of own clips 0.2."
    )
    test_fraction: float | None = option(None, "Share (0 to 1) of the videos for test; none: 0.1, of own clips 0.2.")


@dataclass
class ShuffleConfig:
    """The encoders, and how clips and texts are prepared for them."""

    shuffle_frames: bool = option(
        False, "Feed the frames of each clip in a random order, to see whether the encoder reads time."
    )


@dataclass
class OptimizerConfig:
    """Optimization."""

    epochs: int = option(10, "Passes over what is trained on.")
    batch_size: int = option(32, "Clips, moments or triplets of an optimizer step, of all processes together.")
    learning_rate: float = option(1e-3, "Highest learning rate, after the warm-up.")
    weight_decay: float = option(0.01, "AdamW's weight decay.")
    warmup_steps: float = option(0.0, "Optimizer steps of linear warm-up; below 1: their share of all steps.")
    max_gradient_norm: float = option(0.0, "Clip gradients to this norm; 0: do not clip.")


@dataclass
class AdamConfig:
    """Optimization."""

    adam_beta2: float = option(0.999, "AdamW's beta2.")


@dataclass
class ActivationConfig:
    """Optimization."""

    activation_checkpointing: bool = option(False, "Recompute activations: less memory, more time.")


@dataclass
class ContrastiveConfig:
    """Optimization."""

    loss: Literal["hn_nce", "infonce", "multi_positive"] = option(
        "multi_positive", "Hard negatives; in-batch; or in-batch where what says the same as the target is a positive."
    )
    temperature: float = option(0.07, "What similarities are divided by in the loss.")
    alpha: float = option(1.0, "Weight of the positive in hn_nce.")
    beta: float = option(0.0, "Hardness of the negatives in hn_nce; 0: all alike.")


@dataclass
class ReleasedLossConfig(ContrastiveConfig):
    """Optimization."""

    row_normalization: Literal["row", "official"] = option(
        "row", "Normalization of hn_nce's negative weights; official repeats a slip of the released code."
    )
    cosine_per: Literal["step", "epoch"] = option(
        "step", "How often the cosine moves; epoch: once in each, as in the released code."
    )


@dataclass
class TextsConfig:
    """The encoders, and how clips and texts are prepared for them."""

    number_words: bool = option(False, "Spell numbers in texts out (2.5: two and a half), as the released code does.")


@dataclass
class FrameCacheConfig:
    """The encoders, and how clips and texts are prepared for them."""

    cache_dir: str = option(
        "outputs/frames", "Folder of the frames that stage1.py decodes; clips that are there are not decoded again."
    )


@dataclass
class TowersConfig:
    """The encoders, and how clips and texts are prepared for them."""

    vision_model: str = option("outputs/stage1/model", "Video or image encoder: a model folder or a name on the Hub.")
    text_model: str = option(MINIATURE_CLIP, "Text encoder: a model folder or a name on the Hub.")


@dataclass
class EncoderConfig(TowersConfig, FrameCacheConfig, TextsConfig, FramesConfig):
    """The encoders, and how clips and texts are prepared for them."""

    vision_model_class: str | None = option(
        None, "Its class in transformers, such as CLIPVisionModelWithProjection; none: AutoModel's choice."
    )
    text_model_class: str | None = option(
        None,
        "Its class in transformers; none: CLIPTextModelWithProjection for CLIP, else AutoModel's choice.",
    )


@dataclass
class ClassifierConfig(OptimizerConfig, ActivationConfig, FramesConfig):
    """The classifier and how fast each part of it learns."""

    base: str = option(MINIATURE_CLIP, "CLIP whose vision tower AIM is built on: a model folder or a name on the Hub.")
    init_from: str | None = option(
        "auto",
        "Adapters (with --full a model) to go on from: their folder; auto: those that ship for the base, where they "
        "fit; none: start from the base.",
    )
    full: bool = option(False, "Train all weights instead of adapters on a frozen CLIP.")
    head: Literal["present", "all"] = option(
        "present",
        "Classes of the head: those of the training clips; or all 306 of TF-CoVR, of other labels those of all clips.",
    )
    num_frames: int = 12
    num_temporal_adapters: int = option(2, "Temporal adapters per block, 1 or 2.")
    adapter_ratio: float = option(1.0, "Width of an adapter's bottleneck as a share of the model's width.")
    adapter_scale: float = option(1.0, "Factor on the output of the adapter beside the MLP.")
    drop_path_rate: float = option(
        0.0, "Probability (0 to 1) of skipping the last block; earlier blocks linearly less."
    )
    classifier_dropout: float = option(0.1, "Dropout probability (0 to 1) before the head.")
    temporal_pooling: Literal["mean", "gru"] = option(
        "mean", "How the vectors of a clip's frames become one: their mean, as the paper, or with their order (GRU)."
    )
    factored_labels: bool = option(
        False, "Let labels share the weights of the words and pairs of words that they have in common."
    )
    time_amplitude: float = option(
        0.25, "Amplitude of the sinusoids that the temporal embedding starts from; 0: zeros, as AIM."
    )
    temporal_learning_rate_factor: float = option(
        10.0, "Learning rate of the temporal embedding, times --learning_rate."
    )
    weight_decay: float = 0.02


@dataclass
class ActorConfig:
    """One machine or many, and what each worker takes: it holds the model and starts --num_workers decoders."""

    engine: Literal["local", "ray"] = option(
        "local",
        "What runs it: this process; or workers of the Ray cluster at RAY_ADDRESS, without that variable of this "
        "machine.",
    )
    num_actors: int | None = option(
        None, "Workers of --engine ray; none: one for each GPU, without GPUs as many as there are cores for."
    )
    cpus_per_actor: int | None = option(
        None, "Cores that Ray reserves for each; none: one, and one for each process that decodes."
    )
    gpus_per_actor: float | None = option(
        None, "GPUs of each, such as 0.5 where two share one; none: 1 where there are any."
    )

    def __post_init__(self) -> None:
        if self.num_actors is not None and self.num_actors < 1:
            raise ValueError(f"--num_actors must be at least 1, not {self.num_actors}")
        for name in ("cpus_per_actor", "gpus_per_actor"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise ValueError(f"--{name} must be above 0, not {getattr(self, name)}; --device cpu uses no GPU")


@dataclass
class RestartConfig:
    """The run."""

    restart: bool = option(False, "Forget what an earlier run left in --output_dir instead of resuming it.")


@dataclass
class TrainingRunConfig(RunConfig, RestartConfig, OptimizerConfig):
    """The run."""

    max_steps: int | None = option(
        None, "Optimizer steps to train for, ending within an epoch if need be; none: as many as --epochs has."
    )
    checkpoint_steps: int = option(200, "Optimizer steps between two checkpoints.")
    max_hours: float | None = option(
        None,
        "Hours after which to write a checkpoint and end with status 75; the same command goes on; none: no limit.",
    )
    tracker: str | None = option(
        None,
        "Experiment tracker by its name in accelerate, such as tensorboard, wandb or mlflow; none: no tracker.",
    )
    profile: bool = option(False, "Write what steps 4 to 6 did where to trace_RANK.json, which ui.perfetto.dev shows.")


@dataclass
class EmbedConfig(RunConfig, EncoderConfig, ShuffleConfig, DataConfig, ShardsConfig, ReadingConfig, ActorConfig):
    """Which clips and texts to encode, how, and where to put their embeddings."""

    splits: list[str] | None = option(None, "Splits to encode; none: all that the dataset has.")
    import_from: str | None = option(
        None,
        "Take the embeddings of clips from this file (.pkl) or folder (.pth) of TF-CoVR's authors, which needs neither "
        "videos nor --vision_model; none: make them.",
    )
    output_dir: str = "outputs/embeddings/stage1"
    shard_size: int = 1024


@dataclass
class ChatConfig:
    """The chat model, its server and its prices."""

    base_url: str | None = option(None, "URL of an OpenAI-compatible server; none: OpenAI's.")
    api_key_env: str = option("OPENAI_API_KEY", "Environment variable that holds the key.")
    max_usd: float | None = option(
        None, "Stop before all runs into the same output have cost more, in US dollars; none: no limit."
    )
    input_usd: float | None = option(
        None, "Price of an unlisted model, in US dollars per million input tokens; none: as listed."
    )
    output_usd: float | None = option(
        None, "Price of an unlisted model, in US dollars per million output tokens; none: as listed."
    )

    def __post_init__(self) -> None:
        if self.base_url and "@" in urlsplit(self.base_url).netloc:
            raise ValueError(f"--base_url carries a password; put the key into the variable {self.api_key_env}")


@dataclass
class BuildConfig(SeedConfig, DryRunConfig, ChatConfig):
    """The chat model, its server and its prices."""

    output_dir: str = "outputs/build"
    model: str | None = option(None, "Chat model, by the server's name for it; none: the rule-based generator.")
    batch: bool = option(False, "Use the Batch API: half the price, answers within a day.")
    offline: bool = option(False, "Answer from the cache only; no network call.")
    temperature: float | None = option(0.0, "Sampling temperature; none: the server's default.")
    max_output_tokens: int = option(512, "Longest answer, in tokens.")
    max_answers: int = option(2, "Answers per row until it is rejected.")
    max_concurrency: int = option(8, "Requests at the same time.")
    requests_per_minute: float | None = option(None, "Most requests per minute; none: no limit.")
    timeout_seconds: float = option(120.0, "Longest wait for one answer, in seconds.")
    cache: str = option("outputs/answers.sqlite", "File of all answers; all builds share it.")
    limit: int | None = option(None, "Build from the first rows only, this many; none: from all.")
    quiet: bool = option(False, "No progress bars.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.batch or self.offline or self.dry_run or self.max_usd is not None) and not self.model:
            raise ValueError("--batch, --offline, --dry_run and --max_usd are for a chat model: name it with --model")
