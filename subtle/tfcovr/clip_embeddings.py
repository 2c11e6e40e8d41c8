"""What embeddings of clips and texts depend on, and the embeddings of clips, here or on a Ray cluster."""

import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from hf_datasets.video.frame_cache import FrameCache
from hf_models import TFCoVRForComposedRetrieval, TFCoVRProcessor
from hf_models.feature_store import VECTORS
from hf_models.fingerprints import processor_fingerprint, tokenizer_fingerprint, weights_fingerprint
from hf_models.frame_reading import frame_size_of, frames_read, staged
from subtle.embedding.loop import read_clip_frames
from subtle.run.accelerator import make_accelerator
from subtle.run.batches import batched
from subtle.run.models import load_encoders
from subtle.run.shards import ShardWorker, check_origin
from subtle.run.shared_config import EmbedConfig

TEXTS_AT_ONCE = 256


def imported_into(folder: Path | str) -> dict[str, Any] | None:
    """What made the embeddings of clips that were imported into a folder of embeddings; None where none were."""
    path = Path(folder) / "video" / VECTORS
    if not path.is_file():
        return None
    try:
        made = json.loads(path.read_text(encoding="utf-8"))["made_by"]
        return made if "imported_from" in made else None
    except (ValueError, KeyError, TypeError):
        return None  # damaged, which opening the store says


def encoders_made_by(model: TFCoVRForComposedRetrieval) -> dict[str, str]:
    """Fingerprints of both encoders; of imported embeddings the hash of the file."""
    imported = model.config.imported_video
    video = imported["sha256"] if imported else weights_fingerprint(model.vision_model)
    return {"vision": video, "text": weights_fingerprint(model.text_model)}


def made_by(
    model: TFCoVRForComposedRetrieval, processor: TFCoVRProcessor, config: EmbedConfig
) -> dict[str, dict[str, Any]]:
    """What the video and the text embeddings depend on, by name, as fingerprints; imported ones on their file.

    Raises:
        SystemExit: Imported embeddings were to be of shuffled frames.
    """
    video, imported = processor.video_processor, model.config.imported_video
    if imported and config.shuffle_frames:
        raise SystemExit("imported embeddings have no frames to shuffle; leave that out, or embed videos of your own")
    which = f"{config.spread}, shuffled with seed {config.seed}" if config.shuffle_frames else config.spread
    return {
        "video": dict(imported)
        if imported
        else {
            "weights": weights_fingerprint(model.vision_model),
            "processor": processor_fingerprint(video),
            **frames_read(video.num_frames, which, frame_size_of(video)),
        },
        "text": {
            "weights": weights_fingerprint(model.text_model),
            "tokenizer": tokenizer_fingerprint(processor.tokenizer, number_words=processor.number_words),
        },
    }


def prepared_clips(
    clips: Sequence[dict[str, Any]],
    processor: TFCoVRProcessor,
    config: EmbedConfig,
    failures: dict[str, str],
    decoded: Mapping[str, FrameCache] = MappingProxyType({}),
    *,
    device: torch.device,
) -> Iterator[tuple[list[str], Tensor]]:
    """Batches of clip ids and `pixel_values (B, T, C, H, W)`, as they come; what cannot be read goes to `failures`.

    Clips that are in `decoded` come from there. They are sent to the device as uint8 and prepared there.
    """
    video = processor.video_processor
    ids = [clip["clip_id"] for clip in clips if clip["clip_id"] in decoded]
    cached = ((clip_id, decoded[clip_id][clip_id]) for clip_id in ids)
    to_read = [clip for clip in clips if clip["clip_id"] not in decoded]
    how: dict[str, Any] = {"size": frame_size_of(video), "spread": config.spread}
    arriving = itertools.chain(cached, read_clip_frames(to_read, video.num_frames, failures, config, **how))
    for batch in batched(arriving, config.batch_size):
        frames = [_in_order(clip_id, frames, config) for clip_id, frames in batch]
        pixels = video(staged(frames, video, device), do_sample_frames=False, return_tensors="pt")["pixel_values"]
        yield [clip_id for clip_id, _ in batch], pixels


def encode_clips(
    clips: list[dict[str, Any]],
    model: TFCoVRForComposedRetrieval,
    processor: TFCoVRProcessor,
    config: EmbedConfig,
    accelerator: Accelerator,
    failures: dict[str, str],
    decoded: Mapping[str, FrameCache] = MappingProxyType({}),
) -> Iterator[tuple[list[str], Tensor]]:
    """Batches of clip ids with their embeddings `(B, D)`; see `prepared_clips`."""
    for clip_ids, pixels in prepared_clips(clips, processor, config, failures, decoded, device=accelerator.device):
        with torch.inference_mode(), accelerator.autocast():
            embeddings = model.encode_video(pixels.to(accelerator.device)).float().cpu()
        yield clip_ids, embeddings


class ClipWorker(ShardWorker):
    """Encodes shards of clips in a worker.

    Args:
        config: The fields of `EmbedConfig`.
        origin: What the embeddings depend on, by `made_by`; it has to be the same on every machine.

    Raises:
        ValueError: It is not.
    """

    def __init__(self, config: Mapping[str, Any], origin: Mapping[str, str]) -> None:
        self.config = EmbedConfig(**config)
        self.accelerator = make_accelerator(
            self.config.device, Path(self.config.output_dir), mixed_precision=self.config.mixed_precision
        )
        model, self.processor = load_encoders(self.config, fusion_hidden_dim=1)  # nothing is composed here
        check_origin(made_by(model, self.processor, self.config)["video"], origin)
        self.model = model.to(self.accelerator.device).eval()

    def encode(self, items: list[dict[str, Any]], failures: dict[str, str]) -> Iterator[tuple[list[str], Tensor]]:
        """See `shards.ShardWorker`."""
        return encode_clips(items, self.model, self.processor, self.config, self.accelerator, failures)


def _in_order(clip_id: str, frames: Tensor, config: EmbedConfig) -> Tensor:
    if not config.shuffle_frames:
        return frames
    return frames[random.Random(f"{config.seed} {clip_id}").sample(range(len(frames)), len(frames))]


def decoded_clips(
    splits: list[list[dict[str, Any]]], processor: TFCoVRProcessor, config: EmbedConfig
) -> dict[str, FrameCache]:
    """Clip id -> the cache of frames that stage 1 left of its split."""
    size = frame_size_of(processor.video_processor)
    if not isinstance(size, tuple):
        return {}
    folder, num_frames = Path(config.cache_dir), processor.video_processor.num_frames
    caches = [FrameCache.find(folder, clips, num_frames, size, config.spread) for clips in splits]
    return {clip_id: cache for cache in caches if cache is not None for clip_id in cache.places.keys() - cache.failures}
