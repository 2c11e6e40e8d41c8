"""What programs left in a folder, by name, to compare a run that was disturbed with one that was not."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file

from hf_models.feature_store import FeatureStore
from hf_models.index.store import MomentIndex


def trained(folder):
    """Weights and the course of the training, but for biases of keys: no output depends on one."""
    results = json.loads((folder / "results.json").read_text())
    weights = {
        f"{path.parent.name}/{name}": value
        for path in folder.glob("*/*.safetensors")
        for name, value in load_file(path).items()
        if not name.endswith(("k_proj.bias", "key.bias"))
    }
    assert weights
    return weights | numbers("history", results["history"]) | numbers("figures", results["figures"])


def finished(folder):
    """Of the quickstart: both trainings, and what was measured; its report is of these."""
    assert (folder / "report" / "index.html").read_text().rstrip().endswith("</html>")
    both = {
        f"{stage} {name}": value for stage in ("stage1", "stage2") for name, value in trained(folder / stage).items()
    }
    return both | {"evaluation": json.loads((folder / "evaluation" / "results.json").read_text())["figures"]}


def built(folder):
    """Rows and rejections."""
    assert json.loads((folder / "results.json").read_text())["complete"]
    tables = {str(path.relative_to(folder)): pq.read_table(path).to_pylist() for path in folder.rglob("*.parquet")}
    assert len(tables) > 1
    return tables


def measured(folder):
    """Figures, and what they were taken from."""
    found = numbers("figures", json.loads((folder / "results.json").read_text())["figures"])
    assert found
    for path in folder.rglob("*.parquet"):
        for name, column in pq.read_table(path).to_pydict().items():
            numeric = column and all(isinstance(value, float) for value in column)
            found[f"{path.relative_to(folder)} {name}"] = np.array(column) if numeric else column
    return found


def numbers(name, value):
    """Each number below a name as an array, which is compared with a tolerance."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        return {key: one for part, below in value.items() for key, one in numbers(f"{name}/{part}", below).items()}
    return {name: np.array(value) if isinstance(value, float) else value}


def tuned(folder):
    """The model that is searched with, its clips, and what was measured."""
    assert (folder / "report" / "index.html").read_text().rstrip().endswith("</html>")
    summary = json.loads((folder / "summary.json").read_text())
    weights = load_file(folder / "model" / "model.safetensors")
    tables = folder.glob("dataset/**/*.parquet")
    clips = {str(path.relative_to(folder)): pq.read_table(path).to_pylist() for path in tables}
    assert weights
    assert clips
    return weights | clips | numbers("figures", summary["figures"]) | {"clips": summary["clips"]}


def published(repository):
    """The files of a repository on the Hub, its commits and its tags."""
    assert set(repository.tags.values()) == {repository.head.sha}
    titles = [commit.title for commit in repository.commits]
    return {**repository.files, "commits": titles, "tags": list(repository.tags)}


def embeddings(folder):
    values = {kind: zip(*FeatureStore(folder / kind).load(), strict=True) for kind in ("video", "text")}
    return {f"{kind} {one}": row.numpy() for kind, rows in values.items() for one, row in rows} | counted(folder)


def features(folder):
    stores = {kind: FeatureStore(folder / kind) for kind in ("video", "query-fine", "query-coarse")}
    return {f"{kind} {one}": store[one].numpy() for kind, store in stores.items() for one in store} | counted(folder)


def indexed(folder):
    """Each row of an index by its id, with its vector bit for bit, and each file."""
    index = MomentIndex(folder)
    key = index.active.key
    rows = index.moments(key).to_arrow().to_pylist()
    found = {f"vector of {row['moment_id']}": np.array(row.pop("vector"), np.float32) for row in rows}
    assert len(found) == len(rows), "an id is there twice"
    return found | {row["moment_id"]: row for row in rows} | index.files(key)


def counted(folder):
    return {"coverage": json.loads((folder / "results.json").read_text())["coverage"]}


def rendered(folder):
    """The bytes of every video, and the tables."""
    videos = {path.name: path.read_bytes() for path in folder.rglob("*.mp4")}
    assert videos
    return videos | {path.name: pq.read_table(path).to_pylist() for path in folder.rglob("*.parquet")}


def prepared(folder):
    """What the cache of `datasets` holds: rows, and the videos that they name."""

    def without_folder(value):
        path = value["path"] if isinstance(value, dict) else value
        return Path(path).name if path else value

    cache = folder.parent / "cache"
    found = rendered(cache)
    for path in cache.glob("*/*/*/*/*.arrow"):
        rows = pa.ipc.open_stream(path).read_all()
        found[f"{path.parts[-4]}/{path.name}"] = [
            {name: without_folder(value) if name == "video" else value for name, value in row.items()}
            for row in rows.to_pylist()
        ]
    return found
