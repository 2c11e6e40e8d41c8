"""The parts of configurations that several recipes share; imports nothing that takes long."""

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
Selection = Literal["worst", "random"]
EndConvention = Literal[
    "inclusive", "exclusive", "xml_legacy", "hero_legacy"
]  # as in hf_models.moments.configuration_moments

TFCOVR_DATASETS = ("tfcovr",)
COMP_DATASETS = ("activitynet_comp", "youcook2_comp")
FIG_DATASETS = ("charades_fig", "didemo_fig", "activitynet_fig")
MINIATURE_CLIP_SECONDS = 0.5


@dataclass
class DataConfig:
    """The dataset."""

    dataset: str = option("tfcovr", "Name of the dataset.", names=TFCOVR_DATASETS)
    dataset_config: str = option("mini", "Its configuration: mini, hard, release, source, own or composed.")
    data_dir: str | None = option(None, "Folder of its annotations; none where it needs none, as the miniature.")
    video_dir: str | None = option(None, "Folder of its videos; none where the dataset knows its own.")

    @property
    def spread(self) -> Literal["middles", "seconds"]:
        """Over what the frames of a clip are spread: of one's own footage as an index does it, else as the papers."""
        return "seconds" if self.dataset_config == "own" else "middles"


@dataclass
class ContrastConfig(DataConfig):
    """Which dataset of contrast pairs a recipe reads."""

    dataset: str = option("activitynet_comp", "Name of the dataset.", names=COMP_DATASETS)


@dataclass
class MomentDataConfig:
    """The dataset, its features, and the spans to look for."""

    dataset: str = option("charades_fig", "Name of the dataset.", names=FIG_DATASETS)
    dataset_config: str = option("mini", "Its configuration: mini, release or source.")
    data_dir: str | None = option(None, "Folder of its annotations; none where it needs none, as the miniature.")
    features: str = option(
        "outputs/features/charades_fig",
        "Folder of the features that embed.py moments wrote, or of the authors' HDF5 files.",
    )
    clip_seconds: float | None = option(
        None, "Seconds of video that one feature vector stands for; none: as the features say, or 1."
    )
    normalize_features: bool = option(True, "Scale every vector of a clip or token to length 1.")
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
class FrameCacheConfig:
    """Decoded frames."""

    cache_dir: str = option(
        "outputs/frames", "Folder of the frames that stage1.py decodes; clips that are there are not decoded again."
    )


@dataclass
class EncoderConfig(FrameCacheConfig):
    """The encoders and how clips and texts are prepared for them."""

    vision_model: str = option("outputs/stage1/model", "Video or image encoder: a model folder or a name on the Hub.")
    vision_model_class: str | None = option(
        None, "Its class in transformers, such as CLIPVisionModelWithProjection; none: AutoModel's choice."
    )
    text_model: str = option(MINIATURE_CLIP, "Text encoder: a model folder or a name on the Hub.")
    text_model_class: str | None = option(
        None,
        "Its class in transformers; none: CLIPTextModelWithProjection for CLIP, else AutoModel's choice.",
    )
    num_frames: int | None = option(
        None, "Frames of each clip; none: as the video processor says, or the model, or 12."
    )
    number_words: bool = option(False, "Spell numbers in texts out (2.5: two and a half), as the released code does.")


@dataclass
class ClassifierConfig:
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
    num_frames: int = option(12, "Frames of each clip.")
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
    backbone_learning_rate_factor: float = option(
        1.0, "Learning rate of CLIP's own weights with --full, times --learning_rate."
    )
    weight_decay: float = option(0.02, "AdamW's weight decay; not of norms, biases and embeddings.")
    activation_checkpointing: bool = option(False, "Recompute activations: less memory, more time.")


@dataclass
class RunConfig:
    """Device, precision and seed."""

    device: Device = option("auto", "Where to compute; auto: on the GPU where there is one.")
    mixed_precision: MixedPrecision | None = option(
        None, "Floating-point type of the forward pass; none: as `accelerate launch` is configured."
    )
    seed: int = option(0, "Seed of everything random.")


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
class TrainingRunConfig(RunConfig):
    """How the run is kept, resumed and tracked."""

    checkpoint_steps: int = option(200, "Optimizer steps between two checkpoints.")
    restart: bool = option(False, "Forget what an earlier run left in --output_dir instead of resuming it.")
    tracker: str | None = option(
        None,
        "Experiment tracker by its name in accelerate, such as tensorboard, wandb or mlflow; none: no tracker.",
    )


@dataclass
class EmbedConfig(RunConfig, EncoderConfig, DataConfig, ActorConfig):
    """Which clips and texts to encode, how, and where to put their embeddings."""

    splits: list[str] | None = option(None, "Splits to encode; none: all that the dataset has.")
    output_dir: str = option("outputs/embeddings/stage1", "Folder for the embeddings and results.json.")
    shuffle_frames: bool = option(
        False, "Feed the frames of each clip in a random order, to see whether the encoder reads time."
    )
    batch_size: int = option(16, "Clips per forward pass, of each process.")
    shard_size: int = option(1024, "Clips or texts per file; a kill costs at most one file.")
    num_workers: int = option(2, "Processes that decode; 0: this one decodes, and a video that hangs hangs the run.")
    timeout_seconds: float = option(60.0, "Longest wait for the frames of one clip, in seconds.")


@dataclass
class BuildConfig:
    """The model that writes the texts, its limits, and the output."""

    output_dir: str = option("outputs/build", "Folder for the result; an earlier build there is replaced.")
    model: str | None = option(None, "Chat model, by the server's name for it; none: the rule-based generator.")
    base_url: str | None = option(None, "URL of an OpenAI-compatible server; none: OpenAI's.")
    api_key_env: str = option("OPENAI_API_KEY", "Environment variable that holds the key.")
    batch: bool = option(False, "Use the Batch API: half the price, answers within a day.")
    offline: bool = option(False, "Answer from the cache only; no network call.")
    dry_run: bool = option(False, "Print what the run would ask and cost; no network call.")
    max_usd: float | None = option(
        None, "Stop before all runs into --output_dir have cost more, in US dollars; none: no limit."
    )
    input_usd: float | None = option(
        None, "Price of an unlisted model, in US dollars per million input tokens; none: as listed."
    )
    output_usd: float | None = option(
        None, "Price of an unlisted model, in US dollars per million output tokens; none: as listed."
    )
    temperature: float | None = option(0.0, "Sampling temperature; none: the server's default.")
    max_output_tokens: int = option(512, "Longest answer, in tokens.")
    max_answers: int = option(2, "Answers per row until it is rejected.")
    max_concurrency: int = option(8, "Requests at the same time.")
    requests_per_minute: float | None = option(None, "Most requests per minute; none: no limit.")
    tokens_per_minute: float | None = option(None, "Most tokens per minute; none: no limit.")
    timeout_seconds: float = option(120.0, "Longest wait for one answer, in seconds.")
    cache: str = option("outputs/answers.sqlite", "File of all answers; all builds share it.")
    limit: int | None = option(None, "Build from the first rows only, this many; none: from all.")
    seed: int = option(0, "Seed of everything random.")
    quiet: bool = option(False, "No progress bars.")

    def __post_init__(self) -> None:
        if self.base_url and "@" in urlsplit(self.base_url).netloc:
            raise ValueError(f"--base_url carries a password; put the key into the variable {self.api_key_env}")
        if (self.batch or self.offline or self.dry_run or self.max_usd is not None) and not self.model:
            raise ValueError("--batch, --offline, --dry_run and --max_usd are for a chat model: name it with --model")
