"""The motion programs: from an action's parameters to joint positions over time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hf_datasets.miniature.actions import Action
from hf_datasets.miniature.skeleton import POSES, Body, body_joints, rotate, swap_sides

TABLE_HEIGHT, BAR_HEIGHT, PLATFORM_DROP = 0.55, 1.35, 1.9  # body units
LONGEST_PAUSE = 0.08  # share of a clip
TURNS_BEFORE: Mapping[str, float] = {"arabian": 0.5, "tsukahara": 0.5, "half on": 0.5, "full on": 1.0}
"""Entry -> turns about the long axis that belong to it; the label counts those that follow."""
JUMP_POSES: Mapping[str, str] = {
    "split jump": "split", "tuck jump": "tucked", "wolf jump": "wolf", "straddle jump": "straddled",
}  # fmt: skip
"""Jumps from both feet, and the pose of their flight."""
Curve = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Style:
    """What differs between two performances of the same action, none of it part of the label.

    Attributes:
        body: Limb lengths.
        left_leads: Which leg or side leads; it does not depend on the label.
        twist_left: Which way the turns go.
        flexion: Factor on every joint angle, around 1.
        jump: Height of the flight in body units.
        travel: Distance travelled in body units.
        pause_before: Share of the clip before the motion starts.
        pause_after: Share of the clip after it has ended.
        warp: Exponent of the monotone time warp, around 1.
    """

    body: Body = field(default_factory=Body)
    left_leads: bool = True
    twist_left: bool = True
    flexion: float = 1.0
    jump: float = 0.45
    travel: float = 1.2
    pause_before: float = 0.03
    pause_after: float = 0.03
    warp: float = 1.0

    @classmethod
    def sample(cls, generator: np.random.Generator) -> "Style":
        """A performance drawn independently of the action."""
        return cls(
            body=Body.sample(generator),
            left_leads=bool(generator.integers(2)),
            twist_left=bool(generator.integers(2)),
            flexion=float(generator.uniform(0.95, 1.05)),
            jump=float(generator.uniform(0.35, 0.55)),
            travel=float(generator.uniform(0.8, 1.6)),
            pause_before=float(generator.uniform(0, LONGEST_PAUSE)),
            pause_after=float(generator.uniform(0, LONGEST_PAUSE)),
            warp=float(np.exp(generator.normal(0, 0.08))),
        )


@dataclass(frozen=True, slots=True)
class Program:
    """A motion over normalized time 0..1.

    Attributes:
        poses: (time, name in `POSES`) key poses, blended in between.
        somersault: (time, turns) of the rotation about the lateral axis, positive forward, piecewise linear.
        twist: (time, turns) about the long axis, positive to the left, piecewise linear.
        contacts: (start, end, height) spans in which the lowest point of the body rests at a height; in between
            it flies. The bars hold the hands instead, at `BAR_HEIGHT`.
        faces_back: The athlete starts with the back to the direction of travel.
        hangs: The contacts are of the hands on the bar.
    """

    poses: Sequence[tuple[float, str]]
    somersault: Curve = ((0, 0), (1, 0))
    twist: Curve = ((0, 0), (1, 0))
    contacts: Sequence[tuple[float, float, float]] = ((0, 1, 0),)
    faces_back: bool = False
    hangs: bool = False


def _salto(action: Action) -> Program:
    up, down = 0.15, 0.89
    shape = action.form
    # An arabian takes off backward; after half a twist the same rotation in the world is forward for the body.
    backward = action.direction < 0 or action.entry == "arabian"
    half = TURNS_BEFORE.get(action.entry, 0.0)
    turns = (-1 if backward else 1) * action.somersaults
    return Program(
        poses=[
            (0, "stand"),
            (0.07, "crouch"),
            (0.15, "reach"),
            (0.26, shape),
            (0.8, shape),
            (0.88, "land"),
            (1, "present"),
        ],
        somersault=[(0, 0), (up - 0.02, 0), (down, turns)],
        twist=[(0, 0), (up, 0), *([(0.28, half)] if half else []), (down, half + action.turns)],
        contacts=[(0, up, 0), (down, 1, 0)],
        faces_back=backward,
    )


def _leap(action: Action) -> Program:
    up, down = 0.22, 0.82
    if action.form in JUMP_POSES:
        shape = JUMP_POSES[action.form]
        poses = [
            (0, "stand"),
            (0.12, "crouch"),
            (0.22, "reach"),
            (0.42, shape),
            (0.62, shape),
            (0.82, "land"),
            (1, "present"),
        ]
    elif action.form == "split leap":
        poses = [(0, "step"), (0.2, "drive"), (0.4, "split"), (0.64, "split"), (0.84, "step"), (1, "present")]
    else:
        poses = [
            (0, "step"),
            (0.2, "step"),
            (0.35, "switched"),
            (0.55, "split"),
            (0.68, "split"),
            (0.84, "step"),
            (1, "present"),
        ]
    return Program(poses=poses, twist=[(0, 0), (up, 0), (down, action.turns)], contacts=[(0, up, 0), (down, 1, 0)])


def _pivot(action: Action) -> Program:
    form = action.form
    return Program(
        poses=[(0, "stand"), (0.08, "step"), (0.16, form), (0.86, form), (0.94, "stand"), (1, "present")],
        twist=[(0, 0), (0.12, 0), (0.9, action.turns)],
    )


def _circle(action: Action) -> Program:
    form = action.form
    end = action.direction * action.somersaults
    # The turn belongs to the way up to the handstand, the last half of the circle.
    return Program(
        poses=[
            (0, "giant circle"),
            (0.1, "giant circle"),
            (0.3, form),
            (0.6, form),
            (0.78, "giant circle"),
            (1, "giant circle"),
        ],
        somersault=[(0, 0.5), (0.06, 0.5), (0.82, 0.5 + end), (1, 0.5 + end)],
        twist=[(0, 0), (0.5, 0), (0.94, action.turns)],
        contacts=[(0, 1, BAR_HEIGHT)],
        hangs=True,
    )


def _dismount(action: Action) -> Program:
    away, down = 0.3, 0.88
    release = 0.5 + action.direction * 0.75
    # Swinging forward under the bar, the body is past horizontal when it lets go; upright again after the saltos.
    landing = action.direction * (0.5 + action.somersaults)
    landing += 0.5
    return Program(
        poses=[
            (0, "giant circle"),
            (0.24, "giant circle"),
            (0.38, action.form),
            (0.78, action.form),
            (0.87, "land"),
            (1, "present"),
        ],
        somersault=[(0, 0.5), (0.04, 0.5), (away, release), (down, landing)],
        twist=[(0, 0), (away, 0), (down, action.turns)],
        contacts=[(0, away, BAR_HEIGHT), (down, 1, 0)],
        hangs=True,
    )


def _vault(action: Action) -> Program:
    way = action.direction
    on, off, down = 0.24, 0.32, 0.88
    half = TURNS_BEFORE.get(action.entry, 0.0)
    # A tsukahara goes on forward and, after half a turn on the way to the table, off backward; a round-off with half a
    # turn on the other way round.
    sense = {"tsukahara": 1, "half on": -1}.get(action.entry, way)
    start = 0.5 * sense
    shape = action.form
    # After the half turn the same rotation in the world is backward for the body.
    total = start + sense * (0.5 + action.somersaults)
    return Program(
        poses=[
            (0, "crouch"),
            (0.08, "reach"),
            (on, "straight"),
            (off, "straight"),
            (0.44, shape),
            (0.78, shape),
            (0.87, "land"),
            (1, "present"),
        ],
        somersault=[(0, 0), (0.06, 0), (on, start), (off, start + 0.06 * sense), (down, total)],
        twist=[(0, 0), (0.08, 0), (on, half), (off, half), (down, half + action.turns)],
        contacts=[(0, 0.08, 0), (on, off, TABLE_HEIGHT), (down, 1, 0)],
        faces_back=action.entry in {"round-off", "half on", "full on"},
    )


def _dive(action: Action) -> Program:
    up, entry = 0.16, 0.92
    shape, turns, way = action.form, action.turns, action.direction
    armstand = action.entry.startswith("armstand")
    start = 0.5 if armstand else 0.0
    end = start + way * action.somersaults
    if turns and action.entry == "forward":  # the label names the pike first: pike, then twist
        middle = [(0.24, shape), (0.46, shape), (0.54, "stretched"), (0.84, "stretched")]
        twist = [(0, 0), (0.46, 0), (0.88, turns)]
    elif turns:  # twist first, then pike
        middle = [(0.22, "stretched"), (0.6, "stretched"), (0.68, shape), (0.82, shape)]
        twist = [(0, 0), (up, 0), (0.64, turns)]
    else:
        middle = [(0.26, shape), (0.8, shape)]
        twist = [(0, 0), (1, 0)]
    before = [(0, "straight"), (up, "straight")] if armstand else [(0, "stand"), (0.08, "crouch"), (0.15, "reach")]
    return Program(
        poses=[*before, *middle, (0.9, "straight"), (1, "straight")],
        somersault=[(0, start), (up - 0.02, start), (entry, end)],
        twist=twist,
        contacts=[(0, up, 0)],
        faces_back=action.entry in {"back", "inward", "armstand back"},
    )


PROGRAMS: Mapping[str, Callable[[Action], Program]] = {
    "salto": _salto, "leap": _leap, "pivot": _pivot, "circle": _circle,
    "dismount": _dismount, "vault": _vault, "dive": _dive,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Motion:
    """A performance: joints in the world and the angles that made them.

    Attributes:
        joints: `(frames, 16, 3)` positions in body units, x along the travel, z up.
        forward: `(frames, 3)` unit vectors out of the chest.
        somersault: `(frames,)` rotation about the lateral axis in turns, positive forward.
        twist: `(frames,)` rotation about the long axis in turns.
        angles: `(frames, 12)` joint angles in degrees, ordered as `ANGLES`.
    """

    joints: np.ndarray
    forward: np.ndarray
    somersault: np.ndarray
    twist: np.ndarray
    angles: np.ndarray


def perform(action: Action, style: Style, num_frames: int) -> Motion:
    """Animate an action: `num_frames` frames that cover the clip from its first to its last instant."""
    program = PROGRAMS[action.kind](action)
    clock = np.linspace(0, 1, num_frames)
    inner = (clock - style.pause_before) / (1 - style.pause_before - style.pause_after)
    time = np.clip(inner, 0, 1) ** style.warp
    poses = _blend(program.poses, time) * style.flexion
    if not style.left_leads:
        poses = swap_sides(poses)
    somersault = _interpolate(program.somersault, time)
    twist = _interpolate(program.twist, time) * (1 if style.twist_left else -1)
    joints = rotate(body_joints(poses, style.body), 2, 2 * np.pi * twist)
    joints = rotate(joints, 1, 2 * np.pi * somersault)
    chest = rotate(np.tile(np.array([[[1.0, 0, 0]]]), (num_frames, 1, 1)), 2, 2 * np.pi * twist)
    chest = rotate(chest, 1, 2 * np.pi * somersault)
    if program.faces_back:
        joints[..., :2] *= -1
        chest[..., :2] *= -1
    joints += _pelvis_path(program, style, time, joints, action)[:, None]
    return Motion(joints, chest[:, 0], somersault, twist, poses)


def _interpolate(curve: Curve, time: np.ndarray) -> np.ndarray:
    times, values = zip(*curve, strict=True)
    curve_values: np.ndarray = np.interp(time, times, values)
    return curve_values


def _blend(keys: Sequence[tuple[float, str]], time: np.ndarray) -> np.ndarray:
    """Key poses with an ease-in and ease-out between neighbours."""
    times = np.array([key for key, _ in keys])
    poses = np.stack([POSES[name] for _, name in keys])
    index = np.clip(np.searchsorted(times, time, side="right") - 1, 0, len(keys) - 2)
    share = np.clip((time - times[index]) / (times[index + 1] - times[index]), 0, 1)
    share = (share * share * (3 - 2 * share))[:, None]
    blended: np.ndarray = poses[index] * (1 - share) + poses[index + 1] * share
    return blended


def _pelvis_path(program: Program, style: Style, time: np.ndarray, joints: np.ndarray, action: Action) -> np.ndarray:
    """Where the pelvis is: held by the contacts, on a parabola between them, forward at an even pace."""
    path = np.zeros((len(time), 3))
    path[:, 0] = style.travel * (time - 0.5)
    hands = joints[:, 14:16].mean(axis=1)
    resting = -joints[..., 2].min(axis=1)
    held = np.zeros(len(time), dtype=bool)
    for start, end, height in program.contacts:
        during = (time >= start) & (time <= end)
        held |= during
        if height == BAR_HEIGHT:
            path[during] = -hands[during] + (0, 0, BAR_HEIGHT)
        else:
            path[during, 2] = resting[during] + height
    for first, last in _runs(~held):
        before, after = path[max(first - 1, 0)], path[min(last + 1, len(time) - 1)]
        share = (
            np.linspace(0, 1, last - first + 3)[1:-1]
            if last + 1 < len(time)
            else np.linspace(0, 1, last - first + 2)[1:]
        )
        flight = 4 * style.jump * share * (1 - share)
        if action.kind == "dive":
            path[first : last + 1, 2] = before[2] + flight - (PLATFORM_DROP + 0.4) * share**1.6
            path[first : last + 1, 0] = before[0] + 0.9 * share
        else:
            path[first : last + 1, 2] = before[2] * (1 - share) + after[2] * share + flight
        if program.hangs:
            path[first : last + 1, 0] = before[0] + 1.1 * share
            path[last + 1 :, 0] = before[0] + 1.1
    return path


def _runs(mask: np.ndarray) -> list[tuple[int, int]]:
    """First and last index of each stretch of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(int), [0]))))
    return [(int(start), int(stop) - 1) for start, stop in edges.reshape(-1, 2)]
