"""The label grammar against the whole label table."""

import csv

import pytest

from hf_datasets.tfcovr.labels import answers_of, describe, differences, find_label, load_labels, parse_description
from hf_datasets.tfcovr.labels.gymnastics import readings


def test_all_306_descriptions_are_parsed_and_printed_back():
    labels = load_labels()
    assert len(labels) == 306
    assert [describe(label.attributes) for label in labels] == [label.description for label in labels]


def test_the_table_has_the_class_order_and_counts_of_the_release():
    labels = load_labels()
    assert [label.index for label in labels] == list(range(306))
    assert [label.label_id for label in labels[:25]][-2:] == ["23", "25"]
    assert [label.label_id for label in labels[-3:]] == ["109b", "303c", "5233d"]
    assert len({label.label_id for label in labels}) == 306
    apparatus = [label.attributes.apparatus for label in labels if label.source == "finegym"]
    counts = {name: apparatus.count(name) for name in set(apparatus)}
    assert counts == {"Balance Beam": 87, "Floor Exercise": 81, "Uneven Bar": 54, "Vault": 37}
    assert sum(label.source == "finediving" for label in labels) == 47


def test_the_shipped_table_equals_the_papers(shared):
    with (shared / "data" / "tfcovr_labels.tsv").open(encoding="utf-8") as file:
        rows = [(row["label"], row["source"], row["description"]) for row in csv.DictReader(file, delimiter="\t")]
    assert rows == [(label.label_id, label.source, label.description) for label in load_labels()]


def test_every_gymnastics_description_has_one_reading():
    gymnastics = [label.description for label in load_labels() if label.source == "finegym"]
    assert {text: len(list(readings(text))) for text in gymnastics} == dict.fromkeys(gymnastics, 1)


@pytest.mark.parametrize(
    ("label_id", "expected"),
    [
        ("0", {"entry": "round-off, flic-flac", "entry_turns": 0.5, "shape": "stretched", "turns": 1.5}),
        ("4", {"turns": 0.5, "turn_manner": "before the salto", "direction": "backward", "shape": "piked"}),
        ("23", {"entry": "tsukahara", "element": "flight", "somersaults": 0.0, "shape": "stretched"}),
        ("35", {"entry": "handspring forward", "shape": "tucked", "somersaults": 2.0, "turns": 0.0}),
        ("60", {"legs": "split", "element": "leap", "turns": 1.0, "at_least": True, "ring": True}),
        ("54", {"legs": "straddle pike or side split", "element": "jump", "turns": 1.0}),
        ("85", {"element": "turn", "turns": 2.0, "stance": "in tuck stand on one leg", "legs": "free leg straight"}),
        ("98", {"entry": "arabian", "somersaults": 2.0, "direction": "forward", "shape": "tucked"}),
        ("187", {"direction": "sideward", "takeoff": "one leg", "finish": "to side stand", "turns": 0.5}),
        ("231", {"entry": "gainer", "finish": "with legs together", "place": "at end of beam"}),
        ("238", {"element": "giant circle", "turn_manner": "hop", "turns": 1.0, "finish": "to handstand"}),
        ("268", {"entry": "swing forward or hip circle backward", "shape": "piked", "turns": 0.5}),
        ("6245d", {"takeoff": "back", "armstand": True, "twists_before": 2.5, "somersaults": 2.0, "shape": "pike"}),
        ("5156b", {"takeoff": "forward", "twists_after": 3.0, "twists": 3.0, "somersaults": 2.5}),
    ],
)
def test_a_label_is_parsed_into_its_attributes(label_id, expected):
    attributes = find_label(label_id).attributes
    assert {name: getattr(attributes, name) for name in expected} == expected


def test_other_words_for_the_same_skill_are_equal():
    assert parse_description("(FX) stag-ring jump") == parse_description("(Floor Exercise) stag ring jump")
    assert parse_description("(BB) stretched jump/hop with 1 turn") == parse_description(
        "(BB) stretched hop or jump with 1 turn"
    )


def test_labels_with_identical_text_have_the_first_as_their_answer():
    answers = answers_of()
    assert len(set(answers.values())) == 302
    assert {label: first for label, first in answers.items() if label != first} == {
        "216": "180",
        "217": "181",
        "222": "185",
        "5251b": "5253b",
    }


def test_differences_name_each_attribute_that_changes():
    source, target = find_label("40").attributes, find_label("145").attributes
    assert [(change.attribute, change.source, change.target) for change in differences(source, target)] == [
        ("apparatus", "Floor Exercise", "Balance Beam")
    ]
    assert not differences(find_label("180").attributes, find_label("216").attributes)


@pytest.mark.parametrize("label_id", ["24", "288", "switch leap", "407C", "../0"])
def test_an_unknown_label_is_an_error_that_names_it(label_id):
    with pytest.raises(ValueError, match="is not a TF-CoVR label: expected one of 306 ids") as error:
        find_label(label_id)
    assert repr(label_id) in str(error.value)


@pytest.mark.parametrize(
    "description",
    [
        "(Pommel Horse) circle",
        "(Vault) switch leap",
        "(Floor Exercise) switch leap with turn",
        "switch leap",
        "Back, 2.5 Soms.Layout, Entry",
        "",
        "(Floor Exercise) switch leap with 1 turn\nignore the above",
    ],
)
def test_a_description_outside_the_grammar_is_an_error_that_shows_the_form(description):
    with pytest.raises(ValueError, match="expected '"):
        parse_description(description)


def test_different_sports_are_not_compared():
    with pytest.raises(ValueError, match="different sports"):
        differences(find_label("0").attributes, find_label("407c").attributes)
