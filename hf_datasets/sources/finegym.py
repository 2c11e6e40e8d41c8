"""FineGym: labeled sub-actions of gymnastics broadcasts (Shao et al., CVPR 2020), as spans of the long video.

Files: `finegym_annotation_info_v1.1.json` (events and sub-actions of each video), the element lists
`gym288_train_element_v1.1.txt` and `gym288_val_element.txt` (clip id, class), and optionally a categories file
(class -> text). FineGym gives the times of a sub-action relative to its event; here they are absolute.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from hf_datasets.records import Clip, Rejection
from hf_datasets.sources.values import load_json, number, raw_of, shorten

CLIP_ID = re.compile(
    r"(?P<video>[A-Za-z0-9_-]{11})(?:_E)?_(?P<event>\d{6}_\d{6})(?:_A)?_(?P<action>\d{4}_\d{4})",
    re.ASCII,
)
CATEGORY = re.compile(r"Clabel:\s*(\d+)\s*;\s*set:\s*(\d+)\s*;\s*Glabel:\s*(\d+)\s*;\s*(.+?)\s*")
Apparatus = Literal["Vault", "Floor Exercise", "Balance Beam", "Uneven Bar"]
APPARATUS: dict[str, Apparatus] = {"VT": "Vault", "FX": "Floor Exercise", "BB": "Balance Beam", "UB": "Uneven Bar"}
"""FineGym's abbreviations, which the prompt of TF-CoVR's paper uses, and the names that its label table uses."""
SPAN_TOLERANCE_SECONDS = 1.0
"""Event names and times are cut to whole seconds in places, so a sub-action may end a little after its event."""


def clip_id(name: str) -> str:
    """The long form of a FineGym clip id: `<video>_E_<start>_<end>_A_<start>_<end>`.

    Args:
        name: A clip id in the long form, or in the short one without `_E` and `_A` that re-packed lists use.

    Raises:
        ValueError: `name` has neither form.

    Examples:
        >>> clip_id("A0xAXXysHUo_002184_002237_0035_0036")
        'A0xAXXysHUo_E_002184_002237_A_0035_0036'
    """
    match = CLIP_ID.fullmatch(name)
    if match is None:
        raise ValueError(
            f"clip id {name!r} is not <11-character video>_E_<6 digits>_<6 digits>_A_<4 digits>_<4 digits>"
        )
    return f"{match['video']}_E_{match['event']}_A_{match['action']}"


def read_finegym(
    annotation: Path,
    elements: Sequence[Path],
    *,
    descriptions: Mapping[str, str],
    categories: Path | None = None,
) -> Iterator[Clip | Rejection]:
    """Read the sub-actions of FineGym that have a class among `descriptions`.

    Args:
        annotation: `finegym_annotation_info_v1.1.json`.
        elements: Element lists, for example gym288's train and val ones; their split is not FineGym's videos'
            split, so the clips carry none.
        descriptions: Label id -> text, the classes to keep.
        categories: The categories file that belongs to the lists. With it a class is found by its text, so lists
            other than gym288's serve as well; without it the class number of gym288 is the label id.

    Yields:
        A clip with its absolute `start_seconds` and `end_seconds` in the long video for each labeled sub-action,
        and a rejection for each unusable entry, in the order of the annotation.

    Raises:
        ValueError: A file is not what its name says, or a gym99 list came without its categories.
    """
    labels = None if categories is None else read_categories(categories, descriptions)
    if labels is None and any("gym99" in path.name for path in elements):
        raise ValueError("the classes of gym99 lists are not label ids; pass gym99_categories.txt, or gym288 lists")
    classes: dict[str, tuple[str, str]] = {}
    for path in elements:
        yield from _read_elements(path, classes)
    used = set()
    for segment in _segments(annotation):
        if isinstance(segment, Rejection):
            yield segment
            continue
        name, video_id, start, end = segment
        used.add(name)
        if name not in classes:
            yield Rejection(f"no element label: {name} of {annotation.name} is in none of the lists", name, name)
            continue
        label, place = classes[name]
        label = label if labels is None else labels.get(label, label)
        if label in descriptions:
            yield Clip(name, video_id, label, start, end)
        else:
            yield Rejection(f"class outside the label set: {place} has {label!r}", name, name)
    for name, (_, place) in classes.items():
        if name not in used:
            yield Rejection(f"not annotated: {place} is not in {annotation.name} or has no usable span", name, name)


def read_subaction_spans(annotation: Path) -> dict[str, tuple[float, float]]:
    """Read when each sub-action is in its long video.

    Args:
        annotation: `finegym_annotation_info_v1.1.json`.

    Returns:
        Clip id -> start and end in seconds; entries that cannot be used are left out, as `read_finegym` rejects them.

    Raises:
        ValueError: The file is not what its name says.
    """
    segments = [segment for segment in _segments(annotation) if not isinstance(segment, Rejection)]
    return {name: (start, end) for name, _, start, end in segments}


def whole_seconds(name: str) -> tuple[float, float] | None:
    """When a clip is in its long video, as far as its id tells: FineGym cuts the times in it to whole seconds.

    >>> whole_seconds("A0xAXXysHUo_E_002184_002237_A_0035_0036")
    (2219.0, 2221.0)
    >>> whole_seconds("FINAWorldChampionships2019_1") is None
    True

    Returns:
        From the second in which it starts to the end of that in which it ends; None for an id of another form.
    """
    match = CLIP_ID.fullmatch(name)
    if match is None:
        return None
    event, start, end = (int(match["event"][:6]), *map(int, match["action"].split("_")))
    return float(event + start), float(event + max(start, end) + 1)


def read_categories(path: Path, descriptions: Mapping[str, str]) -> dict[str, str]:
    """Read a categories file as class -> label id, matched by text; classes without a label are left out.

    Lines have the form `Clabel: 0; set: 1; Glabel: 1; (VT) round-off, ...`, with any spaces.

    Args:
        path: `gym288_categories.txt` or `gym99_categories.txt`.
        descriptions: Label id -> text; texts that occur twice stand for the class of the same number if they can.

    Returns:
        Class of the list -> label id, both as text.

    Raises:
        ValueError: A line has another form, or no line matches.
    """
    by_text: dict[str, list[str]] = {}
    for label, text in descriptions.items():
        by_text.setdefault(_normalized(text), []).append(label)
    labels = {}
    for place, line in enumerate(_lines(path), 1):
        match = CATEGORY.fullmatch(line)
        if match is None:
            raise ValueError(f"{path}, line {place}: {line!r} is not 'Clabel: c; set: s; Glabel: g; (VT) text'")
        same_text = by_text.get(_normalized(match[4]), [])
        if same_text:
            labels[match[1]] = match[1] if match[1] in same_text else same_text[0]
    if not labels:
        raise ValueError(f"{path}: no line matches one of the {len(descriptions)} labels")
    return labels


def _normalized(text: str) -> str:
    """Text without the glosses that TF-CoVR dropped, in lower case, with the apparatus' full name."""
    apparatus, _, rest = text.partition(")")
    apparatus = apparatus.removeprefix("(").strip()
    rest = re.sub(r"\([^()]*\)", " ", rest)
    return " ".join(f"{APPARATUS.get(apparatus, apparatus)} {rest}".lower().split())


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    lines = [line.strip() for line in lines if line.strip()]
    if not lines:
        raise ValueError(f"{path} is empty; fetch it again")
    return lines


def _read_elements(path: Path, classes: dict[str, tuple[str, str]]) -> Iterator[Rejection]:
    # Add clip id -> (class, place in the file) to `classes`; yield the lines that cannot be used.
    for place, line in enumerate(_lines(path), 1):
        where = f"{path.name}, line {place}"
        name, *rest = line.split()
        if len(rest) != 1 or not rest[0].isdigit():
            yield Rejection(f"malformed line: {where} is not '<clip id> <class>'", line, where)
            continue
        try:
            name = clip_id(name)
        except ValueError as error:
            yield Rejection(f"malformed clip id: {where}: {error}", line, where)
            continue
        if name in classes:
            yield Rejection(f"duplicate clip id: {where} repeats {classes[name][1]}, which is kept", line, name)
        else:
            classes[name] = (rest[0], where)


def _segments(path: Path) -> Iterator[tuple[str, str, float, float] | Rejection]:
    # Each sub-action of the annotation as clip id, video id, absolute start and end in seconds.
    videos = load_json(path)
    if not isinstance(videos, dict) or not videos:
        raise ValueError(f"{path} is not an object of videos; finegym_annotation_info_v1.1.json is")
    for video_id, events in videos.items():
        if not isinstance(events, dict):
            yield _no_object("events", video_id, events, path)
            continue
        for event_id, event in events.items():
            name = f"{video_id}_{event_id}"
            segments = event.get("segments") if isinstance(event, dict) else event
            if not isinstance(segments, dict | None):
                yield _no_object("segments", name, segments, path)
                continue
            for action_id, segment in (segments or {}).items():
                yield _segment(video_id, f"{name}_{action_id}", event, segment, path)


def _segment(
    video_id: str, name: str, event: Mapping[str, Any], segment: Any, path: Path
) -> tuple[str, str, float, float] | Rejection:
    # From the start of the first stage to the end of the last one, in seconds of the long video.
    try:
        event_start, event_end = map(number, event["timestamps"][0])
        stages = segment["timestamps"]
        start, end = event_start + number(stages[0][0]), event_start + number(stages[-1][1])
        if not event_start <= start < end <= event_end + SPAN_TOLERANCE_SECONDS:
            raise ValueError(f"stages {shorten(stages)} do not lie in their event of {event_end - event_start:.2f} s")
        return clip_id(name), video_id, start, end
    except (KeyError, TypeError, IndexError, ValueError) as error:
        return Rejection(f"unusable span: {name} of {path.name}: {error}", raw_of(segment), name)


def _no_object(what: str, name: str, value: Any, path: Path) -> Rejection:
    return Rejection(f"no object of {what}: {name} of {path.name} has {shorten(value)}", raw_of(value), name)
