"""DiDeMo: descriptions whose times several annotators gave as inclusive numbers of 5-second segments."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hf_datasets.records import Moment, Rejection
from hf_datasets.sources.values import checked_moment, identifier, list_of, load_json, raw_of, text, whole

SEGMENT_SECONDS = 5.0
VIDEO_SUFFIXES = frozenset({".avi", ".mov", ".mp4", ".mpg", ".3gp", ".wmv", ".m4v", ".mts", ".m2ts", ".mpeg"})


def read_didemo(path: str | Path) -> Iterator[Moment | Rejection]:
    """Read `train_data.json`, `val_data.json` or `test_data.json`.

    Of the annotators' intervals the most frequent one is taken, the first of those that are equally frequent;
    `[a, b]` becomes `[5 a, 5 (b + 1))` seconds. For the duration of a video stand its segments, at most 30 s.

    Args:
        path: The annotation file.

    Yields:
        The moments in the order of the file, without a fine caption, or a rejection for each unusable entry.

    Raises:
        ValueError: The file is not a JSON list.
    """
    entries = load_json(path)
    if not isinstance(entries, list):
        raise ValueError(f"{path} holds no list of descriptions, but {type(entries).__name__}")
    for number, entry in enumerate(entries):
        yield _moment_in_entry(entry, f"{Path(path).name}[{number}]")


def _moment_in_entry(entry: Any, key: str) -> Moment | Rejection:
    raw = raw_of(entry)
    try:
        intervals = (map(whole, list_of(pair)) for pair in list_of(entry["times"]))
        (first, last), _ = Counter((a, b) for a, b in intervals).most_common(1)[0]
        name, caption = identifier(entry["video"]), text(entry["description"]).strip()
        desc_id, segments = whole(entry["annotation_id"]), whole(entry["num_segments"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        return Rejection(f"unreadable entry: {type(error).__name__}: {error}: {key}", raw, key)
    stem = name[: -len(Path(name).suffix)] if Path(name).suffix.lower() in VIDEO_SUFFIXES else name
    span = (first * SEGMENT_SECONDS, (last + 1) * SEGMENT_SECONDS)
    return checked_moment(Moment(desc_id, stem, segments * SEGMENT_SECONDS, *span, caption, "", None), raw, key)
