"""What annotators exported from Label Studio and CVAT: files by hand as these write them, and our own tasks back."""

import json
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import pytest
from colored_videos import write_colored_video

from hf_datasets.__main__ import annotations
from hf_datasets.footage.annotations import UNLABELED, read_annotations
from hf_datasets.tfcovr.own_clips import read_own_clips
from subtle.footage.annotating import write_tasks

CVAT = """<?xml version="1.0" encoding="utf-8"?>
<annotations>
  <version>1.1</version>
  <meta><task><id>7</id><name>final</name><size>32</size><mode>interpolation</mode><source>1.mp4</source></task></meta>
  <track id="0" label="vault" source="manual">
    <box frame="8" keyframe="1" outside="0" occluded="0" xtl="0" ytl="0" xbr="32" ybr="32" z_order="0"></box>
    <box frame="9" keyframe="0" outside="0" occluded="0" xtl="0" ytl="0" xbr="32" ybr="32" z_order="0"></box>
    <box frame="16" keyframe="1" outside="1" occluded="0" xtl="0" ytl="0" xbr="32" ybr="32" z_order="0"></box>
    <box frame="20" keyframe="1" outside="0" occluded="0" xtl="0" ytl="0" xbr="32" ybr="32" z_order="0"></box>
    <box frame="31" keyframe="0" outside="0" occluded="0" xtl="0" ytl="0" xbr="32" ybr="32" z_order="0"></box>
  </track>
  <track id="1" label="unlabeled" source="auto"><box frame="1" outside="0"></box></track>
  <track id="2" label="beam"><box frame="soon" outside="0"></box></track>
</annotations>"""


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    """Two folders, each with a video `1.mp4` of four seconds at 8 frames a second; `2.mp4` is in the first alone."""
    root = tmp_path_factory.mktemp("videos")
    for name in ("first/1.mp4", "first/2.mp4", "second/1.mp4"):
        (root / name).parent.mkdir(exist_ok=True)
        write_colored_video(root / name, [(20, 20, 250)] * 32, fps=8)
    return root


def label_studio(name, *ranges, kind="timelinelabels", **of_annotation):
    results = [
        {
            "id": str(number),
            "type": kind,
            "from_name": "moments",
            "to_name": "video",
            "origin": "manual",
            "value": {"ranges": [{"start": start, "end": end}], kind: labels},
        }
        for number, (start, end, *labels) in enumerate(ranges)
    ]
    annotation = {"id": 1, "result": results, "was_cancelled": False, "ground_truth": False} | of_annotation
    return {"id": 12, "data": {"video": name}, "annotations": [annotation]}


def read(folder, content, videos):
    path = folder / ("export.xml" if isinstance(content, str) else "export.json")
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    rows, rejections = read_annotations(path, videos)
    return rows.rows(), [rejection.reason for rejection in rejections]


def test_ranges_of_label_studio_are_seconds_of_the_video_that_their_address_ends_with(videos, tmp_path):
    task = label_studio("/data/local-files/?d=media/second/1.mp4", (1, 8, "vault"), (17, 32, "beam"))
    rows, reasons = read(tmp_path, [task], videos)
    assert rows == [("second/1.mp4", 0.0, 1.0, "vault"), ("second/1.mp4", 2.0, 4.0, "beam")]
    assert not reasons


def test_tracks_of_cvat_are_spans_until_their_boxes_are_outside(videos, tmp_path):
    rows, reasons = read(tmp_path, CVAT.replace("1.mp4", "2.mp4"), videos)
    assert rows == [("first/2.mp4", 1.0, 2.0, "vault"), ("first/2.mp4", 2.5, 4.0, "vault")]
    assert [reason.split(":")[0] for reason in reasons] == ["annotation without a label", "track without frames"]


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (label_studio("2.mp4", (1, 8)), "no span with one label"),
        (label_studio("2.mp4", (1, 8, "a", "b")), "no span with one label"),
        (label_studio("2.mp4", (0, 8, "a")), "no span with one label"),
        (label_studio("2.mp4", (1, 8, "a"), kind="videorectangle"), "no span with one label"),
        (label_studio("2.mp4", (8, 1, "a")), "no span of frames"),
        (label_studio("2.mp4", (1, 8, UNLABELED)), "annotation without a label"),
        (label_studio("1.mp4", (1, 8, "a")), "several videos of the name '1.mp4'"),
        (label_studio("3.mp4", (1, 8, "a")), "no video of the name '3.mp4'"),
        (label_studio("", (1, 8, "a")), "task left out: task 12"),
        (label_studio("2.mp4", (1, 8, "a"), was_cancelled=True), "task left out: task 12"),
        ({**label_studio("2.mp4"), "annotations": [{"result": []}, {"result": []}]}, "task left out: task 12"),
    ],
)
def test_what_is_left_out_is_named(videos, tmp_path, task, reason):
    good = label_studio("2.mp4", (1, 8, "vault"))
    rows, reasons = read(tmp_path, [task, good], videos)
    assert len(rows) == len(reasons) == 1
    assert reasons[0].startswith(reason)


def test_of_several_annotators_the_ground_truth_counts(videos, tmp_path):
    task = label_studio("2.mp4", (1, 8, "vault"))
    task["annotations"] += label_studio("2.mp4", (1, 16, "beam"), ground_truth=True)["annotations"]
    assert read(tmp_path, [task], videos) == ([("first/2.mp4", 0.0, 2.0, "beam")], [])


@pytest.mark.parametrize(
    "content",
    [
        {"a": 1},
        [{"video": "2.mp4"}],
        "<annotations",
        "<annotations><meta><task></task></meta></annotations>",
        CVAT.replace("<version>", "<image id='0'/><version>"),
        CVAT.replace("<annotations>", '<!DOCTYPE a [<!ENTITY b "c">]><annotations>', 1),
    ],
)
def test_what_is_no_such_export_is_refused(videos, tmp_path, content):
    with pytest.raises(ValueError, match="export"):
        read(tmp_path, content, videos)


def test_tasks_of_found_moments_come_back_as_a_table_that_tune_reads(videos, tmp_path, capsys):
    moments = [("first/1.mp4", 0.5, 1.5, "vault"), ("first/1.mp4", 3.0, 4.0, "<b>&"), ("second/1.mp4", 0.0, 2.0, None)]
    rows = [
        {"video": video, "path": str(videos / video), "start_seconds": start, "end_seconds": end, "label": label}
        | {"score": 0.5, "frame_rate": Fraction(8)}
        for video, start, end, label in moments
    ]
    write_tasks(rows, tmp_path / "tasks")
    tasks = json.loads((tmp_path / "tasks/label_studio.json").read_text())
    exported = [{"annotations": task.pop("predictions"), **task} for task in tasks]  # as they are accepted
    (tmp_path / "export.json").write_text(json.dumps(exported))
    exports = [tmp_path / "export.json", *sorted((tmp_path / "tasks/cvat").glob("*.xml"))]
    labels = {label.get("value") for label in ElementTree.parse(tmp_path / "tasks/label_studio.xml").iter("Label")}
    assert labels == {"vault", "<b>&", UNLABELED}
    assert {one["name"] for one in json.loads((tmp_path / "tasks/cvat/labels.json").read_text())} == labels
    annotations(exports[:1], videos, tmp_path / "clips.csv")
    assert "2 clips of 1 videos, 2 labels" in capsys.readouterr().out
    assert [read_annotations(path, videos)[0].rows() for path in exports] == [moments[:2], moments[:2], []]
    clips = read_own_clips(tmp_path / "clips.csv", video_dir=videos, validation_fraction=0.0, test_fraction=0.0).clips
    assert clips.select("video_id", "start_seconds", "end_seconds").rows() == [row[:3] for row in moments[:2]]
    with pytest.raises(ValueError, match=r"clips\.csv is there"):
        annotations(exports[:1], videos, tmp_path / "clips.csv")
    with pytest.raises(ValueError, match="nothing is written"):
        annotations(exports[2:], videos, tmp_path / "none.csv")
    assert not Path(tmp_path / "none.csv").exists()
