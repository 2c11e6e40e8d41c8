"""TF-CoVR and FactoredCoVR, which compose a clip with the text that changes it, and AIM, their encoder of clips.

AIM reads no text, and neither paper nor code says how the text entered TF-CoVR's zero-shot rows "AIM, Avg". What is
done here is inferred: AIM is built on a CLIP, so its embedding goes through that CLIP's own projection into the space
of its texts. An AIM that has not been trained embeds a clip as its CLIP does, frame by frame.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoImageProcessor

from hf_models.checkpoints import opening
from hf_models.encoders.adapters import is_adapter, with_adapter
from hf_models.encoders.protocol import Encoder, Usage, unit
from hf_models.fingerprints import weights_fingerprint


class TFCoVREncoder(Encoder):
    """A model that stage 2 trained: a query is composed of a clip and a text, either of which may be missing."""

    usage = Usage(
        family="TF-CoVR, FactoredCoVR",
        frames="as its processor says; one video",
        prompt="the text alone",
        pooling="a video as a target; unit-norm",
        query="the model's fusion of video and text",
        source="TF-CoVR; trained by `subtle stage2`",
        license="that of the encoders it starts from",
        inferred="a clip alone is looked for by what it looks like, as a target: a query always changes something",
    )

    @classmethod
    def fixed_frames(cls, config: Any, processor: Any = None) -> int | None:  # noqa: ARG003
        """As many as it was trained with."""
        return None if processor is None else processor.video_processor.num_frames

    def tokens(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Token ids as the model was trained on."""
        tokens: dict[str, Tensor] = self.processor(text=list(texts)).to(self.model.device)
        return tokens

    def count_tokens(self, text: str) -> tuple[int, int | None]:
        """See `Encoder`."""
        longest = int(self.processor.text_kwargs["max_length"])
        return self.processor(text=[text], max_length=10_000)["input_ids"].shape[1], longest

    def encode_video(self, frames: Sequence[Tensor]) -> Tensor:
        """Unit-norm `(B, D)`: videos as targets."""
        return self.target(self.see(frames))

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Unit-norm `(N, D)`: queries without a video."""
        return self.query_of(None, texts)

    def compose(self, frames: Sequence[Tensor], texts: Sequence[str]) -> Tensor:
        """Unit-norm `(B, D)`, by the model's fusion."""
        return self.query_of(self.see(frames), texts)

    def see(self, frames: Sequence[Tensor]) -> Tensor:
        """What the video encoder gives, `(B, video_embed_dim)`."""
        embeds: Tensor = self.model.encode_video(self.videos(frames)["pixel_values"])
        return embeds

    def target(self, seen: Tensor) -> Tensor:
        """Unit-norm `(B, D)`."""
        embeds: Tensor = self.model.get_target_features(video_embeds=seen.to(self.model.device))
        return embeds.float()

    def query_of(self, seen: Tensor | None, texts: Sequence[str] | None) -> Tensor:
        """Unit-norm `(B, D)` by the model's fusion, in which a missing half is zeros."""
        inputs: dict[str, Any] = {} if texts is None else self.tokens(texts)
        video = None if seen is None else seen.to(self.model.device)
        embeds: Tensor = self.model.get_query_features(video_embeds=video, **inputs)
        return embeds.float()


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
        return unit(embeds if self.clip is None else self.clip.model.visual_projection(embeds))

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
