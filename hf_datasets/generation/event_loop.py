"""The event loop on which all requests of a process are made."""

import asyncio
import os
import threading
from concurrent.futures import Future
from functools import cache
from typing import TypeVar

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
