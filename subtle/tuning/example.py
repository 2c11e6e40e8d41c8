"""Sixty drawn clips of a sport that is none of TF-CoVR's, which `tune.py` uses where it is given no table."""

from pathlib import Path

import polars as pl

from hf_datasets.drafts import replacing
from hf_datasets.miniature import MiniatureConfig, prepare_miniature

LABELS = {
    "119": "gainer layout",
    "118": "gainer layout with 1 twist",
    "117": "gainer layout with 2 twists",
    "127": "gainer tuck",
    "111": "webster layout",
    "101": "webster tuck",
}
"""Motion of the miniature -> what tricking, a sport of flips and kicks, calls it."""
SEED = 19


def draw_example(
    folder: Path, *, clips_per_label: int = 10, num_videos: int = 12, size: int = 112, num_workers: int | None = None
) -> tuple[Path, Path]:
    """Draw the videos once; the table (`video, start_seconds, end_seconds, label`) and the folder of videos."""
    config = MiniatureConfig(
        labels=tuple(LABELS),
        clips_per_label={"train": clips_per_label, "validation": 0, "test": 0},
        videos_per_split={"train": num_videos, "validation": 0, "test": 0},
        size=size,
    )
    drawn = prepare_miniature(folder, seed=SEED, config=config, num_workers=num_workers)
    rows = pl.read_parquet(drawn / "clips.parquet", columns=["video_id", "start_seconds", "end_seconds", "label"])
    table = rows.select(
        pl.col("video_id").alias("video"),
        "start_seconds",
        "end_seconds",
        pl.col("label").replace_strict(LABELS, return_dtype=pl.String),
    )
    with replacing(folder / "clips.csv") as unfinished:
        table.write_csv(unfinished)
    return folder / "clips.csv", drawn / "videos"
