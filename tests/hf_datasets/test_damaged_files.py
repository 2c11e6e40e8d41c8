"""Readers of annotations on damaged files: one bad value costs its own row, and an error names the file."""

import csv
import io
import json
import pickle
import random
import re
from dataclasses import asdict
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from odd_values import LONG_RUN

from hf_datasets.builders import write_rejections
from hf_datasets.comp import release as comp_release
from hf_datasets.fig import release as fig_release
from hf_datasets.fig.moments import moments_of_splits
from hf_datasets.records import CaptionedVideo, Clip, Moment, Rejection
from hf_datasets.sources.activitynet_captions import read_activitynet_captions
from hf_datasets.sources.charades_sta import read_charades_durations, read_charades_sta
from hf_datasets.sources.didemo import read_didemo
from hf_datasets.sources.finediving import read_finediving
from hf_datasets.sources.finegym import read_finegym
from hf_datasets.sources.youcook2 import read_youcook2
from hf_datasets.tfcovr import release as tfcovr_release

RECORDS = (CaptionedVideo, Clip, Moment, dict)
HUGE = int("1" + "0" * 400)
VALUES = (HUGE, -HUGE, float("inf"), float("nan"), 2**63, 1e308, -1, True, None, "", " ", "12", "1e999", "\ud800",
          "../../x", "=1+1", [], [1], [1, 2, 3], [[1, 2]], {}, {"a": 1}, "x" * 200_000)  # fmt: skip
"""What a damaged file may have in the place of any value."""
SEED, MUTATIONS = 7, 60

FIG = [{"video": f"v{i}", "time": [1, 5.5], "desc_id": i, "duration": 9.0, "cog_desc": "he eats.",
        "fig_desc": "He eats fast.", "fig_desc_score": 1.5} for i in range(3)]  # fmt: skip
COMP = [{"key": f"k{i}", "video_id": f"v{i}", "type": "reorder", "original_video/start_time": 0,
         "original_video/end_time": 90_000_000, "query_video/start_time": 0, "query_video/end_time": 9_000_000,
         "positive_text": "A. Then B.", "negative_text": "B. Then A.", "answer": "1"} for i in range(3)]  # fmt: skip
ACTIVITYNET = {f"v_{i}": {"duration": 9.5, "timestamps": [[0, 4], [4, 9]], "sentences": ["A man runs.", "He stops."]}
               for i in range(3)}  # fmt: skip
YOUCOOK2 = {"database": {f"v{i}": {"duration": 9, "subset": "training", "annotations": [
    {"segment": [1, 2], "id": 0, "sentence": "chop it"}]} for i in range(3)}}  # fmt: skip
DIDEMO = [{"annotation_id": i, "video": f"v{i}.mp4", "times": [[0, 1], [0, 1], [2, 3]], "num_segments": 6,
           "description": "a dog barks"} for i in range(3)]  # fmt: skip
SEGMENTS = {f"A_000{i}_000{i + 1}": {"stages": 1, "timestamps": [[i, i + 0.9]]} for i in range(3)}
FINEGYM = {f"-Hv_d_vqJ0{i}": {"E_000100_000110": {"event": 2, "timestamps": [[100.0, 110.0]], "segments": SEGMENTS}}
           for i in range(2)}  # fmt: skip
FINEDIVING = {("01", i): {"action_type": "103b"} for i in range(3)}
CHARADES = "AAAA 1.0 5.5##a person eats.\nBBBB 0.0 3.0##a person runs.\nAAAA 2.0 3.0##a person sits.\n"
DURATIONS = "id,subject,length\nAAAA,x,30.5\nBBBB,y,12\nCCCC,z,9\n"
TRAIN = [{"query_video": f"q{i}_1", "target_video": f"t{i}_1", "label1": "40", "label2": "41",
          "modification": "{'41': {'modification': 'show 1 turn'}}"} for i in range(3)]  # fmt: skip
QUERIES = [{"query_id": f"q{i}", "query_video": f"c{i}_1", "modification": "show it", "target_video": f"d{i}_1",
            "target_videos_ids": f"['d{i}_1', 'e{i}_1']"} for i in range(3)]  # fmt: skip


def read_gym(path):
    elements = path.parent / "gym288_val_element.txt"
    names = [f"{video}_E_000100_000110_{action}" for video in FINEGYM for action in SEGMENTS]
    elements.write_text("\n".join(f"{name} 51" for name in names))
    return read_finegym(path, [elements], descriptions={"51": "leap"})


def read_tfcovr(other, path):
    """A release with one damaged file; `other` is the file that is as it should be."""
    sound = path.with_name(f"{other}.csv")
    sound.write_text(as_csv(TRAIN if other == "train" else QUERIES), encoding="utf-8")
    rows, rejections = tfcovr_release.read_released_triplets(path.parent)
    own = rows["test" if other == "train" else "train"]
    return [*own.to_dicts(), *rejections]


def as_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_csv(rows):
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


READERS = {
    "fig": ("charades_fig_test.jsonl", FIG, as_lines, fig_release.read_released_moments),
    "comp": ("x.json", COMP, json.dumps, comp_release.read_released_pairs),
    "activitynet": ("val_1.json", ACTIVITYNET, json.dumps, read_activitynet_captions),
    "youcook2": ("youcookii_annotations.json", YOUCOOK2, json.dumps, partial(read_youcook2, subset="training")),
    "didemo": ("val_data.json", DIDEMO, json.dumps, read_didemo),
    "finegym": ("finegym_annotation_info_v1.1.json", FINEGYM, json.dumps, read_gym),
    "finediving": ("fine.pkl", FINEDIVING, pickle.dumps, partial(read_finediving, descriptions={"103b": "dive"})),
    "charades": ("charades_sta_test.txt", CHARADES, str, partial(read_charades_sta, durations={"AAAA": 9.0})),
    "durations": ("Charades_v1_test.csv", DURATIONS, str, lambda path: [read_charades_durations(path)]),
    "tfcovr train": ("train.csv", TRAIN, as_csv, partial(read_tfcovr, "test")),
    "tfcovr test": ("test.csv", QUERIES, as_csv, partial(read_tfcovr, "train")),
}


def places(value, path=()):
    """Every place of a nested value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def with_value(value, path, new):
    """A copy of a nested value with another one in a place."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = with_value(value[path[0]], path[1:], new)
    return copy


def damaged(generator, rows, write):
    """The bytes of a file with one value, or a few bytes, that should not be there."""
    if not isinstance(rows, str) and generator.random() < 0.7:
        place = generator.choice([place for place in places(rows) if write is not as_csv or len(place) == 2])
        content = write(with_value(rows, place, generator.choice(VALUES)))
    else:
        content = write(rows)
    content = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    if isinstance(rows, str) or generator.random() < 0.3:
        start = generator.randrange(len(content))
        piece = generator.choice([b"", b"\xff", b'"', b",", b"\n", b"\0", b"[" * 50_000, b"9" * 5_000, b"1e999", b"-"])
        content = content[:start] + piece + content[start + generator.randrange(4) :]
    return content


def check(read, path, folder):
    """Read as the builders do: records and rejections that can be stored, or one error that names the file."""
    error, found = None, []
    try:
        found = list(read(path))
    except ValueError as raised:
        error = str(raised)
    assert error is None or path.name in error or path.parent.name in error
    write_rejections(folder, ((None, record) for record in found if isinstance(record, Rejection)))
    for record in (record for record in found if not isinstance(record, Rejection)):
        assert isinstance(record, RECORDS)
        row = record if isinstance(record, dict) else asdict(record)
        assert json.dumps(row, ensure_ascii=False, allow_nan=False).encode("utf-8")


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] * (one == "tfcovr train")) for one in READERS]
)
def test_a_damaged_file_gives_rows_and_rejections_or_an_error_that_names_it(name, tmp_path):
    file_name, rows, write, read = READERS[name]
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / file_name
    content = write(rows)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    sound = [record for record in read(path) if isinstance(record, RECORDS)]
    assert sound
    fuzz(name, path, SEED, MUTATIONS)


def fuzz(name, path, seed, times):
    _, rows, write, read = READERS[name]
    generator = random.Random(seed)
    for _ in range(times):
        path.write_bytes(damaged(generator, rows, write))
        check(read, path, path.parent.parent)


@pytest.mark.hostile
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", READERS)
def test_many_damaged_files_give_rows_and_rejections_or_an_error_that_names_them(name, tmp_path, record_property):
    record_property("inputs", LONG_RUN // 4)
    path = tmp_path / "data" / READERS[name][0]
    path.parent.mkdir()
    fuzz(name, path, f"{name} long", LONG_RUN // 4)


REAL = {
    "charades_fig/charades_fig_test.jsonl": fig_release.read_released_moments,
    "didemo_fig/didemo_fig_val.jsonl": fig_release.read_released_moments,
    "activitynet_captions/val_1.json": read_activitynet_captions,
    "youcook2/val.json": read_youcook2,
}


@pytest.mark.parametrize("name", REAL)
def test_the_real_files_with_one_bad_value_lose_no_more_than_its_row(name, shared, tmp_path):
    source, read = shared / "data" / name, REAL[name]
    lines = name.endswith("jsonl")
    content = source.read_text(encoding="utf-8")
    rows = [json.loads(line) for line in content.splitlines()[:200]] if lines else json.loads(content)
    if not lines:
        rows = dict(list(rows.items())[:100])
    path, write = tmp_path / source.name, as_lines if lines else json.dumps
    path.write_text(write(rows), encoding="utf-8")
    kept = sum(not isinstance(record, Rejection) for record in read(path))
    generator, all_places = random.Random(SEED), [place for place in places(rows) if len(place) > 1]
    for _ in range(30):
        path.write_text(write(with_value(rows, generator.choice(all_places), generator.choice(VALUES))))
        assert sum(not isinstance(record, Rejection) for record in read(path)) >= kept - 1


# What once ended a whole file, one by one: reader, place, value.
@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("fig", (1, "time"), [1, HUGE]),
        ("fig", (1, "desc_id"), HUGE),
        ("fig", (1, "desc_id"), float("inf")),
        ("fig", (1, "desc_id"), 2**63),
        ("fig", (1, "video"), "\ud800"),
        ("fig", (1, "fig_desc_score"), float("nan")),
        ("comp", (1, "original_video/end_time"), HUGE),
        ("comp", (1, "original_video/end_time"), float("inf")),
        ("comp", (1, "positive_text"), ["\ud800"]),
        ("activitynet", ("v_1", "duration"), HUGE),
        ("activitynet", ("v_1", "duration"), float("nan")),
        ("activitynet", ("v_1", "sentences"), "ab"),
        ("youcook2", ("database", "v1", "annotations", 0, "segment"), [0, HUGE]),
        ("youcook2", ("database", "v1", "annotations"), 3),
        ("didemo", (1, "num_segments"), HUGE),
        ("didemo", (1, "times"), [[0, float("inf")]]),
        ("didemo", (1, "times"), [[0.5, 1]]),
        ("finegym", ("-Hv_d_vqJ01", "E_000100_000110", "segments"), [1]),
        ("finegym", ("-Hv_d_vqJ01", "E_000100_000110", "timestamps"), [[HUGE, 1]]),
        ("finegym", ("-Hv_d_vqJ01",), "x"),
        ("tfcovr test", (1, "target_videos_ids"), '["\\ud800"]'),
        ("tfcovr test", (1, "target_videos_ids"), "[[1], {}]"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_one_bad_value_costs_its_own_row_and_the_rest_is_read(name, place, value, tmp_path):
    file_name, rows, write, read = READERS[name]
    path = tmp_path / file_name
    path.write_text(write(rows))
    sound = [record for record in read(path) if not isinstance(record, Rejection)]
    path.write_text(write(with_value(rows, place, value)))
    found = list(read(path))
    kept = [record for record in found if not isinstance(record, Rejection)]
    assert 0 < len(kept) < len(sound)
    assert all(record in sound for record in kept)
    assert any(isinstance(record, Rejection) for record in found)
    assert all(file_name in record.reason for record in found if isinstance(record, Rejection))


def test_half_a_dive_key_and_a_number_that_python_does_not_print_are_rejected(tmp_path):
    dives = {**FINEDIVING, ("\ud800", 9): {"action_type": "103b"}, ("02", 10**5000): {"action_type": "103b"},
             ("03", 1): {"action_type": "103b", "scores": 10**5000}, ("03", 2): 10**5000}  # fmt: skip
    (tmp_path / "fine.pkl").write_bytes(pickle.dumps(dives))
    found = list(read_finediving(tmp_path / "fine.pkl", descriptions={"103b": "dive"}))
    assert [record.clip_id for record in found if isinstance(record, Clip)] == ["01_0", "01_1", "01_2", "03_1"]
    assert len(found) == 7


def test_deep_json_is_an_error_of_one_line_in_a_list_and_a_rejection_in_a_line(tmp_path):
    deep = "[" * 100_000 + "]" * 100_000
    for name, read in (("val_1.json", read_activitynet_captions), ("x.json", comp_release.read_released_pairs)):
        (tmp_path / name).write_text(deep)
        with pytest.raises(ValueError, match=rf"{re.escape(name)} is not a JSON file \(.*recursion") as caught:
            list(read(tmp_path / name))
        assert "\n" not in str(caught.value)
    (tmp_path / "charades_fig_test.jsonl").write_text(f"{deep}\n{as_lines(FIG)}")
    rejection, *moments = fig_release.read_released_moments(tmp_path / "charades_fig_test.jsonl")
    assert "charades_fig_test.jsonl:1" in rejection.reason
    assert len(moments) == 3


def test_one_absurd_end_does_not_change_the_unit_of_the_others(tmp_path):
    seconds = [row | {"original_video/end_time": 90, "query_video/end_time": 9} for row in COMP]
    seconds[1]["original_video/end_time"] = 1e300
    (tmp_path / "x.json").write_text(json.dumps(seconds))
    assert next(comp_release.read_released_pairs(tmp_path / "x.json"))["query_end_seconds"] == 9.0


def test_a_table_of_durations_keeps_its_readable_rows(tmp_path):
    path = tmp_path / "Charades_v1_test.csv"
    rows = [
        "id,subject,length",
        "AAAA,x,30.5",
        "short",
        "BBBB,y,long",
        "CCCC,z,inf",
        f"D,{'x' * 200_000},3",
        "EEEE,z,9",
    ]
    path.write_text("\n".join(rows))
    assert read_charades_durations(path) == {"AAAA": 30.5, "EEEE": 9.0}
    for content, message in ((b"id,length\nA,x\n", "line 2: 'x' is not"), (b"id\n", "lacks"), (b"\xff", "UTF-8")):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"Charades_v1_test\.csv .*{message}"):
            read_charades_durations(path)


def test_a_csv_file_keeps_its_readable_rows_under_their_numbers(tmp_path):
    (tmp_path / "test.csv").write_text(as_csv(QUERIES))
    lines = (
        as_csv([TRAIN[0], TRAIN[0] | {"query_video": "q1\n_1"}, TRAIN[1], TRAIN[2]]).encode().splitlines(keepends=True)
    )
    lines.insert(4, b"a,b,c,d,e,f,g\r\n")  # row 3: more fields than the header
    lines.insert(5, b"\xffa,b,40,41,c\r\n")  # row 4: not UTF-8
    lines.insert(6, b"q9_1," + b"x" * 200_000 + b",40,41,c\r\n")  # row 5: a field too long
    lines.append(b"q9_1,t9_1\r\n")  # row 8: too short
    (tmp_path / "train.csv").write_bytes(b"".join(lines))
    rows, rejections = tfcovr_release.read_released_triplets(tmp_path)
    assert rows["train"]["query_clip_id"].to_list() == ["q0_1", "q1\n_1", "q1_1", "q2_1"]
    found = [
        (rejection.reason.partition(":")[0], re.search(r"row (\d+) of .*train\.csv", rejection.reason)[1])
        for rejection in rejections
    ]
    assert found == [("unreadable row", "3"), ("unreadable row", "4"), ("unreadable row", "5"), ("unknown label", "8")]


def test_a_quote_that_is_never_closed_names_its_row(tmp_path):
    (tmp_path / "test.csv").write_text(as_csv(QUERIES))
    (tmp_path / "train.csv").write_text(as_csv(TRAIN[:2]) + 'q9_1,"t9_1,40,41,c\nq8_1,t8_1,40,41,c\n')
    with pytest.raises(ValueError, match=r"train\.csv, row 3: a quote is opened and never closed"):
        tfcovr_release.read_released_triplets(tmp_path)


def test_columns_of_another_type_in_a_parquet_file_are_an_error_that_names_it(tmp_path):
    pl.DataFrame(TRAIN).write_parquet(tmp_path / "train.parquet")
    pl.DataFrame(QUERIES).with_columns(target_videos_ids=pl.lit(3)).write_parquet(tmp_path / "test.parquet")
    with pytest.raises(ValueError, match=r"test\.parquet"):
        tfcovr_release.read_released_triplets(tmp_path)
    (tmp_path / "test.parquet").write_bytes(b"PAR1" + b"\xff" * 100 + b"PAR1")
    with pytest.raises(ValueError, match=r"test\.parquet cannot be read"):
        tfcovr_release.read_released_triplets(tmp_path)


def test_moments_with_damage_reach_the_table(tmp_path):
    path = tmp_path / "charades_fig_test.jsonl"
    path.write_text(as_lines([*FIG, FIG[0] | {"desc_id": HUGE}, FIG[0] | {"desc_id": 9, "video": "\ud800"}]))
    moments, rejections = moments_of_splits({"test": Path(path)})
    assert moments["desc_id"].to_list() == [0, 1, 2]
    assert len(rejections) == 2
