"""Atomic checkpoints and exact resume."""

import json
import os
import shutil
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object
from accelerate.utils.constants import RNG_STATE_NAME

from hf_datasets.drafts import remove, replacing, to_disk, write_json, writing
from subtle.run.accelerator import from_main

CONFIGURATION = "run.json"
PROGRESS = "progress.json"
UNFINISHED = "unfinished"
PIECE_BYTES = 2**26
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
    steps_per_epoch: int = 0  # 0: not known yet


class Checkpoints:
    """The checkpoints of one run in `folder`; only the last is kept.

    Nodes need not share the folder: the main process's has everything, and what others lack they get from it.

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
        from_main(partial(self.remember, path, json.loads(json.dumps(identity))))

    def remember(self, path: Path, identity: dict[str, Any]) -> None:
        """Write the identity of a new run, or refuse another one; on the main process."""
        if path.is_file():
            try:
                earlier = dict(json.loads(path.read_text(encoding="utf-8")))
            except ValueError as error:
                raise SystemExit(f"{path} is damaged ({error}); {AGAIN}") from None
            changed = sorted(name for name in identity | earlier if identity.get(name) != earlier.get(name))
            if changed:
                raise SystemExit(
                    f"{path.parent} holds a run with other {', '.join(changed)}; name another --output_dir, or give "
                    "--restart to train again from scratch"
                )
        else:
            write_json(path, identity)

    def resume(self) -> Progress:
        """Load the last complete checkpoint into model, optimizer and random states; its progress, or a fresh one."""
        name, progress, sizes = from_main(self.last)
        if not name:
            return Progress()
        self.send(self.folder / name, sizes)
        self.accelerator.load_state(str(self.folder / name))
        return Progress(**progress)

    def last(self) -> tuple[str, dict[str, Any], dict[str, int]]:
        """Name, progress and sizes of files of the last complete checkpoint; an empty name without one."""
        complete = sorted(self.folder.glob("step-*"))
        if not complete:
            return "", {}, {}
        folder = complete[-1]
        try:
            progress = dict(json.loads((folder / PROGRESS).read_text(encoding="utf-8")))
            sizes = dict(progress.pop("sizes"))
        except (OSError, ValueError, KeyError) as error:
            raise SystemExit(f"{folder / PROGRESS} is damaged ({error}); {AGAIN}") from None
        # accelerate goes on without random states that it cannot read, and would train to other weights.
        if cut := sorted(name for name, size in sizes.items() if file_size(folder / name) != size):
            raise SystemExit(f"{os.path.normpath(folder / cut[0])} is damaged, as by a power loss; {AGAIN}")
        return folder.name, progress, sizes

    def send(self, folder: Path, sizes: dict[str, int]) -> None:
        """Write the files of a checkpoint that another node lacks, from the main process."""
        is_main = self.accelerator.is_main_process
        folder.mkdir(parents=True, exist_ok=True)
        for name, size in sizes.items():
            path = folder / name
            lacks = file_size(path) != size
            if path.parent != folder or not any(gather_object([lacks])):  # only the main process reads the best weights
                continue
            with ExitStack() as opened:
                source = opened.enter_context(path.open("rb")) if is_main else None
                target = opened.enter_context(opened.enter_context(replacing(path)).open("wb")) if lacks else None
                for _ in range(0, size, PIECE_BYTES):
                    (piece,) = broadcast_object_list([source.read(PIECE_BYTES) if source else None])
                    if target:
                        target.write(piece)

    def save(self, progress: Progress) -> None:
        """Write a checkpoint beside the last one and only then replace it."""
        unfinished, complete = self.folder / UNFINISHED, self.folder / f"step-{progress.total_steps:010d}"
        if self.accelerator.is_main_process:
            shutil.rmtree(unfinished, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        with writing(self.folder):
            try:
                self.accelerator.save_state(str(unfinished))
            except BaseException:
                shutil.rmtree(unfinished, ignore_errors=True)  # it takes up disk space
                raise
        own = unfinished / f"{RNG_STATE_NAME}_{self.accelerator.process_index}.pkl"
        states = gather_object([(own.name, own.read_bytes())])
        if self.accelerator.is_main_process:
            for name, state in states:
                if not (unfinished / name).is_file():  # it is on another node
                    (unfinished / name).write_bytes(state)
            files = [path for path in (*unfinished.rglob("*"), self.best_weights) if path.is_file()]
            sizes = {os.path.relpath(path, unfinished): file_size(path) for path in files}
            write_json(unfinished / PROGRESS, asdict(progress) | {"sizes": sizes})
            to_disk(*unfinished.rglob("*"), unfinished)
            if not complete.exists():
                unfinished.replace(complete)
                to_disk(self.folder)
        self.accelerator.wait_for_everyone()
        for folder in (unfinished, *self.folder.glob("step-*")):  # other nodes have their own
            if folder != complete:
                shutil.rmtree(folder, ignore_errors=True)


def file_size(path: Path) -> int:
    """The bytes of a file; -1 where there is none."""
    return path.stat().st_size if path.is_file() else -1
