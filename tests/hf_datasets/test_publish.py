"""Publishing: Parquet and a card that `load_dataset` opens, all or nothing, and one commit to a hub."""

import os
import signal
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from datasets.distributed import split_dataset_by_node

from hf_datasets.publish import COUNTS_END, COUNTS_START, write_folder
from hf_datasets.publishing import shards
from hf_datasets.records import Rejection

CARDS = sorted(Path(__file__).parents[2].glob("hf_datasets/*/README.md"))
ROWS = pa.table({"query_id": ["a", "b", "c"], "target_clip_ids": [["x"], ["x", "y"], []]})
CLIPS = pa.table({"clip_id": ["x", "y"], "video": ["/home/someone/x.mp4", None]})
CONFIGURATIONS = {
    "source": {"train": [ROWS, ROWS.slice(0, 1)], "test": [ROWS.slice(1)]},
    "source-clips": {"train": [CLIPS]},
}


def test_a_published_folder_opens_with_its_configurations(tmp_path, card):
    folder = write_folder(CONFIGURATIONS, tmp_path / "out", card=card)
    opened = datasets.load_dataset(str(folder))
    assert {split: len(rows) for split, rows in opened.items()} == {"train": 4, "test": 2}
    assert opened["train"][0] == {"query_id": "a", "target_clip_ids": ["x"]}
    assert opened["train"][-1] == {"query_id": "a", "target_clip_ids": ["x"]}
    assert opened["test"][1] == {"query_id": "c", "target_clip_ids": []}
    clips = datasets.load_dataset(str(folder), "source-clips", split="train")
    assert clips[:] == {"clip_id": ["x", "y"], "video": [None, None]}, "paths of this machine are not published"
    assert b"someone" not in (folder / "source-clips" / "train-00000-of-00001.parquet").read_bytes()


@pytest.mark.parametrize(("num_rows", "sizes"), [(999, [999]), (1_000, [250] * 4), (2_503, [625, 626, 626, 626])])
def test_a_large_split_is_shared_by_four_files_in_its_order(num_rows, sizes, tmp_path, card):
    rows = pa.table({"n": range(num_rows), "texts": [["a"] * (n % 3) for n in range(num_rows)]})
    tables = [rows.slice(0, 700), rows.slice(700, 0), rows.slice(700)]
    folder = write_folder({"own": {"train": tables}}, tmp_path / "out", card=card)
    files = sorted((folder / "own").iterdir())
    assert [path.name for path in files] == [f"train-{n:05d}-of-{len(sizes):05d}.parquet" for n in range(len(sizes))]
    assert [pq.read_metadata(path).num_rows for path in files] == sizes
    assert datasets.load_dataset(str(folder), split="train").with_format("arrow")[:].equals(rows)
    stream = datasets.load_dataset(str(folder), split="train", streaming=True)
    parts = [
        list(split_dataset_by_node(stream, rank=rank, world_size=len(sizes)).select_columns("n"))
        for rank in range(len(sizes))
    ]
    assert [len(part) for part in parts] == sizes
    assert [row["n"] for part in parts for row in part] == list(range(num_rows))


def test_a_file_of_rows_is_not_much_larger_than_the_largest(tmp_path, card, monkeypatch):
    monkeypatch.setattr("hf_datasets.publish.MAX_SHARD_BYTES", 4_000)
    rows = pa.table({"text": [str(number).encode().hex() * 50 for number in range(800)]})
    folder = write_folder({"own": {"train": [rows]}}, tmp_path / "out", card=card)
    files = sorted((folder / "own").iterdir())
    assert len(files) > 4
    assert max(path.stat().st_size for path in files) < 8_000
    assert pa.concat_tables(map(pq.read_table, files)).equals(rows)


def test_the_card_has_counts_configurations_provenance_and_rejections(tmp_path, card):
    rejections = [Rejection("no text: 3", "raw", "k"), Rejection("no text: 4", "raw", "l")]
    provenance = {"writer": "offline\n---\n<script>", "seed": 7}
    folder = write_folder(CONFIGURATIONS, tmp_path / "out", card=card, provenance=provenance, rejections=rejections)
    _, header, body = (folder / "README.md").read_text().split("---\n", 2)
    header = yaml.safe_load(header)
    assert header["license"] == "mit"
    assert header["configs"][0]["default"] is True
    assert [config["config_name"] for config in header["configs"]] == ["source", "source-clips"]
    assert header["configs"][0]["data_files"][1] == {"split": "test", "path": "source/test-*.parquet"}
    assert "| `source` | train | 4 |" in body
    assert "* writer: offline --- &lt;script>" in body
    assert "2 rows were refused (2 x no text)" in body
    assert "old" not in body
    assert body.endswith("rest\n")
    refused = pq.read_table(folder / "rejections.parquet").to_pylist()
    assert refused[1] == {"step": None, "key": "l", "reason": "no text: 4", "raw": "raw"}


def test_values_of_the_card_cannot_leave_their_line_or_carry_markup(tmp_path, card):
    provenance = {"a\n# key": "[x](http://evil) `b` | c\n* next & <!-- end of counts -->", "b": "max_iou"}
    folder = write_folder(
        CONFIGURATIONS, tmp_path / "out", card=card, provenance=provenance, rejections=[Rejection("a\n# b: c", "r")]
    )
    body = (folder / "README.md").read_text()
    assert "* a # key: \\[x\\](http://evil) \\`b\\` \\| c \\* next &amp; &lt;!-- end of counts -->\n" in body
    assert "1 rows were refused (1 x a # b)" in body
    assert body.count(COUNTS_END) == 1
    assert "\n# b" not in body


def test_a_split_without_rows_is_counted_and_the_others_open(tmp_path, card):
    configurations = CONFIGURATIONS | {
        "source": {"train": [ROWS], "validation": iter(()), "test": [ROWS.slice(3)]},
        "empty": {"train": []},
    }
    folder = write_folder(configurations, tmp_path / "out", card=card)
    assert {split: len(rows) for split, rows in datasets.load_dataset(str(folder)).items()} == {"train": 3}
    assert datasets.get_dataset_config_names(str(folder)) == ["source", "source-clips"]
    body = (folder / "README.md").read_text()
    assert "| `source` | validation | 0 |" in body
    assert "* without rows, so not loadable: source/validation, source/test, empty/train\n" in body


def test_videos_of_a_video_feature_are_published_and_their_folders_are_not(tmp_path, card):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "x.mp4").write_bytes(b"file")
    videos = [str(tmp_path / "home" / "x.mp4"), {"bytes": b"bytes", "path": "/home/someone/y.mp4"}, None] * 5
    features = datasets.Features({"video": datasets.Video(decode=False)})
    dataset = datasets.Dataset.from_dict({"video": videos}, features=features)
    folder = write_folder({"own": {"train": dataset.with_format("arrow").iter(100)}}, tmp_path / "out", card=card)
    opened = datasets.load_dataset(str(folder), split="train")
    assert isinstance(opened.features["video"], datasets.Video)
    stored = opened.cast_column("video", datasets.Video(decode=False))["video"]
    assert list(stored[:3]) == [{"bytes": b"file", "path": "x.mp4"}, {"bytes": b"bytes", "path": "y.mp4"}, None]
    assert len(stored) == 15
    files = sorted((folder / "own").iterdir())
    assert [pq.read_metadata(path).num_rows for path in files] == [3, 4, 4, 4], "four workers read videos"
    assert not [path for path in files if b"someone" in path.read_bytes()]
    (tmp_path / "home" / "x.mp4").unlink()
    with pytest.raises(FileNotFoundError, match=r"x\.mp4"):
        write_folder({"own": {"train": dataset.with_format("arrow").iter(100)}}, tmp_path / "two", card=card)
    assert not (tmp_path / "two").exists()


@pytest.mark.parametrize("name", ["../../evil", "..", "", "a/b", "a\\b", "/tmp/evil", ".hidden", "a\nb"])
def test_a_configuration_or_split_with_an_invalid_name_is_refused_before_anything_is_written(name, tmp_path, card):
    for configurations in ({name: {"train": [ROWS]}}, {"source": {name: [ROWS]}}):
        with pytest.raises(ValueError, match=r"is not a (folder|split) name"):
            write_folder(configurations, tmp_path / "deep" / "out", card=card)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["card.md"]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("a: [", "has no readable YAML header: while parsing"),
        ("- 1", "has no readable YAML header"),
        ("license: no", "has license: False in its YAML header"),
        ("license: 3", "has license: 3"),
        ("tags: [a, 1]", r"has tags: \['a', 1\]"),
        ("pretty_name: [a]", "has pretty_name"),
        ("language: {a: b}", "has language"),
    ],
)
def test_a_header_that_is_malformed_or_of_wrong_types_is_an_error_of_one_line(header, message, tmp_path, card):
    card.write_text(f"---\n{header}\n---\n{COUNTS_START}\n{COUNTS_END}\n")
    with pytest.raises(ValueError, match=message) as caught:
        write_folder(CONFIGURATIONS, tmp_path / "out", card=card)
    assert "\n" not in str(caught.value)
    assert str(card) in str(caught.value)


def test_a_card_that_is_not_there_or_not_text_is_named(tmp_path, card):
    with pytest.raises(FileNotFoundError, match=r"nope\.md is not a file"):
        write_folder(CONFIGURATIONS, tmp_path / "out", card=tmp_path / "nope.md")
    card.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"card\.md has no readable YAML header"):
        write_folder(CONFIGURATIONS, tmp_path / "out", card=card)


def test_published_rejections_name_files_without_their_folders(tmp_path, card):
    reasons = [
        "no text: row 3 of /home/someone/data/train.csv, id 'a/b'",
        r"bad: C:\Users\someone\x.csv and '/home/someone/y.csv'",
        "bad: https://host/a/b and 3 m/s",
    ]
    folder = write_folder(
        CONFIGURATIONS, tmp_path / "out", card=card, rejections=[Rejection(reason, "raw") for reason in reasons]
    )
    assert pq.read_table(folder / "rejections.parquet")["reason"].to_pylist() == [
        "no text: row 3 of train.csv, id 'a/b'",
        "bad: x.csv and 'y.csv'",
        reasons[2],
    ]


def test_a_row_group_with_videos_holds_few_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "GROUP_BYTES", 2_500)
    features = datasets.Features({"video": datasets.Video(decode=False)})
    videos = [{"bytes": os.urandom(1_000), "path": "x.mp4"} for _ in range(7)]
    tables = datasets.Dataset.from_dict({"video": videos}, features=features).with_format("arrow").iter(100)
    assert [len(table) for table in shards.portable(tables)] == [3, 3, 1]


def test_nothing_is_left_when_writing_fails(tmp_path, card):
    def tables():
        yield ROWS
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        write_folder({"source": {"train": tables()}}, tmp_path / "out", card=card)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["card.md"]


def test_a_folder_with_files_no_rows_or_a_card_without_marks_are_refused(tmp_path, card):
    with pytest.raises(FileExistsError, match="is not empty"):
        write_folder(CONFIGURATIONS, tmp_path, card=card)
    with pytest.raises(ValueError, match="no row to write"):
        write_folder({"source": {"train": [ROWS.slice(3)]}}, tmp_path / "out", card=card)
    card.write_text("---\nlicense: mit\n---\n# Card\n")
    with pytest.raises(ValueError, match="lacks the marks"):
        write_folder(CONFIGURATIONS, tmp_path / "out", card=card)


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.parent.name)
def test_each_card_is_valid_and_names_licenses_and_counts(path, tmp_path):
    text = path.read_text(encoding="utf-8")
    header = yaml.safe_load(text.split("---\n")[1])
    assert {"license", "pretty_name"} <= header.keys()
    assert "## Licenses" in text
    folder = write_folder(CONFIGURATIONS, tmp_path / "out", card=path)
    assert datasets.load_dataset(str(folder), split="train").num_rows == 4


def test_leftovers_of_a_killed_writer_are_removed_by_the_next_one(tmp_path, card):
    child = os.fork()
    if not child:
        try:
            rows = iter([ROWS, None])  # the second table kills the writer
            tables = (os.kill(os.getpid(), signal.SIGKILL) if table is None else table for table in rows)
            write_folder({"source": {"train": tables}}, tmp_path / "out", card=card)
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    assert list(tmp_path.glob(".out*"))
    write_folder(CONFIGURATIONS, tmp_path / "out", card=card)
    assert list(tmp_path.glob(".out*")) == []
