"""Triplets: exhaustive, unique, split by long video; queries with every target clip."""

import itertools

import polars as pl
import pyarrow as pa
import pytest

from hf_datasets.tfcovr.triplets import (
    CHANGE_SCHEMA,
    TRIPLET_SCHEMA,
    composed_queries,
    join_clips,
    labels_without_clips,
    plan_join,
    split_by_video,
    train_triplets,
)

# 180 and 216 read the same; 40, 41 and 45 do not.
CLIPS = pl.DataFrame(
    {
        "clip_id": ["a", "b", "c", "d", "e", "f"],
        "video_id": ["v1", "v1", "v2", "v2", "v3", "v3"],
        "label": ["40", "41", "41", "180", "216", "40"],
    }
)
CHANGES = pl.DataFrame(
    [
        ("40", "41", "temporal", "show with 1 turn"),
        ("40", "180", "event", "show on Balance Beam"),
        ("40", "216", "event", "show it on Balance Beam"),
        ("216", "41", "event", "show a switch leap"),
        ("45", "40", "temporal", "show with 0.5 turn"),
    ],
    schema=CHANGE_SCHEMA,
    orient="row",
)


def joined(*arguments, **options):
    return pl.from_arrow(pa.concat_tables(join_clips(plan_join(*arguments, **options))))


def rows_of(tables):
    return pa.concat_tables(tables).to_pylist()


def test_every_source_clip_is_joined_with_every_target_clip_once():
    rows = rows_of(train_triplets(CLIPS, CHANGES)())
    found = [(row["query_clip_id"], *row["target_clip_ids"]) for row in rows]
    assert found == [*itertools.product("af", "bc"), *itertools.product("af", "de"), *itertools.product("e", "bc")]
    assert len(set(found)) == len(found)
    assert [row["query_id"] for row in rows] == [f"train-{number}" for number in range(10)]
    assert rows[0] == {
        "query_id": "train-0",
        "query_clip_id": "a",
        "query_label": "40",
        "modification_text": "show with 1 turn",
        "change_type": "temporal",
        "target_clip_ids": ["b"],
        "target_label": "41",
    }
    assert rows[-1]["query_label"] == "216"
    assert rows[5]["target_label"] == "216", "a triplet has its own target clip's label"


def test_the_join_equals_a_reference_in_plain_python():
    labels = ["40", "41", "45", "46", "180", "216", "136"]
    clips = pl.DataFrame({"clip_id": [f"c{i}" for i in range(200)], "label": [labels[i * i % 7] for i in range(200)]})
    changes = pl.DataFrame(
        [(a, b, "temporal", f"{a} {b}") for a, b in itertools.permutations(labels, 2) if {a, b} != {"180", "216"}],
        schema=CHANGE_SCHEMA,
        orient="row",
    )
    expected = set()
    for source, target, *_ in changes.iter_rows():
        answers = {"180", "216"} if target in {"180", "216"} else {target}
        queries = [clip for clip, label in clips.iter_rows() if label == source]
        expected |= set(itertools.product(queries, [clip for clip, label in clips.iter_rows() if label in answers]))
    batches = joined(clips, changes)
    found = list(
        zip(clips["clip_id"].gather(batches["query"]), clips["clip_id"].gather(batches["target"]), strict=True)
    )
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert all(query != target for query, target in found)


def test_batches_do_not_change_the_triplets(monkeypatch):
    whole = rows_of(train_triplets(CLIPS, CHANGES)())
    monkeypatch.setattr("hf_datasets.tfcovr.triplets.JOINED_ROWS", 3)
    monkeypatch.setattr("hf_datasets.tfcovr.triplets.TABLE_ROWS", 2)
    tables = list(train_triplets(CLIPS, CHANGES)())
    assert len(tables) > 3
    assert rows_of(tables) == whole


def test_a_cap_keeps_that_many_of_each_pair_and_the_seed_decides_which():
    clips = pl.DataFrame({"clip_id": [f"c{i}" for i in range(60)], "label": ["40", "41", "45"] * 20})
    all_rows = joined(clips, CHANGES)
    capped = [joined(clips, CHANGES, max_triplets_per_pair=7, seed=seed) for seed in (0, 0, 1)]
    assert capped[0].group_by("change").len()["len"].to_list() == [7, 7]
    assert capped[0].equals(capped[1])
    assert not capped[0].equals(capped[2])
    assert capped[0].join(all_rows, on=all_rows.columns, how="anti").is_empty()
    assert joined(clips, CHANGES, max_triplets_per_pair=10_000).equals(all_rows)


@pytest.mark.parametrize("cap", [0, -1])
def test_a_cap_below_one_is_refused(cap):
    with pytest.raises(ValueError, match=f"max_triplets_per_pair is {cap}"):
        plan_join(CLIPS, CHANGES, max_triplets_per_pair=cap)


def test_a_change_between_labels_that_read_the_same_is_refused():
    same = pl.DataFrame([("180", "216", "temporal", "show it")], schema=CHANGE_SCHEMA, orient="row")
    with pytest.raises(ValueError, match="'180' and '216' read the same"):
        plan_join(CLIPS, same)
    with pytest.raises(ValueError, match="read the same"):
        composed_queries(CLIPS, same, "test")


def test_a_query_has_all_clips_that_answer_it_and_never_itself():
    rows = rows_of(composed_queries(CLIPS, CHANGES, "test")())
    assert [(row["query_id"], row["query_clip_id"], row["target_clip_ids"]) for row in rows] == [
        ("test-0", "a", ["b", "c"]),
        ("test-1", "f", ["b", "c"]),
        ("test-2", "a", ["d", "e"]),
        ("test-3", "f", ["d", "e"]),
        ("test-4", "e", ["b", "c"]),
    ]
    assert {row["target_label"] for row in rows[2:4]} == {"180"}
    assert all(row["query_clip_id"] not in row["target_clip_ids"] for row in rows)


def test_a_join_without_clips_gives_the_columns_without_rows():
    empty = CLIPS.clear()
    assert pa.concat_tables(composed_queries(empty, CHANGES, "test")()).schema == TRIPLET_SCHEMA
    assert not rows_of(composed_queries(empty, CHANGES, "test")())
    assert list(train_triplets(empty, CHANGES)()) == []


def test_a_label_without_clips_is_counted_with_its_changes():
    rejections = list(labels_without_clips(CLIPS, CHANGES, "train"))
    assert [rejection.key for rejection in rejections] == ["45"]
    assert "'45' has none, so 1 changes give nothing" in rejections[0].reason


def test_a_long_video_is_in_one_split_only():
    clips = pl.DataFrame({"clip_id": map(str, range(500)), "video_id": [f"v{i % 50:02}" for i in range(500)]})
    split = split_by_video(clips, validation_fraction=0.1, test_fraction=0.2, seed=3)
    assert split.group_by("video_id").agg(pl.col("split").n_unique())["split"].unique().to_list() == [1]
    sizes = dict(split.group_by("split").agg(pl.col("video_id").n_unique()).iter_rows())
    assert sizes == {"train": 35, "validation": 5, "test": 10}
    assert split["clip_id"].equals(clips["clip_id"])
    assert split.equals(split_by_video(clips.reverse(), validation_fraction=0.1, test_fraction=0.2, seed=3).reverse())
    assert not split.equals(split_by_video(clips, validation_fraction=0.1, test_fraction=0.2, seed=4))


@pytest.mark.parametrize("fractions", [(-0.1, 0.2), (0.5, 0.5)])
def test_fractions_that_leave_nothing_to_train_on_are_refused(fractions):
    with pytest.raises(ValueError, match="sum below 1"):
        split_by_video(CLIPS, validation_fraction=fractions[0], test_fraction=fractions[1])
