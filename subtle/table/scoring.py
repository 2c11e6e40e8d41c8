"""Rank and measure composed queries by embeddings, as `evaluate.py tfcovr` does."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hf_datasets.records import ClipRow
from hf_models.encoders.protocol import unit_rows
from hf_models.tfcovr.queries import Queries, index_of, place_queries
from hf_models.tfcovr.ranking import rank_embeds
from subtle.run.data import load_split, load_splits
from subtle.table.embedding import Embedded, Embedder
from subtle.table.queries import WayName, compose_queries
from subtle.table.rows import data_of
from subtle.table.table import Measured
from subtle.tfcovr.measure import ComposedRetrievalMeasure, gallery_ids


@dataclass(frozen=True)
class EvaluatedSplit:
    """The queries and the gallery of a split, the same for every row.

    Attributes:
        rows: all queries.
        gallery: ids of what is ranked.
        clips: of the gallery and of the queries, by id.
        config: that named them, with `split`, `gallery` and `protocol`.
    """

    rows: list[dict[str, Any]]
    gallery: list[str]
    clips: dict[str, ClipRow]
    config: Any

    @classmethod
    def load(cls, config: Any) -> "EvaluatedSplit":
        """Read a split; no video is decoded."""
        rows, gallery = list(load_split(config, config.split)), gallery_ids(config)
        every = {clip["clip_id"]: clip for split in load_splits(config, clips=True).values() for clip in split}
        wanted = dict.fromkeys([*gallery, *(row["query_clip_id"] for row in rows)])
        return cls(rows, gallery, {clip_id: every[clip_id] for clip_id in wanted if clip_id in every}, config)

    def drawn(self, number: int | None, seed: int) -> "EvaluatedSplit":
        """With some queries by a seed, in their order; a larger number has those of a smaller one, too; None: all."""
        order = list(range(len(self.rows)))
        random.Random(seed).shuffle(order)
        return replace(self, rows=[self.rows[place] for place in sorted(order[:number])])

    def data(self, signature: str) -> dict[str, str]:
        """What a row is measured on; see `rows.data_of`."""
        return data_of(self.config, self.config.split, self.rows, self.gallery, signature)


@dataclass(frozen=True)
class Ranked:
    """The rankings of queries, and how many clips, texts and queries were encoded for them now.

    Attributes:
        ids: for each of `queries.rows` the gallery's ids, best first.
        queries: those that could be ranked, and the gallery.
        missing: why other queries could not be made, with counts.
        num_encoded: clips, texts and queries that were not in the store.
    """

    ids: list[list[str]]
    queries: Queries
    missing: dict[str, int]
    num_encoded: int


def rank_row(
    benchmark: EvaluatedSplit,
    embedder: Embedder,
    way: WayName,
    frames: tuple[int | None, int | None],
    extra_texts: Mapping[str, str],
    k: int = 50,
) -> Ranked:
    """Embed, and rank the first `k` clips of the gallery.

    Args:
        benchmark: what to measure on.
        embedder: of the model.
        way: see `compose_queries`, as for `extra_texts`.
        frames: of a query's clip and of a target, see `Embedder`.
        extra_texts: by query id.
        k: how many clips.

    Raises:
        ValueError: the encoder has no such way, or nothing can be ranked.
    """
    clips = list(benchmark.clips.values())
    made = compose_queries(way, embedder, benchmark.rows, clips, frames[0], extra_texts)
    targets = embedder.clips(clips, frames[1])
    queries = place(benchmark, made, targets)
    composed = made.rows(row["query_id"] for row in queries.rows)
    protocol = benchmark.config.protocol
    ids, _ = rank_embeds(composed, unit_rows(targets.rows(queries.gallery_ids)), queries, protocol=protocol, k=k)
    return Ranked(ids, queries, made.missing, made.num_encoded + targets.num_encoded)


def measure_ranked(benchmark: EvaluatedSplit, ranked: Ranked, measure: ComposedRetrievalMeasure) -> Measured:
    """The metrics of rankings by the protocol of the benchmark, and their coverage."""
    found = measure(ranked.ids, ranked.queries, benchmark.config.protocol)
    coverage = ranked.queries.coverage | {"queries_without": ranked.missing}
    return Measured(
        {name: value for name, value in found.items() if name.startswith("map@")},
        benchmark.data(found["signature"]),
        {"queries": f"{coverage['queries_ranked']:,} of {coverage['queries']:,}"},
        {"coverage": coverage},
    )


def place(benchmark: EvaluatedSplit, made: Embedded, targets: Embedded) -> Queries:
    """The queries that could be made, among the clips that could be embedded; the others are in the coverage."""
    made_ids = set(made.ids)
    rows = [row for row in benchmark.rows if row["query_id"] in made_ids]
    texts = dict.fromkeys((row["modification_text"] for row in rows), 0)
    placed = place_queries(rows, benchmark.gallery, index_of(targets.ids), texts)
    return replace(placed, coverage=placed.coverage | {"queries": len(benchmark.rows)})
