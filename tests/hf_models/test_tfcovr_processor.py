"""TFCoVRProcessor: what it does of its own; what it shares with VidCLIP's is in `test_vidclip_processor.py`."""

import numpy as np
import pytest
import torch

from hf_models.tfcovr.modification_texts import normalize_modification


def test_number_words_false_leaves_texts_as_they_are(processor):
    processor.number_words = False
    assert processor.tokenizer.decode(processor(text="2 turns")["input_ids"][0]) == "[CLS] 2 turns [SEP]"


def test_a_call_takes_keywords_of_its_own_and_of_the_parts_and_names_an_unknown_one(processor):
    frames = torch.randint(0, 255, (6, 3, 10, 12), dtype=torch.uint8)
    keywords = {"num_frames": 2, "padding": "max_length", "max_length": 6, "return_tensors": "np"}
    as_words, as_digits = (processor(frames, "2 turns", number_words=on, **keywords) for on in (True, False))
    assert as_words["pixel_values"].shape == (1, 2, 3, 8, 8)
    assert as_words["input_ids"].shape == as_digits["input_ids"].shape == (1, 6)
    assert (as_words["input_ids"] != as_digits["input_ids"]).any()
    assert all(isinstance(value, np.ndarray) for value in as_words.values())
    with pytest.raises(TypeError, match=r"does not know max_lenght;.* number_words"):
        processor(text="show", max_lenght=6)


def test_a_tokenizer_that_gives_no_attention_mask_by_itself_gives_one_here(processor):
    processor.tokenizer.model_input_names = ["input_ids"]  # as SigLIP's
    assert processor(text=["show", "show with"])["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("Show with 2.5 somersaults Tuck.", "show with two and a half somersaults tuck."),
        (
            "show (swing backward) double salto forward tucked with 0.5 turn.",
            "show swing backward double salto forward tucked with half turn.",
        ),
        ("in 180 split position", "in 180 split position"),
        ("2x and 2nd", "2x and 2nd"),
        ("7 7.5 1.25", "seven 7.5 1.25"),
        ("word " * 40, " ".join(["word"] * 30)),
    ],
)
def test_texts_are_normalized_as_released(text, normalized):
    assert normalize_modification(text) == normalized
