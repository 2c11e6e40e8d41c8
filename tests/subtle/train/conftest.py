"""What every recipe that trains is tried with."""

import pytest

from subtle.run.training import TrainingRun


@pytest.fixture
def diverging(monkeypatch):
    """Every loss is not a number."""
    finish_step = TrainingRun.finish_step
    monkeypatch.setattr(TrainingRun, "finish_step", lambda run, loss, rows: finish_step(run, loss * float("nan"), rows))
