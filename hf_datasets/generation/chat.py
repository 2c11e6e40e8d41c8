"""Chat clients without a server: the rule-based generator, and the one that answers from the cache only."""

import asyncio
import os
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, runtime_checkable

from hf_datasets.generation.cache import AnswerCache
from hf_datasets.generation.exchange import Answer, Chat, NoAnswerError, Request
from hf_datasets.generation.exchange import GenerationStoppedError as GenerationStoppedError  # its place in 0.1
from hf_datasets.generation.prices import Meter

SIGNAL_SECONDS = 0.5


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


@runtime_checkable
class BatchChat(Chat, Protocol):
    """A client that answers many requests at a time, into the cache, and may be killed while it waits."""

    def recover(self, cache: AnswerCache) -> None:
        """Wait for what an earlier run sent and did not live to read."""
        ...

    def fill(self, requests: dict[str, Request], cache: AnswerCache) -> dict[str, NoAnswerError]:
        """Bring the answers to these requests, by cache key, into the cache; gives those that have none."""
        ...


class OfflineWriter:
    """The default client: each task's own rule-based generator, without a network, a key or a price."""

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
            raise NoAnswerError(f"the rule-based generator has no answer ({error})") from None


@dataclass(slots=True)
class Replay:
    """The cache only: rows whose answer is not in it are rejected, and say so."""

    model: str
    sampling: dict[str, Any]
    window: int = 64
    keeps_answers: bool = False
    meter: Meter = field(default_factory=Meter)

    async def answer(self, request: Request) -> Answer:
        """No answer: the cache was asked before.

        Raises:
            NoAnswerError: Always.
        """
        reason = f"no cached answer of {self.model} to this request of {request.task.name}"
        raise NoAnswerError(reason, passing=True)
