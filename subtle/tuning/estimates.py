"""What a tuning run will take, estimated from the configuration of the base model: download, memory, time."""

from pathlib import Path
from typing import Any

from hf_models.encoders.estimates import BYTES_PER_ACTIVATION, count_parameters, estimate_model, tokens_of_frame
from subtle.run.architectures import read_sizes
from subtle.table.costs import OPERATIONS, OVERHEAD_SECONDS, PASSES, Machine

ATTENTIONS = 1.35
"""What AIM costs in units of its CLIP's vision tower: it runs its attention twice."""


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
    from huggingface_hub import try_to_load_from_cache

    files = ("model.safetensors", "pytorch_model.bin")
    return any(isinstance(try_to_load_from_cache(name, file), str) for file in files)


def seconds_of_steps(
    base: Any, machine: Machine, *, clips: int, frames: int, stage1_steps: int, batch_size: int
) -> dict[str, float]:
    """Step -> seconds, by the rule of thumb of `subtle.table.costs`."""
    vision = base.vision_config
    parameters = count_parameters(vision, "CLIPVisionModel")
    of_clip = ATTENTIONS * frames * OPERATIONS * parameters * tokens_of_frame(vision, None)
    encoding = 3600 * machine.hours(clips * of_clip, clips) + clips * OVERHEAD_SECONDS
    steps = 3600 * machine.hours(stage1_steps * batch_size * PASSES * of_clip, clips) + stage1_steps * OVERHEAD_SECONDS
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


def facts(base: Any, name: str, *, batch_size: int, frames: int) -> dict[str, str]:
    """Download and memory in words: of stage 1 the weights, and what the backward pass keeps of a batch, in 32 bits."""
    if base is None:
        return {"download": f"{name}: its size is not known before its config.json is here", "memory": "not known"}
    found, vision = estimate_model(base, "CLIPModel", frames), base.vision_config
    tokens = tokens_of_frame(vision, None) * frames * batch_size
    kept = 2 * BYTES_PER_ACTIVATION * ATTENTIONS * vision.num_hidden_layers * vision.hidden_size * tokens
    is_here = Path(name).is_dir() or is_cached(name)
    download = "nothing, it is here" if is_here else f"about {found.download_bytes / 1e6:,.0f} MB from the Hub, once"
    return {
        "download": download,
        "memory": f"about {max((found.download_bytes + kept) / 1e9, 1):.0f} GB in stage 1",
    }
