"""From seconds to clips and back, and the search for moments: the best spans of the best videos.

A span's score is `exp(alpha * cosine) * P(start) * P(end)` (TVR, equation 9), here its logarithm, which keeps the order
and cannot overflow. Everything works on blocks of queries and of videos, so memory is bounded whatever the corpus.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hf_models.best_rows import stable_topk

from .configuration_moments import EndConvention
from .corpus import MomentCorpus
from .layers_moments import without_autocast
from .modeling_moments import MomentRetrievalModel

MAX_QUERY_BLOCK = 64


@dataclass(frozen=True)
class MomentRanking:
    """The best spans of each query, best first.

    Where there are fewer than K, the rest has video -1, seconds 0 and score -inf.

    Args:
        video_indices: `(Q, K)` int64, positions in the corpus.
        start_seconds: `(Q, K)` float64.
        end_seconds: `(Q, K)` float64.
        scores: `(Q, K)` float32, logarithms.
    """

    video_indices: np.ndarray
    start_seconds: np.ndarray
    end_seconds: np.ndarray
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.video_indices)

    def select(self, ranks: np.ndarray) -> "MomentRanking":
        """Keep the given ranks of each query.

        Args:
            ranks: `(Q, R)` int64; -1 for none.
        """
        absent = ranks < 0
        none = {"video_indices": -1, "start_seconds": 0.0, "end_seconds": 0.0, "scores": -np.inf}
        columns = {
            name: np.where(absent, value, np.take_along_axis(getattr(self, name), ranks, 1))
            for name, value in none.items()
        }
        return MomentRanking(**columns)


def clip_labels(
    start_seconds: np.ndarray | Sequence[float],
    end_seconds: np.ndarray | Sequence[float],
    *,
    clip_seconds: np.ndarray | Sequence[float] | float,
    num_clips: np.ndarray | Sequence[int] | int,
    end_convention: EndConvention = "inclusive",
) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last clip of moments, as `start_positions` and `end_positions` for training.

    A moment that leaves the video, as many in Charades-FIG do, ends with its last clip.

    Args:
        start_seconds: `(N,)`.
        end_seconds: `(N,)`.
        clip_seconds: `(N,)` or one for all, the true width of a clip.
        num_clips: `(N,)` or one for all.
        end_convention: "inclusive" gives the last clip that the moment touches; "exclusive" and "xml_legacy", as the
            released ReLoCLNet and XML, the one after it, or the last of the video; "hero_legacy", as the released HERO,
            the last clip that the moment touches, but at least the one after the first.

    Returns:
        Two int64 arrays, `(N,)`.

    Example:
        >>> clip_labels([2.0, 9.5], [5.0, 20.0], clip_seconds=1.0, num_clips=10)
        (array([2, 9]), array([4, 9]))
        >>> clip_labels([2.0], [5.0], clip_seconds=1.0, num_clips=10, end_convention="exclusive")[1]
        array([5])
    """
    width, last = np.asarray(clip_seconds, dtype=np.float64), np.asarray(num_clips) - 1
    # Rounded, because 0.3 / 0.1 must not be 2.999...
    first = np.floor(np.round(np.asarray(start_seconds, np.float64) / width, 6)).astype(np.int64)
    stop = np.ceil(np.round(np.asarray(end_seconds, np.float64) / width, 6)).astype(np.int64)
    first = np.clip(first, 0, last)
    end = stop - (end_convention in {"inclusive", "hero_legacy"})
    least = {"inclusive": first, "hero_legacy": first + 1}.get(end_convention, 0)
    return first, np.clip(end, least, last)


def end_offsets(min_clips: int, max_clips: int, end_convention: EndConvention) -> range:
    """How far the end of a span may lie behind its start, in clips.

    Under "inclusive" spans are `min_clips` to `max_clips` long. The released code of XML, ReLoCLNet and HERO allows
    `min_clips` to `max_clips - 1`, whatever its ends mean, so that the shortest span of XML and HERO is one clip longer
    than asked.

    Args:
        min_clips: Shortest moment.
        max_clips: Longest moment.
        end_convention: See `MomentRetrievalConfig`.

    Raises:
        ValueError: If no span is left.

    Example:
        >>> end_offsets(5, 30, "inclusive"), end_offsets(5, 30, "xml_legacy")
        (range(4, 30), range(5, 30))
    """
    offsets = range(min_clips - (end_convention == "inclusive"), max_clips)
    if min_clips < 1 or not offsets:
        raise ValueError(
            f"min_clips {min_clips} and max_clips {max_clips} leave no span; 1 <= min_clips <= max_clips, and "
            "less under the released conventions"
        )
    return offsets


class SpanSearch:
    """Find the moments of queries in a corpus.

    Args:
        model: That encoded both.
        corpus: From `encode_corpus`.
        min_clips: Shortest moment.
        max_clips: Longest moment.
        num_videos: How many of the best videos of a query are searched; at most the whole corpus.
        num_spans: How many spans are kept.
        memory_megabytes: Bound on what a search needs beside queries, corpus and result.

    Raises:
        ValueError: If the limits leave no span.
    """

    def __init__(
        self,
        model: MomentRetrievalModel,
        corpus: MomentCorpus,
        *,
        min_clips: int,
        max_clips: int,
        num_videos: int = 100,
        num_spans: int = 200,
        memory_megabytes: float = 96,
    ) -> None:
        self.model, self.corpus = model, corpus
        self.convention = model.config.end_convention
        self.offsets = end_offsets(min_clips, max_clips, self.convention)
        self.num_videos, self.num_spans = min(num_videos, len(corpus)), num_spans
        self.length = corpus.localization.shape[1]
        self.offsets = range(self.offsets.start, min(self.offsets.stop, self.length))
        if not self.offsets:
            raise ValueError(f"the longest video has {self.length} clips, too few for a moment of at least {min_clips}")
        predictors = model.span_head.predictors(self.length, model.execution_device)
        self.predictors = predictors.detach()
        self.buffer: Tensor | None = None
        floats = memory_megabytes * 2**20 / 4
        candidates = self.num_spans * len(self.offsets)
        per_query = 8 * self.num_videos * self.length + 6 * candidates + corpus.localization[0].numel()
        self.query_block = int(min(MAX_QUERY_BLOCK, max(1, floats / 2 // per_query)))
        self.video_block = int(max(1, floats / 2 // (self.query_block * self.length)))

    @torch.inference_mode()
    def rank(self, queries: Tensor, *, without: Tensor | None = None) -> tuple[MomentRanking, np.ndarray]:
        """Moments anywhere in the corpus (VCMR), and videos (VR).

        Args:
            queries: `(Q, M, D)`, from `encode_query`.
            without: `(Q,)` int64, a video for each query that is searched as if the corpus did not have it; -1: none.

        Returns:
            The best spans, and `(Q, num_videos)` int64, the best videos of each query.
        """
        ranking, videos = self._empty(len(queries)), np.empty((len(queries), self.num_videos), np.int64)
        for first in range(0, len(queries), self.query_block):
            rows = slice(first, first + self.query_block)
            block = queries[rows].float()
            with without_autocast(block):
                values, best = self._best_videos(block, None if without is None else without[rows].to(block.device))
                similarity = self._similarities(block, best)
                scores = self.model.config.score_scale * values
                self._write(ranking, rows, *self._best_spans(similarity, best, scores))
            videos[rows] = best.cpu().numpy()
        return ranking, videos

    def _best_videos(self, queries: Tensor, without: Tensor | None) -> tuple[Tensor, Tensor]:
        """Scores and places of the best videos, each `(q, num_videos)`, best first."""
        scores = self._video_scores(queries)
        if without is not None:
            places = torch.arange(scores.shape[1], device=scores.device)
            scores = scores.masked_fill(places == without[:, None], -torch.inf)
        return stable_topk(scores, self.num_videos)

    @torch.inference_mode()
    def localize(self, queries: Tensor, video_indices: Tensor) -> MomentRanking:
        """Moments in a given video for each query (SVMR).

        Args:
            queries: `(Q, M, D)`, from `encode_query`.
            video_indices: `(Q,)` int64, positions in the corpus.

        Returns:
            The best spans.
        """
        ranking = self._empty(len(queries))
        for first in range(0, len(queries), self.query_block):
            rows = slice(first, first + self.query_block)
            block, videos = queries[rows].float(), video_indices[rows]
            clips = self.corpus.localization[videos.cpu()].to(block.device)
            videos = videos.to(block.device)[:, None]
            scores = torch.zeros_like(videos, dtype=torch.float)
            with without_autocast(block):
                similarity = torch.einsum("qd,qld->ql", self._span_queries(block), clips)[:, None]
                self._write(ranking, rows, *self._best_spans(similarity, videos, scores))
        return ranking

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        """The matrix product, in memory that the next one uses again."""
        size = left.shape[0] * right.shape[1]
        if self.buffer is None or self.buffer.numel() < size or self.buffer.device != left.device:
            self.buffer = left.new_empty(size)
        return torch.mm(left, right, out=self.buffer[:size].view(left.shape[0], -1))

    def _span_queries(self, queries: Tensor) -> Tensor:
        return self.model.span_head.span_queries(queries).float().flatten(1)

    def _video_scores(self, queries: Tensor) -> Tensor:
        """Cosine with the best clip of every video, averaged over streams: `(q, V)`."""
        unit = F.normalize(queries, dim=-1)
        scores = queries.new_zeros(len(self.corpus), len(queries))
        for stream, videos in enumerate(self.corpus.retrieval):
            for first in range(0, len(videos), self.video_block):
                clips = videos[first : first + self.video_block].to(queries.device)
                # Clips by queries, not queries by clips: the maximum then runs over whole rows.
                cosines = self._product(clips.flatten(0, 1), unit[:, stream].T)
                scores[first : first + len(clips)] += cosines.view(len(clips), -1, len(queries)).amax(1)
        return scores.T / len(self.corpus.retrieval)

    def _similarities(self, queries: Tensor, videos: Tensor) -> Tensor:
        """Similarities of queries with the clips of their `videos (q, n)`: `(q, n, L)`."""
        span_queries = self._span_queries(queries)
        result = queries.new_empty(*videos.shape, self.length)
        for first in range(0, len(self.corpus), self.video_block):
            block = self.corpus.localization[first : first + self.video_block]
            rows, ranks = ((videos >= first) & (videos < first + len(block))).nonzero(as_tuple=True)
            if not len(rows):
                continue
            wanted, places = (videos[rows, ranks] - first).unique(return_inverse=True)
            if 2 * len(wanted) < len(block):
                block = block[wanted.cpu()]
            else:
                places = videos[rows, ranks] - first
            similarity = self._product(span_queries, block.to(queries.device).flatten(0, 1).T)
            similarity = similarity.view(-1, self.length).index_select(0, rows * len(block) + places)
            result.view(-1, self.length)[rows * videos.shape[1] + ranks] = similarity
        return result

    def _best_spans(
        self, similarity: Tensor, videos: Tensor, video_scores: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Video, first clip, the clip where it stops, and score of the best spans, each `(q, k)`.

        Args:
            similarity: `(q, n, L)`.
            videos: `(q, n)`, the places of the videos in the corpus.
            video_scores: `(q, n)`, logarithms.
        """
        logits = (similarity @ self.predictors).unflatten(-1, (2, self.length))
        num_clips = self.corpus.num_clips.to(videos.device)[videos]
        if int(num_clips.min()) < self.length:
            padding = torch.arange(self.length, device=videos.device) >= num_clips[..., None]
            logits.masked_fill_(padding[:, :, None], -torch.inf)
        start, end = logits.log_softmax(-1).unbind(-2)
        start = start + video_scores[..., None]
        # Behind each row as many -inf as a span may reach beyond it.
        end = F.pad(end, (0, self.offsets.stop - 1), value=-torch.inf)
        best_end = F.max_pool1d(end[..., self.offsets.start :], len(self.offsets), 1)
        # A span among the best K starts where one of the K best spans of different starts does.
        bounds = (start + best_end).flatten(1)
        starts = bounds.topk(min(self.num_spans, bounds.shape[1]), sorted=False).indices.sort().values
        rank, first = starts // self.length, starts % self.length
        reach = torch.arange(self.offsets.start, self.offsets.stop, device=starts.device)
        ends = (rank * end.shape[-1] + first)[..., None] + reach
        scores = start.flatten(1).gather(1, starts)[..., None] + end.flatten(1).gather(1, ends.flatten(1)).view_as(ends)
        top = scores.flatten(1).topk(min(self.num_spans, scores[0].numel()), sorted=False).indices
        top = top.sort().values  # equal scores come in order of video, start and end
        values, order = scores.flatten(1).gather(1, top).sort(descending=True, stable=True)
        row, offset = (top // len(reach)).gather(1, order), (top % len(reach)).gather(1, order)
        first = first.gather(1, row)
        stop = first + offset + self.offsets.start + (self.convention != "exclusive")
        chosen = videos.gather(1, rank.gather(1, row))
        return chosen, first, stop, values

    def _empty(self, num_queries: int) -> MomentRanking:
        """A ranking to write into; filled from the start, it does not scatter small arrays between the large ones."""
        shape = (num_queries, self.num_spans)
        return MomentRanking(np.full(shape, -1), np.zeros(shape), np.zeros(shape), np.full(shape, -np.inf, np.float32))

    def _write(
        self, ranking: MomentRanking, rows: slice, videos: Tensor, first: Tensor, stop: Tensor, scores: Tensor
    ) -> None:
        """Put the spans of some queries in their place, in seconds."""
        videos, first, stop, scores = (column.cpu() for column in (videos, first, stop, scores))
        width, possible = self.corpus.clip_seconds[videos], scores > -torch.inf
        columns = (
            torch.where(possible, videos, -1),
            torch.where(possible, first * width, 0.0),
            torch.where(possible, stop * width, 0.0),
            scores,
        )
        for name, column in zip(MomentRanking.__dataclass_fields__, columns, strict=True):
            getattr(ranking, name)[rows, : column.shape[1]] = column.numpy()
