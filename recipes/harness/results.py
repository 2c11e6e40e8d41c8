"""What every recipe leaves behind: `results.json` with figures, configuration, seed, revisions, versions, coverage."""

import importlib.metadata
import platform
import subprocess
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
