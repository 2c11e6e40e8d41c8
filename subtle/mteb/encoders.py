"""Our models as encoders of mteb, and the baselines beside them.

mteb hands an encoder batches of texts and videos; ours read the frames that the model was trained on, in worker
processes, one batch at a time. A composed query is a text and a video together.
"""

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mteb.models import ModelMeta
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ScoringFunction
from mteb.types import PromptType
from torch import Tensor
from torch.nn import functional as F

from hf_datasets.video import VideoError, frame_indices
from hf_datasets.video.pool import VideoFailure, VideoReaderPool, VideoRequest
from hf_models.encoders import Encoder, TFCoVREncoder
from hf_models.encoders.protocol import mean_of
from hf_models.fingerprints import key_of
from hf_models.frame_reading import frames_read
from hf_models.tfcovr.ranking import QueryParts

from .segments import Segment

RANDOM_SIZE = 64
MOST_KNOWN = 2**16
"""Videos whose embeddings an encoder keeps: 200 MB of 768 numbers each."""


class SegmentEncoder(AbsEncoder):
    """What our encoders share: reading segments, and what is asked of a batch.

    Args:
        name: What its results are called.
        revision: Of weights and preprocessing.
        read: Of a video how many frames, which ones and of which size, as `read_frames` takes it; None: one.
        parts: The halves of a composed query that the model sees.
        num_workers: Processes that read videos; 0: this one reads.
        known: Embeddings of segments by another encoder with the same model, to which this one adds its own.
    """

    def __init__(
        self,
        name: str,
        revision: str,
        *,
        read: dict[str, Any] | None = None,
        parts: QueryParts = "both",
        num_workers: int = 0,
        known: dict[Segment, Tensor] | None = None,
    ) -> None:
        self.known = {} if known is None else known
        self.read = read or {"num_frames": 1, "spread": "middles"}
        self.parts, self.num_workers = parts, num_workers
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
        with VideoReaderPool(**self.read, num_workers=self.num_workers) as pool:
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
                yield video.get_frames_at(frame_indices(len(video), self.read["num_frames"], self.read["spread"])).data
                continue
            answer = read.pop(place)
            if isinstance(answer, VideoFailure):
                raise VideoError(
                    f"{answer.reason}; or take the file out of the folder, then its clips count as missing"
                )
            yield answer.frames


class OurEncoder(SegmentEncoder):
    """A model of `hf_models.encoders`: queries are composed, a text is a query without a video.

    Args:
        encoder: One that compares by the cosine.
        name: What its results are called.
        options: `parts`, `num_workers` and `known` of `SegmentEncoder`.
    """

    def __init__(self, encoder: Encoder, name: str, **options: Any) -> None:
        self.encoder = encoder
        # What a model of ours was trained on was read in this size; others see frames as they are.
        size = encoder.frame_size if isinstance(encoder, TFCoVREncoder) else None
        read: dict[str, Any] = {"num_frames": encoder.num_frames, "spread": encoder.spread, "size": size}
        made_by = encoder.fingerprint | frames_read(**read) | {"parts": options.get("parts", "both")}
        super().__init__(name, key_of(made_by), read=read, **options)

    def embed_videos(self, frames: list[Tensor]) -> Tensor:
        """One row for each video, of which both its embedding and that of a query with it are made."""
        return self.encoder.see(frames)

    def embed(self, videos: Tensor | None, texts: list[str] | None, *, is_query: bool) -> Tensor:
        """Unit-norm `(B, D)`."""
        if texts is None and videos is not None and not is_query:
            return self.encoder.target(videos)
        return self.encoder.query_of(videos, texts)


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
        return self._random([segment_name(video) for video in frames])

    def embed(self, videos: Tensor | None, texts: list[str] | None, *, is_query: bool) -> Tensor:  # noqa: ARG002
        """Unit-norm `(B, RANDOM_SIZE)`."""
        return mean_of(*(half for half in (videos, None if texts is None else self._random(texts)) if half is not None))

    def _random(self, items: list[str]) -> Tensor:
        rows = []
        for item in items:
            seed = int.from_bytes(hashlib.sha256(f"{self.seed} {item}".encode()).digest()[:8], "big")
            rows.append(np.random.default_rng(seed).standard_normal(RANDOM_SIZE, dtype=np.float32))
        return F.normalize(torch.from_numpy(np.stack(rows)), dim=-1)


def segment_name(video: Any) -> str:
    """A segment by its file's name and its times: the folder is another one on each machine.

    >>> segment_name(Segment("/cache/vault.mp4", 1.0, 2.5))
    'vault.mp4 1.0 2.5'
    """
    if not isinstance(video, Segment):
        return repr(video)
    return f"{Path(video.path).name} {video.start_seconds} {video.end_seconds}"
