"""What an accelerate configuration may ask for, and how long the processes of a launch wait for each other."""

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
