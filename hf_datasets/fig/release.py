"""The published Charades-FIG, DiDeMo-FIG and ActivityNet-FIG: one JSON object per line, read as `Moment`s.

All knowledge of the release's field names is in this module.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from datasets import DownloadManager

from hf_datasets.long_videos import Split
from hf_datasets.records import Moment, Rejection
from hf_datasets.sources.values import checked_moment, identifier, lines_of, list_of, number, parse_json, text, whole

FILES: Mapping[str, Mapping[Split, str]] = {
    "charades_fig": {"train": "charades_fig_train.jsonl", "test": "charades_fig_test.jsonl"},
    "didemo_fig": {
        "train": "didemo_fig_train.jsonl",
        "validation": "didemo_fig_val.jsonl",
        "test": "didemo_fig_test.jsonl",
    },
    "activitynet_fig": {
        "train": "activitynet_fig_train.jsonl",
        "validation": "activitynet_fig_val_1.jsonl",
        "test": "activitynet_fig_val_2.jsonl",
    },
}
"""Dataset -> split -> published file. The paper evaluates ActivityNet-FIG on `val_2`, which is `test` here."""
REPOSITORY = "github.com/hlchen23/VERIFIED"
REVISION = "30f9324e5fdac9f5febaeb1377f791f8de37ac5e"
FOLDER = "fine-grained-anno"


def read_released_moments(path: str | Path) -> Iterator[Moment | Rejection]:
    """Read one published file (`charades_fig_test.jsonl`, ...), or one of coarse captions alone.

    Texts, times and scores stay as published: some ends, and one start, lie beyond the video; scores are logits and
    may be negative.

    Args:
        path: The file of JSON lines.

    Yields:
        The moments in the order of the file, or the rejection of a line.

    Raises:
        ValueError: The file is not UTF-8.
    """
    for place, line in lines_of(path):
        yield _read_line(line, f"{Path(path).name}:{place}")


def _read_line(line: str, key: str) -> Moment | Rejection:
    try:
        row: dict[str, Any] = parse_json(line)
        start, end = (number(seconds) for seconds in list_of(row["time"]))
        score = row.get("fig_desc_score")
        moment = Moment(
            desc_id=whole(row["desc_id"]),
            video_id=identifier(row["video"]),
            duration_seconds=number(row["duration"]),
            start_seconds=start,
            end_seconds=end,
            coarse_caption=text(row["cog_desc"]),
            fine_caption=text(row.get("fig_desc") or ""),
            fine_caption_score=None if score is None else number(score),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return Rejection(f"unreadable line: {type(error).__name__}: {error} in {key}", line, key)
    return checked_moment(moment, line, key)


def find_moment_files(data_dir: Path, name: str) -> dict[Split, Path]:
    """Find the published files of a dataset below a folder; some of them suffice.

    Args:
        data_dir: The folder.
        name: A key of `FILES`.

    Returns:
        Split -> path, for the files that are there.

    Raises:
        FileNotFoundError: There is none; the message says what to fetch from where.
        ValueError: A file is there several times.
    """
    files: dict[Split, Path] = {}
    for split, file_name in FILES[name].items():
        paths = sorted(data_dir.rglob(file_name))
        if len(paths) > 1:
            raise ValueError(f"{data_dir} holds {file_name} several times: {', '.join(map(str, paths))}; keep one")
        if paths:
            files[split] = paths[0]
    if not files:
        raise FileNotFoundError(f"{data_dir} holds none of {', '.join(FILES[name].values())}; {_where(name)} into it")
    return files


def download(manager: DownloadManager, name: str) -> dict[Split, Path]:
    """Fetch the published files of a dataset, at a pinned revision, or find them in the cache.

    Returns:
        Split -> path.

    Raises:
        FileNotFoundError: They cannot be fetched; the message says what to fetch from where.
    """
    base = REPOSITORY.replace("github.com", "https://raw.githubusercontent.com")
    folder = f"{base}/{REVISION}/{FOLDER}/{name.replace('_', '-')}"
    try:
        paths = manager.download({split: f"{folder}/{file}" for split, file in FILES[name].items()})
    except OSError as error:
        raise FileNotFoundError(
            f"the annotations of {name} could not be fetched ({type(error).__name__}). Where there is a network, "
            f"{_where(name)}, and pass data_dir=DIR"
        ) from None
    return {split: Path(path) for split, path in paths.items()}


def _where(name: str) -> str:
    return f"fetch {', '.join(FILES[name].values())} from the folder {FOLDER}/{name.replace('_', '-')} of {REPOSITORY}"
