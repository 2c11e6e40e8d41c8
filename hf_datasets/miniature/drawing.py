"""The camera and the drawing: joints in the world to RGB frames.

Colors are a code, so that turns can be seen at 48 px: the front of the torso is red and its back blue, right limbs
are cream and left limbs green, the hair is magenta and the face a white disc on the nose's side.
"""

import colorsys
import math
from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageOps

from hf_datasets.miniature.motion import BAR_HEIGHT, PLATFORM_DROP, TABLE_HEIGHT, Motion, perform
from hf_datasets.miniature.scene import HALLS, SOCKS, Bystander, Color, Passer, Scene
from hf_datasets.miniature.skeleton import J

Point = tuple[float, float, float]
FRONT, BACK, RIGHT, LEFT, HAIR, FACE = (
    (225, 35, 45), (35, 75, 225), (250, 228, 190), (40, 200, 80), (200, 30, 200), (255, 255, 255),
)  # fmt: skip
WOOD, GRAY, WATER = (150, 115, 75), (95, 95, 95), (46, 103, 115)
_PARTS = (
    ("hip", "knee", 0.085),
    ("knee", "foot", 0.07),
    ("shoulder", "elbow", 0.06),
    ("elbow", "hand", 0.05),
)
LIMBS = tuple(
    (J[f"{side}_{first}"], J[f"{side}_{second}"], color, width)
    for side, color in (("right", RIGHT), ("left", LEFT))
    for first, second, width in _PARTS
)
FLOORS = {"beam": -0.75, "platform": -PLATFORM_DROP}
"""Apparatus -> height of the hall's floor in body units, where it is not 0."""
FEET = (J["left_foot"], J["right_foot"])
TORSO = (J["left_shoulder"], J["right_shoulder"], J["right_hip"], J["left_hip"])


def _color(hue: float, saturation: float, value: float) -> Color:
    red, green, blue = colorsys.hsv_to_rgb(hue % 1, saturation, value)
    return round(255 * red), round(255 * green), round(255 * blue)


class Camera:
    """An orthographic camera that follows the pelvis; one per frame.

    Scenery has few points, so they are projected with plain floats; the athlete's joints go through numpy at once.
    """

    def __init__(self, scene: Scene, target: np.ndarray, azimuth: float, size: int) -> None:
        cos_a, sin_a = math.cos(azimuth), math.sin(azimuth)
        cos_e, sin_e = math.cos(scene.elevation), math.sin(scene.elevation)
        self.axes = (
            (cos_a, sin_a, 0.0),
            (-sin_a * sin_e, cos_a * sin_e, cos_e),
            (-sin_a * cos_e, cos_a * cos_e, -sin_e),
        )
        self.target, self.scale, self.size = target.tolist(), scene.zoom * size, size

    def pixel(self, x: float, y: float, z: float) -> tuple[float, float]:
        """A world point in pixels right and down."""
        (a, b, _), (d, e, f), _ = self.axes
        x, y, z = x - self.target[0], y - self.target[1], z - self.target[2]
        return self.size / 2 + self.scale * (a * x + b * y), self.size / 2 - self.scale * (d * x + e * y + f * z)

    def project(self, points: np.ndarray) -> np.ndarray:
        """World points `(..., 3)` to pixels right, pixels down and depth (larger is farther)."""
        seen = (points - self.target) @ np.array(self.axes).T
        pixels: np.ndarray = seen * (self.scale, -self.scale, 1) + (self.size / 2, self.size / 2, 0)
        return pixels


def follow(motion: Motion, scene: Scene, size: int) -> list[Camera]:
    """The camera of each frame: it keeps the pelvis near the center, a little unsteadily, and drifts."""
    phase = np.random.default_rng(scene.noise_seed).uniform(0, 2 * math.pi, 2)
    share = np.linspace(0, 1, len(motion.joints))
    sway = np.zeros((len(share), 3))
    sway[:, 0], sway[:, 2] = np.sin(6 * share + phase[0]), np.sin(8 * share + phase[1])
    targets = motion.joints[:, J["pelvis"]] + scene.wobble * sway
    azimuths = scene.azimuth + scene.drift * (share - 0.5)
    cameras = []
    for target, azimuth, time in zip(targets, azimuths.tolist(), share.tolist(), strict=True):
        seen, turn = scene.at(time)
        cameras.append(Camera(seen, target, azimuth + turn, size))
    return cameras


def camera_joints(motion: Motion, scene: Scene) -> np.ndarray:
    """The joints as the camera sees them, for supervision.

    Args:
        motion: As `perform` returns it.
        scene: Camera and mirror.

    Returns:
        `(frames, 16, 3)` float32 offsets from the pelvis in body units: right, up and away in the picture.
    """
    axes = np.array([camera.axes for camera in follow(motion, scene, 1)])
    seen = np.einsum("fij,fkj->fki", axes, motion.joints - motion.joints[:, :1])
    offsets: np.ndarray = (seen * (-1 if scene.mirror else 1, 1, 1)).astype(np.float32)
    return offsets


def draw_frames(motion: Motion, scene: Scene, size: int) -> Iterator[np.ndarray]:
    """Draw a motion frame by frame.

    Args:
        motion: As `perform` returns it.
        scene: Hall, camera and socks.
        size: Side of the square frames in pixels.

    Yields:
        RGB frames of shape `(size, size, 3)`, uint8.
    """
    noise = np.random.default_rng(scene.noise_seed).normal(0, 2.5, (size, size))
    grain = Image.merge("RGB", [Image.fromarray(np.clip(128 + noise, 0, 255).astype(np.uint8))] * 3)
    start = float(motion.joints[0, :, 0].mean())
    cameras = follow(motion, scene, size)
    others = [(other, perform(other.action, other.style, len(cameras))) for other in scene.bystanders]
    for number, (camera, joints, chest) in enumerate(zip(cameras, motion.joints, motion.forward, strict=True)):
        picture = Image.new("RGB", (size, size), _color(HALLS[scene.hall], 0.5, scene.wall_value))
        brush = ImageDraw.Draw(picture)
        _draw_hall(brush, camera, scene)
        for other, performed in others:
            _draw_bystander(brush, camera, other, performed, number, start, scene)
        _draw_apparatus(brush, camera, scene, start)
        _draw_athlete(brush, camera, joints, chest, scene)
        if scene.apparatus == "platform":
            _draw_water(picture, camera)
        for passer in scene.passers:
            _draw_passer(brush, size, passer, number / max(len(cameras) - 1, 1))
        if scene.mirror:
            picture = ImageOps.mirror(picture)
        yield np.asarray(ImageChops.add(picture, grain, offset=-128))


def _draw_hall(brush: ImageDraw.ImageDraw, camera: Camera, scene: Scene) -> None:
    size = camera.size
    light, dark = (_color(HALLS[scene.hall], 0.5, scene.wall_value * factor) for factor in (1.2, 0.75))
    for number in range(13):
        left, _ = camera.pixel((number - 6) * 0.75, 3, 2.6)
        if -size < left < size:
            brush.rectangle((left, 0, left + 0.22 * camera.scale, size), fill=dark if number % 2 else light)
    edge = max(camera.pixel(0, 2.2, FLOORS.get(scene.apparatus, 0.0))[1], 0)
    if edge < size:
        brush.rectangle((0, edge, size, size), fill=_color(scene.floor_hue, 0.5, 0.75 * scene.wall_value + 0.13))


def _box(brush: ImageDraw.ImageDraw, camera: Camera, low: Point, high: Point, color: Color) -> None:
    """The top and the near side of a box."""
    (x0, y0, z0), (x1, y1, z1) = low, high
    left, right = camera.pixel(x0, y0, z1), camera.pixel(x1, y0, z1)
    shade = tuple(3 * part // 4 for part in color)
    brush.polygon((camera.pixel(x0, y0, z0), camera.pixel(x1, y0, z0), right, left), fill=shade)
    brush.polygon((left, right, camera.pixel(x1, y1, z1), camera.pixel(x0, y1, z1)), fill=color)


def _rod(brush: ImageDraw.ImageDraw, camera: Camera, first: Point, second: Point, color: Color, width: float) -> None:
    pixels = max(round(width * camera.scale), 1)
    brush.line((camera.pixel(*first), camera.pixel(*second)), fill=color, width=pixels)


def _draw_apparatus(brush: ImageDraw.ImageDraw, camera: Camera, scene: Scene, start: float) -> None:
    if scene.apparatus == "floor":
        white = _color(scene.floor_hue, 0.15, 0.45)
        for y in (-0.9, 1.4):
            _rod(brush, camera, (-4, y, 0), (4, y, 0), white, 0.03)
    elif scene.apparatus == "beam":
        for x in (-1.6, 1.6):
            _box(brush, camera, (x - 0.05, -0.05, -0.75), (x + 0.05, 0.05, -0.1), GRAY)
        _box(brush, camera, (-2.2, -0.07, -0.1), (2.2, 0.07, 0), WOOD)
    elif scene.apparatus == "bars":
        for x, height in ((-1.0, BAR_HEIGHT - 0.5), (0.0, BAR_HEIGHT)):
            for y in (-0.8, 0.8):
                _rod(brush, camera, (x, y, 0), (x, y, height), GRAY, 0.035)
            _rod(brush, camera, (x, -0.8, height), (x, 0.8, height), WOOD, 0.05)
    elif scene.apparatus == "vault":
        table = start + 0.42
        _box(brush, camera, (table - 0.75, -0.2, 0), (table - 0.45, 0.2, 0.05), GRAY)
        _box(brush, camera, (table - 0.12, -0.1, 0), (table + 0.12, 0.1, TABLE_HEIGHT - 0.1), GRAY)
        _box(brush, camera, (table - 0.3, -0.25, TABLE_HEIGHT - 0.12), (table + 0.3, 0.25, TABLE_HEIGHT), WOOD)
    else:
        edge = start + 0.2
        _box(brush, camera, (edge - 2.5, -0.5, -0.14), (edge, 0.5, 0), _color(0.05, 0.1, 0.6))


def _draw_water(picture: Image.Image, camera: Camera) -> None:
    surface = max(round(camera.pixel(0, 0, -PLATFORM_DROP)[1]), 0)
    if surface < camera.size:
        below = (0, surface, camera.size, camera.size)
        water = Image.new("RGB", (camera.size, camera.size - surface), WATER)
        picture.paste(Image.blend(picture.crop(below), water, 0.65), below)


def _draw_bystander(
    brush: ImageDraw.ImageDraw,
    camera: Camera,
    other: Bystander,
    performed: Motion,
    number: int,
    start: float,
    scene: Scene,
) -> None:
    """The background athlete of frame `number`: a diver on a platform alongside, else somebody on the hall's floor."""
    ground = FLOORS.get(scene.apparatus, 0.0) if other.action.kind != "dive" else 0.0
    x, y = start + other.aside, other.behind
    if other.action.kind == "dive":
        _box(brush, camera, (x - 2.3, y - 0.4, -0.14), (x + 0.2, y + 0.4, 0), _color(0.05, 0.1, 0.6 * other.shade))
        x -= other.scale * float(performed.joints[0, :, 0].mean())
    joints = other.scale * performed.joints[number] + (x, y, ground)
    _draw_athlete(brush, camera, joints, performed.forward[number], scene, shade=other.shade, scale=other.scale)


def _draw_passer(brush: ImageDraw.ImageDraw, size: int, passer: Passer, time: float) -> None:
    """A person from the knees up or a board, close to the camera and dark, where it is at `time`."""
    progress = (time - passer.start) / passer.duration
    if not 0 < progress < 1:
        return
    center = (-passer.width + (1 + 2 * passer.width) * (1 - progress if passer.leftward else progress)) * size
    half = passer.width * size / 2
    color = _color(passer.hue, 0.4, 0.3)
    if passer.kind == "board":
        brush.rectangle((center - half, 0.3 * size, center + half, size), fill=color)
        brush.rectangle((center - half, 0.3 * size, center + half, 0.36 * size), fill=GRAY)
        return
    step = 0.03 * size * math.sin(40 * time)
    brush.rounded_rectangle((center - half, 0.28 * size + step, center + half, 1.1 * size), 0.6 * half, fill=color)
    brush.ellipse(
        (center - 0.55 * half, 0.1 * size + step, center + 0.55 * half, 0.29 * size + step), fill=(120, 85, 65)
    )


def _draw_athlete(
    brush: ImageDraw.ImageDraw,
    camera: Camera,
    joints: np.ndarray,
    chest: np.ndarray,
    scene: Scene,
    *,
    shade: float = 1.0,
    scale: float = 1.0,
) -> None:
    """Paint the parts from the farthest to the nearest; `shade` is a factor on colors, `scale` on widths."""
    seen = camera.project(joints).tolist()
    right, up, away = (np.array(camera.axes) @ chest).tolist()
    unit = camera.scale * scale  # pixels

    def shaded(color: Color) -> Color:
        return round(shade * color[0]), round(shade * color[1]), round(shade * color[2])

    strokes: list[tuple[float, Callable[..., None], tuple[object, ...]]] = [
        ((seen[first][2] + seen[second][2]) / 2, _draw_limb, (seen[first], seen[second], shaded(color), width))
        for first, second, color, width in LIMBS
    ]
    strokes += [(seen[foot][2] - 0.01, _disc, (seen[foot], shaded(SOCKS[scene.socks]), 0.055)) for foot in FEET]
    middle = (seen[J["pelvis"]][2] + seen[J["neck"]][2]) / 2
    # Two slabs, one behind the other: from the side both are seen, from the front only the front.
    for color, sign in ((FRONT, 1), (BACK, -1)):
        shift = (0.032 * unit * sign * right, -0.032 * unit * sign * up)
        strokes.append((middle + 0.035 * sign * away, _torso, (seen, shift, shaded(color))))
    strokes += [
        (seen[J["head"]][2], _disc, (seen[J["head"]], shaded(HAIR), 0.085)),
        (seen[J["nose"]][2] - 0.02, _disc, (seen[J["nose"]], shaded(FACE), 0.05)),
    ]
    for _, stroke, arguments in sorted(strokes, key=lambda item: -item[0]):
        stroke(brush, unit, *arguments)


def _draw_limb(
    brush: ImageDraw.ImageDraw,
    unit: float,
    first: list[float],
    second: list[float],
    color: Color,
    width: float,
) -> None:
    pixels = max(round(width * unit), 2)
    brush.line((first[0], first[1], second[0], second[1]), fill=color, width=pixels)
    _disc(brush, unit, first, color, width / 2)
    _disc(brush, unit, second, color, width / 2)


def _disc(brush: ImageDraw.ImageDraw, unit: float, center: list[float], color: Color, radius: float) -> None:
    (x, y, _), reach = center, radius * unit
    brush.ellipse((x - reach, y - reach, x + reach, y + reach), fill=color)


def _torso(
    brush: ImageDraw.ImageDraw,
    unit: float,
    seen: list[list[float]],
    shift: tuple[float, float],
    color: Color,
) -> None:
    outline = [(seen[corner][0] + shift[0], seen[corner][1] + shift[1]) for corner in TORSO]
    brush.polygon(outline, fill=color)
    brush.line([*outline, outline[0]], fill=color, width=max(round(0.06 * unit), 2), joint="curve")
