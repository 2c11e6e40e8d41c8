"""`load_dataset("youcook2_comp")`."""

from hf_datasets.comp.builder import CompBuilder, configurations


class YouCook2Comp(CompBuilder):
    """YouCook2-Comp: cooking videos with the steps of YouCook2."""

    BUILDER_CONFIGS = configurations("YouCook2")
    SOURCE = "youcook2"
