"""What people annotated in Label Studio or CVAT, as rows of `video, start_seconds, end_seconds, label`.

Written after https://labelstud.io/tags/timelinelabels (JSON export: ranges of frames that are counted from 1, the last
one within) and https://docs.cvat.ai/docs/dataset_management/formats/format-cvat ("CVAT for video 1.1": tracks, whose
boxes are `outside` from the frame after the last). Both count frames; a video needs a constant frame rate.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import polars as pl
from pydantic import BaseModel, Field, ValidationError

from hf_datasets.footage.files import find_videos
from hf_datasets.records import Rejection
from hf_datasets.video import VideoError
from hf_datasets.video.backends import open_video

UNLABELED = "unlabeled"
"""The label in a task of a moment that has none; what keeps it is left out."""
ANNOTATION_SCHEMA = {"video": pl.String, "start_seconds": pl.Float64, "end_seconds": pl.Float64, "label": pl.String}


class _Range(BaseModel):
    start: int = Field(ge=1)
    end: int = Field(ge=1)


class _Timeline(BaseModel):
    ranges: list[_Range] = Field(min_length=1)
    timelinelabels: list[str] = Field(min_length=1, max_length=1)


@dataclass(frozen=True)
class _Span:
    """Frames `[first, end)` of a video that a task names, with its frame rate if the task says it."""

    video: str
    first: int
    end: int
    label: str
    frame_rate: Any
    place: str


def read_annotations(path: Path, video_dir: Path) -> tuple[pl.DataFrame, list[Rejection]]:
    """Read an export of annotated moments.

    Args:
        path: Label Studio's JSON (`.json`), with results of `TimelineLabels`, or CVAT's XML (`.xml`) of one video.
        video_dir: The folder of the videos. A task names its video by `source` (as the tasks of `subtle search
            --export` do), by an address that ends with its path in the folder, or by its file's name alone.

    Returns:
        Rows with `video, start_seconds, end_seconds, label`, in the order of the file, and a rejection for each
        annotation that is left out: no label, no span, a video that is not there, two annotators of one task.

    Raises:
        FileNotFoundError: There is no such file.
        NotADirectoryError: There is no such folder.
        ValueError: It is no such export.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file; give Label Studio's JSON or CVAT's XML (CVAT for video 1.1)")
    readers = {".json": _label_studio, ".xml": _cvat_tracks}
    if path.suffix.lower() not in readers:
        raise ValueError(
            f"{path} is neither .json (Label Studio) nor .xml (CVAT for video 1.1); unpack an archive first"
        )
    videos = {file.video: file.path for file in find_videos(video_dir)[0]}
    rows, rejections = [], []
    for found in readers[path.suffix.lower()](path):
        if isinstance(found, str):
            rejections.append(Rejection(found, found))
            continue
        try:
            rows.append(_annotated_row(found, videos))
        except (ValueError, VideoError) as error:
            rejections.append(Rejection(f"{error}: {found.place} of {path}", str(found), found.place))
    return pl.DataFrame(rows, schema=ANNOTATION_SCHEMA), rejections


def _annotated_row(span: _Span, videos: Mapping[str, Path]) -> dict[str, Any]:
    if not span.label.strip() or span.label == UNLABELED:
        raise ValueError("annotation without a label")
    video = _find_video(span.video, videos)
    if span.frame_rate is None:
        with open_video(videos[video]) as opened:
            rate = opened.frame_rate
    else:
        try:
            rate = Fraction(str(span.frame_rate))
        except (ValueError, ZeroDivisionError):
            rate = Fraction(0)
    if rate <= 0 or span.first >= span.end:
        raise ValueError(f"no span of frames ({span.first} to {span.end}, {span.frame_rate} frames per second)")
    times = {"start_seconds": float(span.first / rate), "end_seconds": float(span.end / rate)}
    return {"video": video, **times, "label": span.label.strip()}


def _find_video(name: str, videos: Mapping[str, Path]) -> str:
    ends = [video for video in videos if name == video or name.endswith(f"/{video}")]
    same = [video for video in videos if PurePosixPath(video).name == PurePosixPath(name).name]
    if ends:
        return max(ends, key=len)
    if len(same) != 1:
        raise ValueError(f"{'no video' if not same else 'several videos'} of the name {name!r} in the folder")
    return same[0]


def _label_studio(path: Path) -> Iterator[_Span | str]:
    try:
        tasks = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read as JSON ({error}); export it again") from None
    if not isinstance(tasks, list) or not all(isinstance(task, dict) and "annotations" in task for task in tasks):
        raise ValueError(f"{path} is no export of Label Studio: choose the format JSON, not JSON-MIN or CSV")
    for number, task in enumerate(tasks, start=1):
        place = f"task {task.get('id', number)}"
        data = task["data"] if isinstance(task.get("data"), dict) else {}
        done = _objects_of(task["annotations"], lambda one: not one.get("was_cancelled"))
        chosen = [one for one in done if one.get("ground_truth")] or done
        name = data.get("source") or unquote(str(data.get("video") or "").rpartition("?d=")[2])
        if not name or len(chosen) != 1:
            few = f"{len(chosen)} annotations; mark the one that counts as ground truth" if chosen else "not annotated"
            yield f"task left out: {place} of {path}, {few if name else 'without a video'}"
            continue
        for result in _objects_of(chosen[0].get("result")):
            try:
                timeline = _Timeline.model_validate(result.get("value"))
            except ValidationError:
                yield f"no span with one label of TimelineLabels: {result.get('type')} in {place} of {path}"
                continue
            for span in timeline.ranges:
                yield _Span(name, span.start - 1, span.end, timeline.timelinelabels[0], data.get("frame_rate"), place)


def _objects_of(value: Any, is_kept: Any = bool) -> Sequence[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict) and is_kept(one)] if isinstance(value, list) else []


def _cvat_tracks(path: Path) -> Iterator[_Span | str]:
    content = path.read_bytes()
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise ValueError(f"{path} declares a document type, which no export of CVAT does; it is not read")
    try:
        root = ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        raise ValueError(f"{path} cannot be read as XML ({error}); export it again") from None
    source = root.findtext("meta/task/source") or root.findtext("meta/source") or root.findtext("meta/job/source")
    if root.tag != "annotations" or not source or root.find("image") is not None:
        raise ValueError(f"{path} is no export of one video; choose the format CVAT for video 1.1, and one task")
    for track in root.iter("track"):
        place = f"track {track.get('id')}"
        try:
            boxes = sorted((int(box.get("frame", "")), box.get("outside") == "1") for box in track)
        except ValueError:
            yield f"track without frames: {place} of {path}"
            continue
        first = None
        for frame, is_outside in [*boxes, *([(boxes[-1][0] + 1, True)] if boxes else [])]:
            if is_outside and first is not None:
                yield _Span(source, first, frame, track.get("label", ""), None, place)
                first = None
            elif not is_outside and first is None:
                first = frame
