"""Our models as encoders of mteb, and the baselines beside them.

mteb hands an encoder batches of texts and videos; ours read the frames that the model was trained on, in worker
processes, one batch at a time. A composed query is a text and a video together.
"""

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from mteb.models import ModelMeta
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ScoringFunction
from mteb.types import PromptType
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModel, AutoProcessor

from hf_datasets.video import VideoError, frame_indices
from hf_datasets.video.pool import VideoFailure, VideoReaderPool, VideoRequest
from hf_models import TFCoVRForComposedRetrieval
from hf_models.checkpoints import open_whole, opening
from hf_models.encoders import VideoTextEncoder
from hf_models.fingerprints import processor_fingerprint, tokenizer_fingerprint, weights_fingerprint

from .segments import Segment

QueryParts = Literal["both", "video", "text"]
RANDOM_SIZE = 64
MOST_KNOWN = 2**16
"""Videos whose embeddings an encoder keeps: 200 MB of 768 numbers each."""


class SegmentEncoder(AbsEncoder):
    """What our encoders share: reading segments, and what is asked of a batch.

    Args:
        name: What its results are called.
        revision: Of weights and preprocessing.
        num_frames: Frames of a video.
        size: What frames are resized to while they are read, as in `read_frames`.
        parts: The halves of a composed query that the model sees.
        num_workers: Processes that read videos; 0: this one reads.
        spread: Which frames, as in `read_frames`.
        known: Embeddings of segments by another encoder with the same model, to which this one adds its own.
    """

    def __init__(
        self,
        name: str,
        revision: str,
        *,
        num_frames: int = 1,
        size: int | tuple[int, int] | None = None,
        parts: QueryParts = "both",
        num_workers: int = 0,
        spread: Literal["middles", "ends"] = "middles",
        known: dict[Segment, Tensor] | None = None,
    ) -> None:
        self.known = {} if known is None else known
        self.num_frames, self.size, self.parts, self.num_workers = num_frames, size, parts, num_workers
        self.spread: Literal["middles", "ends"] = spread
        self.mteb_model_meta = ModelMeta.create_empty(
            overwrites={
                "name": name if "/" in name else f"subtle/{name}",
                "revision": revision,
                "modalities": ["video", "text"],
                "similarity_fn_name": ScoringFunction.DOT_PRODUCT,
            }
        )

    @abstractmethod
    def embed(self, videos: Tensor | None, texts: list[str] | None, *, is_query: bool) -> Tensor:
        """Unit-norm `(B, D)` of rows with what `embed_videos` gives, a text or both."""

    @abstractmethod
    def embed_videos(self, frames: list[Tensor]) -> Tensor:
        """One row for each video `(num_frames, 3, height, width)` uint8."""

    @torch.inference_mode()
    def encode(
        self,
        inputs: Iterable[dict[str, Any]],
        *,
        task_metadata: Any,
        hf_split: str,  # noqa: ARG002
        hf_subset: str,  # noqa: ARG002
        prompt_type: PromptType | None = None,
        **_: Any,
    ) -> Tensor:
        """Unit-norm `(N, D)` float32, a row for each input.

        Raises:
            VideoError: A video cannot be read; names the file.
        """
        is_query = prompt_type == PromptType.query
        is_composed = is_query and {"video", "text"} <= set(task_metadata.get_modalities(prompt_type))
        unused = {"both": None, "video": "text", "text": "video"}[self.parts] if is_composed else None
        rows = []
        options: dict[str, Any] = {"size": self.size, "num_workers": self.num_workers, "spread": self.spread}
        with VideoReaderPool(self.num_frames, **options) as pool:
            for batch in inputs:
                texts = list(batch["text"]) if "text" in batch and unused != "text" else None
                videos = self._embeds_of(batch["video"], pool) if "video" in batch and unused != "video" else None
                rows.append(self.embed(videos, texts, is_query=is_query).float().cpu())
        return torch.cat(rows)

    def _embeds_of(self, videos: Sequence[Any], pool: VideoReaderPool) -> Tensor:
        # A clip is asked for by many queries and stands in the gallery, a contrast shows its video twice.
        new = [video for video in dict.fromkeys(videos) if video not in self.known]
        embeds = self.embed_videos(list(self.frames(new, pool))).float().cpu() if new else ()
        fresh = dict(zip(new, embeds, strict=True))
        rows = torch.stack([fresh[video] if video in fresh else self.known[video] for video in videos])
        if len(self.known) + len(fresh) > MOST_KNOWN:
            self.known.clear()
        self.known.update({video: row for video, row in fresh.items() if isinstance(video, Segment)})
        return rows

    def frames(self, videos: Sequence[Any], pool: VideoReaderPool) -> Iterator[Tensor]:
        """The frames of segments, and of the decoders of whole files that mteb's own tasks give.

        Raises:
            VideoError: A segment cannot be read.
        """
        requests = [
            VideoRequest(place, video.path, video.start_seconds, video.end_seconds)
            for place, video in enumerate(videos)
            if isinstance(video, Segment)
        ]
        read = dict(pool.read(requests))
        for place, video in enumerate(videos):
            if not isinstance(video, Segment):
                yield video.get_frames_at(frame_indices(len(video), self.num_frames, self.spread)).data
                continue
            answer = read.pop(place)
            if isinstance(answer, VideoFailure):
                raise VideoError(
                    f"{answer.reason}; or take the file out of the folder, then its clips count as missing"
                )
            yield answer.frames


class ComposedEncoder(SegmentEncoder):
    """A TF-CoVR model: queries are composed, clips are embedded as targets, texts as queries without a video.

    Args:
        model: On its device, in evaluation mode.
        processor: Its own.
        name: What its results are called.
        options: `parts` and `num_workers` of `SegmentEncoder`.
    """

    def __init__(self, model: TFCoVRForComposedRetrieval, processor: Any, name: str, **options: Any) -> None:
        self.model, self.processor = model, processor
        size = processor.video_processor.size
        revision = digest_of(
            weights_fingerprint(model),
            processor_fingerprint(processor.video_processor),
            tokenizer_fingerprint(processor.tokenizer, number_words=processor.number_words),
            options.get("parts", "both"),
        )
        num_frames = processor.video_processor.num_frames
        shape = size.shortest_edge or (size.height, size.width)
        super().__init__(name, revision, num_frames=num_frames, size=shape, **options)

    def embed_videos(self, frames: list[Tensor]) -> Tensor:
        """`(B, video_embed_dim)`, not normalized."""
        batch = self.processor.video_processor(frames, do_sample_frames=False, return_tensors="pt")
        embeds: Tensor = self.model.encode_video(batch["pixel_values"].to(self.model.device))
        return embeds

    def embed(self, videos: Tensor | None, texts: list[str] | None, *, is_query: bool) -> Tensor:
        """Unit-norm `(B, D)`."""
        embeds: Tensor
        videos = None if videos is None else videos.to(self.model.device)
        if texts is None and not is_query:
            embeds = self.model.get_target_features(video_embeds=videos)
            return embeds
        tokens = None if texts is None else self.processor(text=texts).to(self.model.device)
        text_embeds = None if tokens is None else self.model.encode_text(**tokens)
        embeds = self.model.get_query_features(video_embeds=videos, text_embeds=text_embeds)
        return embeds


class AverageEncoder(SegmentEncoder):
    """A model that compares videos with texts; a composed query is the mean of its video and its text.

    Args:
        encoder: Of `hf_models.encoders`, one whose similarities are dot products.
        name: What its results are called.
        options: `parts` and `num_workers` of `SegmentEncoder`.
    """

    def __init__(self, encoder: Any, name: str, **options: Any) -> None:
        self.encoder: VideoTextEncoder = encoder
        spread: Any = getattr(encoder, "spread", "middles")
        facts = [str(encoder.num_frames), options.get("parts", "both"), *([spread] if spread != "middles" else [])]
        revision = digest_of(weights_fingerprint(encoder.model), *facts)
        super().__init__(name, revision, num_frames=encoder.num_frames, spread=spread, **options)

    def embed_videos(self, frames: list[Tensor]) -> Tensor:
        """Unit-norm `(B, D)`."""
        return F.normalize(self.encoder.encode_video(frames), dim=-1)

    def embed(self, videos: Tensor | None, texts: list[str] | None, *, is_query: bool) -> Tensor:  # noqa: ARG002
        """Unit-norm `(B, D)`."""
        read = None if texts is None else F.normalize(self.encoder.encode_text(texts).float().cpu(), dim=-1)
        halves = [half for half in (videos, read) if half is not None]
        return F.normalize(torch.stack(halves).mean(0), dim=-1)


class RandomEncoder(SegmentEncoder):
    """Chance: a random vector for each video and each text, the same one whenever it comes again."""

    def __init__(self, name: str = "random", *, seed: int = 0, **options: Any) -> None:
        self.seed = seed
        super().__init__(name, f"names-seed-{seed}", **options)

    def frames(self, videos: Sequence[Any], pool: VideoReaderPool) -> Iterator[Any]:  # noqa: ARG002
        """The videos themselves; no frame is read."""
        yield from videos

    def embed_videos(self, frames: list[Any]) -> Tensor:
        """Unit-norm `(B, RANDOM_SIZE)`."""
        return self._random([named(video) for video in frames])

    def embed(self, videos: Tensor | None, texts: list[str] | None, *, is_query: bool) -> Tensor:  # noqa: ARG002
        """Unit-norm `(B, RANDOM_SIZE)`."""
        halves = [half for half in (videos, None if texts is None else self._random(texts)) if half is not None]
        return F.normalize(torch.stack(halves).mean(0), dim=-1)

    def _random(self, items: list[str]) -> Tensor:
        rows = []
        for item in items:
            seed = int.from_bytes(hashlib.sha256(f"{self.seed} {item}".encode()).digest()[:8], "big")
            rows.append(np.random.default_rng(seed).standard_normal(RANDOM_SIZE, dtype=np.float32))
        return F.normalize(torch.from_numpy(np.stack(rows)), dim=-1)


def named(video: Any) -> str:
    """A segment by its file's name and its times: the folder is another one on each machine.

    >>> named(Segment("/cache/vault.mp4", 1.0, 2.5))
    'vault.mp4 1.0 2.5'
    """
    if not isinstance(video, Segment):
        return repr(video)
    return f"{Path(video.path).name} {video.start_seconds} {video.end_seconds}"


def load_composed(
    folder: str | Path, name: str, *, device: torch.device | str = "cpu", **options: Any
) -> ComposedEncoder:
    """A TF-CoVR model of a folder or the Hub.

    Args:
        folder: What `save_pretrained` or stage 2 wrote.
        name: What its results are called.
        device: Where it runs.
        options: Of `ComposedEncoder`.
    """
    model = open_whole(AutoModel, folder).to(device).eval()
    with opening(folder, checked=True):
        processor = AutoProcessor.from_pretrained(folder)
    return ComposedEncoder(model, processor, name, **options)


def digest_of(*parts: str) -> str:
    """40 hexadecimal digits for texts, as long as the revisions of the Hub."""
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:40]
