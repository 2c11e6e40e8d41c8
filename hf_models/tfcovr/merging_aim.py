"""Between the two forms of AIM: the native model, and a CLIP with an adapter."""

import re
from dataclasses import fields
from typing import cast

import torch
from peft import PeftModel, get_peft_model
from torch import nn
from transformers import CLIPVisionModel

from .adapter_aim import find_tower
from .configuration_aim import AIMConfig
from .configuration_aim_adapter import AIMAdapterConfig
from .modeling_aim import AIMForVideoClassification, AIMModel


def native_name(name: str, adapter_name: str) -> str | None:
    """Translate the name of a weight of an adapted tower to that in `AIMForVideoClassification`, None if unused."""
    mine = re.escape(adapter_name)
    if name.startswith("post_layernorm.base_layer."):
        return None
    name = name.replace(".base_layer", "")
    name = re.sub(rf"\.aim_temporal_embedding\.{mine}$", ".temporal_embedding", name)
    name = re.sub(rf"\.aim_adapters\.{mine}\.", ".adapters.", name)
    name = re.sub(rf"^post_layernorm\.aim_head\.{mine}\.norm\.", "post_layernorm.", name)
    name = re.sub(rf"^post_layernorm\.aim_head\.{mine}\.classifier\.", "classifier.", name)
    name = re.sub(rf"^post_layernorm\.aim_head\.{mine}\.pooling\.", "pooling.", name)
    if ".aim_" in name:
        return None  # another adapter's
    return name if name.startswith("classifier.") else f"aim.{name}"


def to_aim(model: nn.Module, adapter_name: str | None = None) -> AIMModel | AIMForVideoClassification:
    """Copy a CLIP with an AIM adapter into the native model that computes the same.

    Args:
        model: From `get_peft_model` or `PeftModel.from_pretrained`.
        adapter_name: Which adapter; default: the active one.

    Returns:
        An `AIMForVideoClassification` where the adapter has a head, otherwise an `AIMModel`; in evaluation mode.

    Raises:
        ValueError: If there is no AIM adapter of that name.
    """
    tower = find_tower(model)
    configs = getattr(model, "peft_config", {})
    name = adapter_name or getattr(tower.post_layernorm, "enabled_adapter", None)
    found = configs.get(name)
    if name is None or not isinstance(found, AIMAdapterConfig):
        raise ValueError(f"there is no AIM adapter {name!r}; there are {sorted(configs)}")
    classifier = AIMForVideoClassification(found.native(tower.config))
    result: AIMModel | AIMForVideoClassification = classifier if found.num_labels else classifier.aim
    weights = {
        native: value for key, value in tower.state_dict().items() if (native := native_name(key, name)) is not None
    }
    if result is classifier.aim:
        weights = {key.removeprefix("aim."): value for key, value in weights.items()}
    result.load_state_dict(weights)
    result.to(tower.dtype)  # type: ignore[arg-type]  # a wrapped method, which its annotation does not bind
    result.eval()
    return result


def to_adapter(
    model: AIMModel | AIMForVideoClassification, clip: CLIPVisionModel, *, adapter_name: str = "default"
) -> PeftModel:
    """Put what a native model added to a CLIP back onto that CLIP, as an adapter.

    Args:
        model: The native model, whose backbone must be that of `clip`.
        clip: The tower it was made from; it is wrapped in place.
        adapter_name: Name for the adapter.

    Returns:
        The tower with the adapter; `save_pretrained` writes the adapter alone.

    Raises:
        ValueError: If the backbone is another one, or was trained.
    """
    has_head = isinstance(model, AIMForVideoClassification)
    weights = {key if has_head else f"aim.{key}": value for key, value in model.state_dict().items()}
    for key, value in clip.state_dict().items():
        native = weights.get(f"aim.{key}")
        if not key.startswith("post_layernorm.") and (native is None or not torch.equal(native, value.to(native))):
            raise ValueError(f"an adapter cannot hold this model: {key} differs from the CLIP given")
    shared = {field.name for field in fields(AIMAdapterConfig)} & {field.name for field in fields(AIMConfig)}
    of_head = {"id2label", "label_factors"}
    values = {name: getattr(model.config, name) for name in (shared if has_head else shared - of_head)}
    config = AIMAdapterConfig(**values)
    peft_model = get_peft_model(clip, config, adapter_name)
    for key, value in clip.state_dict().items():
        if ".aim_" in key:
            value.copy_(weights[cast("str", native_name(key, adapter_name))])
    return peft_model
