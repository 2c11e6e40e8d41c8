"""Encode every clip and every modification text once, so that stage 2 never opens a video.

    python recipes/embed.py
    accelerate launch recipes/embed.py recipes/configs/embed_4xa100.yaml
    python recipes/embed.py --moments

Writes `OUTPUT_DIR/video` and `OUTPUT_DIR/text` (see `hf_models.feature_store`) and `results.json` with the coverage: how
many clips were encoded, and why the others were not. A second run encodes what is missing, so a kill costs at most one
shard; another model in the same folder is refused. The miniature takes under a minute. With `--moments` as the first
argument it is `embed_moments.py`: features second by second and token by token.
"""

import itertools
import random
import runpy
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.config import option, parse_config, run_recipe
from harness.shared_config import DataConfig, EncoderConfig, RunConfig


@dataclass
class EmbedConfig(RunConfig, EncoderConfig, DataConfig):
    """What to encode, how, and where to put it."""

    splits: list[str] = option(["train", "validation", "test"], "Splits to encode.")
    output_dir: str = option("outputs/embeddings/stage1", "Folder for the embeddings and results.json.")
    shuffle_frames: bool = option(
        False, "Feed the frames of each clip in a random order, to see whether the encoder reads time."
    )
    batch_size: int = option(16, "Clips per forward pass, of each process.")
    shard_size: int = option(1024, "Clips or texts per file; a kill costs at most one file.")
    num_workers: int = option(2, "Processes that decode; 0: this one decodes, and a video that hangs hangs the run.")
    timeout_seconds: float = option(60.0, "Longest wait for the frames of one clip, in seconds.")


if __name__ == "__main__":  # before the imports below, which take seconds
    if sys.argv[1:2] == ["--moments"]:
        del sys.argv[1]
        sys.exit(runpy.run_path(str(Path(__file__).with_name("embed_moments.py")), run_name="__main__"))
    CONFIG = parse_config(EmbedConfig, __doc__)

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor
from tqdm import tqdm

from harness.accelerator import make_accelerator
from harness.models import load_encoders
from harness.results import write_results
from hf_datasets.video import VideoFrames
from hf_datasets.video.frame_cache import FrameCache
from hf_datasets.video.pool import NO_FILE, VideoFailure, VideoReaderPool, VideoRequest
from hf_models import TFCoVRForComposedRetrieval, TFCoVRProcessor
from hf_models.feature_store import FeatureStore
from hf_models.fingerprints import processor_fingerprint, tokenizer_fingerprint, weights_fingerprint
from tfcovr.queries import load_split


def made_by(
    model: TFCoVRForComposedRetrieval, processor: TFCoVRProcessor, config: EmbedConfig
) -> dict[str, dict[str, str]]:
    """What the video and the text embeddings depend on, by name, as fingerprints."""
    order = f"shuffled with seed {config.seed}" if config.shuffle_frames else "ascending"
    return {
        "video": {
            "weights": weights_fingerprint(model.vision_model),
            "processor": processor_fingerprint(processor.video_processor),
            "sampler": f"middle of {processor.video_processor.num_frames} equal parts, {order}",
        },
        "text": {
            "weights": weights_fingerprint(model.text_model),
            "tokenizer": tokenizer_fingerprint(processor.tokenizer, number_words=processor.number_words),
        },
    }


def read_clips(
    clips: list[dict[str, Any]],
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
    come = itertools.chain(
        ((clip_id, cache[clip_id]) for clip_id, cache in cached),
        ((clip_id, one if isinstance(one, VideoFailure) else one.frames) for clip_id, one in read),
    )
    whole = (item for item in come if not _has_failed(item, failures))
    for batch in batched(whole, config.batch_size):
        frames = [_in_order(clip_id, frames, config) for clip_id, frames in batch]
        pixels = processor.video_processor(frames, do_sample_frames=False, return_tensors="pt")["pixel_values"]
        yield [clip_id for clip_id, _ in batch], pixels


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
    caches = [FrameCache.find(folder, clips, num_frames, size) for clips in splits]
    return {clip_id: cache for cache in caches if cache is not None for clip_id in cache.places.keys() - cache.failures}


def answers(
    clips: list[dict[str, Any]], num_frames: int, size: int | tuple[int, int] | None, config: EmbedConfig
) -> Iterator[tuple[str, VideoFrames | VideoFailure]]:
    """The frames of each clip or why there are none; in worker processes a bad video cannot hang the run."""
    requests = [
        VideoRequest(clip["clip_id"], clip["video"], clip["start_seconds"], clip["end_seconds"]) for clip in clips
    ]
    limits = {"num_workers": config.num_workers, "timeout_seconds": config.timeout_seconds}
    with VideoReaderPool(num_frames, size=size, **limits) as pool:
        yield from pool.read(requests)


def batched(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while batch := list(itertools.islice(items, size)):
        yield batch


def embed_videos(
    model: TFCoVRForComposedRetrieval,
    processor: TFCoVRProcessor,
    store: FeatureStore,
    config: EmbedConfig,
    accelerator: Accelerator,
) -> dict[str, Any]:
    """Encode the clips that the store lacks; returns the coverage over all processes."""
    splits = [list(load_split(config, split, clips=True)) for split in config.splits]
    clips = list(itertools.chain(*splits))
    accelerator.wait_for_everyone()
    failures = {clip["clip_id"]: NO_FILE for clip in clips if not clip["video"]}
    todo = [clip for clip in clips if clip["video"] and clip["clip_id"] not in store]
    mine = todo[accelerator.process_index :: accelerator.num_processes]
    own_failures: dict[str, str] = {}
    shard: list[tuple[str, Tensor]] = []
    decoded = decoded_clips(splits, processor, config)
    hidden = not accelerator.is_local_main_process
    with tqdm(total=len(mine), desc="clips", unit="clip", disable=hidden) as progress:
        for clip_ids, pixels in read_clips(mine, processor, config, own_failures, decoded):
            with torch.inference_mode(), accelerator.autocast():
                embeddings = model.encode_video(pixels.to(accelerator.device)).float().cpu()
            shard += zip(clip_ids, embeddings, strict=True)
            progress.update(len(clip_ids))
            if len(shard) >= config.shard_size:
                store.append(*zip(*shard, strict=True))
                shard = []
    if shard:
        store.append(*zip(*shard, strict=True))
    return coverage(clips, failures | dict(gather_object(list(own_failures.items()))))


def coverage(clips: list[dict[str, Any]], failures: dict[str, str]) -> dict[str, Any]:
    """How many clips there are and were encoded, and why the others were not."""
    total = len({clip["clip_id"] for clip in clips})
    absent = sum(reason == NO_FILE for reason in failures.values())
    missing = {NO_FILE: absent, "does not decode": len(failures) - absent}
    return {"clips": total, "encoded": total - len(failures), "missing": missing, "failures": failures}


def embed_texts(
    model: TFCoVRForComposedRetrieval,
    processor: TFCoVRProcessor,
    store: FeatureStore,
    config: EmbedConfig,
    accelerator: Accelerator,
) -> int:
    """Encode the texts that the store lacks, on the main process: they are few. Returns how many there are."""
    texts = sorted({text for split in config.splits for text in load_split(config, split)["modification_text"]})
    todo = iter([text for text in texts if text not in store] if accelerator.is_main_process else [])
    for shard in batched(todo, config.shard_size):
        tokens = [processor(text=batch).to(accelerator.device) for batch in batched(iter(shard), 256)]
        with torch.inference_mode(), accelerator.autocast():
            store.append(shard, torch.cat([model.encode_text(**one).float().cpu() for one in tokens]))
    accelerator.wait_for_everyone()
    return len(texts)


def run(config: EmbedConfig) -> dict[str, Any]:
    """Fill the two stores; returns the coverage."""
    output_dir = Path(config.output_dir)
    accelerator = make_accelerator(config.device, output_dir, mixed_precision=config.mixed_precision)
    model, processor = load_encoders(config)
    origin = made_by(model, processor, config)
    stores = {kind: FeatureStore(output_dir / kind, origin[kind]) for kind in ("video", "text")}
    model = model.to(accelerator.device).eval()
    covered = embed_videos(model, processor, stores["video"], config, accelerator)
    num_texts = embed_texts(model, processor, stores["text"], config, accelerator)
    if accelerator.is_main_process:
        figures = {"clips": covered["encoded"], "texts": num_texts}
        write_results(output_dir, figures, config=config, seed=config.seed, coverage=covered)
        print(f"{output_dir}: {covered['encoded']:,} of {covered['clips']:,} clips and {num_texts:,} texts")
        for reason, count in covered["missing"].items():
            if count:
                print(f"  {count:,} clips left out: {reason} (each is named in {output_dir / 'results.json'})")
    accelerator.wait_for_everyone()
    return covered


def main(config: EmbedConfig) -> None:
    run(config)


if __name__ == "__main__":
    sys.exit(run_recipe(main, CONFIG))
