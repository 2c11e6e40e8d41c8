"""Streaming in the workers of a DataLoader: forked from a process that has used Polars, they may not use it."""

import json
import os
from pathlib import Path

import datasets
import polars as pl
import pyarrow as pa
import pytest

from hf_datasets.builders import BUILDERS
from hf_datasets.sharding import shards_of
from hf_datasets.tfcovr.triplets import composed_queries, train_triplets

CHECKOUT = Path(__file__).parents[2]
MOMENT = {"video": "AKKWU", "time": [13, 38], "desc_id": 13612, "duration": 13.2, "cog_desc": "a person eats.",
          "fig_desc": "A person eats an apple.", "fig_desc_score": -5.38}  # fmt: skip


@pytest.fixture
def releases(tmp_path):
    """One folder with the smallest releases of TF-CoVR and Charades-FIG."""
    folder = tmp_path / "release"
    folder.mkdir()
    train = "query_video,target_video,label1,label2,modification\na_1,b_1,40,41,show with 1 turn\n"
    (folder / "train.csv").write_text(train)
    (folder / "test.csv").write_text(
        "query_id,query_video,modification,target_video,target_videos_ids\nq,c_1,show it,d_1,\"['d_1']\"\n"
    )
    (folder / "charades_fig_test.jsonl").write_text(json.dumps(MOMENT) + "\n")
    return folder


def test_every_name_streams_in_forked_workers_and_on_nodes_without_hanging(miniature, releases, tmp_path, warm_python):
    cases = [(name, "mini", str(miniature)) for name in BUILDERS]
    cases += [(name, "mini-clips", str(miniature)) for name in ("tfcovr", "activitynet_comp")]
    cases += [("charades_fig", "mini-videos", str(miniature)), ("charades_fig", "release", str(releases))]
    cases += [("tfcovr", config, str(releases)) for config in ("release", "release-clips")]
    shared = [("tfcovr", "mini", str(miniature)), ("didemo_fig", "mini-videos", str(miniature))]
    environment = os.environ | {"HF_DATASETS_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    command = ["tests/fixtures/streaming_workers.py", json.dumps(cases), json.dumps(shared)]
    done = warm_python.run(command, cwd=CHECKOUT, env=environment | {"PYTHONPATH": str(CHECKOUT)})
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    on_nodes = {case: found.pop(case) for case in ("tfcovr mini shared", "didemo_fig mini-videos shared")}
    assert set(found) == {f"{name} {config}" for name, config, _ in cases}
    assert all(found.values()), found
    assert all(all(rows) for rows in on_nodes.values()), on_nodes


@pytest.mark.parametrize(
    ("name", "config"),
    [("tfcovr", "mini"), ("tfcovr", "mini-clips"), ("youcook2_comp", "mini"), ("charades_fig", "mini-videos")],
)
def test_shards_hold_the_rows_of_the_whole_in_their_order(name, config, miniature):
    def load(**options):
        return datasets.load_dataset(name, config, data_dir=str(miniature), split="train", **options)

    stream = load(streaming=True).decode(False)
    if name == "tfcovr" and config == "mini":
        assert stream.num_shards == 6, "each of six changes is whole"
    parts = [list(stream.shard(stream.num_shards, index)) for index in range(stream.num_shards)]
    assert all(parts)
    whole = list(stream)
    assert [row for part in parts for row in part] == whole
    stored = load()
    if config.endswith("-videos"):
        stored = stored.cast_column("video", datasets.Video(decode=False))
    assert stored.to_list() == whole


def test_rows_are_cut_into_at_most_sixteen_shards_and_a_change_stays_whole():
    rows = pl.DataFrame(
        {"source": ["40", "41"], "target": ["41", "40"], "change_type": "temporal", "modification_text": "x"}
    )
    clips = pl.DataFrame({"clip_id": [f"c{n}" for n in range(60)], "label": ["40", "41"] * 30})
    shards = train_triplets(clips, rows)
    assert len(shards.parts) == 2
    assert pa.concat_tables(table for part in shards.parts for table in part()).equals(pa.concat_tables(shards()))
    queries = composed_queries(clips, rows, "test")
    assert [sum(map(len, part())) for part in queries.parts] == [4] * 15
    assert [len(table) for part in shards_of(pa.table({"n": range(1000)})).parts for table in part()] == [62, 63] * 8


def test_processes_that_prepare_together_write_what_one_writes(miniature, tmp_path):
    def load(folder, **options):
        folder = str(tmp_path / folder)
        return datasets.load_dataset("activitynet_comp", data_dir=str(miniature), cache_dir=folder, **options)

    alone, together = load("one"), load("two", num_proc=2)
    assert len(together["train"].cache_files) == 2
    assert {split: rows.to_list() for split, rows in alone.items()} == {
        split: rows.to_list() for split, rows in together.items()
    }
    description = alone["train"].info.description
    assert together["train"].info.description == description
    assert "rows were refused" in description, "refused rows are known however many processes write"
