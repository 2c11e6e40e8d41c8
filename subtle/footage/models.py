"""The model of an index: registered when it is made, and loaded again, and checked, for a search."""

import importlib.metadata
from types import SimpleNamespace
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from hf_models.encoders import Encoder, load_encoder
from hf_models.fingerprints import key_of
from hf_models.frame_reading import frames_read
from hf_models.index.store import IndexedModel, ModelChangedError
from hf_models.query_texts import files_of_model
from subtle.run.model_folders import check_model_folder
from subtle.running import announced

INDEX_LIBRARIES = ("subtle-video", "torch", "transformers", "av", "lancedb")


def device_of(name: str) -> torch.device:
    """The device of `--device`."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def load_model(config: Any) -> Encoder:
    """The encoder of a configuration: its `model`, `device`, `num_frames`, `mixed_precision`, `trust_remote_code`.

    Raises:
        ValueError: The model embeds no videos, takes another number of frames, or compares by more than a vector.
    """
    check_model_folder(config.model, "modules.json")
    disable_progress_bar()
    with announced(f"loading {config.model}"):
        encoder = load_encoder(
            config.model, device_of(config.device), config.num_frames, trust_remote_code=config.trust_remote_code
        )
    if encoder.similarity not in {"cosine", "dot"}:
        raise ValueError(
            f"{config.model} compares by {encoder.similarity!r}, and a search by cosine or dot product; choose CLIP, "
            "SigLIP, VidCLIP or a model that stage2.py trained"
        )
    encoder.autocast = torch.bfloat16 if config.mixed_precision == "bf16" else None
    return encoder


def vector_origin(encoder: Encoder) -> dict[str, str]:
    """What the vectors of an index depend on, by name: the model, and the frames of moments."""
    return encoder.fingerprint | frames_read(encoder.num_frames, "seconds", encoder.frame_size)


def indexed_model(encoder: Encoder, config: Any, root: str) -> IndexedModel:
    """The encoder as an index knows it."""
    details = {
        "files": files_of_model(config.model),
        "num_frames": config.num_frames,
        "mixed_precision": config.mixed_precision,
        "trust_remote_code": config.trust_remote_code,
        "versions": {name: importlib.metadata.version(name) for name in INDEX_LIBRARIES},
    }
    made = vector_origin(encoder)
    return IndexedModel(key_of(made), config.model, made, encoder.dimensions, root, details)


def load_again(model: IndexedModel, device: str, *, trust_remote_code: bool = False) -> Encoder:
    """The encoder that made an index's vectors.

    Raises:
        ModelChangedError: What is in its place now makes other vectors.
        ValueError: It has code that was not allowed to run.
    """
    if model.details["trust_remote_code"] and not trust_remote_code:  # an index may come from anyone
        raise ValueError(f"{model.name} runs code of its own; if you trust it, add --trust_remote_code")
    named = {"model": model.name, "device": device, "trust_remote_code": trust_remote_code}
    as_made = {name: model.details[name] for name in ("num_frames", "mixed_precision")}
    encoder = load_model(SimpleNamespace(**named, **as_made))
    files = model.details["files"]
    if files and files == files_of_model(model.name):
        return encoder  # a fingerprint of all weights takes seconds
    made = vector_origin(encoder)
    changed = sorted(name for name in made.keys() | model.made_by if made.get(name) != model.made_by.get(name))
    if changed:
        raise ModelChangedError(
            f"{model.name} has changed since it made the vectors of the index (other {', '.join(changed)}), so that "
            f"they cannot be compared; run `python recipes/index.py` again with --model {model.name} and activate it, "
            "or put the old model back"
        )
    return encoder
