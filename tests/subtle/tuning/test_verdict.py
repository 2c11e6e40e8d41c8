"""What tuning was worth: values by hand, chance by enumeration, and an interval over videos."""

from itertools import permutations

import numpy as np
import polars as pl
import pytest

from subtle.tuning.verdict import CHANCE, compare_systems, of_random_order, share_of_deals, verdict


def predictions(queries, targets, ranked):
    return pl.DataFrame({"query_clip_id": queries, "target_clip_ids": targets, "ranked_clip_ids": ranked})


def write_predictions(folder, name, *columns):
    (folder / "predictions" / name).mkdir(parents=True)
    predictions(*columns).write_parquet(folder / "predictions" / name / "0.parquet")


VIDEOS = {"a": "v0", "b": "v0", "c": "v1", "d": "v1", "e": "v1"}


def test_each_system_has_its_map_and_the_gain_over_it(tmp_path):
    for name, ranked in {
        "tuned": ["ebcd", "eacd", "eabd", "eabc"],  # first everywhere
        "zero-shot-average": ["becd", "aecd", "eabd", "abec"],  # 1/2, 1/2, 1, 1/3
    }.items():
        write_predictions(tmp_path, name, list("abcd"), [["e"]] * 4, list(map(list, ranked)))
    found = compare_systems(tmp_path, ["tuned", "zero-shot average"], VIDEOS, gallery_size=5, cutoffs=(1, 5), seed=0)
    assert list(found) == ["tuned", "zero-shot average", CHANCE]
    assert found["tuned"]["map@5"] == 1.0
    assert found["tuned"]["gain@5"] == 0.0
    base = found["zero-shot average"]
    assert base["map@1"] == 0.25
    assert base["map@5"] == pytest.approx((1 / 2 + 1 / 2 + 1 + 1 / 3) / 4)
    assert base["gain@5"] == pytest.approx(1 - base["map@5"])
    assert base["gain@5_interval"] is None  # of 4 queries
    said = verdict(found, 0.3, 5, 4, 2)
    assert "with the labels dealt out at random among the held-out clips it would reach as much in 30.0 %" in said[0]
    assert "no signal" in said[0]
    assert said[1].startswith(
        "It is 41.7 points of mAP@5 above the best other row, 'zero-shot average', over 4 queries"
    )
    assert "too few for an interval, which needs 20 queries of 5 videos" in said[1]


LETTERS = [f"{number:02}" for number in range(24)]


@pytest.mark.parametrize(("num_queries", "num_videos"), [(19, 5), (20, 4), (20, 5)])
def test_an_interval_needs_20_queries_of_5_videos(tmp_path, num_queries, num_videos):
    """The tuned model finds the one answer at rank 1, the other at rank 2, everywhere: a gain of 1/2."""
    for name, ranked in (("tuned", ["x", "y"]), ("other", ["y", "x"])):
        write_predictions(tmp_path, name, LETTERS[:num_queries], [["x"]] * num_queries, [ranked] * num_queries)
    videos = {clip: f"v{number % num_videos}" for number, clip in enumerate([*LETTERS, "x", "y"])}
    found = compare_systems(tmp_path, ["tuned", "other"], videos, gallery_size=26, cutoffs=(5,), seed=0)
    (_, said), (_, without) = (verdict(found, share, 5, num_queries, num_videos) for share in (0.001, 0.5))
    if (num_queries, num_videos) == (20, 5):
        assert found["other"]["gain@5_interval"] == pytest.approx([0.5, 0.5])
        assert "(95 % interval over videos 50.0 to 50.0), 20 queries of 5 held-out videos: better." in said
        assert without.endswith("not clearly better or worse.")  # what beats nothing is no gain
    else:
        assert not any(row[name] for row in found.values() for name in row if name.endswith("_interval"))
        assert "too few for an interval" in said


def test_the_share_of_deals_is_counted_over_all_deals():
    """Two labels of two clips each; each query ranks its right clips first: all 24 deals, one by one."""
    table = predictions(["a", "c"], [["c", "d"], ["a", "b"]], [["c", "d", "b"], ["a", "b", "d"]])

    def reached(dealt):
        found = []
        for row in table.iter_rows(named=True):
            right = {dealt[clip] for clip in row["target_clip_ids"]}
            if row["query_clip_id"] in right:
                continue
            hits = [clip in right for clip in row["ranked_clip_ids"]]
            found.append(sum(hit * sum(hits[: at + 1]) / (at + 1) for at, hit in enumerate(hits)) / len(right))
        return np.mean(found) if found else 0.0

    deals = [reached(dict(zip("abcd", deal, strict=True))) for deal in permutations("abcd")]
    exact = np.mean([one >= reached(dict(zip("abcd", "abcd", strict=True))) - 1e-9 for one in deals])
    assert share_of_deals(table, 5, seed=0) == pytest.approx(exact, abs=0.04)


def drawn_run(folder, seed, *, signal):
    """Rankings of 40 clips of 4 labels in 8 videos by models that read the text, the clip or both, and its verdict.

    Without signal the labels are dealt out at random. Models then still differ: each text ranks all clips in an order
    of its own, so that all queries for one label share their luck.
    """
    draw = np.random.default_rng(seed)
    labels = draw.permutation(np.repeat(np.arange(4), 10))
    clips, videos = [f"c{number:02}" for number in range(40)], [f"v{number % 8}" for number in range(40)]
    queries = [(query, label) for query in range(40) for label in range(4) if label != labels[query]]
    strength = {"two-stage": 1.5, "text-only": 0.3, "video-only": 0.0, "zero-shot average": 0.0}
    for name, gain in strength.items():
        of_text, of_clip = draw.normal(size=(4, 40)), draw.normal(size=(40, 40))
        ranked = []
        for query, label in queries:
            score = {"text-only": of_text[label], "video-only": of_clip[query]}.get(
                name, of_text[label] + of_clip[query]
            )
            score = score + signal * gain * (labels == label)
            ranked.append([clips[place] for place in np.argsort(-score) if place != query][:50])
        right = [[clip for clip, of in zip(clips, labels, strict=True) if of == label] for _, label in queries]
        write_predictions(folder, name.replace(" ", "-"), [clips[query] for query, _ in queries], right, ranked)
    known = dict(zip(clips, videos, strict=True))
    found = compare_systems(folder, list(strength), known, gallery_size=40, cutoffs=(5,), seed=seed)
    share = share_of_deals(pl.read_parquet(folder / "predictions/two-stage/0.parquet"), 5, seed)
    return verdict(found, share, 5, len(queries), 8)


def test_labels_dealt_out_at_random_are_hardly_ever_called_a_gain(tmp_path):
    said = [drawn_run(tmp_path / str(seed), seed, signal=0) for seed in range(10)]
    assert sum("no signal" not in first for first, _ in said) <= 1
    assert sum(second.endswith(": better.") for _, second in said) <= 1


def test_a_gain_is_found_where_there_is_one(tmp_path):
    first, second = drawn_run(tmp_path, 0, signal=1)
    assert "no signal" not in first
    assert second.endswith("120 queries of 8 held-out videos: better.")


def test_chance_is_the_mean_over_all_orders():
    predictions = pl.DataFrame({"target_clip_ids": [["x", "y"]]})
    orders = set(permutations([1, 1, 0, 0]))
    for k in (2, 4):
        exact = np.mean(
            [sum(hit * sum(order[: at + 1]) / (at + 1) for at, hit in enumerate(order[:k])) / 2 for order in orders]
        )
        (found,) = of_random_order(predictions, 5, (k,), seed=0)  # the query's own clip is the fifth
        assert found[0] == pytest.approx(exact, abs=0.02)
