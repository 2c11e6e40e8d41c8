"""Bare names that load in processes importing only evaluate, after `import metrics` or `python -m metrics install`."""

import importlib.util
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import evaluate.config
import pytest
from evaluate.loading import CachedEvaluationModuleFactory

from metrics import installation

ROOT = Path(__file__).parents[2]
GOLDEN = (
    "import socket\n"
    "def refuse(*_): raise OSError('no network here')\n"
    "socket.socket.connect = socket.getaddrinfo = refuse\n"
    "import evaluate, sys\n"
    "assert not any(name == 'metrics' for name in sys.modules)\n"
    "result = evaluate.load('map_at_k').compute(\n"
    "    predictions=[[1, 9, 2, 8, 3, 7]], references=[[1, 2, 3]], k=[1, 2, 3, 5, 10])\n"
    "print([round(result[f'map@{k}'], 6) for k in (1, 2, 3, 5, 10)])\n"
    "names = ('vcmr_recall', 'comprehensive_accuracy', 'counterfactual_accuracy')\n"
    "print(*(evaluate.load(name).name for name in names))\n"
)


def python(*arguments, home, cwd, **environment):
    variables = {**os.environ, "HF_HOME": str(home), **environment}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=variables, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty HF_HOME that this process installs into."""
    folder = tmp_path / "home"
    monkeypatch.setattr(installation, "modules_folder", lambda: folder / "modules")
    return folder


@pytest.fixture
def empty(tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def test_bare_names_load_from_an_empty_folder_without_network(tmp_path, empty, warm_python):
    installed = python("-c", "import metrics", home=tmp_path / "home", cwd=ROOT)
    assert installed.returncode == 0, installed.stderr
    done = warm_python.run(["-c", GOLDEN], env=os.environ | {"HF_HOME": str(tmp_path / "home")}, cwd=empty)
    assert done.stdout.splitlines() == [
        "[1.0, 0.5, 0.555556, 0.755556, 0.755556]",
        "vcmr_recall comprehensive_accuracy counterfactual_accuracy",
    ], done.stderr


def test_the_command_installs_what_importing_installs(tmp_path):
    ways = {"import": ["-c", "import metrics"], "install": ["-m", "metrics", "install"]}
    trees = []
    for way, arguments in ways.items():
        assert python(*arguments, home=tmp_path / way, cwd=ROOT).returncode == 0
        files = (path for path in (tmp_path / way).rglob("*.py") if path.is_file())
        trees.append({str(path.relative_to(tmp_path / way)): path.read_bytes() for path in files})
    assert trees[0] == trees[1]
    assert len(trees[0]) > 10


def test_importing_metrics_does_not_import_evaluate_or_numpy(tmp_path):
    code = "import metrics, sys; print(sorted({'evaluate', 'datasets', 'numpy'} & set(sys.modules)))"
    assert python("-c", code, home=tmp_path, cwd=ROOT).stdout.strip() == "[]"


def test_installing_older_code_again_wins_over_a_newer_copy(home):
    ours = installation.install("map_at_k")
    stale = ours.parent / ("0" * 64)
    stale.mkdir()
    script = stale / "map_at_k.py"
    script.write_text("raise RuntimeError('a stale copy')")
    future = time.time() + 1000
    os.utime(script, (future, future))
    assert installation.install("map_at_k") == ours
    modules = home / "modules" / "evaluate_modules"
    found = CachedEvaluationModuleFactory("evaluate-metric--map_at_k", "metrics", str(modules)).get_module()
    assert found.hash == ours.name


def test_an_unfinished_copy_of_another_process_is_ignored(home):
    script = installation.install("map_at_k") / "map_at_k.py"
    unfinished = script.parent.with_name("unfinished-1") / script.name
    unfinished.parent.mkdir()
    unfinished.write_text("")
    before, future = script.stat().st_mtime_ns, time.time() + 1000
    os.utime(unfinished, (future, future))
    installation.install("map_at_k")
    assert script.stat().st_mtime_ns == before


def test_installing_twice_writes_nothing(home):
    ours = installation.install("vcmr_recall")
    before = {path: path.stat().st_mtime_ns for path in ours.rglob("*")}
    installation.install("vcmr_recall")
    assert {path: path.stat().st_mtime_ns for path in ours.rglob("*")} == before


def test_a_damaged_copy_is_repaired(home):
    ours = installation.install("map_at_k")
    (ours / "map_at_k.py").write_text("")
    (ours / "scoring.py").unlink()
    installation.install("map_at_k")
    source = ROOT / "metrics" / "map_at_k"
    assert (ours / "map_at_k.py").read_bytes() == (source / "map_at_k.py").read_bytes()
    assert (ours / "scoring.py").read_bytes() == (source / "scoring.py").read_bytes()


def test_many_installations_at_once_leave_one_whole_copy(home):
    with ThreadPoolExecutor(16) as pool:
        copies = set(pool.map(installation.install, ["map_at_k"] * 64))
    assert len(copies) == 1
    assert [path.name for path in copies.pop().parent.iterdir() if path.is_dir()] == [
        installation.install("map_at_k").name
    ]


def test_an_unknown_name_is_refused(home):
    with pytest.raises(ValueError, match="there are map_at_k"):
        installation.install("map")


def test_a_folder_that_cannot_be_written_is_a_warning_on_import_and_an_error_of_the_command(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    imported = python("-c", "import metrics; print('imported')", home=blocked, cwd=ROOT)
    assert imported.stdout.strip() == "imported"
    assert "Set HF_HOME" in imported.stderr
    command = python("-m", "metrics", "install", home=blocked, cwd=ROOT)
    assert command.returncode == 1
    assert "cannot write" in command.stderr
    assert "Traceback" not in command.stderr


def test_an_unknown_name_on_the_command_line_is_explained(tmp_path):
    command = python("-m", "metrics", "install", "map", home=tmp_path, cwd=ROOT)
    assert command.returncode == 2
    assert "there are map_at_k" in command.stderr


@pytest.mark.parametrize(
    "variables", [{"HF_HOME": "~/y"}, {"HF_HOME": "/y", "HF_MODULES_CACHE": "/x/modules"}, {"XDG_CACHE_HOME": "/z"}, {}]
)
def test_the_modules_folder_is_the_one_evaluate_uses(variables, monkeypatch):
    for name in ("HF_HOME", "HF_MODULES_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    spec = importlib.util.spec_from_file_location("evaluate.config_read_again", evaluate.config.__file__)
    config = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(config)
    monkeypatch.delitem(sys.modules, "evaluate.config")
    assert installation.modules_folder() == config.HF_MODULES_CACHE
    monkeypatch.setitem(sys.modules, "evaluate.config", SimpleNamespace(HF_MODULES_CACHE="/in/use"))
    assert installation.modules_folder() == Path("/in/use")
