"""The plan of the miniature: which clip is performed in which long video, by whom and how it is filmed."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from hf_datasets.long_videos import SPLITS
from hf_datasets.miniature.actions import ACTIONS, ALL_ACTIONS, DRAWN_APPARATUS, Action
from hf_datasets.miniature.captions import coarse_caption, fine_caption
from hf_datasets.miniature.distractions import distracted
from hf_datasets.miniature.motion import LONGEST_PAUSE, Style
from hf_datasets.miniature.scene import HALLS, SOCKS, Scene
from hf_datasets.miniature.skeleton import Body


@dataclass(frozen=True, slots=True)
class MiniatureConfig:
    """How large a miniature is and how hard; the defaults are the dataset of the recipes and the cards.

    The options after the seed make it harder, see `HARD`; with their defaults they change nothing.

    Attributes:
        labels: The label ids to render, a subset of `ALL_ACTIONS`.
        clips_per_label: Clips of each label in each split.
        videos_per_split: Long videos in each split, shared between the two sports by their number of labels.
        size: Side of the square frames in pixels.
        fps: Frames per second.
        shortest_seconds: Shortest clip.
        longest_seconds: Longest clip.
        seed: Seed of everything random.
        similar_athletes: Whether all athletes of a long video have the same build and the same socks.
        longest_pause: Most of a clip, as a share in [0, 0.4], that passes before the motion, and after it.
        passer_share: Share of the clips, in [0, 1], in which a person or a board passes in front of the athlete.
        cut_share: Share of the clips, in [0, 1], in which the camera changes once or twice.
        bystander_share: Share of the clips, in [0, 1], in which one or two other athletes move in the background.
    """

    labels: tuple[str, ...] = tuple(ACTIONS)
    clips_per_label: Mapping[str, int] = field(default_factory=lambda: {"train": 22, "validation": 4, "test": 4})
    videos_per_split: Mapping[str, int] = field(default_factory=lambda: {"train": 52, "validation": 10, "test": 10})
    size: int = 112
    fps: int = 20
    shortest_seconds: float = 1.1
    longest_seconds: float = 1.9
    seed: int = 0
    similar_athletes: bool = False
    longest_pause: float = LONGEST_PAUSE
    passer_share: float = 0.0
    cut_share: float = 0.0
    bystander_share: float = 0.0

    def __post_init__(self) -> None:
        unknown = sorted(set(self.labels) - set(ALL_ACTIONS))
        if unknown or not self.labels:
            raise ValueError(
                f"labels {unknown or '()'} cannot be rendered; choose from hf_datasets.miniature.ALL_ACTIONS"
            )
        for name, highest in UPPER_BOUNDS.items():
            value = getattr(self, name)
            if not 0 <= value <= highest:
                raise ValueError(f"{name} is {value}, allowed is 0 to {highest:g}")


UPPER_BOUNDS: Mapping[str, float] = {"longest_pause": 0.4, "passer_share": 1, "cut_share": 1, "bystander_share": 1}
HARD = MiniatureConfig(
    labels=tuple(ALL_ACTIONS),
    clips_per_label={"train": 12, "validation": 3, "test": 5},
    videos_per_split={"train": 80, "validation": 12, "test": 60},
    fps=15,
    shortest_seconds=2.0,
    longest_seconds=4.0,
    similar_athletes=True,
    longest_pause=0.2,
    passer_share=0.6,
    cut_share=0.6,
    bystander_share=0.6,
)
"""The harder tier: `load_dataset("tfcovr", "hard")`."""
TIERS: Mapping[str, MiniatureConfig] = {"mini": MiniatureConfig(), "hard": HARD, "unseen": HARD}
"""The names of the rendered configurations; `unseen` has the videos of `hard`."""


def with_more_competitions(train_times: int = 1, test_times: int = 1, *, tier: str = "mini") -> MiniatureConfig:
    """A tier with a multiple of its training and test competitions; validation keeps its size.

    Args:
        train_times: 1 or more. Another value draws other validation and test competitions, too.
        test_times: 1 or more. Training and validation do not depend on it.
        tier: A key of `TIERS`.

    Returns:
        The configuration, for `prepare_miniature`.

    Raises:
        ValueError: A number is below 1, or there is no such tier.
    """
    if tier not in TIERS:
        raise ValueError(f"unknown tier {tier!r}; there are {', '.join(TIERS)}")
    times = {"train": train_times, "validation": 1, "test": test_times}
    for split, number in times.items():
        if number < 1:
            raise ValueError(f"{number} times the {split} competitions: at least 1 is needed")
    default = TIERS[tier]
    return replace(
        default,
        clips_per_label={split: times[split] * count for split, count in default.clips_per_label.items()},
        videos_per_split={split: times[split] * count for split, count in default.videos_per_split.items()},
    )


@dataclass(frozen=True, slots=True)
class Shot:
    """One clip with the waiting before and after it.

    Attributes:
        action: What is performed.
        style: How the athlete performs it.
        scene: How it is filmed.
        lead_frames: Frames of waiting before the clip.
        num_frames: Frames of the clip.
        tail_frames: Frames of waiting after the clip.
    """

    action: Action
    style: Style
    scene: Scene
    lead_frames: int
    num_frames: int
    tail_frames: int


@dataclass(frozen=True, slots=True)
class Competition:
    """One long video: an ordered list of shots in one hall, gymnastics (four apparatuses in turn) or diving."""

    video_id: str
    split: str
    sport: str
    hall_colour: str
    shots: tuple[Shot, ...]


def plan_competitions(config: MiniatureConfig) -> list[Competition]:
    """The whole miniature as a plan, decided by the configuration alone; no clip of a label shares its video by chance.

    Args:
        config: Sizes and seed.

    Returns:
        The long videos, training first; a video belongs to one split.
    """
    generator = np.random.default_rng(config.seed)
    competitions: list[Competition] = []
    for split in SPLITS:
        for sport, actions in _by_sport(config.labels).items():
            share = len(actions) / len(config.labels)
            num_videos = max(round(config.videos_per_split[split] * share), 1)
            dealt: list[list[Action]] = [[] for _ in range(num_videos)]
            # Dealt in turn, label after label, so that the clips of a label are spread over the videos.
            turn = 0
            for action in actions:
                for _ in range(config.clips_per_label[split]):
                    dealt[turn % num_videos].append(action)
                    turn += 1
            for hand in dealt:
                if hand:
                    video_id = f"{sport}_{len(competitions):03d}"
                    plan = _competition(video_id, split, sport, hand, config, generator)
                    # Of its own stream, so that the rest of the plan is as without it.
                    extra = np.random.default_rng((config.seed, 1 + len(competitions)))
                    plan = replace(plan, shots=tuple(_harder(plan.shots, config, extra)))
                    competitions.append(plan)
    return competitions


def _harder(shots: tuple[Shot, ...], config: MiniatureConfig, generator: np.random.Generator) -> Iterator[Shot]:
    body, socks = Body.sample(generator), str(generator.choice(list(SOCKS)))
    for shot in shots:
        before, after = generator.uniform(0, config.longest_pause, 2).tolist()
        style, scene = shot.style, shot.scene
        if config.longest_pause != LONGEST_PAUSE:
            style = replace(style, pause_before=before, pause_after=after)
        if config.similar_athletes:
            style, scene = replace(style, body=body), replace(scene, socks=socks)
        scene = distracted(
            scene,
            style,
            generator,
            passer_share=config.passer_share,
            cut_share=config.cut_share,
            bystander_share=config.bystander_share,
        )
        yield replace(shot, style=style, scene=scene)


def _by_sport(labels: tuple[str, ...]) -> dict[str, list[Action]]:
    sports: dict[str, list[Action]] = {}
    for label in labels:
        action = ALL_ACTIONS[label]
        sports.setdefault("diving" if action.kind == "dive" else "gymnastics", []).append(action)
    return sports


def _competition(
    video_id: str,
    split: str,
    sport: str,
    hand: list[Action],
    config: MiniatureConfig,
    generator: np.random.Generator,
) -> Competition:
    hall = str(generator.choice(list(HALLS)))
    wall_value, floor_hue = generator.uniform(0.1, 0.24), generator.uniform(0, 1)
    azimuth, elevation = generator.normal(0, 0.15), generator.uniform(0.08, 0.28)
    order = sorted(generator.permutation(len(hand)), key=lambda index: DRAWN_APPARATUS.index(hand[index].apparatus))
    shots = []
    for index in order:
        action = hand[index]
        style = Style.sample(generator)
        scene = Scene(
            apparatus=action.apparatus,
            hall=hall,
            wall_value=float(wall_value),
            floor_hue=float(floor_hue),
            socks=str(generator.choice(list(SOCKS))),
            azimuth=float(np.clip(azimuth + generator.normal(0, 0.25), -0.7, 0.7)),
            drift=float(generator.uniform(-0.15, 0.15)),
            elevation=float(elevation),
            zoom=float(generator.uniform(0.54, 0.6)),
            wobble=float(generator.uniform(0, 0.03)),
            mirror=bool(generator.integers(2)),
            noise_seed=int(generator.integers(2**31)),
        )
        seconds = generator.uniform(config.shortest_seconds, config.longest_seconds)
        lead, tail = generator.integers(2, 7, 2).tolist()
        shots.append(Shot(action, style, scene, lead, round(config.fps * float(seconds)), tail))
    return Competition(video_id, split, sport, hall, tuple(shots))


def clip_rows(competition: Competition, fps: int) -> Iterator[dict[str, Any]]:
    """The clips of one long video as rows.

    Args:
        competition: The long video.
        fps: Its frames per second.

    Yields:
        The rows of `clips.parquet`, in the order of time.
    """
    frame = 0
    for number, shot in enumerate(competition.shots):
        start = frame + shot.lead_frames
        frame = start + shot.num_frames + shot.tail_frames
        yield {
            "clip_id": f"{competition.video_id}_{number:03d}",
            "video_id": competition.video_id,
            "split": competition.split,
            "start_seconds": start / fps,
            "end_seconds": (start + shot.num_frames) / fps,
            **asdict(shot.action),
            "hall_colour": shot.scene.hall,
            "socks_colour": shot.scene.socks,
            "coarse_caption": coarse_caption(shot.action),
            "fine_caption": fine_caption(shot.action, shot.scene.hall, shot.scene.socks),
        }


def video_row(competition: Competition, fps: int) -> dict[str, Any]:
    """The row of `videos.parquet` for one long video."""
    num_frames = sum(shot.lead_frames + shot.num_frames + shot.tail_frames for shot in competition.shots)
    return {
        "video_id": competition.video_id,
        "file_name": f"videos/{competition.video_id}.mp4",
        "split": competition.split,
        "sport": competition.sport,
        "apparatus": list(dict.fromkeys(shot.action.apparatus for shot in competition.shots)),
        "hall_colour": competition.hall_colour,
        "num_clips": len(competition.shots),
        "duration_seconds": num_frames / fps,
    }
