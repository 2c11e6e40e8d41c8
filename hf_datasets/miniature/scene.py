"""What is filmed and how: the hall and the camera of a clip, and what the harder tier puts in their way."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from hf_datasets.miniature.actions import Action, DrawnApparatus
from hf_datasets.miniature.motion import Style

Color = tuple[int, int, int]
SOCKS: Mapping[str, Color] = {
    "white": (245, 245, 245), "yellow": (245, 220, 30), "orange": (250, 130, 20),
    "pink": (250, 120, 190), "cyan": (50, 210, 240),
}  # fmt: skip
HALLS: Mapping[str, float] = {
    "red": 0.0,
    "brown": 0.08,
    "olive": 0.17,
    "green": 0.36,
    "blue": 0.62,
    "purple": 0.77,
}


@dataclass(frozen=True, slots=True)
class Cut:
    """A change of camera within a clip.

    Attributes:
        time: When, as a share of the shot.
        turn: What the new camera adds to the azimuth, in radians.
        elevation: Its angle above the floor in radians.
        zoom: Factor on the size of the picture's content.
    """

    time: float
    turn: float
    elevation: float
    zoom: float


@dataclass(frozen=True, slots=True)
class Passer:
    """Somebody, or a board, that passes between the camera and the athlete.

    Attributes:
        kind: What passes.
        start: When it enters the picture, as a share of the shot.
        duration: How long it takes to cross the picture, as a share of the shot.
        width: Its width as a share of the picture.
        hue: Hue of its clothes or paint in [0, 1].
        leftward: Whether it goes to the left.
    """

    kind: Literal["person", "board"]
    start: float
    duration: float
    width: float
    hue: float
    leftward: bool


@dataclass(frozen=True, slots=True)
class Bystander:
    """Another athlete in the background, who performs something else.

    Attributes:
        action: What.
        style: How.
        aside: Place along the main athlete's travel, from where that begins, in body units.
        behind: Distance behind the main athlete in body units.
        scale: Size, the main athlete's being 1.
        shade: Brightness of all colors, the main athlete's being 1.
    """

    action: Action
    style: Style
    aside: float
    behind: float
    scale: float
    shade: float


@dataclass(frozen=True, slots=True)
class Scene:
    """One competition's hall and one clip's camera.

    Attributes:
        apparatus: What is drawn around the athlete.
        hall: A name in `HALLS`, the hue of the walls.
        wall_value: Brightness of the walls in [0, 1].
        floor_hue: Hue of the floor, mat or water in [0, 1].
        socks: A name in `SOCKS`.
        azimuth: Camera angle about the vertical in radians; 0 is the side view.
        drift: How much the azimuth changes over the clip, in radians.
        elevation: Camera angle above the floor in radians.
        zoom: Body units to frame heights.
        wobble: Amplitude of the camera's unsteadiness in body units.
        mirror: Whether the picture is mirrored.
        noise_seed: Seed of the grain and of the wobble.
        cuts: Changes of camera within the clip, in the order of time.
        passers: Who or what passes in front.
        bystanders: Who else moves, behind the athlete.
    """

    apparatus: DrawnApparatus = "floor"
    hall: str = "blue"
    wall_value: float = 0.15
    floor_hue: float = 0.6
    socks: str = "white"
    azimuth: float = 0.0
    drift: float = 0.0
    elevation: float = 0.15
    zoom: float = 0.58
    wobble: float = 0.02
    mirror: bool = False
    noise_seed: int = 0
    cuts: tuple[Cut, ...] = ()
    passers: tuple[Passer, ...] = ()
    bystanders: tuple[Bystander, ...] = ()

    def at(self, time: float) -> "tuple[Scene, float]":
        """The scene as the camera at `time`, a share of the shot, films it, and what that adds to the azimuth."""
        cut = next((cut for cut in reversed(self.cuts) if cut.time <= time), None)
        if cut is None:
            return self, 0.0
        return replace(self, elevation=cut.elevation, zoom=self.zoom * cut.zoom), cut.turn
