"""The papers' prompts: word for word as they are printed, filled in, and answered in the forms that they ask for."""

import json
import re

import pytest

from hf_datasets.comp.disruptions import choose_order
from hf_datasets.comp.tasks import PRINTED_REORDER_PROMPT, Paragraph, ReorderingTask
from hf_datasets.fig.paper_prompts import LISTINGS
from hf_datasets.fig.prompts import PROMPTS
from hf_datasets.fig.tasks import (
    AnswersTask,
    AttributesTask,
    DynamicRow,
    DynamicTask,
    Keyframe,
    KeyframeAttributes,
    QuestionsTask,
    StaticRow,
    StaticTask,
    rewriting_tasks,
)
from hf_datasets.generation.prices import Meter
from hf_datasets.records import LabelPair, Moment, Rejection
from hf_datasets.seeds import generator_for
from hf_datasets.tfcovr.captions import CAPTION_PROMPTS, CaptionTask, ClipToCaption
from hf_datasets.tfcovr.labels import load_labels
from hf_datasets.tfcovr.modifications.task import ModificationTask, printed_prompt

MOMENT = Moment(7, "v", 30.0, 2.0, 9.0, "a {person} closes the big door.", "", None)
QUESTIONS = tuple(f"question {number}?" for number in range(1, 7))
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
PRINTED = {
    **{f"004 {name}": prompt for name, prompt in LISTINGS.items()},
    **{f"000 captions of {sport}": prompt for sport, prompt in CAPTION_PROMPTS["paper"].items()},
    "000 gymnastics": printed_prompt("gymnastics"),
    "000 diving": printed_prompt("diving").partition("In-Context Examples:")[2],
    "003 reordering": PRINTED_REORDER_PROMPT,
}


def words_of(text):
    """Letters alone: the texts of the papers are read from pages, with numbered lines, arrows and typeface."""
    return re.findall(r"[a-z]+", re.sub(r"\\\w+", " ", text).lower())


@pytest.mark.parametrize("name", PRINTED)
def test_a_prompt_is_that_of_the_paper_word_for_word(name, shared):
    (path,) = (shared / "seeds").glob(f"{name[:3]}_*.txt")
    paper, prompt = f" {' '.join(words_of(path.read_text(encoding='utf-8')))} ", words_of(PRINTED[name])
    windows = [" ".join(prompt[first : first + 6]) for first in range(len(prompt) - 5)]
    strange = [window for window in windows if f" {window} " not in paper]
    # A page break cuts a sentence of two listings, and a formula stands in a third.
    assert len(strange) <= 5, strange


def printed(task, row):
    """What the paper's prompt says of a row; the template is what the provenance keeps."""
    *_, message = task.messages(row)
    content = message["content"]
    meter = Meter(None)
    meter.note_prompt(task.name, task.messages(row), task.template)
    assert list(meter.prompts[task.name].values()) == [PROMPTS["paper"][task.name]]
    return content if isinstance(content, str) else content[0]["text"]


def test_the_listings_are_filled_in_where_they_have_a_place():
    paper = {"prompts": "paper"}
    frames = (KeyframeAttributes("a hall", "a red coat", "A person."), KeyframeAttributes("a hall", "a cap", "A man."))
    told = printed(StaticTask(**paper), StaticRow(MOMENT, frames))
    assert f'is "{MOMENT.coarse_caption}" There are 2 keyframes' in told
    assert "2. Background: a hall\nObjects Attributes: a cap\nDesc: A man." in told
    assert told.endswith('"3": "..."\n}')
    assert f'"{MOMENT.coarse_caption}". You should prepare' in printed(QuestionsTask(**paper), DynamicRow(MOMENT))
    row = DynamicRow(MOMENT, QUESTIONS, tuple("abcdef"), "It closes.")
    asked = printed(AnswersTask(lambda moment: (IMAGE,) * 8, **paper), row)
    assert "duration of 7.0 seconds and is sampled to 8 frames" in asked
    assert "\n6. question 6?\n" in asked
    enriching = printed(DynamicTask(**paper), row)
    assert "5.\n(Q) question 5?\n(A) e\n" in enriching
    assert "question 6?" not in enriching
    assert "from 2.0 to 9.0 seconds" in enriching
    task = AttributesTask(lambda moment, seconds: IMAGE, **paper)
    assert f'describes "{MOMENT.coarse_caption}". Now' in printed(task, Keyframe(MOMENT, 3.0))
    assert task.messages(Keyframe(MOMENT, 3.0))[0]["content"][1] is IMAGE
    for rewriting in rewriting_tasks("paper").values():
        assert f'is:\n"{MOMENT.coarse_caption}".\nNow' in printed(rewriting, MOMENT)


def test_answers_in_the_forms_of_the_listings_are_read():
    attributes = AttributesTask(lambda moment, seconds: IMAGE, prompts="paper")
    answer = '"Background: a hall,\n\nObjects Attributes: a red coat"\n\n"Desc: A person in red."'
    assert attributes.parse(Keyframe(MOMENT, 3.0), answer) == KeyframeAttributes(
        "a hall", "a red coat", "A person in red."
    )
    answers = AnswersTask(lambda moment: (IMAGE,), prompts="paper")
    for between in ("\n", "\n\n", "\n\n**Description:** "):
        found = answers.parse(DynamicRow(MOMENT, QUESTIONS[:2]), f"1. To the left. 2. Slowly.{between}The door moves.")
        assert (found.answers, found.description) == (("To the left.", "Slowly."), "The door moves.")
    questions = QuestionsTask(prompts="paper").parse(DynamicRow(MOMENT), '"1. A? 2. B? 3. C? 4. D? 5. E?"')
    assert questions == ("A?", "B?", "C?", "D?", "E?")
    listed = 'Sure:\n1. "A person closes a door."\n2. "A person shuts the big door."\n3. "A boy closes the big door."'
    assert len(rewriting_tasks("paper")["positives"].parse(MOMENT, listed).captions) == 3


def test_a_pair_of_labels_is_asked_for_as_in_the_papers_examples():
    labels = {label.source: label for label in load_labels()}
    task = ModificationTask(prompts="paper")
    assert task.schema is None
    for source, ending in (("finegym", "Instruction:"), ("finediving", "Modification text:")):
        label = labels[source].label_id
        prompt, asked = task.messages(LabelPair(label, label, "temporal", 1.0))
        assert prompt["content"].startswith("You are an expert in designing tasks")
        assert asked["content"].endswith(ending)
        assert labels[source].description in asked["content"]
    assert "show 0.5 turn with spiked salto backward." in printed_prompt("gymnastics")
    pair = LabelPair("45", "146", "event", 0.6)
    for form in ("Instruction: {}", "**Instruction:** {}", "{}", '"{}"', "Modification text: {}"):
        found = task.parse(pair, form.format("Show on Balance Beam with 1 turn."))
        assert found.modification_text == "Show on Balance Beam with 1 turn."


def test_a_caption_in_the_papers_form_may_break_before_the_apparatus_and_be_an_item():
    task = CaptionTask(lambda clip: [IMAGE], prompts="paper")
    clip = ClipToCaption("c", "gymnastics")
    assert task.messages(clip)[0]["content"].startswith("You are an expert gymnastics judge.\n\nYour task is")
    found = task.parse(clip, "- Stretched salto backward with 2.5 twists.\n(Apparatus: VT)")
    assert (found.caption, found.place) == ("Stretched salto backward with 2.5 twists. (Apparatus: VT)", "VT")


ROW = Paragraph("v/reorder", ("A man lifts a heavy bar.", "He throws it on the hard floor.", "He drinks cold water."))


def test_with_the_papers_prompt_the_model_chooses_the_order():
    task = ReorderingTask(prompts="paper")
    prompt, asked = task.messages(ROW)
    assert (prompt["content"], asked["content"], task.schema) == (PRINTED_REORDER_PROMPT, ROW.text, None)
    answer = "He drinks cold water. Then a man lifts a heavy bar. Finally, he throws it on the hard floor."
    assert task.parse(ROW, answer).order == (2, 0, 1)
    assert task.parse(ROW, ROW.text).reason == "keeps the order of the sentences"
    assert isinstance(task.parse(ROW, answer.replace("Then", "Before that,")), Rejection)
    written = task.parse(ROW, task.write(ROW))
    assert written.order == choose_order(3, generator_for(ROW.key, ROW.seed))
    assert ReorderingTask().parse(ROW, json.dumps({"paragraph": ROW.text})).order is None
