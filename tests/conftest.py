"""Fixtures for all tests: no network, and the shared reference files where they exist; what makes the suite faster."""

import atexit
import contextlib
import functools
import gc
import os
import signal
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_EVALUATE_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # two processes share the tests; `make test-processors` takes others
os.environ.setdefault("HF_DEACTIVATE_ASYNC_LOAD", "1")  # threads take longer to start than small weights to load
# A shell has what it runs in the background ignore interrupts, and the programs that a test starts and interrupts would
# inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest

with contextlib.suppress(ImportError, AttributeError):  # of other versions
    import httpcore2

    # Each HTTP client would read all certificates anew, which takes longer than what it asks of a server of the tests.
    httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)
with contextlib.suppress(ImportError):
    import tqdm.contrib.concurrent

    # `datasets` starts threads, seven times for each of some thousand tables, to look at a file or two.
    tqdm.contrib.concurrent.thread_map = lambda function, *values, **_: list(map(function, *values))
gc.disable()  # until all tests are found: what is imported is no garbage to search for
ASSETS = tempfile.TemporaryDirectory(prefix="assets-")
os.environ["HF_ASSETS_CACHE"] = ASSETS.name  # what this user indexed is noted there
if "WARM_PYTHON" not in os.environ:  # all that share the tests share what `warm_python` starts
    WARM = tempfile.TemporaryDirectory(prefix=f"warm-{os.getpid()}-")
    os.environ["WARM_PYTHON"] = WARM.name


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Imports are compiled once, also where `PYTHONDONTWRITEBYTECODE` is set.

    A search for garbage among the objects of torch and transformers takes half a second each time.
    """
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = before
        gc.enable()
        gc.set_threshold(20_000)  # from 700: thirty times less often
        gc.freeze()
        atexit.register(gc.unfreeze)  # or libraries report what they did not free


def pytest_configure(config):
    if getattr(config.option, "dist", "no") == "loadfile":
        config.option.loadscopereorder = False  # by number of tests, which says little of their time


def pytest_collection_modifyitems(items):
    """The doctests of modules last: where processes share the tests, these short files even out when each ends."""
    items.sort(key=lambda item: not item.nodeid.startswith("tests/"))


@pytest.fixture(scope="session")
def warm_python():
    """Starts programs that import torch or transformers in a fraction of the time of a new interpreter."""
    from tests.fixtures.warm_python import WarmPython

    python = WarmPython()
    yield python
    python.close()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real annotations, clips and reference outputs that stands beside the checkout."""
    folder = Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("the shared reference files are not beside this checkout")
    return folder


def pytest_terminal_summary(terminalreporter):
    """Of the tests marked `hostile`; here because a run in several processes reads no other conftest at its end."""
    from tests.hostile.tables import write_tables

    write_tables(terminalreporter)
