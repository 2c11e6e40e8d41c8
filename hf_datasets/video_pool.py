"""Decoding many clips in worker processes, none of which can hang or bring down the program that asks.

A thread cannot stop a decoder that hangs (some hold the interpreter's lock while they do), a process can be killed.
Workers are started as programs of their own: they import nothing of the caller's script, need no guard around its
main part, and share neither locks nor CUDA with it.
"""

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch

from .video import Backend, VideoFrames, VideoLimits, read_frames

WORKER = "from hf_datasets.video_worker import main; main()"
# Requests a worker holds at a time: the next is being decoded while the caller takes the last.
REQUESTS_PER_WORKER = 3
START_TIMEOUT_SECONDS = 300.0
KILL_TIMEOUT_SECONDS = 10.0  # a process stuck inside the kernel survives even a kill
MIN_FREE_MEMORY_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class VideoRequest:
    """A clip to read: `[start_seconds, end_seconds)` of a file; None, None is the whole of it. `key` is the caller's."""

    key: Hashable
    path: str | os.PathLike[str]
    start_seconds: float | None = None
    end_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class VideoFailure:
    """A clip that could not be read, and why."""

    path: str
    reason: str


@dataclass(slots=True)
class _Worker:
    process: subprocess.Popen
    slots: list[str]
    reader_pid: int | None = None  # of the process that reads, once it is ready
    busy_since: float = field(default_factory=time.monotonic)
    held: dict[int, tuple[VideoRequest, str]] = field(default_factory=dict)  # by number, oldest first
    is_killed: bool = False

    @property
    def is_ready(self) -> bool:
        return self.reader_pid is not None and not self.is_killed

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
        self.process.stdin.close()


class VideoReaderPool:
    """Worker processes that read clips under a time limit; a stuck or dead one is replaced and the work goes on.

    Memory is bounded: a worker holds at most three clips that the caller has not taken.

    Args:
        num_frames: Frames per clip, as in `read_frames`.
        num_workers: Processes; None is one per available core.
        timeout_seconds: How long one clip may take before its worker is killed.
        backend: As in `read_frames`.
        size: As in `read_frames`; resizing in the worker lets little travel between processes.
        limits: As in `read_frames`.
        reader: What the workers call, with the signature of `read_frames`; a function of an importable module.

    Attributes:
        quarantine: Files that hung, killed their worker or cannot be read, with the reason. They are not tried again.

    Raises:
        ValueError: If a number is out of range or `reader` cannot be imported by name.

    Example:
        >>> requests = []  # such as VideoRequest(key="dive 1", path="dives.mp4", start_seconds=2.0, end_seconds=4.5)
        >>> with VideoReaderPool(num_frames=12) as pool:
        ...     clips = dict(pool.read(requests))
        >>> clips, pool.quarantine
        ({}, {})
    """

    def __init__(
        self,
        num_frames: int,
        *,
        num_workers: int | None = None,
        timeout_seconds: float = 60.0,
        backend: Backend = "auto",
        size: int | tuple[int, int] | None = None,
        limits: VideoLimits = VideoLimits(),  # noqa: B008 frozen
        reader: Callable[..., VideoFrames] = read_frames,
    ) -> None:
        self.num_workers = _available_cores() if num_workers is None else num_workers
        if self.num_workers < 1 or num_frames < 1 or timeout_seconds <= 0:
            raise ValueError(
                f"num_workers={num_workers}, num_frames={num_frames} and timeout_seconds={timeout_seconds} "
                "must be positive"
            )
        if "." in reader.__qualname__ or reader.__module__ == "__main__":
            raise ValueError(
                f"reader={reader.__qualname__} must be a function of a module that workers can import"
            )
        self.timeout_seconds = timeout_seconds
        self.quarantine: dict[str, str] = {}
        self._setup = {
            "reader": f"{reader.__module__}:{reader.__qualname__}",
            "options": {"num_frames": num_frames, "backend": backend, "size": size, "limits": asdict(limits)},
        }
        self._workers: list[_Worker] = []
        self._messages: queue.SimpleQueue[tuple[_Worker, dict[str, Any]]] = queue.SimpleQueue()
        self._folder = tempfile.mkdtemp(prefix="video-", dir=_memory_folder())
        self._num_requests = 0
        self._is_reading = False
        self._close = weakref.finalize(self, _shut_down, self._workers, self._folder)

    def __enter__(self) -> "VideoReaderPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the workers and free their memory; also happens when the pool is forgotten or the program ends."""
        self._close()

    def read(self, requests: Iterable[VideoRequest]) -> Iterator[tuple[Hashable, VideoFrames | VideoFailure]]:
        """Read clips, ordered by file and start so that open files serve their neighbours.

        Every request gets exactly one answer, as it comes; with one worker that is the order of files and starts.

        Args:
            requests: Clips; keys need not be unique.

        Yields:
            The key of a request and its frames, or why there are none.

        Raises:
            RuntimeError: If the pool is closed, already reading, or its workers cannot start.
        """
        if self._is_reading or not self._close.alive:
            state = (
                "already reading: finish or close that iterator, or make"
                if self._is_reading
                else "closed; make"
            )
            raise RuntimeError(f"this pool is {state} another pool")
        self._is_reading = True
        waiting = deque(
            sorted(requests, key=lambda request: (str(request.path), request.start_seconds or 0.0))
        )
        try:
            while waiting or any(worker.held for worker in self._workers):
                yield from self._refuse(waiting)
                self._hand_out(waiting)
                if waiting or any(worker.held for worker in self._workers):
                    yield from self._collect(waiting)
        finally:
            self._is_reading = False
            for worker in self._workers:
                if worker.held:  # the caller lost interest: this must not answer a later call
                    worker.drop()
                    worker.kill_reader()

    def _refuse(self, waiting: deque[VideoRequest]) -> Iterator[tuple[Hashable, VideoFailure]]:
        while waiting and str(waiting[0].path) in self.quarantine:
            request = waiting.popleft()
            yield request.key, VideoFailure(str(request.path), self.quarantine[str(request.path)])

    def _hand_out(self, waiting: deque[VideoRequest]) -> None:
        needed = min(self.num_workers, len(waiting) + sum(bool(worker.held) for worker in self._workers))
        while len(self._workers) < needed:
            self._start()
        for worker in sorted(self._workers, key=lambda worker: len(worker.held)):
            while (
                waiting and worker.slots and worker.is_ready and str(waiting[0].path) not in self.quarantine
            ):
                self._send(worker, waiting.popleft())

    def _start(self) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        slots = [str(Path(self._folder, f"{process.pid}-{slot}")) for slot in range(REQUESTS_PER_WORKER)]
        worker = _Worker(process, slots)
        threading.Thread(target=_listen, args=(worker, self._messages), daemon=True).start()
        self._workers.append(worker)
        _write(worker, self._setup | {"folder": self._folder})

    def _send(self, worker: _Worker, request: VideoRequest) -> None:
        self._num_requests += 1
        slot = worker.slots.pop()
        if not worker.held:
            worker.busy_since = time.monotonic()
        worker.held[self._num_requests] = (request, slot)
        message = {
            "process": worker.reader_pid,
            "number": self._num_requests,
            "path": os.fspath(request.path),
            "start_seconds": request.start_seconds,
            "end_seconds": request.end_seconds,
            "slot": slot,
        }
        _write(worker, message)

    def _collect(self, waiting: deque[VideoRequest]) -> Iterator[tuple[Hashable, VideoFrames | VideoFailure]]:
        # Take one message, or kill the processes that are past their time; that they died will be a message.
        try:
            worker, message = self._messages.get(timeout=self._seconds_left())
        except queue.Empty:
            for worker in [worker for worker in self._workers if self._deadline(worker) <= time.monotonic()]:
                if worker.is_killed or worker.reader_pid is None:
                    yield from self._give_up(worker, waiting, None)
                else:
                    worker.kill_reader()
            return
        if worker not in self._workers:
            return  # the last words of one that was stopped
        if "ready" in message:
            worker.reader_pid, worker.busy_since = message["ready"], time.monotonic()
        elif "died" in message:
            yield from self._give_up(worker, waiting, message["died"])
        elif message["number"] in worker.held:
            worker.busy_since = time.monotonic()
            request, slot = worker.held.pop(message["number"])
            answer = self._result(request, slot, message)
            worker.slots.append(slot)
            self._hand_out(waiting)
            yield request.key, answer

    def _deadline(self, worker: _Worker) -> float:
        if worker.is_killed:
            return worker.busy_since + KILL_TIMEOUT_SECONDS
        if worker.reader_pid is None:
            return worker.busy_since + START_TIMEOUT_SECONDS
        return worker.busy_since + self.timeout_seconds if worker.held else float("inf")

    def _seconds_left(self) -> float:
        next_deadline = min(self._deadline(worker) for worker in self._workers)
        return min(max(0.0, next_deadline - time.monotonic()), START_TIMEOUT_SECONDS)

    def _result(
        self, request: VideoRequest, slot: str, message: dict[str, Any]
    ) -> VideoFrames | VideoFailure:
        if "reason" in message:
            if message["quarantine"]:
                self.quarantine[str(request.path)] = message["reason"]
            return VideoFailure(str(request.path), message["reason"])
        shape = message["shape"]
        pixels = np.fromfile(slot, np.uint8, int(np.prod(shape))).reshape(shape)
        return VideoFrames(
            torch.from_numpy(pixels).permute(0, 3, 1, 2),  # (T, C, H, W)
            tuple(message["indices"]),
            tuple(message["timestamps_seconds"]),
            message["num_frames_in_clip"],
            message["missing_seconds"],
        )

    def _give_up(
        self, worker: _Worker, waiting: deque[VideoRequest], status: int | None
    ) -> Iterator[tuple[Hashable, VideoFailure]]:
        if worker.reader_pid is None and not worker.is_killed:
            self._stop(worker)
            raise RuntimeError("a video worker did not start; its own words are on stderr")
        cause = f"its worker died ({_cause(status)})"
        if worker.is_killed:
            cause = f"no frames within {self.timeout_seconds:g} s, so its worker was killed"
        held = worker.drop()
        worker.reader_pid, worker.is_killed, worker.busy_since = None, False, time.monotonic()
        if status is None:
            self._stop(worker)
        if held:
            waiting.extendleft(reversed(held[1:]))  # innocent: they were only next in line
            path = str(held[0].path)
            self.quarantine[path] = f"{path}: {cause}; fetch the file again, or re-encode it"
            yield held[0].key, VideoFailure(path, self.quarantine[path])

    def _stop(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.stop()
        for slot in worker.slots:
            Path(slot).unlink(missing_ok=True)


def _available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory_folder() -> str | None:
    """Where files live in memory, if there is room; else the ordinary temporary folder."""
    memory = "/dev/shm"
    return (
        memory if Path(memory).is_dir() and shutil.disk_usage(memory).free >= MIN_FREE_MEMORY_BYTES else None
    )


def _listen(worker: _Worker, messages: "queue.SimpleQueue[tuple[_Worker, dict[str, Any]]]") -> None:
    with worker.process.stdout as answers:
        for line in answers:
            messages.put((worker, json.loads(line)))
    messages.put((worker, {"died": None}))


def _write(worker: _Worker, message: dict[str, Any]) -> None:
    with suppress(BrokenPipeError):  # it died, and the end of its answers says so
        worker.process.stdin.write(json.dumps(message).encode() + b"\n")
        worker.process.stdin.flush()


def _cause(status: int | None) -> str:
    if status is None:
        return "it was ended from outside"
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def _shut_down(workers: list[_Worker], folder: str) -> None:
    for worker in workers:
        worker.stop()
    workers.clear()
    shutil.rmtree(folder, ignore_errors=True)
