"""The classifier of stage 1: an AIM on any CLIP, as adapters or as a whole, its classes, and its accuracy."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from peft import PeftModel, get_peft_model
from sklearn.metrics import recall_score
from torch import nn
from transformers import AutoImageProcessor

from hf_datasets.records import ClipRow
from hf_datasets.tfcovr.labels import labels_by_id
from hf_models import AIMAdapterConfig, AIMConfig, AIMForVideoClassification, AIMVideoProcessor
from hf_models.checkpoints import open_whole
from hf_models.encoders.adapters import with_adapter
from hf_models.tfcovr.factored_classifier import factors_of
from hf_models.tfcovr.layers_aim import time_code
from hf_models.tfcovr.modeling_aim import load_clip_vision
from subtle.run.model_folders import MINIATURE_AIM, MINIATURE_CLIP, check_model_folder
from subtle.run.shared_config import ClassifierConfig

SIZE_FIELDS = ("num_frames", "num_temporal_adapters", "adapter_ratio", "adapter_scale")
REGULARIZATION = ("drop_path_rate", "classifier_dropout")
"""What a model trained before can go on with, or without."""


def class_names(clips: Sequence[ClipRow], head: Literal["present", "all"]) -> list[str]:
    """Label ids in the order of the head, which is that of the dataset's classes.

    Of `clips` the labels, or with the head "all" the 306 if they are of these.
    """
    known = list(labels_by_id())
    place = {label: index for index, label in enumerate(known)}
    labels = {clip["label"] for clip in clips}
    if head == "all" and labels <= place.keys():
        return known
    return sorted(labels, key=lambda label: (place.get(label, len(known)), label))


def class_indices(clips: Sequence[ClipRow], names: Sequence[str], split: str) -> list[int]:
    """The class of each clip, or an error that names a clip whose label the head does not have."""
    index = {name: position for position, name in enumerate(names)}
    for clip in clips:
        if clip["label"] not in index:
            raise SystemExit(
                f"clip {clip['clip_id']!r} of {split} has the label {clip['label']!r}, which is outside the head of "
                f"{len(names)} classes; give training clips of it, or use --head all, which has the labels of all "
                "splits"
            )
    return [index[clip["label"]] for clip in clips]


def make_processor(base: str, num_frames: int) -> AIMVideoProcessor:
    """A video processor that prepares frames as the base's image processor prepares images."""
    check_model_folder(base)
    return AIMVideoProcessor.from_image_processor(AutoImageProcessor.from_pretrained(base), num_frames=num_frames)


def shipped_adapters(config: ClassifierConfig, names: Sequence[str]) -> str | None:
    """The meaning of "auto": the adapters that ship for the miniature's CLIP, where they fit; nothing for another base.

    Adapters of other classes fit: they have learned to see motion, and only the head is new.
    """
    sizes = misfits_of_shipped(config)
    if sizes is None:
        return None
    head = difference_of_heads(AIMAdapterConfig.from_pretrained(MINIATURE_AIM), config, names)
    if os.environ.get("LOCAL_RANK", "0") == "0" and (sizes or head):
        start = (
            f"{config.base}: the adapters that ship do not fit" if sizes else "the adapters that ship, with a new head"
        )
        print(f"starting from {start}: they have {'; '.join([*sizes, *head])}")
    return None if sizes else MINIATURE_AIM


def misfits_of_shipped(config: ClassifierConfig) -> list[str] | None:
    """How the adapters that ship differ in size from a configuration; None where they are for another base."""
    is_miniature = Path(config.base).resolve() == Path(MINIATURE_CLIP).resolve()
    if config.full or not is_miniature:
        return None
    return differences_in_size(AIMAdapterConfig.from_pretrained(MINIATURE_AIM), config)


def differences_in_size(trained: AIMAdapterConfig | AIMConfig, config: ClassifierConfig) -> list[str]:
    return [
        f"{name} {getattr(trained, name)}, not {getattr(config, name)}"
        for name in SIZE_FIELDS
        if getattr(trained, name) != getattr(config, name)
    ]


def difference_of_heads(
    trained: AIMAdapterConfig | AIMConfig, config: ClassifierConfig, names: Sequence[str]
) -> list[str]:
    found = []
    if trained.temporal_pooling != config.temporal_pooling:
        found.append(f"temporal_pooling {trained.temporal_pooling}, not {config.temporal_pooling}")
    classes = list((trained.id2label or {}).values())
    if classes != list(names):
        found.append(f"a head of {len(classes)} classes, which are not the {len(names)} of this data")
    elif trained.label_factors != head_fields(config, names)["label_factors"]:
        found.append(f"a head {'without' if config.factored_labels else 'with'} factored_labels")
    return found


def head_fields(config: ClassifierConfig, names: Sequence[str]) -> dict[str, Any]:
    """The fields of AIM's configurations that describe pooling and head."""
    texts = {name: label.description for name, label in labels_by_id().items()}
    factors = [factors_of(texts.get(name, name)) for name in names] if config.factored_labels else None
    return {
        "id2label": dict(enumerate(names)),
        "label_factors": factors,
        "temporal_pooling": config.temporal_pooling,
    }


def aim_fields(config: ClassifierConfig, names: Sequence[str]) -> dict[str, Any]:
    """The fields of `AIMConfig` of a whole model that starts from a CLIP."""
    sizes = {name: getattr(config, name) for name in (*SIZE_FIELDS, *REGULARIZATION)}
    return sizes | head_fields(config, names) | {"label2id": {name: i for i, name in enumerate(names)}}


def new_adapters(tower: Any, config: ClassifierConfig, names: Sequence[str]) -> PeftModel:
    """New adapters on a CLIP's vision tower, which stays as it is."""
    if config.activation_checkpointing:
        tower.activation_checkpointing_enable()
    fields = {name: getattr(config, name) for name in (*SIZE_FIELDS, *REGULARIZATION)}
    return get_peft_model(tower, AIMAdapterConfig(**fields, **head_fields(config, names)))


def make_classifier(config: ClassifierConfig, names: Sequence[str]) -> nn.Module:
    """AIM with a head of these classes: a PEFT model whose adapters train, or a model of which everything does."""
    is_auto = config.init_from == "auto"
    if is_auto:
        config = replace(config, init_from=shipped_adapters(config, names))
    try:
        model = whole_model(config, names) if config.full else adapted_model(config, names, new_head=is_auto)
    except (OSError, ValueError) as error:
        raise SystemExit(f"{config.init_from or config.base} cannot be used: {error}") from error
    if config.time_amplitude and not config.init_from:
        for name, parameter in model.named_parameters():
            if "temporal_embedding" in name:
                parameter.data.copy_(config.time_amplitude * time_code(*parameter.shape[1:])[None])
    return model


def check_fits(trained: AIMAdapterConfig | AIMConfig, config: ClassifierConfig, names: Sequence[str]) -> None:
    """Refuse to go on from what was trained for something else."""
    if found := [*differences_in_size(trained, config), *difference_of_heads(trained, config, names)]:
        raise ValueError(
            f"it has {'; '.join(found)}; give the values and the data that it was trained with, or --init_from none to "
            f"start from {config.base}"
        )


def whole_model(config: ClassifierConfig, names: Sequence[str]) -> AIMForVideoClassification:
    """All weights, from a CLIP or from a model trained before."""
    regularization = {name: getattr(config, name) for name in REGULARIZATION}
    if config.init_from:
        check_model_folder(config.init_from)
        check_fits(AIMConfig.from_pretrained(config.init_from), config, names)
        model: AIMForVideoClassification = open_whole(AIMForVideoClassification, config.init_from, **regularization)
    else:
        model = AIMForVideoClassification.from_clip(config.base, **aim_fields(config, names))
    if config.activation_checkpointing:
        model.activation_checkpointing_enable()
    return model


def adapted_model(config: ClassifierConfig, names: Sequence[str], *, new_head: bool = False) -> PeftModel:
    """A frozen CLIP with adapters, new or trained before; with `new_head` also for other classes."""
    tower, info = load_clip_vision(config.base)
    if info["missing_keys"]:
        raise ValueError(f"{len(info['missing_keys'])} weights of a CLIP vision tower are missing in {config.base}")
    if not config.init_from:
        return new_adapters(tower, config, names)
    if config.activation_checkpointing:
        tower.activation_checkpointing_enable()
    if not (Path(config.init_from) / "adapter_config.json").is_file():
        raise ValueError("it is not an adapter folder (there is no adapter_config.json in it)")
    check_model_folder(config.init_from)
    trained = AIMAdapterConfig.from_pretrained(config.init_from)
    new_head = new_head and bool(difference_of_heads(trained, config, names))
    if new_head:
        trained = replace(trained, **head_fields(config, names))
    check_fits(trained, config, names)
    for name in REGULARIZATION:
        setattr(trained, name, getattr(config, name))
    head: dict[str, Any] = {"new": "aim_head", "ignore_mismatched_sizes": True} if new_head else {}
    return with_adapter(tower, config.init_from, config=trained, is_trainable=True, **head)


def parameter_groups(model: nn.Module, config: ClassifierConfig, learning_rate: float) -> list[dict[str, Any]]:
    """What trains, by highest learning rate and weight decay."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        factor = config.temporal_learning_rate_factor if "temporal_embedding" in name else 1.0
        decay = 0.0 if parameter.ndim < 2 or "embedding" in name else config.weight_decay
        groups.setdefault((factor, decay), []).append(parameter)
    return [{"params": group, "lr": learning_rate * key[0], "weight_decay": key[1]} for key, group in groups.items()]


def accuracies(pairs: Sequence[tuple[int, int]], names: Sequence[str]) -> dict[str, float]:
    """Top-1 and mean-class accuracy of pairs (true class, predicted class); labels with the same text are one class."""
    texts = {name: label.description for name, label in labels_by_id().items()}
    merged = [texts.get(name, name) for name in names]
    true, predicted = ([merged[pair[side]] for pair in pairs] for side in (0, 1))
    right = sum(one == other for one, other in zip(true, predicted, strict=True))
    recall = recall_score(true, predicted, labels=sorted(set(true)), average="macro")
    return {"accuracy": right / len(true), "mean_class_accuracy": float(recall)}
