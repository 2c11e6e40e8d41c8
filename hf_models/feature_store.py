"""Features of videos and texts by id: a store in one folder that survives a kill, or other files, read in place.

A store keeps vectors `(size,)` or sequences `(length, size)`, float32, in safetensors shards with a description beside
them:

    vectors     store.json                 `{"dimensions": size, "made_by": details}`
                shard-<uuid>.safetensors   `embeddings` (n, size); in the header `ids`, a JSON list, and `checksum`
    sequences   features.json              the details
                shard-<uuid>.safetensors   `features` (sum of lengths, size), `lengths` (n,) int64; both in the header

A shard appears whole or not at all. A store knows what made it and refuses what anything else made. The checksum is one
of all that is read: the description, ids, types, shapes and values. A store is read once as a whole when it is opened.
"""

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from hf_models.atomic_files import remove_abandoned, replacing

VECTORS, SEQUENCES = "store.json", "features.json"  # the description of each kind
ARRAY = MappingProxyType({VECTORS: "embeddings", SEQUENCES: "features"})


class FeatureStore(Mapping[str, Tensor]):
    """Features by id in the shards of a folder; each is read from disk on access.

    The first `append` decides between vectors `(size,)` and sequences `(length, size)`.

    Args:
        folder: made when the first shard is written.
        details: what the features depend on, by name, such as fingerprints of weights and processor; JSON values. A
            store that was made with others is refused. None takes a store as it is.

    Raises:
        ValueError: The store was made with other details, or a file of it is damaged.

    Example:
        >>> import tempfile
        >>> store = FeatureStore(Path(tempfile.mkdtemp()), {"weights": "8c1f"})
        >>> store.append(["a", "b"], torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        >>> store["b"]
        tensor([3., 4.])
        >>> FeatureStore(store.path).load()
        (['a', 'b'], tensor([[1., 2.],
                [3., 4.]]))
    """

    def __init__(self, folder: Path | str, details: Mapping[str, Any] | None = None) -> None:
        self.path = Path(folder)
        self._wanted = None if details is None else dict(details)
        self.details: dict[str, Any] = self._wanted or {}
        self._kind: str | None = None
        self._shards: list[tuple[Any, Any]] = []  # each open, and its rows
        self._places: dict[str, tuple[int, int, int]] = {}  # id -> shard, first row, row after the last
        self._has_written = False
        shards = sorted(self.path.glob("shard-*.safetensors"))  # before the description, which is written first
        self._read_description()
        if shards and self._kind is None:
            raise ValueError(
                f"{self.path} has shards but neither {' nor '.join(ARRAY)}, so it is unknown what made them; name "
                "another folder, or delete this one to make it from scratch"
            )
        for shard in shards:
            self._read_index(shard)

    def append(self, ids: Sequence[str], features: Sequence[Tensor] | Tensor) -> None:
        """Write one shard, atomically. Of an id that is there already, what came first counts.

        Args:
            ids: N of them.
            features: N vectors `(size,)`, or N sequences `(length, size)`; floats.

        Raises:
            ValueError: There are no ids, another number of them than of features, or features of the other kind than
                the store has.
        """
        rows = list(features)
        if not len(ids) == len(rows) > 0:
            raise ValueError(f"a shard needs as many ids as features and at least one; got {len(ids)} and {len(rows)}")
        if not self._has_written:
            remove_abandoned(self.path)
            self._has_written = True
        self._read_description()
        kind = VECTORS if rows[0].ndim == 1 else SEQUENCES
        if self._kind is None:
            self._describe(kind, rows[0].shape[-1])
        elif kind != self._kind:
            shape = "(size,)" if self._kind == VECTORS else "(length, size)"
            raise ValueError(
                f"{self.path} has features of shape {shape}, not {tuple(rows[0].shape)}; name another folder"
            )
        if kind == VECTORS:
            tensors = {"embeddings": torch.stack(rows).float()}
        else:
            tensors = {"features": torch.cat(rows).float(), "lengths": torch.tensor([len(row) for row in rows])}
        shard = self.path / f"shard-{uuid.uuid4().hex}.safetensors"
        with replacing(shard) as unfinished:
            metadata = {"ids": json.dumps(list(ids)), "checksum": self._checksum(list(ids), tensors)}
            save_file(tensors, unfinished, metadata=metadata)
        self._read_index(shard)

    def load(self) -> tuple[list[str], Tensor]:
        """Read a store of vectors whole.

        Returns:
            The ids, each once, sorted, and their vectors `(N, size)`, float32, in the same order: shards have random
            names, and what is computed over all vectors must not depend on these.

        Raises:
            FileNotFoundError: The store is empty.
            ValueError: It holds sequences.
        """
        if not self._places:
            raise FileNotFoundError(f"{self.path} holds no features")
        if self._kind == SEQUENCES:
            raise ValueError(f"{self.path} holds sequences of different lengths; read them by id")
        parts = [shard.get_tensor(ARRAY[VECTORS]) for shard, _ in self._shards]
        starts, ids = np.cumsum([0, *map(len, parts)]), sorted(self._places)
        rows = [starts[shard] + first for shard, first, _ in map(self._places.__getitem__, ids)]
        return ids, torch.cat(parts)[rows]

    def length(self, one: str) -> int:
        """Rows of an id, without reading them."""
        _, first, stop = self._places[one]
        return stop - first

    def __getitem__(self, one: str) -> Tensor:
        shard, first, stop = self._places[one]
        rows: Tensor = self._shards[shard][1][first:stop]
        return rows[0] if self._kind == VECTORS else rows

    def __contains__(self, one: object) -> bool:
        return one in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def _read_description(self) -> None:
        # Takes over the kind and the details that the folder describes, if it does.
        self._kind = next((kind for kind in ARRAY if (self.path / kind).is_file()), None)
        if self._kind is None:
            return
        path = self.path / self._kind
        try:
            self._description = stored = json.loads(path.read_text(encoding="utf-8"))
            stored = dict(stored["made_by"] or {}) if self._kind == VECTORS else dict(stored)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{path} is damaged ({error}); delete {self.path} and make it from scratch") from error
        wanted = stored if self._wanted is None else self._wanted
        names = sorted(name for name in stored | wanted if stored.get(name) != wanted.get(name))
        if names:
            raise ValueError(
                f"{self.path} was made with other {', '.join(names)} than this run uses, and features of two models "
                "must not be mixed; name another folder, or delete this one to make it from scratch"
            )
        self.details = stored

    def _describe(self, kind: str, size: int) -> None:
        value = {"dimensions": size, "made_by": self.details} if kind == VECTORS else self.details
        self._description = json.loads(json.dumps(value))
        with replacing(self.path / kind) as unfinished:
            unfinished.write_text(json.dumps(value, indent=2), encoding="utf-8")
        self._kind = kind

    def _checksum(self, ids: list[str], tensors: Mapping[str, Tensor]) -> str:
        """Of all that a shard gives, with the description that it stands beside."""
        digest = hashlib.sha256(json.dumps([self._description, ids], sort_keys=True).encode())
        for name, tensor in sorted(tensors.items()):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.contiguous().numpy().data)
        return digest.hexdigest()

    def _read_index(self, shard: Path) -> None:
        array = ARRAY[cast("str", self._kind)]  # known wherever there is a shard
        try:
            opened = safe_open(shard, framework="pt")
            header = opened.metadata() or {}
            ids = json.loads(header["ids"])
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            if "checksum" not in header:
                raise ValueError("it has no checksum, as earlier versions wrote it")
            if header["checksum"] != self._checksum(ids, tensors):
                raise ValueError("its checksum is another: values, ids or the description beside it have changed")
            lengths = [1] * len(tensors[array]) if self._kind == VECTORS else tensors["lengths"].tolist()
            is_whole = len(ids) == len(lengths) and sum(lengths) == len(tensors[array]) and min(lengths) >= 0
            if not is_whole or not all(isinstance(one, str) for one in ids):
                raise ValueError(f"it has {len(ids)} ids and {len(tensors[array])} rows that do not belong together")
            rows = opened.get_slice(array)
        except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{shard} is damaged ({error}); delete it, or all of {self.path}, and make its features again"
            ) from error
        stops = np.cumsum(lengths).tolist()
        for one, stop, length in zip(ids, stops, lengths, strict=True):
            self._places.setdefault(one, (len(self._shards), stop - length, stop))
        self._shards.append((opened, rows))


class FeatureFile(Mapping[str, Tensor]):
    """Features by id in one HDF5, npz or safetensors file with an array `(length, size)` for each id.

    Args:
        path: ends in .npz, .safetensors, .h5 or .hdf5.

    Raises:
        ValueError: It cannot be read.
        ImportError: It is HDF5, and h5py is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.details: dict[str, Any] = {}
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
            raise ValueError(f"{path} cannot be read: {error}") from error
        self._known = set(self._ids)

    def __getitem__(self, one: str) -> Tensor:
        if isinstance(self._file, safe_open):
            features: Tensor = self._file.get_tensor(one)
            return features
        return torch.from_numpy(np.asarray(self._file[one][...], dtype=np.float32))

    def __contains__(self, one: object) -> bool:
        return one in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def length(self, one: str) -> int:
        """Rows of an id; HDF5 and safetensors give it without reading them."""
        if isinstance(self._file, safe_open):
            return int(self._file.get_slice(one).get_shape()[0])
        return int(self._file[one].shape[0])


Features = FeatureStore | FeatureFile


def open_hdf5(path: Path) -> Any:
    """An open HDF5 file.

    Raises:
        ImportError: h5py is missing.
    """
    try:
        import h5py
    except ImportError as error:
        raise ImportError(f"{path} is HDF5, which needs h5py: pip install 'subtle-video[hdf5]'") from error
    return h5py.File(path, "r")


def open_features(folder: Path | str, name: str) -> Features:
    """The features of a name in a folder: the store `folder/name`, or `folder/name.h5`, `.npz` or `.safetensors`.

    Args:
        folder: holds them.
        name: "video", "query-fine" or "query-coarse", for instance.

    Raises:
        FileNotFoundError: There are none.
    """
    place = Path(folder) / name
    if place.is_dir():
        found: Features = FeatureStore(place)
        if len(found):
            return found
    for suffix in (".h5", ".hdf5", ".npz", ".safetensors"):
        if (path := place.with_name(name + suffix)).is_file():
            return FeatureFile(path)
    raise FileNotFoundError(
        f"there are no features {place}, neither a folder that a FeatureStore wrote nor a file {name}.h5, {name}.npz "
        f"or {name}.safetensors"
    )


def checked_features(features: Tensor, name: str, size: int | None = None) -> Tensor:
    """Features as float32, if they can be used.

    Args:
        features: `(length, size)`.
        name: what an error calls them.
        size: that they must have; None: any.

    Raises:
        ValueError: They have another shape, no rows, or values that are not finite.
    """
    if features.ndim != 2 or not features.shape[0] or (size and features.shape[1] != size):
        wanted = f"(length, {size})" if size else "(length, size)"
        raise ValueError(f"the features of {name} have shape {tuple(features.shape)}; they must be {wanted}")
    features = features.float()
    if not features.isfinite().all():
        raise ValueError(f"the features of {name} hold values that are not finite; make them again")
    return features


def fit_clips(features: Tensor, max_clips: int, how: Literal["pool", "truncate"]) -> tuple[Tensor, float]:
    """At most `max_clips` rows, and how many rows each of them stands for.

    Args:
        features: `(length, size)`.
        max_clips: L.
        how: "pool" averages over L equal bins, whose edges may lie inside a row; "truncate" leaves out what follows
            row L.

    Returns:
        `(min(length, L), size)`, and `length / L` where rows were pooled, else 1.

    Example:
        >>> fit_clips(torch.tensor([[0.0], [3.0], [6.0]]), 2, "pool")
        (tensor([[1.],
                [5.]]), 1.5)
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
