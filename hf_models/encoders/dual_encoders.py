"""Encoders of videos beside encoders of texts: VidCLIP, VideoPrism, CLIP and its like, X-CLIP, Perception Encoder.

An image model (CLIP, SigLIP, SigLIP 2) sees each frame, and the mean of its unit-norm frames is the video: CLIP4Clip's
mean pooling. X-CLIP, VideoPrism, Perception Encoder and LanguageBind are video models of their own.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from hf_models.encoders.protocol import (
    Encoder,
    Usage,
    check_videos,
    mean_of,
    mean_over_frames,
    pooled,
    unit_rows,
)

IMAGE_FRAMES = 12
"""Frames that an image model sees of a video, as in CLIP4Clip."""
AVERAGE = "mean of the unit-norm video and the unit-norm text"


class DotProductEncoder(Encoder):
    """A model whose videos and texts are compared by their dot products, cosines where they are unit-norm."""

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Unit-norm `(N, D)`."""
        return unit_rows(pooled(self.model.get_text_features(**self.tokens(texts))))

    def encode_video(self, frames: Sequence[Tensor]) -> Tensor:
        """Unit-norm `(B, D)`."""
        features = self.model.get_video_features(**self.videos(frames))
        return unit_rows(pooled(features).flatten(1))


class VideoPrismEncoder(DotProductEncoder):
    """VideoPrism, whose places of frames are interpolated where there are more or fewer frames."""

    usage = Usage(
        family="VideoPrism (LvT)",
        frames="16 or 8, as the configuration says; one video",
        prompt="the text alone",
        pooling="the video's and the text's projected output, unit-norm",
        query=AVERAGE,
        source="arXiv:2402.13217; google/videoprism-lvt-base-f16r288",
        license="Apache-2.0",
    )

    def encode_video(self, frames: Sequence[Tensor]) -> Tensor:
        """Unit-norm `(B, D)`; all videos have as many frames."""
        other = len(frames[0]) != self.model.config.vision_config.num_frames if len(frames) else False
        features = self.model.get_video_features(**self.videos(frames), interpolate_pos_encoding=other)
        return unit_rows(pooled(features).flatten(1))  # (B, 1, D)


class VidCLIPEncoder(DotProductEncoder):
    """VidCLIP, which reads longer texts than the CLIP whose tokenizer it has.

    Args:
        model: As of `Encoder`.
        processor: As of `Encoder`.
        num_frames: As of `Encoder`.
        score: What `compare` gives: "embedding", the cosines of the embeddings, or "likelihood", the mean
            log-probability of a text's tokens given the video, of a model that was trained with captioning loss.

    Raises:
        ValueError: `score` is another, or the model has no text decoder.
    """

    usage = Usage(
        family="VidCLIP; with captioning loss VideoCoCa-like",
        frames="as it was trained; one video",
        prompt="the text alone",
        pooling="the video's and the text's projected class token, unit-norm; with the option score='likelihood' "
        "`compare` gives the mean log-probability of the text's tokens by the decoder, which reads the video's pooled "
        "tokens and the words in their order, and takes a pass for each pair",
        query=AVERAGE,
        source="VideoComp, arXiv:2504.03970, section 4; captioning loss CoCa, 2205.01917, and VideoCoCa, 2212.04979; "
        "trained by `subtle vidclip`",
        license="that of the CLIP it starts from",
        inferred="the decoder: VideoComp's VidCLIP has none; the mean over tokens, so that length does not decide",
    )
    texts_at_a_time = 64

    def __init__(self, model: Any, processor: Any, num_frames: int, *, score: str = "embedding") -> None:
        super().__init__(model, processor, num_frames)
        if score not in {"embedding", "likelihood"}:
            raise ValueError(f"score is {score!r}; it may be 'embedding' or 'likelihood'")
        if score == "likelihood" and model.captioner is None:
            raise ValueError(
                "score='likelihood' needs a VidCLIP with a text decoder, and this one was trained without; train one "
                "by `subtle vidclip --captioning_weight 2`, or compare by score='embedding'"
            )
        self.by_likelihood = score == "likelihood"

    @property
    def depends_on(self) -> dict[str, str]:
        """With the score where it is not the embeddings'."""
        return {"score": "likelihood"} if self.by_likelihood else {}

    def tokens(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Token ids as VidCLIP was trained on."""
        tokens: dict[str, Tensor] = self.processor(text=list(texts)).to(self.model.device)
        return tokens

    def encode_video(self, frames: Sequence[Tensor]) -> Tensor:
        """Unit-norm `(B, D)`; by likelihood each followed by what the decoder reads of it."""
        if not self.by_likelihood:
            return super().encode_video(frames)
        frame_tokens = self.model.get_frame_tokens(**self.videos(frames))
        embeds, seen = self.model.pool_frame_tokens(frame_tokens), self.model.get_video_tokens(frame_tokens)
        return torch.cat([unit_rows(embeds), seen.flatten(1).float()], dim=1)

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Unit-norm `(N, D)`; by likelihood each followed by its token ids, -1 for padding.

        Raises:
            ValueError: By likelihood, a text has no token but its end.
        """
        if not self.by_likelihood:
            return super().encode_text(texts)
        tokens = self.tokens(texts)
        if (tokens["attention_mask"].sum(1) < 2).any():
            raise ValueError("a text is empty, so it has no likelihood; leave empty texts out")
        ids = tokens["input_ids"].masked_fill(tokens["attention_mask"] == 0, -1)
        missing = self.model.config.text_config.max_position_embeddings - ids.shape[1]
        embeds = unit_rows(self.model.get_text_features(**tokens))
        return torch.cat([embeds, F.pad(ids, (0, missing), value=-1).to(embeds)], dim=1)

    def embeds(self, rows: Tensor) -> Tensor:
        """The embeddings `(B, D)` that rows of videos or texts begin with."""
        return rows[:, : self.model.config.projection_dim]

    def compare(self, videos: Tensor, texts: Tensor) -> Tensor:
        """Cosines `(B, N)`; by likelihood mean log-probabilities, at most 0."""
        if not self.by_likelihood:
            return super().compare(videos, texts)
        model, start = self.model, self.model.config.projection_dim
        seen = videos[:, start:].unflatten(1, (model.config.num_pooler_queries, -1)).to(model.device)
        ids = texts[:, start:].long().to(model.device)
        parts = []
        for batch in ids.split(self.texts_at_a_time):
            mask = batch >= 0
            longest = int(mask.sum(1).max())
            parts.append(model.get_text_scores(seen, batch[:, :longest].clamp(min=0), mask[:, :longest].long()))
        return torch.cat(parts, dim=1).float().cpu()


class ImageEncoder(DotProductEncoder):
    """An image model, averaged over frames."""

    usage = Usage(
        family="CLIP (ViT and ResNet), SigLIP, SigLIP 2, AltCLIP, MetaCLIP 2",
        frames="12, each an image; the mean of the unit-norm frames (CLIP4Clip)",
        prompt="the text alone; SigLIP pads it to its whole length, as it was trained",
        pooling="the image's and the text's projected output, unit-norm",
        query=AVERAGE,
        source="arXiv:2103.00020, 2303.15343, 2502.14786, 2104.08860; openai/clip-vit-base-patch32, "
        "google/siglip2-base-patch16-224",
        license="CLIP MIT, SigLIP and SigLIP 2 Apache-2.0",
        inferred="TF-CoVR's CLIP is OpenAI's RN50, by its code: convert_clip_resnet makes it; a ViT is another",
    )
    default_frames = IMAGE_FRAMES

    def encode_video(self, frames: Sequence[Tensor]) -> Tensor:
        """Unit-norm `(B, D)`."""
        return mean_over_frames(pooled(self.model.get_image_features(**self.images(frames))), frames)


class XCLIPEncoder(DotProductEncoder):
    """X-CLIP, whose texts are prompted by the video that they are compared with."""

    usage = Usage(
        family="X-CLIP",
        frames="8, 16 or 32, as the configuration says; one video",
        prompt="the text alone, its embedding prompted by the video that it is compared with",
        pooling="the video's multiframe output and the text's projected output, unit-norm",
        query="mean of the unit-norm video and the unit-norm text as that video prompts it",
        source="arXiv:2208.02816; microsoft/xclip-base-patch32",
        license="MIT",
        inferred="the query: the paper has none",
    )
    similarity = "texts that the video prompts"

    @classmethod
    def fixed_frames(cls, config: Any, processor: Any = None) -> int | None:  # noqa: ARG003
        """X-CLIP has a place for each frame."""
        frames: int = config.vision_config.num_frames
        return frames

    def encode_video(self, frames: Sequence[Tensor]) -> Tensor:
        """`(B, 1 + patches, D)`: the video, then what prompts the texts."""
        check_videos(frames, self.fixed_frames(self.model.config))
        images = self.processor.image_processor([list(video) for video in frames], return_tensors="pt")
        frames_of_all = self.on_device(images["pixel_values"])  # some image processors flatten videos
        pixel_values = frames_of_all.reshape(len(frames), -1, *frames_of_all.shape[-3:])
        probe = self.tokens(["."])
        output = self.model(pixel_values=pixel_values, **probe)
        seen = output.vision_model_output.last_hidden_state[:, 1:]
        seen = self.model.prompts_visual_layernorm(seen) @ self.model.prompts_visual_projection
        seen = seen.unflatten(0, (len(frames), -1)).mean(1)
        return torch.cat([output.video_embeds[:, None], seen], dim=1).float()

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """`(N, D)`, not yet prompted."""
        return pooled(self.model.get_text_features(**self.tokens(texts))).float()

    def compose(self, frames: Sequence[Tensor], texts: Sequence[str]) -> Tensor:
        """Unit-norm `(B, D)`."""
        videos = self.encode_video(frames)
        prompted = [
            self.prompted(text[None], video) for text, video in zip(self.encode_text(texts), videos, strict=True)
        ]
        return mean_of(videos[:, 0], torch.cat(prompted))

    def prompted(self, texts: Tensor, video: Tensor) -> Tensor:
        """Texts `(N, D)` as a video `(1 + patches, D)` prompts them, unit-norm."""
        dtype = self.model.prompts_visual_projection.dtype
        prompts = self.model.prompts_generator(texts[None].to(dtype), video[None, 1:].to(dtype))
        return unit_rows(texts + prompts[0])

    def compare(self, videos: Tensor, texts: Tensor) -> Tensor:
        """Cosines `(B, N)`."""
        videos, texts = videos.to(self.model.device), texts.to(self.model.device)
        rows = [self.prompted(texts, video) @ unit_rows(video[0]) for video in videos]
        return torch.stack(rows).cpu()

    def embeds(self, rows: Tensor) -> Tensor:
        """The videos alone, `(B, D)`."""
        return rows[:, 0]


class PerceptionEncoder(DotProductEncoder):
    """Perception Encoder for video, which embeds videos and texts only together."""

    usage = Usage(
        family="Perception Encoder",
        frames="16; one video",
        prompt="the text alone",
        pooling="the video's and the text's output in the space of videos and texts; their length counts",
        query=AVERAGE,
        source="arXiv:2504.13181; facebook/pe-av-large (its video part)",
        license="Apache-2.0",
    )

    def encode_video(self, frames: Sequence[Tensor]) -> Tensor:
        """`(B, D)`; their length counts."""
        embeds: Tensor = self.model(**self.tokens(["."]), **self.videos(frames)).video_embeds
        return embeds.float()

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """`(N, D)`; their length counts."""
        nothing = self.videos([torch.zeros(1, 3, 32, 32, dtype=torch.uint8)])
        embeds: Tensor = self.model(**self.tokens(texts), **nothing).text_video_embeds
        return embeds.float()


class LanguageBindEncoder(DotProductEncoder):
    """LanguageBind for video, its weights converted by `convert_languagebind`."""

    usage = Usage(
        family="LanguageBind",
        frames="8, evenly from the first to the last; one video, with attention over time in each layer",
        prompt="the text alone",
        pooling="the mean over frames of the class token, projected; the text's projected output; unit-norm",
        query=AVERAGE,
        source="arXiv:2310.01852; LanguageBind/LanguageBind_Video_FT",
        license="MIT",
        inferred="no mirroring: the released processor mirrors every other video at random, also in evaluation",
    )
    spread = "ends"

    @classmethod
    def fixed_frames(cls, config: Any, processor: Any = None) -> int | None:  # noqa: ARG003
        """LanguageBind has a place for each frame."""
        frames: int = config.num_frames
        return frames

    def encode_video(self, frames: Sequence[Tensor]) -> Tensor:
        """Unit-norm `(B, D)`."""
        check_videos(frames, self.fixed_frames(self.model.config))
        pixel_values = self.images(frames)["pixel_values"].unflatten(0, (len(frames), -1))
        return unit_rows(pooled(self.model.get_video_features(pixel_values)))


class VideoOnlyEncoder(Encoder):
    """V-JEPA 2, which has no text tower: it embeds videos only."""

    usage = Usage(
        family="V-JEPA 2",
        frames="64; one video",
        prompt="none: it reads no text",
        pooling="the mean over the encoder's tokens, unit-norm",
        query="the video alone",
        source="arXiv:2506.09985; facebook/vjepa2-vitl-fpc64-256",
        license="MIT",
        inferred="the mean over tokens: the paper trains an attentive probe for each task",
    )
    processor_class = "AutoVideoProcessor"
    reads_texts = False

    def __init__(self, model: Any, processor: Any, num_frames: int) -> None:
        super().__init__(model, SimpleNamespace(video_processor=processor), num_frames)

    def encode_video(self, frames: Sequence[Tensor]) -> Tensor:
        """Unit-norm `(B, D)`; a tubelet that lacks frames at the end repeats the last one."""
        check_videos(frames)
        lacking = [-len(video) % self.model.config.tubelet_size for video in frames]
        whole = [torch.cat([video, video[-1:].expand(n, -1, -1, -1)]) for video, n in zip(frames, lacking, strict=True)]
        pixel_values = self.videos(whole)["pixel_values_videos"]
        return unit_rows(self.model.get_vision_features(pixel_values).mean(1))

    def encode_text(self, texts: Sequence[str]) -> Tensor:  # noqa: ARG002 it is refused
        """Refuse texts.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "V-JEPA 2 has no text tower, so it embeds videos only; query it by `encode_video`, or choose a model that "
            "reads texts, such as CLIP, SigLIP 2 or BLIP"
        )
