"""The forms of the user study, and the answers that they export."""

import json
from functools import partial

import pyarrow as pa
import pytest

from hf_datasets.fig.moments import MOMENT_SCHEMA
from hf_datasets.publish import COUNTS_END, COUNTS_START, write_folder
from subtle.evaluate import analyse_fig
from subtle.evaluate.analyse_fig import add_up, run
from subtle.evaluate.options import AnalyzeFIGConfig
from subtle.fig.user_study import ITEMS_FILE, AnswerFile, aggregate, draw_items, read_answer_files, write_forms


@pytest.fixture
def study(tmp_path, tiny, monkeypatch):
    """Moments in the tiny videos, built with kinds, and the folder of their forms."""
    videos = tiny["dataset"].replace("/data", "/videos")
    schema = MOMENT_SCHEMA.append(pa.field("kind", pa.string()))
    rows = [
        {"desc_id": number, "video_id": f"test-{color}-0", "duration_seconds": 1.0,  # none is called test-gone-0
         "start_seconds": 0.0, "end_seconds": 1.0,
         "coarse_caption": f"a {color} thing <b>", "fine_caption": f"{color} & more", "fine_caption_score": 1.0,
         "kind": ("static", "dynamic")[number % 2]}
        for number, color in enumerate(("red", "green", "blue", "grey", "gone"))
    ]  # fmt: skip
    card = tmp_path / "card.md"
    card.write_text(f"---\nlanguage: en\n---\n{COUNTS_START}\n{COUNTS_END}\n")
    built = write_folder({"source": {"test": [pa.Table.from_pylist(rows, schema)]}}, tmp_path / "built", card=card)
    places = {"data_dir": str(built), "video_dir": videos, "output_dir": str(tmp_path / "out")}
    config = AnalyzeFIGConfig(dataset_config="source", user_study=True, **places)
    monkeypatch.setattr(analyse_fig, "write_forms", partial(write_forms, per_form=3))
    tables = run(config)
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
        kinds = {"static": int(is_static), "dynamic": int(not is_static)}
        answers.append({"item_id": item_id, "accuracy": accuracy, **kinds})
    record = {"form": "form", "participant": participant, "answers": answers}
    (study / f"answers-1-{participant}.json").write_text(json.dumps(record))
    return record


def test_an_item_counts_once_three_participants_have_answered_it(study, capsys):
    answers_of(study, "ann", 5)
    answers_of(study, "bob", 5)
    with pytest.raises(SystemExit, match="no item has 3 answers"):
        add_up(AnalyzeFIGConfig(answers=str(study)))
    record = answers_of(study, "eve", 2)
    record["answers"] = record["answers"][:3]
    (study / "answers-1-eve.json").write_text(json.dumps(record))
    rows = add_up(AnalyzeFIGConfig(answers=str(study)))
    assert rows["items_left_out"] == 1
    assert "1 of 4 items, with fewer than 3 answers" in capsys.readouterr().out


def test_answers_add_up_to_table_3(study, capsys):
    for participant, accuracy, flip in (("ann", 5, ()), ("bob", 4, (0,)), ("eve", 3, (0, 1))):
        answers_of(study, participant, accuracy, flip)
    rows = add_up(AnalyzeFIGConfig(answers=str(study)))
    # static items 0 and 2: item 0 has 1 yes of 3, item 2 has 3; dynamic items 1 and 3: 2 of 3, and 3
    assert rows["static"]["static_percent"] == pytest.approx(100 * 4 / 6)
    assert rows["dynamic"]["dynamic_percent"] == pytest.approx(100 * 5 / 6)
    assert (rows["static"]["items"], rows["static"]["answers"]) == (2, 6)
    assert rows["total_accuracy"] == pytest.approx(4)


def test_the_total_is_the_unweighted_mean_of_both_kinds():
    files = [
        AnswerFile.model_validate(
            {"form": "f", "participant": "p", "answers": [
                {"item_id": "a", "static": 1, "dynamic": 0, "accuracy": 5},
                {"item_id": "b", "static": 1, "dynamic": 0, "accuracy": 5},
                {"item_id": "c", "static": 0, "dynamic": 1, "accuracy": 4}]}
        )
    ]  # fmt: skip
    measured, total = aggregate({"a": "static", "b": "static", "c": "dynamic"}, files, least_answers=1)
    assert (measured["static"].accuracy, measured["dynamic"].accuracy, total) == (5, 4, 4.5)
    measured, total = aggregate({"a": None, "b": None, "c": None}, files, least_answers=1)
    assert set(measured) == {"unknown"}
    assert measured["unknown"].static_percent == pytest.approx(200 / 3)


def test_answers_that_do_not_fit_are_refused_by_name(study):
    changes = [
        (lambda record: record["answers"][0].update(accuracy=6), "less than or equal to 5"),
        (lambda record: record["answers"][0].update(static=2), "Input should be 0 or 1"),
        (lambda record: record["answers"][0].update(item_id="nope"), "answers 'nope', which is not in"),
        (lambda record: record["answers"].append(record["answers"][0]), "twice"),
        (lambda record: record.update(participant=""), "at least 1 character"),
        (lambda record: record.pop("answers"), "Field required"),
    ]
    for change, says in changes:
        record = answers_of(study, "ann", 5)
        change(record)
        (study / "answers-1-ann.json").write_text(json.dumps(record))
        with pytest.raises(SystemExit, match=says) as caught:
            read_answer_files(study)
        assert "answers-1-ann.json" in str(caught.value)


def test_the_same_participant_answers_once(study, tmp_path):
    answers_of(study, "ann", 5)
    (study / "answers-2.json").write_text((study / "answers-1-ann.json").read_text())
    with pytest.raises(SystemExit, match=r"'ann' answers 'item-...' twice"):
        read_answer_files(study)
    with pytest.raises(SystemExit, match=r"holds no items\.json"):
        read_answer_files(tmp_path)


def test_both_kinds_are_drawn_evenly_and_by_the_seed():
    moments = [{"desc_id": number, "kind": "dynamic" if number < 90 else "static"} for number in range(100)]
    drawn = draw_items(moments, per_kind=10, seed=0)
    assert {kind: len(items) for kind, items in drawn.items()} == {"static": 10, "dynamic": 10}
    assert draw_items(moments, per_kind=5, seed=1) == draw_items(moments, per_kind=5, seed=1)
    assert draw_items(moments, per_kind=5, seed=1) != draw_items(moments, per_kind=5, seed=2)
