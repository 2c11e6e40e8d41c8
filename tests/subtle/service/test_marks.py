"""Marks of found moments: at once on disk, the last one counts, and no page loses another's."""

import csv
from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pytest

from hf_datasets.tfcovr.clips import CLIP_SCHEMA
from hf_datasets.tfcovr.marks import read_marks
from subtle.service.marks import MARK_FIELDS, Marks
from subtle.service.media import Footage
from subtle.service.searching import Query

FOUND = [
    {"video": "a/one.mp4", "start_seconds": 3.0, "end_seconds": 4.25, "label": '=1+1, "vault"\nand more', "text": None},
    {"video": "b.mp4", "start_seconds": 0.0, "end_seconds": None, "label": None, "text": "a dive"},
]
TIMES = (1.25, 2.5)


def query_of(video="q.mp4", upload=None, fingerprint=""):
    return Query(Footage(video, 0.0, 4.0, upload), "media/0", *TIMES, fingerprint=fingerprint)


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_a_mark_is_a_row_and_the_last_one_about_a_moment_counts(tmp_path):
    marks = Marks(tmp_path / "marks.csv")
    marks.set(query_of(), "  with  2 turns ", FOUND[0], True)
    marks.set(query_of(), "with 2 turns", FOUND[1], True)
    marks.set(query_of(), "with 2 turns", FOUND[0], False)
    marks.set(None, "a dive", FOUND[1], True)
    asked = ["q.mp4", "1.250", "2.500", "with 2 turns"]
    assert rows_of(marks.path) == [
        list(MARK_FIELDS),
        [*asked, "b.mp4", "0.000", "", "", "true"],
        [*asked, "a/one.mp4", "3.000", "4.250", FOUND[0]["label"], "false"],
        ["", "", "", "a dive", "b.mp4", "0.000", "", "", "true"],
    ]
    again = Marks(marks.path)  # as after a restart
    assert again.of(query_of(), "with 2 turns", FOUND) == {0: False, 1: True}
    assert again.of(query_of(), "", FOUND) == again.of(query_of("other.mp4"), "with 2 turns", FOUND) == {}
    again.set(query_of(), "with 2 turns", FOUND[0], None)
    assert again.of(query_of(), "with 2 turns", FOUND) == {1: True}
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["marks.csv"]


@pytest.mark.parametrize("label", ["x" * 200_000, "a\rb", "a\0b", '"', "'\n,\r\n"], ids=lambda label: repr(label[:9]))
def test_no_label_makes_the_marks_unreadable_and_reading_them_changes_no_other_reader(tmp_path, label):
    before = csv.field_size_limit()
    marks = Marks(tmp_path / "marks.csv")
    marks.set(query_of(), "", FOUND[0] | {"label": label}, True)
    marks.set(query_of(), "", FOUND[1], False)
    assert [row["label"] for row in Marks(marks.path).read()] == [label, ""]
    assert csv.field_size_limit() == before == 131_072


def test_what_was_marked_right_is_what_tune_trains_on(tmp_path):
    for name in ("videos/q.mp4", "videos/a/one.mp4", "mine.mov"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"video")
    marks = Marks(tmp_path / "index" / "marks.csv")
    marks.set(query_of(), "with 2 turns", FOUND[0], True)
    marks.set(query_of("mine.mov", tmp_path / "mine.mov", "5af0" * 10 + "-6"), "from the left", FOUND[0], True)
    marks.set(query_of(), "with 3 turns", FOUND[0], False)
    clips = pl.DataFrame(schema=dict.fromkeys(CLIP_SCHEMA.names, pl.String)).with_columns(
        pl.col("start_seconds", "end_seconds").cast(pl.Float64)
    )
    found = read_marks(marks.path, clips, tmp_path / "videos")
    assert [row["modification_text"] for row in found.triplets] == ["with 2 turns", "from the left"]
    assert [clip["clip_id"] for clip in found.clips] == [
        "q.mp4#t=1.25,2.5",
        "a/one.mp4#t=3,4.25",
        "marked_queries/5af05af05af05af0.mov#t=1.25,2.5",
    ]
    assert [rejection.reason[:10] for rejection in found.rejections] == ["wrong mark"]


def test_an_upload_that_was_marked_is_kept_with_the_marks(tmp_path):
    upload = tmp_path / "own" / "0123.mov"
    upload.parent.mkdir()
    upload.write_bytes(b"moving")
    marks = Marks(tmp_path / "kept" / "marks.csv")
    query = query_of("../../mine.mov", upload, "5af0" * 10 + "-6")
    marks.set(query, "", FOUND[0], True)
    assert rows_of(marks.path)[1][0] == "marked_queries/5af05af05af05af0.mov"
    assert (marks.path.parent / rows_of(marks.path)[1][0]).read_bytes() == b"moving"
    upload.unlink()
    marks.set(query, "", FOUND[1], True)  # the copy is there
    assert len(marks.read()) == 2


def test_a_table_that_is_none_of_marks_is_left_as_it_is(tmp_path):
    path = tmp_path / "marks.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"marks\.csv has other columns than query_video, .*; name another with"):
        Marks(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="no CSV file of marks"):
        Marks(path)
    assert path.read_bytes() == b"\xff\xfe"


def test_marks_that_are_cut_within_a_row_are_refused_not_read_as_others(tmp_path):
    marks = Marks(tmp_path / "marks.csv")
    for number, is_right in enumerate((True, False, True)):
        row = {"video": f"{number}.mp4", "start_seconds": 0.0, "end_seconds": 1.0, "label": "vault"}
        marks.set(None, "jumps", row, is_right)
    whole = marks.path.read_bytes()
    rows, ends = marks.read(), [place for place, letter in enumerate(whole) if letter == ord("\n")]
    for length in range(len(whole)):
        marks.path.write_bytes(whole[:length])
        if length in ends[:1] or any(length in (end, end + 1) for end in ends):
            assert marks.read() == rows[: len(marks.read())]  # a file that ends with a row has lost what came after it
            continue
        with pytest.raises(ValueError, match="name another with --marks"):
            marks.read()


def test_pages_that_mark_at_the_same_time_lose_nothing(tmp_path):
    pages = [Marks(tmp_path / "marks.csv") for _ in range(4)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: pages[number % 4].set(None, str(number), FOUND[0], True), range(24)))
    assert {row["text"] for row in pages[0].read()} == {str(number) for number in range(24)}


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    marks = Marks(tmp_path / "sub" / "marks.csv")
    (tmp_path / "sub").write_text("a file")
    with pytest.raises(OSError, match=r"marks\.csv cannot be written .* name another folder"):
        marks.set(query_of(), "", FOUND[0], True)
