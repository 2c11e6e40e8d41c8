"""A metric published with the command is loaded by someone who has evaluate and nothing of ours."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

import metrics
from publishing import metric
from tests.fixtures.hub_server import environment, serve

ROOT = Path(__file__).parents[3]
SOMEONE_ELSE = """
import sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"metrics", "hf_datasets", "hf_models", "recipes", "subtle_recipes"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Nothing())
import evaluate

metric = evaluate.load("org/map_at_k")
print(metric.compute(predictions=[["c7", "c2", "c9"], ["c4", "c1"]], references=[["c2", "c9"], ["c4"]], k=[1, 5]))
"""


def test_a_published_metric_is_loaded_and_computes_without_this_project(tmp_path):
    def run(*words):
        process = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env=os.environ | environment(hub, tmp_path / "home"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == 0, process.stderr
        return process.stdout

    with serve() as (_, hub):
        shown = run(str(ROOT / "recipes/publish.py"), "metric", "map_at_k", "--repo", "org/map_at_k")
        assert "org/map_at_k: published as" in shown
        assert len(hub.repository("org/map_at_k", "space").commits) == 2
        program = tmp_path / "program.py"
        program.write_text(textwrap.dedent(SOMEONE_ELSE))
        result = run("-I", str(program))
    assert "'map@1': 0.5, 'map@5': 0.791666" in result


@pytest.mark.parametrize("name", metrics.METRICS)
def test_the_space_of_a_metric_is_complete(name, tmp_path):
    publication = metric.prepare(name, f"org/{name}", tmp_path / name)
    files = {path.name for path in publication.folder.iterdir()}
    assert {"README.md", "app.py", "requirements.txt", "tests.py", f"{name}.py"} <= files
    assert not files & {"__init__.py", "__pycache__"}
    text = (publication.folder / "README.md").read_text()
    header = yaml.safe_load(text.split("---\n")[1])
    assert {key: header[key] for key in ("sdk", "sdk_version", "python_version", "app_file")} == {
        "sdk": "gradio",
        "sdk_version": "6.31.0",
        "python_version": "3.12",
        "app_file": "app.py",
    }
    assert f'evaluate.load("org/{name}")' in text
    assert f'evaluate.load("{name}")' not in text
    assert publication.needs == ()
