"""Any model of sentence-transformers that embeds videos and texts, TF-CoVR's among them."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from hf_models.encoders.dual_encoders import AVERAGE
from hf_models.encoders.protocol import Encoder, Usage, check_videos

QUERY = ("text", "video")


class SentenceTransformerEncoder(Encoder):
    """Any model of sentence-transformers that embeds videos and texts.

    Args:
        model: A `SentenceTransformer`.
        num_frames: How many frames of a video it reads.

    Raises:
        ValueError: The model does not embed both.
    """

    usage = Usage(
        family="sentence-transformers",
        frames="as the model's configuration says; one video",
        prompt="as the model's own configuration says",
        pooling="the model's own",
        query=f"the model's own, where it embeds a video with a text; else the {AVERAGE}",
        source="the model's own card",
        license="the model's own",
    )

    def __init__(self, model: Any, num_frames: int) -> None:
        if missing := [modality for modality in ("video", "text") if not model.supports(modality)]:
            raise ValueError(
                f"this sentence-transformers model does not embed {' and '.join(missing)}; it takes {model.modalities}"
            )
        super().__init__(model, getattr(model[0], "processor", None), num_frames)
        self.similarity = getattr(model, "similarity_fn_name", None) or "cosine"

    def encode_video(self, frames: Sequence[Tensor]) -> Tensor:
        """`(B, D)`, of frames that are sampled already."""
        check_videos(frames)
        return self.encode([{"video": video} for video in frames], {"video": {"do_sample_frames": False}})

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """`(N, D)`."""
        return self.encode([{"text": text} for text in texts], {})  # a text that ends in .mp4 is a text

    def compose(self, frames: Sequence[Tensor], texts: Sequence[str]) -> Tensor:
        """`(B, D)`."""
        if not self.model.supports(QUERY):
            return super().compose(frames, texts)
        check_videos(frames)
        both = [{"video": video, "text": text} for video, text in zip(frames, texts, strict=True)]
        return self.encode(both, {"video": {"do_sample_frames": False}})

    def compare(self, videos: Tensor, texts: Tensor) -> Tensor:
        """Similarities `(B, N)` by the model's own function, mostly cosines."""
        similarity: Tensor = self.model.similarity(videos, texts)
        return similarity

    def compare_queries(self, queries: Tensor, videos: Tensor) -> Tensor:
        """Similarities `(queries, videos)` by the model's own function, mostly cosines."""
        return self.compare(queries, videos)

    def encode(self, inputs: list[dict[str, Any]], processing: dict[str, dict[str, Any]]) -> Tensor:
        """Rows of what sentence-transformers takes."""
        rows: Tensor = self.model.encode(
            inputs, convert_to_tensor=True, show_progress_bar=False, processing_kwargs=processing
        )
        return rows.clone()  # out of inference mode
