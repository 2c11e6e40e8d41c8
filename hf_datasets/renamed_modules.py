"""Modules that moved: an old name imports the new module, with a warning, until release 0.3."""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "comp.judging": "comp.judge",
    "fig.captions": "fig.parsing",
    "fig.rewording": "fig.lexicon",
    "fig.rewritings": "fig.negatives",
    "generation.dialogue": "generation.conversation",
    "generation.estimate": "generation.dry_run",
    "generation.faults": "generation.errors",
    "generation.objections": "generation.answer_checks",
    "tfcovr.collection": "tfcovr.construction",
    "tfcovr.damaged_csv": "damaged_csv",
    "tfcovr.grammar": "tfcovr.labels.template",
    "tfcovr.instructions": "tfcovr.modifications.parser",
    "tfcovr.labels_diving": "tfcovr.labels.diving",
    "tfcovr.labels_gymnastics": "tfcovr.labels.gymnastics",
    "tfcovr.own": "tfcovr.own_clips",
    "tfcovr.normalisation": "tfcovr.modifications.normalization",
    "tfcovr.tables": "tables",
    "tfcovr.tasks": "tfcovr.modifications.task",
    "tfcovr.validation": "tfcovr.modifications.checks",
    "tfcovr.writer": "tfcovr.modifications.writer",
    "video_backends": "video.backends",
    "video_pool": "video.pool",
    "video_process": "video.worker_process",
    "video_pyav": "video.pyav",
    "video_reading": "video.reading",
    "video_resizing": "video.resizing",
    "video_shared_memory": "video.shared_memory",
    "video_store": "video.store",
    "video_worker": "video.worker",
}
"""Old name -> new name, both within this package."""


class MovedModules(Loader):
    """Finds the old names of `MOVED`; it comes last in `sys.meta_path`, so other imports cost nothing more."""

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        """A spec for an old name, None for any other."""
        package, _, old = name.partition(".")
        return ModuleSpec(name, self) if package == __package__ and old in MOVED else None

    def create_module(self, _spec: ModuleSpec) -> None:
        """None: Python makes a module that `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the new module in the place of the old name; its `__name__` and `__spec__` stay its own."""
        old = module.__name__
        new = f"{__package__}.{MOVED[old.partition('.')[2]]}"
        warnings.warn(f"{old} is now {new}; the old name goes in release 0.3", DeprecationWarning, stacklevel=2)
        sys.modules[old] = importlib.import_module(new)


def install() -> None:
    """Let the old names of this package be imported."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
