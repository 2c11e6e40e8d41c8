"""What every recipe leaves behind: `results.json` with figures, configuration, seed, revisions, versions, coverage."""

import importlib.metadata
import json
import os
import platform
import subprocess
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

LIBRARIES = ("subtle-video", "torch", "transformers", "datasets", "accelerate", "peft", "evaluate", "numpy")


def write_text(path: Path, text: str) -> None:
    """Write a file atomically: a reader sees the old one or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


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


def write_results(
    output_dir: Path, figures: dict[str, Any], *, config: Any, seed: int, **details: Any
) -> Path:
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
