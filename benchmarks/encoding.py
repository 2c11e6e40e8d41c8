"""Indexing: decoding and the model together against the slower of the two alone, and how soon a worker is ready.

Videos of 20 s, H.264 at 240p, are cut into windows that overlap by half. Decoding alone is the reader of `subtle index`
without a model; the model alone takes the same batches from memory; together is what `subtle index` does, without the
index. All three take turns. The model has one thread and as many frames that its share is like that of decoding.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

from benchmarks.timing import Ratio, interleave
from benchmarks.video import RATE, write_video
from hf_datasets.footage.moments import Windows
from hf_datasets.video.pool import VideoReaderPool, VideoRequest
from hf_datasets.video.spans import read_spans
from subtle.footage.reading import GroupReader, MomentBatch, file_groups, read_ahead
from subtle.footage.sources import WantedFile, folder_source

NUM_VIDEOS, SECONDS = 24, 20
NUM_FRAMES, SIZE, BATCH_SIZE = 8, 112, 8
READY_SECONDS = 2.0
HEAVY = {"torch", "torchvision", "transformers", "datasets", "pandas", "pyarrow", "polars", "lancedb"}
IMPORTS = "from hf_datasets.video import spans, worker; import av.video.reformatter, PIL.Image"


class Model:
    """A small CLIP tower over all frames, as many times as makes its time like that of decoding."""

    def __init__(self) -> None:
        config = CLIPVisionConfig(
            hidden_size=192, intermediate_size=768, num_hidden_layers=4, num_attention_heads=3, image_size=SIZE,
            patch_size=16, projection_dim=64,
        )  # fmt: skip
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.tower = CLIPVisionModelWithProjection(config).eval().to(self.device)
        self.repeats = 1

    def __call__(self, batch: MomentBatch) -> None:
        """Embed a batch."""
        frames = torch.cat([torch.stack(list(one)) for one in batch.frames]).to(self.device)
        pixels = torch.nn.functional.interpolate(frames.float() / 255, (SIZE, SIZE))
        with torch.inference_mode():
            for _ in range(self.repeats):
                self.tower(pixel_values=pixels).image_embeds.cpu()


def workers() -> int:
    """Processes that decode, one core being the model's."""
    return max(1, len(os.sched_getaffinity(0)) - 1) if hasattr(os, "sched_getaffinity") else 1


def read(pool: VideoReaderPool, files: list[WantedFile]) -> Iterator[Any]:
    """What `subtle index` reads."""
    reader = GroupReader(pool, NUM_FRAMES, batch_size=BATCH_SIZE, moments_per_read=8)
    return read_ahead(reader, file_groups(files))


def overlap(files: list[WantedFile], share: float) -> Ratio:
    """Both together against the slower one; `share` is the model's time over decoding's."""
    model = Model()
    with VideoReaderPool(NUM_FRAMES, num_workers=workers(), size=SIZE, reader=read_spans) as pool:
        batches = [message for message in read(pool, files) if isinstance(message, MomentBatch)]

        def decode() -> None:
            for _ in read(pool, files):
                pass

        def embed() -> None:
            for batch in batches:
                model(batch)

        def both() -> None:
            for message in read(pool, files):
                if isinstance(message, MomentBatch):
                    model(message)

        alone = interleave({"decode": decode, "embed": embed}, rounds=1)
        model.repeats = max(1, round(share * alone["decode"] / alone["embed"]))
        seconds = interleave({"decode": decode, "embed": embed, "both": both}, rounds=3)
    slower = max(seconds["decode"], seconds["embed"])
    what = f"decoding and model together, the model {seconds['embed'] / seconds['decode']:.1f} times decoding"
    detail = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
    return Ratio(
        what, "the slower of the two alone", slower / seconds["both"], 0.9, detail=f"{detail}; {len(batches)} batches"
    )


def startup(path: Path) -> Ratio:
    """From the start of a pool to its first answer."""
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        with VideoReaderPool(NUM_FRAMES, num_workers=1, size=SIZE, reader=read_spans) as pool:
            list(pool.read([VideoRequest(0, path, options={"find": "timeline"})]))
        seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    what = "a decoding worker: start to first answer"
    return Ratio(what, f"{READY_SECONDS:g} s", median / READY_SECONDS, 1.0, at_most=True, detail=f"{median:.2f} s")


def imports() -> Ratio:
    """How many heavy libraries a worker imports."""
    command = [sys.executable, "-P", "-X", "importtime", "-c", IMPORTS]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()
    heavy = HEAVY & {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
    total = int(lines[-1].split("|")[1]) / 1e6 if lines else 0.0
    detail = ", ".join(sorted(heavy)) or f"{len(lines)} modules, the last took {total:.2f} s"
    return Ratio("a decoding worker: heavy libraries", "none", float(len(heavy)), 0.0, at_most=True, detail=detail)


def measure() -> Iterator[Ratio]:
    """The worker's start, then both together: the model as slow as decoding, half as slow, and twice."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(NUM_VIDEOS):
            write_video(Path(folder, f"{number:03}.mp4"), number * SECONDS * RATE, SECONDS * RATE)
        files = folder_source(Path(folder), Windows(4.0, 2.0)).files
        yield imports()
        yield startup(files[0].file.path)
        for share in (1.0, 0.5, 2.0):
            yield overlap(files, share)
