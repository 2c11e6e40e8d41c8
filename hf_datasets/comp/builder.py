"""`load_dataset("activitynet_comp")` and `load_dataset("youcook2_comp")`: five configurations each."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa

from hf_datasets.builders import RegisteredBuilder
from hf_datasets.comp.annotations import SourceName, caption_files, offline_actions, read_captioned_videos
from hf_datasets.comp.construction import MULTIPLE, PairConstruction, Row, select_video
from hf_datasets.comp.pairs import PAIR_FEATURES, PAIR_SCHEMA
from hf_datasets.comp.paragraphs import MAX_IOU
from hf_datasets.comp.release import ID_PREFIXES, TimeUnit, address, find_pair_files, read_released_pairs
from hf_datasets.comp.tasks import Paragraph, WrittenParagraph
from hf_datasets.generation.generate import generate
from hf_datasets.generation.offline_chat import RuleBasedGenerator
from hf_datasets.long_videos import VIDEO_FEATURES, miniature_videos
from hf_datasets.publishing.shards import published_tables
from hf_datasets.records import CaptionedVideo, Rejection
from hf_datasets.sharding import Tables, shards_of
from hf_datasets.video import VideoStore

ROW_SCHEMA = PAIR_SCHEMA.append(pa.field("video", pa.string()))
ACTION_SCHEMA = pa.schema(
    {
        "clip_id": pa.string(),
        "video_id": pa.string(),
        "video": pa.string(),
        "start_seconds": pa.float64(),
        "end_seconds": pa.float64(),
        "caption": pa.string(),
    }
)
"""The miniature's single actions, a dataset of short clips and captions for `contrasts.Stacks`."""
ROW_FEATURES = datasets.Features(PAIR_FEATURES | {"video": datasets.Value("string")})
HOMEPAGE = "https://github.com/google-deepmind/video_comp"
CITATION = """@inproceedings{kim2025videocomp,
  title = {VideoComp: Advancing Fine-Grained Compositional and Temporal Alignment in Video-Text Models},
  author = {Kim, Dahun and Piergiovanni, AJ and Mallya, Ganesh and Angelova, Anelia},
  booktitle = {CVPR},
  year = {2025},
  eprint = {2504.03970},
  archivePrefix = {arXiv},
  url = {https://arxiv.org/abs/2504.03970}
}"""
DESCRIPTIONS = {
    "mini": "Rendered athletes, not real video: stretches of 2 to 5 actions of drawn videos, described by the "
    "label grammar and disrupted by the rule-based generator. For trying code, not for reporting results.",
    "mini-clips": "The single actions of the rendered athletes with their captions: short clips to pre-train on.",
    "mini-videos": "The long videos of the rendered athletes, one row each.",
    "release": "VideoComp as its authors publish it.",
    "source": "VideoComp generated from {source}'s annotations.",
}
SOURCE_NAMES: dict[SourceName, str] = {"activitynet": "ActivityNet-Captions", "youcook2": "YouCook2"}
GENERATION = ("seed", "max_iou")
"""The parameters that only rows generated here have."""


@dataclass
class CompConfig(datasets.BuilderConfig):  # type: ignore[misc]  # datasets has no types
    """The options with which a dataset of VideoComp is loaded.

    Attributes:
        data_dir: For `release` the folder of the published JSON files, for `source` that of the upstream annotations or
            of what `recipes/build.py comp` made, for `mini` a folder that `prepare_miniature` made.
        video_dir: The folder of videos, to fill `video`; the miniature knows its own.
        time_unit: The unit of times in the release; "auto" takes microseconds where seconds would make days.
        max_iou: Of two events with a larger temporal IoU the longer is kept (`source` only); None: 0.5, and of YouCook2
            all, which the paper does not filter.
        seed: Decides orders, replacements and intervals.
    """

    video_dir: str | None = None
    time_unit: TimeUnit = "auto"
    max_iou: float | None = None
    seed: int = 0


class CompBuilder(RegisteredBuilder):
    """Videos with a paragraph that fits and one that does not; see `CompConfig` for the options."""

    VERSION = datasets.Version("1.0.0")
    BUILDER_CONFIG_CLASS = CompConfig
    BUILDER_CONFIGS = [  # noqa: RUF012 as `datasets` declares it
        CompConfig(name=name, version="1.0.0", description=text) for name, text in DESCRIPTIONS.items()
    ]
    DEFAULT_CONFIG_NAME = "mini"

    @property
    def _annotated(self) -> SourceName:
        """Which annotations the dataset is made of."""
        return "youcook2" if self.dataset_name == "youcook2_comp" else "activitynet"

    def _info(self) -> datasets.DatasetInfo:
        others = {"mini-clips": datasets.Features.from_arrow_schema(ACTION_SCHEMA), "mini-videos": VIDEO_FEATURES}
        return datasets.DatasetInfo(
            description=(self.config.description or "").format(source=SOURCE_NAMES[self._annotated]),
            features=others.get(self.config.name, ROW_FEATURES).copy(),
            homepage=HOMEPAGE,
            citation=CITATION,
        )

    def _split_generators(self, dl_manager: datasets.DownloadManager) -> list[datasets.SplitGenerator]:
        if self.config.name == "mini-videos":
            return self._generators(self._miniature_videos())
        read: dict[str, Callable[[], Mapping[str, Iterable[Row]]]] = {
            "mini": self._miniature,
            "mini-clips": self._miniature_clips,
            "release": partial(self._release, dl_manager),
            "source": self._source,
        }
        schema = ACTION_SCHEMA if self.config.name == "mini-clips" else ROW_SCHEMA
        splits = read[self.config.name]().items()
        return self._generators(
            {split: shards_of(pa.Table.from_pylist(list(rows), schema=schema)) for split, rows in splits}
        )

    def _miniature_videos(self) -> Mapping[Any, Tables]:
        self._refuse(("video_dir", "max_iou", "time_unit", "seed"), "the videos of the miniature do not depend on it")
        return miniature_videos(self._miniature_dir())

    def _miniature_clips(self) -> Mapping[str, Iterable[Row]]:
        from hf_datasets.comp.miniature import read_clips  # imports the renderer

        self._refuse(("video_dir", "max_iou", "time_unit", "seed"), "the clips of the miniature do not depend on it")
        return read_clips(self._miniature_dir(), self._annotated)

    def _miniature(self) -> Mapping[str, Iterable[Row]]:
        from hf_datasets.comp.miniature import LabelActionTask, read_stretches  # imports the renderer

        self._refuse(("video_dir", "max_iou", "time_unit"), "the miniature's events are known exactly")
        root = self._miniature_dir()
        stretches = read_stretches(root, self._annotated, self.config.seed)
        return {
            split: self._miniature_rows(split, videos, root, LabelActionTask()) for split, videos in stretches.items()
        }

    def _miniature_rows(self, split: str, stretches: list[CaptionedVideo], root: Path, actions: Any) -> Iterator[Row]:
        for row in self._constructed(split, stretches, actions):
            video_id = row["video_id"].partition(":")[0]  # a stretch is a part of one file
            yield row | {"video_id": video_id, "video": str(root / "videos" / f"{video_id}.mp4")}

    def _release(self, dl_manager: datasets.DownloadManager) -> Mapping[str, Iterable[Row]]:
        self._refuse(GENERATION, "the published rows are as they are")
        data_dir = self._data_dir()
        files = self._download(dl_manager) if data_dir is None else find_pair_files(data_dir, self._annotated)
        prefix, unit = ID_PREFIXES[self._annotated], self.config.time_unit
        return {
            split: self._located(read_released_pairs(Path(path), prefix=prefix, time_unit=unit))
            for split, path in files.items()
        }

    def _download(self, dl_manager: datasets.DownloadManager) -> dict[str, str]:
        addresses = {split: address(self._annotated, split) for split in ("train", "validation")}
        try:
            files: dict[str, str] = dl_manager.download(addresses)
        except (OSError, ValueError) as error:
            raise FileNotFoundError(
                f"the annotations of VideoComp could not be fetched ({type(error).__name__}). Fetch "
                f"{' and '.join(addresses.values())} where there is a network, and pass data_dir="
            ) from None
        return files

    def _source(self) -> Mapping[str, Iterable[Row]]:
        self._refuse(("time_unit",), "upstream annotations are in seconds")
        data_dir = self._data_dir()
        if data_dir is None:
            raise ValueError(
                "pass data_dir: the folder of the upstream annotations (train*.json, val*.json), or one that "
                "`subtle build comp` made"
            )
        published = published_tables(data_dir / "source", PAIR_SCHEMA)
        if published:
            self._refuse(GENERATION, f"{data_dir} holds rows that were generated before")
            return {
                split: self._located(row for table in tables() for row in table.to_pylist())
                for split, tables in published.items()
            }
        files = caption_files(data_dir)
        return {split: self._source_rows(split, path) for split, path in files.items()}

    def _source_rows(self, split: str, path: Path) -> Iterator[Row]:
        videos: list[CaptionedVideo] = []
        max_iou = MAX_IOU[self._annotated] if self.config.max_iou is None else self.config.max_iou
        for video in self._kept(read_captioned_videos(path, self._annotated, split)):
            chosen, events = select_video(video, max_iou=max_iou)
            list(self._kept(events))
            videos += self._kept([chosen])
        actions = offline_actions(videos, self.config.seed)
        yield from self._located(self._constructed(split, videos, actions))

    def _constructed(self, split: str, videos: list[CaptionedVideo], actions: Any) -> Iterator[Row]:
        # The miniature has one combination, as when results on it were published.
        multiple = () if split != "train" else MULTIPLE[:1] if self.config.name == "mini" else MULTIPLE
        construction = PairConstruction(videos, self._ask, actions=actions, seed=self.config.seed, multiple=multiple)
        yield from self._kept(construction.rows())

    def _ask(self, _step: str, task: Any, rows: list[Paragraph]) -> dict[str, WrittenParagraph]:
        """An `AskForParagraphs` of `construction`, which the rule-based generator answers."""
        return {written.key: written for written in self._kept(generate(task, rows, RuleBasedGenerator()))}

    def _kept(self, records: Iterable[Any]) -> Iterator[Any]:
        # Collects rejections, and yields the other records.
        for record in records:
            if isinstance(record, Rejection):
                self.rejections.append(record)
            else:
                yield record

    def _located(self, rows: Iterable[Row | Rejection]) -> Iterator[Row]:
        # With the path of the video, null where it is not there or no folder is given.
        kept = list(self._kept(rows))
        paths: dict[str, str] = {}
        if self.config.video_dir is not None:
            store = VideoStore(self.config.video_dir)
            coverage = store.coverage(row["video_id"] for row in kept)
            paths = {video_id: str(store.path(video_id)) for video_id in coverage.found}
            total = len(paths) + len(coverage.missing) + len(coverage.ambiguous)
            self.info.description += f" {len(paths)} of {total} videos are in video_dir."
        for row in kept:
            yield row | {"video": paths.get(row["video_id"])}
