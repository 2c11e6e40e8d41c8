"""Feeding a model: batches that workers read ahead against none, and what the process that computes does for a batch.

An epoch is stage 1's on frames of 224 x 224 from the cache, with its augmentation; its model is a small one.
Preparing a batch is what is done before a GPU has it: uint8 frames are gathered, where they were made float32 and
normalized before. Processor time is that of all threads.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.stage1 import make_clips, make_pair, training_step
from benchmarks.timing import Ratio, cpu_seconds, interleave
from hf_datasets.video.frame_cache import FrameCache, FrameFile
from hf_datasets.video.training_clips import Augmentation, LabeledClips
from hf_models import AIMVideoProcessor
from hf_models.frame_reading import staged
from subtle.run.loading import BatchLoader

NUM_CLIPS, NUM_FRAMES, SIZE, BATCH_SIZE = 64, 12, (224, 224), 16
BATCHES = 24  # an epoch of the miniature has 154; in one of four the first batch, which nobody reads ahead, is a third
SMALL = {"num_frames": 12, "hidden_size": 96, "intermediate_size": 384, "num_hidden_layers": 4, "image_size": 48}
SMALL |= {"num_attention_heads": 3, "patch_size": 8}
STEPS, ROUNDS = 12, 3


def seconds_of(way: Callable[[], object]) -> float:
    """Processor seconds of this process, of all its threads."""
    start = cpu_seconds()
    way()
    return cpu_seconds() - start


class WholeClips(LabeledClips):
    """Copies all frames of a clip from the cache to draw some of them, as before."""

    def read(self, position: int, drawn: np.ndarray | slice = slice(None)) -> Tensor:
        """Some frames of a clip, after all were copied."""
        return super().read(position)[drawn]


def cached_clips(folder: Path, kind: type[LabeledClips] = LabeledClips) -> LabeledClips:
    """Clips of noise, as a run of stage 1 finds them in its cache."""
    file = FrameFile(folder, NUM_CLIPS, 2 * NUM_FRAMES, SIZE)
    generator = np.random.default_rng(0)
    for place in range(NUM_CLIPS):
        file.frames[place] = generator.integers(256, size=file.frames.shape[1:], dtype=np.uint8)
    clips = [{"clip_id": str(place), "video": None} for place in range(NUM_CLIPS)]
    cache = FrameCache.__new__(FrameCache)
    cache._open(file, clips)
    augmentation = Augmentation(SIZE, crop_scale=0.8, flip=0.5, brightness=0.15)
    return kind(clips, [0] * NUM_CLIPS, NUM_FRAMES, SIZE, augmentation=augmentation, frames_per_part=2, cache=cache)


def epochs(data: LabeledClips, num_workers: int, step: Callable[[], object]) -> Callable[[], None]:
    """An epoch of training, in which the batches come from so many workers."""
    loader = BatchLoader(data, num_workers=num_workers, device=torch.device("cpu"))
    items = [(place % NUM_CLIPS, place) for place in range(BATCHES * BATCH_SIZE)]
    batches = [items[start : start + BATCH_SIZE] for start in range(0, len(items), BATCH_SIZE)]

    def run() -> None:
        for _ in loader.read(batches):
            step()

    return run


def measure_epoch(folder: Path) -> Iterator[Ratio]:
    """Two workers against none as before, of reading alone and with a small step, on as many cores as there are."""
    reads = {0: cached_clips(folder / "before", WholeClips), 2: cached_clips(folder / "now")}
    _, aim = make_pair(**SMALL)
    small_step = training_step(aim.train(), make_clips(BATCH_SIZE, aim.config))
    for what, step in {"batches alone": lambda: None, "with the miniature's step": small_step}.items():
        ways = {str(workers): epochs(data, workers, step) for workers, data in reads.items()}
        seconds = interleave(ways, ROUNDS)
        spent = {name: seconds_of(way) for name, way in ways.items()}
        detail = ", ".join(
            f"{name} workers: {seconds[name]:.2f} s, this process {spent[name]:.2f} s of CPU" for name in ways
        )
        name = f"an epoch with cache and augmentation, two workers, {what}"
        yield Ratio(name, "no worker, as before", seconds["2"] / seconds["0"], 0.6, at_most=True, detail=detail)


def measure_preparation() -> Iterator[Ratio]:
    """What the process that feeds a GPU does with 16 clips of 12 frames."""
    frames = list(torch.randint(256, (BATCH_SIZE, NUM_FRAMES, 3, *SIZE), dtype=torch.uint8))
    processor = AIMVideoProcessor(num_frames=NUM_FRAMES)
    sent = torch.empty(BATCH_SIZE, NUM_FRAMES, 3, *SIZE, dtype=torch.uint8)

    def on_the_cpu() -> Tensor:
        pixels: Tensor = processor(frames, do_sample_frames=False, return_tensors="pt")["pixel_values"]
        return pixels

    def gathered() -> None:  # into memory that stands for pinned memory, where there is no GPU
        for place, clip in enumerate(frames):
            sent[place].copy_(clip)

    def on_the_gpu() -> None:
        ready = staged(frames, processor, torch.device("cuda"))
        processor(ready, do_sample_frames=False, return_tensors="pt")
        torch.accelerator.synchronize()

    ways = {"before": on_the_cpu, "now": on_the_gpu if torch.cuda.is_available() else gathered}
    for way in ways.values():
        way()
    spent = {name: statistics.median(seconds_of(way) for _ in range(7)) for name, way in ways.items()}
    detail = ", ".join(f"{name} {1e3 * value:.0f} ms of CPU" for name, value in spent.items())
    if not torch.cuda.is_available():
        detail += "; no GPU: copied once as uint8"
    what = "preparing 16 x 12 frames in the process that feeds a GPU (index, embed, training)"
    yield Ratio(what, "float32, on the CPU", spent["now"] / spent["before"], 0.15, at_most=True, detail=detail)


def train_in_process(rank: int, processes: int, folder: str) -> None:
    """Steps of stage 1 on random clips, as one of several processes; the first writes how long they took."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(processes)}
    dist.init_process_group("gloo", init_method=f"file://{folder}/store{processes}", rank=rank, world_size=processes)
    _, aim = make_pair(**SMALL)
    model = torch.nn.parallel.DistributedDataParallel(aim.train())
    step = training_step(model, make_clips(BATCH_SIZE, aim.config))
    step()
    dist.barrier()
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    dist.barrier()
    if rank == 0:
        Path(folder, f"seconds{processes}").write_text(str(time.perf_counter() - start), encoding="ascii")
    dist.destroy_process_group()


def measure_processes() -> Iterator[Ratio]:
    """Clips per second of two processes against one, each with a thread and a batch of its own."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(3):
        for processes, found in rates.items():
            with tempfile.TemporaryDirectory() as folder:
                torch.multiprocessing.spawn(train_in_process, (processes, folder), nprocs=processes)
                seconds = float(Path(folder, f"seconds{processes}").read_text(encoding="ascii"))
            found.append(processes * STEPS * BATCH_SIZE / seconds)
    one, two = (statistics.median(found) for found in rates.values())
    detail = f"{two:.0f} against {one:.0f} clips/s"
    yield Ratio("stage 1 on two processes, clips per second", "one process", two / one, 1.8, detail=detail)


def measure() -> Iterator[Ratio]:
    """Give all ratios."""
    yield from measure_preparation()
    with tempfile.TemporaryDirectory() as folder:
        yield from measure_epoch(Path(folder))
    yield from measure_processes()
