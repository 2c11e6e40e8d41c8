"""Queries, moments and the videos they are in, with the features of both, and a count of what could not be used."""

from functools import cached_property
from typing import Any, Literal

import numpy as np
import polars as pl
import torch
from datasets import load_dataset
from moment_features import Features, checked, fit_clips, open_features
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

import hf_datasets  # noqa: F401 - registers the data sets' names
from harness.shared_config import MINIATURE_CLIP_SECONDS, Granularity, MomentDataConfig
from hf_models.moments.configuration_moments import EndConvention, MomentRetrievalConfig
from hf_models.moments.corpus import VideoBatch
from hf_models.moments.spans import PRESETS, SpanPreset, clip_labels

COLUMNS = ("desc_id", "video_id", "duration_seconds", "start_seconds", "end_seconds")


# The miniature's moments last 1.1 to 1.9 seconds, its videos one and a half minutes. In clips of a second, three moments
# of four could not be marked to an IoU of 0.7.
MINIATURE = SpanPreset(
    min_clips=2, max_clips=5, max_video_clips=192, nms_threshold=0.6, clip_seconds=MINIATURE_CLIP_SECONDS
)


def span_preset(config: MomentDataConfig) -> SpanPreset:
    """The preset of the configuration, with what the configuration says otherwise."""
    known = {"miniature": MINIATURE, **PRESETS}
    name = config.preset or ("miniature" if config.dataset_config == "mini" else config.dataset)
    if name not in known:
        raise SystemExit(f"there is no preset {name!r}; --preset names one of {', '.join(known)}")
    fields = ("min_clips", "max_clips", "max_video_clips", "nms_threshold")
    chosen = {field: getattr(config, field) for field in fields if getattr(config, field) is not None}
    return SpanPreset(**{**vars(known[name]), **chosen})


class MomentSplit:
    """The usable queries of a split and the corpus of its videos.

    Attributes:
        rows: the usable queries, `COLUMNS` and `caption`, in the order of the data set.
        video_ids: the corpus: all videos of the split that have features, sorted.
        targets: `(len(rows),)` int64, the place of each query's video in the corpus.
        coverage: how much there was, how much is used, and why the rest is not.

    Args:
        config: what to read.
        split: "train", "validation", "test" or "val_1".
        granularity: which caption is the query.
        long_videos: what becomes of clips beyond `max_video_clips`.
    """

    def __init__(
        self,
        config: MomentDataConfig,
        split: str,
        *,
        granularity: Granularity,
        long_videos: Literal["pool", "truncate"],
    ) -> None:
        self.config, self.preset, self.long_videos = config, span_preset(config), long_videos
        self.videos = open_features(config.features, "video")
        self.queries = open_features(config.features, f"query-{granularity}")
        self.clip_width = config.clip_seconds or self.videos.details.get("clip_seconds", 1.0)
        rows = read_rows(config, split, granularity)
        reasons = {
            "empty_captions": rows["caption"].str.strip_chars() == "",
            "queries_of_videos_without_features": ~known(rows["video_id"], self.videos),
            "queries_without_features": ~known(rows["desc_id"].cast(pl.String), self.queries),
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
            raise SystemExit(f"no query of the split {split!r} can be used: {self.coverage}")
        places = {video: place for place, video in enumerate(self.video_ids)}
        self.targets = np.array([places[video] for video in self.rows["video_id"]])
        self._measure_videos(durations)

    def _measure_videos(self, durations: dict[str, float]) -> None:
        """Clips of each video, their width, and whether features and durations speak of the same videos."""
        lengths = np.array([self.videos.length(video) for video in self.video_ids])
        seconds = np.array([durations[video] for video in self.video_ids])
        covered = lengths * self.clip_width
        if not 0.67 < np.median(covered / seconds) < 1.5:
            raise SystemExit(
                f"the features of {self.config.features} have {np.median(lengths / seconds):.2f} rows for each second of video, "
                f"not {1 / self.clip_width:.2f}: --clip_seconds says how long a row lasts"
            )
        differs = np.abs(covered - seconds) > np.maximum(2 * self.clip_width, 0.1 * seconds)
        limit = self.preset.max_video_clips
        self.num_clips = np.minimum(lengths, limit)
        pooled = lengths / self.num_clips if self.long_videos == "pool" else np.ones(len(lengths))
        self.clip_seconds = self.clip_width * pooled
        starts, ends, duration = (self.rows[name].to_numpy() for name in (*COLUMNS[3:], COLUMNS[2]))
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
        return checked(video, self.video_ids[0]).shape[1], checked(query, "a query").shape[1]

    def count_long_queries(self, max_tokens: int) -> None:
        """Note in the coverage how many queries are cut to `max_tokens`."""
        lengths = [self.queries.length(str(one)) for one in self.desc_ids]
        self.coverage["queries_cut"] = int((np.array(lengths) > max_tokens).sum())

    def video_batch(self, places: np.ndarray) -> VideoBatch:
        """The features of videos of the corpus, padded to the longest of them."""
        size, rows = self.feature_sizes[0], []
        for place in places.tolist():
            video = self.video_ids[place]
            features = self._prepare(checked(self.videos[video], f"video {video}", size))
            rows.append(fit_clips(features, self.preset.max_video_clips, self.long_videos)[0])
        features, mask = pad(rows)
        ids, seconds = (
            [self.video_ids[place] for place in places],
            torch.from_numpy(self.clip_seconds[places]),
        )
        return VideoBatch(ids, features, mask, seconds)

    def query_batch(self, rows: np.ndarray, max_tokens: int) -> tuple[Tensor, Tensor]:
        """The features of queries, padded, and their mask."""
        size = self.feature_sizes[1]
        features = [self.queries[str(self.desc_ids[row])] for row in rows.tolist()]
        return pad([self._prepare(checked(one, "a query", size))[:max_tokens] for one in features])

    def labels(self, rows: np.ndarray, end_convention: EndConvention) -> tuple[Tensor, Tensor]:
        """First and last clip of the moments."""
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
        """What `forward` reads to train on some of the queries."""
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

    def _prepare(self, features: Tensor) -> Tensor:
        return F.normalize(features, dim=-1) if self.config.normalize_features else features


def read_rows(config: MomentDataConfig, split: str, granularity: Granularity) -> pl.DataFrame:
    """The rows of a split with `caption`; an error says why there are none."""
    try:
        data = load_dataset(config.dataset, config.dataset_config, data_dir=config.data_dir, split=split)
    except (ValueError, FileNotFoundError) as error:
        raise SystemExit(
            f"the split {split!r} of {config.dataset!r}, {config.dataset_config!r}, cannot be read: {error}"
        ) from error
    missing = {*COLUMNS, f"{granularity}_caption"} - set(data.column_names)
    if missing or not len(data):
        what = f"has no column {', '.join(sorted(missing))}" if missing else "is empty"
        raise SystemExit(f"the split {split!r} of {config.dataset!r} {what}; is it a data set of moments?")
    return data.to_polars().select(*COLUMNS, caption=pl.col(f"{granularity}_caption"))


def known(ids: pl.Series, features: Features) -> pl.Series:
    """Which ids have features."""
    return pl.Series([one in features for one in ids], dtype=pl.Boolean)


def pad(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Sequences `(length, size)` as one `(n, longest, size)`, and their mask."""
    lengths = torch.tensor([len(row) for row in rows])
    return pad_sequence(rows, batch_first=True), torch.arange(int(lengths.max())) < lengths[:, None]
