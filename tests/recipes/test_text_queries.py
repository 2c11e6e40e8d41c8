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
import search
from search import SearchConfig

from hf_models.index.store import IndexedModel, MomentIndex, moment_schema
from hf_models.moment_encoders import key_of, load_moment_encoder
from hf_models.query_texts import files_of_model
from indexing import text_queries
from indexing.text_queries import keep_text_queries, text_query

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture(scope="module")
def indexed(tmp_path_factory):
    """An index of 50 moments with vectors by chance, its model and the model's encoder."""
    folder = tmp_path_factory.mktemp("texts")
    name = str(folder / "model")
    shutil.copytree(RECIPES / "weights/miniature-tfcovr", name)
    encoder = load_moment_encoder(name)
    index = MomentIndex.create(folder / "index")
    details = {"files": files_of_model(name), "num_frames": None, "trust_remote_code": False}
    model = index.add(IndexedModel(key_of(encoder.made_by), name, encoder.made_by, 128, str(folder), details))
    vectors = np.random.default_rng(0).normal(size=(50, 128)).astype(np.float32)
    rows = [
        {"moment_id": str(place), "video": f"{place}.mp4", "start_seconds": 0.0, "end_seconds": 1.0, "vector": vector}
        for place, vector in enumerate(vectors)
    ]
    index.moments(model.key).add(pa.Table.from_pylist(rows, schema=moment_schema(128)))
    assert keep_text_queries(index, model, encoder) is None
    return index, model, encoder


def test_a_search_by_text_imports_no_torch_and_finds_what_the_model_finds(indexed):
    index, model, encoder = indexed
    code = "\n".join(
        [
            "import json, runpy, sys",
            f"sys.path.insert(0, {str(RECIPES)!r})",
            f"sys.argv = ['search.py', {index.path!r}, '--text', 'show with 2 turns', '--format', 'json']",
            "try:",
            f"    runpy.run_path({str(RECIPES / 'search.py')!r}, run_name='__main__')",
            "except SystemExit as ended:",
            "    assert not ended.code",
            "print(json.dumps([name for name in ('torch', 'transformers', 'datasets') if name in sys.modules]))",
        ]
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    found, _, imported = run.stdout.rstrip().rpartition("\n")
    assert json.loads(imported) == []
    slow = search.search_moments(index, model, encoder.query(text="show with 2 turns"))
    assert [row["video"] for row in json.loads(found)] == [row["video"] for row in slow]
    np.testing.assert_allclose([row["score"] for row in json.loads(found)], [row["score"] for row in slow], atol=1e-5)


def test_an_export_that_is_there_is_kept(indexed):
    index, model, encoder = indexed
    path = text_queries.folder_of(index, model) / "text.onnx"
    before = path.stat().st_mtime_ns
    assert keep_text_queries(index, model, encoder) is None
    assert path.stat().st_mtime_ns == before


def test_a_text_that_is_refused_is_refused_in_the_same_words(indexed):
    index, model, _ = indexed
    with pytest.raises(ValueError, match="has 302 tokens and the model reads 32; shorten it"):
        search.find(SearchConfig(index=index.path, text=" ".join(["turn"] * 300), device="cpu"))
    with pytest.raises(ValueError, match="the text is empty"):
        text_query(index, model, " ")


def test_the_model_itself_answers_where_the_export_cannot(indexed, tmp_path):
    index, model, encoder = indexed
    path = tmp_path / "index"
    shutil.copytree(index.path, path)
    copy = MomentIndex(path)
    assert text_query(copy, model, "a vault") is not None
    outside = replace(model, key="../" + model.key)
    other_size = replace(model, dimensions=64)
    runs_code = replace(model, details=model.details | {"trust_remote_code": True})
    other_files = replace(model, details=model.details | {"files": {}})
    for other in (outside, other_size, runs_code, other_files):
        assert text_query(copy, other, "a vault") is None
    (text_queries.folder_of(copy, model) / "text.onnx").write_bytes(b"")
    assert text_query(copy, model, "a vault") is None
    config = SearchConfig(index=str(path), text="a vault", device="cpu")
    assert search.find(config) == search.search_moments(index, model, encoder.query(text="a vault"))


def test_an_approximate_search_needs_an_approximate_index(indexed):
    index, _, _ = indexed
    with pytest.raises(ValueError, match="again with --approximate, or search exactly"):
        search.find(SearchConfig(index=index.path, text="a vault", device="cpu", approximate=True))


def test_a_model_that_has_changed_is_loaded_and_refused(indexed):
    index, model, _ = indexed
    name = Path(model.name, "processor_config.json")
    content = name.read_text()
    name.write_text(json.dumps(json.loads(content) | {"number_words": True}))
    try:
        assert text_query(index, model, "a vault") is None
        with pytest.raises(ValueError, match="has changed since it made the vectors"):
            search.find(SearchConfig(index=index.path, text="a vault", device="cpu"))
    finally:
        name.write_text(content)


def test_a_model_of_the_hub_is_known_by_its_commit(indexed, monkeypatch):
    index, model, encoder = indexed
    hub = replace(model, name="owner/model", key="k", details=model.details | {"files": None})
    monkeypatch.setattr(text_queries, "cached_commit", lambda name: None)
    assert keep_text_queries(index, hub, encoder) is None
    assert text_query(index, hub, "a vault") is None
    monkeypatch.setattr(text_queries, "cached_commit", lambda name: "0a1b")
    assert keep_text_queries(index, hub, encoder) is None
    np.testing.assert_allclose(text_query(index, hub, "a vault"), encoder.query(text="a vault"), atol=1e-5)
    monkeypatch.setattr(text_queries, "cached_commit", lambda name: "2c3d")
    assert text_query(index, hub, "a vault") is None
