"""What fine-tuning a multimodal language model will cost, from its configuration alone: memory, weights saved, time."""

import copy
import re
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn

from hf_models.encoders.estimates import (
    CONTEXT_BYTES,
    TOKENS_OF_IMAGE,
    TOKENS_OF_TEXT,
    Estimate,
    dtype_of,
    estimate_model,
)

BYTES_PER_ACTIVATION = 34
"""Of a block for each token and dimension, kept for the backward pass in 16 bits (Korthikanti et al. 2022)."""
BYTES_PER_TRAINED_WEIGHT = 16
"""Of a weight that trains: itself, its gradient and AdamW's two moments, in 32 bits."""


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
    shapes = target_shapes(config, model_class, target_modules)
    if not shapes:
        raise ValueError(
            f"no linear layer of the language model is called {' or '.join(target_modules)}; name some of "
            f"{', '.join(linear_names(config, model_class))}"
        )
    trained = rank * sum(sum(shape) for shape in shapes)
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


def target_shapes(config: Any, model_class: str, names: list[str]) -> list[tuple[int, int]]:
    """Inputs and outputs of the linear layers of the language model with one of these names."""
    wanted = re.compile(target_pattern(names))
    return [
        (layer.in_features, layer.out_features)
        for name, layer in _linear_layers(config, model_class)
        if wanted.fullmatch(name)
    ]


def target_pattern(names: list[str]) -> str:
    """The `target_modules` of PEFT for linear layers of the language model only; the vision tower stays frozen.

    Example:
        >>> import re
        >>> wanted = re.compile(target_pattern(["q_proj"]))
        >>> [bool(wanted.fullmatch(f"{tower}.layers.0.self_attn.q_proj")) for tower in ("language_model", "visual")]
        [True, False]
    """
    return rf"(?:.*\.)?language_model\..*\.(?:{'|'.join(map(re.escape, names))})"


def linear_names(config: Any, model_class: str) -> list[str]:
    """The names of the linear layers of the language model."""
    names = (name for name, _ in _linear_layers(config, model_class) if "language_model." in name)
    return sorted({name.rpartition(".")[2] for name in names})


def _linear_layers(config: Any, model_class: str) -> list[tuple[str, nn.Linear]]:
    with torch.device("meta"):
        model = getattr(transformers, model_class).from_config(copy.deepcopy(config))
    return [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
