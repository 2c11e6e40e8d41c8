"""The rows of a dataset that a recipe's configuration names, and how many of them lack a readable video."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, load_dataset

import hf_datasets  # noqa: F401 - registers the datasets' names
from hf_datasets.builders import REJECTIONS_FILE, own_cache
from hf_datasets.class_labels import with_names
from hf_datasets.long_videos import with_paths
from hf_datasets.registry import EVALUATION_SPLITS, evaluation_split
from hf_datasets.video import VideoError
from hf_datasets.video.pool import NO_FILE
from subtle.options import given_in
from subtle.run.results import DATASET_COMMITS
from subtle.run.shared_config import DataConfig
from subtle.running import Config

DOES_NOT_DECODE = "does not decode"
NO_EMBEDDING = "no imported embedding"
COMMIT = re.compile(r"[0-9a-f]{40}")


def open_dataset(config: Any, split: str | None = None, *, part: str = "", **options: Any) -> Any:
    """A dataset as a configuration names it, with names in place of labels and paths in place of videos.

    Args:
        config: With `dataset`, `dataset_config` and `data_dir`.
        split: One split, as a `Dataset`; None: all, as a `DatasetDict`.
        part: Of the configuration, such as "-clips" or "-videos"; empty: the queries, pairs or moments.
        options: Of the dataset, such as `video_dir`; those without a value are left out.

    Raises:
        SystemExit: It cannot be read; names the split, the dataset and the reason.
    """
    name = config.dataset_config + part
    given = {option: value for option, value in options.items() if value} | own_cache(config.dataset)
    try:
        rows = load_dataset(config.dataset, name, data_dir=config.data_dir, split=split, **given)
        # `datasets` keeps what it read from the Hub in a folder with the name of the commit.
        one = rows if isinstance(rows, Dataset) else next(iter(rows.values()))
        folder = Path(one.cache_files[0]["filename"]).parent.name if one.cache_files else ""
        if COMMIT.fullmatch(folder):
            DATASET_COMMITS[config.dataset] = folder
        return with_paths(with_names(rows))
    except (ValueError, FileNotFoundError, VideoError) as error:  # which also says that a split has no row
        what = f"the split {split!r}" if split else "the data"
        raise SystemExit(f"{what} of {config.dataset!r}, {name!r}, cannot be read: {error}") from error


def with_split(config: Config, option: str = "split", preferred: tuple[str, ...] = EVALUATION_SPLITS) -> Config:
    """The configuration with a split, where none was named: the first of those preferred that its data have.

    Raises:
        SystemExit: The data have none of them; lists those that there are.
    """
    if getattr(config, option) is not None:
        return config
    splits = open_dataset(config, video_dir=getattr(config, "video_dir", None))
    try:
        found = evaluation_split(splits, preferred)
    except ValueError as error:
        raise SystemExit(f"--{option}: {error}") from None
    named: Any = replace(config, **{option: found})  # type: ignore[type-var]
    named.given = given_in(config)
    result: Config = named
    return result


def load_splits(config: DataConfig, *, clips: bool = False) -> DatasetDict:
    """All splits of TF-CoVR's queries, or of their clips."""
    # Queries get the folder of videos, too, so that they name the same clips.
    return open_dataset(config, part="-clips" if clips else "", video_dir=config.video_dir)


def load_split(config: DataConfig, split: str, *, clips: bool = False) -> Dataset:
    """One split of TF-CoVR's queries, or of their clips; an empty one is an error."""
    part = "-clips" if clips else ""
    data = open_dataset(config, split, part=part, video_dir=config.video_dir)
    if not len(data):
        name = config.dataset_config + part
        raise SystemExit(
            f"the split {split!r} of {config.dataset!r}, {name!r}, is empty; check the data or name another split"
        )
    return data


def refused_rows(data: Dataset) -> str | None:
    """The dataset's notice about rejected rows, and the file that lists them; None where all were accepted."""
    notice = next((line for line in data.info.description.splitlines() if " rows were refused " in line), None)
    if notice is None or not data.cache_files:
        return notice
    return f"{notice} That is {Path(data.cache_files[0]['filename']).with_name(REJECTIONS_FILE)}"


def missing_by_reason(reasons: Iterable[str]) -> dict[str, int]:
    """How many videos have no file, and how many do not decode; of imported embeddings also how many have none.

    Example:
        >>> missing_by_reason(["no video file", "x.mp4: the moov atom is missing"])
        {'no video file': 1, 'does not decode': 1}
    """
    counts = Counter(reason if reason in {NO_FILE, NO_EMBEDDING} else DOES_NOT_DECODE for reason in reasons)
    return {NO_FILE: counts[NO_FILE], DOES_NOT_DECODE: counts[DOES_NOT_DECODE]} | dict(counts)
