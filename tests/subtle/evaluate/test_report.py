"""The report on an evaluation whose rankings are written by hand."""

import csv
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from subtle.evaluate import report
from subtle.evaluate.options import ReportConfig
from subtle.evaluate.report import as_csv, main, render
from subtle.run.intervals import interval_of_mean
from subtle.run.pages import csp_hash
from subtle.tfcovr.shown_queries import select_queries


def write_evaluation(folder, rows, **results):
    folder.mkdir(exist_ok=True)
    pl.DataFrame(rows).write_parquet(folder / "predictions.parquet")
    coverage = {"queries": 3, "queries_ranked": 2, "targets": 6, "targets_in_gallery": 5}
    coverage |= {"gallery_clips": 12, "gallery_clips_ranked": 11}
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


def make_config(tiny, folder):
    blue = [f"test-blue-{number}" for number in range(3)]
    rows = [
        query(0, "show <b>blue</b>", ["test-blue-0", "test-red-1", "test-blue-1"], blue),
        query(1, "show blue", ["test-red-2", "test-red-1", "test-blue-2"], blue),
    ]
    write_evaluation(folder / "evaluation", rows)
    folders = {"evaluation_dir": str(folder / "evaluation"), "output_dir": str(folder / "report")}
    return ReportConfig(dataset=tiny["dataset"], **folders)


@pytest.fixture
def config(tiny, tmp_path):
    return make_config(tiny, tmp_path)


@pytest.fixture
def page_of(config):
    """The page on other rows than those of `config`."""

    def make(*rows, **results):
        write_evaluation(Path(config.evaluation_dir), rows, **results)
        return render(config)[0]

    return make


@pytest.fixture(scope="module")
def rendered(tiny, caches, tmp_path_factory):
    """The page, and the table of labels, of two queries for blue."""
    return render(make_config(tiny, tmp_path_factory.mktemp("rendered")))


class Page(HTMLParser):
    """What a browser makes of a page: elements with their attributes, and the text inside script and style."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.inside, self.text = [], None, {"script": [], "style": [], None: []}
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag in self.text:
            self.inside = tag

    def handle_endtag(self, tag):
        self.inside = None if tag == self.inside else self.inside

    def handle_data(self, data):
        self.text[self.inside].append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def with_clips(monkeypatch, **columns):
    """Let the report read the tiny clips with other values in some columns."""
    load_split = report.load_split

    def changed(*args, **options):
        clips = load_split(*args, **options).to_polars().with_columns(**columns)
        return type("Clips", (), {"to_polars": lambda self: clips})()

    monkeypatch.setattr(report, "load_split", changed)


def test_right_and_wrong_answers_are_told_apart_by_word_and_frame(rendered):
    page, _ = rendered
    assert len(re.findall('<li class="clip right">\\s*<b>[123] ✓ right</b>', page)) == 3
    assert len(re.findall('<li class="clip wrong">\\s*<b>[123] ✗ wrong</b>', page)) == 3
    assert ".wrong video, .wrong .missing { border: 3px dashed" in page
    assert page.count('src="data:video/mp4;base64,') == 8  # two queries with three answers each


def test_a_label_gets_the_mean_average_precision_of_its_queries_and_coverage_stands_beside_it(rendered):
    page, per_label = rendered
    (row,) = per_label.iter_rows(named=True)
    assert row["queries"] == 2
    assert row["value"] == pytest.approx(((1 + 2 / 3) / 3 + (1 / 3) / 3) / 2)
    assert "2 of 3 queries could be ranked, against 11 of 12 clips" in page


def test_text_from_data_is_escaped(rendered):
    assert "show &lt;b&gt;blue&lt;/b&gt;" in rendered[0]
    assert "<b>blue</b>" not in rendered[0]


def test_without_queries_no_clip_leaves_its_folder(config):
    config.num_queries = 0
    page, _ = render(config)
    assert "data:video" not in page


def test_a_clip_whose_video_is_gone_is_shown_as_missing(config, monkeypatch):
    monkeypatch.setattr("subtle.tfcovr.shown_queries.clip_data_url", lambda row: None)
    page, _ = render(config)
    assert page.count("the video cannot be read") == 8


def test_the_recipe_writes_the_page_and_the_table(config, capsys):
    main(replace(config, num_queries=1))
    assert "index.html" in capsys.readouterr().out
    assert (pl.read_csv(f"{config.output_dir}/per_label.csv")["description"] == "blue").all()


def test_without_descriptions_and_labels_the_clip_ids_stand_on_the_page(config, monkeypatch):
    nothing = pl.lit(None, pl.String)
    with_clips(monkeypatch, description=nothing, label=nothing)
    path = f"{config.evaluation_dir}/predictions.parquet"
    pl.read_parquet(path).with_columns(target_label=nothing, change_type=nothing).write_parquet(path)
    page, per_label = render(config)
    assert "None" not in page
    assert "not stated" in page
    assert re.search("<td>test-blue-0</td><td>test-red-2</td><td>1 of 2</td>", page)
    assert per_label["name"].to_list() == ["test-blue-0"]


def test_nothing_is_mistaken_where_every_first_answer_is_right(page_of):
    page = page_of(query(0, "show blue", ["test-blue-1", "test-red-1"], ["test-blue-1"]))
    assert "Nothing: the clip at rank 1 is a right answer to every query." in page


def test_the_evaluations_own_dataset_is_read_unless_a_flag_names_another(config, tmp_path):
    rows = [query(0, "show blue", ["test-blue-1", "test-red-1"], ["test-blue-1"])]
    record = {"dataset": config.dataset, "dataset_config": "mini", "split": "test", "protocol": "standard"}
    write_evaluation(tmp_path / "evaluation", rows, config=record)
    page, _ = render(ReportConfig(evaluation_dir=config.evaluation_dir))
    assert page.count('src="data:video/mp4;base64,') == 3
    write_evaluation(tmp_path / "evaluation", rows, config={**dict.fromkeys(record, "none"), "protocol": "standard"})
    page, _ = render(replace(config, dataset_config="mini", split="test"))
    assert f"dataset <b>{config.dataset}</b>, configuration <b>mini</b>, split <b>test</b>" in page


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evaluation_dir": "no/where"}, r"evaluate\.py tfcovr"),
        ({"split": "train"}, r"none of the evaluated queries' clips, such as 'test-red-0'.*--data_dir"),
        ({"data_dir": "/gone"}, r"data_dir='/gone'.*--data_dir"),
    ],
)
def test_an_evaluation_and_clips_that_are_not_there_are_named_with_the_cure(config, changes, message):
    with pytest.raises(SystemExit, match=message):
        render(replace(config, **changes))


def test_results_of_another_recipe_are_refused(config, tmp_path):
    (tmp_path / "evaluation" / "results.json").write_text(json.dumps({"figures": {}, "config": {}}))
    with pytest.raises(SystemExit, match=r"not what evaluate\.py tfcovr writes"):
        render(config)


def test_a_query_shows_its_right_answers_and_two_more_and_none_of_these_is_wrong(page_of):
    ranked = ["test-blue-0", "test-red-1", "test-red-2", "test-grey-0"]
    page = page_of(query(0, "show blue", ranked, ["test-blue-0"]))
    assert re.findall('<li class="clip (.*?)">', page) == ["right", "extra", "extra"]
    assert "1 right answer: rank 1</p>" in page


def test_a_right_answer_is_shown_where_none_of_the_first_ones_is_right(page_of):
    ranked = ["test-red-1", "test-red-2", "test-grey-0", "test-grey-1", "test-blue-1"]
    page = page_of(query(0, "show blue", ranked, ["test-blue-0", "test-blue-1"]))
    assert re.findall('<li class="clip (.*?)">', page) == ["wrong"] * 4 + ["right"]
    assert "✓ right, at rank 5" in page
    assert "2 right answers: rank 5; 1 not in the first 5" in page


def test_a_clip_is_shown_with_its_video_and_its_seconds(config, monkeypatch):
    with_clips(monkeypatch, start_seconds=pl.lit(0.25), end_seconds=pl.lit(0.75), video_id=pl.lit("final-2"))
    page, _ = render(config)
    assert page.count("<span>video final-2</span> <span>0.2-0.8 s</span>") == 8


def test_the_worst_query_of_each_target_comes_before_the_second_worst_of_any():
    rows = [("a", "jump", 0.3), ("b", "jump", 0.1), ("c", "jump", 0.2), ("d", "spin", 0.9)]
    predictions = pl.DataFrame(rows, ["query_id", "target", "ap"], orient="row")
    predictions = predictions.with_columns(change_type=pl.lit("event"))
    for num_queries, shown in {2: ["b", "d"], 3: ["b", "c", "d"], 9: ["b", "c", "a", "d"]}.items():
        drawn = select_queries(predictions, num_queries=num_queries, seed=0)
        assert drawn["query_id"].to_list() == shown


def test_the_interval_is_over_long_videos_not_over_queries(page_of, rendered, monkeypatch):
    """Of two queries of one video, 5/9 and 1/9, and one of another, 1: means 1/3 and 1, of two videos and one query."""
    assert 'class="interval"' not in rendered[0], "both queries are of one clip; its video says nothing about others"
    blue = [f"test-blue-{number}" for number in range(3)]
    with_clips(monkeypatch, video_id=pl.col("clip_id"))
    page = page_of(
        query(0, "one", ["test-blue-0", "test-red-1", "test-blue-1"], blue),
        query(1, "two", ["test-red-2", "test-red-1", "test-blue-2"], blue),
        query(2, "three", blue, blue) | {"query_clip_id": "test-red-1"},
    )
    found = interval_of_mean(np.array([[5 / 9, 1 / 9, 1]]), ["a", "a", "b"], share=True)
    assert page.count(found.bounds_in_percent()) >= 4  # every cut-off is above the ranks here
    assert "interval over long videos" in page
    assert "narrow" not in page


def test_seeds_widen_the_interval_of_a_system(config, tmp_path):
    """One row of a query for each of two seeds, one right and one wrong, in each of two videos."""
    folder, blue = tmp_path / "evaluation", ["test-blue-0"]
    (folder / "predictions" / "two-stage").mkdir(parents=True)
    for seed, ranked in enumerate((["test-blue-0"], ["test-red-2"])):
        rows = [query(n, "t", ranked, blue) | {"query_clip_id": f"test-red-{n}"} for n in range(2)]
        pl.DataFrame(rows).write_parquet(folder / "predictions" / "two-stage" / f"{seed}.parquet")
    results = json.loads((folder / "results.json").read_text()) | {"by_seed": {"two-stage": [{}, {}]}}
    rows = report.system_rows(folder, results, {"test-red-0": "a", "test-red-1": "b"})
    assert {text for _, text in rows[0]["cells"]} == {"[0.00, 100.00]"}


def test_markup_in_a_label_stays_text(config, monkeypatch):
    label = '</script><script>alert(1)</script><img src="https://example.org/x" onerror="alert(1)">'
    with_clips(monkeypatch, description=pl.lit(label), label=pl.lit(label))
    page = Page(render(config)[0])
    assert len(page.all("script")) == 1
    assert not page.all("img")
    assert "alert" not in "".join(page.text["script"])
    assert label in page.text[None]
    assert {one["data-target"] for one in page.all("section") if one.get("class") == "query"} == {label}


def test_the_page_may_run_its_own_script_and_reach_no_network(rendered):
    page = Page(rendered[0])
    (policy,) = (one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.split(maxsplit=1) for rule in policy.split("; "))
    assert rules.pop("script-src") == csp_hash("".join(page.text["script"]))
    assert rules.pop("style-src") == csp_hash("".join(page.text["style"]))
    assert rules == {"default-src": "'none'", "media-src": "data:", "base-uri": "'none'", "form-action": "'none'"}
    assert not [one for _, one in page.elements if "style" in one or any(name.startswith("on") for name in one)]


def test_without_script_every_query_is_shown_and_with_it_no_clip_plays_before_it_has_checked_for_reduced_motion(
    rendered,
):
    page = Page(rendered[0])
    assert all("controls" in video and "autoplay" not in video for video in page.all("video"))
    assert 'matchMedia("(prefers-reduced-motion: no-preference)")' in "".join(page.text["script"])
    assert not [one for one in page.all("section") if "hidden" in one]
    assert [one for one in page.all("div") if one.get("class") == "controls" and "hidden" in one]


def test_a_cell_of_the_table_is_not_a_formula():
    table = pl.DataFrame({"name": ["=1+1", "+1", "-1", "@a", "a=b", None], "value": [-1.0] * 6})
    rows = list(csv.DictReader(as_csv(table).splitlines()))
    assert [row["name"] for row in rows] == ["'=1+1", "'+1", "'-1", "'@a", "a=b", ""]
    assert {row["value"] for row in rows} == {"-1.0"}
