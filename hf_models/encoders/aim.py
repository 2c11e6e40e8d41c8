"""AIM, alone or beside the text tower of its CLIP, as in TF-CoVR's zero-shot rows "AIM, Avg".

AIM reads no text, and neither paper nor code says how the text entered these rows. What is done here is inferred: AIM
is built on a CLIP, so its embedding goes through that CLIP's own projection into the space of its texts. An AIM that
has not been trained embeds a clip as its CLIP does, frame by frame.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoImageProcessor

from hf_models.checkpoints import opening
from hf_models.encoders.adapters import is_adapter, with_adapter
from hf_models.encoders.protocol import Encoder, Usage, unit_rows
from hf_models.fingerprints import weights_fingerprint


class AIMEncoder(Encoder):
    """AIM, and the text tower of its CLIP.

    Args:
        model: The AIM.
        processor: Its video processor.
        num_frames: As of `Encoder`.
        clip: The encoder of the CLIP that it was built on; None: it reads no texts.

    Raises:
        ValueError: It was built on another CLIP, in whose space its embedding means nothing.
    """

    usage = Usage(
        family="AIM",
        frames="as many as it was made for; with another number its temporal embedding is stretched",
        prompt="the text alone",
        pooling="the mean of AIM's frames through CLIP's visual projection, and CLIP's text projection; unit-norm",
        query="mean of the unit-norm video and the unit-norm text",
        source="arXiv:2302.03024; taoyang1122/adapt-image-models (converted by hf_models.tfcovr.convert_aim)",
        license="Apache-2.0; CLIP MIT",
        inferred="the text: TF-CoVR does not say how one entered its rows of AIM",
    )
    processor_class = "AutoVideoProcessor"

    def __init__(self, model: Any, processor: Any, num_frames: int, *, clip: Encoder | None = None) -> None:
        super().__init__(model, SimpleNamespace(video_processor=processor), num_frames)
        self.clip, self.reads_texts = clip, clip is not None
        if clip is not None:
            patches = clip.model.vision_model.embeddings.patch_embedding.weight
            own = model.embeddings.patch_embedding.weight
            if own.shape != patches.shape or not torch.allclose(own.float(), patches.float(), atol=1e-3):
                raise ValueError(
                    f"this AIM was built on another CLIP than {clip.model.name_or_path} (its patch embedding differs), "
                    "whose texts it cannot be compared with; name the CLIP that it was built on as --aim_text"
                )

    @property
    def depends_on(self) -> dict[str, str]:
        """With the CLIP."""
        if self.clip is None:
            return {}
        return {"clip": weights_fingerprint(self.clip.model), "tokenizer": self.clip.fingerprint["tokenizer"]}

    def encode_video(self, frames: Sequence[Tensor]) -> Tensor:
        """Unit-norm `(B, D)`."""
        pixels = self.videos(frames)["pixel_values"]
        other = pixels.shape[1] != self.model.config.num_frames
        embeds = self.model(pixels, interpolate_temporal=other).pooler_output
        return unit_rows(embeds if self.clip is None else self.clip.model.visual_projection(embeds))

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Unit-norm `(N, D)`.

        Raises:
            ValueError: There is no CLIP.
        """
        if self.clip is None:
            raise ValueError("AIM has no text tower; name the CLIP that it was built on")
        return self.clip.encode_text(texts)


def is_aim(name_or_path: str) -> bool:
    """Whether a folder or a name on the Hub is an AIM, or AIM's adapters."""
    try:
        if is_adapter(name_or_path):
            from peft import PeftConfig

            from hf_models.tfcovr.configuration_aim_adapter import AIMAdapterConfig

            return isinstance(PeftConfig.from_pretrained(name_or_path), AIMAdapterConfig)
        config: Any = AutoConfig.from_pretrained(name_or_path, trust_remote_code=False)
        return bool(config.model_type == "aim")
    except (OSError, ValueError, KeyError):
        return False


def adapted_aim(folder: str, base: str) -> tuple[Any, Any]:
    """An AIM of adapters on a CLIP, and its video processor; PEFT refuses another CLIP than theirs."""
    from hf_models.tfcovr.merging_aim import to_aim
    from hf_models.tfcovr.modeling_aim import load_clip_vision
    from hf_models.tfcovr.video_processing_aim import AIMVideoProcessor

    with opening(folder, checked=True):
        tower, _ = load_clip_vision(base)
        aim = to_aim(with_adapter(tower, folder))
        images = AutoImageProcessor.from_pretrained(base)
        processor = AIMVideoProcessor.from_image_processor(images, num_frames=aim.config.num_frames)
    return getattr(aim, "aim", aim), processor
