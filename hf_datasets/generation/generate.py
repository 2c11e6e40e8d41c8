"""The engine: rows in, one record or rejection each out, in input order, whatever happens in between."""

import asyncio
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from hf_datasets.generation.cache import AnswerCache, request_key
from hf_datasets.generation.chat import (
    Answer,
    Chat,
    GenerationStoppedError,
    NoAnswerError,
    Request,
    event_loop,
)
from hf_datasets.generation.objections import objection
from hf_datasets.generation.task import Message, Task
from hf_datasets.records import Rejection

Row = TypeVar("Row")
Record = TypeVar("Record")

QUOTED_CHARACTERS = 2_000
"""How much of a refused answer goes back to the model that wrote it."""


def generate(
    task: Task[Row, Record],
    rows: Iterable[Row],
    chat: Chat,
    cache: AnswerCache | None = None,
    *,
    max_answers: int = 2,
) -> Iterator[Record | Rejection]:
    """Ask `chat` for each row's record; one outcome per row comes back, in the order of the rows.

    Rows are read as room appears and at most `chat.window` of them are under way, so memory stays bounded.
    Every answer is in the cache before it is judged; an answer found there costs nothing.

    Args:
        task: What to ask and how to read the answer.
        rows: What to ask about; read in the caller's thread.
        chat: Who answers.
        cache: Where answers are kept and looked up.
        max_answers: How many answers a row may get; a refused one goes back with the reason before the next.

    Yields:
        The record that the task parsed, or the rejection with the reason and the last raw answer.

    Raises:
        GenerationStoppedError: Key, quota, budget or context length; all earlier outcomes were yielded, all answers
            that arrived are in the cache, and the message says what to do.
    """
    window: deque[Future[Record | Rejection]] = deque()
    try:
        for row in rows:
            window.append(_start(task, row, chat, cache, max_answers))
            while window and (len(window) >= chat.window or window[0].done()):
                yield window.popleft().result()
        while window:
            yield window.popleft().result()
    except GenerationStoppedError:
        wait(window)  # Requests under way are paid for: let their answers reach the cache.
        raise
    finally:
        for outcome in window:
            outcome.cancel()


def dialogue(
    task: Task[Row, Record], row: Row, max_answers: int
) -> Generator[Request, Answer, Record | Rejection]:
    """The questions about one row, as a generator that is sent the answers and returns the outcome.

    It does no input or output, so a live run, a batch and a dry run all drive the same one.

    Yields:
        The next request; expects its answer.

    Returns:
        The record, or the rejection of the last answer.
    """
    messages = task.messages(row)
    outcome: Record | Rejection = Rejection("no answer was allowed", "")
    for _ in range(max_answers):
        answer = yield Request(task, row, messages)
        outcome = judge(task, row, messages, answer)
        if not isinstance(outcome, Rejection):
            break
        messages = [*messages, *_complaint(answer.text, outcome.reason)]
    return outcome


def judge(task: Task[Row, Record], row: Row, messages: list[Message], answer: Answer) -> Record | Rejection:
    """The record in an answer, or why there is none; the raw answer is kept with the reason."""
    reason = objection(messages, answer)
    if reason:
        return Rejection(reason, answer.text)
    try:
        return task.parse(row, answer.text)
    except Exception as error:
        return Rejection(f"the parser of {task.name} failed: {type(error).__name__}", answer.text)


def _complaint(text: str, reason: str) -> list[Message]:
    return [
        {"role": "assistant", "content": text[:QUOTED_CHARACTERS] or "(nothing)"},
        {
            "role": "user",
            "content": f"That answer cannot be used: {reason}. Answer again, in the form asked for.",
        },
    ]


def _start(
    task: Task[Any, Any], row: Any, chat: Chat, cache: AnswerCache | None, max_answers: int
) -> "Future[Any]":
    """Make the first request here, where reading frames holds up nobody's answer, and leave the rest to the loop."""
    steps = dialogue(task, row, max_answers)
    try:
        request = next(steps)
    except (OSError, ValueError) as error:
        failed: Future[Any] = Future()
        failed.set_result(Rejection(f"no request can be made of this row: {error}", repr(row)))
        return failed
    chat.meter.note_prompt(task.name, request.messages)
    return asyncio.run_coroutine_threadsafe(_settle(steps, request, chat, cache), event_loop())


async def _settle(
    steps: Generator[Any, Answer, Any], request: Request, chat: Chat, cache: AnswerCache | None
) -> Any:
    try:
        while True:
            request = steps.send(await answered(request, chat, cache))
    except StopIteration as end:
        return end.value
    except NoAnswerError as missing:
        return Rejection(missing.reason, missing.raw)


async def answered(request: Request, chat: Chat, cache: AnswerCache | None) -> Answer:
    """The answer to a request: from the cache, else from the chat and then into the cache."""
    if cache is None:
        return await chat.answer(request)
    key = request_key(request, chat)
    found = cache.get(key)
    if found:
        chat.meter.cached += 1
        return found
    answer = await chat.answer(request)
    return cache.put(key, request, chat.model, answer) if chat.keeps_answers else answer
