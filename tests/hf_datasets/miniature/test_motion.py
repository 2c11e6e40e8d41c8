"""The kinematics: the angles that the joints make are the numbers that the label says."""

import re

import numpy as np
import pytest

from hf_datasets.miniature.actions import ACTIONS, ALL_ACTIONS
from hf_datasets.miniature.captions import action_phrase
from hf_datasets.miniature.drawing import draw_frames
from hf_datasets.miniature.motion import PLATFORM_DROP, TURNS_BEFORE, Style, perform
from hf_datasets.miniature.scene import Scene
from hf_datasets.miniature.skeleton import POSES, Body, J, body_joints, rotate, swap_sides
from hf_datasets.tfcovr.labels import find_label

ALL = pytest.mark.parametrize("action", ALL_ACTIONS.values(), ids=ALL_ACTIONS.keys())
MINIATURE = pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS.keys())
# What is performed beside what the label counts: the half onto the vault table, the swing before the dismount.
BEFORE = {"vault": 1.0, "dismount": 0.5}


def measured_turns(action, style, num_frames=200):
    """Somersaults and turns over the clip, from the joints alone."""
    motion = perform(action, style, num_frames)
    joints = motion.joints.copy()
    spine = joints[:, J["neck"]] - joints[:, J["pelvis"]]
    if motion.forward[0, 0] * spine[0, 2] < 0:  # the back to the travel, be it upright or in a handstand
        joints[..., :2] *= -1
        spine[:, :2] *= -1
    somersault = np.unwrap(np.arctan2(spine[:, 0], spine[:, 2]))
    upright = rotate(joints, 1, -somersault)
    hips = upright[:, J["left_hip"]] - upright[:, J["right_hip"]]
    twist = np.unwrap(np.arctan2(-hips[:, 0], hips[:, 1]))
    return somersault / (2 * np.pi), twist / (2 * np.pi)


@ALL
def test_the_joints_turn_as_often_as_the_label_says(action):
    style = Style.sample(np.random.default_rng(3))
    somersault, twist = measured_turns(action, style)
    turned = TURNS_BEFORE.get(action.entry, 0.0)
    # For a body that has made half a turn a rotation forward is one backward.
    way = -action.direction if turned == 0.5 else action.direction
    expected = action.somersaults + BEFORE.get(action.kind, 0)
    assert somersault[-1] - somersault[0] == pytest.approx(way * expected, abs=1e-6)
    assert abs(twist[-1] - twist[0]) == pytest.approx(action.turns + turned, abs=1e-6)


@MINIATURE
def test_no_rotation_exceeds_half_a_turn_between_two_of_twelve_frames(action):
    for seed in range(5):
        for angle in measured_turns(action, Style.sample(np.random.default_rng(seed)), 240):
            assert np.abs(np.diff(angle[10::20])).max() <= 0.5


@ALL
def test_the_parameters_agree_with_the_label_text(action):
    text = find_label(action.label).description.lower()
    if action.kind == "dive":
        som, shape = re.search(r"([\d.]+) soms?\.(\w+)", text).groups()
        assert (float(som), shape) == (action.somersaults, action.form[:4])
        twist = re.search(r"([\d.]+) twist", text)
        assert float(twist[1] if twist else 0) == action.turns
        assert text.startswith(action.entry.replace("armstand ", "arm."))
        return
    place = {"floor": "floor exercise", "beam": "balance beam", "bars": "uneven bar", "vault": "vault"}[
        action.apparatus
    ]
    assert text.startswith(f"({place})")
    turn = re.search(r"([\d.]+) (?:turn|twist)(?! on,)", text.removeprefix(f"({place})"))
    assert float(turn[1] if turn else 0) == action.turns
    assert ("double" in text) == (action.somersaults == 2)
    if action.direction and "tsukahara" not in text and "arabian" not in text:
        assert ("forward" if action.direction > 0 else "backward") in text
    words = {
        "leg below horizontal": "below horizontal",
        "leg held upward": "held upward",
        "heel forward": "heel",
        "tuck jump": "tuck hop or jump",
        "wolf jump": "wolf hop or jump",
        "straddle jump": "straddle pike",
    }
    assert words.get(action.form, action.form) in text
    assert {"half on": "with 0.5 turn on,", "full on": "with 1 turn on,"}.get(action.entry, action.entry) in text


def test_labels_that_differ_have_different_phrases_within_an_apparatus():
    phrases = {(action.apparatus, action_phrase(action)) for action in ALL_ACTIONS.values()}
    assert len(phrases) == len(ALL_ACTIONS)


def test_switch_and_split_leap_share_their_highest_pose_and_differ_in_the_order_of_legs():
    style = Style()
    switch, split = (perform(ACTIONS[label], style, 101) for label in ("45", "46"))
    np.testing.assert_allclose(switch.angles[62], split.angles[62], atol=1e-6)
    left_first = [motion.angles[38, 0] - motion.angles[38, 1] for motion in (switch, split)]
    assert left_first[0] < 0 < left_first[1]


def test_a_diver_ends_in_the_water_head_first_and_a_gymnast_on_the_feet():
    dive = perform(ACTIONS["103b"], Style(), 60)
    assert dive.joints[-1, J["left_hand"], 2] < -PLATFORM_DROP
    assert dive.joints[-1, J["head"], 2] < dive.joints[-1, J["left_foot"], 2]
    salto = perform(ACTIONS["119"], Style(), 60)
    assert salto.joints[-1, J["left_foot"], 2] == pytest.approx(0, abs=1e-6)


def test_the_hands_stay_on_the_bar_during_a_giant_circle():
    hands = perform(ACTIONS["241"], Style(), 60).joints[:, [J["left_hand"], J["right_hand"]]].mean(axis=1)
    assert np.ptp(hands, axis=0).max() < 1e-6


def test_limbs_keep_their_length_in_every_pose():
    body = Body.sample(np.random.default_rng(0))
    joints = body_joints(np.stack(list(POSES.values())), body)
    shank = np.linalg.norm(joints[:, J["left_knee"]] - joints[:, J["left_foot"]], axis=-1)
    np.testing.assert_allclose(shank, body.shank)


def test_a_pose_with_its_sides_swapped_is_its_mirror_image():
    pose = POSES["split"][None]
    joints, swapped = (body_joints(one, Body()) for one in (pose, swap_sides(pose)))
    for name in ("knee", "foot", "hand"):
        np.testing.assert_allclose(swapped[0, J[f"left_{name}"]], joints[0, J[f"right_{name}"]] * (1, -1, 1), atol=1e-9)
    assert not np.allclose(swapped, joints)


def test_front_and_back_of_the_torso_differ_in_color():
    motion = perform(ACTIONS["93"], Style(), 40)
    frames = list(draw_frames(motion, Scene(azimuth=np.pi / 2), 112))
    center = np.stack([frame[50:62, 50:62].reshape(-1, 3).astype(int).mean(axis=0) for frame in frames])
    red_over_blue = center[:, 0] - center[:, 2]
    assert red_over_blue.max() > 50
    assert red_over_blue.min() < -50


def test_a_mirrored_scene_is_the_flipped_picture():
    motion = perform(ACTIONS["45"], Style(), 3)
    plain, mirrored = (next(draw_frames(motion, Scene(mirror=mirror), 64)) for mirror in (False, True))
    assert np.abs(plain[:, ::-1].astype(int) - mirrored).mean() < 4  # the grain is the camera's and is not mirrored
