"""What an encoder will cost, from its configuration alone: parameters, download, memory at batch size 1."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
import transformers

FREE_SHARE = 0.95
"""How much of a GPU's free memory a model may plan to use."""
CONTEXT_BYTES = 600 << 20
"""What CUDA itself takes of a GPU."""
TOKENS_OF_IMAGE = {"qwen2_vl": 1280, "qwen3_vl": 768, "llava_next": 2928, "mm_embed": 577}
"""The most tokens that a language model reads for one image."""
TOKENS_OF_TEXT = 77
CURE = "take a smaller model, a larger GPU, fewer frames, or device 'cpu'"
STATES_OF_LAYER = 8
"""Activations of a layer that are alive at once, in units of its hidden size: a rule of thumb, not measured."""


@dataclass(frozen=True)
class Estimate:
    """What an encoder will cost.

    Attributes:
        parameters: That the encoder loads.
        download_bytes: Of the whole checkpoint, as its configuration describes it.
        memory_bytes: Of weights and activations for one video, and of CUDA itself.
    """

    parameters: int
    download_bytes: int
    memory_bytes: int

    def __str__(self) -> str:
        gigabytes = f"{self.download_bytes / 1e9:.1f} GB to download, {self.memory_bytes / 1e9:.1f} GB of memory"
        return f"{self.parameters / 1e6:,.0f}M parameters, {gigabytes}"


def estimate_model(config: Any, model_class: str, num_frames: int, prompts_at_once: int = 8) -> Estimate:
    """Estimate from a configuration; no weight is read or allocated.

    Args:
        config: Of transformers.
        model_class: The class of transformers that the encoder loads.
        num_frames: Frames of a video.
        prompts_at_once: Of a multimodal language model, how many prompts it reads at a time.
    """
    loaded = count_parameters(config, model_class)
    stored = next((name for name in getattr(config, "architectures", None) or () if hasattr(transformers, name)), None)
    downloaded = loaded if stored in {None, model_class} else count_parameters(config, str(stored))
    size = torch.empty(0, dtype=dtype_of(config)).element_size()
    activations = activation_bytes(config, num_frames, prompts_at_once, size)
    return Estimate(loaded, max(loaded, downloaded) * size, loaded * size + activations + CONTEXT_BYTES)


def count_parameters(config: Any, model_class: str) -> int:
    """How many weights a class has in this configuration; tied ones count once."""
    config = copy.deepcopy(config)
    with torch.device("meta"):
        kind = getattr(transformers, model_class)
        model = kind.from_config(config) if hasattr(kind, "from_config") else kind(config)
    return sum(weight.numel() for weight in model.parameters())


def dtype_of(config: Any) -> torch.dtype:
    """The type of the saved weights; float32 where the configuration does not say."""
    for part in (config, *parts_of(config)):
        if isinstance(dtype := getattr(part, "dtype", None), torch.dtype):
            return dtype
    return torch.float32


def activation_bytes(config: Any, num_frames: int, prompts_at_once: int, size: int) -> int:
    """Memory of pixels and of the largest layer's activations for one video; a rule of thumb, not measured."""
    image_tokens = TOKENS_OF_IMAGE.get(config.model_type)
    images = num_frames if image_tokens is None else min(num_frames, prompts_at_once)
    widest = 0
    for part in (config, *parts_of(config)):
        hidden = getattr(part, "hidden_size", None) or getattr(part, "embed_dim", None)
        if not isinstance(hidden, int):
            continue
        inner = getattr(part, "intermediate_size", None)
        inner = inner if isinstance(inner, int) else 4 * hidden
        tokens = tokens_of_frame(part, image_tokens) * images
        widest = max(widest, tokens * (STATES_OF_LAYER * hidden + 2 * inner) * size)
    side = max((side_of(part) for part in (config, *parts_of(config))), default=224)
    return widest + num_frames * 3 * side**2 * (4 + size)


def tokens_of_frame(part: Any, image_tokens: int | None) -> int:
    """How many tokens a part of a model sees for each frame."""
    patch = getattr(part, "patch_size", None)
    if isinstance(patch, int) and image_tokens is None:
        return (side_of(part) // patch) ** 2 + 1
    if isinstance(patch, int):
        return 4 * (image_tokens or 0)  # patches, of which two by two become a token
    return (image_tokens or 0) + TOKENS_OF_TEXT


def side_of(part: Any) -> int:
    """Height of a frame in pixels, 224 where the configuration does not say."""
    sides = (getattr(part, name, None) for name in ("image_size", "crop_size"))
    return next((side for side in sides if isinstance(side, int)), 224)


def parts_of(config: Any) -> list[Any]:
    """The configurations inside a configuration, at any depth."""
    inside = [value for value in vars(config).values() if isinstance(value, transformers.PreTrainedConfig)]
    return inside + [part for each in inside for part in parts_of(each)]


def check_memory(
    estimate: Estimate, device: torch.device | str, name: str, *, doing: str = "at batch size 1", cure: str = CURE
) -> None:
    """Refuse a GPU that is too small, before anything is loaded.

    Args:
        estimate: Of the model.
        device: Where it shall run; only a CUDA device is checked.
        name: Of the model, for the message.
        doing: What needs the memory, for the message.
        cure: What would help, for the message.

    Raises:
        ValueError: The GPU has too little free memory.
    """
    device = torch.device(device)
    if device.type != "cuda":
        return
    free, total = torch.cuda.mem_get_info(device)
    if estimate.memory_bytes > FREE_SHARE * free:
        raise ValueError(
            f"{name} needs about {estimate.memory_bytes / 1e9:.1f} GB {doing}, and {device} has {free / 1e9:.1f} GB "
            f"free of {total / 1e9:.1f}; {cure}"
        )
