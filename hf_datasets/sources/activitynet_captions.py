"""ActivityNet-Captions: `{video: {duration, timestamps, sentences}}`, and every file of that layout."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hf_datasets.records import CaptionedEvent, CaptionedVideo, Rejection
from hf_datasets.sources.values import identifier, list_of, load_json, number, raw_of, text


def read_activitynet_captions(path: str | Path) -> Iterator[CaptionedVideo | Rejection]:
    """Read one file of ActivityNet-Captions (`train.json`, `val_1.json`, `val_2.json`).

    Ids keep their `v_`. Times and texts stay as annotated, unsorted and unclipped; an unreadable event is rejected
    with its video's id, and so is a video without any event.

    Args:
        path: The JSON file.

    Yields:
        The videos in the order of the file.

    Raises:
        ValueError: The file is not a JSON object of videos.
    """
    yield from read_videos(load_object(path), Path(path).name)


def load_object(path: str | Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        ValueError: The file holds something else.
    """
    found = load_json(path)
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds no object of videos, but {type(found).__name__}")
    return found


def read_videos(videos: Mapping[str, Any], source: str) -> Iterator[CaptionedVideo | Rejection]:
    """Read `{video: {duration, timestamps: [[start, end], ...], sentences: [text, ...]}}`.

    Args:
        videos: Content of the file.
        source: Its name, for the messages.

    Yields:
        A video, or a rejection for it or for one of its events.
    """
    for video_id, entry in videos.items():
        try:
            identifier(video_id)
            duration = number(entry["duration"])
            pairs = list(zip(list_of(entry["timestamps"]), list_of(entry["sentences"]), strict=True))
        except (KeyError, TypeError, ValueError) as error:
            yield Rejection(f"unreadable video: {error}: {source}", raw_of(entry), video_id)
            continue
        events = []
        for span, sentence in pairs:
            event = read_event(span, sentence, duration)
            if isinstance(event, str):
                yield Rejection(f"{event}: {source}", raw_of([span, sentence]), video_id)
            else:
                events.append(event)
        if events:
            yield CaptionedVideo(video_id, duration, tuple(events))
        else:
            yield Rejection(f"no event: {source}", raw_of(entry), video_id)


def read_event(span: Any, sentence: Any, duration: float) -> CaptionedEvent | str:
    """An event, or what is wrong with it. An end beyond the video is moved to its end.

    Example:
        >>> read_event([1, 9.5], " A man runs. ", 9.0)
        CaptionedEvent(start_seconds=1.0, end_seconds=9.0, caption='A man runs.')
        >>> read_event([9.5, 12], "A man runs.", 9.0)
        'the event is outside the video'
    """
    try:
        start, end = (number(seconds) for seconds in list_of(span))
    except ValueError as error:
        return f"unreadable times: {error}"
    try:
        caption = " ".join(text(sentence).split())
    except ValueError as error:
        return f"unreadable caption: {error}"
    if not caption:
        return "empty caption"
    if not 0 <= start < end:
        return "the event does not end after it starts"
    if start >= duration:
        return "the event is outside the video"
    return CaptionedEvent(start, min(end, duration), caption)
