"""What every recipe leaves behind: `results.json` with figures, configuration, seed, revisions, versions, coverage."""

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from hf_datasets.drafts import remove, replacing, write_json, write_text, writing

__all__ = ["remove", "replacing", "versions", "write_json", "write_results", "write_text", "writing"]

from harness.commands import IS_INSTALLED

LIBRARIES = ("subtle-video", "torch", "transformers", "datasets", "accelerate", "peft", "evaluate", "numpy")


def versions() -> dict[str, str]:
    installed = {dist.metadata["Name"].lower(): dist.version for dist in importlib.metadata.distributions()}
    return {"python": platform.python_version()} | {name: installed.get(name, "absent") for name in LIBRARIES}


def code_revision() -> str | None:
    """The commit of this checkout, or None outside one."""
    if IS_INSTALLED:  # what holds the environment may be a checkout of something else
        return None
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


@contextmanager
def replacing_files(folder: Path) -> Iterator[Path]:
    """Give a folder to write several files into; whole, each takes its place in `folder`, else none of them does.

    Other files of `folder` stay. `results.json` is moved last, so it never stands beside another run's files.
    """
    unfinished = folder / f"{os.getpid()}.tmp"
    try:
        with writing(folder):
            unfinished.mkdir(parents=True)
        yield unfinished
        with writing(folder):
            files = [path for path in unfinished.rglob("*") if path.is_file()]
            for path in sorted(files, key=lambda path: path.name == "results.json"):
                place = folder / path.relative_to(unfinished)
                place.parent.mkdir(parents=True, exist_ok=True)
                path.replace(place)
    finally:
        remove(unfinished)
