"""The miniature's moments, and its examples for the noise evaluator, made from the motions of its athletes."""

from pathlib import Path

import polars as pl

from hf_datasets.fig.moments import FRAME_SCHEMA, check_moments
from hf_datasets.fig.noise import NoiseExample
from hf_datasets.long_videos import Split
from hf_datasets.miniature.actions import ACTIONS, ALL_ACTIONS, Action
from hf_datasets.miniature.captions import PLACES, action_phrase, fine_caption
from hf_datasets.records import Rejection

NEGATIVES_PER_KIND = 3


def reworded_caption(action: Action, hall: str, socks: str) -> str:
    """A fine caption in other words than `fine_caption`.

    Example:
        >>> reworded_caption(ACTIONS["125"], "blue", "red")
        'A double salto backward, tucked, with one twist on the floor, by an athlete in red socks in a blue hall.'
    """
    phrase = action_phrase(action)
    where = f"{phrase[0].upper()}{phrase[1:]} {PLACES[action.apparatus]}"
    return f"{where}, by an athlete in {socks} socks in a {hall} hall."


CAPTION_WORDINGS = (fine_caption, reworded_caption)
"""Positives and negatives use both, so that the wording does not show which texts fit."""


def miniature_moments(root: Path) -> tuple[pl.DataFrame, list[Rejection]]:
    """Read the clips of a rendered miniature as moments of its long videos."""
    videos = pl.read_parquet(root / "videos.parquet").select("video_id", "duration_seconds")
    clips = pl.read_parquet(root / "clips.parquet").with_row_index("desc_id")
    joined = clips.join(videos, on="video_id", how="left", maintain_order="left")
    rows = joined.with_columns(fine_caption_score=None).select(FRAME_SCHEMA.names()).cast(FRAME_SCHEMA)
    return check_moments(rows, source=str(root / "clips.parquet"))


def miniature_examples(root: Path) -> dict[Split, list[NoiseExample]]:
    """Make the examples of a rendered miniature from its motions: other colors, and other skills of the same kind.

    Args:
        root: A folder that `prepare_miniature` made.

    Returns:
        Split -> examples; which negatives a moment has depends on its `desc_id` alone.
    """
    clips = pl.read_parquet(root / "clips.parquet").with_row_index("desc_id")
    halls, socks = (clips[name].unique().sort().to_list() for name in ("hall_colour", "socks_colour"))
    alike: dict[tuple[str, str], list[Action]] = {}
    for action in ACTIONS.values():
        alike.setdefault((action.kind, action.apparatus), []).append(action)
    examples: dict[Split, list[NoiseExample]] = {}
    for row in clips.iter_rows(named=True):
        number, hall, sock = row["desc_id"], row["hall_colour"], row["socks_colour"]
        action = ALL_ACTIONS[row["label"]]
        scenes = (
            (_other(halls, hall, number), sock),
            (hall, _other(socks, sock, number)),
            (_other(halls, hall, number + 1), _other(socks, sock, number + 1)),
        )
        static = [CAPTION_WORDINGS[(number + step) % 2](action, *scene) for step, scene in enumerate(scenes)]
        phrase = action_phrase(action)
        others = [other for other in alike[action.kind, action.apparatus] if action_phrase(other) != phrase]
        dynamic = [
            CAPTION_WORDINGS[(number + step + 1) % 2](others[(number + step) % len(others)], hall, sock)
            for step in range(min(NEGATIVES_PER_KIND, len(others)))
        ]
        positives = [wording(action, hall, sock) for wording in CAPTION_WORDINGS]
        examples.setdefault(row["split"], []).append(NoiseExample.of_moment(row, positives, static, dynamic))
    return examples


def _other(values: list[str], value: str, number: int) -> str:
    rest = [other for other in values if other != value]
    return rest[number % len(rest)]
