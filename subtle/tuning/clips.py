"""The table of clips that `tune.py` takes; imports nothing that takes long, so that a wrong one is refused at once."""

from pathlib import Path
from typing import Any

from hf_datasets.tfcovr.own_clips import OwnClips, read_own_clips
from subtle.footage.sources import check_video_dir


def check_clips(config: Any) -> None:
    """Read the table without looking for its videos; imports nothing that takes long."""
    if config.clips is not None:
        read_clips(*places_of(config), looks_for_videos=False)


def places_of(config: Any) -> tuple[Path, Path]:
    """The table of clips and the folder of their videos."""
    table = Path(config.clips or "").expanduser()
    return table, Path(config.video_dir).expanduser() if config.video_dir else table.absolute().parent


def read_clips(table: Path, video_dir: Path, *, looks_for_videos: bool = True) -> OwnClips:
    """All clips that have their video, not yet divided into splits unless the table says how."""
    if not table.is_file():
        cure = "give one with the columns video and label, such as clips.csv, and the folder as --video_dir"
        raise FileNotFoundError(
            f"{table} is a folder; {cure}" if table.is_dir() else f"there is no table {table}; {cure}"
        )
    check_video_dir(video_dir)
    where = video_dir if looks_for_videos else None
    return read_own_clips(table, video_dir=where, validation_fraction=0.0, test_fraction=0.0)
