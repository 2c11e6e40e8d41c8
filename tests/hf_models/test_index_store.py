"""An index while it is written: several writers, commit after commit, and what is on the disk when one counts."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from stored_moments import file_rows, moment_table

from hf_models.index import store
from hf_models.index.search import search_moments
from hf_models.index.store import IndexedModel, MomentIndex, moment_schema

MODEL = IndexedModel("k", "m", {}, 4, "/")


def moments_of(*videos, number=3, value=1.0):
    return moment_table(videos, [[value, place, 0, 0] for _ in videos for place in range(number)])


def replace_videos(index, *videos, number=3, **options):
    index.replace("k", moments_of(*videos, number=number, **options), file_rows(videos, number))


@pytest.fixture
def index(tmp_path):
    made = MomentIndex.create(tmp_path / "index")
    made.add(MODEL)
    return made


def test_two_writers_of_the_same_videos_leave_each_moment_once(index):
    writers = [MomentIndex(index.path) for _ in range(2)]
    for number in range(3):
        names = [f"{number}-{place}" for place in range(3)]
        with ThreadPoolExecutor(2) as pool:
            for ended in [pool.submit(replace_videos, writer, *names) for writer in writers]:
                ended.result()
    ids = index.moments("k").to_arrow()["moment_id"].to_pylist()
    assert len(ids) == len(set(ids)) == 3 * 3 * 3
    assert index.database.open_table("files_k").count_rows() == 9
    assert not index.incomplete("k")


def test_a_video_that_is_replaced_keeps_none_of_its_earlier_moments(index):
    replace_videos(index, "a", "b", number=5)
    replace_videos(index, "a", number=2, value=7.0)
    rows = index.moments("k").to_arrow().to_pylist()
    assert sorted(row["moment_id"] for row in rows) == ["a#0", "a#1", *(f"b#{place}" for place in range(5))]
    assert {row["vector"][0] for row in rows if row["video"] == "a"} == {7.0}
    index.replace("k", moments_of("c"), file_rows("c", 3), gone=["a"])
    assert set(index.files("k")) == {"b", "c"}
    assert not index.incomplete("k")


def test_many_commits_leave_few_files_and_little_that_is_old(index, monkeypatch):
    monkeypatch.setattr(store, "COMMITS_PER_COMPACTION", 3)
    folder = Path(index.path)
    most = 0
    for number in range(25):
        replace_videos(index, f"{number}.mp4")
        most = max(most, *(len(list(folder.glob(f"{table}_k.lance/data/*"))) for table in ("moments", "files")))
        assert len(search_moments(index, MODEL, np.ones(4, np.float32), limit=3)) == 3
    assert most < 20, "not one for each commit"
    assert len(list(folder.glob("moments_k.lance/_versions/*.manifest"))) < 20
    assert index.moments("k").count_rows() == 25 * 3
    assert index.moments("k").index_stats("video_idx").num_unindexed_rows <= 2 * 3


def test_an_index_that_another_version_of_lancedb_wrote_is_left_as_it_is(index, monkeypatch):
    replace_videos(index, "a")

    def refuse(*_, **__):
        raise RuntimeError("lance error: LanceError(NotSupported): this table needs a newer version")

    before = sorted(Path(index.path).rglob("*"))
    with monkeypatch.context() as patched:
        patched.setattr(type(index.database), "open_table", refuse)
        with pytest.raises(RuntimeError, match="newer version"):
            MomentIndex.create(index.path)
    assert sorted(Path(index.path).rglob("*")) == before


def test_a_commit_that_is_over_is_on_the_disk(index, monkeypatch):
    written = set()
    fsync = os.fsync

    def noting(file):
        written.add(os.fstat(file).st_ino)
        fsync(file)

    monkeypatch.setattr(os, "fsync", noting)
    before = set(Path(index.path).rglob("*"))
    replace_videos(index, "a", "b")
    new = {path for path in Path(index.path).rglob("*") if "_transactions" not in path.parts} - before
    assert len(new) >= 4, "data and version of two tables"
    assert {path.stat().st_ino for path in new} | {path.parent.stat().st_ino for path in new} <= written


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 3e38, -3e38, None], ids=str)
def test_a_vector_that_cannot_be_scored_is_an_error_and_no_moment_that_is_silently_left_out(index, wrong):
    replace_videos(index, "a", number=40)
    assert search_moments(index, MODEL, np.ones(4), limit=2)[0]["moment_id"] == "a#39"
    vector = pa.array([None if wrong is None else [1.0, wrong, -wrong, 0]], pa.list_(pa.float32(), 4))
    row = moments_of("b", number=1)
    rows = [moments_of("a", number=40), row.set_column(row.num_columns - 1, row.schema.field("vector"), vector)]
    how = {"mode": "overwrite", "on_bad_vectors": "fill", "fill_value": float("nan")}  # as it is given
    index.database.create_table("moments_k", pa.concat_tables(rows), **how)
    with pytest.raises(ValueError, match=r"vector of the moment 'b#0' is missing, not finite or beyond 1e15"):
        search_moments(index, MODEL, np.ones(4), limit=2)
    index.moments("k").delete("moment_id = 'b#0'")
    assert len(search_moments(index, MODEL, np.ones(4), limit=2)) == 2


def test_a_moment_without_a_video_is_named_when_an_index_is_updated(index):
    replace_videos(index, "a")
    rows = moments_of("a").to_pylist()
    rows[0]["video"] = None
    index.database.create_table("moments_k", pa.Table.from_pylist(rows, schema=moment_schema(4)), mode="overwrite")
    with pytest.raises(ValueError, match="a moment names no video"):
        index.incomplete("k")
