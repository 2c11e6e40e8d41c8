"""The pool's side of a worker process: which requests it holds and since when, and how it is ended."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

PROGRAM = "from hf_datasets.video.worker import main; main()"
# Requests a worker holds at a time: the next is being decoded while the caller takes the last.
REQUESTS_PER_WORKER = 3
START_TIMEOUT_SECONDS = 300.0
KILL_TIMEOUT_SECONDS = 10.0  # a process stuck inside the kernel survives even a kill
# A worker that can fork keeps the time limit itself; the pool intervenes where even that fails.
GRACE_SECONDS = KILL_TIMEOUT_SECONDS if hasattr(os, "fork") else 0.0

Messages = queue.SimpleQueue[tuple["WorkerProcess", dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class VideoRequest:
    """A clip to read: `[start_seconds, end_seconds)` of a file; None, None is all of it. `key` comes back with it.

    `options` are further arguments of the pool's reader, as JSON has them. Requests of one `lane` go to one worker, as
    what it has in memory of the last helps with the next.
    """

    key: Hashable
    path: str | os.PathLike[str]
    start_seconds: float | None = None
    end_seconds: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    lane: Hashable = None


class WorkerProcess:
    """A started worker; its messages arrive in a queue, its end as `{"died": None}`.

    Args:
        setup: Settings, as `worker.main` reads them.
        folder: Where it writes pixels.
        messages: Queue for its messages.

    Attributes:
        reader_pid: The process that reads, once it is ready.
        busy_since: When it got the request that it works on, on the monotonic clock.
        held: Request and slot by number, oldest first.
        is_killed: Whether its reader was killed on purpose and has not been replaced yet.
    """

    def __init__(self, setup: dict[str, Any], folder: Path, messages: Messages) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # a signal to the caller's group is not for it
        )
        self._input, self._output = cast("IO[bytes]", self.process.stdin), cast("IO[bytes]", self.process.stdout)
        self.slots = [folder / f"{self.process.pid}-{slot}" for slot in range(REQUESTS_PER_WORKER)]
        self.reader_pid: int | None = None
        self.busy_since = time.monotonic()
        self.held: dict[int, tuple[VideoRequest, Path]] = {}
        self.is_killed = False
        threading.Thread(target=self._listen, args=(messages,), daemon=True).start()
        self._write(setup | {"folder": str(folder)})

    @property
    def is_ready(self) -> bool:
        """Whether its reader takes requests."""
        return self.reader_pid is not None and not self.is_killed

    def send(self, number: int, request: VideoRequest) -> None:
        """Request a clip from it; a slot must be free."""
        slot = self.slots.pop()
        if not self.held:
            self.busy_since = time.monotonic()
        self.held[number] = (request, slot)
        message = {
            "process": self.reader_pid,
            "number": number,
            "path": os.fspath(request.path),
            "start_seconds": request.start_seconds,
            "end_seconds": request.end_seconds,
            "options": dict(request.options),
            "slot": str(slot),
        }
        self._write(message)

    def deadline(self, timeout_seconds: float) -> float:
        """When its next message is overdue, on the monotonic clock."""
        if self.is_killed:
            return self.busy_since + KILL_TIMEOUT_SECONDS
        if self.reader_pid is None:
            return self.busy_since + START_TIMEOUT_SECONDS
        return self.busy_since + timeout_seconds + GRACE_SECONDS if self.held else float("inf")

    def kill_reader(self) -> None:
        """End the process that reads; where the platform can fork, the worker itself lives and starts another."""
        self.is_killed, self.busy_since = True, time.monotonic()
        if self.reader_pid in {None, self.process.pid}:
            self.process.kill()
        else:
            with suppress(ProcessLookupError):
                os.kill(self.reader_pid, signal.SIGKILL)

    def drop(self) -> list[VideoRequest]:
        """Take back the requests, oldest first."""
        requests = [request for request, _ in self.held.values()]
        self.slots.extend(slot for _, slot in self.held.values())
        self.held.clear()
        return requests

    def stop(self) -> None:
        """End the worker with all that it started."""
        self.process.kill()  # first, or it would start another reader
        self.process.wait()
        self.kill_reader()
        self._input.close()

    def _listen(self, messages: Messages) -> None:
        with self._output as answers:
            for line in answers:
                with suppress(ValueError):  # cut off when its reader died
                    messages.put((self, json.loads(line)))
        messages.put((self, {"died": None}))

    def _write(self, message: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):  # it died, which `_listen` reports
            self._input.write(json.dumps(message).encode() + b"\n")
            self._input.flush()
