"""Encode all clips and modification texts once, so that stage 2 reads no videos."""

import itertools
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from datasets import Dataset
from torch import Tensor
from tqdm import tqdm

from hf_datasets.video.pool import NO_FILE
from hf_models import TFCoVRForComposedRetrieval, TFCoVRProcessor
from hf_models.feature_store import FeatureStore
from subtle.engines import running
from subtle.run.accelerator import make_accelerator
from subtle.run.data import load_split, load_splits
from subtle.run.encoded_data import digests_of_clips, remember_encoded
from subtle.run.models import load_encoders
from subtle.run.results import write_results
from subtle.run.shards import batched
from subtle.run.shared_config import EmbedConfig
from subtle.tfcovr.clip_embeddings import coverage, decoded_clips, encode_clips, encode_on_ray, made_by


def wanted_splits(config: EmbedConfig, *, clips: bool = False) -> list[Dataset]:
    """The splits of the queries, or of the clips, that the configuration names; all that there are if it names none."""
    if config.splits is None:
        return list(load_splits(config, clips=clips).values())
    return [load_split(config, split, clips=clips) for split in config.splits]


def embed_videos(
    model: TFCoVRForComposedRetrieval,
    processor: TFCoVRProcessor,
    store: FeatureStore,
    config: EmbedConfig,
    accelerator: Accelerator,
) -> dict[str, Any]:
    """Encode the clips that the store lacks; returns the coverage over all processes."""
    splits = [list(split) for split in wanted_splits(config, clips=True)]
    clips = list(itertools.chain(*splits))
    if accelerator.is_main_process:
        remember_encoded(config.output_dir, digests_of_clips(clips))
    accelerator.wait_for_everyone()
    failures = {clip["clip_id"]: NO_FILE for clip in clips if not clip["video"]}
    todo = [clip for clip in clips if clip["video"] and clip["clip_id"] not in store]
    mine = todo[accelerator.process_index :: accelerator.num_processes]
    own_failures: dict[str, str] = {}
    shard: list[tuple[str, Tensor]] = []
    decoded = decoded_clips(splits, processor, config)
    hidden = not accelerator.is_local_main_process
    if config.engine == "ray":
        batches = encode_on_ray(mine, store.details, config, own_failures)
    else:
        batches = encode_clips(mine, model, processor, config, accelerator, own_failures, decoded)
    with tqdm(total=len(mine), desc="clips", unit="clip", disable=hidden) as progress:
        for batch in batches:
            shard += batch
            progress.update(len(batch))
            if shard and (len(shard) >= config.shard_size or config.engine == "ray"):  # what workers gave is a shard
                store.append(*zip(*shard, strict=True))
                shard = []
    if shard:
        store.append(*zip(*shard, strict=True))
    return coverage(clips, failures | dict(gather_object(list(own_failures.items()))))


def embed_texts(
    model: TFCoVRForComposedRetrieval,
    processor: TFCoVRProcessor,
    store: FeatureStore,
    config: EmbedConfig,
    accelerator: Accelerator,
) -> int:
    """Encode the texts that the store lacks, on the main process: they are few. Returns how many there are."""
    texts = sorted({text for split in wanted_splits(config) for text in split["modification_text"]})
    todo = iter([text for text in texts if text not in store] if accelerator.is_main_process else [])
    for shard in batched(todo, config.shard_size):
        tokens = [processor(text=batch).to(accelerator.device) for batch in batched(iter(shard), 256)]
        with torch.inference_mode(), accelerator.autocast():
            store.append(shard, torch.cat([model.encode_text(**batch).float().cpu() for batch in tokens]))
    accelerator.wait_for_everyone()
    return len(texts)


def run(config: EmbedConfig) -> dict[str, Any]:
    """Fill the two stores; returns the coverage."""
    with running(config, device=config.device, num_decoders=config.num_workers):
        return fill(config)


def fill(config: EmbedConfig) -> dict[str, Any]:
    """See `run`."""
    output_dir = Path(config.output_dir)
    accelerator = make_accelerator(config.device, output_dir, mixed_precision=config.mixed_precision)
    model, processor = load_encoders(config)
    origin = made_by(model, processor, config)
    stores = {kind: FeatureStore(output_dir / kind, origin[kind]) for kind in ("video", "text")}
    model = model.to(accelerator.device).eval()
    covered = embed_videos(model, processor, stores["video"], config, accelerator)
    num_texts = embed_texts(model, processor, stores["text"], config, accelerator)
    if accelerator.is_main_process:
        counts = {"clips": covered["encoded"], "texts": num_texts}
        write_results(output_dir, counts, config=config, seed=config.seed, coverage=covered)
        print(f"{output_dir}: {covered['encoded']:,} of {covered['clips']:,} clips and {num_texts:,} texts")
        for reason, count in covered["missing"].items():
            if count:
                print(f"  {count:,} clips left out: {reason} (each is named in {output_dir / 'results.json'})")
    accelerator.wait_for_everyone()
    return covered


def main(config: EmbedConfig) -> None:
    run(config)
