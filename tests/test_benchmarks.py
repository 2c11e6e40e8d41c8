"""The benchmark of the index: which setting of a way counts, and the data that all ways get."""

import math

import numpy as np
import pytest

from benchmarks import __main__ as bench
from benchmarks.feedback import Searched, measured
from benchmarks.generation import SERVER
from benchmarks.index import SEARCH, clustered, ratios
from benchmarks.index_ways import blocks, miniature_index
from benchmarks.startup import STAGE2
from metrics.map_at_k.scoring import mean_average_precision
from subtle import open_index


def results(recall, per_second):
    return {kind: {"recall": recall, "per_second": per_second} for kind in ("all", "filtered")}


def test_the_fastest_setting_that_finds_enough_counts():
    settings = {"fast": results(0.9, 100.0), "good": results(0.96, 50.0), "best": results(0.995, 10.0)}
    lines = list(ratios("way", settings, {"all": 5.0, "filtered": 25.0}, "costs"))
    assert [(line.what, line.value) for line in lines] == [
        ("way, recall 0.95", 10.0),
        ("way, recall 0.99", 2.0),
        ("way, filtered, recall 0.95", 2.0),
        ("way, filtered, recall 0.99", 0.4),
    ]
    assert "with best; costs" in lines[1].detail


def test_a_way_that_never_finds_enough_says_what_it_finds():
    lines = list(ratios("way", {"fast": results(0.96, 100.0)}, {"all": 5.0, "filtered": 5.0}, "costs"))
    assert [math.isnan(line.value) for line in lines] == [False, True, False, True]
    assert lines[1].detail.startswith("its best recall is 0.960")


def test_the_first_way_is_the_baseline():
    exact = {}
    lines = list(ratios("way", {"": results(1.0, 4.0)}, exact, "costs"))
    assert [line.value for line in lines] == [1.0, 1.0]
    assert exact == {"all": 4.0, "filtered": 4.0}


def test_moments_of_a_kind_lie_closer_together_than_those_of_a_sport():
    generator = np.random.default_rng(0)
    centers = tuple(generator.standard_normal((count, 64)).astype(np.float32) / 8 for count in (4, 8))
    rows = clustered(2000, 64, centers, generator)
    kinds = np.argmax(rows @ (centers[0][np.arange(8) % 4] + 0.7 * centers[1]).T, axis=1)
    products = rows @ rows.T
    same_kind, same_sport = kinds[:, None] == kinds, kinds[:, None] % 4 == kinds % 4
    means = [products[which].mean() for which in (same_kind, same_sport & ~same_kind, ~same_sport)]
    assert means[0] > means[1] + 0.1 > means[2] + 0.2
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


def test_blocks_are_the_vectors_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.index_ways.AT_ONCE", 3)
    vectors = np.arange(20, dtype=np.float32).reshape(10, 2)
    np.save(tmp_path / "vectors.npy", vectors)
    found = list(blocks(tmp_path))
    assert [start for start, _ in found] == [0, 3, 6, 9]
    np.testing.assert_array_equal(np.concatenate([block for _, block in found]), vectors)


def test_the_programs_that_benchmarks_start_are_there():
    assert all(path.is_file() for path in (SEARCH, SERVER, STAGE2))


def test_the_index_of_noise_answers_a_query_by_text(tmp_path):
    with open_index(miniature_index(tmp_path, 30), device="cpu") as index:
        assert len(index.search(text="show with 2 turns", limit=3)) == 3


def test_sizes_are_typed_as_moments_by_dimensions():
    assert bench.size_of("100000x256") == (100_000, 256)
    for wrong in ("100000", "10x256", "axb", "100000x-1"):
        with pytest.raises(Exception, match="at least 1000x16"):
            bench.size_of(wrong)


def test_marks_are_measured_with_the_judged_clips_and_without():
    generator = np.random.default_rng(0)
    clips = generator.standard_normal((40, 8))
    fits, own = np.zeros((6, 40), bool), np.zeros((6, 40), bool)
    fits[:, 3::4] = True
    own[:, 0] = True
    data = Searched(generator.standard_normal((6, 8)), clips, fits, own, np.arange(6))
    still = measured(data, (1.0, 0.0, 0.0))
    np.testing.assert_allclose(still["all"][0], still["all"][1])
    np.testing.assert_allclose(still["rest"][0], still["rest"][1])
    names = [str(place) for place in range(40)]
    for which, first in (("all", 0), ("rest", 5)):
        ranked = [[names[place] for place in row[first:-1]] for row in data.order(data.queries)]
        relevant = [[name for name in row if fits[0, int(name)]] for row in ranked]
        expected = mean_average_precision(ranked, relevant, k=50)["map@50"]
        assert still[which][0].mean() == pytest.approx(expected)
