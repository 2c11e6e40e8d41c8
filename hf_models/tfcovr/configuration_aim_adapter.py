"""Configuration of one AIM adapter on a CLIP vision tower."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from peft import PeftConfig, PeftType
from peft.utils import CONFIG_NAME
from transformers import CLIPVisionConfig

from .configuration_aim import AIMConfig

SAVED_TYPE = "AIM: run `pip install subtle-video` and `import hf_models` first"
"""The method in a saved adapter's configuration. PEFT without this package looks it up and raises it as a KeyError."""
TOWER = {"base_model_class": "CLIPVisionModel", "parent_library": "transformers"}
"""What `AutoPeftModel` puts an adapter on; it imports from transformers, and not from this package."""
TARGETS = r"(?:.*vision_model\.)?(?:embeddings|encoder\.layers\.\d+|post_layernorm)"


@dataclass
class AIMAdapterConfig(PeftConfig):
    """Describe one AIM adapter; the fields mean what they do in `AIMConfig`.

    Args:
        num_frames: Frames per clip.
        num_temporal_adapters: 1 or 2.
        adapter_ratio: Width of the bottlenecks over the hidden size.
        adapter_scale: Factor on the adapter beside the MLP.
        drop_path_rate: Highest stochastic-depth rate.
        classifier_dropout: Dropout before the head.
        temporal_pooling: "mean" or "gru".
        label_factors: What each label of the head consists of; None for a head without factors.
        num_labels: Classes of a head that trains and is saved with the adapter; 0 for none.
        id2label: Their names; sets `num_labels`.
        base_sample: Left to the method: a value of each one-dimensional weight of the CLIP underneath, by which another
            one is recognized and refused.
        base_matrix_sample: Left to the method: the same of its matrices.
        base_digest: Left to the method: SHA-256 of all its weights.
        base_dtype: Left to the method: the type these were read in.
        target_modules: Left to the method: the modules it wraps.
    """

    num_frames: int = 12
    num_temporal_adapters: int = 1
    adapter_ratio: float = 0.25
    adapter_scale: float = 0.5
    drop_path_rate: float = 0.2
    classifier_dropout: float = 0.5
    temporal_pooling: Literal["mean", "gru"] = "mean"
    label_factors: list[list[str]] | None = None
    num_labels: int = 0
    id2label: dict[int, str] | None = None
    base_sample: list[float] | None = None
    base_matrix_sample: list[float] | None = None
    base_digest: str | None = None
    base_dtype: str | None = None
    target_modules: str = TARGETS

    def __post_init__(self) -> None:
        """Name the method, and check the fields by the rules of `AIMConfig`.

        Raises:
            ValueError: There are factors of labels without labels.
        """
        super().__post_init__()
        self.peft_type = PeftType["AIM"]
        if self.id2label:
            self.id2label = {int(index): label for index, label in self.id2label.items()}
            self.num_labels = len(self.id2label)
        if self.label_factors is not None and not self.num_labels:
            raise ValueError("label_factors are those of a head's labels; name these in id2label, or leave them out")
        self.native(CLIPVisionConfig())

    def save_pretrained(self, save_directory: str, **kwargs: Any) -> None:
        """Write `adapter_config.json`, such that PEFT alone says what it lacks and `AutoPeftModel` finds the tower.

        Args:
            save_directory: A folder.
            **kwargs: `auto_mapping_dict`, the class of the base.
        """
        base = kwargs.get("auto_mapping_dict")
        if base and base["base_model_class"] == "CLIPVisionTower":  # our own name of transformers' class
            kwargs["auto_mapping_dict"] = TOWER
        super().save_pretrained(save_directory, **kwargs)
        path = Path(save_directory, CONFIG_NAME)
        written = json.loads(path.read_text(encoding="utf-8")) | {"peft_type": SAVED_TYPE}
        path.write_text(json.dumps(written, indent=2), encoding="utf-8")

    def native(self, clip: CLIPVisionConfig) -> AIMConfig:
        """Give the configuration of the `AIMModel` that this adapter makes of a CLIP."""
        names = ("num_frames", "num_temporal_adapters", "adapter_ratio", "adapter_scale", "drop_path_rate")
        changes = {name: getattr(self, name) for name in (*names, "classifier_dropout", "temporal_pooling")}
        if self.num_labels:
            changes["id2label"] = self.id2label or {index: f"LABEL_{index}" for index in range(self.num_labels)}
            changes["label2id"] = {label: index for index, label in changes["id2label"].items()}
            changes["label_factors"] = self.label_factors
        return AIMConfig.from_clip_config(clip, **changes)
