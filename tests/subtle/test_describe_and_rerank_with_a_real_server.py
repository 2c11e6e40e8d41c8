"""Scores of one small vision-language model by two back ends: `transformers serve`, or transformers called here."""

import base64
import io
import json
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from served_model import save_tiny_llava, served
from transformers import AutoProcessor, LlavaForConditionalGeneration

from hf_datasets.generation.cache import AnswerCache
from hf_datasets.generation.chat import Answer
from hf_datasets.generation.generate import generate
from hf_datasets.generation.images import image_part
from hf_datasets.generation.openai_chat import OpenAIChat, Sampling
from hf_datasets.generation.prices import Meter
from hf_datasets.generation.relevance import PairToScore, RelevanceTask
from hf_datasets.records import Rejection

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]
MAX_TOKENS = 24
WANTED = {10: 2, 250: 9}
"""Brightness of the clip to judge -> the score that the model is trained to give."""


def image(level):
    return image_part(np.full((3, 16, 16), level, np.uint8))


def pairs(levels):
    query = partial(list, [image(120)])
    return [PairToScore(f"{level}", "brighter", query, partial(list, [image(level)])) for level in levels]


def inputs_of(processor, messages):
    """What the model reads of a request; images are those that the request carries."""
    parts = [part for message in messages if not isinstance(message["content"], str) for part in message["content"]]
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    images = [Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) for url in urls]
    shown = json.loads(json.dumps(messages).replace('"type": "image_url"', '"type": "image"'))
    text = processor.apply_chat_template(shown, tokenize=False, add_generation_prompt=True)
    return processor(images=images, text=text, return_tensors="pt")


class InProcess:
    """A back end that calls the model's own `generate`."""

    sampling, window, keeps_answers = {"max_new_tokens": MAX_TOKENS}, 1, True

    def __init__(self, folder):
        self.model, self.meter = str(folder), Meter(None)
        self.processor = AutoProcessor.from_pretrained(folder)
        self.network = LlavaForConditionalGeneration.from_pretrained(folder).eval()

    async def answer(self, request):
        inputs = inputs_of(self.processor, request.messages)
        with torch.inference_mode():
            made = self.network.generate(**inputs, max_new_tokens=MAX_TOKENS, do_sample=False)
        new = made[0, inputs["input_ids"].shape[1] :]
        reason = "length" if len(new) == MAX_TOKENS else "stop"
        return Answer(self.processor.tokenizer.decode(new, skip_special_tokens=True), finish_reason=reason)


def train(folder):
    """Teach the model a score for each brightness, so that its answers are scores."""
    torch.manual_seed(0)
    processor, model = AutoProcessor.from_pretrained(folder), LlavaForConditionalGeneration.from_pretrained(folder)
    for weight in model.parameters():
        if weight.ndim > 1:  # small random weights hardly tell images apart
            torch.nn.init.normal_(weight, std=0.3)
    examples = []
    for pair, score in zip(pairs(WANTED), WANTED.values(), strict=True):
        asked = inputs_of(processor, RelevanceTask().messages(pair))
        ids = processor.tokenizer(f'{{"score": {score}}}', add_special_tokens=False, return_tensors="pt")["input_ids"]
        answer = torch.cat([ids, torch.tensor([[processor.tokenizer.eos_token_id]])], dim=1)
        input_ids = torch.cat([asked["input_ids"], answer], dim=1)
        labels = torch.cat([torch.full_like(asked["input_ids"], -100), answer], dim=1)
        examples.append({"input_ids": input_ids, "pixel_values": asked["pixel_values"], "labels": labels})
    batch = {
        name: torch.cat([example[name] for example in examples]) for name in ("input_ids", "pixel_values", "labels")
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(1000):
        loss = model(**batch, attention_mask=torch.ones_like(batch["input_ids"])).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if loss.item() < 0.003:
            break
    assert loss.item() < 0.05
    model.generation_config.eos_token_id = processor.tokenizer.eos_token_id
    model.generation_config.pad_token_id = processor.tokenizer.eos_token_id
    model.save_pretrained(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A LLaVA of a few thousand weights that answers with scores."""
    folder = tmp_path_factory.mktemp("served") / "tiny-judge"
    save_tiny_llava(folder, every_byte=True)
    train(folder)
    return folder


def test_a_server_and_this_process_give_the_same_scores(folder, tmp_path):
    levels = [*WANTED, 60, 130, 190]
    direct = list(generate(RelevanceTask(), pairs(levels), InProcess(folder), max_answers=1))
    assert direct[: len(WANTED)] == list(WANTED.values())
    with served(folder) as url:
        chat = OpenAIChat(str(folder), base_url=url, api_key="x", sampling=Sampling(0.0, MAX_TOKENS))
        cache = AnswerCache(tmp_path / "answers.sqlite")
        over_http = list(generate(RelevanceTask(), pairs(levels), chat, cache, max_answers=1))
    assert [plain(one) for one in over_http] == [plain(one) for one in direct]


def plain(outcome):
    """A score, or the answer that is none."""
    return (outcome.reason, outcome.raw) if isinstance(outcome, Rejection) else outcome
