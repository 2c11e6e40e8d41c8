"""Modules that moved: an old name imports the new module, with a warning, until release 0.3."""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "moments.gathering": "moments.distributed_gather",
    "tfcovr.conversion_aim": "tfcovr.merging_aim",
    "tfcovr.gathering": "tfcovr.distributed_gather",
    "video_text_encoders": "encoders",
    "vidclip.gathering": "vidclip.distributed_gather",
}
"""Old name -> new name, both within this package."""


class MovedModules(Loader):
    """Finds the old names of `MOVED`; `sys.meta_path` asks it last, so other imports cost nothing more."""

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        """A spec for an old name, None for any other."""
        package, _, old = name.partition(".")
        return ModuleSpec(name, self) if package == __package__ and old in MOVED else None

    def create_module(self, _spec: ModuleSpec) -> None:
        """Nothing of its own: Python makes a module that `exec_module` replaces."""

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
