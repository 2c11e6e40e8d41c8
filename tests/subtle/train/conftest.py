"""What every recipe that trains is tried with."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
import yaml

from subtle.run.training import TrainingRun

RECIPES = Path(__file__).parents[3] / "recipes"


@pytest.fixture
def diverging(monkeypatch):
    """Every loss is not a number."""
    finish_step = TrainingRun.finish_step
    monkeypatch.setattr(TrainingRun, "finish_step", lambda run, loss, rows: finish_step(run, loss * float("nan"), rows))


@pytest.fixture
def command_of(tmp_path):
    """A recipe and its configuration as a file."""

    def command(recipe, config):
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump({name: value for name, value in vars(config).items() if value is not None}))
        return [RECIPES / recipe, path]

    return command


@pytest.fixture
def environment(tmp_path):
    """Of a process that trains beside this one."""
    own = {"HF_DATASETS_CACHE": str(tmp_path / "cache"), "ACCELERATE_USE_CPU": "true", "HF_HUB_OFFLINE": "1"}
    return os.environ | own


@pytest.fixture
def kill_in_training(command_of, environment, warm_python):
    """Start a recipe and end it by kill -9 when its first checkpoint is there."""

    def kill(recipe, config):
        process, folder = warm_python.start(command_of(recipe, config), env=environment), Path(config.output_dir)
        while process.poll() is None and not list(folder.glob("checkpoints/step-*")):
            time.sleep(0.002)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL, process.output()
        assert not (folder / "results.json").exists()

    return kill


@pytest.fixture
def run_on_two_processes(command_of, environment, warm_python):
    """Train with a recipe on two processes."""

    def run(recipe, config):
        for done in warm_python.run_ranks(2, command_of(recipe, config), env=environment):
            assert done.returncode == 0, done.stderr[-3000:]
        assert json.loads(Path(config.output_dir, "results.json").read_text())["num_processes"] == 2

    return run
