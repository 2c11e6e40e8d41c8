"""Encoders of moments of videos, and of the clips and texts with which one looks for them, behind one interface.

A moment encoder is a plain class: `__call__(batch) -> batch` adds the vectors of moments, in a loop here or in another
engine's workers. It knows what its vectors depend on (`made_by`), and that the query of a search has to come from the
same model.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoConfig

from hf_models.checkpoints import open_whole, opening
from hf_models.fingerprints import processor_fingerprint, tokenizer_fingerprint, weights_fingerprint
from hf_models.query_texts import check_length, check_text

FrameSize = int | tuple[int, int] | None


class MomentEncoder:
    """What every encoder of moments does; see `load_moment_encoder`.

    Attributes:
        model: In evaluation mode, on its device.
        num_frames: Frames of a moment, the middles of as many equal parts.
        frame_size: What frames are resized to while they are read: the shorter side, (height, width), or None.
        reads_texts: Whether a query can have a text.
    """

    model: Any
    num_frames: int
    frame_size: FrameSize
    reads_texts = True

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Embed a batch of moments.

        Args:
            batch: `frames`, B tensors `(num_frames, 3, height, width)` uint8; anything else stays.

        Returns:
            The batch without `frames` and with `vector`, `(B, D)` float32. A larger dot product fits better.
        """
        with torch.inference_mode():
            vectors = self.encode_moments(list(batch["frames"])).float().cpu()
        return {**{name: value for name, value in batch.items() if name != "frames"}, "vector": vectors.numpy()}

    def query(self, frames: Tensor | None = None, text: str | None = None) -> np.ndarray:
        """Embed what to look for: a clip, a text, or a clip and how the moment differs from it.

        Args:
            frames: `(num_frames, 3, height, width)` uint8.
            text: In words; no longer than the model reads.

        Returns:
            `(D,)` float32.

        Raises:
            ValueError: There is neither, or the model reads no such text.
        """
        if frames is None and text is None:
            raise ValueError("give a clip, a text or both")
        if text is not None:
            self.check_text(text)
        with torch.inference_mode():
            vector: np.ndarray = self.encode_query(frames, text).float().cpu().numpy()[0]
        return vector

    def check_text(self, text: str) -> None:
        """Refuse a text that the model would not read, or not to its end.

        Raises:
            ValueError: It is empty or too long, or the model reads none.
        """
        if not self.reads_texts:
            raise ValueError(
                "this model embeds videos only, so a query is a clip; index with a model that stage2.py trained, "
                "VidCLIP, CLIP or SigLIP to search by text"
            )
        check_text(text)
        check_length(*self.count_tokens(text))

    def encode_moments(self, frames: list[Tensor]) -> Tensor:
        """`(B, D)`."""
        raise NotImplementedError

    def encode_query(self, frames: Tensor | None, text: str | None) -> Tensor:
        """`(1, D)`."""
        raise NotImplementedError

    def count_tokens(self, text: str) -> tuple[int, int | None]:  # noqa: ARG002 of a model that reads texts
        """How many tokens a text has, and the most that the model reads; None where that is unknown."""
        return 0, None

    def parts(self) -> dict[str, str]:
        """Fingerprints, besides the weights, of what the vectors depend on."""
        raise NotImplementedError

    @property
    def made_by(self) -> dict[str, str]:
        """What the vectors depend on, by name."""
        return {
            "encoder": type(self).__name__,
            "weights": weights_fingerprint(self.model),
            **self.parts(),
            "sampler": f"middle of {self.num_frames} equal parts",
            "frame_size": json.dumps(self.frame_size),
        }


class ComposedMomentEncoder(MomentEncoder):
    """A model that stage 2 trained: the query is composed of a clip and a text, either of which may be missing."""

    def __init__(self, model: Any, processor: Any) -> None:
        self.model, self.processor = model, processor
        self.num_frames = processor.video_processor.num_frames
        self.frame_size = frame_size_of(processor.video_processor)

    def encode_moments(self, frames: list[Tensor]) -> Tensor:
        """`(B, D)`, unit-norm."""
        features: Tensor = self.model.get_target_features(pixels_of(self.processor, frames, self.model.device))
        return features

    def encode_query(self, frames: Tensor | None, text: str | None) -> Tensor:
        """`(1, D)`, unit-norm; of a clip alone what a moment has, since a query always changes something."""
        if text is None:
            return self.encode_moments([] if frames is None else [frames])
        inputs: dict[str, Tensor] = self.processor(text=[text]).to(self.model.device)
        if frames is not None:
            inputs["pixel_values"] = pixels_of(self.processor, [frames], self.model.device)
        features: Tensor = self.model.get_query_features(**inputs)
        return features

    def count_tokens(self, text: str) -> tuple[int, int | None]:
        """See `MomentEncoder`."""
        longest = int(self.processor.text_kwargs["max_length"])
        return self.processor(text=[text], max_length=10_000)["input_ids"].shape[1], longest

    def parts(self) -> dict[str, str]:
        """Of processor and tokenizer."""
        processor = self.processor
        return {
            "processor": processor_fingerprint(processor.video_processor),
            "tokenizer": tokenizer_fingerprint(processor.tokenizer, number_words=processor.number_words),
        }


class VideoMomentEncoder(MomentEncoder):
    """A model of videos alone, such as AIM: a query is a clip."""

    reads_texts = False

    def __init__(self, model: Any, video_processor: Any) -> None:
        self.model, self.video_processor = model, video_processor
        self.num_frames = video_processor.num_frames or getattr(model.config, "num_frames", None) or 12
        self.frame_size = frame_size_of(video_processor)

    def encode_moments(self, frames: list[Tensor]) -> Tensor:
        """`(B, D)`, unit-norm."""
        batch = self.video_processor(frames, do_sample_frames=False, return_tensors="pt")
        return F.normalize(self.model(pixel_values=batch["pixel_values"].to(self.model.device)).pooler_output, dim=-1)

    def encode_query(self, frames: Tensor | None, text: str | None) -> Tensor:  # noqa: ARG002 it is refused before
        """`(1, D)`, unit-norm."""
        return self.encode_moments([] if frames is None else [frames])

    def parts(self) -> dict[str, str]:
        """Of processor and tokenizer."""
        return {"processor": processor_fingerprint(self.video_processor)}


class PairMomentEncoder(MomentEncoder):
    """A model that compares videos with texts: a clip and a text are what the encoder makes of both.

    Args:
        encoder: Of `hf_models.encoders`.

    Raises:
        ValueError: It does not compare by a dot product, which a search needs.
    """

    def __init__(self, encoder: Any) -> None:
        self.encoder, self.model, self.num_frames = encoder, encoder.model, encoder.num_frames
        self.reads_texts = getattr(encoder, "reads_texts", True)
        self.processor = getattr(encoder, "processor", None)
        if self.processor is None:  # of sentence-transformers
            similarity = getattr(self.model, "similarity_fn_name", "cosine")
            if similarity not in {"cosine", "dot"}:
                raise ValueError(f"this model compares by {similarity!r}, and a search by cosine or dot product")
            self.processor = getattr(self.model[0], "processor", None)
        elif type(encoder).__name__ == "XCLIPEncoder":
            raise ValueError(
                "X-CLIP's texts depend on the video that they are compared with, so they have no vector to search by; "
                "choose CLIP, SigLIP, VidCLIP or a model that stage2.py trained"
            )
        self.is_cosine = getattr(self.model, "similarity_fn_name", "cosine") == "cosine"
        kinds = ("video_processor", "image_processor")
        found = (getattr(self.processor, kind, None) for kind in kinds)
        self.frames_processor = next((kind for kind in found if kind is not None), None)
        self.frame_size = frame_size_of(self.frames_processor)

    def encode_moments(self, frames: list[Tensor]) -> Tensor:
        """`(B, D)`, unit-norm."""
        return self.scaled(self.encoder.encode_video(frames))

    def encode_query(self, frames: Tensor | None, text: str | None) -> Tensor:
        """`(1, D)`, unit-norm."""
        if frames is not None and text is not None:
            return self.scaled(self.encoder.encode_query([frames], [text]))
        return self.scaled(self.encoder.encode_text([text]) if frames is None else self.encoder.encode_video([frames]))

    def scaled(self, vectors: Tensor) -> Tensor:
        """Rows of length 1, where the model compares by cosine."""
        return F.normalize(vectors.float(), dim=-1) if self.is_cosine else vectors

    def count_tokens(self, text: str) -> tuple[int, int | None]:
        """See `MomentEncoder`."""
        tokenizer = getattr(self.processor, "tokenizer", None)
        if tokenizer is None or not hasattr(self.model.config, "get_text_config"):
            return 0, None
        longest = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return len(tokenizer(text)["input_ids"]), longest and min(longest, tokenizer.model_max_length)

    def parts(self) -> dict[str, str]:
        """Of processor and tokenizer."""
        tokenizer = getattr(self.processor, "tokenizer", None)
        prints = {} if self.frames_processor is None else {"processor": processor_fingerprint(self.frames_processor)}
        if hasattr(tokenizer, "backend_tokenizer"):
            prints["tokenizer"] = tokenizer_fingerprint(tokenizer)
        return prints | getattr(self.encoder, "depends_on", {})


def load_moment_encoder(
    name_or_path: str,
    device: torch.device | str = "cpu",
    num_frames: int | None = None,
    *,
    trust_remote_code: bool = False,
) -> MomentEncoder:
    """An encoder of moments from a model folder or the Hub.

    Args:
        name_or_path: A model that stage 2 trained, AIM, VidCLIP, CLIP, SigLIP, or any other that
            `encoders.load_encoder` takes, sentence-transformers' video models among them.
        device: Where it runs.
        num_frames: Frames of a moment; None: as the model was made for, 12 for an image model.
        trust_remote_code: Run the code that the folder or repository holds, where its model is of no library.

    Raises:
        ValueError: The model embeds no videos, or takes another number of frames.
        OSError: There is no such model.
        ImportError: It needs a package that is not installed.

    Example:
        >>> encoder = load_moment_encoder("recipes/weights/miniature-clip", num_frames=4)
        >>> moment = torch.zeros(4, 3, 64, 64, dtype=torch.uint8)
        >>> encoder({"moment_id": ["a"], "frames": [moment]})["vector"].shape, encoder.query(text="a vault").shape
        ((1, 64), (64,))
    """
    from hf_models.tfcovr.configuration_tfcovr import COMPOSED_MODEL_TYPES

    model_type = type_of(name_or_path, trust_remote_code=trust_remote_code)
    if model_type in COMPOSED_MODEL_TYPES:
        from transformers import AutoModel, AutoProcessor

        from hf_models.encoders.loading import check_pixels

        with opening(name_or_path):
            processor = AutoProcessor.from_pretrained(name_or_path)
            check_num_frames(name_or_path, processor.video_processor.num_frames, num_frames)
            check_pixels(processor, name_or_path)
            composed = ComposedMomentEncoder(open_whole(AutoModel, name_or_path).to(device).eval(), processor)
            composed.query(torch.zeros(composed.num_frames, 3, 48, 64, dtype=torch.uint8), "a")  # damage shows now
            return composed
    if model_type == "aim":
        from transformers import AutoModel, AutoVideoProcessor

        with opening(name_or_path):
            model = open_whole(AutoModel, name_or_path).to(device).eval()
            check_num_frames(name_or_path, model.config.num_frames, num_frames)
            return VideoMomentEncoder(model, AutoVideoProcessor.from_pretrained(name_or_path))
    from hf_models.encoders import load_encoder

    return PairMomentEncoder(load_encoder(name_or_path, device, num_frames, trust_remote_code=trust_remote_code))


def type_of(name_or_path: str, *, trust_remote_code: bool) -> str | None:
    """The `model_type` of a model; None where it has no configuration, as one of sentence-transformers may."""
    try:
        with opening(name_or_path):
            config = AutoConfig.from_pretrained(name_or_path, trust_remote_code=trust_remote_code)
    except (OSError, ValueError):
        return None
    model_type: str = config.model_type
    return model_type


def check_num_frames(name_or_path: str, made_for: int, wanted: int | None) -> None:
    """Refuse another number of frames than a model takes.

    Raises:
        ValueError: It is another.
    """
    if wanted not in {None, made_for}:
        raise ValueError(f"{name_or_path} takes {made_for} frames, not {wanted}; leave num_frames out")


def pixels_of(processor: Any, frames: Sequence[Tensor], device: torch.device) -> Tensor:
    """`pixel_values (B, T, C, H, W)` of sampled frames."""
    batch = processor.video_processor(list(frames), do_sample_frames=False, return_tensors="pt")
    pixels: Tensor = batch["pixel_values"].to(device)
    return pixels


def frame_size_of(processor: Any) -> FrameSize:
    """What frames may be resized to before a processor of images or videos sees them."""
    size = getattr(processor, "size", None)
    if not size or hasattr(processor, "merge_size"):  # Qwen's sizes are numbers of pixels, not of a side
        return None
    shortest, height, width = (size.get(name) for name in ("shortest_edge", "height", "width"))
    return shortest or ((height, width) if height and width else None)


def key_of(made_by: Mapping[str, str]) -> str:
    """A short name for what makes vectors: 12 hexadecimal digits.

    Example:
        >>> key_of({"weights": "8c1f"}) == key_of({"weights": "8c1f"}) != key_of({"weights": "9d2a"})
        True
    """
    return hashlib.sha256(json.dumps(dict(made_by), sort_keys=True).encode()).hexdigest()[:12]
