"""Atomic checkpoints and exact resume."""

import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from subtle.run.results import remove, to_disk, write_json, writing

CONFIGURATION = "run.json"
PROGRESS = "progress.json"
UNFINISHED = "unfinished"
AGAIN = "give --restart to train again from scratch, or name another --output_dir"


@dataclass
class Progress:
    """How far a run has come: `step` batches of `epoch` are done."""

    epoch: int = 0
    step: int = 0
    total_steps: int = 0
    loss_sum: float = 0.0  # over the steps of this epoch
    best: float = -1.0
    history: list[dict[str, float]] = field(default_factory=list)
    skipped: dict[str, None] = field(default_factory=dict)  # why videos could not be read


class Checkpoints:
    """The checkpoints of one run in `folder`; only the last is kept.

    Args:
        accelerator: with model and optimizer prepared.
        folder: the run's output folder.
        identity: the part of the configuration that decides the result; another one in the same folder is refused.
        restart: forget what an earlier run left here.
    """

    def __init__(self, accelerator: Accelerator, folder: Path, identity: dict[str, Any], *, restart: bool) -> None:
        self.accelerator = accelerator
        self.folder, self.best_weights = folder / "checkpoints", folder / "best.safetensors"
        path = folder / CONFIGURATION
        accelerator.wait_for_everyone()
        if accelerator.is_main_process and restart:
            (folder / "results.json").unlink(missing_ok=True)
            shutil.rmtree(self.folder, ignore_errors=True)
            self.best_weights.unlink(missing_ok=True)
            # Last, because while it is here nothing that an unfinished removal leaves passes for another run's.
            path.unlink(missing_ok=True)
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:  # what a killed run was writing; the caller holds the folder's lock
            for unfinished in folder.glob("*.tmp"):
                remove(unfinished)
        identity = json.loads(json.dumps(identity))
        if path.is_file():
            try:
                earlier = dict(json.loads(path.read_text(encoding="utf-8")))
            except ValueError as error:
                raise SystemExit(f"{path} is damaged ({error}); {AGAIN}") from None
            changed = sorted(name for name in identity | earlier if identity.get(name) != earlier.get(name))
            if changed:
                raise SystemExit(
                    f"{folder} holds a run with other {', '.join(changed)}; name another --output_dir, or give "
                    "--restart to train again from scratch"
                )
        elif accelerator.is_main_process:
            write_json(path, identity)
        accelerator.wait_for_everyone()

    def resume(self) -> Progress:
        """Load the last complete checkpoint into model, optimizer and random states; its progress, or a fresh one."""
        complete = sorted(self.folder.glob("step-*"))
        if not complete:
            return Progress()
        folder = complete[-1]
        try:
            progress = dict(json.loads((folder / PROGRESS).read_text(encoding="utf-8")))
            sizes = dict(progress.pop("sizes"))
        except (OSError, ValueError, KeyError) as error:
            raise SystemExit(f"{folder / PROGRESS} is damaged ({error}); {AGAIN}") from None
        # accelerate goes on without random states that it cannot read, and would train to other weights.
        if cut := sorted(name for name, size in sizes.items() if size_of(folder / name) != size):
            raise SystemExit(f"{os.path.normpath(folder / cut[0])} is damaged, as by a power loss; {AGAIN}")
        self.accelerator.load_state(str(folder))
        return Progress(**progress)

    def save(self, progress: Progress) -> None:
        """Write a checkpoint beside the last one and only then replace it."""
        unfinished = self.folder / UNFINISHED
        if self.accelerator.is_main_process:
            shutil.rmtree(unfinished, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        with writing(self.folder):
            try:
                self.accelerator.save_state(str(unfinished))
            except BaseException:
                shutil.rmtree(unfinished, ignore_errors=True)  # it takes up disk space
                raise
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            files = [path for path in (*unfinished.rglob("*"), self.best_weights) if path.is_file()]
            sizes = {os.path.relpath(path, unfinished): size_of(path) for path in files}
            write_json(unfinished / PROGRESS, asdict(progress) | {"sizes": sizes})
            to_disk(*unfinished.rglob("*"), unfinished)
            earlier = list(self.folder.glob("step-*"))
            complete = self.folder / f"step-{progress.total_steps:010d}"
            if complete not in earlier:
                unfinished.replace(complete)
                to_disk(self.folder)
            for folder in earlier:
                if folder != complete:
                    shutil.rmtree(folder)
        self.accelerator.wait_for_everyone()


def size_of(path: Path) -> int:
    """The bytes of a file; -1 where there is none."""
    return path.stat().st_size if path.is_file() else -1
