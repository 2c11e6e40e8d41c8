"""The names that `load_dataset` knows after `import hf_datasets`."""

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
TASK_KINDS = {"tfcovr": "VT2VRetrieval", "comp": "PairClassification", "fig": "T2VRetrieval"}
"""Last part of a registered name -> the kind of task that its benchmark is, as mteb ends the names of tasks."""


def task_id(name: str, origin: str) -> str | None:
    """The id of a dataset's benchmark, under which results are reported.

    Args:
        name: A key of `BUILDERS`.
        origin: `mini` or `release`; rows that somebody generated are not a benchmark.

    Returns:
        The id, None where there is no benchmark.

    Example:
        >>> task_id("tfcovr", "mini"), task_id("tfcovr", "release"), task_id("tfcovr", "own")
        ('TFCoVRMiniatureVT2VRetrieval', 'TFCoVRVT2VRetrieval', None)
        >>> task_id("activitynet_comp", "mini"), task_id("didemo_fig", "release")
        ('ActivityNetCompMiniaturePairClassification', 'DiDeMoFIGT2VRetrieval')
    """
    infixes = {"mini": "Miniature", "release": ""}
    if origin not in infixes:
        return None
    return f"{TITLES[name].replace('-', '')}{infixes[origin]}{TASK_KINDS[name.rpartition('_')[2]]}"
