"""The rows of TF-CoVR that a recipe's configuration names: its queries, and the clips they speak of."""

from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, load_dataset

import hf_datasets  # noqa: F401 - registers the datasets' names
from harness.shared_config import DataConfig
from hf_datasets.registration import REJECTIONS_FILE
from hf_datasets.video import VideoError


def load_splits(config: DataConfig, *, clips: bool = False) -> DatasetDict:
    """All splits that there are of the queries, or of the clips they speak of."""
    return _load(config, None, clips=clips)


def load_split(config: DataConfig, split: str, *, clips: bool = False) -> Dataset:
    """One split of the queries, or of the clips they speak of; an empty one is an error."""
    data = _load(config, split, clips=clips)
    if not len(data):
        name = f"{config.dataset_config}-clips" if clips else config.dataset_config
        raise SystemExit(
            f"the split {split!r} of {config.dataset!r}, {name!r}, is empty; check the data or name another split"
        )
    return data


def refused_rows(data: Dataset) -> str | None:
    """What the dataset says of the rows that it refused, and where each is listed; None where it refused none."""
    notice = next((line for line in data.info.description.splitlines() if " rows were refused " in line), None)
    if notice is None or not data.cache_files:
        return notice
    return f"{notice} That is {Path(data.cache_files[0]['filename']).with_name(REJECTIONS_FILE)}"


def _load(config: DataConfig, split: str | None, *, clips: bool) -> Any:
    name = f"{config.dataset_config}-clips" if clips else config.dataset_config
    # Queries get the folder of videos, too, so that they speak of the same clips.
    options = {"video_dir": config.video_dir} if config.video_dir else {}
    try:
        return load_dataset(config.dataset, name, data_dir=config.data_dir, split=split, **options)
    except (ValueError, FileNotFoundError, VideoError) as error:  # which also says that a split has no row
        what = f"the split {split!r}" if split else "the data"
        raise SystemExit(f"{what} of {config.dataset!r}, {name!r}, cannot be read: {error}") from error
