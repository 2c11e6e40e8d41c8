"""Counterfactual pairs: of segment mismatches, of the release's times, and of a user's table."""

import json

import pytest
from comp_entries import entry

from hf_datasets.comp.contrasts import Span
from hf_datasets.comp.counterfactuals import Counterfactual, counterfactual_of, read_counterfactuals
from hf_datasets.comp.release import read_released_pairs

ROW = {
    "key": "v/segment_mismatch",
    "disruption_type": "segment_mismatch",
    "video": "v.mp4",
    "query_start_seconds": 2.0,
    "query_end_seconds": 4.0,
    "positive_text": "He runs.",
    "negative_text": "He sits.",
    "decision": '{"shown": [0, 1], "told": [1, 2], "told_seconds": [4, 9.5]}',
}


def test_a_segment_mismatch_is_a_pair_of_stretches_of_one_video():
    pair = counterfactual_of(ROW)
    assert pair.videos == (Span("v.mp4", 2.0, 4.0), Span("v.mp4", 4.0, 9.5))
    assert pair.texts == ("He runs.", "He sits.")
    assert counterfactual_of(ROW | {"decision": None}) is None
    assert counterfactual_of(ROW | {"decision": '{"shown": [0, 1]}'}) is None  # made by an earlier version
    assert counterfactual_of(ROW | {"disruption_type": "multi"}) is None


@pytest.mark.parametrize(
    "told", ["[4]", "[9, 4]", '["4", "9"]', "[-1, 4]", "7", "[true, 4]", "[NaN, 4]", "[1, Infinity]"]
)
def test_times_that_are_no_stretch_are_refused_by_name(told):
    with pytest.raises(ValueError, match=r"told_seconds in decision of 'v/segment_mismatch'"):
        counterfactual_of(ROW | {"decision": f'{{"told_seconds": {told}}}'})


def test_the_release_gives_the_times_of_a_mismatched_text(tmp_path):
    told = {"negative_text/start_time": 4e6, "negative_text/end_time": 9e6}
    backwards = {"negative_text/start_time": 9e6, "negative_text/end_time": 4e6}
    for times, decision in ((told, {"told_seconds": [4.0, 9.0]}), ({}, None), (backwards, None)):
        path = tmp_path / "youcook2_comp_val.json"
        path.write_text(json.dumps([entry(0, type="segment_mismatch", **times), entry(1, **times)]))
        mismatch, reorder = read_released_pairs(path)
        assert (mismatch["decision"] and json.loads(mismatch["decision"])) == decision
        assert reorder["decision"] is None


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "videos").mkdir()
    for name in ("0_pos", "0_neg", "1_pos", "1_neg"):
        (tmp_path / "videos" / f"{name}.mp4").touch()
    return tmp_path


HEADER = "video_0,text_0,video_1,text_1"


def test_a_table_of_pairs_is_read_with_kinds_and_times(folder):
    table = folder / "pairs.csv"
    table.write_text(
        f"{HEADER},kind,start_seconds_0,end_seconds_0,start_seconds_1,end_seconds_1,note\n"
        "0_pos,he runs then sits,0_neg.mp4,he sits then runs,order,,,,,x\n"
        "1_pos,up,1_pos,down,part,0,2.5,2.5,7,\n"
    )
    pairs, rejections = read_counterfactuals(table)
    videos = folder / "videos"
    assert pairs == [
        Counterfactual(
            "0_pos/0_neg.mp4",
            (Span(f"{videos}/0_pos.mp4", None, None), Span(f"{videos}/0_neg.mp4", None, None)),
            ("he runs then sits", "he sits then runs"),
            "order",
        ),
        Counterfactual(
            "1_pos/1_pos",
            (Span(f"{videos}/1_pos.mp4", 0.0, 2.5), Span(f"{videos}/1_pos.mp4", 2.5, 7.0)),
            ("up", "down"),
            "part",
        ),
    ]
    assert [one.reason for one in rejections] == [f"unknown column: 'note' of {table} is left out"]


def test_rows_that_cannot_be_used_are_named_with_the_cure(folder):
    table = folder / "pairs.csv"
    faulty = {
        "0_pos,a,0_neg,,,": "text_1 is empty",
        "0_pos,a,0_neg,a,,": "the two texts are the same",
        "0_pos,a,0_pos,b,,": "the two videos are the same",
        "0_pos,a,gone,b,,": "no video: video 'gone'",
        "0_pos,a,../secret,b,,": "no video: video id '../secret' is refused",
        "0_pos,a,0_neg,b,soon,4": "start_seconds_0 is not a number",
        "0_pos,a,0_neg,b,4,": "video 0 has no stretch",
        "0_pos,a,0_neg,b,nan,inf": "video 0 has no stretch",
    }
    lines = [f"{HEADER},start_seconds_0,end_seconds_0", "1_pos,up,1_neg,down,,", *faulty]
    table.write_text("\n".join(lines) + "\n")
    pairs, rejections = read_counterfactuals(table)
    assert len(pairs) == 1
    for reason in faulty.values():
        assert sum(one.reason.startswith(reason) for one in rejections) == list(faulty.values()).count(reason), reason
    assert len(rejections) == len(faulty)


def test_a_table_that_cannot_be_used_is_refused(folder):
    table = folder / "pairs.csv"
    with pytest.raises(FileNotFoundError, match=r"is not a file; name a table with the columns video_0, text_0"):
        read_counterfactuals(table)
    table.write_text("video_0,text_0,video_1\n0_pos,a,0_neg\n")
    with pytest.raises(ValueError, match="has no column text_1"):
        read_counterfactuals(table)
    table.write_text(f"{HEADER}\ngone,a,gone too,b\n")
    with pytest.raises(ValueError, match="no usable row; the first: no video: video 'gone'"):
        read_counterfactuals(table)
    table.write_text(f"{HEADER},kind\n0_pos,a,0_neg,b,order\n1_pos,a,1_neg,b,\n")
    with pytest.raises(ValueError, match="'1_pos/1_neg' has no kind and others have one"):
        read_counterfactuals(table)
    with pytest.raises(FileNotFoundError, match="is not a folder of videos; name the one"):
        read_counterfactuals(table, folder / "elsewhere")
