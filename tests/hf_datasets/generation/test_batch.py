"""The Batch API mode against the loopback server: upload, poll, recover, resume."""

import time

import pytest
from chat_server import ChatServer
from sentences import EXPECTED, ROWS, SentenceTask, answer, start_build

from hf_datasets.generation.batch import OpenAIBatchChat
from hf_datasets.generation.chat import GenerationStoppedError
from hf_datasets.generation.generate import generate
from hf_datasets.generation.openai_chat import Limits, OpenAIChat, Sampling
from hf_datasets.generation.prices import Price, price_of


def batch_chat(server, *, window=10_000, **options):
    chat = OpenAIBatchChat("m", base_url=server.url, api_key="sk-secret-key", **options)
    chat.window, chat.poll_seconds = window, 0.01
    return chat


def test_a_batch_gives_the_same_rows_in_order(cache):
    with ChatServer(answer) as server:
        server.batch_polls = 3
        chat = batch_chat(server)
        assert list(generate(SentenceTask(), ROWS, chat, cache)) == EXPECTED
        assert (len(server.batches), chat.meter.requests, chat.meter.prompts.keys()) == (1, len(ROWS), {"sentence"})
        # A batch and single requests share the cache.
        live = OpenAIChat("m", base_url=server.url)
        assert list(generate(SentenceTask(), ROWS, live, cache)) == EXPECTED
        assert set(server.answered.values()) == {1}


class Line(ChatServer):
    """Ends no batch before `number` were sent, of which it takes `room` at a time."""

    def __init__(self, *arguments, number, room=99):
        super().__init__(*arguments)
        self.number, self.room, self.most, self.refused = number, room, 0, 0

    def finish(self, batch):
        waiting = sum(one["status"] == "in_progress" for one in self.batches.values())
        self.most = max(self.most, waiting)
        if waiting > self.room:
            self.refused += 1
            batch["status"] = "failed"
            batch["errors"] = {"object": "list", "data": [{"code": "token_limit_exceeded", "message": "wait"}]}
        elif len(self.batches) >= self.number or batch["polls"] > 500:
            super().finish(batch)


def test_windows_of_rows_wait_for_their_batches_at_the_same_time(cache):
    with Line(answer, number=3) as server:
        assert list(generate(SentenceTask(), iter(ROWS), batch_chat(server, window=15), cache)) == EXPECTED
        assert (len(server.batches), server.most) == (3, 3)


def test_a_batch_that_finds_no_room_in_line_is_sent_again_when_another_has_ended(cache):
    with Line(answer, number=6, room=4) as server:
        assert list(generate(SentenceTask(), ROWS, batch_chat(server, window=6), cache)) == EXPECTED
        assert server.refused == len(server.batches) - 7 > 0
        assert set(server.answered.values()) == {1}


def test_a_rejected_answer_is_asked_for_again_in_a_second_batch(cache):
    def improves(body):
        return "good." if len(body["messages"]) > 2 else "bad"

    with ChatServer(improves) as server:
        assert list(generate(SentenceTask(), ROWS[:3], batch_chat(server), cache)) == [
            f"{r} -> good." for r in ROWS[:3]
        ]
        assert len(server.batches) == 2


def test_unanswered_requests_of_a_batch_are_sent_again_up_to_a_limit(cache):
    def fault(body, times):
        text = body["messages"][1]["content"]
        return "server_error" if (text == ROWS[2] and times == 1) or text == ROWS[3] else None

    with ChatServer(answer, fault) as server:
        outcomes = list(generate(SentenceTask(), ROWS[:5], batch_chat(server), cache))
        assert server.asked[ROWS[2]] == 2
        assert server.asked[ROWS[3]] == 5
    assert outcomes[:3] + outcomes[4:] == EXPECTED[:3] + EXPECTED[4:5]
    assert outcomes[3].reason == "the batch answered with status 500"


def test_a_broken_line_is_recovered_by_its_custom_id(cache):
    with ChatServer(answer) as server:
        server.line = lambda entry, line: line[:-40] if ROWS[2] in str(entry) else line
        outcomes = list(generate(SentenceTask(), ROWS[:5], batch_chat(server), cache))
    assert outcomes[2].reason == "the line of the batch output is broken"
    assert outcomes[2].raw.startswith('{"id": "r", "custom_id"')
    assert outcomes[:2] + outcomes[3:] == EXPECTED[:2] + EXPECTED[3:5]


def test_an_option_that_the_server_rejects_is_left_out_of_the_next_batch(cache):
    def fault(body, times):
        return "no_temperature" if "temperature" in body else None

    with ChatServer(answer, fault) as server:
        assert list(generate(SentenceTask(), ROWS, batch_chat(server), cache)) == EXPECTED
        assert len(server.batches) == 2


@pytest.mark.parametrize("window", [10_000, 3])
def test_a_batch_holds_no_more_requests_than_the_budget_allows(cache, window):
    price = Price("m", input_usd=10.0, output_usd=1000.0)  # $0.011 an answer, $0.0205 at most
    with ChatServer(answer) as server:
        options = {"price": price, "sampling": Sampling(max_output_tokens=20), "limits": Limits(max_usd=0.15)}
        chat = batch_chat(server, window=window, **options)
        outcomes = generate(SentenceTask(), ROWS, chat, cache)
        done = [next(outcomes) for _ in range(12)]
        with pytest.raises(GenerationStoppedError, match="budget"):
            next(outcomes)
    assert done == EXPECTED[:12]
    assert chat.meter.usd <= 0.15
    assert len(cache) == 12


def test_a_refused_batch_stops_with_the_servers_reason(cache):
    class Strict(ChatServer):
        def finish(self, batch):
            batch["status"] = "failed"
            batch["errors"] = {"object": "list", "data": [{"code": "token_limit", "message": "too many tokens"}]}

    with (
        Strict(answer) as server,
        pytest.raises(GenerationStoppedError, match=r"refused batch batch_\w+: too many tokens"),
    ):
        list(generate(SentenceTask(), ROWS, batch_chat(server), cache))
    assert cache.open_batches(batch_chat(server).endpoint) == []


def test_a_killed_run_waits_for_the_batch_it_had_sent(cache):
    with ChatServer(answer) as server:
        server.batch_polls = 10**6
        run = start_build(server, cache.path, chat="batch.OpenAIBatchChat")
        deadline = time.monotonic() + 60
        while not any(batch["polls"] for batch in server.batches.values()) and time.monotonic() < deadline:
            time.sleep(0.05)
        run.kill()
        run.wait()
        server.batch_polls = 1
        assert list(generate(SentenceTask(), ROWS, batch_chat(server), cache)) == EXPECTED
        assert len(server.batches) == 1
        assert set(server.answered.values()) == {1}


def test_a_batch_created_before_its_id_was_recorded_is_found_by_its_fingerprint(cache, monkeypatch):
    with ChatServer(answer) as server:

        def dies(fingerprint, batch_id):
            raise RuntimeError("killed here")

        monkeypatch.setattr(cache, "name_batch", dies)
        with pytest.raises(RuntimeError, match="killed here"):
            list(generate(SentenceTask(), ROWS, batch_chat(server), cache))
        monkeypatch.undo()
        assert list(generate(SentenceTask(), ROWS, batch_chat(server), cache)) == EXPECTED
        assert len(server.batches) == 1


def test_batches_cost_half_the_price():
    assert price_of("gpt-4o", batch=True).usd(1e6, 1e6) == price_of("gpt-4o").usd(1e6, 1e6) / 2


def test_batches_without_a_cache_are_an_error():
    chat = OpenAIBatchChat("m", base_url="http://localhost:1/v1")
    with pytest.raises(ValueError, match="batches need a cache"):
        generate(SentenceTask(), ROWS, chat)
