"""The engine: one record or rejection per row, in the order of the rows."""

import asyncio
import contextlib
import dataclasses
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from hf_datasets.generation.cache import AnswerCache
from hf_datasets.generation.chat import (
    Answer,
    Chat,
    GenerationStoppedError,
    NoAnswerError,
    Request,
    request_key,
)
from hf_datasets.generation.conversation import dialogue
from hf_datasets.generation.event_loop import event_loop, result_of
from hf_datasets.generation.task import Task
from hf_datasets.records import Rejection

Row = TypeVar("Row")
Record = TypeVar("Record")
Steps = Generator[Request, Answer, Any]

RESENDS = 3
"""How often a request without an answer is sent in another batch."""
GRACE_SECONDS = 3.0
"""How long an interrupted run waits for the answers to requests already sent, which are charged."""


@runtime_checkable
class BatchChat(Chat, Protocol):
    """A client that writes the answers to many requests to the cache at once and may be killed while it waits."""

    def recover(self, cache: AnswerCache) -> None:
        """Wait for the batches that an earlier run sent and was killed before reading."""
        ...

    def fill(self, requests: dict[str, Request], cache: AnswerCache) -> dict[str, NoAnswerError]:
        """Write the answers to these requests, by cache key, to the cache; returns the errors of those without one."""
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

    Rows are read lazily and at most `chat.window` of them are in progress, so memory stays bounded.
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


def _generate_live(
    task: Task[Any, Any], rows: Iterable[Any], chat: Chat, cache: AnswerCache | None, max_answers: int
) -> Iterator[Any]:
    window: deque[Future[Any]] = deque()
    try:
        for row in rows:
            window.append(_start(task, row, chat, cache, max_answers))
            while window and (len(window) >= chat.window or window[0].done()):
                yield result_of(window.popleft())
        while window:
            yield result_of(window.popleft())
    except GenerationStoppedError:
        wait(window)  # requests already sent are charged, so their answers are cached
        raise
    except KeyboardInterrupt:
        with getattr(chat, "sending_nothing", contextlib.nullcontext)():
            wait(window, timeout=GRACE_SECONDS)
        raise
    finally:
        for outcome in window:
            outcome.cancel()


def _start(task: Task[Any, Any], row: Any, chat: Chat, cache: AnswerCache | None, max_answers: int) -> "Future[Any]":
    """Make the first request in this thread, as reading frames would block the loop; the loop does the rest."""
    steps = dialogue(task, row, max_answers)
    first = _first(steps, row)
    if isinstance(first, Rejection):
        failed: Future[Any] = Future()
        failed.set_result(first)
        return failed
    chat.meter.note_prompt(task.name, first.messages, getattr(task, "template", ""))
    return asyncio.run_coroutine_threadsafe(_settle(steps, first, chat, cache), event_loop())


def _first(steps: Steps, row: Any) -> Request | Rejection:
    try:
        return next(steps)
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a video that cannot be read
        return Rejection(f"no request can be made of this row: {error}", repr(row), _key_of(row))


def _key_of(row: Any) -> str:
    return str(getattr(row, "key", row))


def _with_keys(outcome: Any, request: Request, chat: Chat) -> Any:
    """The outcome; a rejection gets the keys of its row and request."""
    return _rejection_with_keys(outcome, request, chat) if isinstance(outcome, Rejection) else outcome


def _rejection_with_keys(rejection: Rejection, request: Request, chat: Chat) -> Rejection:
    row_key = rejection.key or _key_of(request.row)
    return dataclasses.replace(rejection, key=row_key, request=request_key(request, chat))


def _unanswered(missing: NoAnswerError, request: Request, chat: Chat, last: str = "") -> Rejection:
    """The rejection of a row without an answer, with the last answer as `raw` if there was one."""
    chat.meter.unanswered += missing.passing
    return _rejection_with_keys(Rejection(missing.reason, missing.raw or last), request, chat)


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


def _generate_in_batches(
    task: Task[Any, Any], rows: Iterable[Any], chat: BatchChat, cache: AnswerCache, max_answers: int
) -> Iterator[Any]:
    chat.recover(cache)
    chunk: list[_Open] = []
    for row in rows:
        opened = _Open(dialogue(task, row, max_answers))
        first = _first(opened.steps, row)
        if isinstance(first, Rejection):
            opened.outcome = first
        else:
            chat.meter.note_prompt(task.name, first.messages, getattr(task, "template", ""))
            opened.request, opened.key = first, request_key(first, chat)
            while opened.advance(chat, cache):
                chat.meter.cached += 1
        chunk.append(opened)
        if len(chunk) >= chat.window:
            yield from _finish(chunk, chat, cache, max_answers)
            chunk = []
    yield from _finish(chunk, chat, cache, max_answers)


def _finish(chunk: list[_Open], chat: BatchChat, cache: AnswerCache, max_answers: int) -> Iterator[Any]:
    """Send the open requests in batches until all rows have an outcome.

    Yields:
        The outcomes in order.

    Raises:
        GenerationStoppedError: The batches stopped; the outcomes before the first open row were yielded.
    """
    errors: dict[str, NoAnswerError] = {}
    stopped: GenerationStoppedError | None = None
    for _ in range(max_answers + RESENDS):
        missing = {opened.key: opened.request for opened in chunk if opened.request}
        if not missing or stopped:
            break
        try:
            errors |= chat.fill(missing, cache)
        except GenerationStoppedError as stop:
            stopped = stop
        for opened in chunk:
            opened.advance(chat, cache)
    for opened in chunk:
        if opened.request and stopped:
            raise stopped
        if opened.request:
            missed = errors.get(opened.key) or NoAnswerError("no batch answered this request", passing=True)
            opened.outcome = _unanswered(missed, opened.request, chat, opened.last)
        yield opened.outcome
