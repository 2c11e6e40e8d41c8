"""The vectors of an index in memory-mapped files find what a sort of all products finds."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from huggingface_hub import constants

pytest.importorskip("lancedb")

from stored_moments import file_rows, moment_table

from hf_models.index import matrix as matrix_module
from hf_models.index.matrix import MomentMatrix
from hf_models.index.search import search_many, search_moments
from hf_models.index.store import IndexedModel, MomentIndex

MODEL = IndexedModel("key", "name", {}, 4, "/videos")


def fill(index, videos, *, seed=0, moments=5, gone=()):
    """Replace the moments of some videos; few different numbers, so that many scores are equal."""
    vectors = np.random.default_rng(seed).integers(-2, 3, (len(videos) * moments, 4)).astype(np.float32)
    index.replace(MODEL.key, moment_table(videos, vectors.tolist()), file_rows(videos, moments), gone=gone)


def stored(index):
    return MomentIndex(index.path).moments(MODEL.key).to_arrow().to_pylist()


def by_hand(index, query, limit, keep=lambda row: True, rows=None):
    """A second implementation: all products in Python, sorted."""
    scored = [(float(np.dot(np.float32(row["vector"]), query)), row) for row in rows or stored(index) if keep(row)]
    scored.sort(key=lambda one: (-one[0], *(one[1][name] for name in ("video", "start_seconds", "end_seconds"))))
    return [(row["moment_id"], score) for score, row in scored[:limit]]


def found(index, query, limit=7, **narrowing):
    return [(row["moment_id"], row["score"]) for row in search_moments(index, MODEL, query, limit=limit, **narrowing)]


def queries(number, seed=1):
    return np.random.default_rng(seed).integers(-3, 4, (number, 4)).astype(np.float32)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(matrix_module, "ROWS_PER_BATCH", 8)
    monkeypatch.setattr(matrix_module, "ROWS_PER_PRODUCT", 11)


@pytest.fixture
def index(tmp_path):
    index = MomentIndex.create(tmp_path / "index")
    index.add(MODEL)
    fill(index, [f"{number:02}.mp4" for number in range(20)])
    return index


def test_hundreds_of_queries_with_ties_find_what_a_sort_finds(index):
    asked, rows = queries(400), stored(index)
    expected = [by_hand(index, query, 7, rows=rows) for query in asked[:100]]
    assert [found(index, query) for query in asked[:100]] == expected
    together = search_many(index, MODEL, asked, limit=7)
    assert [[(row["moment_id"], row["score"]) for row in rows] for rows in together[:100]] == expected
    assert together[100:] == [search_moments(index, MODEL, query, limit=7) for query in asked[100:]]


def test_filters_choose_rows_alone_and_together(index):
    for query in queries(20):
        expected = by_hand(index, query, 7, lambda row: row["label"] == "a" and row["start_seconds"] < 3)
        assert found(index, query, where="label = 'a' AND start_seconds < 3") == expected
        assert found(index, query, exclude_fingerprint="03.mp4", limit=200) == by_hand(
            index, query, 200, lambda row: row["video"] != "03.mp4"
        )
    asked = queries(5)
    together = search_many(index, MODEL, asked, limit=3, where="label = 'b'")
    assert together == [search_moments(index, MODEL, query, limit=3, where="label = 'b'") for query in asked]
    assert search_many(index, MODEL, asked, where="label = 'nothing'") == [[]] * 5


def test_only_what_changed_is_read_again(index, monkeypatch):
    written = []
    real = MomentMatrix.written
    monkeypatch.setattr(
        MomentMatrix, "written", lambda self, table, ids: written.append(len(ids)) or real(self, table, ids)
    )
    query = queries(1)[0]
    found(index, query)
    fill(index, ["20.mp4"], seed=1)
    assert found(index, query, 200) == by_hand(index, query, 200)
    fill(index, ["03.mp4"], seed=2)  # its old rows go
    assert found(index, query, 200) == by_hand(index, query, 200)
    index.remove(MODEL.key, ["05.mp4"])
    assert found(index, query, 200) == by_hand(index, query, 200)
    assert written == [100, 5, 5]
    again = MomentIndex(index.path)  # another process finds it done
    assert found(again, query, 200) == by_hand(index, query, 200)
    assert written == [100, 5, 5]
    for number in range(30, 42):
        fill(index, [f"{number}.mp4"], seed=number)
        assert found(index, query, 200) == by_hand(index, query, 200)
    assert len(index.matrices[MODEL.key].parts) <= matrix_module.MOST_PARTS
    assert max(written) > 100  # all in one again
    index.tidy(MODEL.key)
    index.remove(MODEL.key, [f"{number:02}.mp4" for number in range(42)])
    assert found(index, query) == []


def test_an_index_that_went_back_or_was_made_anew_in_the_same_place_is_read_again(index, tmp_path):
    query = queries(1)[0]
    shutil.copytree(index.path, tmp_path / "before")
    fill(index, ["20.mp4", "21.mp4"], seed=1)
    assert found(index, query, 200) == by_hand(index, query, 200)
    shutil.rmtree(index.path)
    shutil.copytree(tmp_path / "before", index.path)
    back = MomentIndex(index.path)
    fill(back, ["21.mp4", "20.mp4"], seed=3)  # with the row ids that others had
    for one in (back, index):
        assert found(one, query, 200) == by_hand(index, query, 200)
    shutil.rmtree(index.path)
    new = MomentIndex.create(index.path)
    new.add(MODEL)
    fill(new, [f"{number:02}.mp4" for number in range(20)], seed=4)
    for one in (new, back):
        assert found(one, query, 200) == by_hand(new, query, 200)


@pytest.mark.parametrize("damage", ["vectors", "row_ids", "columns", "kept", "matrix.json", "gone"])
def test_damaged_files_are_made_again(index, damage):
    query = queries(1)[0]
    found(index, query)
    index.remove(MODEL.key, ["05.mp4"])
    found(index, query)
    folder = index.matrices[MODEL.key].folder
    (folder / "unfinished.vectors").write_bytes(b"a run that was killed")
    for path in folder.iterdir():
        if damage == "gone" and path.name != "matrix.json":
            path.unlink()
        elif path.name.endswith(damage):
            path.write_bytes(path.read_bytes()[:-7])
    again = MomentIndex(index.path)
    assert found(again, query, 200) == by_hand(index, query, 200)
    fill(again, ["20.mp4"], seed=1)
    found(again, query)
    assert not (folder / "unfinished.vectors").exists()


def test_threads_that_search_while_another_adds_see_one_version_or_the_next(index):
    query, stop = queries(1)[0], threading.Event()
    allowed = {tuple(by_hand(index, query, 3))}

    def ask():
        seen = set()
        while not stop.is_set():
            seen.add(tuple(found(index, query, 3)))
        return seen

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask) for _ in range(4)]
        try:
            writer = MomentIndex(index.path)
            for number in range(20, 26):
                fill(writer, [f"{number}.mp4"], seed=number)
                allowed.add(tuple(by_hand(index, query, 3)))
        finally:
            stop.set()
        assert set().union(*(one.result() for one in asking)) <= allowed


def test_a_cache_that_cannot_be_written_is_named_with_what_to_set(index, tmp_path):
    (tmp_path / "file").write_text("no folder")
    index.matrices[MODEL.key] = MomentMatrix(index, MODEL)
    index.matrices[MODEL.key].folder = tmp_path / "file" / "vectors"
    with pytest.raises(OSError, match="HF_ASSETS_CACHE"):
        found(index, queries(1)[0])


def test_vectors_lie_in_the_users_cache_in_arrays_that_are_not_read_whole(index):
    matrix = MomentMatrix(index, MODEL)
    (part,) = matrix.refresh()
    assert matrix.folder.is_relative_to(constants.HF_ASSETS_CACHE)
    assert isinstance(part.vectors.base, np.memmap)
    assert part.columns.num_record_batches == 13
    taken = part.take(np.array([99, 0, 99]))
    assert taken["moment_id"].to_pylist() == ["19.mp4#4", "00.mp4#0", "19.mp4#4"]


def test_files_of_an_index_that_is_there_no_more_are_removed_for_the_next_one(index, tmp_path):
    removed, following = (MomentIndex.create(tmp_path / name) for name in ("removed", "following"))
    folders = []
    for one in (index, removed, following):
        if one is not index:
            one.add(MODEL)
            fill(one, ["00.mp4"])
        folders.append(MomentMatrix(one, MODEL).folder)
        MomentMatrix(one, MODEL).refresh()
        assert all(folder.is_dir() for folder in folders) == (one is not following)
        if one is removed:
            shutil.rmtree(tmp_path / "removed")
    assert [folder.is_dir() for folder in folders] == [True, False, True]
