"""VideoComp as its authors publish it: one JSON list per dataset and split.

All knowledge of the release's field names is in this module. Its card does not say that times are in microseconds and
that the ids of ActivityNet lack their `v_`; both come from other code that reads these files.
"""

import contextlib
import json
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from hf_datasets.comp.pairs import question_about
from hf_datasets.records import DisruptionType, Rejection
from hf_datasets.sources.values import identifier, load_json, number, raw_of, text

TimeUnit = Literal["auto", "us", "s"]
ID_PREFIXES = {"activitynet": "v_", "youcook2": ""}
"""What ids of videos begin with, which the release leaves out."""
ADDRESS = "https://storage.googleapis.com/video_comp/{file}"
FILE_NAMES = {"train": "{stem}_comp_train.json", "validation": "{stem}_comp_val.json"}
MOST_VIDEO_SECONDS = 1e5
"""Larger times, more than a day in seconds, must be microseconds."""
DISRUPTION_WORDS: Mapping[str, DisruptionType] = {
    "multi": "multi",
    "mixed": "multi",
    "combin": "multi",
    "reorder": "temporal_reorder",
    "action": "action_replace",
    "mismatch": "segment_mismatch",
    "segment": "segment_mismatch",
}
"""What the published `type` strings contain -> our name; their exact spelling is not documented."""
TIME_KEYS = {
    "original_start_seconds": ("original_video/start_time", "original_start_time"),
    "original_end_seconds": ("original_video/end_time", "original_end_time"),
    "query_start_seconds": ("query_video/start_time", "query_start_time"),
    "query_end_seconds": ("query_video/end_time", "query_end_time"),
    "positive_start_seconds": ("positive_text/start_time", "positive_start_time"),
    "positive_end_seconds": ("positive_text/end_time", "positive_end_time"),
}
TOLD_TIMES = {
    "negative_start_seconds": ("negative_text/start_time", "negative_start_time"),
    "negative_end_seconds": ("negative_text/end_time", "negative_end_time"),
}
"""Our name -> the published key, and the one of an older revision."""
REQUIRED_TEXTS = ("key", "video_id", "type", "positive_text", "negative_text")


def address(stem: str, split: str) -> str:
    """Where the authors publish a file.

    Example:
        >>> address("youcook2", "train").rpartition("/")[2]
        'youcook2_comp_train.json'
    """
    return ADDRESS.format(file=FILE_NAMES[split].format(stem=stem))


def find_pair_files(data_dir: Path, stem: str) -> dict[str, Path]:
    """The published file of each split below a folder.

    Raises:
        FileNotFoundError: There is none; the message says what to fetch from where.
    """
    found = {}
    for split, pattern in FILE_NAMES.items():
        paths = sorted(data_dir.rglob(pattern.format(stem=stem)))
        if paths:
            found[split] = paths[0]
    if not found:
        names = " and ".join(address(stem, split) for split in FILE_NAMES)
        raise FileNotFoundError(f"{data_dir} holds none of VideoComp's files; fetch {names} into it")
    return found


def read_released_pairs(
    path: Path, *, prefix: str = "", time_unit: TimeUnit = "auto"
) -> Iterator[dict[str, Any] | Rejection]:
    """Read one published file.

    Args:
        path: A JSON list of objects.
        prefix: Added to ids that do not begin with it: "v_" for ActivityNet.
        time_unit: "us", "s", or "auto": microseconds if the median of the ends in the file exceeds a day.

    Yields:
        Rows of `pairs.PAIR_SCHEMA` in the order of the file; or a rejection of an invalid entry. `decision` is null but
        for a segment mismatch whose negative text has times: then it has them as `told_seconds`.

    Raises:
        ValueError: The file is not a JSON list.
    """
    entries = load_json(path)
    if not isinstance(entries, list):
        raise ValueError(f"{path} holds no list of pairs, but {type(entries).__name__}; fetch it again")
    divisor = _divisor(entries, time_unit)
    seen: set[str] = set()
    for place, entry in enumerate(entries):
        row = _read_entry(entry, prefix, divisor)
        if not isinstance(row, str) and row["key"] in seen:
            row = "duplicate key"
        if isinstance(row, str):
            key = entry.get("key") if isinstance(entry, dict) else None
            yield Rejection(f"{row}: {path.name}[{place}]", raw_of(entry), None if key is None else str(key))
        else:
            seen.add(row["key"])
            yield row


def _divisor(entries: list[Any], time_unit: TimeUnit) -> float:
    if time_unit != "auto":
        return 1e6 if time_unit == "us" else 1.0
    ends = []
    for entry in entries:
        with contextlib.suppress(ValueError):
            end = _time(entry, "original_end_seconds") if isinstance(entry, dict) else None
            ends += [] if end is None else [end]
    return 1e6 if ends and statistics.median(ends) > MOST_VIDEO_SECONDS else 1.0


def _time(entry: dict[str, Any], name: str) -> float | None:
    keys = (TIME_KEYS | TOLD_TIMES)[name]
    value = next((entry[key] for key in keys if entry.get(key) is not None), None)
    return None if value is None else number(value)


def _read_entry(entry: Any, prefix: str, divisor: float) -> dict[str, Any] | str:
    """A row, or what is wrong with the entry."""
    if not isinstance(entry, dict):
        return "no object"
    missing = [name for name in REQUIRED_TEXTS if not str(entry.get(name) or "").strip()]
    if missing:
        return f"missing or empty: {', '.join(missing)}"
    try:
        row = _read_texts(entry, prefix) | _read_times(entry, divisor)
        if row["disruption_type"] == "segment_mismatch":
            row["decision"] = _told(entry, divisor)
    except ValueError as error:
        return str(error)
    if row["positive_text"] == row["negative_text"]:
        return "the negative reads as the positive"
    return row


def _read_texts(entry: dict[str, Any], prefix: str) -> dict[str, Any]:
    try:
        key, video_id = identifier(entry["key"]), identifier(entry["video_id"])
        published, *texts = (text(entry[name]) for name in ("type", "positive_text", "negative_text"))
        question, answer = text(entry.get("question") or ""), identifier(entry.get("answer") or "1").strip("() ")
    except ValueError as error:
        raise ValueError(f"unreadable entry: {error}") from None
    kind = disruption_type(published)
    if kind is None:
        raise ValueError(f"unknown type: {published!r}")
    if answer not in {"1", "2"}:
        raise ValueError(f"the answer {answer!r} is not 1 or 2")
    positive, negative = (" ".join(paragraph.split()) for paragraph in texts)
    return {
        "key": key,
        "video_id": video_id if video_id.startswith(prefix) else prefix + video_id,
        "disruption_type": kind,
        "positive_text": positive,
        "negative_text": negative,
        "question": question or question_about((positive, negative), answer),
        "answer": answer,
        "decision": None,
    }


def _read_times(entry: dict[str, Any], divisor: float) -> dict[str, float]:
    # The original and the query interval, in seconds.
    try:
        times = {name: _time(entry, name) for name in TIME_KEYS}
    except ValueError as error:
        raise ValueError(f"unreadable times: {error}") from None
    _fill(times)
    present = {name: value / divisor for name, value in times.items() if value is not None}
    if len(present) < len(times):
        raise ValueError("unreadable times: some are missing")
    if not 0 <= present["query_start_seconds"] < present["query_end_seconds"]:
        raise ValueError("the interval does not end after it starts")
    return {name: value for name, value in present.items() if not name.startswith("positive_")}


def _told(entry: dict[str, Any], divisor: float) -> str | None:
    """The stretch that the negative text of a segment mismatch describes, None where the entry does not say."""
    try:
        start, end = (_time(entry, name) for name in TOLD_TIMES)
    except ValueError:
        return None
    if start is None or end is None or not 0 <= start < end:
        return None
    return json.dumps({"told_seconds": [start / divisor, end / divisor]})


def _fill(times: dict[str, float | None]) -> None:
    """The older revision names no query interval: it is that of the positive text, or the original one."""
    for edge in ("start", "end"):
        positive, query, original = (f"{name}_{edge}_seconds" for name in ("positive", "query", "original"))
        if times[original] is None:
            times[original] = times[query]
        if times[positive] is None:
            times[positive] = times[original] if times[query] is None else times[query]
        if times[query] is None:
            times[query] = times[positive]


def disruption_type(published: str) -> DisruptionType | None:
    """Our name for a published type, None where it is not known.

    Example:
        >>> disruption_type("temp-reorder"), disruption_type("segment_mismatch"), disruption_type("colour")
        ('temporal_reorder', 'segment_mismatch', None)
    """
    published = published.lower()
    return next((kind for part, kind in DISRUPTION_WORDS.items() if part in published), None)
