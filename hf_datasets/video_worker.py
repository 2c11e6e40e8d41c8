"""What a process of `VideoReaderPool` runs: requests come in as JSON lines, pixels go out through files in memory."""

import importlib
import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from .video import VideoError, VideoFrames, VideoLimits, VideoSpanError


def main() -> None:
    """Answer requests until the other end closes, then remove the folder that held the pixels.

    Where processes can fork, a child does the work and its parent, which has everything imported, replaces it in
    an instant when it dies.
    """
    # Whatever a codec library prints must not end up among the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pool decides when its workers stop
    setup = json.loads(_line(0))
    importlib.import_module("av")  # every backend plans with it, and a forked child need not import it again
    reader = named_function(setup["reader"])
    options = setup["options"] | {"limits": VideoLimits(**setup["options"]["limits"])}
    with suppress(BrokenPipeError):  # the program that asked is gone
        while hasattr(os, "fork") and (child := os.fork()):
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if status == 0:
                break
            _say(answers, {"died": status})
        else:
            _serve(answers, reader, options)
    shutil.rmtree(setup["folder"], ignore_errors=True)
    os._exit(0)  # at once, as the answers may have nobody left to be flushed to


def _serve(answers: Any, reader: Callable[..., VideoFrames], options: dict[str, Any]) -> None:
    _say(answers, {"ready": os.getpid()})
    while line := _line(0):
        request = json.loads(line)
        if request["process"] == os.getpid():  # else it was meant for one that died
            _say(answers, _answer(request, reader, options))


def _line(descriptor: int) -> bytes:
    # Unbuffered, because what a buffer holds dies with its process.
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(descriptor, 1)):
        line += byte
    return line


def named_function(name: str) -> Callable[..., VideoFrames]:
    """The function `module:name`."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def _say(answers: Any, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _answer(
    request: dict[str, Any], reader: Callable[..., VideoFrames], options: dict[str, Any]
) -> dict[str, Any]:
    try:
        clip = reader(
            request["path"],
            start_seconds=request["start_seconds"],
            end_seconds=request["end_seconds"],
            **options,
        )
        pixels = clip.frames.permute(0, 2, 3, 1).contiguous().numpy()  # (T, H, W, C), as it lies in memory
        slot = Path(request["slot"])
        with slot.open(
            "r+b" if slot.exists() else "w+b"
        ) as file:  # written over, so that its pages are used again
            pixels.tofile(file)
    except Exception as error:  # whatever a file provokes belongs to that file
        is_fault_of_file = isinstance(error, VideoError) and not isinstance(error, VideoSpanError)
        reason = (
            str(error) if isinstance(error, (VideoError, ValueError)) else f"{type(error).__name__}: {error}"
        )
        return {"number": request["number"], "reason": reason, "quarantine": is_fault_of_file}
    return {
        "number": request["number"],
        "shape": pixels.shape,
        "indices": clip.indices,
        "timestamps_seconds": clip.timestamps_seconds,
        "num_frames_in_clip": clip.num_frames_in_clip,
        "missing_seconds": clip.missing_seconds,
    }
