"""What a folder holds of the annotations of a paper, read as `load_dataset` and `build` read them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa

from hf_datasets.comp import annotations as comp_annotations
from hf_datasets.comp import release as comp_release
from hf_datasets.comp.statistics import disruption_counts
from hf_datasets.fig import release as fig_release
from hf_datasets.fig.moments import describe_ends, moments_of_splits
from hf_datasets.fig.statistics import counts_of as fig_counts
from hf_datasets.records import Rejection
from hf_datasets.sources.finegym import CLIP_ID, read_subaction_spans
from hf_datasets.tfcovr import release as tfcovr_release
from hf_datasets.tfcovr.annotations import ANNOTATION, COARSE_DIVES, FINEDIVING_ANNOTATION, find_one, source_clips
from hf_datasets.tfcovr.construction import release_collection
from hf_datasets.tfcovr.statistics import counts_of as tfcovr_counts
from hf_datasets.video import VideoError

Accepted = TypeVar("Accepted")
RELEASE = "TF-CoVR, release"


@dataclass
class Part:
    """One dataset, or one source of it.

    Attributes:
        name: As in the tables.
        files: That are there.
        folder: Of annotations from which `build` makes texts.
        missing: What is not there, and where to fetch it.
        problems: What cannot be read, or is of another version.
        notes: What else there is to say.
        refused: Reason -> rows that are left out for it.
        counts: Under the names of `PAPER_COUNTS`.
        items: Of each clip, pair, video or moment the ids that its video may have, the best first.
        seconds: Of all its videos together, where the annotations say.
    """

    name: str
    files: list[Path] = field(default_factory=list)
    folder: Path | None = None
    missing: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    counts: dict[str, dict[str, float]] = field(default_factory=dict)
    items: list[tuple[str, ...]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def record(self) -> dict[str, Any]:
        """As `results.json` holds it."""
        named = {name: getattr(self, name) for name in ("missing", "problems", "notes", "counts")}
        return named | {"files": list(map(str, self.files)), "refused": dict(self.refused)}

    def read(self, fill: Callable[["Part"], None]) -> "Part":
        """Itself, filled as far as the files can be read."""
        try:
            fill(self)
        except FileNotFoundError as error:
            self.missing.append(str(error))
        except (ValueError, OSError, VideoError) as error:
            self.problems.append(str(error))
        return self

    def accepted(self, records: Iterable[Accepted | Rejection]) -> Iterator[Accepted]:
        """Count the rejections.

        Yields:
            The other records.
        """
        for record in records:
            if isinstance(record, Rejection):
                self.refused[record.reason.partition(":")[0]] += 1
            else:
                yield record


def tfcovr(data_dir: Path) -> list[Part]:
    """The release of TF-CoVR, and the datasets that it is drawn from."""
    return [
        Part(RELEASE).read(partial(_tfcovr_release, data_dir)),
        Part("FineGym and FineDiving").read(partial(_tfcovr_source, data_dir)),
    ]


def _tfcovr_release(data_dir: Path, part: Part) -> None:
    files = tfcovr_release.find_triplet_files(data_dir)
    part.files = list(files.values())
    part.missing += [
        f"{prefixes[0]}*.csv or .parquet"
        for split, prefixes in tfcovr_release.FILE_PREFIXES.items()
        if split not in files
    ]
    found = release_collection(data_dir)
    list(part.accepted(found.rejections))
    rows: dict[str, Any] = {split: pl.from_arrow(pa.concat_tables(of())) for split, of in found.rows.items()}
    part.counts = tfcovr_counts(rows, found.clips)
    part.items = _items(found.clips)
    annotation = find_one(data_dir, ANNOTATION)
    known = set(read_subaction_spans(annotation)) if annotation else set()
    gymnastics = {ids[0] for ids in part.items if CLIP_ID.fullmatch(ids[0])}
    if unknown := gymnastics - known:
        part.notes.append(
            f"{len(unknown):,} of {len(gymnastics):,} gymnastics clips are not in {annotation or ANNOTATION}, such as "
            f"{min(unknown)}: they get the whole seconds of their id; put FineGym's v1.1 into {data_dir}"
        )


def _tfcovr_source(data_dir: Path, part: Part) -> None:
    for pattern in (ANNOTATION, "gym288_*element*.txt", "gym288_categories.txt", FINEDIVING_ANNOTATION, COARSE_DIVES):
        paths = sorted(data_dir.rglob(pattern))
        part.files += paths
        if not paths and pattern != COARSE_DIVES:
            part.missing.append(pattern)
    part.folder = data_dir
    clips, rejections, _ = source_clips(data_dir)
    list(part.accepted(rejections))
    is_gymnastics = pl.col("clip_id").str.contains(f"^{CLIP_ID.pattern}$")
    for name, own in (("finegym", clips.filter(is_gymnastics)), ("finediving", clips.filter(~is_gymnastics))):
        part.counts[name] = {"clips": len(own), "labels": own["label"].n_unique(), "videos": own["video_id"].n_unique()}
    part.items = _items(clips)


def _items(clips: pl.DataFrame) -> list[tuple[str, ...]]:
    rows = clips.unique("clip_id", maintain_order=True).select("clip_id", "video_id", "start_seconds").iter_rows()
    return [(clip_id,) if start is None else (clip_id, video_id) for clip_id, video_id, start in rows]


def comp(data_dir: Path) -> list[Part]:
    """The release of VideoComp, and the captioned events that it is made of."""
    parts = [
        Part(f"{source}_comp").read(partial(_comp_release, data_dir, source)) for source in comp_release.ID_PREFIXES
    ]
    sources = []
    for folder in (data_dir, *sorted(path for path in data_dir.iterdir() if path.is_dir())):
        try:
            files = comp_annotations.caption_files(folder)
        except FileNotFoundError:
            continue
        sources.append(Part(f"captions in {folder.name}").read(partial(_comp_captions, folder, files)))
    if not sources:
        sources = [
            Part("captions", missing=["train.json and val*.json of ActivityNet-Captions or YouCook2, for build"])
        ]
    return [*parts, *sources]


def _comp_release(data_dir: Path, source: str, part: Part) -> None:
    files = comp_release.find_pair_files(data_dir, source)
    part.files = list(files.values())
    part.missing += [comp_release.address(source, split) for split in comp_release.FILE_NAMES if split not in files]
    types: dict[str, list[str]] = {}
    for split, path in files.items():
        for row in part.accepted(comp_release.read_released_pairs(path, prefix=comp_release.ID_PREFIXES[source])):
            types.setdefault(split, []).append(row["disruption_type"])
            part.items.append((row["video_id"],))
    part.counts = disruption_counts(part.name, types)


def _comp_captions(folder: Path, files: dict[str, Path], part: Part) -> None:
    part.files, part.folder = sorted(set(files.values())), folder
    source: comp_annotations.SourceName = "youcook2" if "youcook2" in folder.name.lower() else "activitynet"
    for split, path in files.items():
        videos = list(part.accepted(comp_annotations.read_captioned_videos(path, source, split)))
        part.counts[f"{source}/{split}"] = {"videos": len(videos), "events": sum(len(video.events) for video in videos)}
        part.items += [(video.video_id,) for video in videos]
        part.seconds += sum(video.duration_seconds for video in videos)
        part.notes.append("{}: {videos:,} videos, {events:,} events".format(split, **part.counts[f"{source}/{split}"]))


def fig(data_dir: Path) -> list[Part]:
    """The three releases of VERIFIED; where one of them is there, the others are not missed."""
    parts = [Part(name).read(partial(_fig_release, data_dir)) for name in fig_release.FILES]
    return [part for part in parts if part.files or part.problems] or parts


def _fig_release(data_dir: Path, part: Part) -> None:
    files = fig_release.find_moment_files(data_dir, part.name)
    part.files = list(files.values())
    part.folder = part.files[0].parent
    part.missing += [name for split, name in fig_release.FILES[part.name].items() if split not in files]
    moments, rejections = moments_of_splits(files)
    list(part.accepted(rejections))
    part.counts = fig_counts(
        part.name, {str(split): rows for (split,), rows in moments.partition_by("split", as_dict=True).items()}
    )
    part.notes.append(describe_ends(moments))
    part.items = [(video_id, video_id.removeprefix("v_")) for video_id in moments["video_id"]]
    part.seconds = float(moments.unique("video_id")["duration_seconds"].sum())
