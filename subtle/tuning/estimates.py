"""What a tuning run will take, estimated from the sizes of the base model: download, memory, time."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

UTILIZATION = 0.3
"""The share of this device's speed in a large matrix product that a whole step reaches; a guess on GPUs."""
OVERHEAD_SECONDS = 0.02
DECODING_SECONDS = 0.15
BYTES_PER_ACTIVATION = 34
"""Of a block for each token and dimension in training, as Korthikanti et al. (2022) count them in 16 bits."""


@dataclass(frozen=True)
class Encoder:
    """The sizes of a transformer that decide what it costs."""

    layers: int
    width: int
    tokens: int
    vocabulary: int = 0

    @property
    def parameters(self) -> int:
        """Of all blocks and the vocabulary."""
        return 12 * self.layers * self.width**2 + self.vocabulary * self.width

    @property
    def flops(self) -> float:
        """Of one forward pass."""
        return self.tokens * (24 * self.layers * self.width**2 + 4 * self.layers * self.tokens * self.width)


@dataclass(frozen=True)
class Base:
    """A CLIP: its towers, and whether its weights have to be fetched."""

    vision: Encoder
    text: Encoder
    is_here: bool

    @property
    def bytes(self) -> int:
        """Of its weights, in 32 bits."""
        return 4 * (self.vision.parameters + self.text.parameters)


SMALL_TEXT, LARGE_TEXT = Encoder(12, 512, 77, 49408), Encoder(12, 768, 77, 49408)
KNOWN = {
    "openai/clip-vit-base-patch32": Base(Encoder(12, 768, 50), SMALL_TEXT, is_here=False),
    "openai/clip-vit-base-patch16": Base(Encoder(12, 768, 197), SMALL_TEXT, is_here=False),
    "openai/clip-vit-large-patch14": Base(Encoder(24, 1024, 257), LARGE_TEXT, is_here=False),
}
"""What a dry run knows without a network call."""


def read_base(name_or_path: str, *, offline: bool) -> Base | None:
    """The sizes of a CLIP; None where nothing on this machine tells them and `offline` forbids to ask the Hub.

    Raises:
        ValueError: It is no CLIP.
        OSError: There is no such model.
    """
    is_folder = Path(name_or_path).is_dir()
    try:
        config = AutoConfig.from_pretrained(name_or_path, local_files_only=offline and not is_folder)
    except OSError:
        if offline and not is_folder and name_or_path.count("/") == 1:
            return KNOWN.get(name_or_path)
        raise
    if config.model_type != "clip":
        raise ValueError(
            f"{name_or_path} is a {config.model_type!r} model, and AIM starts from a CLIP: give --base "
            "openai/clip-vit-base-patch16, or another one with a vision transformer"
        )
    vision, text = config.vision_config, config.text_config
    patches = (vision.image_size // vision.patch_size) ** 2 + 1
    return Base(
        Encoder(vision.num_hidden_layers, vision.hidden_size, patches),
        Encoder(text.num_hidden_layers, text.hidden_size, text.max_position_embeddings, text.vocab_size),
        is_folder or is_cached(name_or_path),
    )


def is_cached(name: str) -> bool:
    """Whether a model's weights are in the Hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    files = ("model.safetensors", "pytorch_model.bin")
    return any(isinstance(try_to_load_from_cache(name, file), str) for file in files)


def flops_per_second(device: str) -> float:
    """How fast this device multiplies large matrices; takes a fraction of a second."""
    where = torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")
    size = 4096 if where.type == "cuda" else 768
    matrix = torch.rand(size, size, device=where)
    for times in (1, 4):  # the first product also loads the library
        if where.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            product = matrix @ matrix
        product[0, 0].item()
        seconds = time.perf_counter() - start
    return 4 * 2 * size**3 / seconds


def seconds_of_steps(
    base: Base, speed: float, *, clips: int, frames: int, stage1_steps: int, batch_size: int, num_workers: int
) -> dict[str, float]:
    """Step -> seconds: decoding is shared by the workers, a training step costs three forward passes."""
    clip_flops = frames * base.vision.flops * 1.35  # AIM runs its attention twice
    rate = UTILIZATION * speed
    decoding = clips * DECODING_SECONDS / max(num_workers, 1)
    encoding = decoding + clips * (clip_flops / rate + OVERHEAD_SECONDS)
    return {
        "dataset": 2.0,
        "stage 1": decoding + stage1_steps * (3 * batch_size * clip_flops / rate + OVERHEAD_SECONDS) + encoding,
        "embeddings": encoding,
        "stage 2": 20.0,
        "comparison": 40.0 + 2 * encoding,
        "report": 5.0,
    }


def training_bytes(base: Base, *, batch_size: int, frames: int) -> float:
    """Memory of stage 1: the weights, and what the backward pass keeps of a batch, in 32 bits."""
    vision = base.vision
    kept = 2 * BYTES_PER_ACTIVATION * 1.35 * vision.layers * vision.width * vision.tokens * frames * batch_size
    return base.bytes + kept


def in_words(seconds: float) -> str:
    """`40 s`, `3 min` or `2.5 h`.

    >>> in_words(40), in_words(200), in_words(9000)
    ('40 s', '3 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def facts(base: Base | None, name: str, memory: float) -> dict[str, Any]:
    """Download and memory in words."""
    if base is None:
        return {"download": f"{name}: its size is not known before its config.json is here", "memory": "not known"}
    download = "nothing, it is here" if base.is_here else f"about {base.bytes / 1e6:,.0f} MB from the Hub, once"
    return {"download": download, "memory": f"about {max(memory / 1e9, 1):.0f} GB in stage 1"}
