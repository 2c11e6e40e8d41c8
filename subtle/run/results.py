"""`results.json` of every recipe: metrics, configuration, seed, revision of the code, versions, coverage."""

import importlib.metadata
import json
import platform
import subprocess
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from hf_datasets.drafts import write_json
from subtle.commands import IS_INSTALLED

DATASET_COMMITS: dict[str, str] = {}
"""Dataset on the Hub -> its commit that this process has read."""
LIBRARIES = ("subtle-video", "torch", "transformers", "datasets", "accelerate", "peft", "evaluate", "numpy")


@cache
def versions() -> dict[str, str]:
    """The versions of Python and of the libraries that results depend on."""
    return {"python": platform.python_version()} | {name: library_version(name) for name in LIBRARIES}


def library_version(library: str) -> str:
    """One by one: reading what all distributions say of themselves takes half a second."""
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def code_revision() -> str | None:
    """The commit of this checkout, or None outside one."""
    if IS_INSTALLED:  # what holds the environment may be a checkout of something else
        return None
    here = Path(__file__).parent
    git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False)
    return git.stdout.strip() or None


def write_results(output_dir: Path, results: dict[str, Any], *, config: Any, seed: int, **details: Any) -> Path:
    """Write `output_dir/results.json`: `results` under the key `figures`, and `details` such as the coverage."""
    options = asdict(config) if is_dataclass(config) and not isinstance(config, type) else config
    commit = DATASET_COMMITS.get(str((options or {}).get("dataset")))
    record = {
        "figures": results,
        "config": options,
        "seed": seed,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "code_revision": code_revision(),
        "versions": versions(),
        **({"dataset_revision": commit} if commit else {}),
        **details,
    }
    path = Path(output_dir) / "results.json"
    write_json(path, record)
    return path


def read_json(path: Path, cure: str = "remove it and run again what wrote it", **parts: type) -> dict[str, Any]:
    """The object that a JSON file holds.

    Args:
        path: What a recipe or `save_pretrained` wrote.
        cure: What to do where it is damaged.
        parts: Name -> type of what it must hold.

    Raises:
        ValueError: It cannot be read as JSON, is not an object, or lacks a part; the message names it and the cure.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is damaged, as by a power loss: it cannot be read as JSON ({error}); {cure}"
        ) from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} does not hold a JSON object; {cure}")
    wrong = [name for name, kind in parts.items() if not isinstance(value.get(name), kind)]
    if wrong:
        raise ValueError(f"{path} holds no {' and no '.join(wrong)}; it is damaged, or no recipe wrote it; {cure}")
    return value
