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
    """Weights bit for bit, and the course of the training."""
    results = json.loads((folder / "results.json").read_text())
    weights = {
        f"{path.parent.name}/{name}": value
        for path in folder.glob("*/*.safetensors")
        for name, value in load_file(path).items()
    }
    assert weights
    return weights | {"history": results["history"], "figures": results["figures"]}


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
    cache = folder.parent / "cache"
    found = rendered(cache)
    for path in cache.glob("*/*/*/*/*.arrow"):
        rows = pa.ipc.open_stream(path).read_all()
        found[f"{path.parts[-4]}/{path.name}"] = [
            {name: Path(value).name if name == "video" and value else value for name, value in row.items()}
            for row in rows.to_pylist()
        ]
    return found
