"""The options of what trains, by recipe."""

import time
from dataclasses import dataclass
from typing import Any, Literal

from subtle.options import option
from subtle.run.model_folders import MINIATURE_CLIP, MINIATURE_VIDCLIP
from subtle.run.shared_config import (
    COMP_DATASETS,
    ActivationConfig,
    AdamConfig,
    ClassifierConfig,
    ContrastiveConfig,
    DataConfig,
    DrawnContrastConfig,
    DryRunConfig,
    EncoderConfig,
    EndConvention,
    FrameCacheConfig,
    FramesConfig,
    Granularity,
    MomentDataConfig,
    OutputConfig,
    QueryConfig,
    ReleasedLossConfig,
    TrainingRunConfig,
    VideosConfig,
)


@dataclass
class Stage1Config(ClassifierConfig, TrainingRunConfig, AdamConfig, FrameCacheConfig, DryRunConfig, DataConfig):
    """What to train and how; the defaults are for the miniature."""

    validation: Literal["auto", "split", "train"] = option(
        "auto",
        "What to validate on; split: the split's labeled clips, train: long videos held out of training, auto: these "
        "only where the split has no labels.",
    )
    validation_fraction: float = option(
        0.1, "Share (0 to 1) of the training clips' long videos to hold out for validation."
    )
    epochs: int = 2
    batch_size: int = 24
    adam_beta2: float = 0.98
    warmup_steps: float = 0.25
    max_gradient_norm: float = 1.0
    class_balanced: bool = option(False, "Draw every class equally often.")
    label_smoothing: float = option(0.0, "Share (0 to 1) of the loss that all classes have alike, right or not.")
    crop_scale: float = option(
        0.8, "Smallest share (0 to 1) of the picture's area that a random crop keeps; 1: do not crop."
    )
    flip: float = option(0.5, "Probability (0 to 1) of a horizontal flip.")
    brightness: float = option(0.15, "Largest random change of brightness, as a share; 0: none.")
    rand_augment: list[int] = option([0, 0], "RandAugment: number of operations, and magnitude (0 to 30); 0 0: none.")
    augment_per_frame: bool = option(
        False, "Draw augmentations for every frame, as the released code does, instead of once per clip."
    )
    frames_per_part: int = option(2, "Frames to read of each of the --num_frames parts of a clip; one is drawn.")
    cache_frames: bool = option(True, "Decode once and keep the frames in --cache_dir; for large frames switch it off.")
    checkpoint_steps: int = 50
    output_dir: str = "outputs/stage1"


CONTRASTIVE = ("loss", "temperature", "alpha", "beta", "row_normalization", "project_targets")
"""Options that FactoredCoVR, which classifies, has no use for."""


@dataclass
class Stage2Config(
    TrainingRunConfig, ActivationConfig, ReleasedLossConfig, QueryConfig, EncoderConfig, DryRunConfig, DataConfig
):
    """What to train and how; the defaults are for the miniature."""

    model: Literal["tfcovr", "factored_covr"] = option(
        "tfcovr",
        "What to train: the paper's TF-CoVR, or FactoredCoVR, which composes labels and has no contrastive loss.",
    )
    composed_labels: bool = option(
        True, "FactoredCoVR also knows labels put together from words; false: where all labels have training clips."
    )
    end_to_end: bool = option(False, "Train the encoders too, from pixels.")
    fusion: Literal["mlp", "gated", "average"] = option(
        "mlp",
        "How clip and text are fused: the paper's MLP, the released code's gate, or the mean (nothing to train).",
    )
    projection_dim: int | None = option(128, "Size of the embeddings; none: that of the video encoder.")
    project_text: bool = option(True, "Give texts a linear layer and unit norm before the fusion.")
    fusion_projection_dim: int = option(256, "Hidden size of each half in gated.")
    fusion_hidden_dim: int = option(256, "Hidden size of the fused vector in mlp and gated.")
    fusion_dropout: float = option(0.1, "Dropout probability (0 to 1) after each hidden layer.")
    project_targets: bool | None = option(None, "Give targets a linear layer; none: with mlp only.")
    standardize_video: bool = option(True, "Standardize video embeddings by the training clips; not with --end_to_end.")
    batch_size: int = 256
    weight_decay: float = 0.05
    checkpoint_steps: int = 1000
    output_dir: str = "outputs/stage2"

    def __post_init__(self) -> None:
        if self.model == "factored_covr":
            of_class = type(self).__dataclass_fields__
            given = [name for name in CONTRASTIVE if getattr(self, name) != of_class[name].default]
            if given:
                names = ", ".join(f"--{name}" for name in given)
                raise ValueError(f"{names}: FactoredCoVR has no contrastive loss; leave out what it does not read")
        elif not self.composed_labels:
            raise ValueError("--no_composed_labels: TF-CoVR has no labels; leave it out, or use --model factored_covr")
        if self.end_to_end and self.query_frames is not None:
            raise ValueError("--query_frames needs stored embeddings; leave out --end_to_end or --query_frames")


@dataclass
class VidCLIPRunConfig(TrainingRunConfig, ActivationConfig, FramesConfig, DryRunConfig, DrawnContrastConfig):
    """What to train and how; the defaults are for the miniature."""

    model: str | None = option(
        None,
        "CLIP or VidCLIP to start from: a model folder or a name on the Hub; none: the miniature's VidCLIP-base, or "
        "with --stack its CLIP.",
    )
    objective: Literal["clip", "negclip", "comploss"] = option("comploss", "Training objective.")
    stack: int = option(0, "Clips in a stack to pre-train on, 1 to 8; 0: fine-tune on contrast pairs.")
    clips_dataset: str = option(
        "activitynet_comp",
        "Dataset of the short clips for --stack, with `video` (a path), `caption` and, if need be, `start_seconds` and "
        "`end_seconds`.",
        names=COMP_DATASETS,
    )
    clips_config: str = option("mini-clips", "Its configuration.")
    num_frames: int = 16
    frame_side: int | None = option(
        None, "Side of the square frames in pixels, to which positions of patches are stretched; none: as the model's."
    )
    preference_weight: float = option(2.0, "Weight of comploss' preference; see `comp_loss` for all five.")
    preference_pairs: Literal["adjacent", "all", "positive"] = option(
        "positive",
        "Texts that it compares: adjacent levels of disruption, all levels, or the positive with each.",
    )
    preference_scale: float = option(20.0, "Factor on the difference of two cosine similarities.")
    captioning_weight: float = option(
        0.0, "Weight of CoCa's captioning loss, added to any objective; CoCa has 2, and 0 trains no text decoder."
    )
    num_captioning_layers: int = option(2, "Layers of the text decoder, where the model has none yet.")
    negclip_negatives: int = option(1, "Disrupted texts per video and epoch for negclip; 0: all.")
    freeze_vision: bool = option(True, "Leave the vision tower as it is.")
    draws: int = 6
    epochs: int = 20
    optimizer: Literal["adamw", "adam"] = option(
        "adamw", "Weight decay apart from the gradient, or as a part of it as in Adam."
    )
    pooler_learning_rate: float | None = option(
        None,
        "Learning rate of the attention poolers, also of what starts from zero; --learning_rate 0 then leaves the rest "
        "as it is. None: --learning_rate.",
    )
    weight_decay: float = 1e-5
    warmup_steps: float = 20.0
    max_gradient_norm: float = 1.0
    keep_frames: bool = option(
        True,
        "Keep frames in memory once read, of training only if --num_workers is 0; switch it off for large frames.",
    )
    num_workers: int = 0
    output_dir: str = "outputs/vidclip/comploss"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.model = self.model or (MINIATURE_CLIP if self.stack else MINIATURE_VIDCLIP)
        if self.negclip_negatives < 0:
            raise ValueError(f"--negclip_negatives {self.negclip_negatives}: it is 0 for all, or more")
        if self.captioning_weight < 0:
            raise ValueError(f"--captioning_weight {self.captioning_weight}: it is 0 for no captioning loss, or more")
        if self.num_captioning_layers < 1:
            raise ValueError(f"--num_captioning_layers {self.num_captioning_layers}: a text decoder has at least 1")
        if not 0 <= self.stack <= 8:
            raise ValueError(f"--stack {self.stack}: a stack has 1 to 8 clips; 0 trains without stacks")
        if self.stack == 1 and self.objective != "clip":
            raise ValueError("--stack 1 has no disrupted texts: give --objective clip, or a larger stack")


@dataclass
class VCMRConfig(TrainingRunConfig, AdamConfig, DryRunConfig, MomentDataConfig):
    """What to train and how; the defaults are for the miniature."""

    model: Literal["xml", "reloclnet", "hero"] = option("xml", "Architecture.")
    size: Literal["miniature", "paper"] = option("miniature", "Size of the model.")
    init_from: str | None = option(
        None,
        "What HERO starts from, a model folder or a name on the Hub: another HERO, such as a pretrained one that "
        "hf_models.moments.convert_tvr made, or a RoBERTa; none: random weights.",
    )
    model_fields: dict[str, Any] = option(
        {}, "Further fields of the model's configuration (hf_models.HEROConfig and so on), such as weights of losses."
    )
    end_convention: EndConvention = option(
        "inclusive",
        "Which clip is a moment's end: its last one, or the one after it, or as the released XML or HERO.",
    )
    granularity: Granularity = option("fine", "Captions to train on.")
    validation_split: str | None = option(
        None, "Split that chooses the epoch; none: validation, or where there is none test, as the released code does."
    )
    max_query_tokens: int = option(48, "Longest query, in tokens; longer ones are cut and counted.")
    epochs: int = 12
    patience: int | None = option(
        10, "Epochs without a better validation score after which training stops; none: it does not."
    )
    hard_negative_epoch: int = option(20, "Epoch (from 0) from which on negatives are the hardest ones.")
    hard_negative_step: int | None = option(
        None, "Optimizer step (from 0) from which on they are; none: --hard_negative_epoch says it."
    )
    batch_size: int = 128
    learning_rate: float = 2e-3
    warmup_steps: float = 0.01
    output_dir: str = "outputs/vcmr"


@dataclass
class NoiseEvaluatorConfig(TrainingRunConfig, FramesConfig, DryRunConfig, VideosConfig):
    """What to learn from, what to train and how."""

    build: str | None = option(None, "Folder of `build.py fig` with negative captions; none: the miniature.")
    model: str = option(MINIATURE_CLIP, "CLIP, VidCLIP or BLIP to start from: a model folder or a name on the Hub.")
    num_frames: int = 8
    epochs: int = 4
    learning_rate: float = 3e-4
    warmup_steps: float = 0.05
    max_gradient_norm: float = 1.0
    max_evaluated: int | None = option(None, "Moments of the test split to measure on; none: all.")
    output_dir: str = "outputs/noise_evaluator"


NEGATIVE_KINDS = ("count", "direction", "order", "negation", "composition")  # as in hf_datasets.caption_negatives


@dataclass
class FinetuneVLMConfig(TrainingRunConfig, ActivationConfig, ContrastiveConfig, FramesConfig, DryRunConfig, DataConfig):
    """What to train, on what and how; the defaults are for the miniature and a model of random weights."""

    model: str = option(
        "tiny-random-qwen3-vl",
        "Multimodal language model that embeds: a folder or a name on the Hub, such as Qwen/Qwen3-VL-Embedding-2B; "
        "tiny-random-qwen3-vl and tiny-random-qwen2-vl are made here, to try the recipe out.",
    )
    method: Literal["lora", "frozen_layers"] = option(
        "lora", "What trains: LoRA in the language model, or a head over layers of the frozen model."
    )
    train_on: Literal["texts", "clips"] = option(
        "texts", "Captions and how they change, which opens no video; or clips with modification texts."
    )
    adapter: str | None = option(None, "Adapter of the same model to go on from, with --method lora; none: a new one.")
    rank: int = option(8, "Rank of LoRA's matrices.")
    lora_dropout: float = option(0.05, "Dropout probability (0 to 1) before LoRA, or in the blocks of the head.")
    layers: list[int] | None = option(
        None, "Layers that the head reads, 0 the token embeddings, -1 the last; none: all but the embeddings."
    )
    temperature: float = 0.05
    beta: float = 0.5
    negatives: list[str] = option(
        list(NEGATIVE_KINDS), f"Hard negatives by what they change: {', '.join(NEGATIVE_KINDS)}; of clips by label."
    )
    hard_negatives: int = option(2, "Most hard negatives of a query, drawn again every epoch; 0: in-batch ones only.")
    max_triplets: int | None = option(None, "Train on a random choice of this many triplets; none: on all.")
    frame_size: int | None = option(None, "Shorter side of the frames as they are read, in pixels; none: as filmed.")
    epochs: int = 2
    batch_size: int = 64
    chunk_size: int = option(16, "Clips or texts of one forward pass, which is what takes memory.")
    learning_rate: float = 2e-3
    weight_decay: float = 0.0
    max_gradient_norm: float = 1.0
    activation_checkpointing: bool = True
    validation: Literal["texts", "clips"] | None = option(
        None,
        "What mAP@50 is measured on: changes of texts that are held out, or the validation split's clips; none: "
        "as --train_on.",
    )
    validation_queries: int | None = option(None, "Validate on the first queries only, this many; none: on all.")
    output_dir: str = "outputs/finetune_vlm"

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.negatives) - set(NEGATIVE_KINDS)):
            raise ValueError(f"--negatives: there is no {unknown[0]!r}; there are {', '.join(NEGATIVE_KINDS)}")
        if self.adapter is not None and self.method != "lora":
            raise ValueError("--adapter is for --method lora; leave it out")
        if self.validates_on == "texts" and self.train_on == "clips":
            raise ValueError("--validation texts holds out texts of --train_on texts; use --validation clips")
        for name in ("rank", "batch_size", "chunk_size", "epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} must be at least 1, not {getattr(self, name)}")
        if self.hard_negatives < 0 or self.temperature <= 0:
            raise ValueError("--hard_negatives must be at least 0, --temperature above 0")

    @property
    def validates_on(self) -> str:
        """What validation measures on."""
        return self.validation or self.train_on


BEGIN = time.monotonic()


@dataclass
class QuickstartConfig(OutputConfig):
    """Where the results go."""
