"""What every recipe leaves behind: `results.json` with figures, configuration, seed, revisions, versions, coverage."""

import errno
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

LIBRARIES = ("subtle-video", "torch", "transformers", "datasets", "accelerate", "peft", "evaluate", "numpy")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the path and the cure where something cannot be written: the libraries' errors of a full disk name neither."""
    try:
        yield
    # safetensors and PyTorch have errors of their own for a full disk.
    except (OSError, SafetensorError, RuntimeError) as error:
        if getattr(error, "errno", None) in {errno.EMFILE, errno.ENFILE}:
            raise  # no fault of the folder's
        raise OSError(
            f"{path} cannot be written ({error}); see that its disk has room and that you may write there, or name another "
            "folder, and run again: what is done is kept"
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a name to write a file or a folder under; whole, it takes the place of `path`, else nothing of it stays."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield unfinished
            if unfinished.is_dir():
                shutil.rmtree(path, ignore_errors=True)  # a folder replaces an empty one alone
            unfinished.replace(path)
        finally:
            remove(unfinished)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a file atomically: a reader sees the old one or the new one, never half of it."""
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, default=str))


def versions() -> dict[str, str]:
    installed = {dist.metadata["Name"].lower(): dist.version for dist in importlib.metadata.distributions()}
    return {"python": platform.python_version()} | {name: installed.get(name, "absent") for name in LIBRARIES}


def code_revision() -> str | None:
    """The commit of this checkout, or None outside one."""
    here = Path(__file__).parent
    git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False)
    return git.stdout.strip() or None


def write_results(output_dir: Path, figures: dict[str, Any], *, config: Any, seed: int, **details: Any) -> Path:
    """Write `output_dir/results.json`; `details` carries what else the recipe knows (coverage, revisions)."""
    record = {
        "figures": figures,
        "config": asdict(config) if is_dataclass(config) else config,
        "seed": seed,
        "code_revision": code_revision(),
        "versions": versions(),
        **details,
    }
    path = Path(output_dir) / "results.json"
    write_json(path, record)
    return path
