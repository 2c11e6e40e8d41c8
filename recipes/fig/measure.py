"""Rank moments and videos for each query, suppress overlaps, measure the three tasks, and write a TVR submission."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import evaluate
import numpy as np
import torch
from torch import Tensor

import metrics
from fig.data import MomentSplit
from harness.results import write_text
from hf_models.moments.corpus import VideoBatch, encode_corpus
from hf_models.moments.modeling_moments import MomentRetrievalModel
from hf_models.moments.spans import MomentRanking, SpanSearch
from hf_models.moments.temporal_nms import temporal_nms

MAX_PREDICTIONS = 100  # of a query, in the TVR submission form
TASKS = ("vcmr", "svmr", "vr")


@dataclass(frozen=True)
class Rankings:
    """What a model answers to each query of a split.

    Attributes:
        vcmr: moments anywhere in the corpus.
        svmr: moments in the query's own video.
        videos: `(Q, n)` places in the corpus, best first.
    """

    vcmr: MomentRanking
    svmr: MomentRanking
    videos: np.ndarray

    def suppressed(self, threshold: float, *, legacy_truncate: bool = False) -> "Rankings":
        """After temporal NMS of the moments."""
        kept = (
            temporal_nms(one, threshold=threshold, max_spans=MAX_PREDICTIONS, legacy_truncate=legacy_truncate)
            for one in (self.vcmr, self.svmr)
        )
        return Rankings(*kept, self.videos)


@torch.inference_mode()
def rank(
    model: MomentRetrievalModel,
    split: MomentSplit,
    *,
    batch_size: int = 64,
    memory_megabytes: float = 96,
    corpus_dir: Path | None = None,
) -> Rankings:
    """Encode the corpus and the queries of a split and search.

    Args:
        model: in evaluation mode, on its device.
        split: what to search.
        batch_size: videos and queries encoded at a time.
        memory_megabytes: bound on what the search needs beside the encoded corpus and its result.
        corpus_dir: keep the encoded corpus there instead of in memory.
    """
    corpus = encode_corpus(
        model,
        video_batches(split, batch_size),
        num_videos=len(split.video_ids),
        max_clips=int(split.num_clips.max()),
        folder=corpus_dir,
    )
    search = SpanSearch(
        model,
        corpus,
        min_clips=split.preset.min_clips,
        max_clips=split.preset.max_clips,
        num_videos=MAX_PREDICTIONS,
        memory_megabytes=memory_megabytes,
    )
    queries = encode_queries(model, split, batch_size)
    vcmr, videos = search.rank(queries)
    return Rankings(vcmr, search.localize(queries, torch.from_numpy(split.targets)), videos)


def video_batches(split: MomentSplit, batch_size: int) -> Iterator[VideoBatch]:
    for first in range(0, len(split.video_ids), batch_size):
        yield split.video_batch(np.arange(first, min(first + batch_size, len(split.video_ids))))


def encode_queries(model: MomentRetrievalModel, split: MomentSplit, batch_size: int) -> Tensor:
    """`(Q, M, D)`, one vector for each stream."""
    encoded = []
    for first in range(0, len(split), batch_size):
        rows = np.arange(first, min(first + batch_size, len(split)))
        features, mask = split.query_batch(rows, model.config.max_query_tokens)
        encoded.append(model.encode_query(features.to(model.device), mask.to(model.device)).float())
    return torch.cat(encoded)


class Measure:
    """Recall of the three tasks by the project's metric, which is loaded once."""

    def __init__(self) -> None:
        evaluate.logging.set_verbosity_error()  # it warns that the installed metric is the one it uses
        self.metric = evaluate.load(metrics.space("vcmr_recall"))
        self.signature = ""

    def __call__(self, rankings: Rankings, split: MomentSplit) -> dict[str, float]:
        """Figures in [0, 1]: `vcmr_recall@1_iou@0.5`, ..., `svmr_recall@...`, `vr_recall@...`."""
        spans = split.rows.select("start_seconds", "end_seconds").to_numpy()
        references = {"video_id": split.targets, "spans": spans}
        videos = {
            "video_id": rankings.videos,
            **dict.fromkeys(("start", "end"), np.zeros(rankings.videos.shape)),
        }
        answers = {"vcmr": columns(rankings.vcmr), "svmr": columns(rankings.svmr), "vr": videos}
        figures: dict[str, float] = {}
        for task in TASKS:
            found = self.metric.compute(predictions=answers[task], references=references, task=task)
            self.signature = found.pop("signature", self.signature)
            figures |= found
        return figures


def columns(ranking: MomentRanking) -> dict[str, np.ndarray]:
    """A ranking as the metric reads it; what is absent names no video and so answers nothing."""
    return {
        "video_id": ranking.video_indices[:, :MAX_PREDICTIONS],
        "start": ranking.start_seconds[:, :MAX_PREDICTIONS],
        "end": ranking.end_seconds[:, :MAX_PREDICTIONS],
    }


def selection_score(figures: dict[str, float]) -> float:
    """What the best epoch is chosen by, as in the released code."""
    return figures["vcmr_recall@1_iou@0.5"] + figures["vcmr_recall@1_iou@0.7"]


def write_submission(path: Path, rankings: Rankings, split: MomentSplit) -> None:
    """The answers in the form of the TVR benchmark; scores are logarithms."""
    videos = [[[video, 0, 0, -place] for place, video in enumerate(row)] for row in rankings.videos.tolist()]
    answers = {"VCMR": spans_of(rankings.vcmr), "SVMR": spans_of(rankings.svmr), "VR": videos}
    queries = split.rows.select("desc_id", "caption").rows()
    submission: dict[str, Any] = {"video2idx": {video: place for place, video in enumerate(split.video_ids)}}
    for task, predictions in answers.items():
        submission[task] = [
            {"desc_id": desc_id, "desc": caption, "predictions": found}
            for (desc_id, caption), found in zip(queries, predictions, strict=True)
        ]
    write_text(path, json.dumps(submission))


def spans_of(ranking: MomentRanking) -> list[list[list[float]]]:
    """[video, start, end, score] for each query, as many as there are."""
    fields = (getattr(ranking, name)[:, :MAX_PREDICTIONS].tolist() for name in vars(ranking))
    return [[list(span) for span in zip(*query, strict=True) if span[0] >= 0] for query in zip(*fields, strict=True)]
