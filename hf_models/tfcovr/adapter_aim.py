"""AIM's adapters as a PEFT method: one small file per sport on one frozen CLIP, loaded, switched and unloaded.

`get_peft_model(clip_vision_model, AIMAdapterConfig(num_frames=12))` computes what `AIMModel` does with the same
weights.
"""

import hashlib
import re
from dataclasses import replace
from typing import Any, cast

import torch
from peft import PeftConfig, PeftType
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from peft.tuners.tuners_utils import BaseTuner
from peft.utils import register_peft_method
from torch import nn
from transformers import CLIPVisionModel
from transformers.models.clip.modeling_clip import CLIPEncoderLayer, CLIPVisionEmbeddings

from .configuration_aim_adapter import SAVED_TYPE, AIMAdapterConfig
from .layers_aim_adapter import AIMBlockLayer, AIMEmbeddingsLayer, AIMNormLayer, AIMTunerLayer

METHOD = "AIM"


class AIMTuner(BaseTuner):
    """PEFT's entry to the method."""

    prefix = "aim_"
    tuner_layer_cls = AIMTunerLayer

    def _prepare_adapter_config(self, peft_config: PeftConfig, _: dict[str, Any]) -> PeftConfig:
        return peft_config

    def _prepare_model(self, peft_config: PeftConfig, model: nn.Module) -> None:
        """Recognize the base, before anything is changed in it."""
        config = cast("AIMAdapterConfig", peft_config)
        tower = find_tower(model)
        check_not_offloaded(tower)
        found = fingerprint_base(tower)
        if config.base_sample is None:
            name = next(name for name, one in self.peft_config.items() if one is config)
            self.peft_config[name] = replace(config, **found)
        elif found["base_sample"] is not None:
            check_base(config, found)

    def _create_and_replace(
        self,
        peft_config: PeftConfig,
        adapter_name: str,
        target: nn.Module,
        target_name: str,
        parent: nn.Module,
        current_key: str,  # noqa: ARG002 (PEFT passes it by name)
        parameter_name: str | None = None,  # noqa: ARG002 (for methods that adapt single parameters)
    ) -> None:
        if not isinstance(target, AIMTunerLayer):
            if isinstance(target, CLIPVisionEmbeddings):
                layer: AIMEmbeddingsLayer | AIMBlockLayer | AIMNormLayer = AIMEmbeddingsLayer(target)
            elif isinstance(target, CLIPEncoderLayer):
                layer = AIMBlockLayer(target, int(target_name), len(cast("nn.ModuleList", parent)))
            else:
                layer = AIMNormLayer(cast("nn.LayerNorm", target), cast("CLIPVisionModel", parent))
            self._replace_module(parent, target_name, layer, target)
        else:
            layer = cast("AIMEmbeddingsLayer | AIMBlockLayer | AIMNormLayer", target)
        layer.add(adapter_name, cast("AIMAdapterConfig", peft_config))
        layer.train(layer.base_layer.training)

    def _replace_module(self, parent: nn.Module, child_name: str, new_module: nn.Module, child: nn.Module) -> None:
        # PEFT's own copies `weight`, which a block of CLIP does not have.
        setattr(parent, child_name, new_module)
        if isinstance(child, AIMNormLayer):
            for hook in child.hooks:
                hook.remove()

    def _cast_adapter_dtype(self, adapter_name: str, autocast_adapter_dtype: bool = True) -> None:
        """Leave adapters in the type of the base: they multiply with its weights."""

    def _check_merge_allowed(self) -> None:
        raise ValueError("AIM adapters run attention a second time and cannot be merged; use unload or to_aim")

    @classmethod
    def _remove_adapter_name_from_key(cls, key: str, adapter_name: str) -> str:
        # PEFT's own looks at the last two parts only; an adapter of AIM is several layers deep.
        return re.sub(rf"(\.aim_\w+)\.{re.escape(adapter_name)}(?=\.|$)", r"\1", key)


def find_tower(model: nn.Module) -> CLIPVisionModel:
    """Find the CLIP vision tower in a model.

    Args:
        model: It, or a model that holds one.

    Returns:
        The tower.

    Raises:
        ValueError: If there is none.
    """
    for module in model.modules():
        if isinstance(module, CLIPVisionModel):
            return module
    raise ValueError(f"AIM adapters go on a CLIPVisionModel; there is none in this {type(model).__name__}")


def check_not_offloaded(tower: CLIPVisionModel) -> None:
    """Refuse a tower whose weights accelerate brings into memory for one module at a time.

    Args:
        tower: To be wrapped.

    Raises:
        ValueError: If some of its weights are offloaded.
    """
    for module in tower.modules():
        if hasattr(module, "_hf_hook") and any(weight.is_meta for weight in module.parameters(recurse=False)):
            raise ValueError(
                "AIM adapters need a CLIP whose weights are in memory, and this one's are offloaded; load it without "
                "device_map, or save to_aim(model) and load that with device_map instead"
            )


def fingerprint_base(tower: CLIPVisionModel) -> dict[str, Any]:
    """Describe the weights of a tower, without what adapters added to it.

    Args:
        tower: On `meta` there are no values, and quantized matrices have none that last: their fields are None.

    Returns:
        The fields `base_sample`, `base_matrix_sample`, `base_digest` and `base_dtype` of `AIMAdapterConfig`.
    """
    weights = {
        name.replace(".base_layer", ""): parameter.detach()
        for name, parameter in sorted(tower.named_parameters())
        if ".aim_" not in name
    }
    fields = dict.fromkeys(("base_sample", "base_matrix_sample", "base_digest"))
    fields["base_dtype"] = str(tower.dtype).removeprefix("torch.")
    if any(weight.is_meta for weight in weights.values()):
        return fields
    names = sorted(weights)
    fields["base_sample"] = [weights[name][0].item() for name in names if weights[name].ndim == 1]
    if all(weight.is_floating_point() for weight in weights.values()):
        matrices = [weights[name] for name in names if weights[name].ndim > 1]
        fields["base_matrix_sample"] = [matrix.flatten()[0].item() for matrix in matrices]
        digest = hashlib.sha256()
        for name in names:
            digest.update(f"{name} {tuple(weights[name].shape)}".encode())
            digest.update(weights[name].to("cpu", tower.dtype).contiguous().flatten().view(torch.uint8).numpy().data)
        fields["base_digest"] = digest.hexdigest()
    return fields


def check_base(config: AIMAdapterConfig, found: dict[str, Any]) -> None:
    """Compare a tower with the one that an adapter was made for.

    With both in one type every bit counts; otherwise one value of each weight is compared as closely as the coarser
    type allows. Of a quantized tower, and for adapters saved before matrices were sampled, one-dimensional weights
    decide.

    Args:
        config: Of the adapter.
        found: From `fingerprint_base`.

    Raises:
        ValueError: If they differ.
    """
    dtypes = (cast("str", config.base_dtype), found["base_dtype"])
    tolerance = 2 * max(torch.finfo(getattr(torch, name)).eps for name in dtypes)
    same = is_close(cast("list[float]", config.base_sample), found["base_sample"], rtol=tolerance, atol=tolerance)
    if config.base_digest and found["base_digest"] and len(set(dtypes)) == 1:
        same = config.base_digest == found["base_digest"]
    elif config.base_matrix_sample and found["base_matrix_sample"]:
        known = config.base_matrix_sample
        same = same and is_close(known, found["base_matrix_sample"], rtol=tolerance, atol=1e-7)
    if not same:
        name = config.base_model_name_or_path
        raise ValueError(f"this adapter was trained on another CLIP than this one{f': {name!r}' if name else ''}")


def is_close(known: list[float], found: list[float], *, rtol: float, atol: float) -> bool:
    """Whether two lists have one length and close values."""
    return len(known) == len(found) and torch.allclose(torch.tensor(found), torch.tensor(known), rtol=rtol, atol=atol)


def add_peft_type() -> None:
    """Add our method to PEFT's enumeration of methods, which takes no members from outside.

    This reaches into an enumeration of PEFT 0.21; a test says when it no longer holds.
    """
    if METHOD in PeftType.__members__:
        return
    member = str.__new__(PeftType, METHOD)
    member._name_ = member._value_ = METHOD
    member._sort_order_ = len(PeftType.__members__)  # type: ignore[attr-defined]  # which every member has
    PeftType._member_names_.append(METHOD)
    PeftType._member_map_[METHOD] = PeftType._value2member_map_[METHOD] = member
    type.__setattr__(PeftType, METHOD, member)


add_peft_type()
if PeftType[METHOD] not in PEFT_TYPE_TO_CONFIG_MAPPING:
    register_peft_method(name=METHOD.lower(), config_cls=AIMAdapterConfig, model_cls=AIMTuner)
    PEFT_TYPE_TO_CONFIG_MAPPING[cast("PeftType", SAVED_TYPE)] = AIMAdapterConfig  # what saved configurations say
