"""Build ActivityNet-Comp or YouCook2-Comp: true and disrupted paragraphs about videos."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from hf_datasets import comp
from hf_datasets.class_labels import with_labels
from hf_datasets.comp.annotations import SourceName, caption_files, offline_actions, read_captioned_videos
from hf_datasets.comp.construction import MULTIPLE, PairConstruction, select_video
from hf_datasets.comp.pairs import PAIR_FEATURES, PAIR_SCHEMA
from hf_datasets.comp.paragraphs import MAX_IOU
from hf_datasets.comp.statistics import PAPER_COUNTS, disruption_counts
from hf_datasets.comp.tasks import Paragraph, WrittenParagraph
from hf_datasets.paper_counts import beside_paper
from hf_datasets.records import CaptionedVideo
from subtle.building.options import BuildCompConfig
from subtle.run.build import Build

COMP_CARD = Path(comp.__file__).with_name("README.md")


def annotation_source(config: BuildCompConfig) -> SourceName:
    """Which dataset the annotations are of."""
    if config.dataset != "auto":
        return config.dataset
    return "youcook2" if "youcook2" in Path(config.source).name.lower() else "activitynet"


def select(build: Build, split: str, videos: Iterable[CaptionedVideo], max_iou: float) -> list[CaptionedVideo]:
    """The videos with at least two events that follow one another."""
    selected = [select_video(video, max_iou=max_iou) for video in videos]
    list(build.passed(f"{split}: events", [event for _, events in selected for event in events]))
    return list(build.passed(f"{split}: videos of several events", [video for video, _ in selected]))


def pairs(build: Build, config: BuildCompConfig, split: str, videos: list[CaptionedVideo]) -> list[dict[str, Any]]:
    """All rows of a split; in the training split with several disruptions at once as well."""

    def ask(step: str, task: Any, rows: list[Paragraph]) -> dict[str, WrittenParagraph]:
        answered = build.ask(task, rows, name=f"{split}: {step}")
        return {row.key: written for row, written in answered}

    options: Any = {"seed": config.seed, "multiple": MULTIPLE if split == "train" else (), "prompts": config.prompts}
    construction = PairConstruction(videos, ask, actions=offline_actions(videos, config.seed), **options)
    return list(build.passed(f"{split}: pairs", list(construction.rows())))


def main(config: BuildCompConfig, build: Build | None = None) -> int:
    if not config.source:
        raise ValueError("name the folder of the annotations with --source")
    build = build or Build(config)
    source = annotation_source(config)
    max_iou = MAX_IOU[source]
    tables, counts = {}, {}
    for split, path in caption_files(Path(config.source)).items():
        annotated = read_captioned_videos(path, source, split)
        videos = build.limited(build.passed(f"{split}: annotated videos", annotated))
        rows = pairs(build, config, split, select(build, split, videos, max_iou))
        if rows:
            tables[split] = [with_labels(pa.Table.from_pylist(rows, schema=PAIR_SCHEMA), PAIR_FEATURES)]
            counts[split] = [row["disruption_type"] for row in rows]
    facts = {f"{split}, {kind}": count for split, found in counts.items() for kind, count in Counter(found).items()}
    return build.write(
        {"source": tables},
        card=COMP_CARD,
        compare=lambda _: beside_paper(PAPER_COUNTS, disruption_counts(f"{source}_comp", counts)),
        source=Path(config.source).name,
        max_iou=max_iou,
        **facts,
    )
