"""Requests that workers send: the same answers, each paid for once, within one budget, also when a worker is lost."""

import asyncio

import pytest
from chat_server import ChatServer
from sentences import EXPECTED, ROWS, SentenceTask, answer

from hf_datasets.generation.cache import AnswerCache
from hf_datasets.generation.generate import generate
from hf_datasets.generation.openai_chat import Limits, OpenAIChat
from hf_datasets.generation.prices import Price
from hf_datasets.generation.requests_and_answers import GenerationStoppedError
from subtle.run.requests_on_ray import SpreadTransport, sender_class
from subtle.run.shared_config import BuildConfig

FAST = Limits(max_wait_seconds=0.01, timeout_seconds=2, max_tries=3)


class LostError(Exception):
    """As Ray's."""


class Actor:
    """What Ray makes of the sender, here without Ray; `dies` loses its first requests after the server got them."""

    def __init__(self, dies=0):
        self.own, self.dies, self.calls, self.send = None, dies, 0, self

    async def remote(self, *arguments):
        self.own = self.own or sender_class()()
        self.calls += 1
        is_lost = self.calls <= self.dies
        sent = await self.own.send(*arguments)
        if is_lost:
            raise LostError
        return sent


def chat_over(actors, server, limits=FAST, **options):
    transport = SpreadTransport(actors, LostError)
    return OpenAIChat("m", base_url=server.url, api_key="sk-1", limits=limits, transport=transport, **options)


@pytest.fixture
def cache(tmp_path):
    with AnswerCache(tmp_path / "answers.sqlite") as opened:
        yield opened


def test_workers_share_the_requests_and_each_row_is_asked_once(cache):
    actors = [Actor(), Actor()]
    with ChatServer(answer) as server:
        assert list(generate(SentenceTask(), ROWS, chat_over(actors, server), cache)) == EXPECTED
        assert set(server.asked.values()) == {1}
        assert all(actor.calls == len(ROWS) / 2 for actor in actors)
        assert {headers["Authorization"] for headers in server.headers} == {"Bearer sk-1"}
        assert list(generate(SentenceTask(), ROWS, chat_over(actors, server), cache)) == EXPECTED
        assert set(server.asked.values()) == {1}


def test_only_the_requests_of_a_lost_worker_are_sent_again(cache):
    with ChatServer(answer) as server:
        assert list(generate(SentenceTask(), ROWS, chat_over([Actor(dies=2), Actor()], server), cache)) == EXPECTED
        assert (len(server.asked), server.asked.total()) == (len(ROWS), len(ROWS) + 2)


def test_the_budget_is_one_for_all_workers(cache):
    priced = {"price": Price("m", 0.0, 1_000_000.0)}  # a dollar for each token of an answer
    limits = Limits(max_usd=30.0, max_concurrency=64, timeout_seconds=2)
    with ChatServer(answer, seconds=lambda body: 0.05) as server:
        chat = chat_over([Actor(), Actor(), Actor()], server, limits, **priced)
        chat.sampling["max_completion_tokens"] = 10
        with pytest.raises(GenerationStoppedError, match=r"the budget of \$30 is used up"):
            list(generate(SentenceTask(), [f"{row} {n}" for n in range(20) for row in ROWS], chat, cache))
        assert 0 < chat.meter.usd <= 30


def test_a_server_that_is_not_there_is_a_refused_connection_also_from_a_worker():
    async def ask():
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), 1.0)
        return await sender_class()().send("POST", "http://127.0.0.1:9/v1", [], b"{}", timeouts)

    kind, message, body = asyncio.run(ask())
    assert (kind, body) == ("ConnectError", None)
    assert message


def test_the_engine_is_for_requests_to_a_chat_model():
    for options in ({}, {"model": "m", "batch": True}, {"model": "m", "dry_run": True}):
        with pytest.raises(ValueError, match="--engine ray spreads the requests to a chat model"):
            BuildConfig(engine="ray", **options)
