"""What the harder tier adds to a clip: people who pass in front, changes of camera, athletes in the background."""

from dataclasses import replace

import numpy as np

from hf_datasets.miniature.actions import ALL_ACTIONS
from hf_datasets.miniature.motion import Style
from hf_datasets.miniature.scene import Bystander, Cut, Passer, Scene

ON_THE_FLOOR = tuple(action for action in ALL_ACTIONS.values() if action.apparatus == "floor")
DIVE_ACTIONS = tuple(action for action in ALL_ACTIONS.values() if action.apparatus == "platform")
WIDEST_VIEW = 1.15
"""Largest azimuth of a camera after a cut, in radians: beyond it somersaults are seen end on."""


def distracted(
    scene: Scene,
    style: Style,
    generator: np.random.Generator,
    *,
    passer_share: float = 0.0,
    cut_share: float = 0.0,
    bystander_share: float = 0.0,
) -> Scene:
    """The scene with what is drawn for it, independently of the label.

    Args:
        scene: One clip's scene.
        style: The athlete's performance, whose build the background athletes share.
        generator: Gives all random numbers; as many for each scene, whatever the shares are.
        passer_share: Probability that somebody or something passes in front.
        cut_share: Probability of one or two changes of camera.
        bystander_share: Probability of one or two athletes in the background.

    Returns:
        The scene with `passers`, `cuts` and `bystanders`.
    """
    passers, cuts, bystanders = (np.random.default_rng(generator.integers(2**63)) for _ in range(3))
    return replace(
        scene,
        passers=(_passer(passers),) if passers.uniform() < passer_share else (),
        cuts=_cuts(scene, cuts) if cuts.uniform() < cut_share else (),
        bystanders=_bystanders(scene, style, bystanders) if bystanders.uniform() < bystander_share else (),
    )


def _passer(generator: np.random.Generator) -> Passer:
    duration = float(generator.uniform(0.35, 0.7))
    return Passer(
        kind="person" if generator.integers(2) else "board",
        start=float(generator.uniform(0.05, 0.9 - duration)),
        duration=duration,
        width=float(generator.uniform(0.2, 0.34)),
        hue=float(generator.uniform(0, 1)),
        leftward=bool(generator.integers(2)),
    )


def _cuts(scene: Scene, generator: np.random.Generator) -> tuple[Cut, ...]:
    number = int(generator.integers(1, 3))
    times = np.linspace(0.1, 0.9, number + 2)[1:-1] + generator.uniform(-0.12, 0.12, number)
    cuts = []
    for time in times.tolist():
        azimuth = generator.uniform(-WIDEST_VIEW, WIDEST_VIEW)
        cuts.append(
            Cut(
                time=time,
                turn=float(azimuth) - scene.azimuth,
                elevation=float(generator.uniform(0.05, 0.5)),
                zoom=float(generator.uniform(0.8, 1.1)),
            )
        )
    return tuple(cuts)


def _bystanders(scene: Scene, style: Style, generator: np.random.Generator) -> tuple[Bystander, ...]:
    choices = DIVE_ACTIONS if scene.apparatus == "platform" else ON_THE_FLOOR
    found = []
    for _ in range(int(generator.integers(1, 3))):
        other = replace(
            Style.sample(generator), body=style.body, pause_before=float(generator.uniform(0, 0.3)), pause_after=0.0
        )
        found.append(
            Bystander(
                action=choices[int(generator.integers(len(choices)))],
                style=other,
                aside=0.0 if scene.apparatus == "platform" else float(generator.uniform(-0.6, 1.8)),
                behind=float(generator.uniform(1.0, 1.9)),
                scale=float(generator.uniform(0.6, 0.8)),
                shade=float(generator.uniform(0.55, 0.8)),
            )
        )
    return tuple(sorted(found, key=lambda other: -other.behind))
