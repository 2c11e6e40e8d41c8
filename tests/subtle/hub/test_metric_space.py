"""What a published metric's Space holds; `tests/test_hub.py` loads it from a Hub."""

import pytest
import yaml

import metrics
from subtle.hub.publish import prepare_metric


@pytest.mark.parametrize("name", metrics.METRICS)
def test_the_space_of_a_metric_is_complete(name, tmp_path):
    publication = prepare_metric(name, f"org/{name}", tmp_path / name)
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
