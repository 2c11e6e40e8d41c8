"""Encode videos by second and captions by token, so that moment retrieval reads no videos.

    python recipes/embed_moments.py
    python recipes/embed_moments.py --dataset didemo_fig --dataset_config release --data_dir annotations \
        --video_dir videos --vision_model microsoft/resnet-152 --text_model FacebookAI/roberta-base

Writes `OUTPUT_DIR/video` (one vector per `clip_seconds`, the maximum over its frames), `OUTPUT_DIR/query-fine` and
`OUTPUT_DIR/query-coarse` (one vector per token), which `hf_models.feature_store` reads, and `results.json` with the
coverage. Any image or video model that `AutoModel` opens will do, and any text model. A second run encodes what is
missing; another model in the same folder is refused, and so are other videos or captions under the same ids. With the
authors' HDF5 files none of this is needed: put them into a folder as `video.h5` and `query-fine.h5`, and give that
folder to `vcmr.py`.
"""

import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config import option, parse_config, run_recipe
from harness.model_folders import MINIATURE_CLIP, check_model_folder
from harness.shared_config import FIG_DATASETS, MINIATURE_CLIP_SECONDS, ActorConfig, Granularity, RunConfig


@dataclass
class EmbedMomentsConfig(RunConfig, ActorConfig):
    """What to encode, with what, and where to put it."""

    dataset: str = option("charades_fig", "Name of the dataset.", names=FIG_DATASETS)
    dataset_config: str = option("mini", "Its configuration: mini, release or source.")
    data_dir: str | None = option(None, "Folder of its annotations; none where it needs none, as the miniature.")
    video_dir: str | None = option(None, "Folder of its videos; none where the dataset knows its own.")
    vision_model: str = option(MINIATURE_CLIP, "Image or video model: a model folder or a name on the Hub.")
    text_model: str = option(MINIATURE_CLIP, "Text model: a model folder or a name on the Hub.")
    clip_seconds: float | None = option(
        None,
        f"Seconds of video for one feature vector; none: {MINIATURE_CLIP_SECONDS} for the miniature, whose moments are "
        "short, and 1 otherwise.",
    )
    frames_per_clip: int | None = option(
        None,
        "Frames read for each vector; none: as many as a video model was trained with, 4 for an image model.",
    )
    granularities: list[Granularity] = option(["fine", "coarse"], "Captions to encode.")
    output_dir: str | None = option(None, "Folder for the features; none: outputs/features/DATASET.")
    batch_size: int = option(64, "Captions per forward pass.")
    shard_size: int = option(64, "Videos per file; a kill costs at most one file.")
    num_workers: int = option(2, "Processes that decode; 0: this one decodes.")
    timeout_seconds: float = option(60.0, "Longest wait for the frames of one request, in seconds.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip_seconds is None:
            self.clip_seconds = MINIATURE_CLIP_SECONDS if self.dataset_config == "mini" else 1.0
        if self.clip_seconds <= 0 or (self.frames_per_clip is not None and self.frames_per_clip < 1):
            raise ValueError("--clip_seconds must be positive and --frames_per_clip at least 1")


if __name__ == "__main__":  # before the imports below, which take seconds
    CONFIG = parse_config(EmbedMomentsConfig, __doc__)

from accelerate import Accelerator
from accelerate.utils import gather_object
from datasets import DatasetDict
from torch import Tensor
from tqdm import tqdm
from transformers.utils.logging import disable_progress_bar

from fig.video_features import encode_on_ray, encode_videos, origin_of
from harness.accelerator import make_accelerator
from harness.data import missing_by_reason, open_dataset
from harness.encoded_data import digests_of_moments, remember_encoded
from harness.engines import running
from harness.results import write_results
from hf_datasets.video.pool import NO_FILE
from hf_models.feature_store import FeatureStore
from hf_models.moments.feature_encoders import ClipEncoder, TokenEncoder


def embed_videos(
    data: DatasetDict,
    encoder: ClipEncoder,
    store: FeatureStore,
    config: EmbedMomentsConfig,
    accelerator: Accelerator,
) -> dict[str, Any]:
    """Encode the videos that the store lacks; returns the coverage over all processes."""
    videos = list({video["video_id"]: video for split in data.values() for video in split}.values())
    failures = {video["video_id"]: NO_FILE for video in videos if not video["video"]}
    todo = [video for video in videos if video["video"] and video["video_id"] not in store]
    accelerator.wait_for_everyone()
    mine = todo[accelerator.process_index :: accelerator.num_processes]
    own_failures: dict[str, str] = {}
    if config.engine == "ray":
        encoded = encode_on_ray(mine, store.details, config, own_failures)
    else:
        encoded = encode_videos(mine, encoder, config, own_failures, accelerator)
    with tqdm(total=len(mine), desc="videos", unit="video", disable=not accelerator.is_local_main_process) as bar:
        while shard := list(itertools.islice(encoded, config.shard_size)):
            store.append(*zip(*shard, strict=True))
            bar.update(len(shard))
    failures |= dict(gather_object(list(own_failures.items())))
    return {
        "videos": len(videos),
        "encoded": len(videos) - len(failures),
        "missing": missing_by_reason(failures.values()),
        "failures": failures,
    }


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
    with tqdm(total=len(todo), desc=f"{granularity} captions", unit="caption") as bar:
        for first in range(0, len(todo), 16 * config.batch_size):
            shard = todo[first : first + 16 * config.batch_size]
            features: list[Tensor] = []
            for start in range(0, len(shard), config.batch_size):
                batch = shard[start : start + config.batch_size]
                features += encoder([captions[desc_id] for desc_id in batch])
                bar.update(len(batch))
            store.append(shard, features)
    return {"captions": len(captions), "cut": encoder.count_cut(list(captions.values()))}


def run(config: EmbedMomentsConfig) -> dict[str, Any]:
    """Fill the stores; returns the coverage."""
    with running(config, device=config.device, num_decoders=config.num_workers):
        return fill(config)


def fill(config: EmbedMomentsConfig) -> dict[str, Any]:
    """See `run`."""
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
    coverage = embed_videos(videos, vision, store, config, accelerator)
    if accelerator.is_main_process:
        text = TokenEncoder(config.text_model)
        for granularity in config.granularities:
            store = FeatureStore(output_dir / f"query-{granularity}", text.fingerprints)
            text.model.to(accelerator.device)
            coverage[granularity] = embed_captions(moments, granularity, text, store, config)
        counts = {"videos": coverage["encoded"]}
        write_results(output_dir, counts, config=config, seed=config.seed, coverage=coverage)
        report(coverage, output_dir)
    accelerator.wait_for_everyone()
    return coverage


def report(coverage: dict[str, Any], output_dir: Path) -> None:
    print(f"{output_dir}: {coverage['encoded']:,} of {coverage['videos']:,} videos")
    for reason, count in coverage["missing"].items():
        if count:
            print(f"  {count:,} videos left out: {reason} (each is named in {output_dir / 'results.json'})")
    for granularity in ("fine", "coarse"):
        if found := coverage.get(granularity):
            print(f"  {found['captions']:,} {granularity} captions, {found['cut']:,} longer than the model reads")


def main(config: EmbedMomentsConfig) -> None:
    run(config)


if __name__ == "__main__":
    sys.exit(run_recipe(main, CONFIG))
