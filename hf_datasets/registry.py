"""The names that `load_dataset` knows after `import hf_datasets`."""

from collections.abc import Collection

BUILDERS = {
    "activitynet_comp": "hf_datasets.comp.builder",
    "tfcovr": "hf_datasets.tfcovr.builder",
    "youcook2_comp": "hf_datasets.comp.builder",
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
