"""Spans: labels and seconds, the search against one that looks at every span, and temporal NMS."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_moment_models import both_streams, every_model, small

from hf_models.moments.corpus import VideoBatch, encode_corpus
from hf_models.moments.presets import PRESETS
from hf_models.moments.spans import MomentRanking, SpanSearch, clip_labels, end_offsets
from hf_models.moments.temporal_nms import temporal_nms

NUM_CLIPS = [9, 6, 1, 8, 9, 3, 7]
CONVENTIONS = ("inclusive", "exclusive", "xml_legacy", "hero_legacy")


def make_videos(*, subtitles=False):
    generator = torch.Generator().manual_seed(1)
    mask = (torch.arange(9) < torch.tensor(NUM_CLIPS)[:, None]).float()
    widths = torch.linspace(0.5, 2, len(NUM_CLIPS), dtype=torch.float64)
    features = torch.randn(len(NUM_CLIPS), 9, 10, generator=generator)
    sides = torch.randn(len(NUM_CLIPS), 9, 7, generator=generator) if subtitles else None
    ids = [f"video-{i}" for i in range(len(NUM_CLIPS))]
    return VideoBatch(ids, features, mask, widths, sides)


def in_two_batches(videos):
    for part in (slice(0, 4), slice(4, None)):
        sides = None if videos.subtitle_features is None else videos.subtitle_features[part]
        yield VideoBatch(
            videos.video_ids[part],
            videos.video_features[part],
            videos.video_mask[part],
            videos.clip_seconds[part],
            sides,
        )


@torch.no_grad()
def make_queries(model, num_queries=5):
    generator = torch.Generator().manual_seed(2)
    return model.encode_query(torch.randn(num_queries, 4, 12, generator=generator), torch.ones(num_queries, 4))


def encoded(model, videos):
    return model.encode_video(videos.video_features, videos.video_mask, subtitle_features=videos.subtitle_features)


@torch.no_grad()
def every_span(model, queries, videos, *, offsets, num_videos, convention):
    """(video, start, end, score) of all spans of each query, best first, one query and one video at a time."""
    read = encoded(model, videos)
    scores = model.video_scores(queries, read)
    start_logits, end_logits = model.span_head(queries, read)
    found = []
    for query in range(len(queries)):
        spans = []
        for video in scores[query].argsort(descending=True)[:num_videos].tolist():
            start, end = (x[query, video, : NUM_CLIPS[video]].softmax(0) for x in (start_logits, end_logits))
            factor = math.exp(model.config.score_scale * scores[query, video].item())
            width = videos.clip_seconds[video].item()
            for i, j in itertools.product(range(NUM_CLIPS[video]), repeat=2):
                if j - i in offsets:
                    stop = j + (convention != "exclusive")
                    spans.append((video, i * width, stop * width, factor * start[i].item() * end[j].item()))
        found.append(sorted(spans, key=lambda span: -span[3]))
    return found


def assert_same_spans(ranking, expected, num_spans):
    for query, spans in enumerate(expected):
        count = min(num_spans, len(spans))
        assert (ranking.video_indices[query, count:] == -1).all()
        assert np.isneginf(ranking.scores[query, count:]).all()
        found = zip(
            ranking.video_indices[query, :count].tolist(),
            ranking.start_seconds[query, :count].tolist(),
            ranking.end_seconds[query, :count].tolist(),
            np.exp(ranking.scores[query, :count]).tolist(),
            strict=True,
        )
        for one, other in zip(found, spans[:count], strict=True):
            assert one == pytest.approx(other, rel=2e-4, abs=1e-9)


@pytest.mark.parametrize("convention", CONVENTIONS)
@every_model
@both_streams
def test_the_search_agrees_with_a_search_over_every_span(name, subtitles, convention):
    model, videos = (small(name, subtitles=subtitles, end_convention=convention), make_videos(subtitles=subtitles))
    corpus = encode_corpus(model, in_two_batches(videos), num_videos=len(NUM_CLIPS))
    queries = make_queries(model)
    search = SpanSearch(model, corpus, min_clips=2, max_clips=5, num_videos=4, num_spans=30)
    ranking, ranked_videos = search.rank(queries)
    offsets = end_offsets(2, 5, convention)
    expected = every_span(model, queries, videos, offsets=offsets, num_videos=4, convention=convention)
    assert_same_spans(ranking, expected, 30)
    scores = model.video_scores(queries, encoded(model, videos))
    assert ranked_videos.tolist() == scores.argsort(descending=True)[:, :4].tolist()


@pytest.mark.parametrize("memory_megabytes", [1e-6, 0.01, 96])
def test_the_bound_on_memory_changes_the_blocks_and_not_the_result(memory_megabytes):
    model = small("xml")
    corpus = encode_corpus(model, [make_videos()], num_videos=len(NUM_CLIPS))
    queries = make_queries(model, 70)
    expected, expected_videos = SpanSearch(model, corpus, min_clips=1, max_clips=4).rank(queries)
    search = SpanSearch(model, corpus, min_clips=1, max_clips=4, memory_megabytes=memory_megabytes)
    assert (search.query_block == 1) == (memory_megabytes < 0.1)
    ranking, ranked_videos = search.rank(queries)
    for part in ("video_indices", "start_seconds", "end_seconds"):
        assert np.array_equal(getattr(ranking, part), getattr(expected, part)), part
    np.testing.assert_allclose(ranking.scores, expected.scores, atol=1e-4)
    assert np.array_equal(ranked_videos, expected_videos)


def test_copies_of_a_video_come_in_the_order_of_the_corpus():
    model, videos = small("xml"), make_videos()
    rows = [3, 1, *[2] * 20]
    features, mask = videos.video_features[rows], videos.video_mask[rows]
    copies = VideoBatch([str(row) for row in range(len(rows))], features, mask, torch.ones(len(rows)))
    search = SpanSearch(model, encode_corpus(model, [copies], num_videos=len(rows)), min_clips=1, max_clips=4)
    search.num_videos = 8
    _, found = search.rank(make_queries(model))
    for of_query in found.tolist():
        places = [place for place in of_query if place > 1]
        assert places == list(range(2, 2 + len(places)))


def test_a_video_that_is_taken_out_is_not_found():
    model = small("xml")
    queries = make_queries(model)
    corpus = encode_corpus(model, [make_videos()], num_videos=len(NUM_CLIPS))
    search = SpanSearch(model, corpus, min_clips=1, max_clips=4, num_videos=3)
    best = search.rank(queries)[1][:, 0]
    without = np.where(np.arange(len(queries)) % 2, best, -1)
    spans, videos = search.rank(queries, without=torch.from_numpy(without))
    assert (videos[::2, 0] == best[::2]).all()
    assert not (videos == without[:, None])[1::2].any()
    assert not (spans.video_indices == without[:, None])[1::2].any()


def test_a_search_in_one_given_video_sees_that_video_only():
    model, videos = small("xml"), make_videos()
    corpus = encode_corpus(model, [videos], num_videos=len(NUM_CLIPS))
    queries, targets = make_queries(model), torch.tensor([3, 0, 5, 2, 6])
    ranking = SpanSearch(model, corpus, min_clips=1, max_clips=4, num_spans=12).localize(queries, targets)
    offsets = end_offsets(1, 4, "inclusive")
    all_spans = every_span(model, queries, videos, offsets=offsets, num_videos=7, convention="inclusive")
    factors = (model.config.score_scale * model.video_scores(queries, encoded(model, videos))).exp()
    expected = [
        [(*span[:3], span[3] / factors[q, v].item()) for span in spans if span[0] == v]
        for q, (v, spans) in enumerate(zip(targets.tolist(), all_spans, strict=True))
    ]
    assert_same_spans(ranking, expected, 12)
    assert (ranking.video_indices[3] >= 0).sum() == 1  # a video of one clip has one span


@pytest.mark.parametrize(
    ("num_videos", "max_clips", "empty"),
    [(6, None, False), (7, 8, False), (7, None, True)],
    ids=["many", "long", "empty"],
)
def test_videos_that_do_not_fit_the_corpus_are_refused(num_videos, max_clips, empty):
    videos = make_videos()
    if empty:
        videos.video_mask[2] = 0
    with pytest.raises(ValueError, match="there may be at most"):
        encode_corpus(small("xml"), [videos], num_videos=num_videos, max_clips=max_clips)


def test_other_videos_than_were_announced_are_refused():
    model, videos = small("xml"), make_videos()
    with pytest.raises(ValueError, match="8 different videos were announced and 7 came in 7 rows"):
        encode_corpus(model, [videos], num_videos=8)
    videos.video_ids[0] = videos.video_ids[1]
    with pytest.raises(ValueError, match="7 different videos were announced and 6 came in 7 rows"):
        encode_corpus(model, [videos], num_videos=7)


def test_a_corpus_of_one_video_can_be_searched():
    model, videos = small("xml"), make_videos()
    first = VideoBatch(["only"], videos.video_features[:1], videos.video_mask[:1], torch.ones(1))
    corpus = encode_corpus(model, [first], num_videos=1)
    ranking, ranked = SpanSearch(model, corpus, min_clips=2, max_clips=3).rank(make_queries(model))
    assert ranked.tolist() == [[0]] * 5
    assert (ranking.video_indices >= 0).sum(1).tolist() == [8 + 7] * 5


def test_limits_that_leave_no_span_are_refused():
    model = small("xml")
    corpus = encode_corpus(model, [make_videos()], num_videos=7)
    for limits in ({"min_clips": 0, "max_clips": 3}, {"min_clips": 4, "max_clips": 3}):
        with pytest.raises(ValueError, match="leave no span"):
            SpanSearch(model, corpus, **limits)
    with pytest.raises(ValueError, match="longest video has 9 clips"):
        SpanSearch(model, corpus, min_clips=11, max_clips=12)


@pytest.mark.parametrize(("name", "spans"), [("charades_fig", 415), ("didemo_fig", 325), ("activitynet_fig", 26850)])
def test_the_presets_under_the_released_convention_have_the_papers_number_of_spans(name, spans):
    preset = PRESETS[name]
    offsets = end_offsets(preset.min_clips, preset.max_clips, "xml_legacy")
    assert sum(preset.max_video_clips - offset for offset in offsets) == spans


def test_the_released_hero_marks_two_clips_at_least_but_at_the_end_of_a_video():
    def released(start, stop, last):  # seconds are clips
        first = min(math.floor(start), last)
        return first, min(max(math.ceil(stop) - 1, first + 1), last)

    moments = [(2.0, 2.9, 9), (2.2, 5.0, 9), (8.0, 9.0, 9), (9.5, 9.9, 9), (12.0, 14.0, 9), (0.0, 0.5, 0)]
    for start, stop, last in moments:
        found = clip_labels([start], [stop], clip_seconds=1.0, num_clips=last + 1, end_convention="hero_legacy")
        assert (found[0][0], found[1][0]) == released(start, stop, last)


def test_a_five_second_moment_can_be_found_in_didemo():
    # The released convention starts at six clips, and most moments of DiDeMo last five seconds.
    preset = PRESETS["didemo_fig"]
    assert end_offsets(preset.min_clips, preset.max_clips, "inclusive").start == 4
    assert end_offsets(preset.min_clips, preset.max_clips, "xml_legacy").start == 5


@given(
    st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1), st.integers(1, n))),
    st.floats(0.1, 3.0),
)
@settings(max_examples=200, deadline=None)
def test_inclusive_labels_and_seconds_are_each_others_inverse(case, width):
    num_clips, first, length = case
    last = min(first + length, num_clips) - 1
    start, end = clip_labels([first * width], [(last + 1) * width], clip_seconds=width, num_clips=num_clips)
    assert (start[0], end[0]) == (first, last)


def test_moments_outside_the_video_end_with_its_last_clip():
    arguments = {"clip_seconds": [1.0, 1.0, 2.0], "num_clips": [10, 10, 5]}
    for convention in ("inclusive", "exclusive"):
        start, end = clip_labels([8.2, 12.0, 8.5], [24.0, 14.0, 9.0], **arguments, end_convention=convention)
        assert (start.tolist(), end.tolist()) == ([8, 9, 4], [9, 9, 4])


def ranking_of(spans):
    video, start, end, score = (np.array([column]) for column in zip(*spans, strict=True))
    return MomentRanking(video.astype(np.int64), start.astype(float), end.astype(float), score.astype(float))


def test_nms_keeps_what_the_released_code_keeps(shared):
    cases = json.loads((shared / "parity" / "nms_cases.json").read_text())
    assert len(cases) == 40
    for case in cases:
        spans = [(0, *span) for span in case["predictions"]]
        kept = temporal_nms(ranking_of(spans), threshold=case["nms_thd"], max_spans=case["max_after"])
        count = (kept.video_indices[0] >= 0).sum()
        found = zip(kept.start_seconds[0][:count], kept.end_seconds[0][:count], kept.scores[0][:count], strict=True)
        assert [list(span) for span in found] == case["expected"]


def plain_nms(spans, threshold, max_spans):
    """One query, one list at a time: group by video, suppress in each, merge."""
    groups = {}
    for span in spans:
        groups.setdefault(span[0], []).append(span)
    merged = []
    for group in groups.values():
        kept = []
        for span in sorted(group, key=lambda one: -one[3]):
            if len(kept) < max_spans and all(plain_iou(span, better) <= threshold for better in kept):
                kept.append(span)
        merged += kept
    return sorted(merged, key=lambda one: -one[3])[:max_spans]


def plain_iou(one, other):
    overlap = max(0.0, min(one[2], other[2]) - max(one[1], other[1]))
    hull = max(one[2], other[2]) - min(one[1], other[1])
    return overlap / hull if hull else 0.0


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("max_spans", [3, 100])
def test_nms_of_many_queries_is_that_of_each(ties, ordered, max_spans):
    generator = np.random.default_rng(0)
    queries, candidates = 300, 40
    video = generator.integers(0, 6, (queries, candidates))
    video[generator.random(video.shape) < 0.1] = -1
    start = generator.integers(0, 20, video.shape).astype(float)
    end = start + generator.integers(0, 9, video.shape)
    score = generator.integers(0, 8, video.shape) / 8 if ties else generator.random(video.shape)
    if ordered:
        score = -np.sort(-score, axis=1)
    kept = temporal_nms(MomentRanking(video, start, end, score), threshold=0.5, max_spans=max_spans)
    assert kept.video_indices.shape == (queries, max_spans)
    for query in range(queries):
        spans = [
            span for span in zip(video[query], start[query], end[query], score[query], strict=True) if span[0] >= 0
        ]
        expected = plain_nms(spans, 0.5, max_spans)
        columns = (kept.video_indices, kept.start_seconds, kept.end_seconds, kept.scores)
        found = [span for span in zip(*(column[query] for column in columns), strict=True) if span[0] >= 0]
        assert found == expected


def test_the_released_code_suppresses_among_the_first_hundred_only():
    spans = [(0, 0.0, 10.0, 1 - i / 1000) for i in range(150)] + [(0, 20.0, 30.0, 0.1)]
    ranking = ranking_of(spans)
    assert (temporal_nms(ranking, threshold=0.5).video_indices >= 0).sum() == 2
    assert (temporal_nms(ranking, threshold=0.5, legacy_truncate=True).video_indices >= 0).sum() == 1
    few = ranking_of(spans[:5])
    assert (temporal_nms(few, threshold=0.5, legacy_truncate=True).video_indices >= 0).sum() == 1


def test_nms_of_no_spans_gives_no_spans():
    empty = MomentRanking(np.full((2, 3), -1), np.zeros((2, 3)), np.zeros((2, 3)), np.full((2, 3), -np.inf))
    assert (temporal_nms(empty, threshold=0.5, max_spans=4).video_indices == -1).all()
