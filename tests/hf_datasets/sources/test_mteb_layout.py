"""Benchmarks in mteb's layout, in the forms that its tasks have on the Hub: rows by hand, videos by name or bytes."""

import json
from pathlib import Path

import polars as pl
import pytest
from datasets import load_dataset

from hf_datasets.sources.mteb_layout import read_mteb_layout, write_mteb_layout
from hf_datasets.video import VideoError
from tests.fixtures.videos import write_video

CORPUS = [{"id": name, "video": f"{name}.mp4"} for name in ("a", "b", "c")]
QUERIES = [{"id": "q1", "video": "a.mp4", "text": "slower"}, {"id": "q2", "video": "other.mp4", "text": "faster"}]
QRELS = [
    {"query-id": "q1", "corpus-id": "b", "score": 1},
    {"query-id": "q1", "corpus-id": "a", "score": 1},
    {"query-id": "q1", "corpus-id": "c", "score": 0},
    {"query-id": "q2", "corpus-id": "c", "score": 1},
]


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    for number, name in enumerate(("a", "b", "c", "other"), start=2):
        write_video(folder / f"{name}.mp4", number)
    return folder


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_parquet(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows).write_parquet(path)


def push_to_hub_form(folder, videos):
    """As `DatasetDict.push_to_hub` leaves it: a folder for each configuration, the videos in the tables."""

    def embedded(rows):
        return [{**row, "video": {"bytes": (videos / row["video"]).read_bytes(), "path": row["video"]}} for row in rows]

    write_parquet(folder / "corpus" / "test-00000-of-00001.parquet", embedded(CORPUS))
    write_parquet(folder / "queries" / "test-00000-of-00001.parquet", embedded(QUERIES))
    write_parquet(folder / "qrels" / "test-00000-of-00001.parquet", QRELS)


def beir_form(folder, _):
    """The older one: JSON lines with `_id`, judgements with tabs."""
    for name, rows in (("corpus", CORPUS), ("queries", QUERIES)):
        write_lines(folder / f"{name}.jsonl", [{"_id": row["id"], **row} | {"id": None} for row in rows])
        lines = [{**row, "_id": row["id"]} for row in rows]
        write_lines(folder / f"{name}.jsonl", [{key: row[key] for key in row if key != "id"} for row in lines])
    rows = ["\t".join(QRELS[0]), *("\t".join(map(str, row.values())) for row in QRELS)]
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("\n".join(rows) + "\n")


def several_benchmarks_form(folder, _):
    """One corpus for two benchmarks, as MomentSeeker, whose README.md names the files."""
    images = [{"id": "i1", "image": "x.png", "text": "this"}]
    write_parquet(folder / "data" / "one.parquet", CORPUS)
    write_parquet(folder / "data" / "two.parquet", QUERIES)
    write_parquet(folder / "data" / "three.parquet", images)
    write_parquet(folder / "data" / "four.parquet", QRELS)
    names = {
        "corpus": "one",
        "tv2v-queries": "two",
        "ti2v-queries": "three",
        "tv2v-qrels": "four",
        "ti2v-qrels": "four",
    }
    configs = [
        {"config_name": name, "data_files": [{"split": "test", "path": f"data/{file}.parquet"}]}
        for name, file in names.items()
    ]
    (folder / "README.md").write_text(f"---\n{json.dumps({'configs': configs})}\n---\n# A card\n")


@pytest.mark.parametrize("form", [push_to_hub_form, beir_form, several_benchmarks_form], ids=lambda form: form.__name__)
def test_every_form_gives_the_same_queries_clips_and_targets(form, videos, tmp_path):
    folder = tmp_path / "benchmark"
    folder.mkdir()
    form(folder, videos)
    options = {"data_dir": str(folder), "video_dir": str(videos)}
    rows = load_dataset("tfcovr", "composed", split="test", **options).to_list()
    assert [(row["query_id"], row["modification_text"], row["target_clip_ids"]) for row in rows] == [
        ("q1", "slower", ["b"]),  # its own clip is no target
        ("q2", "faster", ["c"]),
    ]
    assert [row["query_clip_id"] for row in rows] == ["a", "query q2"]
    clips = load_dataset("tfcovr", "composed-clips", **options)
    assert {split: part["clip_id"][:] for split, part in clips.items()} == {
        "test": ["a", "b", "c"],
        "queries": ["query q2"],
    }
    for clip, name in zip([*clips["test"], *clips["queries"]], ("a", "b", "c", "other"), strict=True):
        assert Path(clip["video"]).read_bytes() == (videos / f"{name}.mp4").read_bytes()


def test_stretches_of_one_file_are_different_clips_and_what_is_written_is_read(tmp_path):
    corpus = [
        {"id": f"c{start}", "video": "long.mp4", "start_seconds": float(start), "end_seconds": start + 1.0}
        for start in range(3)
    ]
    queries = [{**corpus[1], "id": "q", "text": "again"}]
    qrels = [{"query-id": "q", "corpus-id": "c2", "score": 1}]
    folder = tmp_path / "out"
    for _ in range(2):  # the second time it replaces what it wrote
        write_mteb_layout(folder, corpus, queries, qrels)
    assert load_dataset(str(folder), "qrels", split="test").to_list() == qrels
    (row,) = load_dataset("tfcovr", "composed", data_dir=str(folder), split="test")
    assert (row["query_clip_id"], row["target_clip_ids"]) == ("c1", ["c2"])
    clips = load_dataset("tfcovr", "composed-clips", data_dir=str(folder), split="test")
    assert [(clip["video"], clip["start_seconds"]) for clip in clips] == [(None, 0.0), (None, 1.0), (None, 2.0)]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(ValueError, match="holds something else"):
        write_mteb_layout(tmp_path / "mine", corpus, queries, qrels)


def refused(folder, **options):
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        read_mteb_layout(folder, extract_to=folder / "videos", **options)
    return str(error.value)


def test_what_cannot_be_read_is_named_with_the_cure(tmp_path, videos):
    assert "no corpus" in refused(tmp_path)
    write_lines(tmp_path / "corpus.jsonl", CORPUS)
    write_lines(tmp_path / "queries.jsonl", [{"id": "q", "image": "x.png", "text": "this"}])
    write_lines(tmp_path / "qrels.jsonl", QRELS)
    assert "vt2v" in refused(tmp_path)
    write_lines(tmp_path / "queries.jsonl", [{"id": "q", "clip": "a.mp4", "text": "this"}])
    assert "has no column video; it has id, clip, text" in refused(tmp_path)
    assert "no query has a video, a text and a relevant document" in refused(tmp_path, columns={"clip": "video"})
    write_lines(tmp_path / "queries.jsonl", [{**QUERIES[0], "start_seconds": "soon", "end_seconds": 2}])
    assert "start_seconds of 'q1' must be a number, not 'soon'" in refused(tmp_path)
    write_lines(tmp_path / "queries.jsonl", [{**QUERIES[0], "video": "/etc/passwd.mp4"}])
    with pytest.raises(VideoError, match="absolute paths"):
        read_mteb_layout(tmp_path, extract_to=tmp_path, video_dir=videos)
    (tmp_path / "README.md").write_text(
        '---\n{"configs": [{"config_name": "corpus", "data_files": "../x.parquet"}]}\n---\n'
    )
    assert "outside the folder" in refused(tmp_path)
    (tmp_path / "README.md").write_bytes(b"---\nconfigs: [\xff\n---\n")
    assert "README.md: its YAML cannot be read" in refused(tmp_path)
    (tmp_path / "README.md").unlink()
    (tmp_path / "corpus.jsonl").unlink()
    for split in ("train", "validation"):
        write_parquet(tmp_path / "corpus" / f"{split}-0.parquet", CORPUS)
    assert "has the splits train, validation and no 'test'; keep one" in refused(tmp_path)
    table = tmp_path / "corpus" / "test-0.parquet"
    write_parquet(table, CORPUS * 1000)
    write_lines(tmp_path / "queries.jsonl", QUERIES)
    table.write_bytes(table.read_bytes()[:4] + b"\xff" * 60 + table.read_bytes()[64:])
    assert "test-0.parquet is damaged" in refused(tmp_path)


def test_names_and_texts_that_are_no_unicode_are_refused_with_the_file(tmp_path):
    write_parquet(tmp_path / "corpus.parquet", [{"id": "a", "video": "ab"}])
    whole = (tmp_path / "corpus.parquet").read_bytes()
    write_lines(tmp_path / "queries.jsonl", [*QUERIES, {"id": "q3", "video": "a.mp4", "text": "\ud800"}])
    write_lines(tmp_path / "qrels.jsonl", QRELS)
    with pytest.raises(ValueError, match=r"queries.jsonl cannot be read .* save it as UTF-8"):
        read_mteb_layout(tmp_path, extract_to=tmp_path / "videos")
    for name in (b"video", b"ab"):
        (tmp_path / "corpus.parquet").write_bytes(whole.replace(name, b"\xf5" * len(name)))
        with pytest.raises(ValueError, match=r"corpus.parquet is .*; fetch it again"):
            read_mteb_layout(tmp_path, extract_to=tmp_path / "videos")


def test_every_file_that_a_card_names_is_read(tmp_path):
    """And a video may be bytes alone."""
    write_parquet(tmp_path / "c" / "1.parquet", [{"id": "a", "video": b"one"}])
    write_parquet(tmp_path / "c" / "2.parquet", [{"id": "b", "video": b"two"}])
    write_parquet(tmp_path / "q.parquet", [{"id": "q1", "video": b"one", "text": "slower"}])
    write_parquet(tmp_path / "r.parquet", QRELS[:1])
    files = {
        "corpus": ["c/2.parquet", "c/1.parquet"],
        "queries": "q.parquet",
        "default": [{"split": "test", "path": "r.*"}],
    }
    configs = [{"config_name": name, "data_files": paths} for name, paths in files.items()]
    (tmp_path / "README.md").write_text(f"---\n{json.dumps({'configs': configs})}\n---\n")
    found = read_mteb_layout(tmp_path, extract_to=tmp_path / "videos")
    assert {name: Path(video.path).read_bytes() for name, video in found.corpus.items()} == {"a": b"one", "b": b"two"}
    assert found.queries["q1"][0] == found.corpus["a"]
    assert found.relevant == {"q1": ["b"]}


def test_rows_that_are_left_out_are_counted(tmp_path):
    write_lines(tmp_path / "corpus.jsonl", [*CORPUS, CORPUS[0]])
    write_lines(tmp_path / "queries.jsonl", [*QUERIES, {"id": "q3", "video": "a.mp4", "text": " "}])
    write_lines(tmp_path / "qrels.jsonl", [*QRELS, {"query-id": "q1", "corpus-id": "zz", "score": 1}])
    found = read_mteb_layout(tmp_path, extract_to=tmp_path / "videos")
    assert [rejection.reason.partition(":")[0] for rejection in found.rejections] == [
        "empty or duplicate id",
        "query without video or text",
        "judgement of an unknown query or document",
    ]
    assert found.relevant == {"q1": ["b", "a"], "q2": ["c"]}
