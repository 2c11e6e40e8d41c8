"""Rank moments and videos for each query of a split, suppress overlaps, and write a TVR submission."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hf_models.atomic_files import replacing

from .corpus import MomentCorpus, encode_corpus
from .dataset import MomentSplit
from .modeling_moments import MomentRetrievalModel
from .spans import MomentRanking, SpanSearch
from .temporal_nms import temporal_nms

MAX_PREDICTIONS = 100  # of a query, in the TVR submission form


@dataclass(frozen=True)
class Rankings:
    """What a model predicts for each of the Q queries of a split.

    Attributes:
        vcmr: moments anywhere in the corpus.
        svmr: moments in the query's own video.
        videos: `(Q, n)` places in the corpus, best first.
    """

    vcmr: MomentRanking
    svmr: MomentRanking
    videos: np.ndarray

    def suppressed(self, threshold: float) -> "Rankings":
        """The same after temporal NMS of the moments, see `temporal_nms`."""
        vcmr, svmr = (
            temporal_nms(ranking, threshold=threshold, max_spans=MAX_PREDICTIONS) for ranking in (self.vcmr, self.svmr)
        )
        return Rankings(vcmr, svmr, self.videos)


@dataclass(frozen=True)
class EncodedSplit:
    """The videos and the queries of a split, encoded.

    Attributes:
        corpus: of the videos.
        queries: `(Q, M, D)`, one vector for each stream.
    """

    corpus: MomentCorpus
    queries: Tensor


def rank_moments(
    model: MomentRetrievalModel,
    split: MomentSplit,
    *,
    batch_size: int = 64,
    memory_megabytes: float = 96,
) -> Rankings:
    """Encode the corpus and the queries of a split and search.

    Args:
        model: in evaluation mode, on its device.
        split: what to search.
        batch_size: videos and queries encoded at a time.
        memory_megabytes: bound on what the search needs beside the encoded corpus and its result.

    Returns:
        The best moments and videos of each query, before temporal NMS.

    Raises:
        ValueError: A feature has another size than the others, or values that are not finite.
    """
    encoded = encode_split(model, split, batch_size=batch_size)
    return rank_encoded(model, split, encoded, memory_megabytes=memory_megabytes)


@torch.inference_mode()
def encode_split(model: MomentRetrievalModel, split: MomentSplit, *, batch_size: int = 64) -> EncodedSplit:
    """Encode the videos and the queries of a split, for several searches; see `rank_moments`."""
    num_videos, max_tokens = len(split.video_ids), model.config.max_query_tokens
    corpus = encode_corpus(
        model,
        (split.video_batch(places) for places in _batched(num_videos, batch_size)),
        num_videos=num_videos,
        max_clips=int(split.num_clips.max()),
    )
    queries = []
    for rows in _batched(len(split), batch_size):
        features, mask = split.query_batch(rows, max_tokens)
        queries.append(model.encode_query(features.to(model.device), mask.to(model.device)).float())
    return EncodedSplit(corpus, torch.cat(queries))


@torch.inference_mode()
def rank_encoded(
    model: MomentRetrievalModel,
    split: MomentSplit,
    encoded: EncodedSplit,
    *,
    memory_megabytes: float = 96,
    without: np.ndarray | None = None,
) -> Rankings:
    """Search what is encoded of a split.

    Args:
        model: that encoded it.
        split: what was encoded.
        encoded: from `encode_split`.
        memory_megabytes: see `rank_moments`.
        without: `(Q,)` bool, the queries whose own video is taken out of the corpus, so that their moment is nowhere.

    Returns:
        See `rank_moments`; moments in a query's own video, `svmr`, are found in any case.
    """
    search = SpanSearch(
        model,
        encoded.corpus,
        min_clips=split.preset.min_clips,
        max_clips=split.preset.max_clips,
        num_videos=MAX_PREDICTIONS,
        memory_megabytes=memory_megabytes,
    )
    targets = torch.from_numpy(split.targets)
    taken_out = None if without is None else torch.where(torch.from_numpy(without), targets, -1)
    vcmr, videos = search.rank(encoded.queries, without=taken_out)
    return Rankings(vcmr, search.localize(encoded.queries, targets), videos)


def _batched(number: int, batch_size: int) -> Iterator[np.ndarray]:
    for first in range(0, number, batch_size):
        yield np.arange(first, min(first + batch_size, number))


def write_submission(path: Path, rankings: Rankings, split: MomentSplit) -> None:
    """Write rankings in the form of the TVR benchmark, atomically; scores are logarithms.

    Args:
        path: of the JSON file; its folder is made.
        rankings: of the queries of `split`.
        split: what was searched.

    Raises:
        OSError: The file cannot be written.
    """
    videos = [[[video, 0, 0, -place] for place, video in enumerate(row)] for row in rankings.videos.tolist()]
    answers = {"VCMR": _spans_of(rankings.vcmr), "SVMR": _spans_of(rankings.svmr), "VR": videos}
    queries = split.rows.select("desc_id", "caption").rows()
    submission: dict[str, Any] = {"video2idx": {video: place for place, video in enumerate(split.video_ids)}}
    for task, predictions in answers.items():
        submission[task] = [
            {"desc_id": desc_id, "desc": caption, "predictions": found}
            for (desc_id, caption), found in zip(queries, predictions, strict=True)
        ]
    with replacing(path) as unfinished:
        unfinished.write_text(json.dumps(submission), encoding="utf-8")


def _spans_of(ranking: MomentRanking) -> list[list[list[float]]]:
    """[video, start, end, score] for each query, as many as there are."""
    fields = (getattr(ranking, name)[:, :MAX_PREDICTIONS].tolist() for name in vars(ranking))
    return [[list(span) for span in zip(*query, strict=True) if span[0] >= 0] for query in zip(*fields, strict=True)]
