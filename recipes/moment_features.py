"""Features of videos and of queries by id: what `embed_moments.py` writes, or the authors' HDF5 files, read where they lie.

A folder of features has `video` (one row for each clip of a video), `query-fine` and `query-coarse` (one row for each token
of a caption); each is a folder that a `FeatureStore` wrote, or one file `video.h5`, `video.npz` or `video.safetensors`
with one array `(length, size)` for each id. Nothing is read before it is needed.
"""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from harness.results import replacing, write_json

DESCRIPTION = "features.json"


class FeatureStore(Mapping[str, Tensor]):
    """Arrays `(length, size)` by id, in shards of a folder; a row is read from disk when it is asked for.

    Args:
        folder: may be new.
        details: what the features depend on, and `clip_seconds` for videos. A store with other details is refused;
            None takes the store as it is.
    """

    def __init__(self, folder: Path, details: dict[str, Any] | None = None) -> None:
        self.folder, self.details = folder, details or {}
        path = folder / DESCRIPTION
        if path.is_file():
            stored = json.loads(path.read_text(encoding="utf-8"))
            changed = [name for name in stored | self.details if stored.get(name) != self.details.get(name)]
            if details is not None and changed:
                raise SystemExit(
                    f"{folder} was made with other {', '.join(sorted(changed))}; name another folder, or delete this one"
                )
            self.details = stored
        self._places: dict[str, tuple[Any, int, int]] = {}
        for shard in sorted(folder.glob("shard-*.safetensors")):
            self._read_index(shard)

    def append(self, ids: Sequence[str], features: Sequence[Tensor]) -> None:
        """Write one shard, atomically."""
        if not (self.folder / DESCRIPTION).is_file():
            write_json(self.folder / DESCRIPTION, self.details)
        shard = self.folder / f"shard-{uuid.uuid4().hex}.safetensors"
        tensors = {
            "features": torch.cat(list(features)).float(),
            "lengths": torch.tensor(list(map(len, features))),
        }
        with replacing(shard) as unfinished:
            save_file(tensors, unfinished, metadata={"ids": json.dumps(list(ids))})
        self._read_index(shard)

    def _read_index(self, shard: Path) -> None:
        try:
            opened = safe_open(shard, framework="pt")
            ids, lengths = json.loads(opened.metadata()["ids"]), opened.get_tensor("lengths")
        except SafetensorError as error:
            raise SystemExit(f"{shard} is damaged ({error}); delete it and make the features again") from error
        rows = opened.get_slice("features")
        stops = lengths.cumsum(0).tolist()
        for one, stop, length in zip(ids, stops, lengths.tolist(), strict=True):
            self._places.setdefault(one, (rows, stop - length, stop))

    def __getitem__(self, one: str) -> Tensor:
        rows, first, stop = self._places[one]
        return rows[first:stop]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def length(self, one: str) -> int:
        """Rows of an id, without reading them."""
        _, first, stop = self._places[one]
        return stop - first


class FeatureFile(Mapping[str, Tensor]):
    """The arrays of an open HDF5, npz or safetensors file."""

    def __init__(self, path: Path) -> None:
        self.path, self.details = path, {}
        try:
            if path.suffix == ".npz":
                self._file: Any = np.load(path)
                self._ids = self._file.files
            elif path.suffix == ".safetensors":
                self._file = safe_open(path, framework="pt")
                self._ids = list(self._file.keys())
            else:
                self._file = open_hdf5(path)
                self._ids = list(self._file)
        except (OSError, ValueError, SafetensorError) as error:
            raise SystemExit(f"{path} cannot be read: {error}") from error
        self._known = set(self._ids)

    def __getitem__(self, one: str) -> Tensor:
        if isinstance(self._file, safe_open):
            return self._file.get_tensor(one)
        return torch.from_numpy(np.asarray(self._file[one][...], dtype=np.float32))

    def __contains__(self, one: object) -> bool:
        return one in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def length(self, one: str) -> int:
        """Rows of an id; HDF5 and safetensors say so without reading them."""
        if isinstance(self._file, safe_open):
            return self._file.get_slice(one).get_shape()[0]
        return self._file[one].shape[0]


Features = FeatureStore | FeatureFile


def open_hdf5(path: Path) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise SystemExit(f"{path} is HDF5, which needs h5py: pip install 'subtle-video[hdf5]'") from error
    return h5py.File(path, "r")


def open_features(folder: Path | str, kind: str) -> Features:
    """The features of a kind, `video`, `query-fine` or `query-coarse`, in a folder; an error says what is looked for."""
    place = Path(folder) / kind
    if place.is_dir():
        found: Features = FeatureStore(place)
        if len(found):
            return found
    for suffix in (".h5", ".hdf5", ".npz", ".safetensors"):
        if (path := place.with_name(kind + suffix)).is_file():
            return FeatureFile(path)
    raise SystemExit(
        f"there are no features {place}, neither a folder that `python recipes/embed_moments.py` wrote nor a file "
        f"{kind}.h5, {kind}.npz or {kind}.safetensors; --features names the folder that holds them"
    )


def checked(features: Tensor, name: str, size: int | None = None) -> Tensor:
    """Features as float32, or an error that names them."""
    if features.ndim != 2 or not features.shape[0] or (size and features.shape[1] != size):
        wanted = f"(length, {size})" if size else "(length, size)"
        raise SystemExit(f"the features of {name} have shape {tuple(features.shape)}; they must be {wanted}")
    features = features.float()
    if not features.isfinite().all():
        raise SystemExit(f"the features of {name} hold values that are not finite; make them again")
    return features


def fit_clips(features: Tensor, max_clips: int, how: Literal["pool", "truncate"]) -> tuple[Tensor, float]:
    """At most `max_clips` rows, and how many rows each of them stands for.

    "pool" averages over equal bins, whose edges may lie inside a row; "truncate" cuts.
    """
    length = len(features)
    if length <= max_clips or how == "truncate":
        return features[:max_clips], 1.0
    sums = torch.cat([torch.zeros_like(features[:1]), features]).double().cumsum(0)
    edges = torch.linspace(0, length, max_clips + 1, dtype=torch.float64)
    below = edges.floor().long().clamp(max=length - 1)
    at_edges = sums[below] + (edges - below)[:, None] * (sums[below + 1] - sums[below])
    width = length / max_clips
    return (at_edges.diff(dim=0) / width).to(features.dtype), width
