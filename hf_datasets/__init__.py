"""Datasets of fine-grained video retrieval; importing this registers their names with `load_dataset`.

No hub serves a bare name any more, so there are two routes to `load_dataset("tfcovr")`. After `import hf_datasets`
the module factory of `datasets` is wrapped and finds our builders. Without it, `datasets` falls back to its own
cache, which `builders.py` keeps in order.

`datasets` itself is not imported here, so that a process which only reads videos starts at once.
"""

import functools
import sys
import warnings
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import wrapt

from hf_datasets.records import Clip, ContrastPair, LabelPair, Moment, Rejection
from hf_datasets.registry import BUILDERS

if TYPE_CHECKING:
    from hf_datasets.builders import prepare

__all__ = ["Clip", "ContrastPair", "LabelPair", "Moment", "Rejection", "prepare", "register"]


def __getattr__(name: str) -> Any:
    if name == "prepare":
        from hf_datasets.builders import prepare

        return prepare
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")


def register() -> None:
    """Make `load_dataset` find the names of `BUILDERS`; a folder of that name in the way still wins, with a warning."""
    wrapt.register_post_import_hook(_wrap_factory, "datasets.load")


def _wrap_factory(load: ModuleType) -> None:
    original = getattr(load.dataset_module_factory, "__wrapped__", load.dataset_module_factory)

    @functools.wraps(original)
    def dataset_module_factory(path: str, *args: Any, **kwargs: Any) -> Any:
        if path not in BUILDERS:
            return original(path, *args, **kwargs)
        if Path(path).is_dir():
            message = (
                f"load_dataset({path!r}) opens the folder {Path(path).resolve()}, not the registered dataset of that "
                "name; rename the folder, or start in another one"
            )
            warnings.warn(message, stacklevel=4)  # the line that calls load_dataset
            return original(path, *args, **kwargs)
        _refuse_ignored(path, signature(original).bind(path, *args, **kwargs).arguments)
        from hf_datasets.builders import registered_module

        return registered_module(path)

    vars(load)["dataset_module_factory"] = dataset_module_factory
    inspect = sys.modules.get("datasets.inspect")  # which imports it by name
    if inspect is not None and hasattr(inspect, "dataset_module_factory"):
        vars(inspect)["dataset_module_factory"] = dataset_module_factory


def _refuse_ignored(name: str, arguments: Mapping[str, Any]) -> None:
    cures = {
        "revision": "its rows are made by this package or read from data_dir, so leave revision out; "
        "another version of the rows is another version of the package, or another data_dir",
        "data_files": "put the files into one folder and pass it as data_dir, with the configuration that reads it: "
        f"load_dataset({name!r}, 'release', data_dir=FOLDER)",
    }
    for argument, cure in cures.items():
        if arguments.get(argument) is not None:
            raise ValueError(f"{name!r} takes no {argument}; {cure}")


register()
