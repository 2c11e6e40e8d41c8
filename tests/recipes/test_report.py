"""The report on an evaluation whose rankings are written by hand."""

import json
import re

import polars as pl
import pytest
from confusion import confusion_counts
from report import ReportConfig, described_targets, main, render


def write_evaluation(folder, rows, **results):
    folder.mkdir(exist_ok=True)
    pl.DataFrame(rows).write_parquet(folder / "predictions.parquet")
    coverage = {
        "queries": 3,
        "queries_ranked": 2,
        "targets": 6,
        "targets_in_gallery": 5,
        "gallery_clips": 12,
        "gallery_clips_ranked": 11,
    }
    record = {
        "figures": {"two-stage": {f"map@{k}": 0.25 for k in (5, 10, 25, 50)}},
        "config": {"protocol": "standard"},
        "signature": "map@k|protocol:standard",
        "coverage": {"two-stage": coverage},
        "seed": 3,
    }
    (folder / "results.json").write_text(json.dumps(record | results))


def query(number, text, ranked, targets):
    return {
        "query_id": f"q{number}",
        "query_clip_id": "test-red-0",
        "query_label": "red",
        "modification_text": text,
        "change_type": "temporal",
        "target_clip_ids": targets,
        "target_label": "blue",
        "ranked_clip_ids": ranked,
    }


@pytest.fixture
def config(tiny, tmp_path):
    blue = [f"test-blue-{number}" for number in range(3)]
    rows = [
        query(0, "show <b>blue</b>", ["test-blue-0", "test-red-1", "test-blue-1"], blue),
        query(1, "show blue", ["test-red-2", "test-red-1", "test-blue-2"], blue),
    ]
    write_evaluation(tmp_path / "evaluation", rows)
    return ReportConfig(
        dataset=tiny["dataset"],
        evaluation_dir=str(tmp_path / "evaluation"),
        output_dir=str(tmp_path / "report"),
    )


def test_the_page_shows_right_answers_green_and_wrong_ones_red(config):
    page, _ = render(config)
    assert len(re.findall('class="clip right"', page)) == 3
    assert len(re.findall('class="clip wrong"', page)) == 3
    assert page.count('src="data:video/mp4;base64,') == 8  # two queries with three answers each


def test_a_label_gets_the_mean_average_precision_of_its_queries(config):
    _, per_label = render(config)
    (row,) = per_label.iter_rows(named=True)
    assert row["queries"] == 2
    assert row["value"] == pytest.approx(((1 + 2 / 3) / 3 + (1 / 3) / 3) / 2)


def test_text_from_data_is_escaped(config):
    page, _ = render(config)
    assert "show &lt;b&gt;blue&lt;/b&gt;" in page
    assert "<b>blue</b>" not in page


def test_coverage_stands_beside_the_figures(config):
    page, _ = render(config)
    assert "2 of 3 queries could be ranked, against 11 of 12 clips" in page


def test_without_queries_no_clip_leaves_its_folder(config):
    config.num_queries = 0
    page, _ = render(config)
    assert "data:video" not in page


def test_a_clip_whose_video_is_gone_is_shown_as_missing(config, monkeypatch):
    monkeypatch.setattr("report.encode_clip", lambda row: None)
    page, _ = render(config)
    assert page.count("video not here") == 8


def test_confusion_counts_rank_one_and_joins_labels_of_one_description():
    clips = pl.DataFrame(
        {
            "clip_id": ["a", "b", "c"],
            "label": ["180", "216", "40"],
            "description": ["ring leap", "ring leap", "switch leap"],
        }
    )
    predictions = pl.DataFrame(
        {"target_clip_ids": [["a"], ["b"], ["c"]], "ranked_clip_ids": [["b", "c"], ["c"], ["c"]]}
    )
    assert confusion_counts(predictions, clips).rows() == [
        ("180", "180", 1),
        ("180", "40", 1),
        ("40", "40", 1),
    ]


def test_a_missing_evaluation_says_how_to_make_it(config, tmp_path):
    config.evaluation_dir = str(tmp_path / "nowhere")
    with pytest.raises(SystemExit, match="evaluate_tfcovr"):
        render(config)


def test_the_recipe_writes_the_page_and_the_table(config, monkeypatch, capsys):
    arguments = ["report.py", "--num_queries", "1"]
    for name in ("dataset", "evaluation_dir", "output_dir"):
        arguments += [f"--{name}", getattr(config, name)]
    monkeypatch.setattr("sys.argv", arguments)
    main()
    assert "index.html" in capsys.readouterr().out
    assert (pl.read_csv(f"{config.output_dir}/per_label.csv")["description"] == "blue").all()


def test_a_target_label_is_named_by_the_text_of_its_clips():
    clips = pl.DataFrame({"clip_id": ["a"], "label": ["5251b"], "description": ["Back, 0.5 Twist"]})
    predictions = pl.DataFrame({"target_label": ["5253b"], "target_clip_ids": [["a"]]})
    assert described_targets(predictions, clips) == {"5253b": "Back, 0.5 Twist"}
