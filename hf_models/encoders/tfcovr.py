"""TF-CoVR and FactoredCoVR, which compose a clip with the text that changes it."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from hf_models.encoders.protocol import Encoder, Usage


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
