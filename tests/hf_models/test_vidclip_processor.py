"""VidCLIP's processor: which keywords it takes, what it makes of them, and that it refuses the rest."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_vidclip import END, FRAMES, make_processor
from transformers import AutoProcessor

from hf_models import VidCLIPProcessor

VIDEO = torch.arange(9, dtype=torch.uint8)[:, None, None, None].expand(9, 3, 20, 24)


def test_long_paragraphs_are_cut_but_keep_their_end_token():
    batch = make_processor()(VIDEO, ["a dog runs", "then " * 300])
    assert batch["pixel_values"].shape == (1, FRAMES, 3, 16, 16)
    assert batch["input_ids"].shape == (2, 160)
    assert batch["input_ids"][1, -1] == END
    assert batch["attention_mask"].sum(1).tolist() == [4, 160]
    with pytest.raises(ValueError, match="videos, text or both"):
        make_processor()()


@pytest.mark.parametrize("grouped", [False, True])
def test_keywords_of_the_tokenizer_and_of_the_video_processor_work_plain_or_grouped(grouped):
    text = {"padding": "max_length", "max_length": 7}
    videos = {"do_sample_frames": False, "size": {"height": 8, "width": 8}}
    keywords = {"text_kwargs": text, "videos_kwargs": videos} if grouped else text | videos
    batch = make_processor()(VIDEO, ["a", "then " * 300], **keywords)
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (2, 7)
    assert batch["input_ids"][1, -1] == END
    assert batch["pixel_values"].shape == (1, 9, 3, 8, 8)


def test_a_call_may_ask_for_arrays_for_no_padding_and_for_types_of_tokens_and_does_not_change_the_next():
    processor = make_processor()
    arrays = processor(VIDEO, "a", return_tensors="np")
    assert {name: type(value) for name, value in arrays.items()} == dict.fromkeys(arrays, np.ndarray)
    assert processor(text=["a", "a dog"], padding=False, return_tensors=None)["input_ids"] == [[1, END], [1, 2, END]]
    assert "token_type_ids" in processor(text="a", return_token_type_ids=True)
    batch = processor(text=["a", "a dog"])
    assert (set(batch), batch["input_ids"].shape) == ({"input_ids", "attention_mask"}, (2, 3))


@pytest.mark.parametrize(
    ("keywords", "named"),
    [
        ({"max_len": 7}, "max_len"),
        ({"images": []}, "images"),
        ({"sampling_rate": 16_000}, "sampling_rate"),
        ({"text_kwargs": {"size": 7}}, r"text_kwargs\['size'\]"),
        ({"videos_kwargs": {"frames": 7}}, r"videos_kwargs\['frames'\]"),
        ({"images_kwargs": {"max_length": 7}}, r"images_kwargs\['max_length'\]"),
        ({"common_kwargs": {"padding": True}}, r"common_kwargs\['padding'\]"),
        ({"text_pair": "a"}, "text_pair"),
    ],
    ids=str,
)
def test_an_unknown_keyword_is_named_and_refused(keywords, named):
    with pytest.raises(TypeError, match=f"does not know {named};.* max_length,"):
        make_processor()(VIDEO, "a dog", **keywords)


def test_a_keyword_given_twice_is_refused():
    with pytest.raises(ValueError, match="padding was passed two times"):
        make_processor()(text="a dog", padding=True, text_kwargs={"padding": "max_length"})


def test_what_a_tokenizer_was_saved_with_does_not_change_the_longest_text(tmp_path):
    processor = make_processor()
    processor(text=["a dog"], max_length=3)  # a fast tokenizer keeps this, and saves it
    processor.save_pretrained(tmp_path)
    batch = AutoProcessor.from_pretrained(tmp_path)(text="then " * 300)
    assert batch["input_ids"].shape == (1, 160)


def test_a_processor_saved_by_an_earlier_version_loads_and_works_as_before():
    folder = Path(__file__).parents[2] / "recipes" / "weights" / "miniature-vidclip"
    processor = AutoProcessor.from_pretrained(folder)
    assert type(processor) is VidCLIPProcessor
    batch = processor(VIDEO, "A gymnast jumps. " * 99)
    assert batch["pixel_values"].shape == (1, 16, 3, 48, 48)
    assert list(batch)[1:] == ["input_ids", "attention_mask"]
    assert batch["input_ids"].shape == (1, 160)


def test_missing_negatives_of_a_contrast_are_padded_at_level_0():
    processor, positives = make_processor(), ["a dog runs", "a dog"]
    batch = processor.tokenize_contrasts(positives, [["runs a dog"], []], [[2], []])
    assert batch["negative_levels"].tolist() == [[2], [0]]
    assert torch.equal(batch["input_ids"], processor(text=positives)["input_ids"])
    expected = processor(text=["runs a dog", "a dog"])
    for name in ("input_ids", "attention_mask"):
        assert torch.equal(batch[f"negative_{name}"], expected[name][:, None])
    assert processor.tokenize_contrasts(positives, [[], []], [[], []])["negative_levels"].tolist() == [[0], [0]]
    with pytest.raises(ValueError, match=r"2 positives with \[1, 0\] negatives and \[1, 1\] levels"):
        processor.tokenize_contrasts(positives, [["runs a dog"], []], [[2], [1]])
