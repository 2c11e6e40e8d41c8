"""The authors' files: both generations of column names, csv and Parquet, literals parsed as data."""

import json

import polars as pl
import pytest

from hf_datasets.tfcovr.release import (
    find_triplet_files,
    modification_text,
    parse_literal,
    read_released_triplets,
    release_clips,
)

GYM = "A0xAXXysHUo_E_002184_002237_A_{:04}_{:04}"
CLIPS = [GYM.format(second, second + 1) for second in range(9)]


def train_rows():
    text = str({"41": {"modification": "Show with 1 turn."}, "45": {"modification": "no, not this one"}})
    beam = str({"136": {"modification": "Show on Balance Beam."}})
    dive = str({"407c": {"modification": "Show with 3.5 somersaults Tuck."}})
    return {
        "query_video": [CLIPS[0], CLIPS[0], "09_57"],
        "target_video": [CLIPS[1], CLIPS[2], "FINADivingWorldCup2021_Men3m_final_r1_0"],
        "label1": ["40", "45", "307c"],
        "label2": ["41", "136", "407c"],
        "modification": [text, beam, dive],
    }


def query_rows():
    return {
        "query_id": ["0", "1"],
        "query_video": [CLIPS[5], "03_1"],
        "modification": ["Show with 1 turn.", "Show with 2.5 somersaults Tuck."],
        "target_video": [CLIPS[6], "03_2"],
        "target_videos_ids": [str([CLIPS[7], CLIPS[6]]), str(["03_2", "04_3", "05_4"])],
    }


@pytest.fixture
def folder(tmp_path):
    annotations = tmp_path / "annotations"
    annotations.mkdir()
    pl.DataFrame(train_rows()).write_csv(annotations / "train_finegd.csv")
    pl.DataFrame(query_rows()).write_csv(annotations / "val_finegd.csv")
    pl.DataFrame(query_rows()).write_csv(annotations / "test_finegd.csv")
    return tmp_path


def rewrite(folder, name, **columns):
    rows = train_rows() if name.startswith("train") else query_rows()
    table = pl.DataFrame({key: value for key, value in (rows | columns).items() if value is not None})
    table.write_csv(folder / "annotations" / name)


def test_triplets_and_queries_are_read_from_first_to_last(folder):
    rows, rejections = read_released_triplets(folder)
    assert rejections == []
    assert {split: len(table) for split, table in rows.items()} == {"train": 3, "validation": 2, "test": 2}
    assert rows["train"].row(0, named=True) == {
        "query_id": "train-0",
        "query_clip_id": CLIPS[0],
        "query_label": "40",
        "modification_text": "Show with 1 turn.",
        "change_type": "temporal",
        "target_clip_ids": [CLIPS[1]],
        "target_label": "41",
    }
    assert rows["train"]["change_type"].to_list() == ["temporal", "event", "temporal"]
    assert rows["train"].row(-1)[3] == "Show with 3.5 somersaults Tuck."
    assert rows["test"].row(0, named=True) == {
        "query_id": "0",
        "query_clip_id": CLIPS[5],
        "query_label": None,
        "modification_text": "Show with 1 turn.",
        "change_type": None,
        "target_clip_ids": [CLIPS[6], CLIPS[7]],
        "target_label": None,
    }
    assert rows["test"]["target_clip_ids"][1].to_list() == ["03_2", "04_3", "05_4"]


def test_the_older_column_and_file_names_give_the_same_rows(folder, tmp_path):
    older = {"label1": "source_label", "label2": "target_label", "modification": "target_labels_modification"}
    other = tmp_path / "older"
    other.mkdir()
    table = pl.DataFrame(train_rows()).rename(older).with_columns(target_labels=pl.lit("['41']"))
    table.write_csv(other / "train_video_pairs_v3.csv")
    table.with_columns(description=pl.lit("x")).write_csv(other / "train_video_pairs_v3_desc.csv")
    pl.DataFrame(query_rows()).write_csv(other / "test_video_pairs_v2.csv")
    rows, rejections = read_released_triplets(other)
    assert rejections == []
    assert rows["train"].equals(read_released_triplets(folder / "annotations")[0]["train"])
    assert set(rows) == {"train", "test"}


def test_parquet_with_real_lists_gives_the_same_rows(folder, tmp_path):
    other = tmp_path / "parquet"
    other.mkdir()
    queries = query_rows()
    queries["target_videos_ids"] = [parse_literal(text) for text in queries["target_videos_ids"]]
    queries["query_id"] = [0, 1]
    pl.DataFrame(train_rows()).write_parquet(other / "train-00000-of-00001.parquet")
    pl.DataFrame(queries).write_parquet(other / "test-00000-of-00001.parquet")
    rows, _ = read_released_triplets(other)
    expected, _ = read_released_triplets(folder / "annotations")
    assert rows["train"].equals(expected["train"])
    assert rows["test"].equals(expected["test"])


def test_rejections_of_unusable_rows_name_file_row_and_fix(folder):
    rows = {key: value * 4 for key, value in train_rows().items()}
    rows["label2"][3], rows["label1"][4] = "45", "24"
    rows["modification"][5] = "__import__('os').system('touch hacked')"
    rows["modification"][6] = "{'41': __import__('os').system('touch hacked')}"
    rows["target_video"][7], rows["query_video"][8] = rows["query_video"][7], ""
    rewrite(folder, "train_finegd.csv", **rows)
    read, rejections = read_released_triplets(folder)
    kinds = [
        (rejection.reason.partition(":")[0], rejection.reason.split("row ")[1].split(" ")[0])
        for rejection in rejections
    ]
    assert kinds == [
        ("unknown label", "5"),
        ("no modification text for label2", "7"),
        ("own target", "8"),
        ("empty clip id", "9"),
        ("duplicate triplet", "10"),
        ("duplicate triplet", "11"),
        ("duplicate triplet", "12"),
    ]
    assert all("train_finegd.csv" in rejection.reason for rejection in rejections)
    assert len(read["train"]) + len(rejections) == 12
    assert "__import__" in read["train"]["modification_text"][4], "a cell that is no dictionary is text, not run"


def test_a_query_that_answers_itself_keeps_its_other_targets(folder):
    own = [str([CLIPS[5], CLIPS[6]]), str(["03_1"])]
    rewrite(folder, "test_finegd.csv", target_videos_ids=own, target_video=[CLIPS[6], "03_1"])
    rows, rejections = read_released_triplets(folder)
    assert rows["test"]["target_clip_ids"].to_list() == [[CLIPS[6]]]
    assert [rejection.reason.partition(":")[0] for rejection in rejections] == ["own target", "own target", "no target"]


def test_one_query_in_several_rows_is_one_query_with_all_targets(folder):
    same = {key: [value[0]] * 2 for key, value in query_rows().items()} | {
        "target_videos_ids": ["['a_1']", "['a_2', 'a_1']"]
    }
    rewrite(folder, "test_finegd.csv", **same)
    rows, rejections = read_released_triplets(folder)
    assert rows["test"]["target_clip_ids"].to_list() == [[CLIPS[6], "a_1", "a_2"]]
    assert rejections == []
    rewrite(folder, "test_finegd.csv", query_id=["0", "0"])
    _, rejections = read_released_triplets(folder)
    assert [rejection.reason.partition(":")[0] for rejection in rejections] == ["conflicting query_id"]


def test_missing_columns_are_an_error_and_extra_ones_counted(folder):
    rewrite(folder, "train_finegd.csv", label2=None)
    with pytest.raises(ValueError, match=r"train_finegd\.csv has no column label2"):
        read_released_triplets(folder)
    rewrite(folder, "train_finegd.csv", surprise=["x"] * 3)
    _, rejections = read_released_triplets(folder)
    assert "unknown column: 'surprise' of" in rejections[0].reason


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"query_video,target_video,label1,label2,modification\n", "has no row"),
        (b"query_video,target_video,label1,label2,modification\ncaf\xe9,b,40,41,{}\n", "UTF-8"),
        (
            b"query_video,target_video,label1,label2,modification\na,b,40,41,{}\n",
            "no usable row among 1; the first: no mod",
        ),
    ],
)
def test_a_file_without_usable_rows_names_itself(folder, content, says):
    (folder / "annotations" / "train_finegd.csv").write_bytes(content)
    with pytest.raises(ValueError, match=says) as refusal:
        read_released_triplets(folder)
    assert "train_finegd.csv" in str(refusal.value)


def test_files_that_are_missing_or_ambiguous_are_named(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="ucf-crcv/TF-CoVR"):
        find_triplet_files(tmp_path / "nothing")
    pl.DataFrame(train_rows()).write_csv(folder / "train_old.csv")
    with pytest.raises(ValueError, match="train has several files"):
        find_triplet_files(folder)


@pytest.mark.parametrize(
    "text", ["__import__('os')", "[" * 10 + "]" * 10, "(" * 100_000, "['a'] * 10", "[" + "1," * 600_000 + "]", "", None]
)
def test_only_small_literals_are_parsed(text):
    assert parse_literal(text) is None


def test_literals_are_read_as_json_or_python():
    assert parse_literal(json.dumps({"a": None})) == {"a": None}
    assert parse_literal("{40: {'modification': \"don't\"}}") == {40: {"modification": "don't"}}
    assert modification_text("{40: {'modification': 'x'}}", "40") == "x"
    assert modification_text("{'40': 'x'}", "40") == "x"
    assert modification_text("{'41': {'modification': 'x'}}", "40") is None


def test_clips_are_those_the_rows_speak_of_with_the_video_of_their_id(folder):
    rows, _ = read_released_triplets(folder)
    clips, rejections = release_clips(rows, spans={CLIPS[1]: (2220.25, 2221.5)})
    train = clips.filter(pl.col("split") == "train")
    assert train["clip_id"].to_list() == sorted(
        {CLIPS[0], CLIPS[1], CLIPS[2], "09_57", "FINADivingWorldCup2021_Men3m_final_r1_0"}
    )
    assert dict(train.select("clip_id", "video_id").iter_rows()) == {
        **dict.fromkeys(CLIPS[:3], "A0xAXXysHUo"),
        "09_57": "09",
        "FINADivingWorldCup2021_Men3m_final_r1_0": "FINADivingWorldCup2021_Men3m_final_r1",
    }
    spans = dict(train.select("clip_id", pl.concat_list("start_seconds", "end_seconds")).iter_rows())
    assert [spans[clip] for clip in (*CLIPS[:2], "09_57")] == [[2184.0, 2186.0], [2220.25, 2221.5], [None, None]]
    kinds = [rejection.reason.partition(":")[0] for rejection in rejections]
    assert kinds == ["conflicting label"] + ["video in two splits"] * 4
    assert train.filter(pl.col("clip_id") == CLIPS[0])["label"].to_list() == ["40"]
    assert clips.filter(pl.col("split") == "test")["label"].null_count() == 7
