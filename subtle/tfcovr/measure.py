"""mAP@K of ranked galleries: what validation and evaluation report."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, get_args

from hf_datasets.tfcovr.seen_groups import SeenGroup, seen_groups
from hf_models.tfcovr.queries import Queries
from subtle.run.data import load_split, load_splits
from subtle.run.metric_loading import load_metric
from subtle.run.shared_config import DataConfig, Protocol

CUTOFFS = (5, 10, 25, 50)


class ComposedRetrievalMeasure:
    """mAP@K of rankings by the project's metric, which is loaded once."""

    def __init__(self) -> None:
        self.metric = load_metric("map_at_k")
        self.signature = ""

    def __call__(self, ranked: list[list[str]], queries: Queries, protocol: Protocol = "standard") -> dict[str, Any]:
        """`map@K` in [0, 1] and the `signature` of the protocol."""
        references = [row["target_clip_ids"] for row in queries.rows]
        own = None if protocol == "tfcovr-official" else [row["query_clip_id"] for row in queries.rows]
        measured: dict[str, Any] = self.metric.compute(
            predictions=ranked, references=references, k=list(CUTOFFS), protocol=protocol, exclude=own
        )
        self.signature = measured["signature"]
        return measured

    def by_group(
        self, ranked: list[list[str]], queries: Queries, groups: Mapping[str, str], protocol: Protocol = "standard"
    ) -> dict[str, dict[str, float]]:
        """`map@K` and the number of `queries` of each group in `groups`, query id -> group, that has queries."""
        found = {}
        for group in get_args(SeenGroup):
            places = [place for place, row in enumerate(queries.rows) if groups.get(row["query_id"]) == group]
            if places:
                own = replace(queries, rows=[queries.rows[place] for place in places])
                measured = self([ranked[place] for place in places], own, protocol)
                values = {name: value for name, value in measured.items() if name.startswith("map@")}
                found[group] = {"queries": len(places), **values}
        return found


def held_out_groups(config: DataConfig, queries: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The group of each query by its id, see `seen_groups`; empty where every label, or none, has training clips."""
    loaded, rows = load_splits(config, clips=True), list(queries)
    columns = ["label", "description"]
    if "train" not in loaded or not {*columns} <= {*loaded["train"].column_names}:
        return {}
    trained_on = set(loaded["train"].unique("label"))
    if all(row[side] in trained_on for row in rows for side in ("query_label", "target_label")):
        return {}  # without reading the labels' texts, of which several may say the same
    clips = {split: part.select_columns(columns).to_polars() for split, part in loaded.items()}
    found = zip(rows, seen_groups(clips, rows), strict=True)
    groups = {row["query_id"]: str(group) for row, group in found if group}
    return groups if set(groups.values()) - {"seen_to_seen"} else {}


def gallery_ids(config: Any) -> list[str]:
    """The gallery of the protocol: unique clips, or the released script's first target of every row.

    Args:
        config: A `DataConfig` with `split`, `gallery` and `protocol`.
    """
    if config.protocol == "tfcovr-official":
        return [targets[0] for targets in load_split(config, config.split)["target_clip_ids"]]
    if config.gallery == "clips":
        return list(load_split(config, config.split, clips=True)["clip_id"])
    return sorted({clip for targets in load_split(config, config.split)["target_clip_ids"] for clip in targets})
