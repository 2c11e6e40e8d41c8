"""An index of segments proposes the videos that an exhaustive search would look at, and survives a kill."""

import json

import numpy as np
import pytest
import torch
from small_moment_models import small
from torch.nn import functional as F

from hf_models.moments import corpus as corpora
from hf_models.moments import segment_index
from hf_models.moments.corpus import MomentCorpus, VideoBatch, encode_corpus
from hf_models.moments.segment_index import SegmentIndex, ShortlistSearch, segments_of
from hf_models.moments.spans import SpanSearch

VIDEOS, CLIPS, QUERIES, KEPT = 40, 9, 6, 5
LIMITS = {"min_clips": 1, "max_clips": 4, "num_videos": KEPT, "num_spans": 30}
FIELDS = ("video_indices", "start_seconds", "end_seconds")


def batches(size=8, *, subtitles=False, seed=3, videos=VIDEOS):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(videos, CLIPS, 10, generator=generator)
    spoken = torch.randn(videos, CLIPS, 7, generator=generator)
    lengths = torch.arange(videos) % CLIPS + 1
    for first in range(0, videos, size):
        rows = slice(first, first + size)
        mask = (torch.arange(CLIPS) < lengths[rows, None]).float()
        ids = [f"video {number}" for number in range(videos)[rows]]
        extra = spoken[rows] if subtitles else None
        yield VideoBatch(ids, features[rows], mask, torch.ones(len(ids)), extra)


def queries_of(model):
    generator = torch.Generator().manual_seed(4)
    features = torch.randn(QUERIES, 5, 12, generator=generator)
    with torch.inference_mode():
        if model.config.model_type.endswith("hero"):
            return model.encode_query(torch.randint(2, 30, (QUERIES, 5), generator=generator), torch.ones(QUERIES, 5))
        return model.encode_query(features, torch.ones(QUERIES, 5))


def made(name="xml", *, subtitles=False):
    model = small(name, subtitles=subtitles)
    return model, encode_corpus(model, batches(subtitles=subtitles), num_videos=VIDEOS), queries_of(model)


def assert_same(one, other):
    (spans, videos), (other_spans, other_videos) = one, other
    assert np.array_equal(videos, other_videos)
    for name in FIELDS:
        assert np.array_equal(getattr(spans, name), getattr(other_spans, name))
    np.testing.assert_allclose(spans.scores, other_spans.scores, atol=1e-4)


@pytest.mark.parametrize("name", ["xml", "reloclnet", "hero"])
def test_the_videos_of_the_nearest_clips_are_the_best_videos_of_an_exhaustive_search(name, tmp_path):
    model, corpus, queries = made(name)
    index = SegmentIndex.build(corpus, tmp_path / "index")
    search = SpanSearch(model, corpus, **LIMITS)
    unit = F.normalize(queries[:, 0], dim=-1)
    is_clip = torch.arange(CLIPS) < corpus.num_clips[:, None]
    cosines = torch.einsum("qd,vld->qvl", unit, corpus.retrieval[0]).masked_fill(~is_clip, -2)
    assert torch.equal(index.propose(queries[:1], KEPT), index.propose(queries, KEPT)[:1])
    assert torch.equal(index.propose(queries, KEPT), cosines.amax(2).topk(KEPT).indices.sort().values)
    assert_same(ShortlistSearch(model, index, shortlist=KEPT, **LIMITS).rank(queries), search.rank(queries))


@pytest.mark.parametrize("segment_clips", [1, 4, 20])
@pytest.mark.parametrize("subtitles", [False, True])
def test_a_shortlist_of_all_videos_gives_the_exhaustive_result(segment_clips, subtitles, tmp_path):
    model, corpus, queries = made(subtitles=subtitles)
    index = SegmentIndex.build(corpus, tmp_path / "index", segment_clips=segment_clips)
    search = ShortlistSearch(model, index, shortlist=10 * VIDEOS, memory_megabytes=0.01, **LIMITS)
    assert search.shortlist == VIDEOS
    assert_same(search.rank(queries), SpanSearch(model, corpus, **LIMITS).rank(queries))
    one_less = index.propose(queries, VIDEOS - 1)
    assert all(len(set(row)) == VIDEOS - 1 for row in one_less.tolist())


def test_a_segment_is_the_mean_of_its_clips_at_unit_norm():
    _, corpus, _ = made()
    videos, vectors = segments_of(corpus, 0, 5, 7, 4)  # videos of 6 and 7 clips
    assert videos.tolist() == [5, 5, 6, 6]
    clips = corpus.retrieval[0]
    for vector, (video, first, stop) in zip(vectors, [(5, 0, 4), (5, 4, 6), (6, 0, 4), (6, 4, 7)], strict=True):
        torch.testing.assert_close(vector, F.normalize(clips[video, first:stop].mean(0), dim=-1))


def test_a_video_that_is_taken_out_is_found_by_neither_search(tmp_path):
    model, corpus, queries = made()
    best = SpanSearch(model, corpus, **LIMITS).rank(queries)[1][:, 0]
    without = torch.from_numpy(np.where(np.arange(QUERIES) % 2, best, -1))
    index = SegmentIndex.build(corpus, tmp_path / "index")
    for search in (
        SpanSearch(model, corpus, **LIMITS),
        ShortlistSearch(model, index, shortlist=KEPT + 1, **LIMITS),
    ):
        spans, videos = search.rank(queries, without=without)
        assert (videos[::2, 0] == best[::2]).all()
        assert not (spans.video_indices == without.numpy()[:, None])[1::2].any()


def test_an_approximate_index_finds_most_and_says_where_it_is_of_no_use(tmp_path, monkeypatch):
    _, corpus, queries = made()
    with pytest.raises(ValueError, match=r"\d+ segments are searched exactly in a moment"):
        SegmentIndex.build(corpus, tmp_path / "index", approximate=True)
    monkeypatch.setattr(segment_index, "FEWEST_PARTITIONED", 10)
    exact = SegmentIndex.build(corpus, tmp_path / "index")
    with pytest.raises(ValueError, match=r"has no approximate index; build it with approximate=True"):
        exact.propose(queries, KEPT, probes=4)
    index = SegmentIndex.build(corpus, tmp_path / "approximate", approximate=True)
    assert torch.equal(index.propose(queries, KEPT, probes=1000), exact.propose(queries, KEPT))
    assert index.propose(queries, VIDEOS - 1, probes=1).shape == (QUERIES, VIDEOS - 1)


def test_a_killed_build_goes_on_and_another_corpus_is_refused(tmp_path, monkeypatch):
    model, corpus, queries = made()
    monkeypatch.setattr(segment_index, "SEGMENTS_AT_ONCE", 20)
    written, real = [], segments_of

    def counting(*arguments):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(arguments[2])
        return real(*arguments)

    monkeypatch.setattr(segment_index, "segments_of", counting)
    with pytest.raises(KeyboardInterrupt):
        SegmentIndex.build(corpus, tmp_path / "index")
    assert not (tmp_path / "index").exists()
    before = list(written)
    written.clear()
    monkeypatch.setattr(segment_index, "segments_of", lambda *given: (written.append(given[2]), real(*given))[1])
    index = SegmentIndex.build(corpus, tmp_path / "index")
    assert written[0] > before[-1]
    assert index.num_segments == [int(corpus.num_clips.sum())]
    whole = SegmentIndex.build(corpus, tmp_path / "whole")
    assert torch.equal(index.propose(queries, KEPT), whole.propose(queries, KEPT))
    written.clear()
    SegmentIndex.build(corpus, tmp_path / "index")
    assert not written
    other = encode_corpus(model, batches(seed=9), num_videos=VIDEOS)
    with pytest.raises(ValueError, match="segments of another corpus"):
        SegmentIndex(tmp_path / "index", other)
    assert SegmentIndex.build(other, tmp_path / "index").corpus is other
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds something else than segments"):
        SegmentIndex.build(corpus, tmp_path / "texts")
    with pytest.raises(FileNotFoundError, match=r"SegmentIndex.build\(corpus, folder\)"):
        SegmentIndex(tmp_path / "texts", corpus)
    for wrong in (0, VIDEOS + 1):
        with pytest.raises(ValueError, match=f"between 1 and {VIDEOS}, not {wrong}"):
            index.propose(queries, wrong)


def test_a_killed_encoding_goes_on_and_one_that_is_done_is_kept(tmp_path, monkeypatch):
    model, encoded, real = small("xml"), [], corpora._encode
    monkeypatch.setattr(corpora, "_encode", lambda *given: (encoded.append(given[1].video_ids[0]), real(*given))[1])

    def killed():
        for number, batch in enumerate(batches()):
            if number == 3:
                raise KeyboardInterrupt
            yield batch

    folder = tmp_path / "corpus"
    with pytest.raises(KeyboardInterrupt):
        encode_corpus(model, killed(), num_videos=VIDEOS, folder=folder)
    journal = tmp_path / ".corpus-unfinished" / "encoded.jsonl"
    journal.write_text(journal.read_text()[:-7])  # killed while it was writing
    assert not folder.exists()
    resumed, expected = encode_corpus(model, batches(), num_videos=VIDEOS, folder=folder), made()[1]
    assert resumed.video_ids == expected.video_ids
    torch.testing.assert_close(resumed.retrieval, expected.retrieval)
    assert encoded[:-5] == ["video 0", "video 8", "video 16", "video 16", "video 24", "video 32"]
    encoded.clear()
    encode_corpus(model, batches(), num_videos=VIDEOS, folder=folder)
    assert not encoded
    whole = encode_corpus(model, batches(seed=9), num_videos=VIDEOS, folder=folder)
    in_memory = encode_corpus(model, batches(seed=9), num_videos=VIDEOS)
    torch.testing.assert_close(whole.retrieval, in_memory.retrieval)
    torch.testing.assert_close(whole.localization, in_memory.localization)
    assert torch.equal(MomentCorpus.open(folder).num_clips, in_memory.num_clips)
    encoded.clear()
    encode_corpus(small("reloclnet"), batches(), num_videos=VIDEOS, folder=folder)
    assert len(encoded) == 5
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]
    assert json.loads((folder / "corpus.json").read_text())["video_ids"] == [f"video {n}" for n in range(VIDEOS)]
