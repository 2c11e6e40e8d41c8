"""Our resizing against torchvision's, which is written independently of Pillow."""

import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import InterpolationMode, functional

from hf_datasets.video import VideoError, VideoLimits, read_frames
from hf_datasets.video.resizing import resize, resized_size
from tests.fixtures.videos import write_video

SHAPES = [(96, 128), (128, 96), (111, 77), (341, 257), (17, 300), (1, 5)]
SIZES = [16, 48, 97, 224, (48, 48), (37, 53), (300, 111)]


def by_torchvision(frames, size):
    wanted = [size] if isinstance(size, int) else list(size)
    channels_first = torch.from_numpy(frames).permute(0, 3, 1, 2)
    resized = functional.resize(channels_first, wanted, InterpolationMode.BICUBIC, antialias=True)
    return resized.permute(0, 2, 3, 1).numpy()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_resizing_equals_torchvision_up_to_the_rounding_of_weights(shape):
    frames = np.random.default_rng(0).integers(0, 256, (2, *shape, 3), np.uint8)
    for size in [*SIZES, shape]:
        ours, theirs = resize(frames, size), by_torchvision(frames, size)
        assert ours.shape == theirs.shape == (2, *resized_size(*shape, size), 3)
        difference = np.abs(ours.astype(int) - theirs)
        assert difference.max() <= 2, size
        assert difference.mean() <= 0.02, size


def test_the_size_equals_that_of_torchvision_for_every_shorter_side():
    for height, width in [(239, 427), (427, 239), (1, 7), (333, 333), (1080, 1919)]:
        for size in range(1, 60, 7):
            expected = by_torchvision(np.zeros((1, height, width, 3), np.uint8), size).shape[1:3]
            assert resized_size(height, width, size) == expected


def test_frames_are_resized_in_the_call_that_reads_them(tmp_path):
    path = write_video(tmp_path / "video.mp4", 8)
    whole = read_frames(path, 4).frames.permute(0, 2, 3, 1).numpy()
    for size in (48, (20, 30)):
        resized = read_frames(path, 4, size=size).frames
        assert torch.equal(resized, torch.from_numpy(resize(whole, size)).permute(0, 3, 1, 2))


def test_a_size_beyond_the_limits_is_refused_before_memory_is_taken(tmp_path):
    path = write_video(tmp_path / "video.mp4", 3)
    with pytest.raises(VideoError, match=r"128 x 96 resized to 26666 x 20000 exceed max_pixels=35389440"):
        read_frames(path, 2, size=20_000)
    assert read_frames(path, 2, size=2, limits=VideoLimits(max_pixels=128 * 96)).frames.shape == (2, 3, 2, 2)


@pytest.mark.parametrize("size", [0, -3, (5, 0), (), (1, 2, 3)])
def test_an_invalid_size_is_refused(size):
    with pytest.raises(ValueError, match="must be the shorter side or"):
        resized_size(4, 4, size)
