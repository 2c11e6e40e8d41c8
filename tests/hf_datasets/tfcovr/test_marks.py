"""Marks of search results: right ones become triplets of training videos, every other one is named."""

import json

import polars as pl
import pytest

from hf_datasets.tfcovr.marks import read_marks
from hf_datasets.tfcovr.triplets import TRIPLET_FEATURES

COLUMNS = (
    *("query_video", "query_start_seconds", "query_end_seconds", "text", "video", "start_seconds", "end_seconds"),
    *("label", "is_right"),
)


@pytest.fixture
def videos(tmp_path):
    folder = tmp_path / "videos"
    for name in ("train.mp4", "held.mp4", "day/new.mkv"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"video")
    return folder


@pytest.fixture
def clips(videos):
    rows = [
        {
            "clip_id": f"{name}-{number}",
            "video_id": name,
            "video": str(videos / f"{name}.mp4"),
            "start_seconds": 2.0 * number,
            "end_seconds": 2.0 * number + 2,
            "label": ("jump", "turn")[number],
            "description": ("jump", "turn")[number],
            "split": "train" if name == "train" else "test",
        }
        for name in ("train", "held")
        for number in range(2)
    ]
    return pl.DataFrame(rows)


def read(tmp_path, clips, videos, *rows):
    path = tmp_path / "marks.csv"
    pl.DataFrame([dict(zip(COLUMNS, row, strict=True)) for row in rows], strict=False).write_csv(path)
    return read_marks(path, clips, videos)


def test_a_right_mark_is_a_triplet_of_known_or_of_new_clips(tmp_path, clips, videos):
    found = read(
        tmp_path,
        clips,
        videos,
        ("train.mp4", "0.0", "2.001", "turn instead", "train", "2", "4", "turn", "true"),
        ("train", "0", "1.5", "higher", "day/new.mkv", "", "", "", "1"),
        ("new", "", "", "with a turn", "train.mp4", "2", "4", "", "Yes"),
    )
    assert not found.rejections
    assert [(row["query_clip_id"], row["target_clip_ids"][0]) for row in found.triplets] == [
        ("train-0", "train-1"),
        ("train#t=0,1.5", "day/new.mkv#t=,"),
        ("day/new.mkv#t=,", "train-1"),
    ]
    assert [row["target_label"] for row in found.triplets] == ["turn", "higher", "turn"]
    whole = found.with_clips(clips)
    assert whole["clip_id"].to_list()[4:] == ["train#t=0,1.5", "day/new.mkv#t=,"]
    assert set(whole["split"][4:]) == {"train"}
    assert whole["label"][4:].to_list() == [None, None]
    assert whole["video"][5] == str(videos / "day/new.mkv")
    (table,) = found.tables()
    assert table.schema.names == list(TRIPLET_FEATURES)
    assert table["modification_text"].to_pylist() == ["turn instead", "higher", "with a turn"]


RIGHT = ("train", "0", "2", "turn", "train", "2", "4", "turn", "true")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"is_right": "false"}, "wrong mark: as a negative it adds less than half a point"),
        ({"is_right": ""}, "mark that is neither right nor wrong: row 2"),
        ({"video": "held"}, "held-out video: a mark of"),
        ({"query_video": "held.mp4"}, "held-out video: a mark of"),
        ({"video": "../train"}, "missing video: a mark of"),
        ({"query_video": "upload.mp4"}, "missing video: a mark of"),
        ({"query_video": ""}, "mark of a search without a clip or without a text: row 2"),
        ({"text": " "}, "mark of a search without a clip or without a text: row 2"),
        ({"query_start_seconds": "soon"}, "time that is not a number: row 2"),
        ({"end_seconds": "1"}, "unusable span: row 2"),
        ({"start_seconds": "0", "end_seconds": "2"}, "query as its own answer"),
    ],
)
def test_every_other_mark_is_named(tmp_path, clips, videos, changes, says):
    row = tuple((dict(zip(COLUMNS, RIGHT, strict=True)) | changes).values())
    found = read(tmp_path, clips, videos, RIGHT, row)
    assert len(found.triplets) == 1
    (rejection,) = found.rejections
    assert rejection.reason.startswith(says)


def test_a_table_that_is_none_is_an_error_with_the_cure(tmp_path, clips, videos):
    with pytest.raises(FileNotFoundError, match="is not a file; give the table of marks that `subtle serve` wrote"):
        read_marks(tmp_path / "none.csv", clips, videos)
    (tmp_path / "marks.json").write_text(json.dumps([{"video": "train"}]))
    with pytest.raises(ValueError, match="has no column query_video, text, is_right; it has video"):
        read_marks(tmp_path / "marks.json", clips, videos)
    assert read(tmp_path, clips, videos, (*RIGHT[:8], "no")).tables() == []
