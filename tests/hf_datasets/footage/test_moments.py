"""Moments of tables in every format, OpenSportsLib's JSON, windows and shots; nothing is dropped without a reason."""

import json
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_datasets.footage.moments import Windows, read_moments, shots

ROWS = [
    {"video": "a.mp4", "start_seconds": "0.5", "end_seconds": "2", "label": "vault", "text": "a vault"},
    {"video": "b/c.mkv", "start_seconds": None, "end_seconds": None, "label": None, "text": None},
]


def write(path, rows):
    table = pl.DataFrame(rows, infer_schema_length=None)
    match path.suffix:
        case ".csv":
            table.write_csv(path)
        case ".tsv":
            table.write_csv(path, separator="\t")
        case ".parquet":
            table.write_parquet(path)
        case ".jsonl":
            table.write_ndjson(path)
        case ".json":
            path.write_text(json.dumps(rows))
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".jsonl", ".json"])
def test_every_format_gives_the_same_moments(tmp_path, suffix):
    moments, rejections = read_moments(write(tmp_path / f"moments{suffix}", ROWS))
    assert not rejections
    assert [(one.moment_id, one.video, one.start_seconds, one.end_seconds, one.label, one.text) for one in moments] == [
        ("a.mp4#t=0.5,2", "a.mp4", 0.5, 2.0, "vault", "a vault"),
        ("b/c.mkv#t=,", "b/c.mkv", None, None, None, None),
    ]


def test_each_bad_row_and_column_is_named(tmp_path):
    spans = [("1", "2"), ("2", "1"), ("x", "2"), ("-1", "2"), ("1", "nan"), ("3", "")]
    rows = [{"video": "a.mp4", "start_seconds": start, "end_seconds": end, "camera": "2"} for start, end in spans]
    rows += [{"video": "", "start_seconds": "1", "end_seconds": "2", "camera": None}]
    rows += [{"video": "a\x1b.mp4", "start_seconds": "1", "end_seconds": "2", "camera": None}]
    moments, rejections = read_moments(write(tmp_path / "moments.csv", rows))
    assert [one.end_seconds for one in moments] == [2.0]
    kinds = [rejection.reason.partition(":")[0] for rejection in rejections]
    assert kinds == [
        "unknown column",
        "unusable span",
        "time that is not a number",
        "unusable span",
        "unusable span",
        "unusable span",
        "empty video",
        "control character in video or moment_id",
    ]


def test_a_table_of_a_spreadsheet_may_have_semicolons_decimal_commas_and_clock_times(tmp_path):
    table = "video;start_seconds;end_seconds;label\na.mp4;0,5;1,250;one, two\na.mp4;00:00:12.50;00:01:02,5;\n"
    (tmp_path / "moments.csv").write_text(f"\ufeff{table}", encoding="utf-8")
    (tmp_path / "moments.tsv").write_text(table.replace(";", "\t"), encoding="utf-8")
    for name in ("moments.csv", "moments.tsv"):
        moments, rejections = read_moments(tmp_path / name)
        assert not rejections
        assert [(one.start_seconds, one.end_seconds, one.label) for one in moments] == [
            (0.5, 1.25, "one, two"),
            (12.5, 62.5, None),
        ]
    rows = [{"video": "a.mp4", "start_seconds": "1:02:03", "end_seconds": "3,724.5"}]
    rows += [{"video": "a.mp4", "start_seconds": time, "end_seconds": "1,250"} for time in ("0:01", "00:00:75", "1")]
    rows += [{"video": "a.mp4", "start_seconds": "01:02:03.25", "end_seconds": "3724.5"}]
    (moment,), rejections = read_moments(write(tmp_path / "commas.csv", rows))
    assert (moment.start_seconds, moment.end_seconds) == (3723.25, 3724.5)  # 1,250 may be a thousand, and 0:01 an hour
    assert [one.reason.partition(":")[0] for one in rejections] == ["time that is not a number"] * 4
    assert "seconds such as 12.5 or a time such as 00:00:12.50" in rejections[0].reason


def test_the_columns_may_be_called_as_those_of_tfcovr(tmp_path):
    row = {"clip_id": "7", "video_id": "a", "start_seconds": 1, "end_seconds": 2, "label": "x", "description": "an x"}
    (moment,), rejections = read_moments(write(tmp_path / "clips.csv", [row, row | {"start_seconds": 0}]))
    assert (moment.moment_id, moment.video, moment.text) == ("7", "a", "an x")
    assert "duplicate moment id" in rejections[0].reason


def test_repeated_spans_are_different_moments(tmp_path):
    moments, _ = read_moments(write(tmp_path / "moments.csv", [ROWS[0], ROWS[0] | {"label": "fall"}]))
    assert [moment.moment_id for moment in moments] == ["a.mp4#t=0.5,2", "a.mp4#t=0.5,2#1"]


def read_osl(path, *items):
    """What a file of version 2.0 holds, with the fields that its description asks for."""
    labels = {"action": {"type": "single_label", "labels": ["PASS", "SHOT"]}}
    head = {"version": "2.0", "date": "2026-05-19", "dataset_name": "demo", "modalities": ["video"], "metadata": {}}
    path.write_text(json.dumps({**head, "labels": labels, "data": items}))
    moments, rejections = read_moments(path, seconds_before=2.0, seconds_after=3.0)
    rows = [(one.video, one.start_seconds, one.end_seconds, one.label, one.text) for one in moments]
    return rows, [rejection.reason.partition(":")[0] for rejection in rejections]


def test_events_and_captions_of_opensportslib_become_moments_around_them(tmp_path):
    video = {"type": "video", "path": "game.mp4", "fps": 25.0}
    events = [
        {"head": "action", "label": "PASS", "position_ms": 12480, "gameTime": "1 - 00:12"},
        {"head": "action", "label": "SHOT", "frame": 25, "confidence": 0.8},
        {"head": "action", "label": "HALF", "gameTime": "2 - 01:06"},
        {"head": "action", "label": "lost"},
        "no event",
    ]
    captions = [
        {"position_ms": 4000, "lang": "en", "text": "A pass."},
        {"start_ms": 1000, "end_ms": 2500, "text": "Older."},
    ]
    rows, reasons = read_osl(
        tmp_path / "osl.json", {"id": "game", "inputs": [video], "events": events, "dense_captions": captions}
    )
    assert rows == [
        ("game.mp4", 10.48, 15.48, "PASS", None),
        ("game.mp4", 0.0, 4.0, "SHOT", None),
        ("game.mp4", 64.0, 69.0, "HALF", None),
        ("game.mp4", 2.0, 7.0, None, "A pass."),
        ("game.mp4", 1.0, 2.5, None, "Older."),
    ]
    assert reasons == ["event without a time", "event without a time"]


def test_clips_of_opensportslib_have_the_label_of_the_action_and_the_english_caption(tmp_path):
    clip = {"inputs": [{"path": "wide.mp4"}, {"type": "video", "path": "close.mp4"}, {"path": "tracks.parquet"}]}
    labels = {"attributes": {"labels": ["left_foot", "set_piece"]}, "action": {"label": "SHOT", "confidence": 0.9}}
    captions = [{"lang": "fr", "text": "Un tir."}, {"lang": "en", "text": "A shot."}]
    several = {"inputs": [{"path": "b.mp4"}], "labels": {"attributes": {"labels": ["left_foot", "set_piece"]}}}
    plain = {"id": "plain", "inputs": [{"type": "video", "path": "c.mp4"}], "events": []}
    others = {"id": "none", "inputs": [{"type": "frames_npy", "path": "x.npy"}, {"path": "live.h5"}]}
    rows, reasons = read_osl(
        tmp_path / "osl.json", {**clip, "labels": labels, "captions": captions}, several, plain, others
    )
    assert rows == [
        ("wide.mp4", None, None, "SHOT", "A shot."),
        ("close.mp4", None, None, "SHOT", "A shot."),
        ("b.mp4", None, None, "left_foot, set_piece", None),
        ("c.mp4", None, None, None, None),
    ]
    assert reasons == ["item without a video"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "video,start\n1,2\n", "has no column start_seconds, end_seconds"),
        ("a.json", "{", "cannot be read as JSON"),
        ("a.json", "[]", "has no moment"),
        ("a.json", '{"data": 3}', "has no moment"),
        ("a.txt", "x", "is no table of moments"),
        ("a.csv", "", "is empty"),
    ],
)
def test_a_file_that_is_no_table_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        read_moments(tmp_path / name)


@given(end=st.floats(0.05, 500.0), seconds=st.floats(0.5, 20.0), share=st.floats(0.1, 1.0))
def test_windows_cover_every_second_and_end_with_the_video(end, seconds, share):
    spans = Windows(seconds, seconds * share).spans(end)
    assert spans[0][0] == 0.0
    assert spans[-1][1] == pytest.approx(end, abs=2e-3)
    assert all(start < stop <= end + 2e-3 for start, stop in spans)
    assert all(after[0] <= before[1] + 2e-3 for before, after in pairwise(spans))
    assert len(set(spans)) == len(spans)


def test_windows_with_gaps_are_refused():
    with pytest.raises(ValueError, match="would not be found"):
        Windows(2.0, 3.0)


def test_shots_are_what_is_between_edges():
    assert shots([0.0, 1.0, 1.0, 4.0]) == [(0.0, 1.0), (1.0, 4.0)]
