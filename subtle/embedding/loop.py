"""The loop of everything that embeds: read what a store lacks, encode it, store it; a kill costs at most one shard."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor
from tqdm import tqdm

from hf_datasets.records import ClipRow
from hf_datasets.video.pool import NO_FILE, VideoFailure, VideoReaderPool, VideoRequest
from hf_models.feature_store import FeatureStore
from subtle.run.data import missing_by_reason
from subtle.run.shards import encode_on_ray

Batch = tuple[Sequence[str], Tensor | Sequence[Tensor]]
"""Ids, and what is stored under each."""


@dataclass(frozen=True)
class Work:
    """How much is read and encoded at a time; the configuration of a verb says the same by the same names.

    Attributes:
        batch_size: clips, texts or queries per forward pass.
        shard_size: of them, per file; a kill costs at most one file.
        num_workers: processes that decode; 0: this one decodes.
        timeout_seconds: longest wait for the frames of one clip.
    """

    batch_size: int = 16
    shard_size: int = 256
    num_workers: int = 2
    timeout_seconds: float = 60.0


def read_clip_frames(
    clips: Iterable[ClipRow],
    num_frames: int,
    failures: dict[str, str],
    work: Any,
    *,
    size: int | tuple[int, int] | None = None,
    spread: Literal["middles", "seconds", "ends"] = "middles",
) -> Iterator[tuple[str, Tensor]]:
    """Ids and frames `(num_frames, 3, height, width)` uint8 as they come; in worker processes no video hangs the run.

    Args:
        clips: rows with `clip_id`, `video`, `start_seconds` and `end_seconds`.
        num_frames: of each clip.
        failures: gets the reason of each clip that cannot be read.
        work: a `Work`, or a configuration with its names.
        size: what frames are resized to while they are read, as of `read_frames`.
        spread: which frames, as of `read_frames`.
    """
    requests = [
        VideoRequest(clip["clip_id"], clip["video"], clip["start_seconds"], clip["end_seconds"]) for clip in clips
    ]
    if not requests:
        return
    limits: dict[str, Any] = {"num_workers": work.num_workers, "timeout_seconds": work.timeout_seconds}
    with VideoReaderPool(num_frames, size=size, spread=spread, **limits) as pool:
        for clip_id, read in pool.read(requests):
            if isinstance(read, VideoFailure):
                failures[str(clip_id)] = read.reason
            else:
                yield str(clip_id), read.frames


def fill(
    store: FeatureStore, batches: Iterable[Batch], total: int, unit: str, shard_size: int, *, is_hidden: bool = False
) -> int:
    """Append what is encoded to a store, shard by shard, with a progress bar; returns how many there were.

    Args:
        store: gets them.
        batches: as they come.
        total: how many there will be at most.
        unit: what one is called.
        shard_size: as many make a file, or a few more.
        is_hidden: show no bar.
    """
    ids: list[str] = []
    rows: list[Tensor] = []
    done = 0
    with torch.inference_mode(), tqdm(total=total, desc=unit, unit=unit, disable=is_hidden or not total) as bar:
        for batch, embeds in batches:
            ids += batch
            rows += embeds.float().cpu() if isinstance(embeds, Tensor) else embeds
            bar.update(len(batch))
            if ids and len(ids) >= shard_size:
                store.append(ids, rows)
                done, ids, rows = done + len(ids), [], []
        if ids:
            store.append(ids, rows)
    return done + len(ids)


def embed_videos(
    videos: Sequence[ClipRow],
    columns: Sequence[str],
    worker: str,
    encode: Callable[[list[Any], dict[str, str]], Iterable[Batch]],
    store: FeatureStore,
    config: Any,
    accelerator: Accelerator,
) -> dict[str, Any]:
    """Encode the clips or videos that a store lacks, each process its part; returns the coverage over all processes.

    Args:
        videos: rows with `columns`.
        columns: the id, `clip_id` or `video_id`, then what a worker needs, of it `video`, a path or None.
        worker: the `ShardWorker` of `--engine ray`, as of `run_on_ray`.
        encode: encodes some of the rows here; the dictionary gets why there is nothing of a row.
        store: gets what is encoded.
        config: of the verb.
        accelerator: of the processes.
    """
    key = columns[0]
    failures = {video[key]: NO_FILE for video in videos if not video["video"]}
    todo = [video for video in videos if video["video"] and video[key] not in store]
    accelerator.wait_for_everyone()
    mine = todo[accelerator.process_index :: accelerator.num_processes]
    own_failures: dict[str, str] = {}
    if config.engine == "ray":
        batches: Iterable[Any] = encode_on_ray(worker, mine, columns, store.details, config, own_failures)
        shard_size = 1  # a worker gives a whole shard
    else:
        batches, shard_size = encode(mine, own_failures), config.shard_size
    unit = key.removesuffix("_id")
    fill(store, batches, len(mine), unit, shard_size, is_hidden=not accelerator.is_local_main_process)
    failures |= dict(gather_object(list(own_failures.items())))
    return coverage(f"{unit}s", [video[key] for video in videos], failures)


def coverage(kind: str, ids: Collection[str], failures: Mapping[str, str]) -> dict[str, Any]:
    """How many clips or videos there are and were encoded, and why the others were not."""
    counts = {kind: len(set(ids)), "encoded": len(set(ids)) - len(failures)}
    return {**counts, "missing": missing_by_reason(failures.values()), "failures": dict(failures)}


def print_missing(covered: Mapping[str, Any], kind: str, folder: Path) -> None:
    """Say how many were left out, and where each is named."""
    for reason, count in covered["missing"].items():
        if count:
            print(f"  {count:,} {kind} left out: {reason} (each is named in {folder / 'results.json'})")
