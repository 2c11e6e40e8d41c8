"""The options of `publish`."""

from dataclasses import dataclass
from typing import Literal

from subtle.options import option
from subtle.run.shared_config import DataDirConfig, DryRunConfig, VideosConfig

What = Literal["dataset", "model", "adapter", "classifier", "embeddings", "metric", "space", "demo", "all"]


@dataclass
class PublishConfig(DryRunConfig, DataDirConfig, VideosConfig):
    """What to publish, and where."""

    what: What | None = option(None, "Kind of what to publish, the first word of the command line.")
    name: str | None = option(None, "Its name or folder, the second word; of a dataset also NAME:CONFIG,CONFIG.")
    repo: str | None = option(None, "Repository on the Hub, ORG/NAME.")
    org: str | None = option(None, "User or organization on the Hub; needed with all.")
    private: bool = option(False, "Make a new repository private.")
    tag: str | None = option(None, "Tag for the published commit, such as v1.")
    replace_card: bool = option(False, "Replace a README.md that was edited on the Hub.")
    take_over: bool = option(False, "Publish into a repository that holds other files, and delete those.")
    videos: bool = option(False, "Publish the videos of a dataset too, where their license allows it.")
    license: str | None = option(None, "License on the Hub of a model, embeddings, or a dataset's videos, such as mit.")
    base_repo: str | None = option(
        None,
        "ORG/NAME of the model that this one started from; none: as its run says. Of the model that a demo searches "
        "with; none: its ORG/miniature-tfcovr.",
    )
    dataset_repo: str | None = option(None, "ORG/NAME of the dataset that a demo shows; none: its ORG/tfcovr.")
    output_dir: str | None = option(None, "Folder to keep what is published in; none: it is removed in the end.")
