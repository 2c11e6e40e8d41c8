"""Errors of a server, a model or a caption, one test each."""

import random
import time

import pytest
from chat_server import ChatServer
from sentences import BAD_ROW, EXPECTED, ROWS, SentenceTask, answer, rejection_among

from hf_datasets.generation.cache import AnswerCache
from hf_datasets.generation.generate import generate
from hf_datasets.generation.openai_chat import Limits, OpenAIChat

FAST = Limits(max_wait_seconds=0.01, timeout_seconds=2, max_tries=3)


def outcomes_with(server, cache=None, limits=FAST, rows=ROWS):
    return list(generate(SentenceTask(), rows, OpenAIChat("m", base_url=server.url, limits=limits), cache))


def always(fault):
    return lambda body, times: fault if body["messages"][1]["content"] == BAD_ROW else None


def once(fault):
    return lambda body, times: fault if times == 1 else None


PASSING = ["rate_limit", "server_error", "overloaded", "close", "half", "html"]


@pytest.mark.parametrize("fault", [*PASSING, "packed"])
def test_a_transient_fault_does_not_change_the_outcome(fault):
    with ChatServer(answer, once(fault)) as server:
        assert outcomes_with(server) == EXPECTED


def test_no_row_is_lost_when_thirty_percent_of_responses_fail(tmp_path):
    dice = random.Random(0)
    faults = [*PASSING, "utf8"]
    limits = Limits(max_wait_seconds=0.01, timeout_seconds=2, max_tries=12, max_concurrency=16)
    with (
        ChatServer(answer, lambda body, times: dice.choice(faults) if dice.random() < 0.3 else None) as server,
        AnswerCache(tmp_path / "answers.sqlite") as cache,
    ):
        outcomes = outcomes_with(server, cache, limits)
    assert [outcome.replace("��", "") for outcome in outcomes] == EXPECTED


@pytest.mark.parametrize(
    ("fault", "reason", "raw", "times"),
    [
        ("close", "no answer after 3 tries: APIConnectionError", "", 3),
        ("half", "no answer after 3 tries: APIConnectionError", "", 3),
        ("drip", "no answer after 3 tries: TimeoutError", "", 3),
        ("server_error", "no answer after 3 tries: InternalServerError", "", 3),
        ("html", "no answer after 3 tries: MalformedResponseError", "<html>gateway says no</html>", 3),
        ("endless", "the response is longer than 16,000,000 bytes", "", 1),
        ("endless packed", "the response is longer than 16,000,000 bytes", "", 1),
        ("bad_row", "the server refused the request with status 400", "not allowed", 1),
        ("refusal", "refused by the model", "I will not.", 1),
        ("cut", "truncated: the answer reached the token limit", BAD_ROW, 1),
        ("megabytes", "too long: more than 20000 characters", "word " * 600_000, 1),
    ],
)
def test_a_permanent_fault_rejects_only_its_row_and_keeps_the_raw_text(fault, reason, raw, times):
    seconds = 0.5 if fault == "drip" else 30.0  # a busy machine needs more than half a second for megabytes
    limits = Limits(max_wait_seconds=0.01, timeout_seconds=seconds, max_tries=3)
    with ChatServer(answer, always(fault)) as server:
        outcomes = outcomes_with(server, limits=limits, rows=ROWS[:8])
    assert server.asked[BAD_ROW] == times
    bad = rejection_among(outcomes)
    assert bad.reason == reason
    assert raw in bad.raw


def test_retries_wait_as_long_as_the_server_asks():
    class Patient(ChatServer):
        async def _chat(self, request, body):
            response = await super()._chat(request, body)
            if response.status == 429:
                response.headers["Retry-After"] = "0.4"
            return response

    with Patient(answer, once("rate_limit")) as server:
        start = time.monotonic()
        chat = OpenAIChat("m", base_url=server.url, limits=Limits(max_wait_seconds=5))
        assert list(generate(SentenceTask(), ROWS[:1], chat)) == EXPECTED[:1]
        assert time.monotonic() - start >= 0.4


def test_invalid_utf8_is_replaced_and_kept(tmp_path):
    with ChatServer(answer, always("utf8")) as server, AnswerCache(tmp_path / "answers.sqlite") as cache:
        outcomes = outcomes_with(server, cache, rows=ROWS[:5])
    assert outcomes[4] == f"{BAD_ROW} -> ��{BAD_ROW}."


def test_a_lone_surrogate_can_be_stored(tmp_path):
    with ChatServer(lambda body: "a \ud800 door.") as server, AnswerCache(tmp_path / "answers.sqlite") as cache:
        assert outcomes_with(server, cache, rows=ROWS[:1]) == [f"{ROWS[0]} -> a ? door."]


@pytest.mark.parametrize(
    ("written", "reason"),
    [(f"Sure! {SentenceTask.instructions}", "the answer repeats the prompt"), ("  \n", "empty answer")],
)
def test_an_answer_that_says_nothing_new_is_rejected(written, reason):
    with ChatServer(lambda body: written) as server:
        (outcome,) = outcomes_with(server, rows=ROWS[:1])
    assert (outcome.reason, outcome.raw, outcome.key) == (reason, written, ROWS[0])


def test_a_parser_that_raises_rejects_one_row():
    class Fragile(SentenceTask):
        def parse(self, row, answer):
            if row == BAD_ROW:
                raise KeyError("verb")
            return super().parse(row, answer)

    with ChatServer(answer) as server:
        chat = OpenAIChat("m", base_url=server.url, limits=FAST)
        outcomes = list(generate(Fragile(), ROWS[:6], chat))
    bad = rejection_among(outcomes)
    assert (bad.reason, bad.raw) == ("the parser of sentence failed: KeyError", f"{BAD_ROW}.")
