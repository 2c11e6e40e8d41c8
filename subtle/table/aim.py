"""AIM beside a text tower, for TF-CoVR's zero-shot rows "AIM, Avg".

AIM reads no text, and neither paper nor code says how the text entered these rows. What is done here is inferred: AIM
is built on a CLIP, so its embedding goes through that CLIP's own projection into the space of its texts. An AIM that
has not been trained embeds a clip as its CLIP does, frame by frame.
"""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from peft import PeftConfig, PeftModel
from torch import Tensor, nn
from transformers import AutoConfig, AutoImageProcessor, AutoVideoProcessor, CLIPModel

from hf_models import AIMAdapterConfig, AIMForVideoClassification, AIMModel, AIMVideoProcessor
from hf_models.checkpoints import open_whole
from hf_models.encoders import Estimate, ImageEncoder, Usage
from hf_models.encoders.estimates import CONTEXT_BYTES, check_memory, estimate_model
from hf_models.encoders.loading import load_processor, load_whole
from hf_models.encoders.protocol import Encoder, pooled, unit
from hf_models.tfcovr.merging_aim import to_aim
from hf_models.tfcovr.modeling_aim import load_clip_vision
from subtle.run.model_folders import check_model_folder

ADAPTER = "adapter_config.json"


class AIMWithTexts(nn.Module):
    """An AIM and the CLIP that it was built on, None without texts."""

    def __init__(self, aim: AIMModel, clip: CLIPModel | None) -> None:
        super().__init__()
        self.aim, self.clip = aim, clip

    @property
    def device(self) -> torch.device:
        """Where both are."""
        return self.aim.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the video encoder's weights."""
        return self.aim.dtype

    @property
    def config(self) -> Any:
        """Of the CLIP, or of the AIM alone."""
        return (self.clip or self.aim).config


class AIMEncoder(Encoder):
    """AIM, and the text tower of its CLIP."""

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

    def __init__(self, model: Any, processor: Any, num_frames: int) -> None:
        super().__init__(model, processor, num_frames)
        self.reads_texts = model.clip is not None

    def encode_video(self, frames: Sequence[Tensor]) -> Tensor:
        """Unit-norm `(B, D)`."""
        pixels = self.videos(frames)["pixel_values"]
        other = pixels.shape[1] != self.model.aim.config.num_frames
        embeds = self.model.aim(pixels, interpolate_temporal=other).pooler_output
        return unit(embeds if self.model.clip is None else self.model.clip.visual_projection(embeds))

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Unit-norm `(N, D)`.

        Raises:
            ValueError: There is no CLIP.
        """
        if self.model.clip is None:
            raise ValueError("AIM has no text tower; name the CLIP that it was built on")
        return unit(pooled(self.model.clip.get_text_features(**self.tokens(texts))))


def is_aim(name_or_path: str) -> bool:
    """Whether a folder or a name on the Hub is an AIM, or AIM's adapters."""
    try:
        if is_adapter(name_or_path):
            return isinstance(PeftConfig.from_pretrained(name_or_path), AIMAdapterConfig)
        config: Any = AutoConfig.from_pretrained(name_or_path, trust_remote_code=False)
        return bool(config.model_type == "aim")
    except (OSError, ValueError, KeyError):
        return False


def is_adapter(name_or_path: str) -> bool:
    """Whether a folder holds adapters."""
    return (Path(name_or_path) / ADAPTER).is_file()


def load_aim(
    name_or_path: str, text_model: str | None, device: torch.device | str = "cpu", num_frames: int | None = None
) -> AIMEncoder:
    """An AIM with the text tower of the CLIP that it was built on.

    Args:
        name_or_path: a folder or a name on the Hub: an AIM, or a folder of AIM's adapters.
        text_model: that CLIP; None: the encoder reads no texts, and adapters name their CLIP themselves.
        device: where it runs.
        num_frames: frames of a clip; None: as many as it was made for.

    Raises:
        ValueError: the AIM was built on another CLIP, some of its weights are missing, or the GPU is too small.
        OSError: there is no such model.
    """
    for name in {name_or_path, text_model or name_or_path}:
        check_model_folder(name)
    check_memory(estimate_aim(name_or_path, text_model, num_frames), device, name_or_path)
    base = base_of(name_or_path, text_model)
    clip, tokenizer = load_clip(base) if text_model else (None, None)
    aim, videos = adapted_aim(name_or_path, base) if is_adapter(name_or_path) else whole_aim(name_or_path)
    if clip is not None:
        check_base(aim, clip, name_or_path, base)
    model = AIMWithTexts(aim, clip).to(device).eval()
    processor = SimpleNamespace(video_processor=videos, tokenizer=tokenizer)
    return AIMEncoder(model, processor, num_frames or aim.config.num_frames)


def base_of(name_or_path: str, text_model: str | None) -> str:
    """The CLIP underneath: as named, or as adapters name it."""
    if text_model is None and is_adapter(name_or_path):
        return str(PeftConfig.from_pretrained(name_or_path).base_model_name_or_path)
    return text_model or name_or_path


def load_clip(base: str) -> tuple[CLIPModel, Any]:
    """A whole CLIP and its tokenizer.

    Raises:
        ValueError: it is another model, or not whole.
    """
    config = AutoConfig.from_pretrained(base)
    if config.model_type != "clip":
        raise ValueError(f"{base} is a {config.model_type!r} model; AIM is built on a 'clip', with both its towers")
    return load_whole(base, ImageEncoder, config), load_processor(base, ImageEncoder, config).tokenizer


def adapted_aim(folder: str, base: str) -> tuple[AIMModel, AIMVideoProcessor]:
    """An AIM of adapters on a CLIP; PEFT refuses another CLIP than theirs."""
    tower, _ = load_clip_vision(base)
    adapters = PeftModel.from_pretrained(tower, folder)
    aim = to_aim(adapters)
    frames = aim.config.num_frames
    images = AutoImageProcessor.from_pretrained(base)
    model = aim.aim if isinstance(aim, AIMForVideoClassification) else aim
    return model, AIMVideoProcessor.from_image_processor(images, num_frames=frames)


def whole_aim(name_or_path: str) -> tuple[AIMModel, Any]:
    """An AIM of a folder or the Hub, and its processor.

    Raises:
        ValueError: some weights are missing.
    """
    return open_whole(AIMModel, name_or_path), AutoVideoProcessor.from_pretrained(name_or_path)


def check_base(aim: AIMModel, clip: CLIPModel, name: str, base: str) -> None:
    """Refuse an AIM that was built on another CLIP, in whose space its embedding means nothing.

    Raises:
        ValueError: it was.
    """
    patches = clip.vision_model.embeddings.patch_embedding.weight
    own = aim.embeddings.patch_embedding.weight
    if own.shape != patches.shape or not torch.allclose(own.float(), patches.float(), atol=1e-3):
        raise ValueError(
            f"{name} was built on another CLIP than {base} (its patch embedding differs), whose texts it cannot be "
            "compared with; name the CLIP that it was built on as --aim_text"
        )


def estimate_aim(name_or_path: str, text_model: str | None, num_frames: int | None) -> Estimate:
    """What `load_aim` will download and need, from the configurations alone."""
    clip = AutoConfig.from_pretrained(base_of(name_or_path, text_model)) if text_model else None
    if is_adapter(name_or_path):
        base = clip or AutoConfig.from_pretrained(base_of(name_or_path, None))
        config = AIMAdapterConfig.from_pretrained(name_or_path).native(getattr(base, "vision_config", base))
    else:
        config = AutoConfig.from_pretrained(name_or_path)
    own = estimate_model(config, "AutoModel", num_frames or config.num_frames)
    if clip is None:
        return own
    text = estimate_model(clip, "CLIPModel", 1)
    return Estimate(
        own.parameters + text.parameters,
        own.download_bytes + text.download_bytes,
        own.memory_bytes + text.memory_bytes - CONTEXT_BYTES,
    )
