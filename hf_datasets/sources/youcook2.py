"""YouCook2: the official `{"database": {video: {subset, annotations}}}`, or the flat layout of ActivityNet-Captions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from hf_datasets.records import CaptionedVideo, Rejection
from hf_datasets.sources.activitynet_captions import load_object, read_videos

Subset = Literal["training", "validation", "testing"]


def read_youcook2(path: str | Path, *, subset: Subset | None = None) -> Iterator[CaptionedVideo | Rejection]:
    """Read one file of YouCook2 annotations, of either layout.

    Args:
        path: The JSON file.
        subset: Only the videos of that subset; the flat layout has one subset per file and does not say which.

    Yields:
        The videos in the order of the file, or rejections as in `read_activitynet_captions`.

    Raises:
        ValueError: The file is not a JSON object of videos.
    """
    found = load_object(path)
    if isinstance(found.get("database"), dict):
        found = {
            video_id: flatten(entry)
            for video_id, entry in found["database"].items()
            if subset is None or not isinstance(entry, dict) or entry.get("subset") == subset
        }
    yield from read_videos(found, Path(path).name)


def flatten(entry: Any) -> Any:
    """An official entry in the flat layout; anything else as it is, for the reader to reject.

    Example:
        >>> flatten({"duration": 9, "annotations": [{"segment": [1, 2], "id": 0, "sentence": "chop it"}]})
        {'duration': 9, 'timestamps': [[1, 2]], 'sentences': ['chop it']}
    """
    try:
        return {
            "duration": entry["duration"],
            "timestamps": [annotation["segment"] for annotation in entry["annotations"]],
            "sentences": [annotation["sentence"] for annotation in entry["annotations"]],
        }
    except (KeyError, TypeError):  # the reader says what is missing
        return entry
