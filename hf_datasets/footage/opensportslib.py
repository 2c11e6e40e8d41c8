"""OpenSportsLib's JSON: videos with events at `position_ms`, or clips with one label."""

import json
import math
from collections.abc import Iterator
from typing import Any

from hf_datasets.records import Rejection


def is_opensportslib(value: Any) -> bool:
    """Whether a JSON value is such a file: an object with a list `data` of items with `inputs`."""
    items = value.get("data") if isinstance(value, dict) else None
    return isinstance(items, list) and any(isinstance(item, dict) and "inputs" in item for item in items)


def rows_of_opensportslib(
    value: dict[str, Any], *, source: str, seconds_before: float, seconds_after: float
) -> tuple[list[dict[str, Any]], list[Rejection]]:
    """Rows with `video, start_seconds, end_seconds, label`, one for each event, or for each item without events.

    Args:
        value: As `is_opensportslib` recognizes it.
        source: The file, for messages.
        seconds_before: How much before an event belongs to its moment.
        seconds_after: And how much after it.

    Returns:
        The rows, and a rejection for each item or event that is left out.

    Example:
        >>> item = {"inputs": [{"path": "game.mp4", "fps": 25}], "events": [{"label": "goal", "position_ms": 12500}]}
        >>> rows_of_opensportslib({"data": [item]}, source="a.json", seconds_before=2, seconds_after=3)[0]
        [{'video': 'game.mp4', 'start_seconds': 10.5, 'end_seconds': 15.5, 'label': 'goal'}]
    """
    rows: list[dict[str, Any]] = []
    rejections: list[Rejection] = []
    for number, item in enumerate(value["data"], start=1):
        for found in _moments_of(item, seconds_before, seconds_after):
            if isinstance(found, str):
                name = item.get("id") if isinstance(item, dict) else None
                place = f"item {number} of {source}" + (f" ({name!r})" if name else "")
                raw = json.dumps(item, ensure_ascii=False, default=str)[:1000]
                kind, _, cure = found.partition("; ")
                rejections.append(Rejection(f"{kind}: {place}; {cure}", raw, place))
            else:
                rows.append(found)
    return rows, rejections


def _moments_of(item: Any, before: float, after: float) -> Iterator[dict[str, Any] | str]:
    inputs = item.get("inputs") if isinstance(item, dict) else None
    videos = [one for one in inputs or () if isinstance(one, dict) and isinstance(one.get("path"), str)]
    videos = [one for one in videos if one.get("type", "video") == "video"]
    if not videos:
        yield "item without a video; give inputs with a path"
        return
    events = item.get("events")
    for video in videos:
        if not isinstance(events, list):  # a clip with labels of its own
            yield {"video": video["path"], "start_seconds": None, "end_seconds": None, "label": _label(item)}
            continue
        for event in events:
            seconds = _seconds(event, video)
            if seconds is None:
                yield "event without a time; give position_ms, or frame with the fps of the input"
                continue
            yield {
                "video": video["path"],
                "start_seconds": round(max(0.0, seconds - before), 3),
                "end_seconds": round(seconds + after, 3),
                "label": event.get("label") if isinstance(event.get("label"), str) else None,
            }


def _seconds(event: Any, video: dict[str, Any]) -> float | None:
    if not isinstance(event, dict):
        return None
    for name, per_second in (("position_ms", 1000.0), ("frame", video.get("fps"))):
        position = _number(event.get(name))
        rate = _number(per_second)
        if position is not None and rate:
            return position / rate
    return None


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _label(item: dict[str, Any]) -> str | None:
    labels = item.get("labels")
    for one in labels.values() if isinstance(labels, dict) else ():
        label = one.get("label") if isinstance(one, dict) else one
        if isinstance(label, str):
            return label
    return None
