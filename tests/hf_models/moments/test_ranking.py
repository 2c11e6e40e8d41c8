"""Rankings of a whole split: every query gets moments of the corpus and of its own video, and all are written."""

import json

import numpy as np
import polars as pl
import pytest
import torch

from hf_models import XMLConfig, XMLForMomentRetrieval
from hf_models.feature_store import FeatureStore
from hf_models.moments.dataset import QUERY_FIELDS, MomentSplit
from hf_models.moments.presets import SpanPreset
from hf_models.moments.ranking import rank_moments, write_submission

VIDEOS, CLIPS, SIZE = 3, 6, 8


@pytest.fixture
def split(tmp_path):
    """Three videos of six seconds with two moments each."""
    generator = torch.Generator().manual_seed(0)
    videos, queries = FeatureStore(tmp_path / "video"), FeatureStore(tmp_path / "query")
    rows = [
        (2 * video + number, f"video-{video}", float(CLIPS), 3.0 * number, 3.0 * number + 2, f"caption {number}")
        for video in range(VIDEOS)
        for number in range(2)
    ]
    videos.append(
        [f"video-{number}" for number in range(VIDEOS)], torch.randn(VIDEOS, CLIPS, SIZE, generator=generator)
    )
    queries.append([str(row[0]) for row in rows], torch.randn(len(rows), 2, SIZE, generator=generator))
    preset = SpanPreset(min_clips=1, max_clips=3, max_video_clips=CLIPS, nms_threshold=0.5)
    return MomentSplit(
        pl.DataFrame(rows, schema=QUERY_FIELDS, orient="row"), videos, queries, preset, long_videos="pool"
    )


@pytest.fixture
def model():
    torch.manual_seed(0)
    sizes = {"video_feature_size": SIZE, "query_feature_size": SIZE, "hidden_size": 8, "num_attention_heads": 2}
    return XMLForMomentRetrieval(XMLConfig(**sizes, max_query_tokens=4, max_video_clips=CLIPS)).eval()


def test_every_query_gets_moments_of_its_own_video_and_of_the_corpus(model, split):
    rankings = rank_moments(model, split, batch_size=4)
    assert (np.asarray(rankings.svmr.video_indices[:, 0]) == split.targets).all()
    assert np.sort(rankings.videos, axis=1).tolist() == [list(range(VIDEOS))] * len(split)
    again = rank_moments(model, split, batch_size=1)
    assert np.array_equal(again.videos, rankings.videos)
    np.testing.assert_allclose(again.vcmr.scores[:, :5], rankings.vcmr.scores[:, :5], rtol=1e-4, atol=1e-4)


def test_suppressed_rankings_hold_no_two_spans_that_overlap_more_than_the_threshold(model, split):
    kept = rank_moments(model, split).suppressed(0.5).svmr
    for starts, ends, found in zip(kept.start_seconds, kept.end_seconds, kept.video_indices, strict=True):
        spans = [(start, end) for start, end, video in zip(starts, ends, found, strict=True) if video >= 0]
        for place, (start, end) in enumerate(spans):
            for other_start, other_end in spans[:place]:
                overlap = max(0.0, min(end, other_end) - max(start, other_start))
                assert overlap <= 0.5 * (max(end, other_end) - min(start, other_start)) + 1e-9


def test_a_submission_names_every_query_of_every_task(model, split, tmp_path):
    path = tmp_path / "made" / "submission.json"
    write_submission(path, rank_moments(model, split), split)
    written = json.loads(path.read_text(encoding="utf-8"))
    assert written["video2idx"] == {f"video-{number}": number for number in range(VIDEOS)}
    for task in ("VCMR", "SVMR", "VR"):
        assert [(one["desc_id"], one["desc"]) for one in written[task]] == split.rows.select(
            "desc_id", "caption"
        ).rows()
        assert all(len(prediction) == 4 for one in written[task] for prediction in one["predictions"])
    assert [path.name for path in path.parent.iterdir()] == ["submission.json"]
