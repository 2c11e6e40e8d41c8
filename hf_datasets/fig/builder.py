"""`load_dataset("charades_fig")`, `"didemo_fig"` and `"activitynet_fig"`: moments and the videos they are in."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import datasets
import polars as pl
import pyarrow as pa

from hf_datasets.builders import RegisteredBuilder
from hf_datasets.fig import release
from hf_datasets.fig.moments import (
    MOMENT_SCHEMA,
    clip_to_duration,
    describe_ends,
    locate_videos,
    moments_of_splits,
    published_moments,
    videos_of,
)
from hf_datasets.long_videos import SPLITS, VIDEO_FEATURES, VIDEO_SCHEMA, read_header
from hf_datasets.records import Rejection
from hf_datasets.sharding import LEAST_ROWS, shards_of

Granularity = Literal["fine", "coarse"]
HOMEPAGE = "https://verified-neurips.github.io"
CITATION = """@inproceedings{chen2024verified,
  title = {VERIFIED: A Video Corpus Moment Retrieval Benchmark for Fine-Grained Video Understanding},
  author = {Chen, Houlun and Wang, Xin and Chen, Hong and Zhang, Zeyang and Feng, Wei and Huang, Bin and Jia, Jia and
    Zhu, Wenwu},
  booktitle = {Advances in Neural Information Processing Systems, Datasets and Benchmarks Track},
  year = {2024},
  eprint = {2410.08593},
  archivePrefix = {arXiv},
  url = {https://arxiv.org/abs/2410.08593}
}"""
DESCRIPTIONS = {
    "mini": "Rendered athletes, not real video: the actions in drawn videos, with captions made from "
    "the motion's parameters. The same rows under all three names. For trying code, not for reporting results.",
    "release": "Fine-grained moments as the authors of VERIFIED publish them.",
    "source": "Fine-grained moments as the annotation pipeline of `subtle build fig` wrote them.",
}


@dataclass
class FIGConfig(datasets.BuilderConfig):  # type: ignore[misc]  # datasets has no types
    """The options with which fine-grained moments are loaded.

    Attributes:
        data_dir: For `release` the folder of the published files, for `source` what `recipes/build.py fig` made, for
            `mini` a folder that `prepare_miniature` made.
        video_dir: The folder of videos; rows then have `video`, a path or null. `mini-videos` knows its own.
        granularity: "fine" or "coarse" adds the column `caption` with that caption; None adds none.
        clip_to_duration: Clip the ends of moments to their video; published ones may end up to 25 s later.
    """

    video_dir: str | None = None
    granularity: Granularity | None = None
    clip_to_duration: bool = False


class FIG(RegisteredBuilder):
    """Fine-grained moments of three datasets; see `FIGConfig` for the options."""

    VERSION = datasets.Version("1.0.0")
    BUILDER_CONFIG_CLASS = FIGConfig
    BUILDER_CONFIGS = [  # noqa: RUF012 as `datasets` declares it
        FIGConfig(name=f"{origin}{part}", version="1.0.0", description=text)
        for origin, text in DESCRIPTIONS.items()
        for part in ("", "-videos")
    ]
    DEFAULT_CONFIG_NAME = "mini"

    @property
    def _is_videos(self) -> bool:
        return bool(self.config.name.endswith("-videos"))

    @property
    def _schema(self) -> pa.Schema:
        if self._is_videos:
            return VIDEO_SCHEMA
        schema = MOMENT_SCHEMA
        for name, wanted in (("caption", self.config.granularity), ("video", self.config.video_dir)):
            schema = schema.append(pa.field(name, pa.string())) if wanted else schema
        return schema

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo(
            description=self.config.description or "",
            features=VIDEO_FEATURES.copy() if self._is_videos else datasets.Features.from_arrow_schema(self._schema),
            homepage=HOMEPAGE,
            citation=CITATION,
        )

    def _split_generators(self, dl_manager: datasets.DownloadManager) -> list[datasets.SplitGenerator]:
        self._check()
        origin = self.config.name.removesuffix("-videos")
        read: dict[str, Callable[[], tuple[pl.DataFrame, list[Rejection]]]] = {
            "mini": self._miniature,
            "release": partial(self._release, dl_manager),
            "source": self._source,
        }
        moments, self.rejections = read[origin]()
        rows = self._finish(moments)
        parts = rows.partition_by("split", as_dict=True)
        least_rows = 1 if self._is_videos else LEAST_ROWS
        # In Arrow, which a forked process can read; Polars would hang in it.
        tables = {
            split: parts[split,].select(self._schema.names).to_arrow().cast(self._schema)
            for split in SPLITS
            if (split,) in parts
        }
        return self._generators({split: shards_of(table, least_rows=least_rows) for split, table in tables.items()})

    def _check(self) -> None:
        allowed = get_args(Granularity)
        if self.config.granularity not in {None, *allowed}:
            raise ValueError(
                f"granularity={self.config.granularity!r} is none of {', '.join(allowed)}; None adds no column"
            )
        if self._is_videos:
            self._refuse(("granularity", "clip_to_duration"), "it has videos, not moments")

    def _miniature(self) -> tuple[pl.DataFrame, list[Rejection]]:
        self._refuse(("video_dir",), "the miniature has its own videos, see 'mini-videos'")
        from hf_datasets.fig.miniature import miniature_moments  # imports the renderer

        self._root = self._miniature_dir()
        return miniature_moments(self._root)

    def _release(self, manager: datasets.DownloadManager) -> tuple[pl.DataFrame, list[Rejection]]:
        data_dir = self._data_dir()
        name = self.dataset_name
        files = release.find_moment_files(data_dir, name) if data_dir else release.download(manager, name)
        absent = [split for split in release.FILES[name] if split not in files]
        if absent:
            self.info.description += f" Not in {data_dir}: {', '.join(release.FILES[name][split] for split in absent)}."
        return moments_of_splits(files)

    def _source(self) -> tuple[pl.DataFrame, list[Rejection]]:
        data_dir = self._data_dir()
        if data_dir is None:
            raise ValueError("pass data_dir: the folder that `subtle build fig` made")
        return published_moments(data_dir)

    def _finish(self, moments: pl.DataFrame) -> pl.DataFrame:
        """The rows as they are stored; the description is extended by the coverage and the ends of moments."""
        config = self.config
        sentences = [describe_ends(moments)]
        if config.clip_to_duration:
            moments, outside = clip_to_duration(moments, source=f"{self.dataset_name} {config.name}")
            self.rejections += outside
            sentences.append("Ends were clipped to the duration of the video.")
        if config.granularity:
            moments = moments.with_columns(caption=pl.col(f"{config.granularity}_caption"))
        rows = videos_of(moments) if self._is_videos else moments
        video_dir = self._root / "videos" if config.name == "mini-videos" else config.video_dir
        if video_dir:
            rows, coverage = locate_videos(rows, video_dir)
            sentences.append(coverage)
        if config.name == "mini-videos":
            rates = {path: read_header(path)[1] for path in rows["video"].unique()}
            rows = rows.with_columns(frame_rate=pl.col("video").replace_strict(rates, return_dtype=pl.Float64))
        self.info.description = " ".join([self.info.description, *sentences])
        return rows
