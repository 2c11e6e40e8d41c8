"""What an accelerate configuration may ask for, and how long the processes of a launch wait for each other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from accelerate.state import AcceleratorState

from subtle.run.accelerator import LONGEST_WAIT, make_accelerator

WAIT = """
import torch
from subtle.run.accelerator import make_accelerator, processes
from pathlib import Path
import sys
processes(cpu=True) if sys.argv[1] == "processes" else make_accelerator("cpu", Path(sys.argv[2]))
group = torch.distributed.distributed_c10d._get_default_group()
print(group._get_backend(torch.device("cpu")).options._timeout)
"""

FAILS = """
from pathlib import Path
from subtle.run.accelerator import make_accelerator
accelerator = make_accelerator("cpu", Path("."))
if accelerator.process_index == 1:
    raise SystemExit("the second process has no videos")
accelerator.wait_for_everyone()
"""


@pytest.fixture
def _new_state():
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("first", ["processes", "make_accelerator"])
def test_processes_wait_for_each_other_as_long_as_one_place_says(first, tmp_path, warm_python):
    (run,) = warm_python.run_ranks(1, ["-c", WAIT, first, str(tmp_path)])
    assert run.stdout.strip() == str(LONGEST_WAIT), run.stderr


@pytest.mark.usefixtures("_new_state")
def test_gradient_accumulation_is_refused_with_the_cure(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    with pytest.raises(SystemExit, match=r"gradient_accumulation_steps is 4.*lower --batch_size"):
        make_accelerator("cpu", tmp_path)


@pytest.mark.slow
def test_a_process_that_fails_ends_those_that_wait_for_it_and_says_why(tmp_path):
    (tmp_path / "fails.py").write_text(FAILS)
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    launch += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    environment = os.environ | {"ACCELERATE_USE_CPU": "true", "PYTHONPATH": str(Path(__file__).parents[3])}
    ran = subprocess.run(
        [*launch, "fails.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
    )
    assert ran.returncode
    assert "the second process has no videos" in ran.stderr
