"""Encode videos by second and captions by token, so that moment retrieval reads no videos."""

from pathlib import Path
from typing import Any, get_args

from datasets import DatasetDict
from transformers.utils.logging import disable_progress_bar

from hf_models.feature_store import FeatureStore
from hf_models.moments.feature_encoders import ClipEncoder, TokenEncoder
from subtle.embedding.loop import embed_videos, fill, print_missing
from subtle.embedding.options import EmbedMomentsConfig
from subtle.engines import running
from subtle.fig.video_features import encode_videos, origin_of
from subtle.run.accelerator import make_accelerator
from subtle.run.batches import batched
from subtle.run.data import open_dataset
from subtle.run.encoded_data import digests_of_moments, remember_encoded
from subtle.run.model_folders import check_model_folder
from subtle.run.results import write_results
from subtle.run.shared_config import Granularity

BATCHES_PER_SHARD = 16
VIDEO_WORKER = "subtle.fig.video_features:VideoWorker"
VIDEO_COLUMNS = ("video_id", "video", "duration_seconds")


def embed_captions(
    data: DatasetDict,
    granularity: str,
    encoder: TokenEncoder,
    store: FeatureStore,
    config: EmbedMomentsConfig,
) -> dict[str, int]:
    """Encode the captions that the store lacks; returns how many there are and how many had to be cut."""
    captions = {
        str(desc_id): caption
        for split in data.values()
        for desc_id, caption in zip(split["desc_id"], split[f"{granularity}_caption"], strict=True)
    }
    todo = [desc_id for desc_id in captions if desc_id not in store]
    batches = ((batch, encoder([captions[desc_id] for desc_id in batch])) for batch in batched(todo, config.batch_size))
    fill(store, batches, len(todo), f"{granularity} caption", BATCHES_PER_SHARD * config.batch_size)
    return {"captions": len(captions), "cut": encoder.count_cut(list(captions.values()))}


def run(config: EmbedMomentsConfig) -> dict[str, Any]:
    """Fill the stores; returns the coverage."""
    with running(config, device=config.device, num_decoders=config.num_workers):
        return embed_videos_and_captions(config)


def embed_videos_and_captions(config: EmbedMomentsConfig) -> dict[str, Any]:
    disable_progress_bar()
    output_dir = Path(config.output_dir or f"outputs/features/{config.dataset}")
    accelerator = make_accelerator(config.device, output_dir, mixed_precision=config.mixed_precision)
    videos, moments = open_dataset(config, part="-videos", video_dir=config.video_dir), open_dataset(config)
    for model in (config.vision_model, config.text_model):
        check_model_folder(model)
    digests = digests_of_moments(row for split in moments.values() for row in split)
    if accelerator.is_main_process:
        remember_encoded(output_dir, digests)
    accelerator.wait_for_everyone()
    vision = ClipEncoder(config.vision_model, frames_per_clip=config.frames_per_clip)
    store = FeatureStore(output_dir / "video", origin_of(vision, config))
    vision.model.to(accelerator.device)
    rows = list({video["video_id"]: video for split in videos.values() for video in split}.values())
    covered = embed_videos(
        rows,
        VIDEO_COLUMNS,
        VIDEO_WORKER,
        lambda mine, failures: encode_videos(mine, vision, config, failures, accelerator),
        store,
        config,
        accelerator,
    )
    if accelerator.is_main_process:
        text = TokenEncoder(config.text_model)
        for granularity in get_args(Granularity):
            store = FeatureStore(output_dir / f"query-{granularity}", text.fingerprints)
            text.model.to(accelerator.device)
            covered[granularity] = embed_captions(moments, granularity, text, store, config)
        counts = {"videos": covered["encoded"]}
        write_results(output_dir, counts, config=config, seed=config.seed, coverage=covered)
        print_coverage(covered, output_dir)
    accelerator.wait_for_everyone()
    return covered


def print_coverage(covered: dict[str, Any], output_dir: Path) -> None:
    print(f"{output_dir}: {covered['encoded']:,} of {covered['videos']:,} videos")
    print_missing(covered, "videos", output_dir)
    for granularity in get_args(Granularity):
        found = covered[granularity]
        print(f"  {found['captions']:,} {granularity} captions, {found['cut']:,} longer than the model reads")


def main(config: EmbedMomentsConfig) -> None:
    run(config)
