"""Columns with few fixed values: numbers with names in what is stored, names for who reads through our functions."""

from pathlib import Path

import datasets
import evaluate
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

import metrics
from hf_datasets.class_labels import labeled_features, with_labels, with_names
from hf_datasets.comp.contrasts import group
from hf_datasets.tables import read_text_table

NAMES = ["red", "green", "blue"]
FEATURES = Features(n=Value("int64"), color=ClassLabel(names=NAMES), text=Value("string"))
ROWS = {"n": [0, 1, 2, 3], "color": [2, None, 0, -1], "text": list("abcd")}
NAMED = {"n": [0, 1, 2, 3], "color": ["blue", None, "red", None], "text": list("abcd")}


@pytest.fixture
def labeled():
    return Dataset.from_dict(ROWS, features=FEATURES)


def test_names_are_stored_as_numbers_and_null_stays_null():
    table = with_labels(pa.table({"n": [0, 1], "color": ["green", None], "text": ["a", "b"]}), FEATURES)
    assert table["color"].to_pylist() == [1, None]
    assert Features.from_arrow_schema(table.schema) == FEATURES
    assert with_labels(table, FEATURES) == table, "numbers stay as they are"


def test_a_value_that_is_no_name_is_refused_with_the_names():
    with pytest.raises(ValueError, match="color is 'pink', which is none of red, green, blue; fix the row"):
        with_labels(pa.table({"n": [0], "color": ["pink"], "text": ["a"]}), FEATURES)


def test_a_column_that_is_not_there_gets_no_label():
    assert labeled_features(pa.schema({"n": pa.int64()}), {"color": NAMES}) == Features(n=Value("int64"))


def test_a_dataset_its_splits_a_stream_and_a_table_read_as_names(labeled):
    assert with_names(labeled).to_dict() == NAMED
    assert with_names(labeled).column_names == labeled.column_names
    assert with_names(DatasetDict(train=labeled))["train"].to_dict() == NAMED
    assert pa.Table.from_pylist(list(with_names(labeled.to_iterable_dataset()))).to_pydict() == NAMED
    assert with_names(labeled.with_format("arrow")[:]).to_pydict() == NAMED
    assert with_names(labeled).to_polars()["color"].dtype == pl.String


def test_chosen_rows_read_as_names_in_their_order(labeled):
    chosen = labeled.select([2, 0])
    assert with_names(chosen)["color"][:] == ["red", "blue"]
    assert chosen["color"][:] == [0, 2], "the dataset itself is as it was"


def test_data_published_with_names_stay_as_they_are():
    older = Dataset.from_dict(NAMED)
    assert with_names(older) is older
    table = pa.table(NAMED)
    assert with_names(table) is table


def test_a_table_of_own_clips_that_datasets_wrote_is_read_as_names(labeled, tmp_path):
    labeled.to_parquet(tmp_path / "clips.parquet")
    table, rejections = read_text_table(tmp_path / "clips.parquet")
    assert table["color"].to_list() == NAMED["color"]
    assert not rejections


def test_contrasts_take_a_dataset_a_stream_and_rows_alike(miniature):
    rows = datasets.load_dataset("activitynet_comp", data_dir=str(miniature), split="train")
    assert isinstance(rows.features["disruption_type"], ClassLabel)
    contrasts = group(list(with_names(rows)))
    assert {level for contrast in contrasts for level in contrast.levels} == {1, 2}
    assert group(rows) == group(rows.to_iterable_dataset()) == contrasts


@pytest.mark.parametrize(
    ("name", "config", "column", "names"),
    [
        ("tfcovr", "mini", "change_type", ["temporal", "event"]),
        ("tfcovr", "mini-clips", "split", ["train", "validation", "test"]),
        (
            "youcook2_comp",
            "mini",
            "disruption_type",
            ["temporal_reorder", "action_replace", "segment_mismatch", "multi"],
        ),
        ("didemo_fig", "mini-videos", "split", ["train", "validation", "test"]),
    ],
)
def test_a_published_file_says_the_names_to_who_has_only_pyarrow_and_datasets(
    name, config, column, names, miniature, tmp_path
):
    rows = datasets.load_dataset(name, config, data_dir=str(miniature), split="test")
    rows.remove_columns([one for one in ("video",) if one in rows.column_names]).to_parquet(tmp_path / "test.parquet")
    read = Features.from_arrow_schema(pq.read_schema(tmp_path / "test.parquet"))[column]
    assert read == ClassLabel(names=names)
    assert set(pq.read_table(tmp_path / "test.parquet")[column].to_pylist()) <= {*range(len(names)), None}


def test_the_metric_says_how_a_label_becomes_the_name_it_needs(miniature):
    rows = datasets.load_dataset("activitynet_comp", data_dir=str(miniature), split="test")
    similarities = [{"positive": 1.0, "negative": 0.0}] * len(rows)
    metric = evaluate.load(str(Path(metrics.__file__).parent / "comprehensive_accuracy"))
    with pytest.raises(ValueError, match="take the name: ") as refused:
        metric.compute(predictions=similarities, references=rows["disruption_type"])
    cure = str(refused.value).partition("take the name: ")[2]
    assert metric.compute(predictions=similarities, references=eval(cure))["comprehensive_accuracy"] == 1
