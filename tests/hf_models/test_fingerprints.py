"""Fingerprints depend on content alone, and stay what they were, so that stored features are recognized."""

import hashlib
import json

import pytest
import torch
from transformers import BertTokenizerFast, CLIPImageProcessor

from hf_models import AIMVideoProcessor
from hf_models.fingerprints import processor_fingerprint, tokenizer_fingerprint, weights_fingerprint


@pytest.fixture
def tokenizer(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "show", "red"]))
    return BertTokenizerFast(str(tmp_path / "vocab.txt"))


def test_the_fingerprint_of_weights_is_the_same_as_ever():
    linear = torch.nn.Linear(2, 1)
    linear.load_state_dict({"weight": torch.tensor([[1.0, 2.0]]), "bias": torch.tensor([0.5])})
    assert weights_fingerprint(linear) == "59fce5f201c5e677f0784c159fa5144304b469a66e455c11cb37b3ccadaca681"
    assert weights_fingerprint(linear.bfloat16()) != weights_fingerprint(linear.float())


def test_a_changed_weight_or_another_name_changes_the_fingerprint():
    linear = torch.nn.Linear(2, 1)
    before = weights_fingerprint(linear)
    assert weights_fingerprint(torch.nn.Sequential(linear)) != before
    with torch.no_grad():
        linear.bias += 1
    assert weights_fingerprint(linear) != before


def test_a_processor_from_another_folder_is_the_same_and_one_with_other_settings_is_not(tmp_path):
    for processor in (AIMVideoProcessor(num_frames=4), CLIPImageProcessor(crop_size={"height": 16, "width": 16})):
        processor.save_pretrained(tmp_path)
        again = type(processor).from_pretrained(tmp_path)
        assert processor_fingerprint(again) == processor_fingerprint(processor)
    assert processor_fingerprint(AIMVideoProcessor(num_frames=8)) != processor_fingerprint(
        AIMVideoProcessor(num_frames=4)
    )


def test_the_fingerprint_of_a_tokenizer_does_not_depend_on_its_last_call_and_is_the_same_as_ever(tokenizer):
    before = tokenizer_fingerprint(tokenizer)
    tokenizer(["show red", "red"], padding=True, truncation=True, max_length=4)
    assert tokenizer_fingerprint(tokenizer) == before
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    text = json.dumps(
        {name: value for name, value in backend.items() if name not in {"padding", "truncation"}}, sort_keys=True
    )
    assert before == hashlib.sha256(text.encode()).hexdigest()
    for number_words in (True, False):
        expected = hashlib.sha256(f"{number_words} {text}".encode()).hexdigest()
        assert tokenizer_fingerprint(tokenizer, number_words=number_words) == expected
