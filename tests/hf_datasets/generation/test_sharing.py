"""Requests and caches that are shared: rows with the same request, two processes, interruptions, clocks, full disks."""

import os
import signal
import sqlite3
import threading
import time

import pytest
from chat_server import ChatServer
from sentences import EXPECTED, ROWS, SentenceTask, answer

from hf_datasets.generation import generate as engine
from hf_datasets.generation.cache import AnswerCache
from hf_datasets.generation.chat import GenerationStoppedError
from hf_datasets.generation.generate import generate
from hf_datasets.generation.offline_chat import Replay
from hf_datasets.generation.openai_chat import Limits, OpenAIChat
from hf_datasets.records import Rejection

FAST = Limits(max_wait_seconds=0.01, timeout_seconds=5, max_tries=3)


def chat_at(server, limits=FAST):
    return OpenAIChat("m", base_url=server.url, limits=limits)


def test_concurrent_rows_with_the_same_request_share_it(cache):
    with ChatServer(answer, seconds=lambda body: 0.1) as server:
        chat = chat_at(server)
        rows = [ROWS[0], ROWS[1]] * 10
        assert list(generate(SentenceTask(), rows, chat, cache)) == EXPECTED[:2] * 10
        assert server.asked == {ROWS[0]: 1, ROWS[1]: 1}
        assert (chat.meter.requests, chat.meter.cached) == (2, 18)


def test_concurrent_rows_with_the_same_request_share_its_error(cache):
    with ChatServer(answer, lambda body, times: "server_error", seconds=lambda body: 0.05) as server:
        outcomes = list(generate(SentenceTask(), [ROWS[0]] * 10, chat_at(server), cache))
        assert server.asked[ROWS[0]] == 3  # the tries of one request
    assert {one.reason for one in outcomes} == {"no answer after 3 tries: InternalServerError"}
    assert cache.under_way == {}


def test_a_row_sends_its_own_request_when_the_shared_one_is_canceled(cache):
    with ChatServer(answer, seconds=lambda body: 0.3) as server:
        chat = chat_at(server)
        first = generate(SentenceTask(), [ROWS[1], ROWS[0]], chat, cache)
        second = generate(SentenceTask(), [ROWS[0]], chat, cache)
        found = []
        taker = threading.Thread(target=lambda: found.extend(second))
        starter = threading.Thread(target=lambda: next(first, None))
        starter.start()
        while not server.asked[ROWS[0]]:
            time.sleep(0.01)
        taker.start()
        starter.join()  # the first row is answered, the second one is about to be
        first.close()
        taker.join()
    assert found == EXPECTED[:1]
    assert cache.under_way == {}


def test_an_offline_replay_rejects_each_row_with_the_same_uncached_request(cache):
    outcomes = list(generate(SentenceTask(), [ROWS[0]] * 3, Replay("m", {}), cache))
    assert [type(one) for one in outcomes] == [Rejection] * 3


def test_the_rejection_keeps_the_last_raw_answer_if_no_further_one_arrives(cache):
    with ChatServer(
        lambda body: "no stop", lambda body, times: "close" if len(body["messages"]) > 2 else None
    ) as server:
        (outcome,) = generate(SentenceTask(), ROWS[:1], chat_at(server), cache)
    assert (outcome.raw, outcome.key) == ("no stop", ROWS[0])
    assert outcome.reason == "no answer after 3 tries: APIConnectionError"
    assert len(outcome.request) == 64


@pytest.fixture
def ctrl_c():
    """Ctrl-C raises, also where whatever started the tests ignores it, as a shell does for what it runs behind."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupts_when(is_time, then=lambda: None):
    """Ctrl-C as soon as this is true, and half a second later what comes then."""

    def watch():
        while not is_time():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
        then()

    threading.Thread(target=watch, daemon=True).start()


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_run_caches_pending_answers_and_sends_no_further_request(cache):
    with ChatServer(answer) as server:
        server.gate = threading.Event()
        chat = chat_at(server, Limits(max_concurrency=4))
        interrupts_when(lambda: sum(server.asked.values()) == 4, server.gate.set)
        with pytest.raises(KeyboardInterrupt):
            list(generate(SentenceTask(), ROWS, chat, cache))
        assert sum(server.asked.values()) == len(cache) == 4
        # The same chat goes on and sends no request twice.
        assert list(generate(SentenceTask(), ROWS[:12], chat, cache)) == EXPECTED[:12]
        assert set(server.asked.values()) == {1}


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_run_does_not_wait_for_a_server_that_hangs(cache, monkeypatch):
    monkeypatch.setattr(engine, "INTERRUPT_SECONDS", 0.3)
    with ChatServer(answer) as server:
        server.gate = threading.Event()
        interrupts_when(lambda: server.asked)
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            list(generate(SentenceTask(), ROWS, chat_at(server), cache))
        assert time.monotonic() - start < 2
        server.gate.set()
        assert list(generate(SentenceTask(), ROWS, chat_at(server), cache)) == EXPECTED
        # A request pending at the end of the run may be answered after its client is gone, before it is sent again.
        assert set(server.answered.values()) <= {1, 2}


def test_a_clock_that_jumps_breaks_neither_rates_nor_retries_nor_batches(cache, monkeypatch):
    jumps = iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: 1e9 + (-1) ** next(jumps) * 86_400 * 365)
    monkeypatch.setattr("hf_datasets.generation.cache._now", lambda: "2001-01-01T00:00:00")
    limits = Limits(max_wait_seconds=0.05, requests_per_minute=3000, max_tries=4)
    with ChatServer(answer, lambda body, times: "overloaded" if times == 1 else None) as server:
        start = time.monotonic()
        assert list(generate(SentenceTask(), ROWS[:20], chat_at(server, limits), cache)) == EXPECTED[:20]
        assert 39 * 0.02 <= time.monotonic() - start < 10
    planned = [cache.plan_batch("e", ["k"]) for _ in range(3)]
    assert [fingerprint for fingerprint, _ in cache.open_batches("e")] == planned


class FullDisk:
    """A connection to a file on a disk that is full."""

    def __init__(self, base):
        self.base = base

    def execute(self, statement, values=()):
        if statement.startswith("INSERT"):
            raise sqlite3.OperationalError("database or disk is full")
        return self.base.execute(statement, values)

    def close(self):
        self.base.close()


def test_a_full_disk_under_the_cache_is_an_error_that_names_the_file_and_the_next_run_completes(cache):
    with ChatServer(answer) as server:
        base, cache._base = cache._base, FullDisk(cache._base)
        with pytest.raises(OSError, match="disk is full") as full:
            list(generate(SentenceTask(), ROWS, chat_at(server), cache))
        assert str(cache.path) in str(full.value)
        cache._base = base
        assert list(generate(SentenceTask(), ROWS, chat_at(server), cache)) == EXPECTED
        assert len(cache) == len(ROWS)
        assert max(server.answered.values()) <= 2


def test_a_cache_that_cannot_be_opened_is_reported_as_such(tmp_path):
    (tmp_path / "answers.sqlite").mkdir()
    with pytest.raises(OSError, match="cannot be read or written"):
        AnswerCache(tmp_path / "answers.sqlite")


def test_a_stopped_chat_stays_stopped_after_an_interruption(cache):
    with ChatServer(answer, lambda body, times: "bad_key") as server:
        chat = chat_at(server)
        with pytest.raises(GenerationStoppedError):
            list(generate(SentenceTask(), ROWS[:1], chat, cache))
        with chat.sending_nothing():
            pass
        with pytest.raises(GenerationStoppedError, match="API key"):
            list(generate(SentenceTask(), ROWS[:1], chat, cache))
