"""What a tuning run will take, estimated from the configuration of the base model: download, memory, time."""

from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache

from hf_models.encoders.estimates import estimate_model
from subtle.options import parse_config
from subtle.run.architectures import read_sizes
from subtle.run.step_costs import StepCost
from subtle.table.costs import OVERHEAD_SECONDS, Machine
from subtle.train.estimates import estimate_run
from subtle.train.options import Stage1Config
from subtle.tuning.plan import Plan, steps_of


def read_base(name_or_path: str, *, offline: bool) -> Any:
    """The configuration of a CLIP; None where nothing on this machine tells it and `offline` forbids to ask the Hub.

    Raises:
        ValueError: It is no CLIP.
        OSError: There is no such model.
    """
    config = read_sizes(name_or_path, offline=offline)
    if config is None and name_or_path.count("/") != 1:
        raise OSError(f"{name_or_path} is neither a folder nor a name on the Hub, such as openai/clip-vit-base-patch16")
    if config is None:
        return None
    if config.model_type != "clip":
        raise ValueError(
            f"{name_or_path} is a {config.model_type!r} model, and AIM starts from a CLIP: give --base "
            "openai/clip-vit-base-patch16, or another one with a vision transformer"
        )
    return config


def is_cached(name: str) -> bool:
    """Whether a model's weights are in the Hub's cache."""
    files = ("model.safetensors", "pytorch_model.bin")
    return any(isinstance(try_to_load_from_cache(name, file), str) for file in files)


def count_stage1(plan: Plan) -> StepCost:
    """A training step of stage 1, as its own `--dry_run` counts it."""
    (arguments,) = (step.arguments for step in steps_of(plan) if step.recipe == "stage1")
    return estimate_run(parse_config(Stage1Config, None, list(arguments)), 1).cost


def seconds_of_steps(plan: Plan, cost: StepCost) -> dict[str, float]:
    """Step -> seconds on this machine, from what a training step of stage 1 costs."""
    machine, clips = Machine.of(plan.config.device, plan.config.num_workers), plan.num_clips
    encoding = 3600 * machine.hours(clips * cost.forward_flops / plan.batch_size, clips) + clips * OVERHEAD_SECONDS
    steps = 3600 * machine.hours(plan.stage1_steps * cost.flops, clips) + plan.stage1_steps * OVERHEAD_SECONDS
    return {
        "dataset": 2.0,
        "stage 1": steps + encoding,
        "embeddings": encoding,
        "stage 2": 20.0,
        "comparison": 40.0 + 2 * encoding,
        "report": 5.0,
    }


def in_words(seconds: float) -> str:
    """`40 s`, `3 min` or `2.5 h`.

    >>> in_words(40), in_words(200), in_words(9000)
    ('40 s', '3 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def facts(name: str, base: Any, cost: StepCost | None) -> dict[str, str]:
    """Download and memory in words: of the base, and of a training step of stage 1."""
    if cost is None:
        return {"download": f"{name}: its size is not known before its config.json is here", "memory": "not known"}
    size = estimate_model(base, "CLIPModel", 1).download_bytes / 1e6
    is_here = Path(name).is_dir() or is_cached(name)
    download = "nothing, it is here" if is_here else f"about {size:,.0f} MB from the Hub, once"
    memory = sum(cost.memory_bytes().values())
    return {"download": download, "memory": f"about {max(memory / 1e9, 1):.0f} GB in stage 1"}
