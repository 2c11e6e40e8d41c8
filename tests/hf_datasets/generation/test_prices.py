"""Prices, token counts and the dry run."""

import numpy as np
import pytest
from sentences import ROWS, SentenceTask

from hf_datasets.generation.dry_run import DryRun, tokenizer_of
from hf_datasets.generation.generate import generate
from hf_datasets.generation.images import image_part
from hf_datasets.generation.openai_chat import Sampling
from hf_datasets.generation.prices import Price, image_tokens, message_tokens, price_of, text_tokens
from hf_datasets.records import Rejection


@pytest.mark.parametrize(
    ("model", "dollars"),
    [("gpt-4o", 12.5), ("gpt-4o-2024-08-06", 12.5), ("openai/gpt-4o-mini", 0.75), ("gpt-4.1-mini-2025-04-14", 2.0)],
)
def test_dated_and_prefixed_models_have_the_price_of_their_family(model, dollars):
    assert price_of(model).usd(1e6, 1e6) == pytest.approx(dollars)


@pytest.mark.parametrize("model", ["gpt-4o-audio-preview", "gpt-4", "llama", "gpt-4ooo"])
def test_a_model_that_is_not_listed_has_no_price(model):
    assert price_of(model) is None


@pytest.mark.parametrize(("size", "tiles"), [((512, 512), 1), ((512, 640), 2), ((100, 60), 1), ((768, 768), 4)])
def test_images_cost_by_tiles(size, tiles):
    url = image_part(np.zeros((3, *size), np.uint8))["image_url"]["url"]
    assert image_tokens(url, price_of("gpt-4o")) == 85 + 170 * tiles


def test_an_image_of_unknown_size_costs_a_full_square():
    assert image_tokens("https://host/a.jpg", None) == 85 + 4 * 170


def test_tokens_are_estimated_from_bytes():
    assert text_tokens("abcde") == 2
    assert text_tokens("\u4eba") == 1
    assert message_tokens([{"role": "user", "content": [{"type": "text", "text": "abcd"}]}]) == 5


class Silent(SentenceTask):
    def write(self, row):
        if row == ROWS[1]:
            raise ValueError("no idea")
        return super().write(row)


def test_a_dry_run_counts_what_a_run_would_ask():
    chat = DryRun("m", Sampling(max_output_tokens=50), price=Price("m", 1.0, 2.0), max_answers=2)
    outcomes = list(generate(Silent(), ROWS[:3], chat))
    prompt_tokens = sum(message_tokens(SentenceTask().messages(row)) for row in ROWS[:3])
    written = text_tokens(f"{ROWS[0]}.")
    assert isinstance(outcomes[1], Rejection)
    assert (chat.meter.requests, chat.meter.input_tokens, chat.meter.output_tokens) == (3, prompt_tokens, 3 * written)
    assert (chat.high.requests, chat.high.output_tokens) == (6, 300)
    assert chat.meter.usd == pytest.approx((prompt_tokens + 2 * 3 * written) / 1e6)
    assert chat.high.usd > chat.meter.usd


def test_a_models_own_tokenizer_counts_where_this_machine_has_it(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    name, count = tokenizer_of(str(tmp_path))
    assert (name, count("a b a")) == (f"the tokenizer of {tmp_path}", 3)
    assert tokenizer_of("gpt-4o")[0].startswith("estimate")
