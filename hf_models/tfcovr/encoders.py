"""The encoders of TF-CoVR: any video, image or text model of transformers."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from torch import Tensor
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES
from transformers.utils import logging

from .configuration_tfcovr import COMPOSED_MODEL_TYPES
from .modeling_aim import AIMModel

VIDEO_MODEL_TYPES = {"aim", *MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES}
DEFAULT_CLASSES = {  # where AutoModel has none, or one with more than an encoder
    "vision": {"blip-2": "Blip2VisionModelWithProjection"},
    "text": {"blip-2": "Blip2TextModelWithProjection", "blip_text_model": "BlipTextModel"},
}
# Weights that the embeddings do not depend on, which are saved but never trained.
UNREAD = {
    "vision": {
        "blip-2": r"^qformer\..*\.layer\.\d+\.(intermediate|output)\.",
        "dinov2": r"^embeddings\.mask_token$",
        "dinov2_with_registers": r"^embeddings\.mask_token$",
        "dinov3_vit": r"^embeddings\.mask_token$",
        "vjepa2": r"^predictor\.",
    },
    "text": {
        "blip-2": r"^query_tokens$|\.crossattention\.|_query\.",
        "blip_text_model": r"^pooler\.|\.crossattention\.",
    },
}
# Names of weights in checkpoints of a larger model, where transformers does not find an encoder's own by itself.
RENAMED = {"blip_text_model": {r"^text_encoder\.": ""}}  # BlipForImageTextRetrieval's, such as blip-itm-large-coco
TEXT_POOLER = r"^pooler\."  # of BERT and similar models, whose first token is read instead


@contextmanager
def _quiet() -> Iterator[None]:
    """No load report: that the rest of a larger checkpoint is left over is expected, and missing weights raise."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def build_encoder(config: PreTrainedConfig, class_name: str | None, kind: str) -> PreTrainedModel:
    """An encoder with new weights.

    Args:
        config: its configuration.
        class_name: its class in transformers; None is the default of its type.
        kind: "vision" or "text".

    Raises:
        ValueError: there is no such class.
    """
    class_name = class_name or DEFAULT_CLASSES[kind].get(config.model_type)
    if config.model_type == "aim":
        encoder = AIMModel._from_config(config)
    elif class_name is None:
        encoder = AutoModel.from_config(config)
    else:
        model_class = getattr(transformers, class_name, None)
        if not (isinstance(model_class, type) and issubclass(model_class, PreTrainedModel)):
            raise ValueError(f"{kind}_model_class {class_name!r} is not a model class of transformers")
        encoder = model_class._from_config(config)
    return keep_unread(encoder, kind)


def unread_weights(encoder: PreTrainedModel, kind: str) -> list[str]:
    """Names of the parameters of an encoder that its embedding does not depend on."""
    model_type = encoder.config.model_type
    default = "" if kind == "vision" or pools_text(model_type) else TEXT_POOLER
    pattern = UNREAD[kind].get(model_type, default)
    return [name for name, _ in encoder.named_parameters() if pattern and re.search(pattern, name)]


def keep_unread(encoder: PreTrainedModel, kind: str) -> PreTrainedModel:
    """Turn the parameters that nothing reads into buffers: still saved and loaded, but nothing to train.

    A parameter that may train and never gets a gradient stops DDP in its second step.
    """
    for name in unread_weights(encoder, kind):
        path, _, leaf = name.rpartition(".")
        module = encoder.get_submodule(path)
        value = cast("torch.nn.Parameter", module._parameters.pop(leaf)).detach()
        module.register_buffer(leaf, value)
    return encoder


def encoder_fields(whole: Any, kind: str, class_name: str | None) -> dict[str, Any]:
    """The configuration and class of one encoder of what may be a larger model, by its configuration."""
    encoder = getattr(whole, f"{kind}_config", whole)
    if whole.model_type in COMPOSED_MODEL_TYPES:
        class_name = class_name or getattr(whole, f"{kind}_model_class")
        if kind == "vision" and whole.imported_video:
            return {"imported_video": whole.imported_video}
    elif whole.model_type == "blip-2":  # whose encoders share one configuration
        encoder = whole
    elif hasattr(encoder, "projection_dim"):  # CLIP's projections have the size that the whole model names
        encoder.projection_dim = getattr(whole, "projection_dim", encoder.projection_dim)
    return {f"{kind}_config": encoder, f"{kind}_model_class": class_name}


@torch.no_grad()
def load_encoder_weights(name_or_path: str | Path, encoder: PreTrainedModel, kind: str) -> PreTrainedModel:
    """An encoder with the weights of a checkpoint.

    Args:
        name_or_path: of the checkpoint, which may hold more.
        encoder: from `build_encoder`.
        kind: "vision" or "text".

    Raises:
        ValueError: a weight that the embedding depends on is missing or of another shape.
    """
    with _quiet():
        renamed = RENAMED.get(encoder.config.model_type)
        found = type(encoder).from_pretrained(
            name_or_path, config=encoder.config, output_loading_info=True, key_mapping=renamed
        )
    loaded, info = cast("tuple[PreTrainedModel, dict[str, Any]]", found)
    unread = set(unread_weights(loaded, kind))
    for name in unread & info["missing_keys"]:  # RoBERTa's release has no pooler, for instance
        loaded.get_parameter(name).zero_()
    if info["missing_keys"] - unread or info["mismatched_keys"]:
        raise ValueError(
            f"{name_or_path} does not hold the weights of {type(encoder).__name__}: "
            f"{sorted(info['missing_keys'])[:5]} are missing or of another shape, which would leave the {kind} encoder "
            f"random; name its class with {kind}_model_class"
        )
    return keep_unread(loaded, kind)


def pooled_vision(outputs: Any) -> Tensor:
    """The embedding in the output of a vision model, `(B, video_embed_dim)`; each model has its own class of output."""
    if "image_embeds" in outputs:
        embeds: Tensor = outputs.image_embeds
        return embeds if embeds.ndim == 2 else embeds.mean(1)
    pooled: Tensor | None = outputs.get("pooler_output")
    if pooled is None:
        pooled = outputs.last_hidden_state.mean(1)
    return pooled


def pools_text(model_type: str) -> bool:
    """Whether the pooled output of this kind of text model is its embedding, instead of the first token."""
    return model_type.startswith(("clip", "siglip"))


def pooled_text(outputs: Any, model_type: str) -> Tensor:
    """The embedding in the output of a text model, `(B, text_embed_dim)`."""
    if "text_embeds" in outputs:
        embeds: Tensor = outputs.text_embeds
        return embeds if embeds.ndim == 2 else embeds[:, 0]
    pooled: Tensor = outputs.pooler_output if pools_text(model_type) else outputs.last_hidden_state[:, 0]
    return pooled
