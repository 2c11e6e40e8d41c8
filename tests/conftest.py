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
gc.disable()  # until all tests are found: what is imported is no garbage to search for
ASSETS = tempfile.TemporaryDirectory(prefix="assets-")
os.environ["HF_ASSETS_CACHE"] = ASSETS.name  # what this user indexed is noted there

# The files that take longest, the longest first. Processes take files from the front of the queue; a long one at its
# end would keep one of them busy while the others have nothing to do. A name that is gone does no harm.
LONGEST_FILES = [
    "hf_datasets/video/test_pool.py",
    "test_hub.py",
    "subtle/train/test_vidclip.py",
    "subtle/train/test_stage2.py",
    "subtle/run/test_build.py",
    "subtle/train/test_stage1.py",
    "subtle/hub/test_model.py",
    "subtle/train/test_vcmr.py",
    "hf_datasets/test_published_folder.py",
    "subtle/train/test_finetune_vlm.py",
    "subtle/footage/test_search.py",
    "subtle/footage/test_index.py",
    "subtle/table/test_ablate.py",
    "subtle/table/test_finetune_baseline.py",
    "subtle/table/test_zero_shot.py",
    "test_examples.py",
    "subtle/evaluate/test_evaluate_mteb.py",
    "hf_datasets/generation/test_generate.py",
    "subtle/run/test_build_faults.py",
    "subtle/service/test_serve.py",
    "subtle/test_two_steps.py",
    "subtle/run/test_several_processes.py",
    "hf_models/test_tfcovr.py",
    "hf_datasets/test_preparation.py",
    "hf_models/test_factored_covr.py",
    "metrics/test_installation.py",
]


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


def pytest_collection_modifyitems(config, items):
    """Where several processes share the tests, the longest files come first, and the doctests of modules last."""
    places = {f"tests/{name}": place for place, name in enumerate(LONGEST_FILES)}

    def place(item):
        file = item.nodeid.partition("::")[0]
        return places.get(file, len(places) + (not file.startswith("tests/")))

    if hasattr(config, "workerinput"):
        items.sort(key=place)


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
