"""The analyses of fine-grained moments: tables on the real release, clusters, pictures, and the user study."""

import json
import re
from collections import Counter

import numpy as np
import pytest
from analyse_fig import AnalyseFIGConfig, add_up, analyse, data_set_in

from fig.user_study import ITEMS_FILE, AnswerFile, aggregate, draw_items, read_answers
from hf_datasets.fig.clusters import CaptionMap


def write_release(folder, rows=40):
    folder.mkdir(exist_ok=True)
    lines = [
        {"video": f"v{number // 4}", "time": [0.0, 1.5], "desc_id": number, "duration": 2.0, "cog_desc": f"person {number % 2}.",
         "fig_desc": f"person {number} with thing {number * 7}.", "fig_desc_score": number / 8 - 2}
        for number in range(rows)
    ]  # fmt: skip
    (folder / "charades_fig_test.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return str(folder)


def test_the_tables_of_real_rows_are_those_of_their_file(shared, tmp_path, capsys):
    lines = (shared / "data/didemo_fig/didemo_fig_test.jsonl").read_text(encoding="utf-8").splitlines()[:1000]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "didemo_fig_test.jsonl").write_text("\n".join(lines), encoding="utf-8")
    rows = [json.loads(line) for line in lines]
    config = AnalyseFIGConfig(release=str(tmp_path / "data"), tsne=False, output_dir=str(tmp_path / "out"))
    tables = analyse(config)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["config"]["dataset"] == "didemo_fig"
    whole = tables["table_1"]["all"]
    assert whole["negative_scores"] == sum(row["fig_desc_score"] < 0 for row in rows)
    assert whole["score"]["mean"] == pytest.approx(np.mean([row["fig_desc_score"] for row in rows]))
    for granularity, key in (("coarse", "cog_desc"), ("fine", "fig_desc")):
        counts = Counter(row[key] for row in rows).values()
        found = tables["table_2"][granularity]
        assert found["with_an_equal_text"] == sum(count for count in counts if count > 1)
        assert found["equal_texts"] == sum(count > 1 for count in counts)
        assert found["clustered"] >= found["with_an_equal_text"]
    assert tables["table_2"]["coarse"]["clustered"] > 4 > tables["table_2"]["fine"]["clustered"]
    assert (tmp_path / "out" / "scores.png").stat().st_size > 10_000
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["figures"]["table_2"] == tables["table_2"]
    assert "didemo_fig_train.jsonl" in results["source"]
    assert "encoder tfidf" in re.sub(r"\s+", " ", capsys.readouterr().out)


def test_pictures_are_drawn_or_it_is_said_why_not(tmp_path):
    config = AnalyseFIGConfig(release=write_release(tmp_path / "data"), output_dir=str(tmp_path / "out"))
    analyse(config)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "scores.png",
        "captions.png",
        "results.json",
    }
    config.tsne_min_samples, config.output_dir = 30, str(tmp_path / "none")
    analyse(config)
    results = json.loads((tmp_path / "none" / "results.json").read_text())
    assert results["undrawn"]["captions.png"] == "no coarse caption is like 29 others; lower --tsne_min_samples"


def test_any_text_model_can_be_the_encoder(tiny):
    captions = CaptionMap(["show red", "show red", "show green blue"], tiny["text_model"])
    assert captions.embeddings.shape == (2, 16)
    np.testing.assert_allclose(np.linalg.norm(captions.embeddings, axis=1), 1, rtol=1e-5)


@pytest.fixture
def study(tmp_path, tiny, monkeypatch):
    """Moments in the tiny videos, built with kinds, and the folder of their forms."""
    import pyarrow as pa

    from hf_datasets.fig.moments import MOMENT_SCHEMA
    from hf_datasets.publish import write_folder

    videos = tiny["dataset"].replace("/data", "/videos")
    schema = MOMENT_SCHEMA.append(pa.field("kind", pa.string()))
    rows = [
        {"desc_id": number, "video_id": f"test-{colour}-0", "duration_seconds": 1.0, "start_seconds": 0.0, "end_seconds": 1.0,
         "coarse_caption": f"a {colour} thing <b>", "fine_caption": f"{colour} & more", "fine_caption_score": 1.0,
         "kind": ("static", "dynamic")[number % 2]}
        for number, colour in enumerate(("red", "green", "blue", "grey", "gone"))
    ]  # fmt: skip
    rows[-1]["video_id"] = "gone"
    card = tmp_path / "card.md"
    card.write_text(
        "---\nlanguage: en\n---\n<!-- counts: filled in by hf_datasets.publish -->\n<!-- end of counts -->\n"
    )
    built = write_folder(
        {"source": {"test": [pa.Table.from_pylist(rows, schema=schema)]}}, tmp_path / "built", card=card
    )
    config = AnalyseFIGConfig(
        dataset_config="source",
        data_dir=str(built),
        video_dir=videos,
        user_study=True,
        items_per_form=3,
        tsne=False,
        output_dir=str(tmp_path / "out"),
    )
    tables = analyse(config)
    assert tables["table_1"]["kinds"]["static"] == {"captions": 3, "score": 1.0}
    return tmp_path / "out" / "user-study"


def test_forms_show_clips_and_captions_but_not_the_kind(study, capsys):
    forms = sorted(study.glob("form-*.html"))
    assert [form.name for form in forms] == ["form-1.html", "form-2.html"]
    pages = [form.read_text(encoding="utf-8") for form in forms]
    assert [page.count('<section class="item open"') for page in pages] == [3, 1]
    assert "".join(pages).count("data:video/mp4;base64,") == 4
    assert "&lt;b&gt;" in "".join(pages)
    assert "thing <b>" not in "".join(pages)
    key = json.loads((study / ITEMS_FILE).read_text())
    assert sorted(item["desc_id"] for item in key.values()) == [0, 1, 2, 3]
    assert all(item["kind"] not in {"static", "dynamic"} or item_id in "".join(pages) for item_id, item in key.items())
    assert "data-kind" not in "".join(pages)


def answers_of(study, participant, accuracy, flip=()):
    key = json.loads((study / ITEMS_FILE).read_text())
    answers = []
    for item_id, item in key.items():
        is_static = (item["kind"] == "static") != (item["desc_id"] in flip)
        answers.append(
            {
                "item_id": item_id,
                "static": int(is_static),
                "dynamic": int(not is_static),
                "accuracy": accuracy,
            }
        )
    record = {"form": "form", "participant": participant, "answers": answers}
    (study / f"answers-1-{participant}.json").write_text(json.dumps(record))
    return record


def test_answers_add_up_to_table_3(study, capsys):
    for participant, accuracy, flip in (("ann", 5, ()), ("bob", 4, (0,)), ("eve", 3, (0, 1))):
        answers_of(study, participant, accuracy, flip)
    rows = add_up(AnalyseFIGConfig(answers=str(study)))
    # static items 0 and 2: item 0 has 1 yes of 3, item 2 has 3; dynamic items 1 and 3: 2 of 3, and 3
    assert rows["static"]["static_percent"] == pytest.approx(100 * 4 / 6)
    assert rows["dynamic"]["dynamic_percent"] == pytest.approx(100 * 5 / 6)
    assert (rows["static"]["items"], rows["static"]["answers"]) == (2, 6)
    assert rows["total_accuracy"] == pytest.approx(4)
    majority = add_up(AnalyseFIGConfig(answers=str(study), vote="majority"))
    assert majority["static"]["static_percent"] == 50
    assert majority["dynamic"]["dynamic_percent"] == 100


def test_the_total_is_the_unweighted_mean_of_both_kinds():
    files = [
        AnswerFile.model_validate(
            {"form": "f", "participant": "p", "answers": [
                {"item_id": "a", "static": 1, "dynamic": 0, "accuracy": 5},
                {"item_id": "b", "static": 1, "dynamic": 0, "accuracy": 5},
                {"item_id": "c", "static": 0, "dynamic": 1, "accuracy": 4}]}
        )
    ]  # fmt: skip
    figures, total = aggregate({"a": "static", "b": "static", "c": "dynamic"}, files)
    assert (figures["static"].accuracy, figures["dynamic"].accuracy, total) == (5, 4, 4.5)
    figures, total = aggregate({"a": None, "b": None, "c": None}, files)
    assert set(figures) == {"unknown"}
    assert figures["unknown"].static_percent == pytest.approx(200 / 3)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda record: record["answers"][0].update(accuracy=6), "less than or equal to 5"),
        (lambda record: record["answers"][0].update(static=2), "Input should be 0 or 1"),
        (lambda record: record["answers"][0].update(item_id="nope"), "answers 'nope', which is not in"),
        (lambda record: record["answers"].append(record["answers"][0]), "twice"),
        (lambda record: record.update(participant=""), "at least 1 character"),
        (lambda record: record.pop("answers"), "Field required"),
    ],
)
def test_answers_that_do_not_fit_are_refused_by_name(study, change, says):
    record = answers_of(study, "ann", 5)
    change(record)
    (study / "answers-1-ann.json").write_text(json.dumps(record))
    with pytest.raises(SystemExit, match=says) as caught:
        read_answers(study)
    assert "answers-1-ann.json" in str(caught.value)


def test_the_same_participant_answers_once(study, tmp_path):
    answers_of(study, "ann", 5)
    (study / "answers-2.json").write_text((study / "answers-1-ann.json").read_text())
    with pytest.raises(SystemExit, match=r"'ann' answers 'item-...' twice"):
        read_answers(study)
    with pytest.raises(SystemExit, match=r"holds no items\.json"):
        read_answers(tmp_path)


def test_both_kinds_are_drawn_evenly_and_by_the_seed():
    moments = [{"desc_id": number, "kind": "dynamic" if number < 90 else "static"} for number in range(100)]
    drawn = draw_items(moments, per_kind=10, seed=0)
    assert {kind: len(items) for kind, items in drawn.items()} == {"static": 10, "dynamic": 10}
    assert draw_items(moments, per_kind=5, seed=1) == draw_items(moments, per_kind=5, seed=1)
    assert draw_items(moments, per_kind=5, seed=1) != draw_items(moments, per_kind=5, seed=2)


def test_wrong_requests_are_said_without_traceback(tmp_path, shared):
    with pytest.raises(SystemExit, match="holds none of the published files"):
        data_set_in(str(tmp_path))
    with pytest.raises(SystemExit, match="holds files of charades_fig and didemo_fig"):
        analyse(AnalyseFIGConfig(release=str(shared / "data")))
    with pytest.raises(ValueError, match="must be positive"):
        AnalyseFIGConfig(items_per_form=0)
    config = AnalyseFIGConfig(
        release=write_release(tmp_path / "data"),
        user_study=True,
        tsne=False,
        output_dir=str(tmp_path / "out"),
    )
    with pytest.raises(SystemExit, match="no moment has its video"):
        analyse(config)
