"""Where training batches and validation queries come from: clips with modification texts, or texts alone."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import torch
from torch import Tensor

from hf_datasets.caption_negatives import THEN, CaptionNegative
from hf_datasets.comp.disruptions import choose_order
from hf_datasets.tfcovr.free_text import own_labels
from hf_datasets.tfcovr.label_negatives import kind_of_negative, write_negatives
from hf_datasets.tfcovr.labels import Label, folded_text
from hf_models.tfcovr.queries import Queries, index_of, place_queries
from subtle.run.data import load_split
from subtle.run.training import epoch_seed
from subtle.tfcovr.batches import embed_config, unreadable_clips
from subtle.vlm.items import Item, TrainingBatch

HELD_OUT_SHARE = 0.1
EVENTS = 3
"""Of a caption that is there for the order of its events."""
IN_REVERSE = "show the same actions in the reverse order"


class TextSource:
    """Texts alone: a caption and how it changes -> the changed caption; no video is opened.

    A tenth of the changes is held out, to validate on. Captions are the descriptions of the labels.

    Args:
        config: Of the recipe.
    """

    clips: Mapping[str, Any] = {}

    def __init__(self, config: Any) -> None:
        self.config = config
        self.labels = labels_of(config)
        pairs = load_split(config, "train").to_polars()
        columns = ["query_label", "target_label", "modification_text"]
        rows = pairs.select(columns).unique(maintain_order=True).filter(known_labels(self.labels)).rows()
        rows = sorted(rows)
        random.Random(config.seed).shuffle(rows)
        held_out = max(round(HELD_OUT_SHARE * len(rows)), 1) if config.validates_on == "texts" else 0
        self.held_out = rows[:held_out]
        made = [self.triplet(*row) for row in rows[held_out:]]
        if "order" in config.negatives:
            made += self.sequences()
        self.triplets = made if config.max_triplets is None else made[: config.max_triplets]
        self.coverage = {"triplets": len(made), "usable": len(self.triplets)}
        texts = dict.fromkeys(folded_text(str(item.text)) for item in self.all_items())
        self.places = index_of(list(texts))  # the same on every process

    def __len__(self) -> int:
        return len(self.triplets)

    def triplet(self, source: str, target: str, modification: str) -> tuple[str, str, list[CaptionNegative]]:
        """The query, its answer, and what is near the answer."""
        first, second = self.labels[source], self.labels[target]
        wanted = set(self.config.negatives)
        found = [one for one in write_negatives(first, second, self.all_labels) if one.kind in wanted]
        return query_text(first.description, modification), second.description, found

    @property
    def all_labels(self) -> list[Label]:
        """All labels in order."""
        return list(self.labels.values())

    def sequences(self) -> list[tuple[str, str, list[CaptionNegative]]]:
        """One for each label: it and the next ones one after the other, to be told in the reverse order."""
        generator, texts = random.Random(self.config.seed), [label.description for label in self.all_labels]
        made = []
        for first in range(len(texts) if len(texts) >= EVENTS else 0):
            events = [texts[(first + step) % len(texts)] for step in range(EVENTS)]
            target = events[::-1]
            orders = {choose_order(EVENTS, generator) for _ in range(4)}
            negatives = [CaptionNegative("order", THEN.join(target[place] for place in order)) for order in orders]
            made.append((query_text(THEN.join(events), IN_REVERSE), THEN.join(target), sorted(negatives)))
        return made

    def batch(self, rows: Tensor, epoch: int) -> TrainingBatch:
        """The triplets at `rows`, with hard negatives drawn for the epoch."""
        queries, targets, negatives = [], [], []
        for row in rows.tolist():
            query, target, found = self.triplets[row]
            queries.append(Item(text=query))
            targets.append(Item(text=target))
            negatives += [Item(text=one.text) for one in drawn(found, row, epoch, self.config)]
        return TrainingBatch(queries, targets, negatives, self.meanings(targets), self.meanings(negatives))

    def meanings(self, items: Sequence[Item]) -> Tensor:
        """A number for what each text says, `(n,)`."""
        return torch.tensor([self.places[folded_text(str(item.text))] for item in items], dtype=torch.int64)

    def all_items(self) -> list[Item]:
        """Everything that training reads."""
        texts = [text for query, target, found in self.triplets for text in (query, target, *(n.text for n in found))]
        return [Item(text=text) for text in dict.fromkeys(texts)]

    def validation(self) -> tuple[Queries, list[Item], list[Item]]:
        """The changes that were held out, against all captions; see `validation_on_clips`."""
        captions = {label.description: label_id for label_id, label in reversed(self.labels.items())}
        of_reading: dict[str, list[str]] = {}
        for text, label_id in captions.items():
            of_reading.setdefault(folded_text(text), []).append(label_id)
        rows: list[dict[str, Any]] = [
            {
                "query_clip_id": f"query {number}",
                "modification_text": query_text(self.labels[source].description, modification),
                "target_clip_ids": of_reading[folded_text(self.labels[target].description)],
            }
            for number, (source, target, modification) in enumerate(self.held_out)
        ][: self.config.validation_queries]
        gallery = list(captions.values())
        texts = [row["modification_text"] for row in rows]
        places = index_of([*gallery, *(row["query_clip_id"] for row in rows)])
        queries = place_queries(rows, gallery, places, index_of(texts))
        return queries, [Item(text=text) for text in texts], [Item(text=text) for text in captions]


class ClipSource:
    """Clips: a query clip and a modification text -> a target clip.

    Hard negatives are clips of labels that differ from the target's in count, direction or composition.

    Args:
        config: Of the recipe.
    """

    def __init__(self, config: Any) -> None:
        self.config = config
        self.labels = labels_of(config)
        self.clips, self.failures = readable_clips(config, "train")
        self.of_label: dict[str, list[str]] = {}
        for clip_id, clip in self.clips.items():
            self.of_label.setdefault(clip["label"], []).append(clip_id)
        self.places = {label_id: place for place, label_id in enumerate(sorted(self.labels))}
        meanings: dict[str, str] = {}
        self.meaning = {
            label_id: meanings.setdefault(folded_text(label.description), label_id)
            for label_id, label in self.labels.items()
        }
        rows = load_split(config, "train").to_polars().explode("target_clip_ids")
        known = pl.col("query_clip_id").is_in(list(self.clips)) & pl.col("target_clip_ids").is_in(list(self.clips))
        usable = rows.filter(known & known_labels(self.labels))
        if usable.is_empty():
            raise SystemExit(
                f"of {len(rows):,} triplets none has both clips among the videos that can be read; check --video_dir"
            )
        self.coverage = {"triplets": len(rows), "usable": len(usable)}
        if config.max_triplets is not None and config.max_triplets < len(usable):
            usable = usable.sample(config.max_triplets, seed=config.seed)
        columns = ["query_clip_id", "modification_text", "target_clip_ids", "query_label", "target_label"]
        self.triplets = usable.select(columns).rows()
        self.near: dict[tuple[str, str], list[str]] = {}

    def __len__(self) -> int:
        return len(self.triplets)

    def batch(self, rows: Tensor, epoch: int) -> TrainingBatch:
        """The triplets at `rows`, with hard negatives drawn for the epoch."""
        chosen = [self.triplets[row] for row in rows.tolist()]
        negatives = [
            clip_id
            for row, (*_, source, target) in zip(rows.tolist(), chosen, strict=True)
            for clip_id in drawn(self.near_clips(source, target), row, epoch, self.config)
        ]
        return TrainingBatch(
            [Item(query, text) for query, text, *_ in chosen],
            [Item(target) for _, _, target, *_ in chosen],
            [Item(clip_id) for clip_id in negatives],
            torch.tensor([self.place(target) for *_, target in chosen]),
            torch.tensor([self.place(self.clips[clip_id]["label"]) for clip_id in negatives], dtype=torch.int64),
        )

    def place(self, label_id: str) -> int:
        """A number for each meaning of a label."""
        return self.places[self.meaning[label_id]]

    def near_clips(self, source: str, target: str) -> list[str]:
        """Clips of the labels that are hard negatives for a query from one label to the other."""
        if (source, target) not in self.near:
            first, second = self.labels[source], self.labels[target]
            self.near[source, target] = [
                clip_id
                for label_id, clip_ids in self.of_label.items()
                if kind_of_negative(first, second, self.labels[label_id]) in self.config.negatives
                for clip_id in clip_ids
            ]
        return self.near[source, target]

    def all_items(self) -> list[Item]:
        """Everything that training reads."""
        queries = dict.fromkeys(Item(query, text) for query, text, *_ in self.triplets)
        return [*queries, *(Item(clip_id) for clip_id in self.clips)]


def validation_on_clips(config: Any) -> tuple[Queries, list[Item], list[Item], dict[str, Any]]:
    """The queries of the validation split against its clips.

    Returns:
        The queries, an item for each, an item for each clip of the gallery, and the clips by id.
    """
    clips, _ = readable_clips(config, "validation")
    rows = load_split(config, "validation").to_list()[: config.validation_queries]
    gallery = list(clips)
    texts = index_of(list(dict.fromkeys(row["modification_text"] for row in rows)))
    queries = place_queries(rows, gallery, index_of(gallery), texts)
    items = [Item(row["query_clip_id"], row["modification_text"]) for row in queries.rows]
    return queries, items, [Item(clip_id) for clip_id in queries.gallery_ids], clips


def readable_clips(config: Any, split: str) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The clips of a split by id, and why others cannot be read; found before training rather than during it."""
    rows = load_split(config, split, clips=True).to_list()
    failures = unreadable_clips(rows, embed_config(config, ""))
    return {row["clip_id"]: row for row in rows if row["clip_id"] not in failures}, failures


def labels_of(config: Any) -> dict[str, Label]:
    """The labels of the training clips by id, with attributes where TF-CoVR's grammar generates all of them."""
    table = load_split(config, "train", clips=True).to_polars().select("label", "description").unique("label")
    texts = {str(label): str(text) for label, text in table.sort("label").rows()}
    return {label.label_id: label for label in own_labels(texts)}


def known_labels(labels: Mapping[str, Label]) -> pl.Expr:
    """Whether both labels of a row are among those of the clips."""
    return pl.col("query_label").is_in(list(labels)) & pl.col("target_label").is_in(list(labels))


def drawn(found: Sequence[Any], row: int, epoch: int, config: Any) -> list[Any]:
    """Some of the hard negatives of a triplet, the same after a resume and for any number of processes."""
    generator = random.Random(f"{epoch_seed(config.seed, epoch)} {row}")
    return generator.sample(list(found), min(config.hard_negatives, len(found)))


def query_text(caption: str, modification: str) -> str:
    """A query without a clip: the caption stands where the frames would.

    >>> query_text("(Vault) tsukahara tucked", "show with 1 turn")
    '(Vault) tsukahara tucked. show with 1 turn'
    """
    return f"{caption.rstrip('.')}. {modification}"
