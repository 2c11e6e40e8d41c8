"""The last token's states of layers of a frozen model, computed once for each clip and text and kept on disk."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from hf_models.encoders import LanguageModelEncoder
from hf_models.feature_store import FeatureStore
from subtle.embedding.loop import fill
from subtle.vlm.items import Item, clip_loader, with_frames

SHARD_SIZE = 256


class LayerFeatures:
    """States `(layers, D)` by item in a `FeatureStore`; a kill costs at most one shard of each process.

    Each item is read alone, so that its states do not depend on what it was read with.

    Args:
        folder: Of the store.
        details: What the states depend on.
        encoder: Whose states they are.
        config: Of the recipe.
        accelerator: Its.
    """

    def __init__(
        self,
        folder: Path,
        details: Mapping[str, Any],
        encoder: LanguageModelEncoder,
        config: Any,
        accelerator: Accelerator,
    ) -> None:
        self.folder, self.details, self.encoder = folder, details, encoder
        self.config, self.accelerator = config, accelerator
        self.store = FeatureStore(folder, details)

    def fill(self, items: Sequence[Item], clips: Mapping[str, Mapping[str, Any]]) -> None:
        """Compute what is missing; every process does its share."""
        accelerator = self.accelerator
        missing = [item for item in dict.fromkeys(items) if item_key(item) not in self.store]
        mine = missing[accelerator.process_index :: accelerator.num_processes]
        loader = clip_loader(clips, self.encoder.num_frames, self.config, accelerator.device)
        frames_of = with_frames([[item] for item in mine], loader)
        batches = (
            ([item_key(item)], self.states(item, frames)[None]) for item, frames in zip(mine, frames_of, strict=True)
        )
        hidden = not accelerator.is_local_main_process
        fill(self.store, batches, len(mine), "item", SHARD_SIZE, is_hidden=hidden)
        accelerator.wait_for_everyone()
        self.store = FeatureStore(self.folder, self.details)  # with what other processes wrote

    def states(self, item: Item, frames: Mapping[str, Tensor]) -> Tensor:
        """`(layers, D)` of one item."""
        with torch.no_grad(), self.accelerator.autocast():
            if item.clip_id is None:
                found = self.encoder.embed_texts([str(item.text)])
            else:
                found = self.encoder.embed([frames[item.clip_id]], [item.text])
        return found[0].float().cpu()

    def stacked(self, items: Sequence[Item]) -> Tensor:
        """`(N, layers, D)`."""
        return torch.stack([self.store[item_key(item)] for item in items])


def item_key(item: Item) -> str:
    """The id of an item in the store."""
    return json.dumps(item)
