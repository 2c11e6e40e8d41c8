"""The rows of a table: kept one by one, merged over machines, and none of them silently missing."""

import csv
import json
from types import SimpleNamespace

import pytest

from subtle.table.rows import data_of, is_done, read_rows, row_folder, write_failure, write_row
from subtle.table.table import finish_table

DATA = {"dataset": "tfcovr", "split": "test", "fingerprint": "abc", "signature": "map_at_k"}
COLUMNS = {"model": "a CLIP", "frames": 8}


def write(folder, name="CLIP average", value=0.5, *, config=None, data=DATA):
    config = {"model": "clip", "output_dir": str(folder), **(config or {})}
    return write_row(folder, name, {"map@5": value}, config=config, seed=0, columns=COLUMNS, data=data)


def test_a_row_is_read_as_it_was_written(tmp_path):
    write(tmp_path)
    row = read_rows([tmp_path])["CLIP average"]
    assert (row.metrics, row.columns, row.data, row.seed) == ({"map@5": 0.5}, COLUMNS, DATA, 0)
    assert "versions" in row.details


def test_a_name_never_leaves_the_folder_of_rows(tmp_path):
    names = ["../../outside", "/etc/passwd", "..", "", "BLIP2 text", "BLIP2-text", "a" * 300]
    folders = {row_folder(tmp_path, name) for name in names}
    assert len(folders) == len(names)
    assert {folder.parent for folder in folders} == {tmp_path / "rows"}


def test_a_row_of_this_configuration_is_done_wherever_it_lies(tmp_path):
    assert not is_done(tmp_path, "CLIP average", {"model": "clip"})
    write(tmp_path)
    assert is_done(tmp_path, "CLIP average", {"model": "clip", "output_dir": "elsewhere", "num_workers": 7})


def test_a_row_of_another_configuration_is_refused_with_the_cure(tmp_path):
    write(tmp_path)
    with pytest.raises(ValueError, match="other model; name another --output_dir, or delete this folder"):
        is_done(tmp_path, "CLIP average", {"model": "blip"})


def test_rows_of_several_machines_are_merged(tmp_path):
    write(tmp_path / "a")
    write(tmp_path / "b")
    write(tmp_path / "b", "BLIP", 0.7)
    assert set(read_rows([tmp_path / "a", tmp_path / "b"])) == {"CLIP average", "BLIP"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"value": 0.6}, r"different figures \(map@5: 0.5 and 0.6\)"),
        ({"config": {"model": "blip"}}, "different model"),
        ({"data": DATA | {"fingerprint": "xyz"}, "name": "BLIP"}, r"different data \(fingerprint: 'abc' and 'xyz'\)"),
    ],
)
def test_rows_that_disagree_are_refused_with_both_folders(tmp_path, changes, message):
    write(tmp_path / "a")
    write(tmp_path / "b", **changes)
    with pytest.raises(ValueError, match=rf"{tmp_path}/a/rows/\S+ and {tmp_path}/b/rows/.*{message}"):
        read_rows([tmp_path / "a", tmp_path / "b"])


def test_a_measured_row_replaces_a_failure_and_not_the_other_way_round(tmp_path):
    write_failure(tmp_path / "a", "CLIP average", "too little memory", COLUMNS)
    assert read_rows([tmp_path / "a"])["CLIP average"].reason == "too little memory"
    write(tmp_path / "b")
    assert read_rows([tmp_path / "a", tmp_path / "b"])["CLIP average"].metrics == {"map@5": 0.5}
    assert read_rows([tmp_path / "b", tmp_path / "a"])["CLIP average"].metrics == {"map@5": 0.5}
    write_failure(tmp_path / "b", "CLIP average", "later", COLUMNS)
    assert read_rows([tmp_path / "b"])["CLIP average"].reason is None
    write(tmp_path / "a")
    assert not (row_folder(tmp_path / "a", "CLIP average") / "failure.json").exists()


def test_a_folder_without_rows_and_a_file_that_is_none_are_named(tmp_path):
    assert read_rows([tmp_path]) == {}
    with pytest.raises(ValueError, match="holds no row of a table"):
        read_rows([tmp_path, tmp_path / "typo"])
    (tmp_path / "rows" / "x").mkdir(parents=True)
    for text in ("{", "[]", '{"name": "x", "columns": {}}'):
        (tmp_path / "rows" / "x" / "results.json").write_text(text)
        with pytest.raises(ValueError, match=r"x/results.json is not a row of a table"):
            read_rows([tmp_path])


def test_every_expected_row_is_in_the_table(tmp_path, capsys):
    write(tmp_path)
    write_failure(tmp_path, "BLIP", "needs 99 GB | of memory", {"model": "a BLIP"})
    status = finish_table(tmp_path, read_rows([tmp_path]), ["BLIP", "CLIP average", "E5-V"], "Table 2")
    assert status == 1
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["figures"] == {"CLIP average": {"map@5": 0.5}}
    assert (results["failed"], results["not_measured"]) == ({"BLIP": "needs 99 GB | of memory"}, ["E5-V"])
    assert (tmp_path / "table.md").read_text().splitlines() == [
        "Table 2, %",
        "",
        "| row | model | frames | map@5 |",
        "| --- | --- | --- | --- |",
        "| BLIP | a BLIP |  | needs 99 GB \\| of memory |",
        "| CLIP average | a CLIP | 8 | 50.00 |",
        "| E5-V |  |  | not measured |",
    ]
    with (tmp_path / "table.csv").open(newline="") as file:
        assert list(csv.DictReader(file))[1] == {"row": "CLIP average", **COLUMNS, "map@5": "0.5", "reason": ""} | {
            "frames": "8"
        }
    assert "not measured" in capsys.readouterr().out


def test_a_table_without_failures_ends_well(tmp_path):
    write(tmp_path)
    assert finish_table(tmp_path, read_rows([tmp_path]), ["CLIP average", "other"], "Table 2") == 0


def test_the_fingerprint_is_of_queries_and_gallery_and_not_of_paths():
    config = SimpleNamespace(dataset="/here/tfcovr", dataset_config="mini")
    elsewhere = SimpleNamespace(dataset="tfcovr", dataset_config="mini")
    queries = [{"query_id": "q", "target_clip_ids": ["a"]}]
    one = data_of(config, "test", queries, ["a", "b"], "s")
    assert one == data_of(elsewhere, "test", queries, ["b", "a"], "s")
    assert one != data_of(config, "test", queries, ["a"], "s")
    assert one != data_of(config, "test", [{"query_id": "q", "target_clip_ids": ["b"]}], ["a", "b"], "s")


def test_a_printed_table_has_100_columns_breaks_no_figure_and_leaves_out_what_was_not_asked_for(tmp_path, capsys):
    interval = "+12.34 [10.05, 14.63] (reference)"
    about = {
        "changes": "loss infonce",
        "empty": "",
        "difference of mAP@50": interval,
        "mAP@50 lost by shuffling": interval,
    }
    values = {f"map@{k}{what}": 0.5 for k in (5, 10, 25, 50) for what in ("", "_std")}
    write_row(tmp_path, "one [a]", values, config={}, seed=0, columns=about, data=DATA)
    finish_table(tmp_path, read_rows([tmp_path]), ["one [a]", "asked", "other"], "Table 5", asked=["asked"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    (figures,) = (line for line in lines if "50.00 ± 50.00" in line)
    assert figures.count("50.00 ± 50.00") == 4
    assert [line.count(interval) for line in lines if interval in line] == [2]
    assert "empty" not in " ".join(lines)
    assert lines[-1] == "asked: not measured"
    assert not [line for line in lines if "other" in line]
