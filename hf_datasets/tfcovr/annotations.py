"""The upstream annotations of TF-CoVR, FineGym's and FineDiving's, as one table of clips."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from hf_datasets.records import Clip, Rejection
from hf_datasets.sources.finediving import read_finediving
from hf_datasets.sources.finegym import read_finegym
from hf_datasets.tfcovr.clips import RECORD_SCHEMA, check_clips, descriptions, frame_of, locate_clips, video_durations

ANNOTATION = "finegym_annotation_info*.json"
ELEMENTS = "gym*_element*.txt"
CATEGORIES = "gym*_categories*.txt"
FINEDIVING_ANNOTATION = "FineDiving_fine-grained_annotation.pkl"
COARSE_DIVES = "FineDiving_coarse_annotation.pkl"
SOURCE_HELP = (
    f"the source configuration reads, from data_dir, FineGym's {ANNOTATION} with its lists {ELEMENTS}, or FineDiving's "
    f"{FINEDIVING_ANNOTATION}, or both; or a folder that `subtle build tfcovr` made"
)


def source_clips(data_dir: Path, *, video_dir: str | None = None) -> tuple[pl.DataFrame, list[Rejection], str]:
    """Read the clips of FineGym and FineDiving, as far as a folder holds their annotations; they have no split yet.

    Args:
        data_dir: The folder; `SOURCE_HELP` names its files.
        video_dir: The folder of videos, to fill `video` and to check that clips end with theirs; None does neither.

    Returns:
        The clips (`clips.CLIP_SCHEMA`), a rejection for each unusable row, and a sentence on how many have their video.

    Raises:
        FileNotFoundError: The folder holds neither.
        ValueError: An annotation has several files, or it cannot be read.
    """
    clips, rejections = frame_of(_source_records(data_dir), RECORD_SCHEMA)
    durations = None if video_dir is None else video_durations(clips, video_dir)
    accepted, refused = check_clips(clips, source=str(data_dir), durations=durations)
    located, coverage = locate_clips(accepted, video_dir)
    return located, rejections + refused, coverage


def _source_records(data_dir: Path) -> Iterator[Clip | Rejection]:
    annotation = find_one(data_dir, ANNOTATION)
    dives = find_one(data_dir, FINEDIVING_ANNOTATION) or find_one(data_dir, COARSE_DIVES)
    if annotation is None and dives is None:
        raise FileNotFoundError(f"{data_dir} holds no annotation: {SOURCE_HELP}")
    if annotation is not None:
        elements = sorted(data_dir.rglob(ELEMENTS))
        if not elements:
            raise FileNotFoundError(f"{annotation} has no element list {ELEMENTS} beside it; fetch gym288's two lists")
        categories = find_one(data_dir, CATEGORIES)
        yield from read_finegym(annotation, elements, descriptions=descriptions(), categories=categories)
    if dives is not None:
        yield from read_finediving(dives, descriptions=descriptions())


def find_one(folder: Path, pattern: str) -> Path | None:
    """The file of a name at any depth of a folder, or None.

    Raises:
        ValueError: There are several.
    """
    paths = sorted(folder.rglob(pattern))
    if len(paths) > 1:
        raise ValueError(f"{folder} holds several {pattern}: {', '.join(map(str, paths))}; keep one")
    return paths[0] if paths else None
