"""Moments and features of a split: what is used, what is counted as unusable, and the batches."""

import numpy as np
import polars as pl
import pytest
import torch

from hf_models import XMLConfig
from hf_models.feature_store import FeatureStore
from hf_models.moments.dataset import QUERY_FIELDS, MomentSplit
from hf_models.moments.presets import SpanPreset

CLIPS, SIZE = 12, 4
PRESET = SpanPreset(min_clips=1, max_clips=4, max_video_clips=CLIPS, nms_threshold=0.5)
ROWS = pl.DataFrame(
    [
        (4 * video + number, f"video-{video}", float(CLIPS), 3.0 * number, 3.0 * number + 2, f"caption {number}")
        for video in range(6)
        for number in range(4)
    ],
    schema=QUERY_FIELDS,
    orient="row",
)


@pytest.fixture
def read(tmp_path):
    """The split of some rows, with features of one clip per second and of two tokens per caption."""
    videos = {f"video-{number}": torch.full((CLIPS, SIZE), float(number + 1)) for number in range(6)}
    queries = {str(number): torch.ones(2, SIZE) for number in range(24)}

    def read(rows=ROWS, drop=(), preset=PRESET, long_videos="pool", **options):
        stores = []
        for name, features in (("video", videos), ("query-fine", queries)):
            kept = {one: value for one, value in features.items() if one not in drop}
            store = FeatureStore(tmp_path / name)
            store.append(list(kept), list(kept.values()))
            stores.append(store)
        return MomentSplit(rows, *stores, preset, long_videos=long_videos, **options)

    return read


def test_what_cannot_be_used_is_counted_by_reason(read):
    number = pl.int_range(pl.len())
    rows = ROWS.with_columns(
        caption=pl.when(number == 8).then(pl.lit("  ")).otherwise("caption"),
        end_seconds=pl.when(number == 9).then(40.0).otherwise("end_seconds"),
        start_seconds=pl.when(number == 10).then(12.5).otherwise("start_seconds"),
    ).with_columns(end_seconds=pl.when(number == 10).then(13.0).otherwise("end_seconds"))
    split = read(rows, drop=("video-0", "5"))
    split.count_long_queries(1)
    assert split.coverage == {
        "queries": 24,
        "empty_captions": 1,
        "queries_of_videos_without_features": 4,
        "queries_without_features": 1,
        "queries_used": 18,
        "videos": 6,
        "videos_used": 5,
        "videos_of_another_length_than_their_features": 0,
        "such_videos": [],
        "videos_pooled_or_cut": 0,
        "moments_that_end_after_their_video": 2,
        "moments_beyond_what_is_read": 1,
        "queries_cut": 18,
    }
    assert split.video_ids == [f"video-{number}" for number in range(1, 6)]
    assert len(split) == len(split.targets) == 18


def test_videos_whose_features_have_another_length_are_named(read):
    longer = pl.when(pl.col("video_id") == "video-3").then(30.0).otherwise("duration_seconds")
    split = read(ROWS.with_columns(duration_seconds=longer))
    assert split.coverage["videos_of_another_length_than_their_features"] == 1
    assert split.coverage["such_videos"] == ["video-3"]


def test_features_of_another_rate_than_given_are_refused(read):
    with pytest.raises(
        ValueError, match=r"video have 1\.00 rows for each second of video, not 4\.00: clip_seconds says"
    ):
        read(clip_seconds=0.25)


def test_a_split_without_usable_queries_is_refused_with_the_counts(read):
    with pytest.raises(ValueError, match=r"no query can be used .*'queries_of_videos_without_features': 4"):
        read(ROWS.head(4), drop=("video-0",))


def test_rows_without_a_column_are_refused(read):
    with pytest.raises(ValueError, match="the rows have no column caption; there must be desc_id"):
        read(ROWS.drop("caption"))


def test_pooled_videos_have_wider_clips_and_moments_keep_their_seconds(read):
    split = read(preset=SpanPreset(min_clips=1, max_clips=4, max_video_clips=6, nms_threshold=0.5))
    assert split.coverage["videos_pooled_or_cut"] == 6
    assert split.clip_seconds.tolist() == [2.0] * 6
    start, end = split.labels(np.arange(len(split)), "inclusive")
    seconds = split.rows["start_seconds"].to_numpy()
    assert (start.numpy() * 2.0 <= seconds).all()
    assert ((end.numpy() + 1) * 2.0 >= seconds + 2).all()
    assert split.video_batch(np.arange(2)).video_features.shape == (2, 6, SIZE)


def test_every_row_of_the_features_is_scaled_to_length_1(read):
    videos = read().video_batch(np.array([1])).video_features  # all 2, of size 4
    torch.testing.assert_close(videos.norm(dim=-1), torch.ones(1, CLIPS))


@pytest.mark.parametrize("same_video_negatives", [False, True])
def test_a_batch_holds_the_indices_of_its_videos_for_other_processes(read, same_video_negatives):
    split, config = read(), XMLConfig(max_query_tokens=4)
    batches = [
        split.training_batch(np.array(rows), config, same_video_negatives=same_video_negatives)
        for rows in ([0, 5, 6], [4, 1])  # four captions of each video
    ]
    found = [batch.get("video_indices") for batch in batches]
    assert same_video_negatives or [one.tolist() for one in found] == [[0, 1], [0, 1]]
    assert not same_video_negatives or found == [None, None]
    assert [len(batch["video_features"]) for batch in batches] == ([3, 2] if same_video_negatives else [2, 2])
