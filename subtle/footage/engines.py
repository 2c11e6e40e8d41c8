"""Reading and embedding groups of files: in this process, or whole groups on the workers of a Ray cluster.

A group is what `--engine local` commits at once, in the same batches, so the vectors are the same. The videos and the
model have to be under the same paths on every machine; the index is written by the driver alone.
"""

import json
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import TypeAdapter

from hf_datasets.footage.moments import VideoMoment
from hf_datasets.video.pool import VideoReaderPool
from hf_datasets.video.spans import read_spans
from hf_models.encoders import Encoder
from hf_models.fingerprints import key_of
from hf_models.index.store import IndexedModel
from subtle.engines import run_on_ray
from subtle.footage.models import load_model, vector_origin
from subtle.footage.planning import ReadFile
from subtle.footage.reading import EmbeddedMoments, GroupEnd, GroupReader, MomentBatch, ReaderMessage, read_ahead
from subtle.footage.sources import WantedFile

WANTED = TypeAdapter(WantedFile)
FACTORY = "subtle.footage.engines:GroupEncoder"
MOMENTS_PER_READ = 8
"""Of one video, that are decoded together, each frame once."""
SECONDS_PER_COMMIT = 5.0
FILES_PER_COMMIT = 256
"""Many workers finish more groups than a store can commit one by one; a kill costs what was not committed."""


def make_reader(encoder: Encoder, config: Any) -> GroupReader:
    """A reader of groups of files for an encoder; its pool is to be closed."""
    pool = VideoReaderPool(
        encoder.num_frames,
        num_workers=config.num_workers,
        timeout_seconds=config.timeout_seconds,
        size=encoder.frame_size,
        reader=read_spans,
    )
    return GroupReader(pool, encoder.num_frames, batch_size=config.batch_size, moments_per_read=MOMENTS_PER_READ)


def read_here(
    reader: GroupReader, encoder: Encoder, name: str, groups: Iterable[list[WantedFile]]
) -> Iterator[ReaderMessage]:
    """What a reader gives for groups of files, with vectors in place of frames.

    Raises:
        ValueError: The vectors of the model with this name are not finite.
    """
    for message in read_ahead(reader, groups):
        if isinstance(message, MomentBatch):
            vectors = encoder.vectors(message.frames)
            if not np.isfinite(vectors).all():
                raise ValueError(f"{name} gives vectors that are not finite; use another model or precision")
            yield EmbeddedMoments(message.moments, vectors)
        else:
            yield message


class GroupEncoder:
    """Reads and embeds groups of files in a worker.

    Args:
        config: The fields of `IndexConfig`.
        root: The folder of the videos.
        key: Of the model, which has to be the same on every machine.

    Raises:
        ValueError: This machine has not these videos or another model.
    """

    def __init__(self, config: Mapping[str, Any], root: str, key: str) -> None:
        self.config = SimpleNamespace(**config)
        if not Path(root).is_dir():
            raise ValueError(
                f"{socket.gethostname()} has no folder {root}; mount the storage of the videos there on every machine"
            )
        self.encoder = load_model(self.config)
        if key_of(vector_origin(self.encoder)) != key:
            raise ValueError(
                f"{self.config.model} is another model on {socket.gethostname()} than where the run was started; put "
                "the same files there, or the model into storage that all machines share"
            )
        self.reader = make_reader(self.encoder, self.config)

    def __call__(self, work: Mapping[str, Any]) -> pa.Table:
        """Read and embed a group.

        Returns:
            One row: `files` and `moments`, JSON of what became of the files and of the moments with a vector, and
            `vectors`, n * D float32.
        """
        moments: list[VideoMoment] = []
        vectors = [np.zeros((0, 0), np.float32)]
        files: list[ReadFile] = []
        group = [WANTED.validate_python(one) for one in work["files"]]
        for message in read_here(self.reader, self.encoder, self.config.model, [group]):
            if isinstance(message, EmbeddedMoments):
                moments += message.moments
                vectors.append(message.vectors)
            elif isinstance(message, GroupEnd):
                files = message.files
        nothing: Any = None  # the driver knows what it wanted
        described = [{**asdict(replace(file, wanted=nothing)), "video": file.wanted.file.video} for file in files]
        return pa.table(
            {
                "files": [json.dumps(described)],
                "moments": [json.dumps([asdict(moment) for moment in moments])],
                "vectors": pa.array([np.concatenate([part.ravel() for part in vectors])], pa.list_(pa.float32())),
            }
        )


def read_on_ray(
    config: Any, root: Path, model: IndexedModel, groups: Iterable[list[WantedFile]]
) -> Iterator[ReaderMessage]:
    """What the workers of a Ray cluster give for groups of files, whole groups, in any order, several in one commit."""
    groups = list(groups)
    arguments = asdict(config)
    if Path(config.model).is_dir():  # a worker has another working directory
        arguments["model"] = str(Path(config.model).resolve())
    done = run_on_ray(
        FACTORY,
        {"config": arguments, "root": str(root), "key": model.key},
        [{"files": [WANTED.dump_python(wanted, mode="json") for wanted in group]} for group in groups],
        config,
        device=config.device,
        num_decoders=config.num_workers,
    )
    files: list[ReadFile] = []
    stopped: Exception | None = None
    committed = time.monotonic()
    try:
        for number, table in done:
            wanted = {one.file.video: one for one in groups[number]}
            (row,) = table.select(["files", "moments"]).to_pylist()
            moments = [VideoMoment(**one) for one in json.loads(row["moments"])]
            vectors = table["vectors"].chunk(0).values.to_numpy()
            yield EmbeddedMoments(moments, vectors.reshape(len(moments), model.dimensions))
            files += [read_file(one, wanted) for one in json.loads(row["files"])]
            if len(files) >= FILES_PER_COMMIT or time.monotonic() - committed >= SECONDS_PER_COMMIT:
                yield GroupEnd(files)
                files, committed = [], time.monotonic()
    except (OSError, ValueError, RuntimeError) as error:
        stopped = error
    if files:
        yield GroupEnd(files)
    if stopped is not None:
        raise stopped


def read_file(described: Mapping[str, Any], wanted: Mapping[str, WantedFile]) -> ReadFile:
    """What became of a file, as a worker describes it."""
    rest = {name: value for name, value in described.items() if name not in {"video", "wanted", "moments"}}
    moments = [VideoMoment(**one) for one in described["moments"]]
    return ReadFile(wanted[described["video"]], moments=moments, **rest)
