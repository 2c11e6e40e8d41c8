"""Technical captions: the messages with frames, what is accepted, what is rejected, and the rule-based generator."""

import pytest

from hf_datasets.generation.task import Task
from hf_datasets.records import Rejection
from hf_datasets.tfcovr.captions import (
    DIVING_CAPTION_PROMPT,
    GYMNASTICS_CAPTION_PROMPT,
    CaptionTask,
    ClipCaption,
    ClipToCaption,
)
from hf_datasets.tfcovr.labels import load_labels

FRAMES = [{"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{number}"}} for number in range(2)]
VAULT = ClipToCaption("clip", "gymnastics")
DIVE = ClipToCaption("clip", "diving")
TASK = CaptionTask(lambda clip: FRAMES)
ANY_FORM = CaptionTask(lambda clip: FRAMES, any_form=True)


def test_the_frames_follow_the_prompt_of_the_sport_in_order():
    assert isinstance(TASK, Task)
    system, user = TASK.messages(VAULT)
    assert system["content"] == GYMNASTICS_CAPTION_PROMPT
    assert user["content"] == FRAMES
    assert TASK.messages(DIVE)[0]["content"] == DIVING_CAPTION_PROMPT


@pytest.mark.parametrize(
    ("clip", "answer", "place"),
    [
        (VAULT, "Round-off, flic-flac, double tuck salto with 1.5 twist. (Apparatus: FX)", "FX"),
        (VAULT, "Back handspring to layout salto with full twist. (Apparatus: BB)\n", "BB"),
        (VAULT, "Switch leap with half turn on the balance beam. (Apparatus: BB)", "BB"),
        (VAULT, "Stretched salto backward with 2.5 twists (Apparatus: Unknown).", "Unknown"),
        (DIVE, "Backward takeoff, 2.5 somersaults, tuck. (Platform: 10m)", "10m"),
        (DIVE, "Reverse takeoff, 1.5 somersaults, 1 twist, pike. (Platform: 3 m)", "3m"),
        (DIVE, "Armstand, 2.5 somersaults, layout. (Platform: Unknown)", "Unknown"),
    ],
)
def test_a_caption_of_the_required_form_is_accepted_as_it_is_written(clip, answer, place):
    for task in (TASK, ANY_FORM):
        assert task.parse(clip, answer) == ClipCaption("clip", answer.strip(), place)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("Action: Flip, Turns: 3", "one line that ends in (Apparatus: ...)"),
        ("Sure! Here is a caption: the gymnast jumps.", "one line that ends in (Apparatus: ...)"),
        ("Salto with good balance. (Apparatus: FX)", "says 'balance'"),
        ("A graceful salto backward. (Apparatus: FX)", "says 'graceful'"),
        ("The gymnast shows a salto. (Apparatus: FX)", "says 'shows'"),
        ("Salto backward tucked. (Apparatus: PB)", "one line"),
        ("Salto.\nSalto. (Apparatus: FX)", "one line"),
        ("Salto adelante carpado con una pirueta. (Apparatus: VT)", "another language"),
        ("后空翻两周. (Apparatus: FX)", "another language"),
        ("salto " * 100 + "(Apparatus: FX)", "characters, 300 at most"),
        ("", "is empty"),
    ],
)
def test_other_answers_are_rejected_with_the_raw_text(answer, reason):
    rejection = TASK.parse(VAULT, answer)
    assert isinstance(rejection, Rejection)
    assert reason in rejection.reason
    assert (rejection.raw, rejection.key) == (answer, "clip")


@pytest.mark.parametrize("answer", ["Action: Flip, Turns: 3", "The gymnast shows\na graceful flip."])
def test_in_any_form_an_english_line_is_a_caption(answer):
    assert ANY_FORM.parse(VAULT, answer) == ClipCaption("clip", answer.replace("\n", " "), "Unknown")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("La gymnaste effectue un salto arrière groupé sur la poutre.", "another language"),
        (" \n", "is empty"),
        ("flip " * 99, "300 at most"),
    ],
)
def test_in_any_form_other_languages_and_endless_answers_are_rejected_too(answer, reason):
    assert reason in ANY_FORM.parse(VAULT, answer).reason


def test_the_rule_based_captions_of_all_labels_have_the_required_form():
    for label in load_labels():
        sport = "gymnastics" if label.source == "finegym" else "diving"
        clip = ClipToCaption("clip", sport, label)
        assert isinstance(TASK.parse(clip, TASK.write(clip)), ClipCaption), label.description


def test_a_clip_without_frames_or_label_is_an_error_that_names_it():
    with pytest.raises(ValueError, match="clip 'clip' has no frames"):
        CaptionTask(lambda clip: []).messages(DIVE)
    with pytest.raises(ValueError, match="clip 'clip' has no label"):
        TASK.write(VAULT)
