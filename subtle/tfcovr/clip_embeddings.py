"""What embeddings of clips and texts depend on, the clips' frames, and their coverage."""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import torch
from accelerate import Accelerator
from torch import Tensor

from hf_datasets.video import VideoFrames
from hf_datasets.video.frame_cache import FrameCache
from hf_datasets.video.pool import VideoFailure, VideoReaderPool, VideoRequest
from hf_models import TFCoVRForComposedRetrieval, TFCoVRProcessor
from hf_models.fingerprints import processor_fingerprint, tokenizer_fingerprint, weights_fingerprint
from subtle.engines import run_on_ray
from subtle.run.accelerator import make_accelerator
from subtle.run.data import missing_by_reason
from subtle.run.models import load_encoders
from subtle.run.shards import batched, check_origin, feature_table, features_of, with_absolute_folders
from subtle.run.shared_config import EmbedConfig


def made_by(
    model: TFCoVRForComposedRetrieval, processor: TFCoVRProcessor, config: EmbedConfig
) -> dict[str, dict[str, str]]:
    """What the video and the text embeddings depend on, by name, as fingerprints."""
    by_time = " of the time" if config.spread == "seconds" else ""
    order = f"shuffled with seed {config.seed}" if config.shuffle_frames else "ascending"
    return {
        "video": {
            "weights": weights_fingerprint(model.vision_model),
            "processor": processor_fingerprint(processor.video_processor),
            "sampler": f"middle of {processor.video_processor.num_frames} equal parts{by_time}, {order}",
        },
        "text": {
            "weights": weights_fingerprint(model.text_model),
            "tokenizer": tokenizer_fingerprint(processor.tokenizer, number_words=processor.number_words),
        },
    }


def read_clips(
    clips: Sequence[dict[str, Any]],
    processor: TFCoVRProcessor,
    config: EmbedConfig,
    failures: dict[str, str],
    decoded: Mapping[str, FrameCache] = MappingProxyType({}),
) -> Iterator[tuple[list[str], Tensor]]:
    """Batches of clip ids and `pixel_values (B, T, C, H, W)`, as they come; what cannot be read goes to `failures`.

    Clips that are in `decoded` come from there.
    """
    size = frame_size(processor)
    to_read = [clip for clip in clips if clip["clip_id"] not in decoded]
    read = answers(to_read, processor.video_processor.num_frames, size, config) if to_read else ()
    cached = ((clip["clip_id"], decoded[clip["clip_id"]]) for clip in clips if clip["clip_id"] in decoded)
    arriving: Iterator[tuple[str, Any]] = itertools.chain(
        ((clip_id, cache[clip_id]) for clip_id, cache in cached),
        ((clip_id, frames if isinstance(frames, VideoFailure) else frames.frames) for clip_id, frames in read),
    )
    whole = (item for item in arriving if not _has_failed(item, failures))
    for batch in batched(whole, config.batch_size):
        frames = [_in_order(clip_id, frames, config) for clip_id, frames in batch]
        pixels = processor.video_processor(frames, do_sample_frames=False, return_tensors="pt")["pixel_values"]
        yield [clip_id for clip_id, _ in batch], pixels


def encode_clips(
    clips: list[dict[str, Any]],
    model: TFCoVRForComposedRetrieval,
    processor: TFCoVRProcessor,
    config: EmbedConfig,
    accelerator: Accelerator,
    failures: dict[str, str],
    decoded: Mapping[str, FrameCache] = MappingProxyType({}),
) -> Iterator[list[tuple[str, Tensor]]]:
    """Batches of clip ids with their embeddings `(D,)`; see `read_clips`."""
    for clip_ids, pixels in read_clips(clips, processor, config, failures, decoded):
        with torch.inference_mode(), accelerator.autocast():
            embeddings = model.encode_video(pixels.to(accelerator.device)).float().cpu()
        yield list(zip(clip_ids, embeddings, strict=True))


class ShardEncoder:
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
        model, self.processor = load_encoders(self.config)
        check_origin(made_by(model, self.processor, self.config)["video"], origin)
        self.model = model.to(self.accelerator.device).eval()

    def __call__(self, work: Mapping[str, Any]) -> pa.Table:
        """The features of a shard of clips; see `feature_table`."""
        failures: dict[str, str] = {}
        batches = encode_clips(work["clips"], self.model, self.processor, self.config, self.accelerator, failures)
        return feature_table(dict(itertools.chain.from_iterable(batches)), failures)


def encode_on_ray(
    clips: list[dict[str, Any]], origin: Mapping[str, str], config: EmbedConfig, failures: dict[str, str]
) -> Iterator[list[tuple[str, Tensor]]]:
    """Shards of clip ids with their embeddings `(D,)` from the workers of a Ray cluster, in any order."""
    rows = [{name: clip[name] for name in ("clip_id", "video", "start_seconds", "end_seconds")} for clip in clips]
    works = [{"clips": shard} for shard in batched(iter(rows), config.shard_size)]
    arguments = {"config": with_absolute_folders(config), "origin": dict(origin)}
    limits: dict[str, Any] = {"device": config.device, "num_decoders": config.num_workers}
    for _, table in run_on_ray("subtle.tfcovr.clip_embeddings:ShardEncoder", arguments, works, config, **limits):
        features, failed = features_of(table)
        failures |= failed
        yield list(features.items())


def _has_failed(item: tuple[str, Tensor | VideoFailure], failures: dict[str, str]) -> bool:
    clip_id, frames = item
    if isinstance(frames, VideoFailure):
        failures[clip_id] = frames.reason
    return isinstance(frames, VideoFailure)


def _in_order(clip_id: str, frames: Tensor, config: EmbedConfig) -> Tensor:
    if not config.shuffle_frames:
        return frames
    return frames[random.Random(f"{config.seed} {clip_id}").sample(range(len(frames)), len(frames))]


def frame_size(processor: TFCoVRProcessor) -> int | tuple[int, int]:
    """What frames are resized to while they are read: the shorter side, or height and width."""
    size = processor.video_processor.size
    return size.shortest_edge or (size.height, size.width)


def decoded_clips(
    splits: list[list[dict[str, Any]]], processor: TFCoVRProcessor, config: EmbedConfig
) -> dict[str, FrameCache]:
    """Clip id -> the cache of frames that stage 1 left of its split."""
    size = frame_size(processor)
    if isinstance(size, int):
        return {}
    folder, num_frames = Path(config.cache_dir), processor.video_processor.num_frames
    caches = [FrameCache.find(folder, clips, num_frames, size, config.spread) for clips in splits]
    return {clip_id: cache for cache in caches if cache is not None for clip_id in cache.places.keys() - cache.failures}


def answers(
    clips: list[dict[str, Any]], num_frames: int, size: int | tuple[int, int] | None, config: EmbedConfig
) -> Iterator[tuple[str, VideoFrames | VideoFailure]]:
    """The frames of each clip or why there are none; in worker processes a bad video cannot hang the run."""
    requests = [
        VideoRequest(
            clip["clip_id"], clip["video"], clip["start_seconds"], clip["end_seconds"], {"spread": config.spread}
        )
        for clip in clips
    ]
    limits: dict[str, Any] = {"num_workers": config.num_workers, "timeout_seconds": config.timeout_seconds}
    with VideoReaderPool(num_frames, size=size, **limits) as pool:
        yield from pool.read(requests)


def coverage(clips: list[dict[str, Any]], failures: dict[str, str]) -> dict[str, Any]:
    """How many clips there are and were encoded, and why the others were not."""
    total = len({clip["clip_id"] for clip in clips})
    missing = missing_by_reason(failures.values())
    return {"clips": total, "encoded": total - len(failures), "missing": missing, "failures": failures}
