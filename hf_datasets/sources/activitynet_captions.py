"""ActivityNet-Captions: `{video: {duration, timestamps, sentences}}`, and every file of that layout."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hf_datasets.records import CaptionedEvent, CaptionedVideo, Rejection


def read_activitynet_captions(path: str | Path) -> Iterator[CaptionedVideo | Rejection]:
    """Read one file of ActivityNet-Captions (`train.json`, `val_1.json`, `val_2.json`).

    Ids keep their `v_`. Times and texts stay as annotated, unsorted and unclipped; what cannot be read as an event is
    rejected with its video's id, a video without any event too.

    Args:
        path: The JSON file.

    Yields:
        The videos in the order of the file.

    Raises:
        ValueError: The file is no JSON object of videos.
    """
    yield from read_videos(load_object(path))


def load_object(path: str | Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        ValueError: The file holds something else.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON file ({error})") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds no object of videos, but {type(found).__name__}")
    return found


def read_videos(videos: Mapping[str, Any]) -> Iterator[CaptionedVideo | Rejection]:
    """Read `{video: {duration, timestamps: [[start, end], ...], sentences: [text, ...]}}`.

    Yields:
        A video, or a rejection for it or for one of its events.
    """
    for video_id, entry in videos.items():
        try:
            duration = float(entry["duration"])
            pairs = list(zip(entry["timestamps"], entry["sentences"], strict=True))
        except (KeyError, TypeError, ValueError) as error:
            yield Rejection(f"unreadable video: {error}", json.dumps(entry)[:2_000], video_id)
            continue
        events = []
        for span, sentence in pairs:
            event = read_event(span, sentence, duration)
            if isinstance(event, str):
                yield Rejection(event, json.dumps([span, sentence]), video_id)
            else:
                events.append(event)
        if events:
            yield CaptionedVideo(video_id, duration, tuple(events))
        else:
            yield Rejection("no event", json.dumps(entry)[:2_000], video_id)


def read_event(span: Any, sentence: Any, duration: float) -> CaptionedEvent | str:
    """An event, or what is wrong with it. An end beyond the video is moved to its end.

    Example:
        >>> read_event([1, 9.5], " A man runs. ", 9.0)
        CaptionedEvent(start_seconds=1.0, end_seconds=9.0, caption='A man runs.')
        >>> read_event([9.5, 12], "A man runs.", 9.0)
        'the event is outside the video'
    """
    try:
        start, end = (float(seconds) for seconds in span)
    except (TypeError, ValueError):
        return "unreadable times"
    caption = " ".join(sentence.split()) if isinstance(sentence, str) else ""
    if not caption:
        return "empty caption"
    if not (math.isfinite(start) and math.isfinite(end)) or start < 0 or start >= end:
        return "the event does not end after it starts"
    if start >= duration:
        return "the event is outside the video"
    return CaptionedEvent(start, min(end, duration), caption)
