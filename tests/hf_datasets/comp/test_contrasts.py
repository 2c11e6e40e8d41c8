"""Rows become contrasts, clips become Stacks, and their frames are read in order and kept on request."""

import random

import pytest
import torch
from datasets import Dataset

from hf_datasets.comp import contrasts
from hf_datasets.comp.contrasts import Contrast, ContrastFrames, Span, SpanReader, Stacks, draw_negatives, group
from hf_datasets.video import VideoError, read_frames
from tests.fixtures.videos import write_video

SIZE = (24, 32)


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    return str(write_video(tmp_path_factory.mktemp("videos") / "a.mp4", 50))


def test_rows_of_one_stretch_become_one_contrast_with_levels():
    def row(kind, negative, start=0.0, positive="A. B."):
        times = {"query_start_seconds": start, "query_end_seconds": 9.0}
        return {"video": "v", "disruption_type": kind, "positive_text": positive, "negative_text": negative} | times

    rows = [row("temporal_reorder", "B. A."), row("multi", "C. A."), row("segment_mismatch", "A.", 4.0, "B.")]
    assert group(rows) == [
        Contrast((Span("v", 0.0, 9.0),), "A. B.", ("B. A.", "C. A."), (1, 2)),
        Contrast((Span("v", 4.0, 9.0),), "B.", ("A.",), (1,)),
    ]


def test_at_most_count_negatives_are_drawn_each_with_its_level():
    given = [Contrast((), "A.", ("B.", "C.", "D."), (1, 2, 1)), Contrast((), "A.", ("B.",), (1,))]
    first, second = draw_negatives(given, 2, random.Random(0))
    assert len(first.negatives) == 2
    levels = dict(zip(given[0].negatives, given[0].levels, strict=True))
    assert dict(zip(first.negatives, first.levels, strict=True)).items() <= levels.items()
    assert second == given[1]


def test_a_stack_shows_each_clip_an_equal_share_of_the_frames(video):
    rows = [
        {"video": video, "caption": f"Action {number}", "start_seconds": number / 2, "end_seconds": number / 2 + 0.5}
        for number in range(4)
    ]
    (stack,) = Stacks(Dataset.from_list(rows), size=4, seed=0)
    reader = SpanReader(SIZE, keep=True)
    frames = reader(stack.spans, 8)
    assert frames.shape == (8, 3, *SIZE)
    for place, span in enumerate(stack.spans):
        expected = read_frames(video, 2, span.start_seconds, span.end_seconds, size=SIZE).frames
        assert torch.equal(frames[2 * place : 2 * place + 2], expected)


def test_frames_are_transformed_once_where_they_are_kept(video, monkeypatch):
    reader = SpanReader(SIZE, keep=True, transform=lambda frames: frames.float().mean((1, 2, 3)))
    asked, data = Contrast((Span(video, 0.0, 1.0),), "A."), ContrastFrames(reader, 4)
    frames, contrast = data[asked]
    assert (frames.shape, contrast) == ((4,), asked)
    monkeypatch.setattr(contrasts, "read_frames", None)  # the video is not read again
    assert torch.equal(data[asked][0], frames)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_many_spans_are_read_in_their_order_and_not_again_where_they_are_kept(
    video, tmp_path, monkeypatch, num_workers
):
    monkeypatch.setattr(contrasts, "SPANS_AHEAD", 1)
    spans = [Span(video, start, start + 0.5) for start in (1.0, 0.0, 1.5, 0.5, 0.25)]
    reader = SpanReader(SIZE, keep=True)
    found = list(reader.read_all(spans, 3, num_workers=num_workers))
    monkeypatch.setattr(contrasts.VideoReaderPool, "read_on_demand", lambda *_: iter(()))
    again = list(reader.read_all(spans, 3, num_workers=num_workers))
    assert all(one is other for one, other in zip(found, again, strict=True))
    monkeypatch.undo()
    expected = [SpanReader(SIZE).read(span, 3) for span in spans]
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    with pytest.raises(VideoError, match=r"broken\.mp4: .*; remove this video from the"):
        list(reader.read_all([*spans, Span(str(tmp_path / "broken.mp4"), None, None)], 3, num_workers=num_workers))


def test_a_file_is_unreadable_if_its_last_span_is(video, tmp_path):
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    broken = str(tmp_path / "broken.mp4")
    spans = [Span(video, 1.0, 2.0), Span(video, None, None), Span(broken, None, None)]
    assert contrasts.unreadable_files(spans, num_workers=0).keys() == {broken}
    assert contrasts.unreadable_files([*spans, Span(video, 9.0, 10.0)], num_workers=0).keys() == {video, broken}
    with pytest.raises(VideoError, match=r"broken\.mp4: .*; remove this video from the video folder"):
        SpanReader()(spans[2:], 2)
