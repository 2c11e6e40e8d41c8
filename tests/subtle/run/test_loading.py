"""Batches that workers read ahead: how much memory they share, and that there is as much."""

import shutil
from types import SimpleNamespace

import pytest
import torch

from subtle.run.loading import BatchLoader, check_shared_memory, shared_bytes


def test_memory_that_batches_would_not_fit_into_is_refused_with_the_cure(monkeypatch):
    needed = shared_bytes(64, 12, (224, 224), 12)
    assert needed == 25 * 64 * 12 * 3 * 224 * 224
    assert shared_bytes(64, 12, (224, 224), 0) == 0
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=64 << 20))  # as in a container
    check_shared_memory(64 << 20)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with pytest.raises(SystemExit, match=r"up to 11\.56 GB .* has 0\.07 GB left.*--shm-size 12g"):
        BatchLoader([], num_workers=12, device=torch.device("cpu"), needed_bytes=needed)
