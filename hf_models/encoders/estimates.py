"""What an encoder, or its fine-tuning, will cost, from its configuration alone: parameters, download, memory, time."""

import copy
import re
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn

FREE_SHARE = 0.95
"""How much of a GPU's free memory a model may plan to use."""
CONTEXT_BYTES = 600 << 20
"""What CUDA itself takes of a GPU."""
TOKENS_OF_IMAGE = {"qwen2_vl": 1280, "qwen3_vl": 768, "llava_next": 2928, "mm_embed": 577}
"""The most tokens that a language model reads for one image."""
TOKENS_OF_TEXT = 77
PROMPTS_AT_ONCE = 8
"""That a language model reads together."""
GPU_CURE = "take a smaller model, a larger GPU, fewer frames, or device 'cpu'"
STATES_OF_LAYER = 8
"""Activations of a layer that are alive at once, in units of its hidden size: a rule of thumb, not measured."""
BYTES_PER_ACTIVATION = 34
"""Of a block for each token and dimension, kept for the backward pass in 16 bits (Korthikanti et al. 2022)."""
BYTES_PER_TRAINED_WEIGHT = 16
"""Of a weight that trains: itself, its gradient and AdamW's two moments, in 32 bits."""


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


def estimate_model(config: Any, model_class: str, num_frames: int) -> Estimate:
    """Estimate from a configuration; no weight is read or allocated.

    Args:
        config: Of transformers.
        model_class: The class of transformers that the encoder loads.
        num_frames: Frames of a video.
    """
    loaded = count_parameters(config, model_class)
    stored = next((name for name in getattr(config, "architectures", None) or () if hasattr(transformers, name)), None)
    downloaded = loaded if stored in {None, model_class} else count_parameters(config, str(stored))
    size = torch.empty(0, dtype=dtype_of(config)).element_size()
    activations = activation_bytes(config, num_frames, size)
    return Estimate(loaded, max(loaded, downloaded) * size, loaded * size + activations + CONTEXT_BYTES)


def count_parameters(config: Any, model_class: str) -> int:
    """How many weights a class has in this configuration; tied ones count once."""
    return sum(weight.numel() for weight in _without_memory(config, model_class).parameters())


def _without_memory(config: Any, model_class: str) -> nn.Module:
    config, kind = copy.deepcopy(config), getattr(transformers, model_class)
    with torch.device("meta"):
        model: nn.Module = kind.from_config(config) if hasattr(kind, "from_config") else kind(config)
    return model


def dtype_of(config: Any) -> torch.dtype:
    """The type of the saved weights; float32 where the configuration does not say."""
    for part in (config, *parts_of(config)):
        if isinstance(dtype := getattr(part, "dtype", None), torch.dtype):
            return dtype
    return torch.float32


def activation_bytes(config: Any, num_frames: int, size: int) -> int:
    """Memory of pixels and of the largest layer's activations for one video; a rule of thumb, not measured."""
    image_tokens = TOKENS_OF_IMAGE.get(config.model_type)
    images = num_frames if image_tokens is None else min(num_frames, PROMPTS_AT_ONCE)
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
    estimate: Estimate, device: torch.device | str, name: str, *, doing: str = "at batch size 1", cure: str = GPU_CURE
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


@dataclass(frozen=True)
class TrainingEstimate(Estimate):
    """What a fine-tuning run will cost.

    Attributes:
        trained_parameters: That an adapter or head adds and trains.
        saved_bytes: Of what the run leaves, in 32 bits.
        flops_per_item: Of one training step for one clip or text, floating-point operations.
    """

    trained_parameters: int
    saved_bytes: int
    flops_per_item: float

    def __str__(self) -> str:
        trained = f"{self.trained_parameters / 1e6:,.2f}M trained, {self.saved_bytes / 1e6:,.1f} MB saved"
        return f"{super().__str__()}; {trained}"

    def hours(self, items: int, tflops: float) -> float:
        """Hours of training on `items` clips and texts, of all epochs together.

        Args:
            items: Queries, targets and negatives.
            tflops: What the GPU reaches in a whole step, in 10^12 operations a second.
        """
        return items * self.flops_per_item / (tflops * 1e12) / 3600


def estimate_lora(
    config: Any,
    model_class: str,
    *,
    rank: int,
    target_modules: list[str],
    frames: int,
    one_prompt: bool,
    chunk_size: int = 1,
    activation_checkpointing: bool = True,
) -> TrainingEstimate:
    """Estimate training by LoRA with gradient caching; no weight is read or allocated.

    Args:
        config: Of the model.
        model_class: The class of transformers that the encoder loads.
        rank: Of the matrices of LoRA.
        target_modules: Names of the linear layers of the language model that get them.
        frames: Images of a clip; 0: training from texts.
        one_prompt: Whether all frames of a clip stand in one prompt.
        chunk_size: Clips or texts of one forward pass.
        activation_checkpointing: Whether activations are computed again in the backward pass.

    Raises:
        ValueError: No linear layer of the language model has one of the names.
    """
    modules = _without_memory(config, model_class).named_modules()
    layers = {name: module for name, module in modules if isinstance(module, nn.Linear)}
    wanted = re.compile(target_pattern(target_modules))
    targets = [layer for name, layer in layers.items() if wanted.fullmatch(name)]
    if not targets:
        names = sorted({name.rpartition(".")[2] for name in layers if "language_model." in name})
        raise ValueError(
            f"no linear layer of the language model is called {' or '.join(target_modules)}; name some of "
            f"{', '.join(names)}"
        )
    trained = rank * sum(layer.in_features + layer.out_features for layer in targets)
    text = config.get_text_config()
    tokens = chunk_size * tokens_of_item(config, frames, one_prompt=one_prompt)
    of_block = BYTES_PER_ACTIVATION * tokens * text.hidden_size
    kept = 2 * tokens * text.hidden_size * text.num_hidden_layers + of_block
    activations = kept if activation_checkpointing else of_block * text.num_hidden_layers
    # The pass without gradient, the one with it, once more where activations are recomputed, and the gradients of
    # activations; those of frozen weights are not computed.
    passes = 4 if activation_checkpointing else 3
    return _estimate(config, model_class, frames, trained, activations, passes, one_prompt=one_prompt)


def estimate_head(
    config: Any, model_class: str, trained_parameters: int, *, frames: int, one_prompt: bool, chunk_size: int = 1
) -> TrainingEstimate:
    """Estimate training a head over layers of the frozen model, which reads each clip and text once.

    Args:
        config: Of the model.
        model_class: The class of transformers that the encoder loads.
        trained_parameters: Of the head.
        frames: Images of a clip; 0: training from texts.
        one_prompt: Whether all frames of a clip stand in one prompt.
        chunk_size: Clips or texts of one forward pass.
    """
    text = config.get_text_config()
    tokens = chunk_size * tokens_of_item(config, frames, one_prompt=one_prompt)
    states = 2 * tokens * text.hidden_size * (text.num_hidden_layers + 1)
    return _estimate(config, model_class, frames, trained_parameters, states, 1, one_prompt=one_prompt)


def _estimate(
    config: Any, model_class: str, frames: int, trained: int, activations: int, passes: int, *, one_prompt: bool
) -> TrainingEstimate:
    read = estimate_model(config, model_class, max(frames, 1))
    weights = read.parameters * torch.empty(0, dtype=dtype_of(config)).element_size()
    return TrainingEstimate(
        parameters=read.parameters,
        download_bytes=read.download_bytes,
        memory_bytes=max(read.memory_bytes, weights + activations + CONTEXT_BYTES) + BYTES_PER_TRAINED_WEIGHT * trained,
        trained_parameters=trained,
        saved_bytes=4 * trained,
        flops_per_item=passes * 2.0 * read.parameters * tokens_of_item(config, frames, one_prompt=one_prompt),
    )


def tokens_of_item(config: Any, frames: int, *, one_prompt: bool) -> int:
    """The most tokens that the language model reads for a clip, or for a text where there are no frames."""
    prompts = 1 if one_prompt or not frames else frames
    return frames * TOKENS_OF_IMAGE.get(config.model_type, 0) + prompts * TOKENS_OF_TEXT


def target_pattern(names: list[str]) -> str:
    """The `target_modules` of PEFT for linear layers of the language model only; the vision tower stays frozen.

    Example:
        >>> import re
        >>> wanted = re.compile(target_pattern(["q_proj"]))
        >>> [bool(wanted.fullmatch(f"{tower}.layers.0.self_attn.q_proj")) for tower in ("language_model", "visual")]
        [True, False]
    """
    return rf"(?:.*\.)?language_model\..*\.(?:{'|'.join(map(re.escape, names))})"
