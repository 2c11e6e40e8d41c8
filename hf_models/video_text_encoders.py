"""Models that compare videos with texts, behind one interface: VidCLIP, the Auto classes', sentence-transformers'.

An image model (CLIP, SigLIP, SigLIP 2) sees each frame, and the mean of its unit-norm frames is the video: CLIP4Clip's
mean pooling. X-CLIP, VideoPrism and Perception Encoder are video models of their own.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel, AutoProcessor
from transformers.utils import cached_file

IMAGE_FRAMES = 12
"""Frames that an image model sees of a video, as in CLIP4Clip."""


class VideoTextEncoder(Protocol):
    """What a model must do to be compared with others.

    `num_frames` is how many frames of a video it reads; `encode_videos` and `encode_texts` give what `compare` takes,
    one row per video or text; `compare` gives similarities `(videos, texts)`.
    """

    num_frames: int

    def encode_videos(self, frames: Sequence[Tensor]) -> Tensor:
        """Videos, each `(num_frames, 3, height, width)` uint8, as rows."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Texts as rows."""
        ...

    def compare(self, videos: Tensor, texts: Tensor) -> Tensor:
        """Similarities `(videos, texts)`; higher fits better."""
        ...


class DotProductEncoder:
    """A model whose videos and texts are compared by their dot products, cosines where they are unit-norm.

    Args:
        model: In evaluation mode, on its device.
        processor: Its own.
        num_frames: How many frames of a video it reads.
    """

    def __init__(self, model: Any, processor: Any, num_frames: int) -> None:
        self.model, self.processor, self.num_frames = model, processor, num_frames

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Unit-norm `(N, D)`."""
        return F.normalize(pooled(self.model.get_text_features(**self.tokens(texts))), dim=-1)

    def encode_videos(self, frames: Sequence[Tensor]) -> Tensor:
        """Unit-norm `(B, D)`."""
        features = self.model.get_video_features(**self.videos(frames))
        return F.normalize(pooled(features).flatten(1), dim=-1)  # VideoPrism gives (B, 1, D)

    def compare(self, videos: Tensor, texts: Tensor) -> Tensor:
        """Dot products `(B, N)`."""
        return videos @ texts.T

    def tokens(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Token ids of texts, cut to the longest that the model reads."""
        tokenizer = self.processor.tokenizer
        fields = self.model.config.get_text_config()
        longest = min(tokenizer.model_max_length, getattr(fields, "max_position_embeddings", 10**6))
        padding = "max_length" if "siglip" in self.model.config.model_type else True  # as it was trained
        tokens = tokenizer(list(texts), padding=padding, truncation=True, max_length=longest, return_tensors="pt")
        wanted = ("input_ids", "attention_mask")
        return {name: tokens[name].to(self.model.device) for name in wanted if name in tokens}

    def videos(self, frames: Sequence[Tensor]) -> dict[str, Tensor]:
        """What the processor makes of frames that are sampled already."""
        batch = self.processor.video_processor(list(frames), do_sample_frames=False, return_tensors="pt")
        return {name: value.to(self.model.device) for name, value in batch.items()}


class VidCLIPEncoder(DotProductEncoder):
    """VidCLIP, which reads longer texts than the CLIP whose tokenizer it has."""

    def tokens(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Token ids as VidCLIP was trained on."""
        tokens: dict[str, Tensor] = self.processor(text=list(texts)).to(self.model.device)
        return tokens


class ImageEncoder(DotProductEncoder):
    """An image model, averaged over frames."""

    def encode_videos(self, frames: Sequence[Tensor]) -> Tensor:
        """Unit-norm `(B, D)`."""
        images = [frame for video in frames for frame in video]
        batch = self.processor.image_processor(images, return_tensors="pt").to(self.model.device)
        each = F.normalize(pooled(self.model.get_image_features(**batch)), dim=-1)
        return F.normalize(each.unflatten(0, (len(frames), -1)).mean(1), dim=-1)


class XCLIPEncoder(DotProductEncoder):
    """X-CLIP, whose texts are prompted by the video that they are compared with."""

    def encode_videos(self, frames: Sequence[Tensor]) -> Tensor:
        """`(B, 1 + patches, D)`: the video, then what prompts the texts."""
        images = self.processor.image_processor([list(video) for video in frames], return_tensors="pt")
        frames_of_all = images["pixel_values"].to(self.model.device)  # some image processors flatten videos
        pixel_values = frames_of_all.reshape(len(frames), -1, *frames_of_all.shape[-3:])
        probe = self.tokens(["."])
        output = self.model(pixel_values=pixel_values, **probe)
        seen = output.vision_model_output.last_hidden_state[:, 1:]
        seen = self.model.prompts_visual_layernorm(seen) @ self.model.prompts_visual_projection
        seen = seen.unflatten(0, (len(frames), -1)).mean(1)
        return torch.cat([output.video_embeds[:, None], seen], dim=1)

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """`(N, D)`, not yet prompted."""
        return pooled(self.model.get_text_features(**self.tokens(texts)))

    def compare(self, videos: Tensor, texts: Tensor) -> Tensor:
        """Cosines `(B, N)`."""
        videos, texts = videos.to(self.model.device), texts.to(self.model.device)
        rows = []
        for video in videos:
            prompted = texts[None] + self.model.prompts_generator(texts[None], video[None, 1:])
            rows.append(F.normalize(prompted[0], dim=-1) @ F.normalize(video[0], dim=-1))
        return torch.stack(rows).cpu()


class PerceptionEncoder(DotProductEncoder):
    """Perception Encoder for video, which embeds videos and texts only together."""

    def encode_videos(self, frames: Sequence[Tensor]) -> Tensor:
        """`(B, D)`; their length counts."""
        embeds: Tensor = self.model(**self.tokens(["."]), **self.videos(frames)).video_embeds
        return embeds

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """`(N, D)`; their length counts."""
        nothing = self.videos([torch.zeros(1, 3, 32, 32, dtype=torch.uint8)])
        embeds: Tensor = self.model(**self.tokens(texts), **nothing).text_video_embeds
        return embeds


class SentenceTransformerEncoder:
    """Any model of sentence-transformers that embeds videos and texts, TF-CoVR's among them.

    Args:
        model: A `SentenceTransformer`.
        num_frames: How many frames of a video it reads.

    Raises:
        ValueError: The model does not embed both.
    """

    def __init__(self, model: Any, num_frames: int) -> None:
        if missing := [modality for modality in ("video", "text") if not model.supports(modality)]:
            raise ValueError(
                f"this sentence-transformers model does not embed {' and '.join(missing)}; it takes {model.modalities}"
            )
        self.model, self.num_frames = model, num_frames

    def encode_videos(self, frames: Sequence[Tensor]) -> Tensor:
        """`(B, D)`, of frames that are sampled already."""
        return self.encode([{"video": video} for video in frames], {"video": {"do_sample_frames": False}})

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """`(N, D)`."""
        return self.encode([{"text": text} for text in texts], {})  # a text that ends in .mp4 is a text

    def compare(self, videos: Tensor, texts: Tensor) -> Tensor:
        """Similarities `(B, N)` by the model's own function, mostly cosines."""
        similarity: Tensor = self.model.similarity(videos, texts)
        return similarity

    def encode(self, inputs: list[dict[str, Any]], processing: dict[str, dict[str, Any]]) -> Tensor:
        """Rows of what sentence-transformers takes."""
        rows: Tensor = self.model.encode(
            inputs, convert_to_tensor=True, show_progress_bar=False, processing_kwargs=processing
        )
        return rows.clone()  # out of inference mode


IMAGE_MODELS = ("clip", "siglip", "siglip2", "altclip", "metaclip_2")
ENCODERS = {
    "vidclip": VidCLIPEncoder,
    "xclip": XCLIPEncoder,
    "videoprism": DotProductEncoder,
    "pe_video": PerceptionEncoder,
    **dict.fromkeys(IMAGE_MODELS, ImageEncoder),
}


def load_encoder(
    name_or_path: str,
    device: torch.device | str = "cpu",
    num_frames: int | None = None,
    *,
    trust_remote_code: bool = False,
) -> VideoTextEncoder:
    """A model and its processor from a folder or the Hub.

    Args:
        name_or_path: Any model of `ENCODERS`, or of sentence-transformers.
        device: Where it runs.
        num_frames: Frames of a video; None: as the model was made for, 12 for an image model.
        trust_remote_code: Run the code that the folder or repository holds, where its model is of no library.

    Returns:
        The encoder, in evaluation mode.

    Raises:
        ValueError: The model is of a family that is not in `ENCODERS`, nor does sentence-transformers load it as one
            that embeds videos and texts.
        OSError: There is no such model.
        ImportError: The model needs a package that is not installed, such as timm for Perception Encoder, or
            sentence-transformers.

    Example:
        >>> encoder = load_encoder("recipes/weights/miniature-clip", num_frames=4)
        >>> video = torch.zeros(4, 3, 64, 64, dtype=torch.uint8)
        >>> encoder.compare(encoder.encode_videos([video]), encoder.encode_texts(["a vault", "a dive"])).shape
        torch.Size([1, 2])
    """
    try:
        config = AutoConfig.from_pretrained(name_or_path, trust_remote_code=trust_remote_code)
    except (OSError, ValueError):  # the parts of a sentence-transformers model may lie in folders of their own
        if not is_sentence_transformer(name_or_path):
            raise
        return load_sentence_transformer(name_or_path, device, num_frames, trust_remote_code)
    if config.model_type not in ENCODERS:
        if is_sentence_transformer(name_or_path):
            return load_sentence_transformer(name_or_path, device, num_frames, trust_remote_code)
        raise ValueError(
            f"{name_or_path} is a {config.model_type!r} model, which does not compare videos with texts; there are "
            f"{', '.join(ENCODERS)} and what sentence-transformers has saved"
        )
    try:
        processor = AutoProcessor.from_pretrained(name_or_path)
        model = AutoModel.from_pretrained(name_or_path).to(device).eval()
    except ImportError as error:  # Perception Encoder's tower is one of timm's
        raise ImportError(f"{name_or_path}: {str(error).strip()}") from error
    return ENCODERS[config.model_type](model, processor, num_frames or default_frames(config))


def is_sentence_transformer(name_or_path: str) -> bool:
    """Whether a folder or repository says of what modules a sentence-transformers model consists."""
    missing = {
        f"_raise_exceptions_for_{what}": False for what in ("missing_entries", "connection_errors", "gated_repo")
    }
    return cached_file(name_or_path, "modules.json", **missing) is not None


def load_sentence_transformer(
    name_or_path: str, device: torch.device | str, num_frames: int | None, trust_remote_code: bool
) -> SentenceTransformerEncoder:
    """A model of sentence-transformers; see `load_encoder`.

    Raises:
        ImportError: sentence-transformers is not installed.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        message = f'{name_or_path} needs sentence-transformers: `pip install "subtle-video[sentence-transformers]"`'
        raise ImportError(message) from error
    model = SentenceTransformer(name_or_path, device=str(device), trust_remote_code=trust_remote_code)
    return SentenceTransformerEncoder(model, num_frames or default_frames(model.config))


def default_frames(config: Any) -> int:
    """How many frames of a video a model was made for."""
    for part in (config, getattr(config, "vision_config", None)):
        num_frames: int | None = getattr(part, "num_frames", None)
        if num_frames:
            return num_frames
    return IMAGE_FRAMES if getattr(config, "model_type", None) in IMAGE_MODELS else 16


def short_name(name_or_path: str) -> str:
    """What a model is called in tables: the folder above `model`, or the name on the Hub."""
    path = Path(name_or_path)
    return path.parent.name if path.name == "model" else path.name


def pooled(features: Any) -> Tensor:
    """The embeddings, whether the model gives them bare or in an output."""
    return features if isinstance(features, Tensor) else features.pooler_output
