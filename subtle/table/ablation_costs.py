"""What an ablation will train, download and take, before anything is loaded.

Hours are a rule of thumb: 2 operations for each weight and token in a forward pass, three times as many in training,
at 0.3 of `--tflops`; the tokens of a frame as the encoder's configuration says; decoding as in
`subtle/tuning/estimates.py`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from transformers import AutoConfig

from hf_models.encoders import estimate
from subtle.run.data import load_splits
from subtle.run.screen import Screen
from subtle.table.differences import row_name
from subtle.table.rows import row_folder
from subtle.table.variations import Run
from subtle.tuning.estimates import (
    DECODING_SECONDS,
    KNOWN,
    OVERHEAD_SECONDS,
    UTILIZATION,
    Encoder,
    flops_per_second,
    in_words,
)

AIM_ATTENDS_TWICE = 1.35
MEASURING_SECONDS = 5.0


def print_costs(
    runs: Sequence[Run],
    output_dir: str,
    *,
    shuffled: bool,
    is_trained: Callable[[Any], bool],
    device: str,
    tflops: float | None,
) -> None:
    """Print the trainings that are left, the models they need, and the hours.

    Args:
        runs: the ablation's.
        output_dir: where its rows are.
        shuffled: whether each is measured on shuffled frames too.
        is_trained: whether the folder of a configuration holds its model.
        device: that runs it; measured where `tflops` is None.
        tflops: speed of the device, in 10^12 operations per second.
    """
    speed = UTILIZATION * (1e12 * tflops if tflops else flops_per_second(device))
    sizes = {name: len(split) for name, split in load_splits(runs[0].stage2, clips=True).items()}
    num_triplets = len(load_splits(runs[0].stage2)["train"])
    steps = needed_steps(runs, sizes, num_triplets, speed, is_trained, shuffled=shuffled)
    for run in runs:
        for is_shuffled in {False, shuffled and not run.stage2.shuffle_frames}:
            row = row_folder(output_dir, row_name(run.variation.name, run.seed, is_shuffled))
            steps.append(("measurement", (row / "results.json").is_file(), MEASURING_SECONDS))
    table = Table("step", "runs", "to do", "time", title="What this ablation takes", title_justify="left")
    for kind in dict.fromkeys(kind for kind, *_ in steps):
        own = [(done, seconds) for one, done, seconds in steps if one == kind]
        left = [seconds for done, seconds in own if not done]
        table.add_row(kind, str(len(own)), str(len(left)), in_words(sum(left)))
    total = sum(seconds for _, done, seconds in steps if not done)
    console = Screen()
    console.print(table)
    console.print(f"in all about {in_words(total)}, at {speed / UTILIZATION / 1e12:.2g} TFLOPS; a rule of thumb")
    for name in models_of(runs):
        console.print(f"{name}: {cost_of(name)}")


def models_of(runs: Sequence[Run]) -> list[str]:
    """The models that are not trained on the way."""
    names = [run.stage1.base if run.stage1 else run.stage2.vision_model for run in runs]
    return list(dict.fromkeys([*names, *(run.stage2.text_model for run in runs)]))


def cost_of(name: str) -> str:
    """Parameters, download and memory in words."""
    try:
        return str(estimate(name))
    except (OSError, ValueError) as error:
        if Path(name, "config.json").is_file():
            size = sum(file.stat().st_size for file in Path(name).glob("*.safetensors"))
            return f"{size / 1e6:,.0f} MB, on this machine"
        return f"not known before it is here ({' '.join(str(error).split())[:160]})"


def needed_steps(
    runs: Sequence[Run],
    sizes: dict[str, int],
    num_triplets: int,
    speed: float,
    is_trained: Callable[[Any], bool],
    *,
    shuffled: bool,
) -> list[tuple[str, bool, float]]:
    """Each training and each folder of embeddings once: its kind, whether it is done, its seconds."""
    steps: dict[tuple[str, str], tuple[bool, float]] = {}
    num_clips = sum(sizes.values())
    for run in runs:
        config = run.stage2
        frames, base = config.num_frames or 12, config.vision_model
        if run.stage1:
            frames, base = run.stage1.num_frames, run.stage1.base
        encoder = sizes_of(base)
        clip_seconds = encoder.flops * frames * AIM_ATTENDS_TWICE / speed
        decoding = DECODING_SECONDS / max(config.num_workers, 1)
        if run.stage1:
            seen = sizes.get("train", 0) * run.stage1.epochs
            seconds = 3 * seen * clip_seconds + num_clips * decoding
            steps["stage 1", run.stage1.output_dir] = (is_trained(run.stage1), seconds)
        for folder in (config.embeddings, f"{config.embeddings}-shuffled")[: 1 + shuffled]:
            done = Path(folder, "results.json").is_file()
            steps["embeddings", folder] = (done, num_clips * (clip_seconds + decoding))
        seconds = seconds_of_stage2(config, encoder.width, num_triplets, speed)
        if config.end_to_end:
            seconds += 6 * num_triplets * config.epochs * clip_seconds  # forward and backward, of two clips
        steps["stage 2", config.output_dir] = (is_trained(config), seconds)
    return [(kind, done, seconds) for (kind, _), (done, seconds) in steps.items()]


def sizes_of(model: str) -> Encoder:
    """Of the vision tower, from what this machine has of it; of ViT-B/16 where that is nothing."""
    try:
        config = AutoConfig.from_pretrained(model, local_files_only=not Path(model).is_dir())
    except (OSError, ValueError):
        return KNOWN.get(model, KNOWN["openai/clip-vit-base-patch16"]).vision
    vision = getattr(config, "vision_config", config)
    sizes: list[Any] = [
        getattr(vision, name, None) for name in ("num_hidden_layers", "hidden_size", "image_size", "patch_size")
    ]
    layers, width, side, patch = sizes
    if not all(isinstance(value, int) and value > 0 for value in sizes):
        return KNOWN["openai/clip-vit-base-patch16"].vision
    return Encoder(layers, width, (side // patch) ** 2 + 1)


def seconds_of_stage2(config: Any, width: int, num_triplets: int, speed: float) -> float:
    """Of one training on stored embeddings: its fusion. From pixels the encoders' trainings come on top."""
    hidden, inner = config.fusion_hidden_dim, config.fusion_projection_dim
    weights = 2 * width * inner + 2 * inner * hidden + hidden * (config.projection_dim or width)
    seen = num_triplets * config.epochs
    seconds: float = 6 * weights * seen / speed + OVERHEAD_SECONDS * seen / config.batch_size
    return seconds
