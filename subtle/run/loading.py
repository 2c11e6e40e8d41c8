"""How the batches of a run are read: by workers that stay, as uint8 through shared memory, into pinned memory."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, default_collate

BATCHES_PER_WORKER = 2
"""Read ahead by each worker, so that the next is there where one takes longer than the others."""
SHARED_MEMORY = Path("/dev/shm")


def shared_bytes(batch_size: int, num_frames: int, size: tuple[int, int], num_workers: int) -> int:
    """Most bytes of uint8 frames in shared memory at a time, for one process that trains.

    Args:
        batch_size: Of this process, in videos.
        num_frames: Of each video.
        size: Height and width in pixels.
        num_workers: Processes that read; 0 need none.

    Example:
        >>> f"{shared_bytes(64, 12, (224, 224), 12) / 1e9:.1f} GB"
        '2.9 GB'
    """
    height, width = size
    return batches_in_memory(num_workers) * batch_size * num_frames * 3 * height * width


def batches_in_memory(num_workers: int) -> int:
    """Most batches in shared memory at a time: those read ahead, and one with the process that trains."""
    return BATCHES_PER_WORKER * num_workers + 1 if num_workers else 0


def check_shared_memory(needed: int) -> None:
    """Refuse what shared memory has no room for, where a worker would die of a bus error.

    Args:
        needed: Bytes, for each process of this machine that trains.

    Raises:
        SystemExit: There is less.
    """
    needed *= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if needed and SHARED_MEMORY.is_dir() and (free := shutil.disk_usage(SHARED_MEMORY).free) < needed:
        raise SystemExit(
            f"batches read ahead take up to {needed / 1e9:.2f} GB of shared memory, and {SHARED_MEMORY} has "
            f"{free / 1e9:.2f} GB left; in a container give it more (docker run --shm-size {-(-needed // 10**9)}g), or "
            "lower --num_workers or --batch_size"
        )


class NextBatches:
    """What a loader samples by: the batches of the epoch that is read next."""

    def __init__(self) -> None:
        self.batches: Iterable[Any] = ()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


class BatchLoader:
    """Reads batches of one dataset, epoch after epoch, by the same workers; closed when it is forgotten.

    Workers are forked when the first batch is read and see the dataset as it was then, so what changes from epoch to
    epoch belongs into the indices. The order is that of the batches, whatever the number of workers.

    Args:
        data: Its items are indexed by what the batches hold.
        num_workers: Processes that read; 0: this one.
        device: Where the batches go: for CUDA they come in pinned memory, which is copied while the GPU computes.
        collate: Makes a batch of its items; a worker runs it.
        needed_bytes: Of `shared_bytes`, to be refused where they are not there; 0: unknown.

    Example:
        >>> loader = BatchLoader(["a", "b", "c"], num_workers=0, device=torch.device("cpu"), collate="".join)
        >>> [list(loader.read(epoch)) for epoch in ([[0, 1], [2]], [[2, 0]])]
        [['ab', 'c'], ['ca']]
    """

    def __init__(
        self,
        data: Any,
        *,
        num_workers: int,
        device: torch.device,
        collate: Callable[[list[Any]], Any] = default_collate,
        needed_bytes: int = 0,
    ) -> None:
        check_shared_memory(needed_bytes)
        self.data, self.next = data, NextBatches()
        ahead: dict[str, Any] = {"persistent_workers": True, "prefetch_factor": BATCHES_PER_WORKER}
        batch_sampler: Any = self.next
        self.loader: DataLoader[Any] = DataLoader(
            data,
            batch_sampler=batch_sampler,
            collate_fn=collate,
            num_workers=num_workers,
            pin_memory=device.type == "cuda",
            # A loader draws a number when it starts. Drawn from the global state, it would change what is random after
            # a resume.
            generator=torch.Generator().manual_seed(0),
            **ahead if num_workers else {},
        )

    def read(self, batches: Iterable[Any]) -> Iterator[Any]:
        """What `collate` makes of each batch; what is left of an earlier call is dropped."""
        self.next.batches = batches
        yield from self.loader


class NamedDatasets(Dataset[Any]):
    """Several datasets as one, which the same workers read; an item is indexed by the name of its part and its index.

    Example:
        >>> NamedDatasets({"train": ["a", "b"], "test": ["c"]})["train", 1]
        'b'
    """

    def __init__(self, parts: dict[str, Any]) -> None:
        self.parts = parts

    def __getitem__(self, index: tuple[str, Any]) -> Any:
        part, own = index
        return self.parts[part][own]
