"""TFCoVRProcessor: what it makes of clips and texts, which keywords it takes, and which it refuses."""

import numpy as np
import pytest
import torch

from hf_models.tfcovr.modification_texts import normalize_modification


def test_number_words_false_leaves_texts_as_they_are(processor):
    processor.number_words = False
    assert processor.tokenizer.decode(processor(text="2 turns")["input_ids"][0]) == "[CLS] 2 turns [SEP]"


def test_keywords_of_the_tokenizer_reach_it_plain_or_grouped(processor):
    for keywords in (
        {"padding": "max_length", "max_length": 6},
        {"text_kwargs": {"padding": "max_length", "max_length": 6}},
    ):
        batch = processor(text=["show with 2 turns and a half", "show"], **keywords)
        assert batch["input_ids"].shape == (2, 6)
    untouched = processor(text="show with two turns", truncation=False, padding=False, return_tensors="np")
    assert isinstance(untouched["input_ids"], np.ndarray)
    assert set(untouched) == {"input_ids", "attention_mask"}
    assert "token_type_ids" in processor(text="show", return_token_type_ids=True)
    assert processor(text=["show"] * 2)["input_ids"].shape == (2, 3), "a call does not change the next"


def test_keywords_of_the_video_processor_reach_it_plain_or_grouped(processor):
    frames = torch.randint(0, 255, (6, 3, 10, 12), dtype=torch.uint8)
    for keywords in ({"num_frames": 2}, {"videos_kwargs": {"num_frames": 2}}):
        batch = processor(videos=frames, text="show", **keywords)
        assert batch["pixel_values"].shape == (1, 2, 3, 8, 8)
    both = processor(videos=frames, text="show", return_tensors="np")
    assert all(isinstance(value, np.ndarray) for value in both.values())
    texts = [processor(text="2 turns", number_words=on)["input_ids"].tolist() for on in (True, False)]
    assert texts[0] != texts[1]


@pytest.mark.parametrize(
    "keywords",
    [
        {"max_lenght": 6},
        {"text_kwargs": {"max_lenght": 6}},
        {"videos_kwargs": {"max_lenght": 6}},
        {"images_kwargs": {"max_lenght": 6}},
    ],
    ids=str,
)
def test_an_unknown_keyword_of_a_processor_is_named(processor, keywords):
    with pytest.raises(TypeError, match="images_kwargs" if "images_kwargs" in keywords else "max_lenght"):
        processor(text="show", **keywords)


def test_a_tokenizer_that_gives_no_attention_mask_by_itself_gives_one_here(processor):
    processor.tokenizer.model_input_names = ["input_ids"]  # as SigLIP's
    assert processor(text=["show", "show with"])["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]


def test_a_processor_with_nothing_to_do_says_so(processor):
    with pytest.raises(ValueError, match="give videos, text or both"):
        processor()


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
