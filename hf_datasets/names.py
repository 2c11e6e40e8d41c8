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
