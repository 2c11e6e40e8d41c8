"""Decoding many clips, in worker processes that cannot hang or bring down the calling program, or in this process.

A thread cannot stop a decoder that hangs (some hold the interpreter's lock while they do), a process can be killed.
Workers are started as programs of their own: they import nothing of the caller's script, need no guard around its
main part, and share neither locks nor CUDA with it.
"""

import os
import queue
import signal
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import numpy as np

from .backends import Backend
from .failures import NO_FILE, VideoFailure, describe_failure
from .reading import Spread, VideoFrames, read_frames
from .resizing import resized_size
from .shared_memory import PixelFolder
from .worker_process import START_TIMEOUT_SECONDS, Messages, VideoRequest, WorkerProcess

__all__ = ["NO_FILE", "VideoFailure", "VideoReaderPool", "VideoRequest", "unreadable"]

TIMED_OUT = "signal SIGALRM"
ENDED_FROM_OUTSIDE = "it was ended from outside"
CAUSED_BY_LOAD = {TIMED_OUT, ENDED_FROM_OUTSIDE, "signal SIGKILL"}


@dataclass(slots=True)
class Backlog:
    """The requests of one call that no worker holds.

    Attributes:
        waiting: In the order in which they are to be read.
        source: Gives more of them; None while it has none.
        lanes: The worker of each lane.
        postponed: By file, the requests that timed out, which a loaded machine can cause, and those behind them.
        retried: The postponed request that is being tried once more, while no other request is running.
    """

    waiting: deque[VideoRequest]
    source: Iterator[VideoRequest | None] | None = None
    lanes: dict[Hashable, WorkerProcess] = field(default_factory=dict)
    postponed: dict[str, deque[VideoRequest]] = field(default_factory=dict)
    retried: VideoRequest | None = None

    def refill(self, number: int) -> None:
        """Take requests from the source until so many wait, or it has none for now; a retried one stays alone."""
        while self.source is not None and self.retried is None and len(self.waiting) < number:
            try:
                request = next(self.source)
            except StopIteration:
                self.source = None
                return
            if request is None:
                return
            self.waiting.append(request)

    def postpone(self, request: VideoRequest) -> None:
        """Set a request aside until nothing else is left."""
        self.postponed.setdefault(str(request.path), deque()).append(request)

    def is_postponed(self, request: VideoRequest) -> bool:
        """Whether a request waits behind one of its file that was set aside."""
        return str(request.path) in self.postponed and request is not self.retried

    def retry_next(self) -> None:
        """Try one of those set aside once more."""
        self.retried = next(iter(self.postponed.values())).popleft()
        self.waiting.append(self.retried)

    def release(self, request: VideoRequest) -> None:
        """After the answer to a retried request, queue the others of its file again."""
        if request is self.retried:
            self.retried = None
            self.waiting.extend(self.postponed.pop(str(request.path)))


class VideoReaderPool:
    """Worker processes that read clips under a time limit; a stuck or dead one is replaced and the work goes on.

    Memory is bounded: a worker holds at most three clips that the caller has not taken.

    A request that times out, or whose process is killed from outside, as the system does when memory runs out, may
    only have been slowed by a loaded machine. It is set aside with the others of its file, and when no other
    request of this call is left it is tried once more, alone in this pool. Only if that fails as well is the file in
    quarantine, so a video that really hangs costs at most two time limits. Slow imports happen before a worker takes
    its first clip, so they count against no clip's time limit.

    Args:
        num_frames: Frames per clip, as in `read_frames`.
        num_workers: Processes; None is one per available core. With 0 this process reads, with the same results as one
            worker gives, but a video that hangs or crashes the decoder hangs or ends the program.
        timeout_seconds: How long one clip may take before its process is killed; not enforced without workers.
        backend: As in `read_frames`.
        size: As in `read_frames`; resizing in the worker lets little travel between processes.
        reader: Function that reads a clip, with the signature of `read_frames`, from an importable module.
        spread: As in `read_frames`.

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
        num_frames: int | Sequence[int],
        *,
        num_workers: int | None = None,
        timeout_seconds: float = 60.0,
        backend: Backend = "auto",
        size: int | tuple[int, int] | None = None,
        reader: Callable[..., VideoFrames] = read_frames,
        spread: Spread = "middles",
    ) -> None:
        self.num_workers = available_cores() if num_workers is None else num_workers
        counts = [num_frames] if isinstance(num_frames, int) else list(num_frames)
        if self.num_workers < 0 or min(counts, default=0) < 1 or not timeout_seconds > 0:
            raise ValueError(
                f"num_frames={num_frames} and timeout_seconds={timeout_seconds} must be positive, and "
                f"num_workers={num_workers} at least 0"
            )
        if "." in reader.__qualname__ or reader.__module__ == "__main__":
            raise ValueError(f"reader={reader.__qualname__} must be a function of a module that workers can import")
        if size is not None:
            resized_size(1, 1, size)
        self.timeout_seconds = timeout_seconds
        self.quarantine: dict[str, str] = {}
        self._reader = reader
        self._options: dict[str, Any] = {"num_frames": num_frames, "backend": backend, "size": size}
        if spread != "middles":  # which other readers need not know
            self._options["spread"] = spread
        self._setup = {
            "reader": f"{reader.__module__}:{reader.__qualname__}",
            "timeout_seconds": timeout_seconds,
            "options": self._options,
        }
        self._workers: list[WorkerProcess] = []
        self._messages: Messages = queue.SimpleQueue()
        folder = PixelFolder() if self.num_workers else None
        self._folder = folder.path if folder else None
        self._num_requests = 0
        self._is_reading = False
        self._close = weakref.finalize(self, _shut_down, self._workers, folder)

    def __enter__(self) -> "VideoReaderPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the workers and free their memory; also happens when the pool is forgotten or the program ends."""
        self._close()

    def read(self, requests: Iterable[VideoRequest]) -> Iterator[tuple[Any, VideoFrames | VideoFailure]]:
        """Read clips, ordered by file and start so that open files serve their neighbours.

        Every request gets exactly one answer, as it comes; with at most one worker in the order of files and starts.

        Args:
            requests: Clips; keys need not be unique.

        Yields:
            The key of a request and its frames, or why there are none.

        Raises:
            RuntimeError: If the pool is closed, already reading, or its workers cannot start.
            OSError: If there is no room for the frames in the folder through which they come.
        """
        in_order = sorted(requests, key=lambda request: (str(request.path), request.start_seconds or 0.0))
        yield from self._read(Backlog(deque(in_order)))

    def read_on_demand(
        self, requests: Iterator[VideoRequest | None]
    ) -> Iterator[tuple[Any, VideoFrames | VideoFailure]]:
        """Read clips in the order of an iterator, from which a request is taken when a worker has room for it.

        Args:
            requests: Gives None while it has no request, and is asked again after the next answer; so it may only do
                that while an answer is still to come.

        Yields:
            As `read`.

        Raises:
            RuntimeError: As `read`.
            OSError: As `read`.
        """
        yield from self._read(Backlog(deque(), requests))

    def _read(self, run: Backlog) -> Iterator[tuple[Hashable, VideoFrames | VideoFailure]]:
        if self._is_reading or not self._close.alive:
            state = "already reading: finish or close that iterator, or make" if self._is_reading else "closed; make"
            raise RuntimeError(f"this pool is {state} another pool")
        self._is_reading = True
        try:
            run.refill(self.num_workers + 1)
            if not self.num_workers:
                yield from self._read_in_this_process(run)
            while run.waiting or run.postponed or self._num_busy:
                if not run.waiting and not self._num_busy:
                    run.retry_next()
                yield from self._skip(run)
                self._hand_out(run)
                if run.waiting or self._num_busy:
                    yield from self._collect(run)
                run.refill(self.num_workers + 1)
        finally:
            self._is_reading = False
            for worker in self._workers:
                if worker.held:  # the caller stopped early: this must not answer a later call
                    worker.drop()
                    worker.kill_reader()

    def _read_in_this_process(self, run: Backlog) -> Iterator[tuple[Hashable, VideoFrames | VideoFailure]]:
        while run.waiting:
            yield from self._skip(run)
            if run.waiting:
                request = run.waiting.popleft()
                yield request.key, self._read_one(request)
            run.refill(1)

    def _read_one(self, request: VideoRequest) -> VideoFrames | VideoFailure:
        path = str(request.path)
        try:
            options = self._options | dict(request.options)
            return self._reader(path, start_seconds=request.start_seconds, end_seconds=request.end_seconds, **options)
        except Exception as error:  # as a worker answers it
            reason, is_fault_of_file = describe_failure(error)
            if is_fault_of_file:
                self.quarantine[path] = reason
            return VideoFailure(path, reason)

    @property
    def _num_busy(self) -> int:
        return sum(bool(worker.held) for worker in self._workers)

    def _is_sendable(self, run: Backlog) -> bool:
        return (
            bool(run.waiting)
            and str(run.waiting[0].path) not in self.quarantine
            and not run.is_postponed(run.waiting[0])
        )

    def _skip(self, run: Backlog) -> Iterator[tuple[Hashable, VideoFailure]]:
        while run.waiting and not self._is_sendable(run):
            request = run.waiting.popleft()
            if reason := self.quarantine.get(str(request.path)):
                run.release(request)
                yield request.key, VideoFailure(str(request.path), reason)
            else:
                run.postpone(request)

    def _hand_out(self, run: Backlog) -> None:
        folder = cast("Path", self._folder)  # there is one wherever there are workers
        while len(self._workers) < min(self.num_workers, len(run.waiting) + self._num_busy):
            self._workers.append(WorkerProcess(self._setup, folder, self._messages))
        for worker in sorted(self._workers, key=lambda worker: len(worker.held)):
            while worker.slots and worker.is_ready and self._is_sendable(run):
                lane = run.waiting[0].lane
                if lane is not None and run.lanes.setdefault(lane, worker) is not worker:
                    if run.lanes[lane] in self._workers:
                        break
                    run.lanes[lane] = worker
                self._num_requests += 1
                worker.send(self._num_requests, run.waiting.popleft())
                run.refill(1)

    def _collect(self, run: Backlog) -> Iterator[tuple[Hashable, VideoFrames | VideoFailure]]:
        # Take one message, or stop the workers whose messages are overdue.
        try:
            worker, message = self._messages.get(timeout=self._seconds_left())
        except queue.Empty:
            now = time.monotonic()
            for worker in [busy for busy in self._workers if busy.deadline(self.timeout_seconds) <= now]:
                yield from self._give_up(worker, run, TIMED_OUT, is_gone=True)
            return
        if worker not in self._workers:
            return  # a late message of a worker that was stopped
        if "ready" in message:
            worker.reader_pid, worker.busy_since = message["ready"], time.monotonic()
        elif "died" in message:
            status = message["died"]
            yield from self._give_up(worker, run, _cause(status), is_gone=status is None)
        elif message["number"] in worker.held:
            worker.busy_since = time.monotonic()
            request, slot = worker.held.pop(message["number"])
            answer = self._result(request, slot, message)
            worker.slots.append(slot)
            run.release(request)
            self._hand_out(run)
            yield request.key, answer

    def _seconds_left(self) -> float:
        next_deadline = min(worker.deadline(self.timeout_seconds) for worker in self._workers)
        return min(max(0.0, next_deadline - time.monotonic()), START_TIMEOUT_SECONDS)

    def _result(self, request: VideoRequest, slot: Path, message: dict[str, Any]) -> VideoFrames | VideoFailure:
        if "unwritable" in message:
            number, error = message["unwritable"]
            raise OSError(
                number,
                f"{self._folder} cannot hold the frames of a clip ({error}); make room there and run again",
            )
        if "reason" in message:
            if message["quarantine"]:
                self.quarantine[str(request.path)] = message["reason"]
            return VideoFailure(str(request.path), message["reason"])
        shape = message["shape"]
        return VideoFrames(
            np.fromfile(slot, np.uint8, int(np.prod(shape))).reshape(shape),
            tuple(message["indices"]),
            tuple(message["timestamps_seconds"]),
            message["num_frames_in_clip"],
            message["missing_seconds"],
        )

    def _give_up(
        self, worker: WorkerProcess, run: Backlog, cause: str, *, is_gone: bool
    ) -> Iterator[tuple[Hashable, VideoFailure]]:
        has_started = worker.reader_pid is not None or worker.is_killed
        if is_gone or not has_started:
            self._stop(worker)
        if not has_started:
            raise RuntimeError("a video worker did not start; its stderr says why")
        held = worker.drop()
        worker.reader_pid, worker.is_killed, worker.busy_since = None, False, time.monotonic()
        if held:
            run.waiting.extendleft(reversed(held[1:]))  # not at fault: they were only next in line
            yield from self._record_death(held[0], run, cause)

    def _record_death(self, request: VideoRequest, run: Backlog, cause: str) -> Iterator[tuple[Hashable, VideoFailure]]:
        if cause in CAUSED_BY_LOAD and request is not run.retried:
            run.postpone(request)
            return
        path = str(request.path)
        what = f"its worker died ({cause})"
        if cause == TIMED_OUT:
            what = f"no frames within {self.timeout_seconds:g} s"
        if request is run.retried:
            what += ", also when it was tried once more alone"
        self.quarantine[path] = f"{path}: {what}; fetch the file again, or re-encode it"
        run.release(request)
        yield request.key, VideoFailure(path, self.quarantine[path])

    def _stop(self, worker: WorkerProcess) -> None:
        self._workers.remove(worker)
        worker.stop()
        for slot in worker.slots:
            slot.unlink(missing_ok=True)


def unreadable(
    requests: Iterable[VideoRequest], *, num_workers: int | None = None, timeout_seconds: float = 60.0
) -> dict[Hashable, str]:
    """Which clips cannot be read, not even one frame of them, and why.

    Args:
        requests: Clips with distinct keys.
        num_workers: As in `VideoReaderPool`.
        timeout_seconds: As in `VideoReaderPool`.

    Returns:
        The reason by key, of clips that cannot be read alone.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> unreadable([VideoRequest("dive 1", "no/such/file.mp4")], num_workers=0)
        {'dive 1': 'no/such/file.mp4: ...'}
    """
    # The small size lets little travel between processes.
    with VideoReaderPool(1, num_workers=num_workers, timeout_seconds=timeout_seconds, size=(16, 16)) as pool:
        return {key: read.reason for key, read in pool.read(requests) if isinstance(read, VideoFailure)}


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cause(status: int | None) -> str:
    if status is None:
        return ENDED_FROM_OUTSIDE
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def _shut_down(workers: list[WorkerProcess], folder: PixelFolder | None) -> None:
    if folder is None or not folder.is_owned:
        return  # a forked process ends; the workers are its parent's
    for worker in workers:
        worker.stop()
    workers.clear()
    folder.remove()
