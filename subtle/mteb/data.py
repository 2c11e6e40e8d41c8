"""What the tasks share: which of our datasets they read, and which data their results were measured on."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from datasets import load_dataset
from mteb.abstasks.abstask import AbsTask
from mteb.abstasks.task_metadata import TaskMetadata

import hf_datasets  # noqa: F401 - registers the datasets' names
from hf_datasets.builders import RENDERED, own_cache
from hf_datasets.class_labels import with_names
from hf_datasets.long_videos import with_paths
from hf_datasets.registry import evaluation_split

AUTHORS_CONFIG = "release"
RENDERED_NOTE = "Rendered athletes, not real video, in the place of the published rows."


class OnOurData(AbsTask):
    """A task whose rows come from `load_dataset(DATASET, dataset_config, data_dir=, video_dir=, split=)`.

    Its results are named after the configuration (`TFCoVRMini`; `TFCoVR` alone is what the authors publish), so that
    nobody takes the miniature for the benchmark, and their `dataset_revision` is a hash of the rows that were measured.

    Args:
        dataset_config: mini (the default, needs nothing), release, source or own, where the dataset has them.
        data_dir: Folder of the annotations; none where the configuration needs none.
        video_dir: Folder of the videos; none where the dataset knows its own.
        split: The split to measure on; none: test, or where there is none validation.
        dataset: A folder or a repository on the Hub with the same configurations; none: our own dataset of that name.
    """

    DATASET: str
    coverage: dict[str, float]

    def __init__(
        self,
        dataset_config: str = "mini",
        data_dir: str | None = None,
        video_dir: str | None = None,
        *,
        split: str | None = None,
        dataset: str | None = None,
        **options: Any,
    ) -> None:
        self.dataset_name = dataset or self.DATASET
        self.dataset_config, self.data_dir, self.video_dir, self.named_split = (
            dataset_config,
            data_dir,
            video_dir,
            split,
        )
        own = type(self).metadata
        suffix = "" if dataset_config == AUTHORS_CONFIG else dataset_config.capitalize()
        changes: dict[str, Any] = {"name": own.name + suffix, **({"eval_splits": [split]} if split else {})}
        if dataset_config in RENDERED:  # not the authors' videos, texts or license
            changes["dataset"] = {**own.dataset, "path": self.dataset_name}
            changes["license"] = "apache-2.0"
            changes["description"] = f"{RENDERED_NOTE} {own.description}"
        self.metadata = own.model_copy(update=changes)
        super().__init__(**options)

    @cached_property
    def split(self) -> str:
        """The split to measure on."""
        splits = self.rows()
        if self.named_split and self.named_split not in splits:
            raise ValueError(
                f"{self.dataset_name} {self.dataset_config!r} has no split {self.named_split!r}; there are "
                f"{', '.join(splits)}"
            )
        return self.named_split or evaluation_split(splits)

    @property
    def eval_splits(self) -> Sequence[str]:
        """The split to measure on, in the form that mteb asks for."""
        return self._eval_splits or [self.split]

    def rows(self, part: str = "", split: str | None = None, **options: Any) -> Any:
        """The rows of a part of the configuration, such as "-clips"; of all splits without one.

        Labels are names, videos are paths.
        """
        if self.video_dir:
            options["video_dir"] = self.video_dir
        name = self.dataset_config + part
        options |= own_cache(self.dataset_name)
        rows = load_dataset(self.dataset_name, name, data_dir=self.data_dir, split=split, **options)
        return with_paths(with_names(rows))

    def check_coverage(self, rows: Sequence[Any], kept: Sequence[Any]) -> None:
        """Note the share of the rows that have their video, or refuse to go on without any."""
        if not kept:
            raise ValueError(
                f"none of {len(rows)} rows of {self.dataset_name} {self.dataset_config!r} has its video; name the "
                "folder of videos with video_dir"
            )
        self.coverage = {"coverage_rows": len(kept) / len(rows)}

    def set_data(self, data: Any, described: Iterable[Any]) -> None:
        """Take what was loaded, and its hash as the revision of the dataset."""
        digest = hashlib.sha256()
        for item in described:
            digest.update(f"{item!r}\n".encode())
        revision = {**self.metadata.dataset, "revision": digest.hexdigest()[:40]}
        self.metadata = self.metadata.model_copy(update={"dataset": revision, "eval_splits": [self.split]})
        self.dataset = data
        self.data_loaded = True

    def unload_data(self) -> None:
        """Forget the data, but not which they were."""
        kept = self.metadata
        super().unload_data()
        self.metadata = kept


def metadata_of(builder: Any, **fields: Any) -> TaskMetadata:
    """The metadata of a task, what all of ours share and what the dataset's builder says of itself filled in."""
    common: Mapping[str, Any] = {
        "eval_splits": ["test"],
        "eval_langs": ["eng-Latn"],
        "modalities": ["video", "text"],
        "reference": builder.HOMEPAGE,
        "dialect": [],
        "bibtex_citation": builder.CITATION,
        "contributed_by": "Subtle",
    }
    # The revision is a hash of the rows, set when they are loaded.
    dataset = {"path": fields.pop("path"), "revision": "unloaded"}
    return TaskMetadata(**{**common, "dataset": dataset, **fields})
