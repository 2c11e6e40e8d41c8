"""The evaluate modules: batches, processes, combinations, doctests, and the folders as Spaces."""

import doctest
import importlib
import inspect
import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import evaluate
import numpy as np
import pytest
from huggingface_hub import RepoCard

SPACES = Path(__file__).parents[2] / "metrics"
NAMES = ("map_at_k", "comprehensive_accuracy", "counterfactual_accuracy", "vcmr_recall")


def load(name, tmp_path, **options):
    return evaluate.load(str(SPACES / name), cache_dir=str(tmp_path), **options)


def cases(name):
    return importlib.import_module(f"metrics.{name}.tests").test_cases


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_the_space_hold_in_one_call_in_batches_and_row_by_row(name, tmp_path):
    for case in cases(name):
        predictions, references, options = case["predictions"], case["references"], case.get("options", {})
        metric = load(name, tmp_path)
        results = [metric.compute(predictions=predictions, references=references, **options)]
        metric.add_batch(predictions=predictions[:1], references=references[:1])
        if len(predictions) > 1:
            metric.add_batch(predictions=predictions[1:], references=references[1:])
        assert len(metric) == len(predictions)
        results.append(metric.compute(**options))
        for prediction, reference in zip(predictions, references, strict=True):
            metric.add(prediction=prediction, reference=reference)
        results.append(metric.compute(**options))
        assert results[0] == results[1] == results[2]
        assert {key: results[0][key] for key in case["result"]} == pytest.approx(case["result"])
        assert len(metric) == 0


@pytest.mark.parametrize("name", NAMES)
def test_the_metric_follows_the_conventions_of_evaluate(name):
    module = inspect.getmodule(type(evaluate.load(str(SPACES / name))))
    main_class = evaluate.loading.import_main_class(module.__name__)
    assert main_class.__module__ == module.__name__
    parameters = inspect.signature(main_class._compute).parameters.values()
    assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters)
    original = evaluate.load
    with patch("evaluate.load", side_effect=lambda name: original(str(SPACES / name))):
        results = doctest.testmod(module, raise_on_error=True)
    assert results.failed == 0
    assert results.attempted >= 2


def test_a_refused_batch_leaves_what_was_added_before(tmp_path):
    metric = load("map_at_k", tmp_path)
    metric.add_batch(predictions=[[1]], references=[[1]])
    with pytest.raises(ValueError, match="ranks"):
        metric.compute(predictions=[[2, 2]], references=[[2]], k=1)
    with pytest.raises(ValueError, match="holds None"):
        metric.add_batch(predictions=[[None]], references=[[2]])
    with pytest.raises(ValueError, match="k must be"):
        metric.compute(k=0)
    assert len(metric) == 1
    assert metric.compute(k=1)["map@1"] == 1
    with pytest.raises(ValueError, match="nothing to compute"):
        metric.compute(k=1)


def test_strings_in_one_batch_and_integers_in_the_next_are_refused(tmp_path):
    metric = load("map_at_k", tmp_path)
    metric.add_batch(predictions=[["1"]], references=[["1"]])
    metric.add_batch(predictions=[[1]], references=[[1]])
    with pytest.raises(ValueError, match="ids are mixed"):
        metric.compute(k=1)


def test_changing_an_array_after_adding_it_changes_nothing(tmp_path):
    metric = load("map_at_k", tmp_path)
    ranking = np.array([[1, 2]])
    metric.add_batch(predictions=ranking, references=[[1]])
    ranking[:] = 5
    assert metric.compute(k=1)["map@1"] == 1
    spans = {"video_id": np.array([[1]]), "start": np.array([[0.0]]), "end": np.array([[4.0]])}
    moments = load("vcmr_recall", tmp_path)
    moments.add_batch(predictions=spans, references={"video_id": np.array([1]), "spans": np.array([[0.0, 4.0]])})
    spans["video_id"][:], spans["end"][:] = 2, 99
    assert moments.compute(k=1, iou=0.7)["vcmr_recall@1_iou@0.7"] == 1


def test_combined_metrics_keep_their_options_and_prefixes(tmp_path):
    metric, other = load("map_at_k", tmp_path), load("map_at_k", tmp_path)
    both = evaluate.combine({"first": metric, "second": other})
    result = both.compute(predictions=[[1, 2]], references=[[2]], k=[2])
    assert (result["first_map@2"], result["second_map@2"]) == (0.5, 0.5)
    both.add(prediction=[1], reference=[1])
    both.add_batch(predictions=[[1]], references=[[2]])
    assert both.compute(k=[1])["first_map@1"] == 0.5


def one_process(rank, name, cache, predictions, references, options, results):
    metric = evaluate.load(str(SPACES / name), cache_dir=cache, num_process=2, process_id=rank, experiment_id="joint")
    metric.add_batch(predictions=predictions[rank::2], references=references[rank::2])
    results[rank] = metric.compute(**options)


@pytest.mark.parametrize(
    "name", ["map_at_k", *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES if name != "map_at_k")]
)
def test_two_processes_give_the_joint_results_on_the_first(name, tmp_path):
    case = cases(name)[0]
    predictions, references = case["predictions"] * 2, case["references"] * 2
    options = case.get("options", {})
    with multiprocessing.get_context("fork").Manager() as manager:
        results = manager.dict()
        arguments = (name, str(tmp_path), predictions, references, options, results)
        processes = [
            multiprocessing.get_context("fork").Process(target=one_process, args=(rank, *arguments)) for rank in (0, 1)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
        assert results[1] is None
        assert {key: results[0][key] for key in case["result"]} == pytest.approx(case["result"])


@pytest.mark.parametrize("name", NAMES)
def test_a_space_has_a_valid_card_and_pinned_requirements(name):
    card = RepoCard.load(SPACES / name / "README.md", repo_type="space").data.to_dict()
    assert {"title", "sdk", "sdk_version", "app_file", "tags", "license", "description"} <= set(card)
    assert (SPACES / name / card["app_file"]).is_file()
    assert {"evaluate", "metric"} <= set(card["tags"])
    requirements = (SPACES / name / "requirements.txt").read_text().splitlines()
    assert all(">=" in line for line in requirements)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_space_computes_its_examples_where_it_stands_alone(name, tmp_path):
    pytest.importorskip("gradio")
    space = shutil.copytree(SPACES / name, tmp_path / "space", ignore=shutil.ignore_patterns("__pycache__"))
    code = "import app\nfor example in app.examples: app.compute(*example)\nprint(app.compute(*app.examples[0]))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=space, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "signature" in done.stdout


def test_files_that_stand_in_several_spaces_are_the_same():
    for shared in (SPACES / "shared").glob("*.py"):
        assert {path.read_bytes() for path in SPACES.glob(f"*/{shared.name}")} == {shared.read_bytes()}


@pytest.mark.parametrize("name", NAMES)
def test_evaluate_copies_every_file_that_the_module_needs(name):
    script = SPACES / name / f"{name}.py"
    copied = {imported for kind, imported, *_ in evaluate.loading.get_imports(str(script)) if kind == "internal"}
    modules = {path.stem for path in script.parent.glob("*.py")} - {"__init__", "app", "tests", name}
    assert copied == modules


@pytest.mark.peers
def test_evaluates_own_metric_test_passes_on_our_folder(tmp_path):
    checkout = os.environ.get("EVALUATE_SOURCE")  # no distribution of it has tests
    if not checkout:
        pytest.skip("EVALUATE_SOURCE names no checkout of https://github.com/huggingface/evaluate")
    for name in NAMES:
        shutil.copytree(
            SPACES / name, tmp_path / "ours" / "metrics" / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copytree(Path(checkout) / "tests", tmp_path / "ours" / "tests")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/test_metric_common.py", "-q", "-k", "LocalModuleTest"],
        cwd=tmp_path / "ours",
        env={"PATH": "", "RUN_LOCAL": "1", "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert f"{len(NAMES)} passed" in done.stdout
