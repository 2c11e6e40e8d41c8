"""Measure the three tasks of moment retrieval by the project's metric."""

import numpy as np

from hf_models.moments.dataset import MomentSplit
from hf_models.moments.ranking import MAX_PREDICTIONS, Rankings
from hf_models.moments.spans import MomentRanking
from subtle.run.metric_loading import load_metric

RETRIEVAL_TASKS = ("vcmr", "svmr", "vr")


class MomentRetrievalMeasure:
    """Recall of the three tasks by the project's metric, which is loaded once.

    Attributes:
        signature: the metric's line about its protocol.
        per_query: metric -> the results of every query, of the last call.
    """

    def __init__(self) -> None:
        self.metric = load_metric("vcmr_recall")
        self.signature = ""
        self.per_query: dict[str, list[float]] = {}

    def __call__(self, rankings: Rankings, split: MomentSplit) -> dict[str, float]:
        """Metrics in [0, 1]: `vcmr_recall@1_iou@0.5`, ..., `svmr_recall@...`, `vr_recall@...`."""
        spans = split.rows.select("start_seconds", "end_seconds").to_numpy()
        references = {"video_id": split.targets, "spans": spans}
        videos = {
            "video_id": rankings.videos,
            **dict.fromkeys(("start", "end"), np.zeros(rankings.videos.shape)),
        }
        answers = {"vcmr": columns(rankings.vcmr), "svmr": columns(rankings.svmr), "vr": videos}
        measured: dict[str, float] = {}
        self.per_query = {}
        for task in RETRIEVAL_TASKS:
            found = self.metric.compute(predictions=answers[task], references=references, task=task, per_query=True)
            self.per_query |= found.pop("per_query")
            self.signature = found.pop("signature", self.signature)
            measured |= found
        return measured


def columns(ranking: MomentRanking) -> dict[str, np.ndarray]:
    """A ranking as the metric reads it; an absent rank names no video and so matches nothing."""
    return {
        "video_id": ranking.video_indices[:, :MAX_PREDICTIONS],
        "start": ranking.start_seconds[:, :MAX_PREDICTIONS],
        "end": ranking.end_seconds[:, :MAX_PREDICTIONS],
    }
