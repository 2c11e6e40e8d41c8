"""The statistics of a configuration of TF-CoVR: tables, plots and unknown values."""

import json

import pytest

from subtle.evaluate import analyse_tfcovr
from subtle.evaluate.analyse_tfcovr import run
from subtle.evaluate.options import AnalyzeTFCoVRConfig


@pytest.fixture(scope="module")
def analysis(tiny, tmp_path_factory):
    """The tables of the tiny dataset, and the folder that they were written to."""
    folder = tmp_path_factory.mktemp("analysis")
    config = AnalyzeTFCoVRConfig(dataset=tiny["dataset"], similarity_model=tiny["text_model"], output_dir=str(folder))
    return run(config), folder


def test_rows_and_clips_of_each_split_are_counted(analysis):
    tables, _ = analysis
    test, train = tables["rows"]["test"], tables["rows"]["train"]
    assert {key: test[key] for key in ("rows", "query_clips", "label_pairs", "texts")} == {
        "rows": 36, "query_clips": 12, "label_pairs": 12, "texts": 4,
    }  # fmt: skip
    assert (test["targets"]["minimum"], test["targets"]["mean"], train["targets"]["maximum"]) == (3, 3, 1)
    assert test["words"]["mean"] == 2
    assert tables["clips"]["test"] | {"seconds": None} == {"clips": 12, "videos": 12, "labels": 4, "seconds": None}
    assert tables["clips"]["all"]["clips"] == sum(tables["clips_per_label"].values()) == 36
    assert tables["words"][0] == {"word": "show", "texts": 252, "share": 1.0}


def test_queries_with_labels_that_do_not_train_are_counted(analysis, tiny, tmp_path, monkeypatch, capsys):
    assert analysis[0]["held_out"] == {}
    groups = {"a": "seen_to_seen", "b": "seen_to_unseen", "c": "seen_to_unseen"}
    monkeypatch.setattr(analyse_tfcovr, "held_out_groups", lambda _config, rows: groups if len(rows) == 36 else {})
    found = run(AnalyzeTFCoVRConfig(dataset=tiny["dataset"], output_dir=str(tmp_path)))["held_out"]
    assert found == {"test": {"seen_to_seen": 1, "seen_to_unseen": 2}}
    assert "seen to seen 1, seen to unseen 2" in capsys.readouterr().out


def test_plots_and_results_are_written_and_unknown_durations_are_null(analysis):
    tables, folder = analysis
    assert {path.name for path in folder.iterdir()} == {
        "clips_own.png", "targets.png", "text_lengths.png", "durations.png", "words.png", "results.json",
        "label_pairs.csv",
    }  # fmt: skip
    assert all(path.stat().st_size > 5_000 for path in folder.glob("*.png"))
    text = (folder / "results.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["figures"] == tables
    assert tables["clips"]["all"]["seconds"] == {
        "count": 36, "missing": 36, "minimum": None, "mean": None, "median": None, "maximum": None,
    }  # fmt: skip


def test_the_pairs_of_all_labels_are_compared_with_those_of_the_model(analysis):
    tables, folder = analysis
    lines = (folder / "label_pairs.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) - 1 == sum(tables["label_pairs"]["pairs"].values()) == 306 * 305 - 2 * 259 * 47 - 8
    assert tables["label_pairs"]["pairs"]["both"] + tables["label_pairs"]["pairs"]["attributes"] == 4300
