"""Chat clients without a server: the rule-based generator, and the one that answers from the cache only."""

import asyncio
import os
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, TypeVar, runtime_checkable

from hf_datasets.generation.cache import AnswerCache
from hf_datasets.generation.prices import Meter
from hf_datasets.generation.requests_and_answers import Answer, Chat, NoAnswerError, Request
from hf_datasets.generation.requests_and_answers import (
    GenerationStoppedError as GenerationStoppedError,  # its place in 0.1
)

SIGNAL_SECONDS = 0.5
Result = TypeVar("Result")


@cache
def event_loop() -> asyncio.AbstractEventLoop:
    """The one event loop, in a thread of its own, on which all requests of this process are made.

    It lives on after a call, so that connections are kept, and it runs beside the loop of a notebook.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="generation", daemon=True).start()
    return loop


if hasattr(os, "register_at_fork"):  # a forked process has only its main thread, so it needs a new loop
    os.register_at_fork(after_in_child=event_loop.cache_clear)


def result_of(outcome: "Future[Result]") -> Result:
    """The result of a coroutine on the loop. The wait ends regularly, as not every system wakes it for signals.

    Raises:
        TimeoutError: The coroutine raised it; any other error of the coroutine is raised, too.
    """
    while True:
        try:
            return outcome.result(timeout=SIGNAL_SECONDS)
        except TimeoutError:
            if outcome.done():
                raise


@runtime_checkable
class BatchChat(Chat, Protocol):
    """A client that writes the answers to many requests to the cache at once and may be killed while it waits."""

    def recover(self, cache: AnswerCache) -> None:
        """Wait for the batches that an earlier run sent and was killed before reading."""
        ...

    def fill(self, requests: dict[str, Request], cache: AnswerCache) -> dict[str, NoAnswerError]:
        """Write the answers to these requests, by cache key, to the cache; returns the errors of those without one."""
        ...


class RuleBasedGenerator:
    """The default client: each task's own rule-based generator, which needs no network and no key and is free."""

    model = "offline-writer"  # part of cache keys and dataset cards
    window = 64
    keeps_answers = False

    def __init__(self) -> None:
        self.sampling: dict[str, Any] = {}
        self.meter = Meter()

    async def answer(self, request: Request) -> Answer:
        """The answer of the task's `write`.

        Raises:
            NoAnswerError: The rule-based generator has no answer for this row.
        """
        self.meter.requests += 1
        try:
            return Answer(request.task.write(request.row))
        except ValueError as error:
            raise NoAnswerError(f"the rule-based generator has no answer ({error})") from None


@dataclass(slots=True)
class Replay:
    """The cache only: rows whose answer is not in the cache are rejected."""

    model: str
    sampling: dict[str, Any]
    window: int = 64
    keeps_answers: bool = False
    meter: Meter = field(default_factory=Meter)

    async def answer(self, request: Request) -> Answer:
        """No answer: `generate` has already looked in the cache.

        Raises:
            NoAnswerError: Always.
        """
        reason = f"no cached answer of {self.model} to this request of {request.task.name}"
        raise NoAnswerError(reason, passing=True)
