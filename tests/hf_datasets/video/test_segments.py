"""Frames go to the segment of a video in which they are shown."""

from fractions import Fraction

import pytest
import torch

from hf_datasets.video import VideoFrames, read_frames
from hf_datasets.video.segments import group_frames
from tests.fixtures.videos import number_of, write_video


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    """74 frames, 4 a second."""
    return write_video(tmp_path_factory.mktemp("videos") / "a.mp4", 74, ticks=range(74), time_base=Fraction(1, 4))


def test_frames_go_to_the_second_they_are_shown_in(video):
    clips = group_frames(read_frames(video, 64, 0.0, 16.0), 0.0, 1.0, 16, 4)
    assert clips.shape == (16, 4, 3, 96, 128)
    assert [[number_of(frame) for frame in clip] for clip in clips] == torch.arange(64).view(16, 4).tolist()
    last = group_frames(read_frames(video, 64, 16.0, 32.0), 16.0, 1.0, 16, 4)
    assert last.shape == (3, 4, 3, 96, 128), "the video ends after 18.5 seconds"
    shown = [[number_of(frame) for frame in clip] for clip in last]
    assert shown == [[64, 65, 66, 67], [68, 69, 70, 71], [72, 72, 73, 73]]


def test_a_second_without_a_frame_shows_the_nearest():
    frames = torch.arange(2, dtype=torch.uint8)[:, None, None, None].expand(2, 4, 4, 3)
    read = VideoFrames(frames[[0, 1, 0]].numpy(), (0, 1, 0), (0.0, 3.0, 0.0), 2, 0.0)
    clips = group_frames(read, 0.0, 1.0, 4, 2)
    assert clips[:, :, 0, 0, 0].tolist() == [[0, 0], [0, 0], [1, 1], [1, 1]]
