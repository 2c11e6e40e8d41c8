"""The table of clips that `tune.py` takes, and whether it is enough: what is missing, and what is little.

Imports nothing that takes long, so that a wrong table is refused at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from hf_datasets.tfcovr.labels import folded_text
from hf_datasets.tfcovr.own_clips import OwnClips, read_own_clips
from subtle.footage.sources import check_video_dir

MIN_VIDEOS = 3
FEW_VIDEOS = 10
FEW_CLIPS_OF_A_LABEL = 5
SHOWN_LABELS = 3


def check_clip_table(config: Any) -> None:
    """Read the table without looking for its videos; imports nothing that takes long."""
    if config.clips is not None:
        read_clip_table(*places_of(config), looks_for_videos=False)


def places_of(config: Any) -> tuple[Path, Path]:
    """The table of clips and the folder of their videos."""
    table = Path(config.clips or "").expanduser()
    return table, Path(config.video_dir).expanduser() if config.video_dir else table.absolute().parent


def read_clip_table(table: Path, video_dir: Path, *, looks_for_videos: bool = True) -> OwnClips:
    """All clips that have their video, not yet divided into splits unless the table says how."""
    if not table.is_file():
        cure = "give one with the columns video and label, such as clips.csv, and the folder as --video_dir"
        raise FileNotFoundError(
            f"{table} is a folder; {cure}" if table.is_dir() else f"there is no table {table}; {cure}"
        )
    check_video_dir(video_dir)
    where = video_dir if looks_for_videos else None
    return read_own_clips(table, video_dir=where, validation_fraction=0.0, test_fraction=0.0)


@dataclass
class Amounts:
    """What a table of clips has.

    Attributes:
        clips, labels, videos: How many; labels with the same text are one.
        missing: One line for each thing without which tuning is refused, with its number and the cure.
        little: The same for what makes results worse or less certain.
    """

    clips: int
    labels: int
    videos: int
    missing: list[str] = field(default_factory=list)
    little: list[str] = field(default_factory=list)


def count(clips: pl.DataFrame, *, min_clips: int, has_splits: bool) -> Amounts:
    """Count usable clips with `video_id` and `description`.

    Args:
        clips: See above.
        min_clips: The fewest clips to tune on.
        has_splits: Whether the table itself says which clips are held out.
    """
    table = clips.select("video_id", label=pl.col("description").map_elements(folded_text, return_dtype=pl.String))
    of_label = table.group_by("label").agg(clips=pl.len(), videos=pl.col("video_id").n_unique()).sort("label")
    found = Amounts(len(table), len(of_label), table["video_id"].n_unique())
    found.missing += missing_numbers(found, of_label["label"][0], min_clips)
    if found.labels > 1:
        found.missing += missing_in_labels(found, of_label, has_splits=has_splits)
    found.little += little_of(found, of_label, has_splits=has_splits)
    return found


def missing_numbers(found: Amounts, label: str, min_clips: int) -> Iterator[str]:
    """Too few clips, labels or videos."""
    if found.clips < min_clips:
        yield (
            f"{found.clips} clips can be used, and {min_clips} are needed: label {min_clips - found.clips} more, or "
            f"try it with fewer by --min_clips {found.clips}"
        )
    if found.labels < 2:
        yield (
            f"all clips have 1 label, {label!r}, and 2 are needed, because a query leads from one label to another: "
            "label what differs between the clips"
        )
    if found.videos < MIN_VIDEOS:
        yield (
            f"the clips are of {found.videos} video{'s' * (found.videos != 1)}, and {MIN_VIDEOS} are needed, one each "
            "to train, to validate and to test on: label clips of more videos"
        )


def missing_in_labels(found: Amounts, of_label: pl.DataFrame, *, has_splits: bool) -> Iterator[str]:
    """Labels that cannot be trained, validated and tested."""
    shared = of_label.filter(pl.col("videos") >= MIN_VIDEOS)
    if of_label["clips"].max() == 1:
        yield (
            f"each of the {found.labels} labels has 1 clip, and 3 are needed, of 3 videos: label more clips of the "
            "same actions, or give alike actions one label"
        )
    elif found.videos >= MIN_VIDEOS and len(shared) < 2 and not has_splits:
        yield (
            f"{len(shared)} of {found.labels} labels are shown in {MIN_VIDEOS} videos or more, and 2 are needed, so "
            "that they can be trained, validated and tested: label the same actions in more videos"
        )


def little_of(found: Amounts, of_label: pl.DataFrame, *, has_splits: bool) -> Iterator[str]:
    """What is enough to go on with, and little."""
    single = of_label.filter(pl.col("clips") == 1)["label"].to_list()
    in_one = of_label.filter(pl.col("videos") == 1, pl.col("clips") > 1)["label"].to_list()
    few = of_label.filter(pl.col("clips").is_between(2, FEW_CLIPS_OF_A_LABEL - 1))["label"].to_list()
    if single:
        yield f"{list_labels(single)} with one clip: trained on and never measured; give 3 clips, of 3 videos"
    if in_one and not has_splits:
        yield f"{list_labels(in_one)} in one video only: trained on and never measured; label another video"
    if few:
        yield f"{list_labels(few)} with fewer than {FEW_CLIPS_OF_A_LABEL} clips; more would help"
    if MIN_VIDEOS <= found.videos < FEW_VIDEOS:
        yield (
            f"{found.videos} videos, so that few are held out and the results are uncertain; {FEW_VIDEOS} would tell "
            "more"
        )


def list_labels(labels: list[str]) -> str:
    """`2 labels ('a', 'b')`, the first ones of many."""
    shown = ", ".join(map(repr, labels[:SHOWN_LABELS])) + (", ..." if len(labels) > SHOWN_LABELS else "")
    return f"{len(labels)} label{'s' * (len(labels) > 1)} ({shown})"
