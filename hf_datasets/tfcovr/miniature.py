"""TF-CoVR on the rendered athletes: the clips of a rendered miniature."""

from pathlib import Path

import polars as pl

from hf_datasets.records import Rejection
from hf_datasets.tfcovr.clips import check_clips, locate_clips


def miniature_clips(root: Path) -> tuple[pl.DataFrame, list[Rejection], str]:
    """The clips of a rendered miniature, with the paths of its videos.

    Args:
        root: A folder that `prepare_miniature` made.

    Returns:
        The clips (`clips.CLIP_SCHEMA`), a rejection for each unusable row, and a sentence on how many have their video.

    Raises:
        ValueError: A table of the folder cannot be read.
    """
    clips = _read_miniature_table(root / "clips.parquet")
    videos = _read_miniature_table(root / "videos.parquet")
    durations = dict(videos.select("video_id", "duration_seconds").iter_rows())
    accepted, rejections = check_clips(clips, source=str(root / "clips.parquet"), durations=durations)
    located, coverage = locate_clips(accepted, root / "videos")
    return located, rejections, coverage


def _read_miniature_table(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ValueError(f"{path} cannot be read ({error}); prepare_miniature makes such a folder") from None
