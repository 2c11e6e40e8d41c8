"""How every recipe ends: an exit status, one line for a mistake that the user can fix, a traceback for a bug."""

import atexit
import errno
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, NoReturn, TextIO, TypeVar, cast

from subtle.commands import as_typed

Config = TypeVar("Config")
PACKAGES = ("hf_datasets", "hf_models", "metrics", "subtle")
OPENERS = {
    ("transformers", "from_pretrained"): ("pretrained_model_name_or_path",),
    ("peft", "from_pretrained"): ("model_id", "pretrained_model_name_or_path"),
    ("polars", "read_parquet"): ("source",),
}
"""What of other libraries opens files -> its argument that names them; whatever fails in it, the file is damaged."""
ERRNO_HINTS = dict.fromkeys((errno.EMFILE, errno.ENFILE), "; allow more with `ulimit -n 4096` and run again")
INTERRUPTED = 130  # the exit status that a shell gives a program that an interrupt ended

QUIET_SECONDS = 2.0
imports: threading.Timer | None = None
"""Started when a recipe has read its configuration, ended when it runs."""


def announce(what: str) -> threading.Timer:
    """Say to a person at a terminal what is done, unless it is cancelled within `QUIET_SECONDS`."""

    def say() -> None:
        if sys.stderr.isatty() and os.environ.get("LOCAL_RANK", "0") == "0":
            sys.stderr.write(f"{what} ...\n")

    timer = threading.Timer(QUIET_SECONDS, say)
    timer.daemon = True
    timer.start()
    return timer


@contextmanager
def announced(what: str) -> Iterator[None]:
    """Say what is done, where it takes longer than `QUIET_SECONDS`."""
    timer = announce(what)
    try:
        yield
    finally:
        timer.cancel()


LONGEST_ERROR = 3000  # of an error
CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str, *, kept: str = "") -> str:
    r"""A text in which what would move a terminal's cursor, color it or turn its order is shown as it is written.

    >>> visible("red\x1b[31m")
    'red\\x1b[31m'

    Args:
        text: From a file, an index or a server.
        kept: Characters that stay, such as the ends of lines.
    """
    return CONTROL_CHARACTERS.sub(lambda one: one[0] if one[0] in kept else repr(one[0])[1:-1], text)


class VisibleOutput:
    """Standard output while a recipe runs: what it prints is often of a file, and is shown as it is written.

    Args:
        stream: Where it goes.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write a text."""
        return self.stream.write(visible(text, kept="\n\t"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def end_at_once(*_: object) -> NoReturn:
    """Exit on an interrupt before there is anything to clean up."""
    say_interrupted()
    os._exit(INTERRUPTED)


def say_interrupted() -> None:
    if os.environ.get("LOCAL_RANK", "0") == "0":  # one line, not one of every process
        sys.stderr.write("\ninterrupted; what is done is kept, run again to go on\n")
        sys.stderr.flush()


def run_recipe(main: Callable[[Config], int | None], config: Config) -> int:
    """Run a recipe; the exit status.

    What the user can fix is one line on stderr and status 2; an interrupted run is one line and status 130. Everything
    else is a bug, and keeps its traceback.
    """
    if imports is not None:
        imports.cancel()
    is_script = signal.getsignal(signal.SIGINT) is end_at_once
    if is_script:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with redirect_stdout(cast("TextIO", VisibleOutput(sys.stdout))):
            return main(config) or 0
    except KeyboardInterrupt:
        say_interrupted()
        return INTERRUPTED
    except SystemExit as stop:
        code = stop.code
        raise SystemExit(visible(as_typed(code), kept="\n") if isinstance(code, str) else code) from None
    except BaseException as error:  # also a panic of a library in Rust, as over a damaged file
        if not say_mistake(error):
            raise
        return 2
    finally:
        if is_script:  # what is done is written; the interpreter's own end has nothing to interrupt
            atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def check_first(check: Callable[[Config], object], config: Config) -> None:
    """Refuse what a user named wrongly before the imports that take seconds, as `run_recipe` would after them."""
    try:
        check(config)
    except Exception as error:
        if not say_mistake(error):
            raise
        raise SystemExit(2) from None


def say_mistake(error: BaseException) -> bool:
    """Say in one line what a user can fix; False for a bug."""
    mistake = users_mistake(error)
    if mistake is not None:
        hint = ERRNO_HINTS.get(getattr(mistake, "errno", 0), "")
        said = visible(" ".join(message_of(mistake).split()))
        if len(said) > LONGEST_ERROR:  # a value from elsewhere has any length
            said = f"{said[: LONGEST_ERROR // 2]} ... {said[-LONGEST_ERROR // 2 :]}"
        sys.stderr.write(as_typed(f"error: {said}{hint}\n"))
    return mistake is not None


def message_of(error: BaseException) -> str:
    """The message of an error; of one from a process of a data loader, without the traceback before it."""
    text = str(error)
    if re.match(r"Caught \w+ in \w+ worker process", text):
        *_, text = re.split(rf"^(?:[\w.]+\.)?{type(error).__name__}: ", text, flags=re.MULTILINE)
    return text.strip()


def users_mistake(error: BaseException | None) -> BaseException | None:
    """The error, or the one that caused it, that tells a user what to change; None for a bug.

    That is one which the system gives (no such file, no space left, no connection), one of our packages' own classes,
    and a ValueError or an ImportError that one of our files raises explicitly, not one that Python raises in it.
    """
    while error is not None:
        if isinstance(error, OSError) or type(error).__module__.partition(".")[0] in PACKAGES:
            return error
        if isinstance(error, (ValueError, ImportError)) and raised_by_us(error):
            return error
        if damaged := damaged_file(error):
            return damaged
        error = error.__cause__
    return None


def damaged_file(error: BaseException) -> ValueError | None:
    """The error, told with the model or file that another library opened as it failed; None where it opened none."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        library, opener = frame.f_globals.get("__name__", "").partition(".")[0], frame.f_code.co_name
        arguments = [frame.f_locals.get(argument) for argument in OPENERS.get((library, opener), ())]
        name = next((one for one in arguments if one is not None), None)
        if name is None:
            continue
        if opener == "from_pretrained":
            from hf_models.checkpoints import not_opened

            return ValueError(not_opened(name, error))
        return ValueError(f"{name} cannot be read ({type(error).__name__}: {error}); delete it and make it again")
    return None


def raised_by_us(error: BaseException) -> bool:
    """Whether the error comes from a `raise` of our packages or recipes."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    *_, summary = traceback.extract_tb(error.__traceback__)
    is_ours = frame.f_globals.get("__name__", "").partition(".")[0] in PACKAGES
    return is_ours and (summary.line or "").startswith("raise ")
