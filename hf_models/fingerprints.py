"""Hashes of what features depend on, by which a `FeatureStore` recognizes the models of its features.

They depend on content alone: a copy in another folder, or under another name, has the same.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch


def weights_fingerprint(module: torch.nn.Module) -> str:
    """A hash of all weights and buffers by name, shape, type and value.

    Args:
        module: on any device.

    Returns:
        64 hexadecimal digits.

    Example:
        >>> one, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
        >>> _ = other.load_state_dict(one.state_dict())
        >>> weights_fingerprint(one) == weights_fingerprint(other)
        True
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def processor_fingerprint(processor: Any) -> str:
    """A hash of the settings of an image or video processor.

    Args:
        processor: of transformers; it has `to_json_string`.

    Returns:
        64 hexadecimal digits.
    """
    settings = json.loads(processor.to_json_string())
    for name in ("auto_map", "processor_class", "name_or_path", "_name_or_path"):
        settings.pop(name, None)
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def tokenizer_fingerprint(tokenizer: Any, *, number_words: bool | None = None) -> str:
    """A hash of what turns a text into tokens.

    Args:
        tokenizer: of transformers; it has a `backend_tokenizer`.
        number_words: of a `TFCoVRProcessor`, whether it spells numbers out; None for a tokenizer alone.

    Returns:
        64 hexadecimal digits.
    """
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    for name in ("padding", "truncation"):  # which each call sets
        backend.pop(name)
    settings = json.dumps(backend, sort_keys=True)
    if number_words is not None:
        settings = f"{number_words} {settings}"
    return hashlib.sha256(settings.encode()).hexdigest()


def key_of(made_by: Mapping[str, str]) -> str:
    """A short name for what makes vectors: 12 hexadecimal digits.

    Example:
        >>> key_of({"weights": "8c1f"}) == key_of({"weights": "8c1f"}) != key_of({"weights": "9d2a"})
        True
    """
    return hashlib.sha256(json.dumps(dict(made_by), sort_keys=True).encode()).hexdigest()[:12]
