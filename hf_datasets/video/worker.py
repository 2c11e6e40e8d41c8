"""The program of a `VideoReaderPool` worker: requests come in as JSON lines, pixels go out through files in memory.

Where processes can fork there are two of them. The worker imports what is needed and watches; the reader, its child,
decodes. The reader sets itself a time limit that the kernel enforces, ends with the worker, and is replaced at once
when it dies. The worker ends with the calling program, whatever the reader is doing, and cleans up.
"""

import ctypes
import importlib
import json
import os
import select
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from .failures import describe_failure
from .reading import VideoFrames

REQUESTS = 0  # the descriptor of the standard input
PARENT_CHECK_SECONDS = 1
MAX_TIMER_SECONDS = 1e9
PR_SET_PDEATHSIG = 1

Reader = Callable[..., VideoFrames]


def main() -> None:
    """Answer requests until the calling program ends or closes its side, then remove the folder of the pixels."""
    program = os.getppid()
    # What a codec library prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # Signals that end a program are often sent to all that it started; a worker ends when the program has ended.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    if not (line := _line()):
        return  # the program ended before it sent the settings
    setup = json.loads(line)
    reader = _imported_reader(setup)
    with suppress(BrokenPipeError):  # the calling program has ended
        if hasattr(os, "fork"):
            _supervise(program, answers, lambda: _serve(answers, reader, setup))
        else:
            _serve(answers, reader, setup)
    shutil.rmtree(setup["folder"], ignore_errors=True)
    os._exit(0)  # at once: flushing could wait for a program that has ended


def _imported_reader(setup: dict[str, Any]) -> Reader:
    # All that is slow to import is imported here, where no clip's time is running.
    needed = ["av", "av.video.reformatter", "PIL.Image"]
    backend = setup["options"]["backend"]
    if backend == "decord" or backend.startswith("torchcodec"):
        needed.append("decord" if backend == "decord" else "torchcodec.decoders")
    for module in needed:
        with suppress(ImportError, RuntimeError, OSError):  # each clip's answer will name the error
            importlib.import_module(module)
    module, _, function = setup["reader"].partition(":")
    reader: Reader = getattr(importlib.import_module(module), function)
    return reader


def _supervise(program: int, answers: Any, serve: Callable[[], None]) -> None:
    """Have `serve` run by a child, and by another whenever one dies, until the program has ended."""
    worker = os.getpid()
    while True:
        alive, held_by_child = os.pipe()  # closed by the kernel when the child ends
        if not (child := os.fork()):
            with suppress(BrokenPipeError):
                _end_with_worker(worker)
                serve()
            os._exit(0)
        os.close(held_by_child)
        is_wanted = _outlasts(program, alive)
        os.close(alive)
        if not is_wanted:
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if not is_wanted:
            return
        answers.write("\n")  # it may have died in the middle of an answer
        _send(answers, {"died": status})


def _outlasts(program: int, alive: int) -> bool:
    """Wait until the child ends, which closes `alive`, or the program ends; returns whether the program still runs."""
    ends = select.poll()
    for descriptor in (REQUESTS, alive):
        ends.register(descriptor, 0)  # only hang-ups are reported
    # A process forked from the program holds the requests open beyond its end, so the parent is checked too.
    while os.getppid() == program:
        ended = [descriptor for descriptor, _ in ends.poll(1000 * PARENT_CHECK_SECONDS)]
        if ended:
            return REQUESTS not in ended
    return False


def _end_with_worker(worker: int) -> None:
    # On Linux the kernel ends the reader with its worker; elsewhere a reader that hangs has until its time limit.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker:
        os._exit(0)


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """End this process if the block takes longer; the kernel does it, as a decoder may hold the interpreter's lock."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, min(seconds, MAX_TIMER_SECONDS))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _serve(answers: Any, reader: Reader, setup: dict[str, Any]) -> None:
    if hasattr(signal, "SIGALRM"):  # as a program may have left them
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    _send(answers, {"ready": os.getpid()})
    while line := _line():
        try:
            request = json.loads(line)
        except ValueError:
            continue  # the rest of a line during which another reader was killed
        if request["process"] == os.getpid():  # else it was meant for one that died
            with _at_most(setup["timeout_seconds"]):
                answer = _answer(request, reader, setup["options"])
            _send(answers, answer)


def _line() -> bytes:
    # Unbuffered, because the contents of a buffer are lost with its process.
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(REQUESTS, 1)):
        line += byte
    return line


def _send(answers: Any, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _answer(request: dict[str, Any], reader: Reader, options: dict[str, Any]) -> dict[str, Any]:
    try:
        clip = reader(
            request["path"],
            start_seconds=request["start_seconds"],
            end_seconds=request["end_seconds"],
            **(options | request["options"]),
        )
    except Exception as error:  # any error while reading a file is reported as that file's failure
        reason, is_fault_of_file = describe_failure(error)
        return {"number": request["number"], "reason": reason, "quarantine": is_fault_of_file}
    try:
        slot = Path(request["slot"])
        # Overwritten, so that its pages are used again. Not by `tofile`, which a full disk cuts short without an error.
        with slot.open("r+b" if slot.exists() else "w+b") as file:
            file.write(np.ascontiguousarray(clip.pixels).data)
    except OSError as error:  # not the video's fault
        return {"number": request["number"], "unwritable": [error.errno, str(error)]}
    return {
        "number": request["number"],
        "shape": clip.pixels.shape,
        "indices": clip.indices,
        "timestamps_seconds": clip.timestamps_seconds,
        "num_frames_in_clip": clip.num_frames_in_clip,
        "missing_seconds": clip.missing_seconds,
    }
