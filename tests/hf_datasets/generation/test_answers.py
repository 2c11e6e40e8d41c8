"""Unexpected responses of a server: every field is checked, and no response ends a build."""

import json
import shutil
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from aiohttp import web
from chat_server import ChatServer, result
from sentences import BAD_ROW, EXPECTED, ROWS, SentenceTask, answer, rejection_among

from hf_datasets.generation.batch import OpenAIBatchChat
from hf_datasets.generation.cache import AnswerCache
from hf_datasets.generation.chat import Answer, GenerationStoppedError, Request
from hf_datasets.generation.generate import generate
from hf_datasets.generation.openai_chat import Limits, OpenAIChat, Sampling
from hf_datasets.generation.prices import Price, message_tokens, text_tokens
from hf_datasets.records import Rejection

FAST = Limits(max_wait_seconds=0.01, timeout_seconds=5, max_tries=3)
SHORT = Sampling(max_output_tokens=20)
PRICE = Price("m", input_usd=10.0, output_usd=1000.0)
GOOD = f"{BAD_ROW}."
INPUT_TOKENS = message_tokens(SentenceTask().messages(BAD_ROW))
OUTPUT_TOKENS = text_tokens(GOOD)


def completion(content=f'"{GOOD}"', finish_reason='"stop"', usage='{"prompt_tokens": 60, "completion_tokens": 9}'):
    message = f'{{"role": "assistant", "content": {content}}}'
    choice = f'{{"index": 0, "message": {message}, "finish_reason": {finish_reason}}}'
    return f'{{"id": "c", "choices": [{choice}], "usage": {usage}}}'


def usage(prompt, output="9"):
    return f'{{"prompt_tokens": {prompt}, "completion_tokens": {output}}}'


BROKEN = {
    "200,000 nested brackets": "[" * 200_000,
    "nested objects": '{"choices":' * 200_000,
    "a number of 5,000 digits": completion(usage=usage("9" * 5_000)),
    "nothing": "",
    "null": "null",
    "a list": "[]",
    "no choices": '{"choices": []}',
    "choices as an object": '{"choices": {"0": {}}}',
    "choices as text": '{"choices": "text"}',
    "a null message": '{"choices": [{"message": null}]}',
    "a message as a list": '{"choices": [{"message": ["content"]}]}',
    "no content": '{"choices": [{"message": {"role": "assistant"}}]}',
    "content as a number": completion(content="7"),
    "content as a list": completion(content='["a"]'),
    "content as false": completion(content="false"),
    "an empty list as content": completion(content="[]"),
    "a refusal as an object": '{"choices": [{"message": {"content": null, "refusal": {"a": 1}}}]}',
    "finish_reason as a list": completion(finish_reason='["stop"]'),
    "finish_reason as a number": completion(finish_reason="1"),
}
ODD_USAGE = [usage(one) for one in ("1e999", 10**26, "NaN", -1_000_000, 0, '"100"', "true", "[100]")]
ODD_USAGE += ['{"completion_tokens": 9}', "null", "[1, 2]", '"many"']
ODD_OUTPUT_USAGE = [usage(60, one) for one in ("1e999", 10**26, -5, 0, '{"a": 1}')]


def chat_at(server, **options):
    return OpenAIChat("m", base_url=server.url, limits=FAST, **options)


def sends(payload, row=BAD_ROW):
    """A server that sends this body for one row and valid answers for the others."""
    server = ChatServer(answer)
    server.payload = lambda body, usual: payload.encode() if row in str(body["messages"]) else usual
    return server


def ask_one(payload, cache=None, **options):
    with sends(payload) as server:
        chat = chat_at(server, **options)
        return list(generate(SentenceTask(), [BAD_ROW], chat, cache)), chat.meter


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_a_broken_answer_rejects_only_its_row_and_names_it(cache, body):
    with sends(body) as server:
        outcomes = list(generate(SentenceTask(), ROWS[:8], chat_at(server), cache))
    bad = rejection_among(outcomes)
    assert (bad.reason, bad.raw) == ("no answer after 3 tries: MalformedResponseError", body)
    assert len(cache) == 7


@pytest.mark.parametrize("sent", [*ODD_USAGE, *ODD_OUTPUT_USAGE])
def test_missing_or_impossible_usage_is_metered_by_the_estimate(cache, sent):
    (outcome,), meter = ask_one(completion(usage=sent), cache)
    assert outcome == f"{BAD_ROW} -> {GOOD}"
    if sent in ODD_USAGE:
        assert meter.input_tokens == INPUT_TOKENS
    else:
        assert (meter.input_tokens, meter.output_tokens) == (60, OUTPUT_TOKENS)


def test_sensible_usage_is_metered_as_it_was_reported():
    for reported in ("60", "60.0", "5000"):
        _, meter = ask_one(completion(usage=usage(reported)))
        assert (meter.input_tokens, meter.output_tokens) == (float(reported), 9)


@pytest.mark.parametrize("sent", [usage(-1_000_000, -1_000_000), usage(0, 0), "null"])
def test_usage_that_is_reported_too_low_does_not_extend_the_budget(sent):
    with ChatServer(answer) as server:
        server.payload = lambda body, usual: json.dumps(json.loads(usual) | {"usage": json.loads(sent)}).encode()
        limits = Limits(max_usd=0.1, max_concurrency=2)
        chat = OpenAIChat("m", base_url=server.url, limits=limits, price=PRICE, sampling=SHORT)
        with pytest.raises(GenerationStoppedError, match=r"budget of \$0.1 is used up"):
            list(generate(SentenceTask(), ROWS, chat))
        each = PRICE.usd(INPUT_TOKENS, OUTPUT_TOKENS)
        assert sum(server.answered.values()) * each <= 0.1
        assert chat.meter.usd == pytest.approx(sum(server.answered.values()) * each, rel=0.05)


def test_broken_answers_count_against_the_budget():
    with sends("[" * 1000, row="") as server:
        limits = Limits(max_usd=0.025, max_wait_seconds=0.01, max_tries=100, max_concurrency=2)
        chat = OpenAIChat("m", base_url=server.url, limits=limits, price=PRICE, sampling=SHORT)
        with pytest.raises(GenerationStoppedError, match=r"budget of \$0.025 is used up"):
            list(generate(SentenceTask(), ROWS, chat))
        assert chat.meter.requests == sum(server.answered.values())
        assert 0 < chat.meter.usd <= 0.025


def test_requests_that_the_server_charged_without_an_answer_arriving_count_against_the_budget():
    faults = ["close", "half", "html", "drip", "server_error", None, None, None, None, "close"]
    charged = []

    def charge(body):
        charged.append(PRICE.usd(100, 10))
        return answer(body)

    def fault(body, times):
        return faults[(zlib.crc32(str(body["messages"]).encode()) + times) % 10]

    with ChatServer(charge, fault, seconds=lambda body: 0.05) as server:
        limits = Limits(max_usd=1.0, max_wait_seconds=0.01, max_tries=4, max_concurrency=64, timeout_seconds=0.5)
        chat = OpenAIChat("m", base_url=server.url, limits=limits, price=PRICE, sampling=Sampling(max_output_tokens=10))
        with pytest.raises(GenerationStoppedError, match=r"budget of \$1 is used up"):
            list(generate(SentenceTask(), [f"{row} {number}" for number in range(40) for row in ROWS], chat))
    assert sum(charged) <= chat.meter.usd
    assert 0.9 < chat.meter.usd <= 1.0


def test_what_another_client_has_sent_and_not_read_counts_against_a_budget_that_is_shared(cache):
    with ChatServer(answer) as server:
        server.gate, server.gate_after = threading.Event(), 3

        def client():
            limits = Limits(max_usd=0.2, max_concurrency=4)
            chat = OpenAIChat("m", base_url=server.url, limits=limits, price=PRICE, sampling=SHORT)
            chat.share_budget(cache, "a build")
            return chat

        first, second = client(), client()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(list, generate(SentenceTask(), ROWS[:7], first))
            while server.at_once < 4:
                time.sleep(0.01)
            sent = [Request(SentenceTask(), row, SentenceTask().messages(row)) for row in ROWS[3:7]]
            assert second.spent_usd == pytest.approx(first.meter.usd + sum(map(first.worst_usd, sent)))
            server.gate.set()
            assert waiting.result() == EXPECTED[:7]
        assert second.spent_usd == first.spent_usd == first.meter.usd
        with pytest.raises(GenerationStoppedError, match=r"budget of \$0.2 is used up: .* by other runs"):
            list(generate(SentenceTask(), ROWS[7:], second))
        assert sum(server.answered.values()) * PRICE.usd(100, 10) <= 0.2


def test_a_server_that_is_not_there_charges_nothing():
    with ChatServer(answer) as server:
        chat = OpenAIChat("m", base_url=server.url, limits=FAST, price=PRICE)
    (outcome,) = generate(SentenceTask(), [BAD_ROW], chat)
    assert isinstance(outcome, Rejection)
    assert chat.meter.usd == 0


@pytest.mark.parametrize("reason", ['"\\ud800"', '"' + "x" * 100_000 + '"', "null"])
def test_an_unknown_finish_reason_is_shortened_and_cleaned(cache, reason):
    (outcome,), _ = ask_one(completion(finish_reason=reason), cache)
    assert outcome == f"{BAD_ROW} -> {GOOD}"
    (kept,) = cache._query("SELECT finish_reason FROM answers")[0]
    assert kept.encode()
    assert len(kept) <= 100


@pytest.mark.parametrize("value", ['["a"]', '{"a": 1}'])
@pytest.mark.parametrize("field", ["code", "type", "param", "message"])
def test_an_unexpected_error_body_rejects_only_its_row(field, value):
    class Odd(ChatServer):
        async def _chat(self, request, body):
            response = await super()._chat(request, body)
            if response.status == 400:
                response.body = f'{{"error": {{"{field}": {value}}}}}'.encode()
            return response

    with Odd(answer, lambda body, times: "bad_row" if BAD_ROW in str(body) else None) as server:
        outcomes = list(generate(SentenceTask(), ROWS[:6], chat_at(server)))
    assert rejection_among(outcomes).reason == "the server refused the request with status 400"


def test_only_the_row_that_utf8_cannot_encode_is_rejected(cache):
    rows = [ROWS[0], "a person \ud800 waves", ROWS[1]]
    with ChatServer(answer) as server:
        outcomes = list(generate(SentenceTask(), rows, chat_at(server), cache))
    assert outcomes[::2] == EXPECTED[:2]
    assert outcomes[1].reason == "the request holds a character that UTF-8 cannot encode"
    assert outcomes[1].key == rows[1]


def batch_chat(server, **options):
    chat = OpenAIBatchChat("m", base_url=server.url, limits=FAST, **options)
    chat.poll_seconds = 0.01
    return chat


def line_with(body):
    return lambda entry: result(entry, 200, {}).replace('"body": {}', f'"body": {body}')


LINES = {
    **{name: line_with(BROKEN[name]) for name in ("200,000 nested brackets", "null", "no content")},  # read as above
    "a list around it": lambda entry: f'[{{"custom_id": "{entry["custom_id"]}"}}]',
    "a response as text": lambda entry: json.dumps({"custom_id": entry["custom_id"], "response": "no"}),
    "a status as a list": lambda entry: json.dumps(
        {"custom_id": entry["custom_id"], "response": {"status_code": [400], "body": {}}}
    ),
    "an error as text": lambda entry: json.dumps({"custom_id": entry["custom_id"], "error": "no"}),
    "a message nested deep": lambda entry: (
        f'{{"custom_id": "{entry["custom_id"]}", "error": {{"message": {"[" * 900}{"]" * 900}}}}}'
    ),
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_broken_line_of_a_batch_rejects_only_its_row(cache, line):
    with ChatServer(answer) as server:
        server.line = lambda entry, usual: line(entry) if BAD_ROW in str(entry) else usual
        outcomes = list(generate(SentenceTask(), ROWS[:6], batch_chat(server), cache))
    assert rejection_among(outcomes).raw


def test_a_line_separator_inside_an_answer_does_not_break_its_line(cache):
    with ChatServer(answer) as server:
        server.line = lambda entry, usual: usual.replace("a person", "a\u2028\x85person")
        outcomes = list(generate(SentenceTask(), ROWS[:3], batch_chat(server), cache))
    assert outcomes == [one.replace("-> a person", "-> a\u2028\x85person") for one in EXPECTED[:3]]


def test_batch_lines_of_unknown_or_repeated_requests_are_ignored(cache):
    foreign = "f" * 64
    with ChatServer(answer) as server:
        server.line = lambda entry, usual: "\n".join([usual, usual, usual.replace(entry["custom_id"], foreign)])
        chat = batch_chat(server)
        assert list(generate(SentenceTask(), ROWS[:3], chat, cache)) == EXPECTED[:3]
    assert cache.get(foreign) is None
    assert (len(cache), chat.meter.requests) == (3, 3)


def test_the_usage_of_a_batch_line_is_checked_too(cache):
    with ChatServer(answer) as server:
        server.line = lambda entry, usual: usual.replace('"prompt_tokens": 100', '"prompt_tokens": -1e999')
        chat = batch_chat(server)
        assert list(generate(SentenceTask(), ROWS[:1], chat, cache)) == EXPECTED[:1]
        assert chat.meter.input_tokens == message_tokens(SentenceTask().messages(ROWS[0]))


NONSENSE = ["[]", "null", "{}", "<html>", "[" * 200_000, '{"id": ["a"], "status": {}, "data": 1}']


def server_that_says(body, call):
    """A server with one handler that sends this body."""

    async def nonsense(self, request):
        return web.Response(text=body, content_type="application/json")

    return type("Odd", (ChatServer,), {call: nonsense})(answer)


@pytest.mark.parametrize("body", NONSENSE, ids=range(len(NONSENSE)))
@pytest.mark.parametrize("call", ["upload", "create_batch", "get_batch", "list_batches"])
def test_an_unreadable_batch_response_stops_the_run_and_loses_no_answer(cache, call, body):
    with server_that_says(body, call) as server:
        chat = batch_chat(server)
        if call == "list_batches":  # is called for a batch whose id was not recorded
            cache.plan_batch(chat.endpoint, ["k"])
        with pytest.raises(GenerationStoppedError, match=r"^the responses of .* cannot be read; .*$"):
            list(generate(SentenceTask(), ROWS[:2], chat, cache))
    assert len(cache.open_batches(chat.endpoint)) == 1


@pytest.mark.parametrize("body", NONSENSE, ids=range(len(NONSENSE)))
def test_unreadable_answers_of_a_batch_reject_their_rows(cache, body):
    with server_that_says(body, "download") as server:
        outcomes = list(generate(SentenceTask(), ROWS[:2], batch_chat(server), cache))
    assert [(one.reason, one.key) for one in outcomes] == [("no batch answered this request", row) for row in ROWS[:2]]


def test_a_batch_whose_id_is_unreadable_is_found_and_not_sent_again(cache):
    class Odd(ChatServer):
        async def create_batch(self, request):
            await super().create_batch(request)
            return web.Response(text="[" * 200_000, content_type="application/json")

    with Odd(answer) as server:
        assert list(generate(SentenceTask(), ROWS[:3], batch_chat(server), cache)) == EXPECTED[:3]
        assert len(server.batches) == 1


@pytest.mark.parametrize("share", [0, 0.5])
@pytest.mark.parametrize("name", ["answers.sqlite", "answers.sqlite-wal", "answers.sqlite-shm"])
def test_a_cache_that_is_cut_gives_no_wrong_answer(tmp_path, name, share):
    (tmp_path / "cut").mkdir()
    with AnswerCache(tmp_path / "answers.sqlite") as cache:
        for number in range(100):
            cache.put(str(number), Answer(f"{number} " * 100, 1, 2, "stop"), "m")
        for path in tmp_path.glob("answers.sqlite*"):  # as a process leaves them that was killed
            shutil.copy(path, tmp_path / "cut")
    path = tmp_path / "cut" / name
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with AnswerCache(tmp_path / "cut" / "answers.sqlite") as cache:
        left = {number: found.text for number in range(100) if (found := cache.get(str(number)))}
        assert left == {number: f"{number} " * 100 for number in left}
        assert cache.put("new", Answer("y", 1, 2, "stop"), "m").text == "y"
    whole = (tmp_path / "answers.sqlite").read_bytes()
    (tmp_path / "answers.sqlite").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="name another file or remove this one"):
        AnswerCache(tmp_path / "answers.sqlite")
