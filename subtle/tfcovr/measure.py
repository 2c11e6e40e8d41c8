"""mAP@K of ranked galleries: what validation and evaluation report."""

from typing import Any

import evaluate

import metrics
from hf_models.tfcovr.queries import Queries
from subtle.run.data import load_split
from subtle.run.shared_config import Protocol

CUTOFFS = (5, 10, 25, 50)


class ComposedRetrievalMeasure:
    """mAP@K of rankings by the project's metric, which is loaded once."""

    def __init__(self) -> None:
        evaluate.logging.set_verbosity_error()  # it warns that the installed metric is the one it uses
        self.metric = evaluate.load(metrics.space("map_at_k"))
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
