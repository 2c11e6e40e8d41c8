"""A search by a text alone answers without loading the model, unless the model is no longer what it was."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hf_models.encoders import load_encoder
from hf_models.fingerprints import key_of
from hf_models.index.search import search_moments
from hf_models.index.store import IndexedModel, MomentIndex, moment_schema
from hf_models.query_texts import files_of_model
from subtle import ModelChangedError
from subtle.footage import search, text_queries
from subtle.footage.models import vector_origin
from subtle.footage.options import SearchConfig
from subtle.footage.text_queries import exported_text_encoder, keep_text_queries

RECIPES = Path(__file__).parents[2] / "recipes"


def text_query(model, text):
    encoder = exported_text_encoder(model)
    return None if encoder is None else encoder.query(text)


@pytest.fixture(scope="module")
def indexed(tmp_path_factory):
    """An index of 50 moments with vectors by chance, its model and the model's encoder."""
    folder = tmp_path_factory.mktemp("texts")
    name = str(folder / "model")
    shutil.copytree(RECIPES / "weights/miniature-tfcovr", name)
    encoder = load_encoder(name)
    index = MomentIndex.create(folder / "index")
    details = {"files": files_of_model(name), "num_frames": None, "trust_remote_code": False}
    model = index.add(
        IndexedModel(key_of(vector_origin(encoder)), name, vector_origin(encoder), 128, str(folder), details)
    )
    vectors = np.random.default_rng(0).normal(size=(50, 128)).astype(np.float32)
    rows = [
        {"moment_id": str(place), "video": f"{place}.mp4", "start_seconds": 0.0, "end_seconds": 1.0, "vector": vector}
        for place, vector in enumerate(vectors)
    ]
    index.moments(model.key).add(pa.Table.from_pylist(rows, schema=moment_schema(128)))
    assert keep_text_queries(name, encoder) is None
    return index, model, encoder


def test_a_search_by_text_imports_no_torch_and_finds_what_the_model_finds(indexed):
    index, model, encoder = indexed
    code = f"""
import json, runpy, sys
sys.argv = ['search.py', {index.path!r}, '--text', 'show with 2 turns', '--format', 'json']
try:
    runpy.run_path({str(RECIPES / "search.py")!r}, run_name='__main__')
except SystemExit as ended:
    assert not ended.code
print(json.dumps([name for name in ('torch', 'transformers', 'datasets') if name in sys.modules]))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    found, _, imported = run.stdout.rstrip().rpartition("\n")
    assert json.loads(imported) == []
    slow = search_moments(index, model, encoder.query(text="show with 2 turns"))
    assert [row["video"] for row in json.loads(found)] == [row["video"] for row in slow]
    np.testing.assert_allclose([row["score"] for row in json.loads(found)], [row["score"] for row in slow], atol=1e-5)


def test_an_export_that_is_there_is_kept(indexed):
    _, model, encoder = indexed
    path = text_queries.folder_of(model.name, model.key) / "text.onnx"
    before = path.stat().st_mtime_ns
    assert keep_text_queries(model.name, encoder) is None
    assert path.stat().st_mtime_ns == before


def test_a_text_that_is_refused_is_refused_in_the_same_words(indexed):
    index, model, _ = indexed
    with pytest.raises(ValueError, match="has 302 tokens and the model reads 32; shorten it"):
        search.find(SearchConfig(index=index.path, text=" ".join(["turn"] * 300), device="cpu"))
    with pytest.raises(ValueError, match="the text is empty"):
        text_query(model, " ")


def test_the_model_itself_answers_where_the_export_cannot(indexed, tmp_path):
    index, model, encoder = indexed
    assert text_query(model, "a vault") is not None
    runs_code = replace(model, details=model.details | {"trust_remote_code": True})
    others = (replace(model, key="../" + model.key), replace(model, dimensions=64), runs_code)
    assert [text_query(other, "a vault") for other in others] == [None] * 3
    weights = text_queries.folder_of(model.name, model.key) / "text.onnx"
    content = weights.read_bytes()
    weights.write_bytes(b"")
    try:
        assert text_query(model, "a vault") is None
        config = SearchConfig(index=index.path, text="a vault", device="cpu")
        assert search.find(config) == search_moments(index, model, encoder.query(text="a vault"))
    finally:
        weights.write_bytes(content)


def test_an_index_does_not_bring_the_program_that_answers(indexed, tmp_path):
    """Also where the model's folder holds no file, so that what an index says of it would be true."""
    index, model, _ = indexed
    path = tmp_path / "index"
    shutil.copytree(index.path, path)
    kept = text_queries.folder_of(model.name, model.key)
    key = "stranger"
    shutil.copytree(kept, path / "text_queries" / key)
    for state in ({}, None):
        (path / "text_queries" / key / "model.json").write_text(json.dumps(state))
        (tmp_path / "empty").mkdir(exist_ok=True)
        details = model.details | {"files": state}
        stranger = replace(model, key=key, name=str(tmp_path / "empty"), details=details)
        assert MomentIndex(path).add(stranger)
        assert text_query(stranger, "a vault") is None
    with pytest.raises(SystemExit, match="empty"):
        search.find(SearchConfig(index=str(path), model=key, text="a vault", device="cpu"))


def test_a_folder_without_files_of_a_model_matches_nothing(indexed, tmp_path):
    _, model, encoder = indexed
    (tmp_path / "empty").mkdir()
    assert keep_text_queries(str(tmp_path / "empty"), encoder) is None
    assert not list(text_queries.folder_of(str(tmp_path / "empty"), model.key).glob("*"))


def test_the_first_search_by_text_exports_what_answers_the_next(indexed):
    index, model, encoder = indexed
    shutil.rmtree(text_queries.folder_of(model.name, model.key))
    assert text_query(model, "a vault") is None
    found = search.find(SearchConfig(index=index.path, text="a vault", device="cpu"))
    np.testing.assert_allclose(text_query(model, "a vault"), encoder.query(text="a vault"), atol=1e-5)
    assert [row["video"] for row in search.find(SearchConfig(index=index.path, text="a vault", device="cpu"))] == [
        row["video"] for row in found
    ]


def test_an_approximate_search_needs_an_approximate_index(indexed):
    index, _, _ = indexed
    with pytest.raises(ValueError, match="again with --approximate, or search exactly"):
        search.find(SearchConfig(index=index.path, text="a vault", device="cpu", approximate=True))
    with pytest.raises(ValueError, match="--probes 8: it is of --approximate"):
        SearchConfig(index=index.path, text="a vault", probes=8)


def test_a_model_that_has_changed_is_loaded_and_refused(indexed):
    index, model, _ = indexed
    asked = SearchConfig(index=index.path, text="a vault", device="cpu")
    name = Path(model.name, "processor_config.json")
    content = name.read_text()
    name.write_text(json.dumps(json.loads(content) | {"number_words": True}))
    try:
        assert text_query(model, "a vault") is None
        with pytest.raises(ModelChangedError, match="has changed since it made the vectors"):
            search.find(asked)
    finally:
        name.write_text(content)
    assert search.find(asked)  # its file is newer, with the same content


def test_a_model_of_the_hub_is_known_by_its_commit(indexed, monkeypatch):
    _, model, encoder = indexed
    hub = replace(model, name="owner/model", details=model.details | {"files": None})
    commits = {None: None, "0a1b": encoder.query(text="a vault"), "2c3d": None}
    for commit, expected in commits.items():
        monkeypatch.setattr(text_queries, "cached_commit", lambda name, commit=commit: commit)
        if commit != "2c3d":
            assert keep_text_queries(hub.name, encoder) is None
        answer = text_query(hub, "a vault")
        assert (answer is None) == (expected is None)
        assert expected is None or np.abs(answer - expected).max() < 1e-5
