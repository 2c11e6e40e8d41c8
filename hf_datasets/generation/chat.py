"""Who answers: what every chat client offers, the offline writer, and the client that only replays the cache."""

import asyncio
import os
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hf_datasets.generation.prices import Meter
from hf_datasets.generation.task import Message, Task

SIGNAL_SECONDS = 0.5

if TYPE_CHECKING:
    from hf_datasets.generation.cache import AnswerCache


@cache
def event_loop() -> asyncio.AbstractEventLoop:
    """The one event loop, in a thread of its own, on which all requests of this process are made.

    It outlives a call, so that connections are kept, and it runs beside a notebook's own loop.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="generation", daemon=True).start()
    return loop


if hasattr(os, "register_at_fork"):  # a forked process has no thread but its own, so it needs a new loop
    os.register_at_fork(after_in_child=event_loop.cache_clear)


def result_of(outcome: "Future[Any]") -> Any:
    """The result of what runs on the loop; the caller's thread looks for signals, as not every system wakes it for them.

    Raises:
        TimeoutError: What ran on the loop raised it; as any other error of its.
    """
    while True:
        try:
            return outcome.result(timeout=SIGNAL_SECONDS)
        except TimeoutError:
            if outcome.done():
                raise


@dataclass(frozen=True, slots=True)
class Request:
    """One question of a task about one row."""

    task: Task[Any, Any]
    row: Any
    messages: list[Message]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the text as it was, its price in tokens, and why it ended (`stop`, `length`, `refusal`, ...)."""

    text: str
    input_tokens: int = 0
    output_tokens: int = 0
    finish_reason: str = "stop"


class NoAnswerError(Exception):
    """One request found no answer within its bounds; its row is rejected and the others go on.

    Args:
        reason: Why, in words for a report.
        raw: What the server sent, as far as it sent something.
        passing: Whether the same request may find an answer in a later run.
    """

    def __init__(self, reason: str, raw: str = "", *, passing: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.raw = raw
        self.passing = passing


class GenerationStoppedError(Exception):
    """No further request makes sense (key, quota, budget, context length); what was answered is kept."""


class Chat(Protocol):
    """A client that answers requests.

    `model` and `sampling` are what the answers depend on beside the messages, so they enter the cache key.
    `window` is how many rows may be under way at once; `keeps_answers` whether its answers are worth a cache.
    """

    model: str
    sampling: dict[str, Any]
    window: int
    keeps_answers: bool
    meter: Meter

    async def answer(self, request: Request) -> Answer:
        """The answer; raises NoAnswerError for this request alone, GenerationStoppedError for all."""
        ...


@runtime_checkable
class BatchChat(Chat, Protocol):
    """A client that answers many requests at a time, into the cache, and may be killed while it waits."""

    def recover(self, cache: "AnswerCache") -> None:
        """Wait for what an earlier run sent and did not live to read."""
        ...

    def fill(self, requests: dict[str, Request], cache: "AnswerCache") -> dict[str, NoAnswerError]:
        """Bring the answers to these requests, by cache key, into the cache; gives those that have none."""
        ...


class OfflineWriter:
    """The default client: each task's own writer, without a network, a key or a price."""

    model = "offline-writer"
    window = 64
    keeps_answers = False

    def __init__(self) -> None:
        self.sampling: dict[str, Any] = {}
        self.meter = Meter()

    async def answer(self, request: Request) -> Answer:
        """What the task writes by itself.

        Raises:
            NoAnswerError: The task's writer cannot write about this row.
        """
        self.meter.requests += 1
        try:
            return Answer(request.task.write(request.row))
        except ValueError as error:
            raise NoAnswerError(f"the offline writer has no answer ({error})") from None


@dataclass(slots=True)
class Replay:
    """A client that never calls anybody: rows whose answer is not in the cache are rejected, and say so."""

    model: str
    sampling: dict[str, Any]
    window: int = 64
    keeps_answers: bool = False
    meter: Meter = field(default_factory=Meter)

    async def answer(self, request: Request) -> Answer:
        """Nothing: the cache was asked before.

        Raises:
            NoAnswerError: Always.
        """
        reason = f"no cached answer of {self.model} to this request of {request.task.name}"
        raise NoAnswerError(reason, passing=True)
