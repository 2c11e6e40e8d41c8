"""Where `evaluate.load` finds a metric by its bare name, and how ours get there.

evaluate looks a bare name up on the Hub and then, or offline, in its folder of modules, where it takes the copy
of the newest script. That folder's layout is private to evaluate: this is the one file that knows it, and
`tests/metrics/test_installation.py` fails where it moves.
"""

import hashlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

METRICS = ("map_at_k", "comprehensive_accuracy", "counterfactual_accuracy", "vcmr_recall")
NOT_THE_MODULE = {
    "__init__.py",
    "app.py",
    "tests.py",
}  # of a Space's files, those that evaluate does not load


def modules_folder() -> Path:
    """The folder that evaluate imports metrics from: the one in use, or the one that it will use once imported."""
    config = sys.modules.get("evaluate.config")
    if config is not None:
        return Path(config.HF_MODULES_CACHE)
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = Path(os.environ.get("HF_HOME", Path(cache) / "huggingface")).expanduser()
    return Path(os.environ.get("HF_MODULES_CACHE", home / "modules"))


def space(name: str) -> str:
    """The folder of a metric as `evaluate.load` takes it: unlike the bare name, it needs no network.

    Raises:
        ValueError: If there is no such metric.

    Example:
        >>> Path(space("map_at_k")).name
        'map_at_k'
    """
    if name not in METRICS:
        raise ValueError(f"there is no metric {name!r}; there are {', '.join(METRICS)}")
    return str(Path(__file__).parent / name)


def install(name: str) -> Path:
    """Make `evaluate.load(name)` give this package's metric in every process that shares the modules folder.

    Writes only what is missing or differs, so it is cheap to repeat, and may run in many processes at once. The
    copy becomes the newest, so it also wins over one that newer code left behind.

    Args:
        name: One of `METRICS`.

    Returns:
        The folder that holds the copy.

    Raises:
        ValueError: If there is no such metric.
        OSError: If the modules folder cannot be written.
    """
    sources = _sources(Path(space(name)))
    digest = hashlib.sha256(repr(sorted(sources.items())).encode()).hexdigest()  # evaluate wants 64 characters
    parent = modules_folder() / "evaluate_modules" / "metrics" / f"evaluate-metric--{name}"
    copy = parent / digest
    if not copy.is_dir():
        _make_packages(parent)
        _write_copy(copy, sources)
    for file, content in sources.items():
        if not (copy / file).is_file() or (copy / file).read_bytes() != content:
            _write_file(copy / file, content)
    _make_newest(copy / f"{name}.py")
    return copy


def _sources(space: Path) -> dict[str, bytes]:
    modules = {path.name: path.read_bytes() for path in space.glob("*.py") if path.name not in NOT_THE_MODULE}
    return {"__init__.py": b"", **modules}


def _make_packages(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for package in (folder, *folder.parents[:3]):
        (package / "__init__.py").touch()


def _write_copy(copy: Path, sources: dict[str, bytes]) -> None:
    unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=copy.parent))
    try:
        for file, content in sources.items():
            (unfinished / file).write_bytes(content)
        unfinished.chmod(0o755)
        unfinished.rename(copy)
    except OSError:
        if not copy.is_dir():  # otherwise another process was faster, with the same content
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _write_file(path: Path, content: bytes) -> None:
    handle, unfinished = tempfile.mkstemp(prefix="unfinished-", dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    Path(unfinished).replace(path)


def _make_newest(script: Path) -> None:
    # Only finished copies, named by a hash as evaluate requires: unfinished ones vanish while other processes install.
    copies = script.parent.parent.glob(f"{'?' * len(script.parent.name)}/{script.name}")
    others = [other.stat().st_mtime for other in copies if other != script]
    if script.stat().st_mtime <= max(others, default=-1):
        newest = max(time.time(), max(others) + 1)
        os.utime(script, (newest, newest))
