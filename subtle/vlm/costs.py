"""What a fine-tuning run will cost, printed before anything is loaded, and the refusal of a GPU that is too small."""

from pathlib import Path
from typing import Any

import torch

from hf_datasets.tfcovr.statistics import PAPER_COUNTS
from hf_models.encoders import ENCODERS
from hf_models.encoders.estimates import TrainingEstimate, estimate_head, estimate_lora
from hf_models.encoders.loading import choose_frames
from subtle.run.data import load_split
from subtle.run.gpus import GPUS, UTILIZATION, cards_for
from subtle.vlm.models import LORA_TARGETS, new_head
from subtle.vlm.sources import TextSource

TFLOPS = UTILIZATION * GPUS["A100"][1] / 1e12
"""What an A100 reaches in a step, in 10^12 operations a second."""
CURE = (
    "lower --chunk_size or --num_frames, keep --activation_checkpointing, take a smaller model, a larger GPU, or "
    "--device cpu"
)


def estimate_finetuning(config: Any, model_config: Any) -> TrainingEstimate:
    """Parameters, download, memory and work of a run, by the configurations of the recipe and of the model."""
    kind: Any = ENCODERS[model_config.model_type]
    frames = choose_frames(kind, model_config, config.num_frames, config.model) if config.train_on == "clips" else 0
    shape = {"frames": frames, "one_prompt": kind.default_one_prompt, "chunk_size": config.chunk_size}
    if config.method == "frozen_layers":
        with torch.device("meta"):
            trained = sum(weight.numel() for weight in new_head(model_config, config).parameters())
        return estimate_head(model_config, kind.model_class, trained, **shape)
    options = {"rank": config.rank, "target_modules": LORA_TARGETS}
    options |= {"activation_checkpointing": config.activation_checkpointing}
    return estimate_lora(model_config, kind.model_class, **options, **shape)


def count_items(config: Any) -> int:
    """Queries, targets and negatives of all epochs; of frozen layers those of one, as each is read once.

    Where TF-CoVR's annotations are not here, by the number of triplets that its paper gives.
    """
    if config.train_on == "texts":
        triplets = len(TextSource(config))
    elif config.dataset_config == "release" and not Path(config.data_dir or "").is_dir():
        known = int(PAPER_COUNTS["train"]["rows"])
        triplets = min(known, config.max_triplets or known)
    else:
        triplets = load_split(config, "train").to_polars()["target_clip_ids"].list.len().sum()
        triplets = min(triplets, config.max_triplets or triplets)
    items: int = triplets * (2 + config.hard_negatives) * (1 if config.method == "frozen_layers" else config.epochs)
    return items


def estimate_lines(cost: TrainingEstimate, config: Any, items: int) -> str:
    """The lines that a run prints first."""
    download = "nothing, it is here" if Path(config.model).is_dir() else f"{cost.download_bytes / 1e9:.1f} GB, once"
    hours = cost.hours(items, TFLOPS)
    lines = {
        "model": f"{config.model}, {cost.parameters / 1e6:,.1f}M parameters",
        "download": download,
        "GPU memory": f"about {cost.memory_bytes / 1e9:.1f} GB with --chunk_size {config.chunk_size}, whatever the "
        "--batch_size",
        "cards (GB)": cards_for(cost.memory_bytes),
        "trains": f"{cost.trained_parameters / 1e6:,.2f}M weights, {cost.saved_bytes / 1e6:,.1f} MB saved",
        "work": f"{items:,} clips and texts, about {hours:.2g} hours at {TFLOPS:.0f} TFLOPS, without "
        "reading videos and validation",
    }
    return "\n".join(f"{name + ':':<12} {text}" for name, text in lines.items())
