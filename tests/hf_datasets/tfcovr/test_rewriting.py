"""Rewriting captions: the request, what is accepted, what is rejected, and the rule-based generator."""

import json

import pytest

from hf_datasets.generation.task import Task
from hf_datasets.records import Rejection
from hf_datasets.tfcovr.caption_scores import score_caption
from hf_datasets.tfcovr.labels import find_label, load_labels
from hf_datasets.tfcovr.rewriting import CaptionedQuery, RewriteTask, RewrittenCaption, rewriting_examples

LEAP = CaptionedQuery("q", "gymnastics", "Switch leap. (Apparatus: FX)", "show on BB with 1 turn", find_label("146"))


def test_the_request_holds_caption_and_modification_as_data_after_the_papers_examples():
    assert isinstance(RewriteTask(), Task)
    system, *turns, request = RewriteTask().messages(LEAP)
    assert "gymnastics clips" in system["content"]
    assert "ends in (Apparatus: ...)" in system["content"]
    assert len(turns) == 10
    assert json.loads(request["content"]) == {"caption": LEAP.caption, "modification_text": LEAP.modification_text}
    assert "146" not in json.dumps([system, request])
    loose = RewriteTask(any_form=True).messages(LEAP)
    assert "(Apparatus: ...)" not in loose[0]["content"]
    dive = RewriteTask().messages(CaptionedQuery("q", "diving", "c", "m"))
    assert "diving clips" in dive[0]["content"]


@pytest.mark.parametrize("sport", ["gymnastics", "diving"])
def test_the_examples_have_the_form_that_is_asked_for(sport):
    for caption, text, target in rewriting_examples(sport):
        query = CaptionedQuery("q", sport, caption, text)
        assert RewriteTask().parse(query, json.dumps({"target_caption": target})) == RewrittenCaption("q", target)


@pytest.mark.parametrize(
    "answer",
    [
        '{"target_caption": "Switch leap with 1 turn. (Apparatus: BB)"}',
        '```json\n{"target_caption": "Switch leap with 1 turn. (Apparatus: BB)"}\n```',
        '{"target_caption": "Switch leap with 1 turn. (Apparatus: BB)",',
        "Switch leap with 1 turn. (Apparatus: BB)\n",
    ],
)
def test_json_and_a_plain_line_are_read(answer):
    assert RewriteTask().parse(LEAP, answer) == RewrittenCaption("q", "Switch leap with 1 turn. (Apparatus: BB)")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "is empty"),
        ('{"target_caption": ""}', "is empty"),
        ('{"caption": "Switch leap. (Apparatus: BB)"}', "holds no target_caption"),
        ("The gymnast now turns on the beam.", "is not one line that ends in (Apparatus: ...)"),
        ('{"target_caption": "Salto adelante carpado con una pirueta. (Apparatus: BB)"}', "another language"),
        ("word " * 999, "2000 at most"),
    ],
)
def test_other_answers_are_rejected_with_the_raw_text(answer, reason):
    rejection = RewriteTask().parse(LEAP, answer)
    assert isinstance(rejection, Rejection)
    assert reason in rejection.reason
    assert (rejection.raw, rejection.key) == (answer, "q")


def test_in_any_form_prose_is_a_caption():
    found = RewriteTask(any_form=True).parse(LEAP, '{"target_caption": "The gymnast now turns\\n on the beam."}')
    assert found == RewrittenCaption("q", "The gymnast now turns on the beam.")


def test_the_rule_writes_a_caption_that_says_all_of_the_targets_label():
    for label in load_labels():
        sport = "gymnastics" if label.source == "finegym" else "diving"
        query = CaptionedQuery("q", sport, "c", "m", label)
        written = RewriteTask().parse(query, RewriteTask().write(query))
        assert score_caption(written.target_caption, label).all_right, label.description
    with pytest.raises(ValueError, match="query 'q' has no target label"):
        RewriteTask().write(CaptionedQuery("q", "diving", "c", "m"))
