"""Technical captions: the messages with frames, what is accepted, what is rejected, and the rule-based generator."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from hf_datasets.generation.task import Task
from hf_datasets.records import Rejection
from hf_datasets.tfcovr.captions import (
    DIVING_CAPTION_PROMPT,
    GYMNASTICS_CAPTION_PROMPT,
    CaptionTask,
    ClipCaption,
    ClipFrames,
)
from hf_datasets.tfcovr.labels import load_labels

FRAMES = np.stack([np.full((3, 8, 8), value, np.uint8) for value in (20, 200)])
VAULT = ClipFrames("clip", "gymnastics", FRAMES)
DIVE = ClipFrames("clip", "diving", FRAMES[:1])


def test_the_frames_follow_the_prompt_in_order_as_data_urls():
    task = CaptionTask()
    assert isinstance(task, Task)
    system, user = task.messages(VAULT)
    assert system["content"] == GYMNASTICS_CAPTION_PROMPT
    urls = [part["image_url"]["url"] for part in user["content"]]
    data = [base64.b64decode(url.removeprefix("data:image/jpeg;base64,")) for url in urls]
    assert [Image.open(io.BytesIO(jpeg)).getpixel((4, 4))[0] for jpeg in data] == [20, 200]
    assert task.messages(DIVE)[0]["content"] == DIVING_CAPTION_PROMPT


@pytest.mark.parametrize(
    ("clip", "answer", "place"),
    [
        (VAULT, "Round-off, flic-flac, double tuck salto with 1.5 twist. (Apparatus: FX)", "FX"),
        (VAULT, "Back handspring to layout salto with full twist. (Apparatus: BB)\n", "BB"),
        (VAULT, "Stretched salto backward with 2.5 twists (Apparatus: Unknown).", "Unknown"),
        (DIVE, "Backward takeoff, 2.5 somersaults, tuck. (Platform: 10m)", "10m"),
        (DIVE, "Reverse takeoff, 1.5 somersaults, 1 twist, pike. (Platform: 3 m)", "3m"),
    ],
)
def test_a_caption_of_the_required_form_is_accepted(clip, answer, place):
    caption = CaptionTask().parse(clip, answer)
    assert isinstance(caption, ClipCaption)
    assert caption.place == place
    assert answer.startswith(caption.caption)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("Action: Flip, Turns: 3", "one line that ends in (Apparatus: ...)"),
        ("A graceful salto backward. (Apparatus: FX)", "says 'graceful'"),
        ("The gymnast shows a salto. (Apparatus: FX)", "says 'shows'"),
        ("Salto backward tucked. (Apparatus: PB)", "one line"),
        ("Salto.\nSalto. (Apparatus: FX)", "one line"),
        ("salto " * 100 + "(Apparatus: FX)", "characters, 300 at most"),
        ("", "one line"),
    ],
)
def test_other_answers_are_rejected_with_the_raw_text(answer, reason):
    rejection = CaptionTask().parse(VAULT, answer)
    assert isinstance(rejection, Rejection)
    assert reason in rejection.reason
    assert (rejection.raw, rejection.key) == (answer, "clip")


def test_the_rule_based_captions_of_all_labels_have_the_required_form():
    task = CaptionTask()
    for label in load_labels():
        sport = "gymnastics" if label.source == "finegym" else "diving"
        clip = ClipFrames("clip", sport, FRAMES, label=label.label_id)
        assert isinstance(task.parse(clip, task.write(clip)), ClipCaption), label.description


def test_a_clip_without_frames_or_label_is_an_error_that_names_it():
    with pytest.raises(ValueError, match="clip 'empty' has no frames"):
        CaptionTask().messages(ClipFrames("empty", "diving", ()))
    with pytest.raises(ValueError, match="clip 'clip' has no label"):
        CaptionTask().write(VAULT)
