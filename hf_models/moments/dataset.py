"""Queries, moments and the videos they are in, with the features of both, and a count of what could not be used."""

from functools import cached_property
from typing import Any, Literal

import numpy as np
import polars as pl
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from hf_models.feature_store import Features, checked_features, fit_clips

from .configuration_moments import EndConvention, MomentRetrievalConfig
from .corpus import VideoBatch
from .presets import SpanPreset
from .spans import clip_labels

QUERY_FIELDS = ("desc_id", "video_id", "duration_seconds", "start_seconds", "end_seconds", "caption")


class MomentSplit:
    """The usable queries of a split and the corpus of its videos.

    Attributes:
        rows: the usable queries, `QUERY_FIELDS`, in the order given.
        video_ids: the corpus: all videos of the split that have features, sorted.
        targets: `(len(rows),)` int64, the place of each query's video in the corpus.
        num_clips: `(len(video_ids),)` int64, clips of each video that are read.
        clip_seconds: `(len(video_ids),)` float64, how long each of them lasts.
        coverage: how much there was, how much is used, and why the rest is not.

    Args:
        rows: one for each query, of `QUERY_FIELDS`: `desc_id` is its id, `caption` its text, and the moment lasts from
            `start_seconds` to `end_seconds` of the video `video_id` of `duration_seconds`.
        videos: by video id, one row for each clip.
        queries: by desc_id as text, one row for each token.
        preset: the longest video to read and, for a search, the spans to look for.
        long_videos: what becomes of clips beyond `preset.max_video_clips`: "pool" averages all clips over that many
            bins, "truncate" leaves out the rest.
        clip_seconds: how long one row of `videos` lasts; None: as their details say, or 1.

    Raises:
        ValueError: A column is missing, no query can be used, or the features have another rate than `clip_seconds`.
    """

    def __init__(
        self,
        rows: pl.DataFrame,
        videos: Features,
        queries: Features,
        preset: SpanPreset,
        *,
        long_videos: Literal["pool", "truncate"],
        clip_seconds: float | None = None,
    ) -> None:
        missing = sorted({*QUERY_FIELDS} - {*rows.columns})
        if missing:
            raise ValueError(f"the rows have no column {', '.join(missing)}; there must be {', '.join(QUERY_FIELDS)}")
        self.videos, self.queries, self.preset, self.long_videos = videos, queries, preset, long_videos
        self.clip_width = clip_seconds or videos.details.get("clip_seconds", 1.0)
        reasons = {
            "empty_captions": rows["caption"].str.strip_chars() == "",
            "queries_of_videos_without_features": ~_known(rows["video_id"], self.videos),
            "queries_without_features": ~_known(rows["desc_id"].cast(pl.String), self.queries),
        }
        usable = pl.Series([True]).new_from_index(0, len(rows))
        self.coverage: dict[str, Any] = {"queries": len(rows)}
        for reason, holds in reasons.items():
            self.coverage[reason] = int((usable & holds).sum())
            usable &= ~holds
        self.rows = rows.filter(usable)
        self.coverage["queries_used"] = len(self.rows)
        durations = dict(rows.select("video_id", "duration_seconds").unique("video_id").iter_rows())
        self.video_ids = sorted(video for video in durations if video in self.videos)
        self.coverage |= {"videos": len(durations), "videos_used": len(self.video_ids)}
        if self.rows.is_empty():
            raise ValueError(f"no query can be used with the features {videos.path}: {self.coverage}")
        places = {video: place for place, video in enumerate(self.video_ids)}
        self.targets = np.array([places[video] for video in self.rows["video_id"]])
        self._measure_videos(durations)

    def _measure_videos(self, durations: dict[str, float]) -> None:
        # Clips of each video are counted and compared with durations, to see that both are of the same videos.
        lengths = np.array([self.videos.length(video) for video in self.video_ids])
        seconds = np.array([durations[video] for video in self.video_ids])
        covered = lengths * self.clip_width
        if not 0.67 < np.median(covered / seconds) < 1.5:
            raise ValueError(
                f"the features {self.videos.path} have {np.median(lengths / seconds):.2f} rows for each second of "
                f"video, not {1 / self.clip_width:.2f}: clip_seconds says how long a row lasts"
            )
        differs = np.abs(covered - seconds) > np.maximum(2 * self.clip_width, 0.1 * seconds)
        limit = self.preset.max_video_clips
        self.num_clips = np.minimum(lengths, limit)
        pooled = lengths / self.num_clips if self.long_videos == "pool" else np.ones(len(lengths))
        self.clip_seconds = self.clip_width * pooled
        starts, ends, duration = (
            self.rows[name].to_numpy() for name in ("start_seconds", "end_seconds", "duration_seconds")
        )
        self.is_outside = starts >= (self.num_clips * self.clip_seconds)[self.targets]
        self.coverage |= {
            "videos_of_another_length_than_their_features": int(differs.sum()),
            "such_videos": np.array(self.video_ids)[differs][:5].tolist(),
            "videos_pooled_or_cut": int((lengths > limit).sum()),
            "moments_that_end_after_their_video": int((ends > duration).sum()),
            "moments_beyond_what_is_read": int(self.is_outside.sum()),
        }

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def desc_ids(self) -> list[int]:
        """Of the usable queries."""
        return self.rows["desc_id"].to_list()

    @cached_property
    def feature_sizes(self) -> tuple[int, int]:
        """Sizes of a clip's and of a token's vector."""
        video, query = self.videos[self.video_ids[0]], self.queries[str(self.desc_ids[0])]
        return checked_features(video, self.video_ids[0]).shape[1], checked_features(query, "a query").shape[1]

    def count_long_queries(self, max_tokens: int) -> None:
        """Note in the coverage how many queries are cut to `max_tokens`."""
        lengths = [self.queries.length(str(desc_id)) for desc_id in self.desc_ids]
        self.coverage["queries_cut"] = int((np.array(lengths) > max_tokens).sum())

    def video_batch(self, places: np.ndarray) -> VideoBatch:
        """The features of videos of the corpus, padded to the longest of them.

        Args:
            places: `(V,)` integers, positions in `video_ids`.
        """
        size, rows = self.feature_sizes[0], []
        for place in places.tolist():
            video = self.video_ids[place]
            features = F.normalize(checked_features(self.videos[video], f"video {video}", size), dim=-1)
            rows.append(fit_clips(features, self.preset.max_video_clips, self.long_videos)[0])
        features, mask = _pad(rows)
        ids, seconds = (
            [self.video_ids[place] for place in places],
            torch.from_numpy(self.clip_seconds[places]),
        )
        return VideoBatch(ids, features, mask, seconds)

    def query_batch(self, rows: np.ndarray, max_tokens: int) -> tuple[Tensor, Tensor]:
        """The features of queries, cut to `max_tokens` and padded.

        Args:
            rows: `(Q,)` integers, positions in `rows`.
            max_tokens: the longest that is left.

        Returns:
            `(Q, M, query_feature_size)` float32, and `(Q, M)`, True for tokens.
        """
        size = self.feature_sizes[1]
        features = [self.queries[str(self.desc_ids[row])] for row in rows.tolist()]
        return _pad([F.normalize(checked_features(query, "a query", size), dim=-1)[:max_tokens] for query in features])

    def labels(self, rows: np.ndarray, end_convention: EndConvention) -> tuple[Tensor, Tensor]:
        """First and last clip of moments, each `(Q,)` int64, see `spans.clip_labels`."""
        moments, targets = self.rows[rows], self.targets[rows]
        labels = clip_labels(
            moments["start_seconds"].to_numpy(),
            moments["end_seconds"].to_numpy(),
            clip_seconds=self.clip_seconds[targets],
            num_clips=self.num_clips[targets],
            end_convention=end_convention,
        )
        return torch.from_numpy(labels[0]), torch.from_numpy(labels[1])

    def training_batch(
        self, rows: np.ndarray, config: MomentRetrievalConfig, *, same_video_negatives: bool
    ) -> dict[str, Tensor]:
        """What the `forward` of a model reads to train on some of the queries.

        Args:
            rows: `(Q,)` integers, positions in `rows`.
            config: of the model.
            same_video_negatives: let two captions of one video repel each other; otherwise each video comes once.
        """
        places, targets, identity = self.targets[rows], np.arange(len(rows)), {}
        if not same_video_negatives:
            places, targets = np.unique(places, return_inverse=True)
            identity["video_indices"] = torch.from_numpy(places)  # the same on all processes
        query_features, query_mask = self.query_batch(rows, config.max_query_tokens)
        videos = self.video_batch(places)
        start_positions, end_positions = self.labels(rows, config.end_convention)
        return {
            "query_features": query_features,
            "query_mask": query_mask,
            "video_features": videos.video_features,
            "video_mask": videos.video_mask,
            "start_positions": start_positions,
            "end_positions": end_positions,
            "target_indices": torch.from_numpy(targets),
            **identity,
        }


def _known(ids: pl.Series, features: Features) -> pl.Series:
    """Which ids have features."""
    return pl.Series([item_id in features for item_id in ids], dtype=pl.Boolean)


def _pad(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Sequences `(length, size)` as one `(n, longest, size)`, and their mask."""
    lengths = torch.tensor([len(row) for row in rows])
    return pad_sequence(rows, batch_first=True), torch.arange(int(lengths.max())) < lengths[:, None]
