"""The approximate index finds what the exact search finds where all parts are visited, and new moments at once."""

import numpy as np
import pytest
from stored_moments import moment_table

from hf_models.index import store
from hf_models.index.search import default_probes, search_moments
from hf_models.index.store import IndexedModel, MomentIndex


def rows(start, vectors):
    return moment_table([f"{start + place:05}" for place in range(len(vectors))], vectors)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    index = MomentIndex.create(tmp_path_factory.mktemp("approximate") / "index")
    model = index.add(IndexedModel("k", "m", {}, 8, "/"))
    vectors = np.random.default_rng(0).standard_normal((600, 8)).astype(np.float32)
    index.moments("k").add(rows(0, vectors))
    return index, model


def test_few_moments_need_no_approximate_index(filled):
    index, model = filled
    with pytest.raises(ValueError, match=r"600 moments .* 50,000 or more"):
        index.partition("k")
    with pytest.raises(ValueError, match="has no approximate index; run `subtle index` on it again with --approximate"):
        search_moments(index, model, np.ones(8, np.float32), probes=4)


def test_all_parts_together_are_the_exact_search(filled, monkeypatch):
    index, model = filled
    monkeypatch.setattr(store, "FEWEST_PARTITIONED", 600)
    index.partition("k")
    index.partition("k")  # again changes nothing
    assert [one.columns for one in index.moments("k").list_indices()].count(["vector"]) == 1
    queries = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
    for query in queries:
        for where in (None, "video LIKE '%3'"):
            exact = search_moments(index, model, query, limit=20, where=where)
            assert search_moments(index, model, query, limit=20, where=where, probes=1000) == exact
    with pytest.raises(ValueError, match="probes must be at least 1"):
        search_moments(index, model, queries[0], probes=0)
    index.moments("k").add(rows(600, 100 * queries[:1]))
    assert search_moments(index, model, queries[0], probes=1)[0]["video"] == "00600"
    index.tidy("k")
    assert search_moments(index, model, queries[0], probes=1)[0]["video"] == "00600"
    assert search_moments(index, model, queries[0])[0]["video"] == "00600"


def test_it_is_trained_again_when_the_moments_doubled_or_another_kind_is_asked_for(filled, monkeypatch):
    index, model = filled
    monkeypatch.setattr(store, "FEWEST_PARTITIONED", 600)
    table = index.moments("k")
    generator = np.random.default_rng(2)
    trained = []
    for start, end in ((0, 601), (601, 1199), (1199, 1240)):
        missing = end - table.count_rows()
        if missing > 0:
            table.add(rows(start, generator.standard_normal((missing, 8)).astype(np.float32)))
        index.tidy("k")
        index.partition("k")
        trained.append(store.approximate_of(index.moments("k")))
    assert trained == [("flat", 600), ("flat", 600), ("flat", 1240)]
    index.partition("k", kind="sq")
    assert store.approximate_of(index.moments("k")) == ("sq", 1240)
    assert default_probes(index, model) == 16
    for query in generator.standard_normal((5, 8)).astype(np.float32):
        assert search_moments(index, model, query, probes=35) == search_moments(index, model, query)
