"""Features by the workers of a Ray cluster: each gets shards of clips or videos and gives features and failures."""

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from subtle.engines import run_on_ray
from subtle.run.batches import batched

FOLDER_OPTIONS = ("vision_model", "text_model", "output_dir")
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "failure")),
        ("shape", pa.list_(pa.int64())),
        ("features", pa.list_(pa.float32())),
    ]
)


class ShardWorker:
    """What a worker is: encodes shards."""

    def encode(self, items: list[dict[str, Any]], failures: dict[str, str]) -> Iterable[tuple[Sequence[str], Any]]:
        """Ids and features of clips or videos, batch by batch; what cannot be read goes to `failures`."""
        raise NotImplementedError

    def __call__(self, work: Mapping[str, Any]) -> pa.Table:
        """The features of a shard; see `feature_table`."""
        failures: dict[str, str] = {}
        found: dict[str, Tensor] = {}
        for ids, rows in self.encode(work["items"], failures):
            found |= zip(ids, rows, strict=True)
        return feature_table(found, failures)


def encode_on_ray(
    factory: str,
    items: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    origin: Mapping[str, Any],
    config: Any,
    failures: dict[str, str],
) -> Iterator[tuple[list[str], list[Tensor]]]:
    """Shards of ids and features from the workers of a Ray cluster, in any order.

    Args:
        factory: A `ShardWorker`, as of `run_on_ray`, that is made of `config` and `origin`.
        items: Clips or videos.
        columns: What a worker needs of each.
        origin: What the features depend on; it has to be the same on every machine.
        config: Of the verb.
        failures: Gets why there are no features.
    """
    rows = [{name: item[name] for name in columns} for item in items]
    works = [{"items": shard} for shard in batched(rows, config.shard_size)]
    arguments = {"config": with_absolute_folders(config), "origin": dict(origin)}
    limits: dict[str, Any] = {"device": config.device, "num_decoders": config.num_workers}
    for _, table in run_on_ray(factory, arguments, works, config, **limits):
        features, failed = features_of(table)
        failures |= failed
        yield list(features), list(features.values())


def feature_table(features: Mapping[str, Tensor], failures: Mapping[str, str]) -> pa.Table:
    """A row for each id: its features in row-major order with their shape, or why there are none."""
    rows = [
        {"id": one, "shape": list(value.shape), "features": value.float().numpy().ravel()}
        for one, value in features.items()
    ]
    rows += [{"id": one, "failure": reason} for one, reason in failures.items()]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def features_of(table: pa.Table) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The reverse of `feature_table`.

    >>> features_of(feature_table({"a": torch.tensor([[1.0, 2.0]])}, {"b": "no such file"}))
    ({'a': tensor([[1., 2.]])}, {'b': 'no such file'})
    """
    features: dict[str, Tensor] = {}
    failures: dict[str, str] = {}
    columns = [table[name].to_pylist() for name in ("id", "failure", "shape")]
    for one, failure, shape, values in zip(*columns, table["features"], strict=True):
        if shape is None:
            failures[one] = failure
        else:
            features[one] = torch.from_numpy(np.array(values.values)).reshape(shape)
    return features, failures


def check_origin(here: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to mix features of different models.

    Raises:
        ValueError: This machine has another model than the one that the run was started with.
    """
    changed = sorted(name for name in here.keys() | wanted.keys() if here.get(name) != wanted.get(name))
    if changed:
        raise ValueError(
            f"{socket.gethostname()} has another model than where the run was started (other {', '.join(changed)}); "
            "put the same files there, or the model into storage that all machines share"
        )


def with_absolute_folders(config: Any) -> dict[str, Any]:
    """The fields of a configuration for a worker, which has another working directory."""
    values = asdict(config)
    for name in FOLDER_OPTIONS:
        if name in values and Path(values[name] or "").is_dir():
            values[name] = str(Path(values[name]).resolve())
    return values
