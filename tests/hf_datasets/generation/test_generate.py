"""The generation engine against a loopback server: order, limits, budget, cache, resume."""

import base64
import io
import json
import logging
import os
import signal
import threading
import time

import numpy as np
import pytest
from chat_server import ChatServer
from PIL import Image
from pydantic import BaseModel
from sentences import EXPECTED, ROWS, SentenceTask, answer, start_build

from hf_datasets.generation import cache as answer_cache
from hf_datasets.generation.cache import AnswerCache
from hf_datasets.generation.chat import GenerationStoppedError, Request, request_key
from hf_datasets.generation.generate import REQUEST_THREADS, generate
from hf_datasets.generation.images import image_part
from hf_datasets.generation.offline_chat import Replay, RuleBasedGenerator
from hf_datasets.generation.openai_chat import Limits, OpenAIChat, Sampling
from hf_datasets.generation.prices import Price
from hf_datasets.records import Rejection

FAST = Limits(max_wait_seconds=0.02, timeout_seconds=5)
CANARY = "sk-canary-4f1d6c0b9e"
PRICE = Price("m", input_usd=10.0, output_usd=1000.0)


def chat_at(server, *, limits=FAST, **options):
    return OpenAIChat("m", base_url=server.url, api_key=CANARY, limits=limits, **options)


def test_the_rule_based_generator_answers_without_a_server():
    assert list(generate(SentenceTask(), ROWS, RuleBasedGenerator())) == EXPECTED


def test_outcomes_come_in_the_order_of_the_rows_whatever_the_order_of_the_answers(cache):
    with ChatServer(answer, seconds=lambda body: 0.3 if ROWS[0] in str(body) else 0.0) as server:
        assert list(generate(SentenceTask(), ROWS, chat_at(server), cache)) == EXPECTED


def test_a_second_run_sends_no_request(cache):
    with ChatServer(answer) as server:
        first = list(generate(SentenceTask(), ROWS, chat_at(server), cache))
        again = chat_at(server)
        assert list(generate(SentenceTask(), ROWS, again, cache)) == first
        assert sum(server.asked.values()) == len(ROWS)
        assert (again.meter.requests, again.meter.cached) == (0, len(ROWS))


def test_replay_answers_from_the_cache_and_rejects_what_is_missing(cache):
    with ChatServer(answer) as server:
        chat = chat_at(server)
        list(generate(SentenceTask(), ROWS[:2], chat, cache))
    outcomes = list(generate(SentenceTask(), ROWS[:3], Replay("m", chat.sampling), cache))
    assert outcomes[:2] == EXPECTED[:2]
    assert "no cached answer of m" in outcomes[2].reason


def test_concurrent_requests_stay_within_the_limit():
    with ChatServer(answer, seconds=lambda body: 0.02) as server:
        limits = Limits(max_concurrency=3)
        assert list(generate(SentenceTask(), ROWS, chat_at(server, limits=limits))) == EXPECTED
        assert server.most_at_once == 3


def test_slow_frames_of_rows_are_read_at_the_same_time_and_asked_about_in_order(cache):
    inside, four = [], threading.Event()

    class Frames(SentenceTask):
        def messages(self, row):
            inside.append(row)
            if len(inside) == 4:
                four.set()
            assert four.wait(20)
            return super().messages(row)

    with ChatServer(answer) as server:
        server.gate = threading.Event()  # which the fourth request at once opens
        server.seconds = lambda body: (server.at_once == 4 and server.gate.set()) or 0.0
        limits = Limits(max_concurrency=4, timeout_seconds=20)
        assert list(generate(Frames(), ROWS, chat_at(server, limits=limits), cache)) == EXPECTED
        assert server.most_at_once == 4
    with ChatServer(answer) as server:
        assert list(generate(Frames(), ROWS, chat_at(server, limits=Limits(max_concurrency=1)))) == EXPECTED
        assert [body["messages"][1]["content"] for body in server.bodies] == ROWS


def test_requests_stay_within_the_rate_limit():
    with ChatServer(answer) as server:
        start = time.monotonic()
        list(generate(SentenceTask(), ROWS[:11], chat_at(server, limits=Limits(requests_per_minute=1200))))
        assert time.monotonic() - start >= 10 * 60 / 1200


def test_rows_are_read_lazily():
    read = []

    def rows():
        for row in ROWS * 100:
            read.append(row)
            yield row

    outcomes = generate(SentenceTask(), rows(), RuleBasedGenerator())
    for _ in range(5):
        next(outcomes)
    assert len(read) <= 5 + RuleBasedGenerator.window + REQUEST_THREADS + 1
    outcomes.close()


def test_the_request_key_depends_on_what_decides_the_answer_and_on_nothing_else():
    class Shape(BaseModel):
        text: str

    def key(row="a", url="data:image/jpeg;base64,AA", schema=None, model="m", **sampling):
        task = SentenceTask()
        task.schema = schema
        parts = [{"type": "text", "text": row}, {"type": "image_url", "image_url": {"url": url}}]
        return request_key(
            Request(task, row, [{"role": "user", "content": parts}]), Replay(model, Sampling(**sampling).options())
        )

    changed = [
        key(row="b"),
        key(url="data:image/jpeg;base64,BB"),
        key(schema=Shape),
        key(model="n"),
        key(temperature=1.0),
        key(max_output_tokens=7),
        key(seed=1),
    ]
    assert len({key(), *changed}) == 1 + len(changed)
    # The key never changes, so that answers cached by an earlier release stay valid.
    assert key() == "376c18f38f3635416cf100a5a2f5d175219f13ef0bd99e955ec541ea6b03ddac"


def test_an_image_is_cached_as_its_hash(cache):
    class Picture(SentenceTask):
        def messages(self, row):
            frame = np.random.default_rng(0).integers(0, 255, (3, 32, 48), np.uint8)
            return [{"role": "user", "content": [{"type": "text", "text": row}, image_part(frame)]}]

    with ChatServer(lambda body: "A door.") as server:
        list(generate(Picture(), ROWS[:1], chat_at(server), cache))
        sent = server.bodies[0]["messages"][0]["content"][1]["image_url"]["url"]
        assert Image.open(io.BytesIO(base64.b64decode(sent.partition(",")[2]))).size == (48, 32)
    kept = cache._query("SELECT messages FROM answers")[0][0]
    assert "sha256:" in kept
    assert sent[-100:] not in kept


def test_a_rejected_answer_is_sent_back_once_with_the_reason(cache):
    def improves(body):
        return "good." if len(body["messages"]) > 2 else "bad"

    with ChatServer(improves) as server:
        assert list(generate(SentenceTask(), ["row"], chat_at(server), cache)) == ["row -> good."]
        assert server.bodies[-1]["messages"][-2] == {"role": "assistant", "content": "bad"}
        assert "no full stop" in server.bodies[-1]["messages"][-1]["content"]


def test_the_budget_is_never_exceeded_and_earlier_outcomes_are_kept(cache):
    with ChatServer(answer) as server:  # each answer costs 100 * 10e-6 + 10 * 1000e-6 = $0.011
        limits = Limits(max_usd=0.15, max_wait_seconds=0.02)
        chat = chat_at(server, limits=limits, price=PRICE, sampling=Sampling(max_output_tokens=20))
        with pytest.raises(GenerationStoppedError, match=r"budget of \$0.15 is used up"):
            list(generate(SentenceTask(), ROWS, chat, cache))
        assert 0.12 < chat.meter.usd <= 0.15
        assert len(cache) == chat.meter.requests == sum(server.asked.values()) == 12


def test_a_budget_without_a_price_is_refused():
    with pytest.raises(ValueError, match="no price is listed for 'my-model'"):
        OpenAIChat("my-model", api_key="k", limits=Limits(max_usd=1.0))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("bad_key", "API key is wrong"),
        ("quota", "quota of this account is used up"),
        ("context", "longer than the model's context"),
        ("unknown_model", "does not know this model"),
    ],
)
def test_an_error_that_no_retry_can_fix_stops_at_once_and_keeps_earlier_outcomes(cache, fault, message):
    with ChatServer(answer, lambda body, times: fault if ROWS[9] in str(body) else None) as server:
        outcomes = generate(SentenceTask(), ROWS, chat_at(server, limits=Limits(max_concurrency=2)), cache)
        assert [next(outcomes) for _ in range(9)] == EXPECTED[:9]
        with pytest.raises(GenerationStoppedError, match=message) as stopped:
            next(outcomes)
        assert server.asked[ROWS[9]] == 1
        assert len(cache) == sum(server.answered.values()) <= 11
        assert CANARY not in str(stopped.value)


def test_a_server_that_is_down_ends_the_run():
    with ChatServer() as server:
        url = server.url
    chat = OpenAIChat("m", base_url=url, limits=Limits(max_tries=2, max_wait_seconds=0.01, max_failures=5))
    with pytest.raises(GenerationStoppedError, match="5 requests in a row got no answer"):
        list(generate(SentenceTask(), ROWS, chat))


def test_a_missing_api_key_is_an_error_that_names_the_variable(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(GenerationStoppedError, match="OPENAI_API_KEY"):
        OpenAIChat("gpt-4o")


@pytest.mark.parametrize("option", ["response_format", "temperature", "max_completion_tokens", "seed"])
def test_an_option_that_the_server_rejects_is_left_out(option):
    class Shape(BaseModel, extra="forbid"):
        text: str

    task = SentenceTask()
    task.schema = Shape
    with ChatServer(answer, refused_options=(option,)) as server:
        assert list(generate(task, ROWS, chat_at(server, sampling=Sampling(seed=1)))) == EXPECTED
    assert option not in server.bodies[-1]
    assert ("max_tokens" in server.bodies[-1]) == (option == "max_completion_tokens")
    form = server.bodies[0]["response_format"]["json_schema"]  # the schema of the task, asked for at first
    assert form["strict"]
    assert form["schema"]["additionalProperties"] is False


def test_the_api_key_appears_in_no_file_log_or_outcome(cache, caplog, tmp_path):
    caplog.set_level(logging.DEBUG)
    leak = lambda body: f"Your key is {CANARY}."  # noqa: E731 - a server that echoes what it was sent
    faults = {ROWS[1]: "server_error", ROWS[2]: "bad_row", ROWS[3]: "html"}
    with ChatServer(leak, lambda body, times: faults.get(body["messages"][1]["content"])) as server:
        outcomes = list(generate(SentenceTask(), ROWS[:5], chat_at(server), cache))
        assert CANARY in server.headers[0]["Authorization"]
    assert "Your key is [API key]." in outcomes[0]
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert CANARY.encode() not in kept
    assert CANARY not in repr(outcomes) + caplog.text


def test_closing_the_generator_cancels_pending_requests():
    with ChatServer(answer, seconds=lambda body: 0.05) as server:
        outcomes = generate(SentenceTask(), ROWS, chat_at(server, limits=Limits(max_concurrency=2)))
        next(outcomes)
        outcomes.close()
        time.sleep(0.2)
        assert sum(server.asked.values()) < 10


def test_after_kill_9_each_request_is_answered_once_and_the_rows_are_the_same(tmp_path):
    path = tmp_path / "answers.sqlite"
    with ChatServer(answer) as server:
        server.gate, server.gate_after = threading.Event(), 17
        build = start_build(server, path)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if path.exists() and sum(server.answered.values()) >= 17:
                with AnswerCache(path) as cache:
                    if len(cache) >= 17:
                        break
            time.sleep(0.05)
        os.kill(build.pid, signal.SIGKILL)
        build.wait()
        asked_before = sum(server.answered.values())
        time.sleep(0.1)
        server.gate.set()
        build = start_build(server, path)
        printed = build.communicate(timeout=60)[0].splitlines()
        assert asked_before == 17
        assert printed == EXPECTED
        assert set(server.answered.values()) == {1}


def test_two_processes_share_a_cache(tmp_path):
    with ChatServer(answer) as server:
        builds = [start_build(server, tmp_path / "answers.sqlite") for _ in range(2)]
        assert [build.communicate(timeout=60)[0].splitlines() for build in builds] == [EXPECTED, EXPECTED]
        assert max(server.answered.values()) <= 2
    with AnswerCache(tmp_path / "answers.sqlite") as cache:
        assert len(cache) == len(ROWS)
        assert cache._query("PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize(("kind", "journal"), [("ext4", "wal"), ("nfs4", "truncate"), ("fuse.sshfs", "truncate")])
def test_a_cache_on_a_file_system_of_several_machines_needs_no_shared_memory(tmp_path, monkeypatch, kind, journal):
    folder = tmp_path / "all of us"
    mount = f"server {str(folder).replace(' ', chr(92) + '040')} {kind} rw 0 0"
    (tmp_path / "mounts").write_text(f"/dev/a / ext4 rw 0 0\n{mount}\n")
    for name in (tmp_path / "mounts", tmp_path / "absent"):
        monkeypatch.setattr(answer_cache, "MOUNTS", name)
        with ChatServer(answer) as server, AnswerCache(folder / "answers.sqlite") as cache:
            assert list(generate(SentenceTask(), ROWS, chat_at(server), cache)) == EXPECTED
            mode = cache._query("PRAGMA journal_mode")[0][0]
            assert (mode, sum(server.asked.values())) == ((journal, 40) if name.exists() else ("wal", 0))


def test_a_file_that_is_not_a_cache_is_refused_and_left_unchanged(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text(json.dumps({"these": "notes"}) * 100)
    with pytest.raises(ValueError, match="is not an answer cache"):
        AnswerCache(path)
    assert "notes" in path.read_text()


def test_only_the_row_is_rejected_if_no_request_can_be_made_of_it():
    class Frames(SentenceTask):
        def messages(self, row):
            if row == ROWS[1]:
                raise FileNotFoundError("no video clip_1.mp4")
            return super().messages(row)

    outcomes = list(generate(Frames(), ROWS[:3], RuleBasedGenerator()))
    assert outcomes[::2] == EXPECTED[:3:2]
    reason = "no request can be made of this row: no video clip_1.mp4"
    assert outcomes[1] == Rejection(reason, repr(ROWS[1]), key=ROWS[1])
