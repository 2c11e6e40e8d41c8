"""Encode all clips and modification texts once, so that stage 2 reads no videos."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from datasets import Dataset

from hf_datasets.tfcovr.released_embeddings import read_embeddings
from hf_models import TFCoVRForComposedRetrieval, TFCoVRProcessor
from hf_models.feature_store import FeatureStore
from subtle.embedding.loop import Batch, coverage, embed_videos, fill, print_missing
from subtle.engines import running
from subtle.run.accelerator import make_accelerator
from subtle.run.batches import batched
from subtle.run.data import NO_EMBEDDING, load_split, load_splits
from subtle.run.encoded_data import digests_of_clips, remember_encoded
from subtle.run.models import load_encoders
from subtle.run.results import write_results
from subtle.run.shared_config import EmbedConfig
from subtle.tfcovr.clip_embeddings import TEXTS_AT_ONCE, decoded_clips, encode_clips, imported_into, made_by

CLIP_WORKER = "subtle.tfcovr.clip_embeddings:ClipWorker"
CLIP_COLUMNS = ("clip_id", "video", "start_seconds", "end_seconds")


def wanted_splits(config: EmbedConfig, *, clips: bool = False) -> list[Dataset]:
    """The splits of the queries, or of the clips, that the configuration names; all that there are if it names none."""
    if config.splits is None:
        return list(load_splits(config, clips=clips).values())
    return [load_split(config, split, clips=clips) for split in config.splits]


def import_videos(config: EmbedConfig) -> None:
    """Take over the embeddings that a file has of the clips.

    Raises:
        SystemExit: The file cannot be used, or has none of the clips.
    """
    path = Path(str(config.import_from))
    try:
        found, digest = read_embeddings(path)
    except (ValueError, OSError) as error:
        raise SystemExit(str(error)) from None
    clips = dict.fromkeys(itertools.chain(*(split["clip_id"] for split in wanted_splits(config, clips=True))))
    known = [clip_id for clip_id in clips if clip_id in found]
    if not known:
        raise SystemExit(
            f"{path} has {len(found):,} embeddings, and none of them is of the {len(clips):,} clips of "
            f"{config.dataset!r}, {config.dataset_config!r}: it has {next(iter(found))!r}, the data "
            f"{next(iter(clips))!r}; name the annotations that they were published with as --data_dir"
        )
    size, model = len(found[known[0]]), path.name
    made = {"imported_from": path.name, "sha256": digest, "size": size, "model": model}
    store = FeatureStore(Path(config.output_dir) / "video", made)
    if todo := [clip_id for clip_id in known if clip_id not in store]:
        store.append(todo, [found[clip_id] for clip_id in todo])
    print(
        f"{path}: {len(known):,} of {len(clips):,} clips have an embedding of size {size}; {len(found) - len(known):,} "
        "others are of no clip of these splits"
    )


def embed_texts(
    model: TFCoVRForComposedRetrieval,
    processor: TFCoVRProcessor,
    store: FeatureStore,
    config: EmbedConfig,
    accelerator: Accelerator,
) -> int:
    """Encode the texts that the store lacks, on the main process: they are few. Returns how many there are."""
    texts = sorted({text for split in wanted_splits(config) for text in split["modification_text"]})
    todo = [text for text in texts if text not in store] if accelerator.is_main_process else []

    def encoded() -> Iterator[Batch]:
        for batch in batched(todo, TEXTS_AT_ONCE):
            with accelerator.autocast():
                embeds = model.encode_text(**processor(text=batch).to(accelerator.device))
            yield batch, embeds

    fill(store, encoded(), len(todo), "text", config.shard_size)
    accelerator.wait_for_everyone()
    return len(texts)


def run(config: EmbedConfig) -> dict[str, Any]:
    """Fill the two stores; returns the coverage."""
    with running(config, device=config.device, num_decoders=config.num_workers):
        return embed_dataset(config)


def embed_dataset(config: EmbedConfig) -> dict[str, Any]:
    output_dir = Path(config.output_dir)
    accelerator = make_accelerator(config.device, output_dir, mixed_precision=config.mixed_precision)
    if config.import_from and accelerator.is_main_process:
        import_videos(config)
    accelerator.wait_for_everyone()
    imported = imported_into(output_dir)
    # Nothing is composed here: the fusion of the default size would be 50 million weights to draw.
    model, processor = load_encoders(config, imported_video=imported, fusion_hidden_dim=1)
    if model.config.imported_video and imported is None:
        raise SystemExit(
            f"{config.vision_model} has no video encoder: it works on embeddings that were imported from "
            f"{model.config.imported_video['imported_from']}; import them into {output_dir} with --import_from"
        )
    origin = made_by(model, processor, config)
    stores = {kind: FeatureStore(output_dir / kind, origin[kind]) for kind in ("video", "text")}
    model = model.to(accelerator.device).eval()
    if model.config.imported_video:
        ids = [clip_id for split in wanted_splits(config, clips=True) for clip_id in split["clip_id"]]
        lacking = {clip_id: NO_EMBEDDING for clip_id in ids if clip_id not in stores["video"]}
        covered = coverage("clips", ids, lacking) | {"imported": model.config.imported_video}
    else:
        splits = [list(split) for split in wanted_splits(config, clips=True)]
        clips = list(itertools.chain(*splits))
        if accelerator.is_main_process:
            remember_encoded(output_dir, digests_of_clips(clips))

        def encode(mine: list[Any], failures: dict[str, str]) -> Iterator[Batch]:
            decoded = decoded_clips(splits, processor, config)
            return encode_clips(mine, model, processor, config, accelerator, failures, decoded)

        covered = embed_videos(clips, CLIP_COLUMNS, CLIP_WORKER, encode, stores["video"], config, accelerator)
    num_texts = embed_texts(model, processor, stores["text"], config, accelerator)
    if accelerator.is_main_process:
        counts = {"clips": covered["encoded"], "texts": num_texts}
        write_results(output_dir, counts, config=config, seed=config.seed, coverage=covered)
        print(f"{output_dir}: {covered['encoded']:,} of {covered['clips']:,} clips and {num_texts:,} texts")
        print_missing(covered, "clips", output_dir)
    accelerator.wait_for_everyone()
    return covered


def main(config: EmbedConfig) -> None:
    run(config)
