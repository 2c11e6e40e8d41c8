"""The names that `load_dataset` knows after `import hf_datasets`, and the way it finds them.

No hub serves a bare name any more, so there are two routes to `load_dataset("tfcovr")`. After `import hf_datasets`
the module factory of `datasets` is wrapped, as soon as that is imported, and finds our builders. Without it, `datasets`
falls back to its own cache, which `builders.py` keeps in order.
"""

import functools
import sys
import warnings
from collections.abc import Collection, Mapping
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import wrapt

BUILDERS = {
    "activitynet_comp": "hf_datasets.comp.activitynet_comp",
    "tfcovr": "hf_datasets.tfcovr.builder",
    "youcook2_comp": "hf_datasets.comp.youcook2_comp",
    "charades_fig": "hf_datasets.fig.builder",
    "didemo_fig": "hf_datasets.fig.builder",
    "activitynet_fig": "hf_datasets.fig.builder",
}
"""Registered name -> module of its builder. A line here is all that a new dataset needs."""
TITLES = {
    "activitynet_comp": "ActivityNet-Comp",
    "tfcovr": "TF-CoVR",
    "youcook2_comp": "YouCook2-Comp",
    "charades_fig": "Charades-FIG",
    "didemo_fig": "DiDeMo-FIG",
    "activitynet_fig": "ActivityNet-FIG",
}
"""Registered name -> what its authors call it."""
EVALUATION_SPLITS = ("test", "validation")


def evaluation_split(splits: Collection[str], preferred: Collection[str] = EVALUATION_SPLITS) -> str:
    """The split that results are reported on: the first of those preferred that a dataset has.

    VideoComp publishes no test split, and reports on its validation split.

    Args:
        splits: All splits of the dataset.
        preferred: What to look for, in this order.

    Raises:
        ValueError: The dataset has none of them.

    Example:
        >>> evaluation_split(["train", "validation", "test"]), evaluation_split(["train", "validation"])
        ('test', 'validation')
    """
    found = next((split for split in preferred if split in splits), None)
    if found is None:
        raise ValueError(f"there is no split {' or '.join(preferred)}; there are {', '.join(splits)}: name one of them")
    return found


def task_ids(name: str, origin: str) -> list[str]:
    """The ids of a dataset's benchmark tasks, under which results are reported: mteb knows the same names.

    Args:
        name: A key of `BUILDERS`.
        origin: `mini` or `release`; rows that somebody generated are not a benchmark.

    Returns:
        The ids, none where there is no benchmark.

    Example:
        >>> task_ids("tfcovr", "mini"), task_ids("tfcovr", "own"), task_ids("youcook2_comp", "release")
        (['TFCoVRMini'], [], ['YouCook2Comp'])
        >>> task_ids("charades_fig", "mini")
        ['CharadesFIGVideosMini', 'CharadesFIGMomentsMini']
    """
    suffixes = {"mini": "Mini", "release": ""}
    if origin not in suffixes:
        return []
    corpora = ("Videos", "Moments") if name.endswith("_fig") else ("",)
    return [f"{TITLES[name].replace('-', '')}{corpus}{suffixes[origin]}" for corpus in corpora]


def task_id(name: str, origin: str) -> str | None:
    """The first of `task_ids`, by which models are compared: for the FIG sets the retrieval of whole videos.

    Example:
        >>> task_id("didemo_fig", "release"), task_id("tfcovr", "own")
        ('DiDeMoFIGVideos', None)
    """
    return next(iter(task_ids(name, origin)), None)


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
