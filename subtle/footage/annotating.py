"""Found moments as tasks for annotators: Label Studio and CVAT. `hf_datasets.footage.annotations` reads them back."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from hf_datasets.drafts import write_json
from hf_datasets.footage.annotations import UNLABELED
from hf_datasets.video.backends import open_video
from subtle.footage.output import shown
from subtle.running import CONTROL_CHARACTERS


def write_tasks(rows: Sequence[dict[str, Any]], folder: Path) -> None:
    """Write a task for each video, with its moments as spans that a person moves, names or removes.

    `label_studio.json` is imported into a project with the interface `label_studio.xml`; its videos are local files
    below the folder of the videos. `cvat/` has a file of annotations (CVAT for video 1.1) for each video, to upload to
    a task with the labels of `cvat/labels.json`; a moment is a track whose box is the whole frame.

    Args:
        rows: One or more of `exporting.export`, with the `path` of the video and its `frame_rate`.
        folder: A new folder.
    """
    (folder / "cvat").mkdir(parents=True)
    labels = sorted({shown(row["label"]) or UNLABELED for row in rows} | {UNLABELED})
    tasks = []
    ordered = sorted(rows, key=lambda row: (row["video"], row["start_seconds"]))
    for number, (video, moments) in enumerate(groupby(ordered, key=lambda row: row["video"]), start=1):
        found = list(moments)
        rate = Fraction(found[0]["frame_rate"])
        frames = [[round(Fraction(row[name]) * rate) for name in ("start_seconds", "end_seconds")] for row in found]
        spans = [(begin, max(begin + 1, end), row) for (begin, end), row in zip(frames, found, strict=True)]
        results = [
            {
                "id": f"moment{place}",
                "type": "timelinelabels",
                "from_name": "moments",
                "to_name": "video",
                "score": row["score"],
                "value": {
                    "ranges": [{"start": begin + 1, "end": end}],
                    "timelinelabels": [shown(row["label"]) or UNLABELED],
                },
            }
            for place, (begin, end, row) in enumerate(spans, start=1)
        ]
        data = {"video": f"/data/local-files/?d={quote(video)}", "source": video, "frame_rate": float(rate)}
        tasks.append({"data": data, "predictions": [{"model_version": "subtle", "result": results}]})
        name = f"{number:03}_{CONTROL_CHARACTERS.sub('_', Path(video).stem)[:80]}.xml"
        _cvat(Path(found[0]["path"]), video, spans, labels).write(folder / "cvat" / name, "utf-8", xml_declaration=True)
    write_json(folder / "label_studio.json", tasks)
    write_json(folder / "cvat" / "labels.json", [{"name": label, "attributes": []} for label in labels])
    view = ElementTree.Element("View")
    timeline = ElementTree.SubElement(view, "TimelineLabels", name="moments", toName="video")
    for label in labels:
        ElementTree.SubElement(timeline, "Label", value=label)
    ElementTree.SubElement(view, "Video", name="video", value="$video", frameRate="$frame_rate")
    ElementTree.ElementTree(view).write(folder / "label_studio.xml", "utf-8")


def _cvat(
    path: Path, video: str, spans: Sequence[tuple[int, int, dict[str, Any]]], labels: Sequence[str]
) -> "ElementTree.ElementTree[ElementTree.Element]":
    with open_video(path) as opened:
        height, width = opened.size
        last = round(opened.promised_seconds * opened.frame_rate) - 1
    root = ElementTree.Element("annotations")
    ElementTree.SubElement(root, "version").text = "1.1"
    task = ElementTree.SubElement(ElementTree.SubElement(root, "meta"), "task")
    ElementTree.SubElement(task, "source").text = video
    listed = ElementTree.SubElement(task, "labels")
    for label in labels:
        ElementTree.SubElement(ElementTree.SubElement(listed, "label"), "name").text = label
    whole = {"occluded": "0", "keyframe": "1", "xtl": "0.0", "ytl": "0.0", "xbr": f"{width}.0", "ybr": f"{height}.0"}
    for number, (begin, end, row) in enumerate(spans):
        label = shown(row["label"]) or UNLABELED
        track = ElementTree.SubElement(root, "track", id=str(number), label=label, source="auto")
        for frame, outside in {begin: "0", end - 1: "0", end: "1"}.items():
            if frame <= last:
                ElementTree.SubElement(track, "box", {"frame": str(frame), "outside": outside, "z_order": "0", **whole})
    return ElementTree.ElementTree(root)
