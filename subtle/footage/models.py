"""The model of an index: registered when it is made, and loaded again, and checked, for a search."""

import importlib.metadata
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from hf_models.index.store import IndexedModel
from hf_models.moment_encoders import MomentEncoder, key_of, load_moment_encoder
from hf_models.query_texts import files_of_model
from subtle.run.model_folders import check_model_folder
from subtle.running import announced

LIBRARIES = ("subtle-video", "torch", "transformers", "av", "lancedb")


def device_of(name: str) -> torch.device:
    """The device of `--device`."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def load_model(config: Any) -> MomentEncoder:
    """The encoder of a configuration."""
    check_folder(config.model)
    disable_progress_bar()
    with announced(f"loading {config.model}"):
        return load_moment_encoder(
            config.model, device_of(config.device), config.num_frames, trust_remote_code=config.trust_remote_code
        )


def check_folder(name_or_path: str) -> None:
    """Exit with a hint where a folder is no model; one of sentence-transformers may have no config.json."""
    if not (Path(name_or_path) / "modules.json").is_file():
        check_model_folder(name_or_path)


def described(encoder: MomentEncoder, config: Any, root: str, dimensions: int) -> IndexedModel:
    """The encoder as an index knows it."""
    made_by = encoder.made_by
    details = {
        "files": files_of_model(config.model),
        "num_frames": config.num_frames,
        "trust_remote_code": config.trust_remote_code,
        "versions": {name: importlib.metadata.version(name) for name in LIBRARIES},
    }
    return IndexedModel(key_of(made_by), config.model, made_by, dimensions, root, details)


def load_again(model: IndexedModel, device: str, *, trust_remote_code: bool = False) -> MomentEncoder:
    """The encoder that made an index's vectors.

    Raises:
        ValueError: What is in its place now makes other vectors, or it has code that was not allowed to run.
    """
    check_folder(model.name)
    disable_progress_bar()
    if model.details["trust_remote_code"] and not trust_remote_code:  # an index may come from anyone
        raise ValueError(f"{model.name} runs code of its own; if you trust it, add --trust_remote_code")
    with announced(f"loading {model.name}"):
        encoder = load_moment_encoder(
            model.name,
            device_of(device),
            model.details["num_frames"],
            trust_remote_code=trust_remote_code,
        )
    files = model.details["files"]
    if files and files == files_of_model(model.name):
        return encoder  # a fingerprint of all weights takes seconds
    made_by = encoder.made_by
    changed = sorted(name for name in made_by.keys() | model.made_by if made_by.get(name) != model.made_by.get(name))
    if changed:
        raise ValueError(
            f"{model.name} has changed since it made the vectors of the index (other {', '.join(changed)}), so that "
            f"they cannot be compared; run `python recipes/index.py` again with --model {model.name} and activate it, "
            "or put the old model back"
        )
    return encoder
