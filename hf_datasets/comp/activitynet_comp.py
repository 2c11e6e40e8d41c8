"""`load_dataset("activitynet_comp")`."""

from hf_datasets.comp.builder import CompBuilder, configurations


class ActivityNetComp(CompBuilder):
    """ActivityNet-Comp: everyday videos with the events of ActivityNet-Captions."""

    BUILDER_CONFIGS = configurations("ActivityNet-Captions")
    SOURCE = "activitynet"
    ID_PREFIX = "v_"
