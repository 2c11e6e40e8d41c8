"""The engine: one record or rejection per row, in the order of the rows."""

import asyncio
import contextlib
import dataclasses
import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from hf_datasets.generation.answer_checks import rejection_reason
from hf_datasets.generation.cache import AnswerCache
from hf_datasets.generation.chat import Answer, Chat, GenerationStoppedError, NoAnswerError, Request, request_key
from hf_datasets.generation.event_loop import SIGNAL_SECONDS, event_loop, result_of
from hf_datasets.generation.task import Message, Task
from hf_datasets.records import Rejection

Row = TypeVar("Row")
Record = TypeVar("Record")
Steps = Generator[Request, Answer, Any]

REQUEST_THREADS = min(32, (os.cpu_count() or 1) + 4)
"""Threads that make requests, of which some wait for a disk; decoders and encoders of pictures run at the same time."""
BATCHES_AT_ONCE = 8
"""Groups of rows whose batches a server works on together; as many requests are in memory."""
RESENDS = 3
"""How often a request without an answer is sent in another batch."""
INTERRUPT_SECONDS = 3.0
"""How long an interrupted run waits for the answers to requests already sent, which are charged."""
QUOTED_CHARACTERS = 2_000
"""How much of a rejected answer is quoted to the model that wrote it."""


@runtime_checkable
class BatchChat(Chat, Protocol):
    """A client that writes the answers to many requests to the cache at once and may be killed while it waits."""

    max_bytes: int

    def recover(self, cache: AnswerCache) -> None:
        """Wait for the batches that an earlier run sent and was killed before reading."""
        ...

    def fill(self, requests: dict[str, Request], cache: AnswerCache) -> "Future[dict[str, NoAnswerError]]":
        """Write the answers to these requests, by cache key, to the cache; gives the errors of those without one."""
        ...

    def body_bytes(self, request: Request) -> int:
        """How long a request is at least in a file of a batch, of which `max_bytes` make one."""
        ...


def generate(
    task: Task[Row, Record],
    rows: Iterable[Row],
    chat: Chat,
    cache: AnswerCache | None = None,
    *,
    max_answers: int = 2,
) -> Iterator[Record | Rejection]:
    """Ask `chat` for each row's record; yields one outcome per row, in the order of the rows.

    Rows are read lazily and at most `chat.window` of them are in progress, so memory stays bounded. Their first
    requests are made by threads ahead, as where they show frames of videos, and sent in the order of the rows.
    Every answer is cached before it is checked; a cached answer costs nothing. With a cache, rows with the same request
    at the same time share it. An interrupted run (Ctrl-C) sends no further request, waits a moment for the answers to
    those already sent, and ends.

    Args:
        task: Makes the requests and reads the answers.
        rows: The rows; read in the caller's thread.
        chat: The chat client.
        cache: Where answers are stored and looked up; a chat that sends batches needs one.
        max_answers: How many answers a row may get; a rejected one is sent back with the reason before the next.

    Returns:
        An iterator over the records that the task parsed, or the rejections with the reason, the last raw answer, the
        row's key (its attribute `key`, else the row as text) and the key of the request. It raises
        GenerationStoppedError on a wrong API key, an empty account or budget and a request beyond the context length:
        all earlier outcomes were yielded, all answers that arrived are cached, and the message says what to do.

    Raises:
        ValueError: A chat that sends batches has no cache.
    """
    if not isinstance(chat, BatchChat):
        return _generate_live(task, rows, chat, cache, max_answers)
    if cache is None:
        raise ValueError("batches need a cache: it is where their answers arrive and how a killed run finds them")
    return _generate_in_batches(task, rows, chat, cache, max_answers)


def dialogue(task: Task[Row, Record], row: Row, max_answers: int) -> Generator[Request, Answer, Record | Rejection]:
    """The requests about one row, as a generator that is sent the answers and returns the outcome.

    It does no input or output, so a live run, a batch and a dry run all use it.

    Yields:
        The next request; expects its answer.

    Returns:
        The record, or the rejection of the last answer.
    """
    messages = task.messages(row)
    outcome: Record | Rejection = Rejection("no answer was allowed", "")
    for _ in range(max_answers):
        answer = yield Request(task, row, messages)
        outcome = judge_answer(task, row, messages, answer)
        if not isinstance(outcome, Rejection):
            break
        again = f"That answer cannot be used: {outcome.reason}. Answer again, in the form asked for."
        messages = [
            *messages,
            {"role": "assistant", "content": answer.text[:QUOTED_CHARACTERS] or "(nothing)"},
            {"role": "user", "content": again},
        ]
    return outcome


def judge_answer(task: Task[Row, Record], row: Row, messages: list[Message], answer: Answer) -> Record | Rejection:
    """The record in an answer, or the rejection with the reason and the raw answer."""
    reason = rejection_reason(messages, answer)
    if reason:
        return Rejection(reason, answer.text)
    try:
        return task.parse(row, answer.text)
    except Exception as error:
        return Rejection(f"the parser of {task.name} failed: {type(error).__name__}", answer.text)


def _generate_live(
    task: Task[Any, Any], rows: Iterable[Any], chat: Chat, cache: AnswerCache | None, max_answers: int
) -> Iterator[Any]:
    window: deque[Future[Any]] = deque()
    opened = _open_rows(task, rows, max_answers)
    try:
        for steps, first in opened:
            window.append(_start(steps, first, task, chat, cache))
            while window and (len(window) >= chat.window or window[0].done()):
                yield result_of(window.popleft())
        while window:
            yield result_of(window.popleft())
    except GenerationStoppedError:
        wait(window)  # requests already sent are charged, so their answers are cached
        raise
    except KeyboardInterrupt:
        with getattr(chat, "sending_nothing", contextlib.nullcontext)():
            wait(window, timeout=INTERRUPT_SECONDS)
        raise
    finally:
        opened.close()
        for outcome in window:
            outcome.cancel()


def _open_rows(
    task: Task[Any, Any], rows: Iterable[Any], max_answers: int
) -> Generator[tuple[Steps, Request | Rejection]]:
    # The steps of each row and its first request, in the order of the rows, some made ahead in threads.
    ahead: deque[tuple[Steps, Future[Any]]] = deque()
    readers = ThreadPoolExecutor(REQUEST_THREADS, "generation-rows")
    try:
        for row in rows:
            steps = dialogue(task, row, max_answers)
            ahead.append((steps, readers.submit(_first_request, steps, row)))
            if len(ahead) > REQUEST_THREADS:
                steps, made = ahead.popleft()
                yield steps, result_of(made)
        while ahead:
            steps, made = ahead.popleft()
            yield steps, result_of(made)
    finally:
        readers.shutdown(wait=False, cancel_futures=True)


def _start(
    steps: Steps, first: Request | Rejection, task: Task[Any, Any], chat: Chat, cache: AnswerCache | None
) -> "Future[Any]":
    """Send the first request; the loop does the rest."""
    if isinstance(first, Rejection):
        failed: Future[Any] = Future()
        failed.set_result(first)
        return failed
    chat.meter.note_prompt(task.name, first.messages, getattr(task, "template", ""))
    return asyncio.run_coroutine_threadsafe(_settle(steps, first, chat, cache), event_loop())


def _first_request(steps: Steps, row: Any) -> Request | Rejection:
    try:
        return next(steps)
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a video that cannot be read
        return Rejection(f"no request can be made of this row: {error}", repr(row), _key_of(row))


def _key_of(row: Any) -> str:
    return str(getattr(row, "key", row))


def _with_keys(outcome: Any, request: Request, chat: Chat) -> Any:
    """The outcome; a rejection gets the keys of its row and request."""
    if not isinstance(outcome, Rejection):
        return outcome
    return dataclasses.replace(outcome, key=outcome.key or _key_of(request.row), request=request_key(request, chat))


def _unanswered(missing: NoAnswerError, request: Request, chat: Chat, last: str) -> Any:
    """The rejection of a row without an answer, with the last answer as `raw` if there was one."""
    chat.meter.unanswered += missing.passing
    return _with_keys(Rejection(missing.reason, missing.raw or last), request, chat)


async def _settle(steps: Steps, request: Request, chat: Chat, cache: AnswerCache | None) -> Any:
    last = ""
    try:
        while True:
            answer = await _answered(request, chat, cache)
            last = answer.text
            request = steps.send(answer)
    except StopIteration as end:
        return _with_keys(end.value, request, chat)
    except NoAnswerError as missing:
        return _unanswered(missing, request, chat, last)


async def _answered(request: Request, chat: Chat, cache: AnswerCache | None) -> Answer:
    """The answer to a request: from the cache, else from the chat and then into the cache."""
    if cache is None:
        return await chat.answer(request)
    key = request_key(request, chat)
    while same := cache.under_way.get(key):
        await asyncio.wait([same])  # unlike `await same`, does not cancel it when this row is canceled
        if error := same.result():
            raise error
    found = cache.get(key)
    if found:
        chat.meter.cached += 1
        return found
    return await (_ask(key, request, chat, cache) if chat.keeps_answers else chat.answer(request))


async def _ask(key: str, request: Request, chat: Chat, cache: AnswerCache) -> Answer:
    """Send the request; other rows with the same request wait for its answer or error."""
    done = cache.under_way[key] = asyncio.get_running_loop().create_future()
    error: Exception | None = None
    try:
        return cache.put(key, await chat.answer(request), chat.model, request)
    except Exception as caught:
        error = caught
        raise
    finally:
        del cache.under_way[key]
        done.set_result(error)


@dataclass(slots=True)
class _Open:
    """A row that waits for the answer of its key, or has its outcome."""

    steps: Steps
    request: Request | None = None
    key: str = ""
    outcome: Any = None
    last: str = ""

    def advance(self, chat: BatchChat, cache: AnswerCache) -> bool:
        """Go on with the cached answer, if there is one."""
        request = self.request
        answer = cache.get(self.key) if request else None
        if request is None or answer is None:
            return False
        self.last = answer.text
        try:
            self.request = self.steps.send(answer)
            self.key = request_key(self.request, chat)
        except StopIteration as end:
            self.request, self.outcome = None, _with_keys(end.value, request, chat)
        return True


@dataclass(slots=True)
class _Group:
    """Rows that go through their batches together."""

    rows: list[_Open] = field(default_factory=list)
    tries: int = 0
    filling: "Future[dict[str, NoAnswerError]] | None" = None
    errors: dict[str, NoAnswerError] = field(default_factory=dict)
    stopped: GenerationStoppedError | None = None

    def send(self, chat: BatchChat, cache: AnswerCache) -> None:
        """Send the open requests, if there are any and they were not sent too often."""
        missing = {opened.key: opened.request for opened in self.rows if opened.request}
        self.filling = chat.fill(missing, cache) if missing and self.tries and not self.stopped else None
        self.tries -= 1

    def go_on(self, chat: BatchChat, cache: AnswerCache) -> None:
        """Take the answers of the batches that ended, and send what they leave."""
        assert self.filling is not None
        try:
            self.errors |= self.filling.result()
        except GenerationStoppedError as stop:
            self.stopped = stop
        for opened in self.rows:
            opened.advance(chat, cache)
        self.send(chat, cache)

    def outcomes(self, chat: BatchChat) -> Iterator[Any]:
        # In order; where the batches stopped, those before the first open row, and then the reason is raised.
        for opened in self.rows:
            if opened.request and self.stopped:
                raise self.stopped
            if opened.request:
                missed = self.errors.get(opened.key) or NoAnswerError("no batch answered this request", passing=True)
                opened.outcome = _unanswered(missed, opened.request, chat, opened.last)
            yield opened.outcome


def _generate_in_batches(
    task: Task[Any, Any], rows: Iterable[Any], chat: BatchChat, cache: AnswerCache, max_answers: int
) -> Iterator[Any]:
    # Several groups of rows wait for their batches at the same time; the outcomes are in the order of the rows.
    chat.recover(cache)
    groups: deque[_Group] = deque()
    opened = _open_rows(task, rows, max_answers)
    try:
        for group in _groups(opened, task, chat, cache):
            group.tries = max_answers + RESENDS
            group.send(chat, cache)
            groups.append(group)
            while groups and (
                len(groups) >= BATCHES_AT_ONCE or groups[0].filling is None or any(one.stopped for one in groups)
            ):
                yield from _first_done(groups, chat, cache).outcomes(chat)
        while groups:
            yield from _first_done(groups, chat, cache).outcomes(chat)
    finally:  # where the run ends early, the next one reads the answers of the batches that were sent
        opened.close()
        for group in groups:
            if group.filling is not None:
                group.filling.cancel()


def _first_done(groups: deque[_Group], chat: BatchChat, cache: AnswerCache) -> _Group:
    """Take the first group when it is done; all others go on meanwhile."""
    while groups[0].filling is not None:
        waiting = {group.filling: group for group in groups if group.filling is not None}
        for ended in wait(waiting, timeout=SIGNAL_SECONDS, return_when=FIRST_COMPLETED).done:
            waiting[ended].go_on(chat, cache)
    return groups.popleft()


def _groups(
    opened: Iterable[tuple[Steps, Request | Rejection]],
    task: Task[Any, Any],
    chat: BatchChat,
    cache: AnswerCache,
) -> Iterator[_Group]:
    # As many rows together as one batch has room for, each row as far as the cache answers it.
    group, num_bytes = _Group(), 0
    for steps, first in opened:
        row = _Open(steps)
        if isinstance(first, Rejection):
            row.outcome = first
        else:
            chat.meter.note_prompt(task.name, first.messages, getattr(task, "template", ""))
            row.request, row.key = first, request_key(first, chat)
            while row.advance(chat, cache):
                chat.meter.cached += 1
        size = chat.body_bytes(row.request) if row.request else 0
        if group.rows and (len(group.rows) >= chat.window or num_bytes + size > chat.max_bytes):
            yield group
            group, num_bytes = _Group(), 0
        group.rows.append(row)
        num_bytes += size
    yield group
