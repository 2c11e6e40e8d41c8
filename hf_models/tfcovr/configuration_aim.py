"""Configuration of AIM, a CLIP vision tower that adapters teach to read time."""

import os
from dataclasses import fields
from typing import Any, ClassVar, Literal, cast

from huggingface_hub.dataclasses import strict
from transformers import CLIPVisionConfig, PreTrainedConfig

from .own_architecture import OwnArchitecture
from .sentence_transformers_files import write_sentence_transformers_files


@strict
class AIMConfig(OwnArchitecture, CLIPVisionConfig):
    """Describe an AIM video encoder: the fields of `CLIPVisionConfig` and those below.

    AIM (Yang et al., ICLR 2023, "AIM: Adapting Image Models for Efficient Video Action Recognition") keeps the
    weights of an image model and adds bottleneck adapters. The defaults are the paper's ViT-B/16 for Diving48, with
    the 12 frames of TF-CoVR.

    Args:
        num_frames: Frames per clip; the length of the temporal embedding.
        num_temporal_adapters: 1 puts an adapter after the attention over time; 2 puts another one before it (the
            paper's choice for Something-Something v2).
        adapter_ratio: Width of an adapter's bottleneck over `hidden_size`.
        adapter_scale: Factor on the adapter beside the MLP (0.5 in the paper, 1.0 with two temporal adapters).
        drop_path_rate: Highest stochastic-depth rate; the rates rise linearly from 0 over the blocks.
        classifier_dropout: Dropout before the classification head.
        temporal_pooling: How the vectors of a clip's frames become one: their "mean", or "gru", which adds what a
            bidirectional GRU over them makes of their order to it.
        label_factors: For each label what it consists of; its weights in the head are then the sum of theirs (see
            `FactoredClassifier`). None is a head in which every label has weights of its own.

    Example:
        >>> AIMConfig(num_frames=8, hidden_size=64, num_attention_heads=4).adapter_size
        16
    """

    model_type = "aim"
    how_to_make: ClassVar[str] = "AIMModel.from_clip builds an AIM on CLIP's weights"
    checked_together: ClassVar[tuple[str, ...]] = ("label_factors",)
    base_config_key = ""

    patch_size: int = 16
    image_size: int = 224
    num_frames: int = 12
    num_temporal_adapters: int = 1
    adapter_ratio: float = 0.25
    adapter_scale: float | int = 0.5
    drop_path_rate: float | int = 0.2
    classifier_dropout: float | int = 0.5
    temporal_pooling: Literal["mean", "gru"] = "mean"
    label_factors: list[list[str]] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        """Name the files that travel with a saved model, so that every Auto class finds its own in them."""
        self.auto_map = {
            "AutoConfig": "configuration_aim.AIMConfig",
            "AutoModel": "modeling_aim.AIMModel",
            "AutoModelForVideoClassification": "modeling_aim.AIMForVideoClassification",
        }
        if self.temporal_pooling == "gru":  # sentence-transformers reads the size of embeddings here
            self.projection_dim = self.hidden_size
        kwargs.pop("auto_map", None)
        super().__post_init__(**kwargs)

    @classmethod
    def from_clip_config(cls, clip: CLIPVisionConfig, **changes: Any) -> "AIMConfig":
        """Describe an AIM on the given CLIP vision tower.

        Args:
            clip: Of the tower, whose sizes are taken over.
            **changes: Fields of `AIMConfig`.

        Returns:
            The configuration.
        """
        sizes = {field.name for field in fields(CLIPVisionConfig)} - {field.name for field in fields(PreTrainedConfig)}
        return cls(**{**{name: getattr(clip, name) for name in sizes}, **changes})

    def save_pretrained(self, save_directory: str | os.PathLike[str], push_to_hub: bool = False, **kwargs: Any) -> None:
        """Write `config.json`, and what lets sentence-transformers load the model that is saved with it.

        Args:
            save_directory: As in transformers.
            push_to_hub: As in transformers.
            **kwargs: As in transformers.
        """
        super().save_pretrained(save_directory, push_to_hub, **kwargs)
        write_sentence_transformers_files(
            save_directory,
            {"video": "forward"},
            mean_of=self.hidden_size if self.temporal_pooling == "mean" else None,
            output=None if self.temporal_pooling == "mean" else "pooler_output",
        )

    @property
    def adapter_size(self) -> int:
        """Width of the adapters' bottleneck."""
        return int(self.hidden_size * self.adapter_ratio)

    def validate_architecture(self) -> None:
        """Refuse fields that contradict each other or name what does not exist.

        Raises:
            ValueError: If a field lies outside what it may be.
        """
        super().validate_architecture()
        if self.num_temporal_adapters not in {1, 2}:
            raise ValueError(f"num_temporal_adapters is {self.num_temporal_adapters}; AIM has 1 or 2")
        if self.num_frames < 1:
            raise ValueError(f"num_frames is {self.num_frames}; a clip has at least 1")
        if self.adapter_size < 1:
            raise ValueError(f"adapter_ratio {self.adapter_ratio} of {self.hidden_size} leaves the adapters no width")
        for name in ("drop_path_rate", "classifier_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must lie in [0, 1)")
        check_label_factors(self.label_factors, cast("int", self.num_labels))


def check_label_factors(label_factors: list[list[str]] | None, num_labels: int, name: str = "label_factors") -> None:
    """Refuse factors, or words, that are not those of the labels.

    Raises:
        ValueError: There are more or fewer than labels, or a label has none.
    """
    if label_factors is None:
        return
    if len(label_factors) != num_labels:
        raise ValueError(
            f"{name} are those of {len(label_factors)} labels, but there are {num_labels}; give each label its "
            "own, or None"
        )
    if empty := [place for place, factors in enumerate(label_factors) if not factors]:
        raise ValueError(f"{name} of label {empty[0]} are empty; a label has at least its own name")
