"""OpenSportsLib's JSON ("OSL JSON", version 2.0): videos with events and captions at `position_ms`, or labeled clips.

Written after the description of the format in OpenSportsLib (https://github.com/OpenSportsLab/opensportslib,
docs/data/osl-json-format.md) and in its annotation tool (https://github.com/OpenSportsLab/VideoAnnotationTool,
docs/OSL.md): an object whose list `data` has samples with `inputs` (of type "video", the default, or features and
tracks), `labels` by head, `events`, `captions` and `dense_captions`. What is answered to questions is left out.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from hf_datasets.records import Rejection

NO_VIDEOS = (".npy", ".parquet", ".h5")  # the inputs that need no type
MAIN_HEAD = "action"
GAME_TIME = re.compile(r"\s*\d+\s*-\s*(\d+):(\d{1,2}(?:\.\d+)?)\s*")


def is_opensportslib(value: Any) -> bool:
    """Whether a JSON value is such a file: an object with a list `data` of items with `inputs`."""
    items = value.get("data") if isinstance(value, dict) else None
    return isinstance(items, list) and any(isinstance(item, dict) and "inputs" in item for item in items)


def rows_of_opensportslib(
    value: dict[str, Any], *, source: str, seconds_before: float, seconds_after: float
) -> tuple[list[dict[str, Any]], list[Rejection]]:
    """Rows with `video, start_seconds, end_seconds, label, text`, for each event and caption of each view.

    An event has a label, a caption at a time has a text. A sample with labels or a caption of its own, or with nothing
    at all, is a moment as a whole, too.

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
        [{'video': 'game.mp4', 'start_seconds': 10.5, 'end_seconds': 15.5, 'label': 'goal', 'text': None}]
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
    videos = [one for one in inputs if _is_video(one)] if isinstance(inputs, list) else []
    if not videos:
        yield "item without a video; give inputs with a path"
        return
    timed = [(kind, one) for kind in ("events", "dense_captions") for one in _list_field(item, kind)]
    label, text = _label(item.get("labels")), _english_caption(_list_field(item, "captions"))
    for video in videos:
        if label or text or not timed:
            yield _row(video, None, None, label, text)
        for kind, one in timed:
            span = _event_span(one, video, before, after)
            if span is None:
                yield f"{kind[:-1].replace('_', ' ')} without a time; give position_ms, or frame with the input's fps"
                continue
            label_of_event = one.get("label") if kind == "events" else None
            yield _row(video, *span, label_of_event, _english_caption([one]) if kind == "dense_captions" else None)


def _row(video: dict[str, Any], start: float | None, end: float | None, label: Any, text: str | None) -> dict[str, Any]:
    label = label if isinstance(label, str) and label else None
    return {"video": video["path"], "start_seconds": start, "end_seconds": end, "label": label, "text": text}


def _list_field(item: dict[str, Any], name: str) -> list[Any]:
    value = item.get(name)
    return value if isinstance(value, list) else []


def _is_video(one: Any) -> bool:
    if not isinstance(one, dict) or not isinstance(one.get("path"), str):
        return False
    kind = one.get("type")
    return kind == "video" or (not kind and not one["path"].lower().endswith(NO_VIDEOS))


def _event_span(one: Any, video: dict[str, Any], before: float, after: float) -> tuple[float, float] | None:
    """Around a time; or between two times, as older dense captions have them."""
    if not isinstance(one, dict):
        return None
    start, end = _non_negative(one.get("start_ms")), _non_negative(one.get("end_ms"))
    if start is not None and end is not None and start < end:
        return start / 1000, end / 1000
    seconds = _seconds(one, video)
    if seconds is None:
        return None
    return round(max(0.0, seconds - before), 3), round(seconds + after, 3)


def _seconds(one: dict[str, Any], video: dict[str, Any]) -> float | None:
    for name, per_second in (("position_ms", 1000.0), ("frame", video.get("fps"))):
        position = _non_negative(one.get(name))
        rate = _non_negative(per_second)
        if position is not None and rate:
            return position / rate
    # "1 - 06:35" is a time in the first half, of which such a file has a video of its own.
    game_time = GAME_TIME.fullmatch(str(one.get("gameTime", "")))
    return 60 * int(game_time[1]) + float(game_time[2]) if game_time else None


def _non_negative(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _label(labels: Any) -> str | None:
    """Of the head "action", else of the first that has one; several of a head are joined."""
    heads = labels if isinstance(labels, dict) else {}
    for head in sorted(heads, key=lambda name: name != MAIN_HEAD):
        found = heads[head]
        if isinstance(found, dict):
            found = found.get("label") or found.get("labels")
        if isinstance(found, list):
            found = ", ".join(one for one in found if isinstance(one, str))
        if isinstance(found, str) and found:
            return found
    return None


def _english_caption(captions: list[Any]) -> str | None:
    """The English caption, else the first."""
    texts = [one for one in captions if isinstance(one, dict) and isinstance(one.get("text"), str) and one["text"]]
    texts.sort(key=lambda one: one.get("lang", "en") != "en")
    return texts[0]["text"] if texts else None
