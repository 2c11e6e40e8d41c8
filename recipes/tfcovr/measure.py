"""mAP@K of ranked galleries: what validation and evaluation report."""

from typing import Any

import evaluate

import metrics
from harness.shared_config import Protocol
from hf_models.tfcovr.queries import Queries

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
        measured = self.metric.compute(
            predictions=ranked, references=references, k=list(CUTOFFS), protocol=protocol, exclude=own
        )
        self.signature = measured["signature"]
        return measured
