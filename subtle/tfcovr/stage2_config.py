"""The options of stage 2, which other recipes that train it share; imports nothing that takes long."""

from dataclasses import dataclass
from typing import Literal

from subtle.options import option
from subtle.run.shared_config import DataConfig, EncoderConfig, QueryParts, TrainingRunConfig

CONTRASTIVE = ("loss", "temperature", "learnable_temperature", "alpha", "beta", "row_normalization", "project_targets")
"""Options that FactoredCoVR, which classifies, has no use for."""


@dataclass
class Stage2Config(TrainingRunConfig, EncoderConfig, DataConfig):
    """What to train and how; the defaults are for the miniature."""

    embeddings: str = option("outputs/embeddings/stage1", "Folder of embed.py's embeddings; made where missing.")
    model: Literal["tfcovr", "factored_covr"] = option(
        "tfcovr",
        "What to train: the paper's TF-CoVR, or FactoredCoVR, which composes labels and has no contrastive loss.",
    )
    end_to_end: bool = option(False, "Train the encoders too, from pixels.")
    query: QueryParts = option("both", "Parts of the query that the model sees; text and video are baselines.")
    fusion: Literal["mlp", "gated", "average"] = option(
        "mlp",
        "How clip and text are fused: the paper's MLP, the released code's gate, or the mean (nothing to train).",
    )
    projection_dim: int | None = option(128, "Size of the embeddings; none: that of the video encoder.")
    project_text: bool = option(True, "Give texts a linear layer and unit norm before the fusion.")
    query_frames: int | None = option(
        None, "Frames of a query's clip where they differ from a target's, such as 1: the middle one; none: as many."
    )
    fusion_projection_dim: int = option(256, "Hidden size of each half in gated.")
    fusion_hidden_dim: int = option(256, "Hidden size of the fused vector in mlp and gated.")
    fusion_dropout: float = option(0.1, "Dropout probability (0 to 1) after each hidden layer.")
    project_targets: bool | None = option(None, "Give targets a linear layer; none: with mlp only.")
    standardize_video: bool = option(True, "Standardize video embeddings by the training clips; not with --end_to_end.")
    loss: Literal["hn_nce", "infonce", "multi_positive"] = option("multi_positive", "Contrastive loss.")
    temperature: float = option(0.07, "What similarities are divided by in the loss.")
    learnable_temperature: bool = option(False, "Train the temperature, starting from --temperature.")
    alpha: float = option(1.0, "Weight of the positive in hn_nce.")
    beta: float = option(0.0, "Hardness of the negatives in hn_nce; 0: all alike.")
    row_normalization: Literal["row", "official"] = option(
        "row", "Normalization of hn_nce's negative weights; official repeats a slip of the released code."
    )
    epochs: int = option(10, "Passes over the training triplets.")
    batch_size: int = option(256, "Triplets per optimizer step, of all processes together.")
    learning_rate: float = option(1e-3, "AdamW's highest learning rate, after the warm-up.")
    weight_decay: float = option(0.05, "AdamW's weight decay.")
    warmup_steps: int = option(0, "Optimizer steps of linear warm-up; a cosine to zero follows.")
    cosine_per: Literal["step", "epoch"] = option(
        "step", "How often the cosine moves; epoch: once in each, as in the released code."
    )
    max_gradient_norm: float = option(0.0, "Clip gradients to this norm; 0: do not clip.")
    checkpoint_steps: int = 1000
    activation_checkpointing: bool = option(False, "Recompute activations: less memory, more time.")
    num_workers: int = option(2, "Processes that read frames; 0: the training process reads them.")
    output_dir: str = option("outputs/stage2", "Folder for the model, checkpoints and results.json.")

    def __post_init__(self) -> None:
        if self.model == "factored_covr":
            of_class = type(self).__dataclass_fields__
            given = [name for name in CONTRASTIVE if getattr(self, name) != of_class[name].default]
            if given:
                names = ", ".join(f"--{name}" for name in given)
                raise ValueError(f"{names}: FactoredCoVR has no contrastive loss; leave out what it does not read")
        if self.end_to_end and self.query_frames is not None:
            raise ValueError("--query_frames needs stored embeddings; leave out --end_to_end or --query_frames")
