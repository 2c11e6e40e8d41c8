"""The athlete's skeleton: joint angles to 3-D joints, and the poses that the motions are made of."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass

import numpy as np

JOINTS = (
    "pelvis", "neck", "head", "nose",
    "left_hip", "right_hip", "left_shoulder", "right_shoulder",
    "left_knee", "right_knee", "left_foot", "right_foot",
    "left_elbow", "right_elbow", "left_hand", "right_hand",
)  # fmt: skip
"""Order of the joints in every array; the body frame has x forward, y left, z towards the head."""
J = {name: index for index, name in enumerate(JOINTS)}

ANGLES = (
    "left_hip", "right_hip", "left_spread", "right_spread", "left_knee", "right_knee",
    "left_shoulder", "right_shoulder", "left_reach", "right_reach", "left_elbow", "right_elbow",
)  # fmt: skip
"""Order of a pose's angles in degrees: hips and shoulders lift forward, spread and reach lift sideways,
knees bend backward, elbows bend forward. All zero is standing straight, arms down."""
_MIRROR = [1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10]


def _pose(
    hip: float | tuple[float, float] = 0.0,
    spread: float | tuple[float, float] = 3.0,
    knee: float | tuple[float, float] = 0.0,
    shoulder: float | tuple[float, float] = 0.0,
    reach: float | tuple[float, float] = 8.0,
    elbow: float | tuple[float, float] = 8.0,
) -> np.ndarray:
    pairs = [value if isinstance(value, tuple) else (value, value) for value in (hip, spread, knee)]
    pairs += [value if isinstance(value, tuple) else (value, value) for value in (shoulder, reach, elbow)]
    return np.array([angle for pair in pairs for angle in pair], dtype=float)


POSES: Mapping[str, np.ndarray] = {
    "stand": _pose(),
    "crouch": _pose(hip=62, knee=96, shoulder=-30, elbow=10),
    "reach": _pose(shoulder=168, reach=4, elbow=4),
    "land": _pose(hip=48, knee=72, shoulder=70, reach=20),
    "present": _pose(shoulder=150, reach=30, elbow=5),
    "stretched": _pose(spread=2, shoulder=28, reach=6, elbow=115),
    "straight": _pose(spread=2, shoulder=172, reach=3, elbow=3),
    "tucked": _pose(hip=128, knee=132, shoulder=72, reach=10, elbow=18),
    "piked": _pose(hip=122, knee=3, shoulder=88, reach=6, elbow=4),
    "step": _pose(hip=(38, -28), knee=(22, 20), shoulder=(-25, 30), elbow=25),
    "drive": _pose(hip=(70, -22), knee=(80, 5), shoulder=(20, 60), elbow=20),
    "split": _pose(hip=(86, -84), shoulder=(78, 10), reach=(20, 75), elbow=5),
    "switched": _pose(hip=(-48, 62), shoulder=(30, 60), reach=(60, 20), elbow=8),
    "leg below horizontal": _pose(hip=(0, 42), knee=(0, 92), shoulder=55, reach=18, elbow=70),
    "leg held upward": _pose(hip=(0, 152), spread=(0, 14), shoulder=(35, 140), reach=(40, 14), elbow=(20, 6)),
    "heel forward": _pose(hip=(0, 88), shoulder=62, reach=34, elbow=60),
    "tuck stand": _pose(hip=(98, 82), knee=(128, 3), shoulder=70, reach=25, elbow=20),
    "wolf": _pose(hip=(128, 88), knee=(132, 2), shoulder=85, reach=12, elbow=6),
    "straddled": _pose(hip=82, spread=62, shoulder=80, reach=30, elbow=5),
    "pike sole circle": _pose(hip=150, spread=2, shoulder=128, reach=3, elbow=0),
    "giant circle": _pose(spread=2, shoulder=176, reach=2, elbow=0),
    "clear hip circle": _pose(hip=34, spread=2, shoulder=36, reach=3, elbow=0),
    "stalder": _pose(hip=112, spread=52, shoulder=84, reach=4, elbow=0),
}


@dataclass(frozen=True, slots=True)
class Body:
    """Lengths of one athlete's limbs, in body units (a standing figure is about 0.95 high)."""

    thigh: float = 0.25
    shank: float = 0.25
    upper_arm: float = 0.17
    forearm: float = 0.17
    torso: float = 0.30
    shoulder_width: float = 0.085
    hip_width: float = 0.05

    @classmethod
    def sample(cls, generator: np.random.Generator, spread: float = 0.05) -> "Body":
        """A body whose lengths vary log-normally by `spread`."""
        factors = np.exp(generator.normal(0, spread, 7))
        return cls(*(factor * length for factor, length in zip(factors, astuple(cls()), strict=True)))


def swap_sides(poses: np.ndarray) -> np.ndarray:
    """The same poses with left and right exchanged; shape `(..., 12)`."""
    return poses[..., _MIRROR]


def body_joints(poses: np.ndarray, body: Body) -> np.ndarray:
    """Joints in the body frame.

    Args:
        poses: Angles in degrees, shape `(frames, 12)`, ordered as `ANGLES`.
        body: Limb lengths.

    Returns:
        Positions of shape `(frames, 16, 3)`, ordered as `JOINTS`, the pelvis at the origin.

    Example:
        >>> joints = body_joints(POSES["stand"][None], Body())
        >>> float(joints[0, J["left_foot"], 2]).__round__(2)
        -0.5
    """
    angles = np.radians(poses).T
    joints = np.zeros((len(poses), len(JOINTS), 3))
    joints[:, J["neck"], 2] = body.torso
    joints[:, J["head"]] = (0.01, 0, body.torso + 0.105)
    joints[:, J["nose"]] = (0.065, 0, body.torso + 0.11)
    for side, sign in (("left", 1.0), ("right", -1.0)):
        offset = 0 if side == "left" else 1
        hip, spread, knee, shoulder, reach, elbow = (angles[2 * index + offset] for index in range(6))
        joints[:, J[f"{side}_hip"], 1] = sign * body.hip_width
        joints[:, J[f"{side}_shoulder"]] = (0, sign * body.shoulder_width, 0.96 * body.torso)
        chains = (
            ("hip", "knee", "foot", hip, hip - knee, spread, body.thigh, body.shank),
            ("shoulder", "elbow", "hand", shoulder, shoulder + elbow, reach, body.upper_arm, body.forearm),
        )
        for root, middle, tip, upper, lower, aside, upper_length, lower_length in chains:
            joints[:, J[f"{side}_{middle}"]] = joints[:, J[f"{side}_{root}"]] + upper_length * _limb(upper, aside, sign)
            joints[:, J[f"{side}_{tip}"]] = joints[:, J[f"{side}_{middle}"]] + lower_length * _limb(lower, aside, sign)
    return joints


def _limb(lift: np.ndarray, aside: np.ndarray, sign: float) -> np.ndarray:
    """Unit vectors of a limb that hangs down at 0 and is lifted forward and aside."""
    return np.stack((np.sin(lift) * np.cos(aside), sign * np.sin(aside), -np.cos(lift) * np.cos(aside)), axis=-1)


def rotate(points: np.ndarray, axis: int, angles: np.ndarray) -> np.ndarray:
    """Rotate `(frames, joints, 3)` points about a coordinate axis by `(frames,)` angles in radians, right-handed."""
    first, second = [(1, 2), (2, 0), (0, 1)][axis]
    cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]
    turned = points.copy()
    turned[..., first] = cosine * points[..., first] - sine * points[..., second]
    turned[..., second] = sine * points[..., first] + cosine * points[..., second]
    return turned
