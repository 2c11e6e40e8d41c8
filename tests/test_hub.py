"""Everything is published with the command, and read by someone who has public libraries and nothing of ours."""

import json
import os
from importlib import import_module
from pathlib import Path

import hub_reader
import pytest
import torch
from datasets import load_dataset
from hub_server import environment, serve
from peft import PeftModel
from small_runs import make_runs
from transformers import CLIPVisionModel

import hf_datasets  # noqa: F401 - registers the names
import hf_models  # noqa: F401 - registers the Auto classes and the adapters' method
from metrics import METRICS
from tests.hf_datasets.conftest import miniature  # noqa: F401 - the fixture of a small miniature

ROOT = Path(__file__).parent.parent
READER = [ROOT / "tests/fixtures/hub_reader.py", "tasks.json"]
WEIGHTS = ROOT / "recipes" / "weights"
CONFIGS = ("mini", "mini-clips", "mini-videos")
TEXT = "show with 2 turns"
PUBLISH = f"""
import json, runpy, sys
for words in json.load(open("tasks.json")):
    sys.argv = [{str(ROOT / "recipes/publish.py")!r}, *words]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as done:
        if done.code:
            raise
"""
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")


def run(python, program, tasks, folder, variables):
    """What a program prints, run in another folder and isolated from this one."""
    (folder / "tasks.json").write_text(json.dumps(tasks))
    done = python.run(["-I", *program], cwd=folder, env=os.environ | variables)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def published(miniature, tmp_path_factory, warm_python):  # noqa: F811
    """A Hub that holds a dataset, a model, an adapter with its base, and the metrics; and what they were made of."""
    root = tmp_path_factory.mktemp("hub")
    make_runs(root / "runs", only=("stage2",))
    dataset = ["dataset", "tfcovr", "--repo", "org/tfcovr", "--data_dir", str(miniature), "--videos"]
    commands = [
        dataset,
        ["model", "miniature-clip", "--repo", "org/miniature-clip"],
        ["adapter", "miniature-aim", "--repo", "org/miniature-aim", "--base_repo", "org/miniature-clip"],
        ["model", str(root / "runs" / "stage2"), "--repo", "org/retriever", "--tag", "v1"],
        *(["metric", name, "--repo", f"org/{name}"] for name in METRICS),
    ]
    with serve() as (_, hub):
        variables = environment(hub, root / "publisher")
        shown = run(warm_python, ["-c", PUBLISH], [*commands, *commands[:3]], root, variables)
        assert (shown.count(": published as "), shown.count(": nothing to change")) == (len(commands), 3), shown
        yield hub, root, miniature


@pytest.fixture(scope="module")
def read(published, warm_python):
    """What someone else reads: with the Hub, and then without a connection."""
    hub, root, _ = published
    sha = hub.repository("org/retriever").head.sha
    cases = {f"org/{name}": import_module(f"metrics.{name}.tests").test_cases[0] for name in METRICS}
    tasks = {
        "ours": False,
        "dataset": ["org/tfcovr", CONFIGS],
        "retriever": ["org/retriever", sha, TEXT],
        "adapter": ["org/miniature-aim", hub.repository("org/miniature-aim").head.sha],
        "metrics": cases,
    }
    online = environment(hub, root / "someone")
    offline = online | {"HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:9"}
    first, second = (run(warm_python, READER, tasks, root, variables) for variables in (online, offline))
    return json.loads(first), json.loads(second), tasks


def test_every_configuration_and_split_holds_the_rows_of_the_builder_also_streamed_by_two_workers(published, read):
    _, _, miniature = published  # noqa: F811
    found = read[0]["dataset"]
    for config in CONFIGS:
        for split, rows in load_dataset("tfcovr", config, data_dir=str(miniature)).items():
            rows = list(hub_reader.undecoded(rows))
            if config == "mini-videos":
                rows = [row | {"video": {"bytes": Path(row["video"]["path"]).read_bytes()}} for row in rows]
            assert found.pop(f"{config}/{split}") == [len(rows), hub_reader.digest(rows)]
            assert found.pop(f"{config}/{split} streamed") == sorted(hub_reader.digest([row]) for row in rows)
    assert not found


def test_a_pinned_model_and_its_sentence_transformer_compute_what_they_did_before(published, read):
    _, root, _ = published
    expected = hub_reader.read_retriever(str(root / "runs" / "stage2" / "model"), None, TEXT)
    torch.testing.assert_close(torch.tensor(read[0]["retriever"]), torch.tensor(expected), atol=1e-5, rtol=0)
    torch.testing.assert_close(expected[0], expected[1], atol=1e-5, rtol=0)


def test_ours_runs_a_pinned_adapter_on_its_base_as_before_and_notes_which_rows_it_read(published, read, warm_python):
    hub, root, _ = published
    tasks = {"ours": True, "adapter": read[2]["adapter"], "revision": ["org/tfcovr", "mini"]}
    found = run(warm_python, READER, tasks, root, environment(hub, root / "someone"))
    assert json.loads(found)["revision"] == hub.repository("org/tfcovr", "dataset").head.sha
    found = json.loads(found)["adapter"]
    tower = CLIPVisionModel.from_pretrained(WEIGHTS / "miniature-clip")
    expected = hub_reader.run_adapter(PeftModel.from_pretrained(tower, WEIGHTS / "miniature-aim").eval())
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), atol=1e-5, rtol=0)
    assert "pip install subtle-video" in read[0]["adapter"]


def test_the_results_that_a_benchmark_takes_reach_the_hub(published):
    files = published[0].repository("org/retriever").files
    assert b"TFCoVRMini" in files[".eval_results/tfcovr.yaml"]
    assert not [name for name in files if name.startswith(".") and "eval" not in name and name != ".gitattributes"]


def test_published_metrics_give_the_known_results(read):
    for repo, case in read[2]["metrics"].items():
        found = read[0]["metrics"][repo]
        assert {name: found[name] for name in case["result"]} == pytest.approx(case["result"])


def test_everything_that_was_read_once_is_read_again_without_a_connection(read):
    first, second, _ = read
    assert {name: first[name] for name in ("retriever", "adapter", "metrics")} == {
        name: second[name] for name in ("retriever", "adapter", "metrics")
    }
    assert second["dataset"]
    for name, value in second["dataset"].items():
        assert first["dataset"].get(name, value) == value
