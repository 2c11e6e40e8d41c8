"""What tuning was worth: values by hand, chance by enumeration, and an interval over videos."""

from itertools import permutations

import numpy as np
import polars as pl
import pytest

from harness.intervals import interval_of_mean
from tuning.verdict import CHANCE, compare, of_random_order, sentence


def write_predictions(folder, name, ranked):
    """Two queries of each of two videos: clips a, b of the video v0 and c, d of v1; e is the answer to all."""
    table = pl.DataFrame(
        {
            "query_clip_id": list("abcd"),
            "target_clip_ids": [["e"]] * 4,
            "ranked_clip_ids": [list(one) for one in ranked],
        }
    )
    (folder / "predictions" / name).mkdir(parents=True)
    table.write_parquet(folder / "predictions" / name / "0.parquet")


VIDEOS = {"a": "v0", "b": "v0", "c": "v1", "d": "v1", "e": "v1"}


def test_each_system_has_its_map_and_the_gain_over_it(tmp_path):
    write_predictions(tmp_path, "tuned", ["ebcd", "eacd", "eabd", "eabc"])  # first everywhere
    write_predictions(tmp_path, "zero-shot-average", ["becd", "aecd", "eabd", "abec"])  # 1/2, 1/2, 1, 1/3
    found = compare(tmp_path, ["tuned", "zero-shot average"], VIDEOS, gallery_size=5, cutoffs=(1, 5), seed=0)
    assert list(found) == ["tuned", "zero-shot average", CHANCE]
    assert found["tuned"]["map@5"] == 1.0
    assert found["tuned"]["gain@5"] == 0.0
    base = found["zero-shot average"]
    assert base["map@1"] == 0.25
    assert base["map@5"] == pytest.approx((1 / 2 + 1 / 2 + 1 + 1 / 3) / 4)
    assert base["gain@5"] == pytest.approx(1 - base["map@5"])
    expected = interval_of_mean(np.array([[1 / 2, 1 / 2, 0, 2 / 3]]), ["v0", "v0", "v1", "v1"])
    assert base["gain@5_interval"] == pytest.approx([expected.low, expected.high])
    text = sentence(found, "zero-shot average", 5, 4, 2)
    assert text.startswith(
        "The tuned model is 41.7 points of mAP@5 above 'zero-shot average' (95 % interval over videos"
    )
    assert "4 queries of 2 held-out videos: 2 videos are too few for a narrow interval to mean much" in text
    sure = {"other": {"gain@5": 0.2, "gain@5_interval": [0.1, 0.3]}}
    assert sentence(sure, "other", 5, 4, 5).endswith("5 held-out videos: better.")
    alone = compare(tmp_path, ["tuned"], dict.fromkeys(VIDEOS, "v"), gallery_size=5, cutoffs=(5,), seed=0)
    assert alone[CHANCE]["gain@5_interval"] is None
    assert sentence(alone, CHANCE, 5, 4, 1).endswith("of one video nothing can be said about others.")


def test_chance_is_the_mean_over_all_orders():
    predictions = pl.DataFrame({"target_clip_ids": [["x", "y"]]})
    orders = set(permutations([1, 1, 0, 0]))
    for k in (2, 4):
        exact = np.mean(
            [sum(hit * sum(order[: at + 1]) / (at + 1) for at, hit in enumerate(order[:k])) / 2 for order in orders]
        )
        (found,) = of_random_order(predictions, 5, (k,), seed=0)  # the query's own clip is the fifth
        assert found[0] == pytest.approx(exact, abs=0.02)
