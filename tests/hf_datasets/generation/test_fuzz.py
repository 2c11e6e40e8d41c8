"""Mutated answers: every text of a server or model becomes an answer or a rejection, fast, and counts never fall.

The quick part is in every run; `SUBTLE_FUZZ_INPUTS=100000 pytest -m hostile` runs as many inputs of each kind.
"""

import json
import os
import random
import time

import pytest
from chat_server import ChatServer, result
from mutations import mutated_json, mutated_text
from sentences import ROWS, SentenceTask, answer

from hf_datasets.comp.judge import JudgedPair, JudgeTask
from hf_datasets.comp.tasks import ActionTask, Paragraph, ReorderingTask, StructuringTask
from hf_datasets.fig.tasks import (
    AnswersTask,
    AttributesTask,
    DynamicRow,
    DynamicTask,
    Keyframe,
    QuestionsTask,
    StaticRow,
    StaticTask,
    rewriting_tasks,
)
from hf_datasets.generation.batch import OpenAIBatchChat
from hf_datasets.generation.cache import AnswerCache
from hf_datasets.generation.chat import Answer, NoAnswerError, Request
from hf_datasets.generation.generate import generate, judge_answer
from hf_datasets.generation.openai_chat import Limits, OpenAIChat
from hf_datasets.generation.prices import Price
from hf_datasets.generation.server import MalformedResponseError
from hf_datasets.records import LabelPair, Moment, Rejection
from hf_datasets.tfcovr.captions import CaptionTask, ClipToCaption
from hf_datasets.tfcovr.labels import Label, find_label
from hf_datasets.tfcovr.modifications.task import ModificationTask
from hf_datasets.tfcovr.rewriting import CaptionedQuery, RewriteTask

SECONDS = 1.0
"""No text that a task reads may take longer; usual ones take a millisecond."""
INPUTS = os.environ.get("SUBTLE_FUZZ_INPUTS")
COMPLETION = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "A man.", "refusal": None}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
}
REQUEST = Request(SentenceTask(), ROWS[0], SentenceTask().messages(ROWS[0]))
MOMENT = Moment(1, "v", 30.0, 2.0, 9.0, "a person closes the big laptop.", "", None)
QUESTIONS = tuple(f"question {number}?" for number in range(5))
MANY = DynamicRow(MOMENT, questions=QUESTIONS, beside=(("after", "a person drinks."),))
PARAGRAPH = Paragraph("v/whole", ("A man runs along the beach.", "He throws a red kite up high."))
OWN = {
    "jab": Label(0, "jab", "own", "a left jab to the head", None),
    "hook": Label(1, "hook", "own", "a right hook to the body", None),
}
REWRITE = CaptionedQuery("q", "gymnastics", "Split leap. (Apparatus: BB)", "show with 1 turn")
TASKS = {
    "tfcovr gymnastics": (ModificationTask(), LabelPair("45", "146", "event", 0.6)),
    "tfcovr diving": (ModificationTask(), LabelPair("5253b", "107b", "temporal", 0.6)),
    "tfcovr as printed": (ModificationTask(prompts="paper"), LabelPair("45", "146", "event", 0.6)),
    "tfcovr own labels": (ModificationTask(OWN), LabelPair("jab", "hook", "temporal", 0.6)),
    "tfcovr caption": (CaptionTask(lambda clip: []), ClipToCaption("c", "gymnastics", find_label("45"))),
    "tfcovr caption of any form": (CaptionTask(lambda clip: [], any_form=True), ClipToCaption("c", "diving")),
    "tfcovr rewritten caption": (RewriteTask(), REWRITE),
    "comp structuring": (StructuringTask(), PARAGRAPH),
    "comp reordering": (ReorderingTask(), PARAGRAPH),
    "comp reordering as printed": (ReorderingTask(prompts="paper"), PARAGRAPH),
    "comp action": (ActionTask(), PARAGRAPH),
    "comp judge": (JudgeTask(lambda pair: []), JudgedPair("k", "multi", "A man runs.", "A man sits.")),
    "fig attributes": (AttributesTask(lambda moment, seconds: {}), Keyframe(MOMENT, 5.0)),
    "fig static": (StaticTask(), StaticRow(MOMENT, named=("a brown desk",))),
    "fig questions": (QuestionsTask(), MANY),
    "fig answers": (AnswersTask(lambda moment: ()), MANY),
    "fig dynamic": (DynamicTask(), MANY),
    **{f"fig {kind}": (task, MOMENT) for kind, task in rewriting_tasks().items()},
}
ANSWERS = [
    '{"modification_text": "Show on Balance Beam with 1 turn."}',
    "```json\n{'modification_text': 'show with 2.5 twists and one and a half somersaults'}\n```",
    "Instruction: show a switch leap without turn instead of a split leap.",
    "Split leap with 1 turn (Apparatus: BB)",
    '{"target_caption": "Split leap with 1 turn. (Apparatus: BB)"}',
    '{"paragraph": "A man runs along the beach. Then he throws a red kite up high."}',
    "1",
    "(2)",
    "Background: a room\nObjects Attributes: a grey laptop\nDesc: A person closes it.",
    '{"original": "x", "1": "A person closes the big grey laptop.", "2": "A person in a room closes the laptop."}',
    "1. To the left? 2. How fast? 3. What before? 4. What after? 5. What else?",
    "1. Left.\n2. Fast.\n3. Nothing.\n4. He sits.\n5. Nothing.\n\nDynamic description: A person closes it slowly.",
    '1. "A person opens the big laptop."\n2. A person shuts the big laptop after a drink.',
    "I'm sorry, I can't help with that.",
    "Un homme ouvre la porte dans la cuisine.",
]


def counts(meter):
    return meter.requests, meter.input_tokens, meter.output_tokens


def check_body(chat, cache, body):
    before, spent = counts(chat.meter), chat.meter.usd
    try:
        found = chat.read(body, REQUEST)
    except MalformedResponseError as error:
        error.raw.encode()
    else:
        cache.put(str(chat.meter.requests), found, "m", REQUEST)
        found.text.encode()
        found.finish_reason.encode()
    after = counts(chat.meter)
    assert after[0] == before[0] + 1
    assert chat.meter.usd > spent
    assert before[1] <= after[1] < before[1] + 50_000
    assert before[2] <= after[2] < before[2] + 10 * len(body) + 50_000


def check_line(chat, cache, line):
    before, errors = counts(chat.meter), {}
    chat._take(line, {"a" * 64}, {"a" * 64: REQUEST}, cache, errors)
    for error in errors.values():
        assert isinstance(error, NoAnswerError)
        f"{error.reason}{error.raw}".encode()
    assert all(one <= other for one, other in zip(before, counts(chat.meter), strict=True))


def check_answer(task, row, text):
    start = time.process_time()
    parsed = task.parse(row, text)
    judged = judge_answer(task, row, [], Answer(text))
    assert time.process_time() - start < SECONDS, f"{text[:80]!r}... of {len(text)} characters takes too long"
    if isinstance(parsed, Rejection):
        assert isinstance(judged, Rejection)
        assert parsed.key
        assert parsed.raw == text
    assert isinstance(judged, Rejection) or judged == parsed


def fuzz_bodies(tmp_path, number, seed):
    dice, price = random.Random(seed), Price("m", input_usd=1.0, output_usd=1.0)
    chat = OpenAIChat("m", base_url="http://localhost:1/v1", price=price)
    with AnswerCache(tmp_path / "answers.sqlite") as cache:
        cache._base.execute("PRAGMA synchronous=OFF")
        for _ in range(number):
            check_body(chat, cache, mutated_json(dice, COMPLETION))


def fuzz_lines(tmp_path, number, seed):
    dice, chat = random.Random(seed), OpenAIBatchChat("m", base_url="http://localhost:1/v1")
    good = json.loads(result({"custom_id": "a" * 64}, 200, COMPLETION))
    bad = json.loads(result({"custom_id": "a" * 64}, 400, {"error": {"message": "no seed", "param": "seed"}}))
    with AnswerCache(tmp_path / "answers.sqlite") as cache:
        for _ in range(number):
            check_line(chat, cache, mutated_json(dice, dice.choice([good, bad])))


def fuzz_answers(tmp_path, number, seed):
    dice, tasks = random.Random(seed), list(TASKS.values())
    for index in range(number):
        check_answer(*tasks[index % len(tasks)], mutated_text(dice, ANSWERS))


KINDS = {"bodies": fuzz_bodies, "lines": fuzz_lines, "answers": fuzz_answers}


@pytest.mark.parametrize("kind", KINDS)
def test_mutated_answers_become_answers_or_rejections(tmp_path, kind):
    KINDS[kind](tmp_path, 3_000, seed=0)


@pytest.mark.hostile
@pytest.mark.timeout(0)
@pytest.mark.skipif(not INPUTS, reason="SUBTLE_FUZZ_INPUTS says how many inputs")
@pytest.mark.parametrize("kind", KINDS)
def test_many_mutated_answers_become_answers_or_rejections(tmp_path, kind, record_property):
    record_property("inputs", int(INPUTS))
    KINDS[kind](tmp_path, int(INPUTS), seed=int(os.environ.get("SUBTLE_FUZZ_SEED", "1")))


ESCAPES = {
    "10,000 braces for a paragraph": ("comp structuring", "{" * 10_000),
    "objects in objects for a paragraph": ("comp action", '{"a":' * 3_980),
    "a list in an object for a paragraph": ("comp reordering", "{" + "[" * 19_000),
    "an open fence of blanks for an instruction": ("tfcovr gymnastics", "```" + " " * 1_900),
    "an open fence of line separators for an instruction": ("tfcovr diving", "```" + "\u2028" * 1_900),
    "braces for candidates": ("fig static", "{" * 19_000),
    "a fence where a key is expected, for an instruction": ("tfcovr diving", '{"```json{```'),
    "a fence where a key is expected, for candidates": ("fig static", "{'```json{```"),
    "blank lines for attributes": ("fig attributes", "\n" * 19_000),
    "blank lines and a full stop for attributes": ("fig attributes", ".\n " * 6_000 + "Background: a"),
}


@pytest.mark.parametrize(("kind", "text"), ESCAPES.values(), ids=ESCAPES)
def test_an_answer_that_once_took_seconds_or_raised_is_rejected_quickly(kind, text):
    task, row = TASKS[kind]
    check_answer(task, row, text)
    assert isinstance(task.parse(row, text), Rejection)


def test_a_server_of_mutated_answers_does_not_end_a_build(tmp_path):
    dice = random.Random(0)
    rows = [f"{ROWS[0]} {number}" for number in range(150)]
    limits = Limits(max_wait_seconds=0.001, max_tries=2, max_failures=1000, timeout_seconds=5)
    with ChatServer(answer) as server, AnswerCache(tmp_path / "answers.sqlite") as cache:
        server.payload = lambda body, usual: mutated_json(dice, json.loads(usual)).encode(errors="surrogatepass")
        outcomes = list(generate(SentenceTask(), rows, OpenAIChat("m", base_url=server.url, limits=limits), cache))
    assert len(outcomes) == len(rows)
    rejected = [(row, one) for row, one in zip(rows, outcomes, strict=True) if isinstance(one, Rejection)]
    assert rejected
    assert [one for row, one in rejected if one.key != row or not one.request] == []
