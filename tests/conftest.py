"""Fixtures for all tests: no network, and the shared reference files where they exist."""

import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_EVALUATE_OFFLINE", "1")
# Sums depend on how many threads share them: a run here must equal one in another process to the last bit.
os.environ["OMP_NUM_THREADS"] = "1"

import pytest


@pytest.fixture(scope="session")
def warm_python():
    """Starts programs that import torch or transformers in a fraction of the time of a new interpreter."""
    from tests.fixtures.warm_python import WarmPython

    python = WarmPython()
    yield python
    python.close()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real annotations, clips and reference outputs that stands beside the checkout."""
    folder = Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("the shared reference files are not beside this checkout")
    return folder


def pytest_terminal_summary(terminalreporter):
    """Of the tests marked `hostile`; here because a run in several processes reads no other conftest at its end."""
    from tests.hostile.tables import write_tables

    write_tables(terminalreporter)
