"""A store of embeddings: sharded safetensors in one folder, of one model, that survive a kill at any moment.

    store.json                 what made it: kind, size and the fingerprints of weights, processor and sampler
    shard-<uuid>.safetensors   `embeddings` (n, D) float32 and, in the header, the ids of the rows

A shard appears whole or not at all. A store knows what made it and refuses what anything else made.
"""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from harness.results import replacing, write_json

DESCRIPTION = "store.json"


class EmbeddingStore:
    """Embeddings by id in a folder.

    Args:
        folder: where the shards are; made when the first is written.
        made_by: name -> fingerprint of everything that the embeddings depend on. A store that something else made is
            refused. None takes the store as it is.
    """

    def __init__(self, folder: Path, made_by: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.made_by = made_by
        self._ids: dict[Path, list[str]] = {}
        self._check()

    def _check(self) -> None:
        path = self.folder / DESCRIPTION
        if not path.is_file():
            if self.made_by is None:
                raise SystemExit(f"{self.folder} holds no embeddings; make them with `python recipes/embed.py`")
            return
        stored = json.loads(path.read_text(encoding="utf-8"))["made_by"]
        if self.made_by is not None and stored != self.made_by:
            names = sorted(name for name in stored | self.made_by if stored.get(name) != self.made_by.get(name))
            raise SystemExit(
                f"{self.folder} was made with other {', '.join(names)} than this run uses, and embeddings of two models "
                "must not be mixed; name another folder, or delete this one to make it anew"
            )
        self.made_by = stored

    @property
    def exists(self) -> bool:
        """Whether anything was ever written here."""
        return (self.folder / DESCRIPTION).is_file()

    def append(self, ids: Sequence[str], embeddings: Sequence[Tensor] | Tensor) -> None:
        """Write one shard of rows `(D,)`, atomically."""
        rows = torch.stack(tuple(embeddings)).float()
        if not self.exists:
            write_json(self.folder / DESCRIPTION, {"dimensions": rows.shape[1], "made_by": self.made_by})
        path = self.folder / f"shard-{uuid.uuid4().hex}.safetensors"
        with replacing(path) as unfinished:
            save_file({"embeddings": rows}, unfinished, metadata={"ids": json.dumps(list(ids))})

    def ids(self) -> list[str]:
        """All ids, in the order of `load`."""
        return [one for path in self._shards() for one in self._ids_of(path)]

    def load(self) -> tuple[list[str], Tensor]:
        """The ids and the embeddings `(N, D)` float32; an id that two runs wrote at once counts once."""
        parts = []
        for path in self._shards():
            with _open(path) as shard:
                parts.append(shard.get_tensor("embeddings"))
        ids = self.ids()
        if not ids:
            raise SystemExit(f"{self.folder} holds no embeddings; make them with `python recipes/embed.py`")
        embeddings = torch.cat(parts)
        first = {one: row for row, one in reversed(list(enumerate(ids)))}
        if len(first) == len(ids):
            return ids, embeddings
        rows = sorted(first.values())
        return [ids[row] for row in rows], embeddings[rows]

    def _shards(self) -> list[Path]:
        return sorted(self.folder.glob("shard-*.safetensors"))

    def _ids_of(self, path: Path) -> list[str]:
        if path not in self._ids:
            with _open(path) as shard:
                self._ids[path] = json.loads(shard.metadata()["ids"])
        return self._ids[path]


def _open(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        raise SystemExit(f"{path} is damaged ({error}); delete it and run `python recipes/embed.py` again") from error
