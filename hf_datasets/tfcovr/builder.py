"""`load_dataset("tfcovr")`: the rows of each origin, their clips and, of two, their long videos."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import datasets
import polars as pl
import pyarrow as pa

from hf_datasets.builders import RENDERED, RegisteredBuilder
from hf_datasets.long_videos import SPLITS, VIDEO_FEATURES, Split, miniature_videos, read_header, video_tables
from hf_datasets.publishing.shards import published_tables
from hf_datasets.records import Rejection
from hf_datasets.sharding import Shards, Tables, shards_of
from hf_datasets.tfcovr import own_clips, release
from hf_datasets.tfcovr.annotations import SOURCE_HELP, source_clips
from hf_datasets.tfcovr.clips import CLIP_FEATURES, CLIP_SCHEMA, RECORD_SCHEMA, locate_clips
from hf_datasets.tfcovr.composed_benchmark import COMPOSED_HELP, read_composed
from hf_datasets.tfcovr.construction import Collection, check_enough, compose, release_collection, write_changes
from hf_datasets.tfcovr.labels import Label, load_labels
from hf_datasets.tfcovr.miniature import miniature_clips
from hf_datasets.tfcovr.pairs import default_threshold, propose_pairs
from hf_datasets.tfcovr.splitting import hold_out_labels
from hf_datasets.tfcovr.triplets import TRIPLET_FEATURES, TRIPLET_SCHEMA, split_by_video

HOMEPAGE = "https://huggingface.co/datasets/ucf-crcv/TF-CoVR"
CITATION = """@article{gupta2025tfcovr,
  title = {From Play to Replay: Composed Video Retrieval for Temporally Fine-Grained Videos},
  author = {Gupta, Animesh and Parmar, Jay and Dave, Ishan Rajendrakumar and Shah, Mubarak},
  year = {2025},
  eprint = {2506.05274},
  archivePrefix = {arXiv},
  url = {https://arxiv.org/abs/2506.05274}
}"""
DESCRIPTIONS = {
    "mini": "Rendered athletes, not real video: clips drawn from TF-CoVR's label texts, with "
    "modification texts by the rule-based generator. For trying code, not for reporting results.",
    "hard": "Rendered athletes, not real video, made harder: more labels that differ only in count, direction or "
    "order, longer clips with cuts, people who pass in front and athletes in the background. For comparing methods "
    "with each other, not with results on real sport.",
    "unseen": "The clips of 'hard', but of 59 labels in test alone, and of 20 in validation alone. Each of their words "
    "and attributes occurs in labels that train.",
    "release": "TF-CoVR as its authors publish it.",
    "source": "TF-CoVR generated from the annotations of FineGym and FineDiving.",
    "own": "Composed retrieval over clips of your own, made by TF-CoVR's method from a table and a folder of videos.",
    "composed": "A benchmark of composed video retrieval by others, from a folder in mteb's layout.",
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "mini": {"max_triplets_per_pair": 100, "top_n": 5},
    "hard": {"max_triplets_per_pair": 100, "top_n": 5},
    "unseen": {"max_triplets_per_pair": 100, "top_n": 5, "unseen_labels": 0.275},
    "own": {"max_triplets_per_pair": 100, "top_n": 5, "validation_fraction": 0.2, "test_fraction": 0.2},
}
"""Defaults of an origin that differ from `TFCoVRConfig`: few rows of the miniature, enough test videos of few clips."""


@dataclass
class TFCoVRConfig(datasets.BuilderConfig):  # type: ignore[misc]  # datasets has no types
    """The options with which TF-CoVR is loaded.

    Attributes:
        data_dir: For `release` the folder of the published files, for `source` that of the upstream annotations or of
            what `recipes/build.py tfcovr` made, for `own` that of your table or of what the recipe made of it, for
            `composed` that of a benchmark in mteb's layout (`sources.mteb_layout`), for `mini`, `hard` and `unseen` a
            folder that `prepare_miniature` made.
        video_dir: The folder of videos, to fill the clips' `video`; the miniature knows its own.
        max_triplets_per_pair: Draw at most that many training triplets per pair of labels; None keeps all.
        threshold: Minimum similarity of a label pair, see `pairs.label_pairs`; None takes `pairs.default_threshold`.
        top_n: The most targets per source label; None keeps all.
        validation_fraction: Share of the long videos for validation (`source` and `own` only).
        test_fraction: Share of the long videos for test (`source` and `own` only).
        unseen_labels: Share of the labels that are tested on and never trained on, see `splitting.hold_out_labels`.
        seed: Decides which videos go to which split, which labels are held out, and which triplets are drawn.
        subset: Which of several benchmarks of the folder, such as "tv2v" (`composed` only).
        columns: Name of a column in the files -> the name that mteb's layout gives it (`composed` only).
    """

    video_dir: str | None = None
    max_triplets_per_pair: int | None = None
    threshold: float | None = None
    top_n: int | None = None
    validation_fraction: float = 0.1
    test_fraction: float = 0.1
    unseen_labels: float = 0.0
    seed: int = 0
    subset: str | None = None
    columns: dict[str, str] | None = None


WITH_VIDEOS = (*RENDERED, "own")
"""The origins that have `-videos`, too: those whose long videos are here."""
SPLITTING = ("validation_fraction", "test_fraction")
GENERATION = ("max_triplets_per_pair", "threshold", "top_n", "unseen_labels", "seed", *SPLITTING)
"""The parameters of `TFCoVRConfig` that only rows generated here have."""


def configurations() -> list[TFCoVRConfig]:
    """The configurations, those of each origin together."""
    return [
        TFCoVRConfig(name=f"{origin}{part}", version="1.0.0", description=text, **DEFAULTS.get(origin, {}))
        for origin, text in DESCRIPTIONS.items()
        for part in ("", "-clips", *(("-videos",) if origin in WITH_VIDEOS else ()))
    ]


class TFCoVR(RegisteredBuilder):
    """Composed retrieval of fine-grained sport actions; see `TFCoVRConfig` for the options."""

    VERSION = datasets.Version("1.0.0")
    BUILDER_CONFIG_CLASS = TFCoVRConfig
    BUILDER_CONFIGS = configurations()
    DEFAULT_CONFIG_NAME = "mini"

    @property
    def _is_clips(self) -> bool:
        return bool(self.config.name.endswith("-clips"))

    @property
    def _is_videos(self) -> bool:
        return bool(self.config.name.endswith("-videos"))

    @property
    def _schema(self) -> pa.Schema:
        """Of the tables that are read or made."""
        return CLIP_SCHEMA if self._is_clips or self._is_videos else TRIPLET_SCHEMA

    def _info(self) -> datasets.DatasetInfo:
        features = VIDEO_FEATURES if self._is_videos else CLIP_FEATURES if self._is_clips else TRIPLET_FEATURES
        if self.config.name == "composed-clips":  # a benchmark of others has splits of its own
            features = datasets.Features.from_arrow_schema(CLIP_SCHEMA)
        return datasets.DatasetInfo(
            description=self.config.description or "",
            features=features.copy(),
            homepage=HOMEPAGE,
            citation=CITATION,
        )

    def _split_generators(self, _: object) -> list[datasets.SplitGenerator]:
        origin = self.config.name.partition("-")[0]
        read = {
            **dict.fromkeys(RENDERED, self._miniature),
            "release": self._release,
            "source": self._source,
            "own": self._own,
            "composed": self._composed,
        }[origin]
        if origin != "composed":
            self._refuse(("subset", "columns"), "they are of the layout that 'composed' reads")
        return self._generators(read())

    def _miniature(self) -> dict[Split, Tables]:
        self._refuse(("video_dir", *SPLITTING), "the miniature has its own videos and splits")
        if self._is_videos:
            self._refuse(GENERATION, "it has videos, not triplets")
            return miniature_videos(self._miniature_dir())
        trained: Iterable[str] = ()
        if self.config.name.startswith("unseen"):
            from hf_datasets.miniature import ACTIONS  # imports the renderer

            trained = ACTIONS  # of which the weights that ship have seen clips and texts
        return self._generated(*miniature_clips(self._miniature_dir()), trained=trained)

    def _release(self) -> dict[Split, Tables]:
        self._refuse(GENERATION, "the published rows are as they are")
        data_dir = self._data_dir() or release.download(self.token)
        return self._opened(release_collection(data_dir, video_dir=self.config.video_dir))

    def _source(self) -> dict[Split, Tables]:
        data_dir = self._given_dir(SOURCE_HELP)
        published = published_tables(data_dir / self.config.name, self._schema)
        if published:
            self._refuse(GENERATION, f"{data_dir} holds rows that were generated before")
            return self._published(published)
        clips, rejections, coverage = source_clips(data_dir, video_dir=self.config.video_dir)
        split = split_by_video(
            clips,
            validation_fraction=self.config.validation_fraction,
            test_fraction=self.config.test_fraction,
            seed=self.config.seed,
        )
        return self._generated(split, rejections, coverage)

    def _own(self) -> dict[Split, Tables]:
        data_dir = self._given_dir(own_clips.OWN_HELP)
        if self._is_videos and self.config.video_dir is None:
            raise ValueError("pass video_dir: the folder of the videos, of which 'own-videos' has one row each")
        published = published_tables(data_dir / self.config.name.replace("-videos", "-clips"), self._schema)
        if published:
            self._refuse(GENERATION, f"{data_dir} has rows that were generated before")
            return self._published(published, whole_videos=True)
        found = own_clips.read_own_clips(
            data_dir,
            video_dir=self.config.video_dir,
            validation_fraction=self.config.validation_fraction,
            test_fraction=self.config.test_fraction,
            seed=self.config.seed,
        )
        return self._generated(found.clips, found.rejections, found.coverage, labels=found.labels)

    def _composed(self) -> dict[Split, Tables]:
        self._refuse(GENERATION, "the benchmark's rows are as they are")
        data_dir, config = self._given_dir(COMPOSED_HELP), self.config
        found = read_composed(data_dir, video_dir=config.video_dir, subset=config.subset, columns=config.columns)
        if self._is_clips:
            splits = found.clips["split"].unique(maintain_order=True)  # test and, where queries show others, queries
            found = replace(found, rows=dict.fromkeys(splits, partial(iter, ())))
        return self._opened(found)

    def _given_dir(self, wanted: str) -> Path:
        data_dir = self._data_dir()
        if data_dir is None:
            raise ValueError(f"pass data_dir: {wanted}")
        return data_dir

    def _generated(
        self,
        clips: pl.DataFrame,
        rejections: list[Rejection],
        coverage: str,
        *,
        labels: Sequence[Label] | None = None,
        trained: Iterable[str] = (),
    ) -> dict[Split, Tables]:
        config = self.config
        present = set(clips["label"])
        used = [label for label in labels or load_labels() if label.label_id in present]
        if config.unseen_labels:
            share, seed = config.unseen_labels, config.seed
            clips, held_out = hold_out_labels(clips, used, share, trained=trained, seed=seed)
            coverage = f"{coverage} {held_out}"
        if self._is_clips or self._is_videos:
            no_rows: Tables = partial(iter, ())
            return self._opened(Collection(clips, dict.fromkeys(SPLITS, no_rows), rejections, coverage))
        threshold = default_threshold(used) if config.threshold is None else config.threshold
        changes, unwritten = write_changes(propose_pairs(used, threshold=threshold, top_n=config.top_n), used)
        rows, without_clips = compose(
            clips,
            changes,
            max_triplets_per_pair=config.max_triplets_per_pair,
            seed=config.seed,
            labels=used if labels else None,
        )
        empty = check_enough(clips, used, changes, threshold=threshold)
        rows = {split: tables for split, tables in rows.items() if split not in empty}
        without_clips += empty.values()
        return self._opened(Collection(clips, rows, [*rejections, *unwritten, *without_clips], coverage))

    def _opened(self, found: Collection) -> dict[Split, Tables]:
        self.rejections = found.rejections
        self.info.description = f"{self.info.description} {found.coverage}"
        if self._is_videos:
            return video_tables(self._video_rows(found.clips))
        if not self._is_clips:
            return dict(found.rows)
        present = [split for split in found.rows if split in found.clips["split"]]  # `datasets` opens no empty split
        return {split: shards_of(found.clip_table(split)) for split in present}

    def _video_rows(self, clips: pl.DataFrame) -> Iterator[dict[str, Any]]:
        there = clips.drop_nulls("video").unique("video_id", keep="first").sort("video_id")
        for row in there.select("video_id", "video", "split").iter_rows(named=True):
            seconds, frame_rate = read_header(row["video"])
            yield row | {"duration_seconds": seconds, "frame_rate": frame_rate}

    def _published(self, found: dict[str, Shards], *, whole_videos: bool = False) -> dict[Split, Tables]:
        tables = cast(dict[Split, Tables], found)
        if not (self._is_clips or self._is_videos) or self.config.video_dir is None:
            return tables
        stored = pl.concat(cast(pl.DataFrame, pl.from_arrow(table)) for split in tables.values() for table in split())
        columns = [*RECORD_SCHEMA.names(), "description"]
        clips, coverage = locate_clips(stored.select(columns), self.config.video_dir, whole_videos=whole_videos)
        return self._opened(Collection(clips, tables, coverage=coverage))
