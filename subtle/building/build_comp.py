"""Build ActivityNet-Comp or YouCook2-Comp: true and disrupted paragraphs about videos."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.table import Table

from hf_datasets import comp
from hf_datasets.class_labels import with_labels
from hf_datasets.comp.annotations import Source, annotation_files, offline_actions, read_annotations
from hf_datasets.comp.construction import MULTIPLE, Construction, select_video
from hf_datasets.comp.pairs import PAIR_FEATURES, PAIR_SCHEMA
from hf_datasets.comp.paragraphs import MAX_IOU
from hf_datasets.comp.tasks import Paragraph, WrittenParagraph
from hf_datasets.records import CaptionedVideo
from subtle.building.options import BuildCompConfig
from subtle.run.build import Build
from subtle.run.screen import Screen

CARD = Path(comp.__file__).with_name("README.md")
KINDS = ("temporal_reorder", "action_replace", "segment_mismatch")
TABLE_1 = {
    ("activitynet", "train"): (5995, 5583, 4502),
    ("activitynet", "validation"): (280, 221, 334),
    ("youcook2", "train"): (1174, 1100, 1082),
    ("youcook2", "validation"): (409, 361, 397),
}
"""The paper's pairs of each of `KINDS`; its validation splits are random samples of what was made."""


def source_of(config: BuildCompConfig) -> Source:
    """Which dataset the annotations are of."""
    if config.dataset != "auto":
        return config.dataset
    return "youcook2" if "youcook2" in Path(config.source).name.lower() else "activitynet"


def select(build: Build, split: str, videos: Iterable[CaptionedVideo], max_iou: float) -> list[CaptionedVideo]:
    """The videos with at least two events that follow one another."""
    selected = [select_video(video, max_iou=max_iou) for video in videos]
    list(build.passed(f"{split}: events", [event for _, events in selected for event in events]))
    return list(build.passed(f"{split}: videos of several events", [video for video, _ in selected]))


def pairs(build: Build, split: str, videos: list[CaptionedVideo]) -> list[dict[str, Any]]:
    """All rows of a split; in the training split with several disruptions at once as well."""

    def ask(step: str, task: Any, rows: list[Paragraph]) -> dict[str, WrittenParagraph]:
        answered = build.ask(task, rows, name=f"{split}: {step}")
        return {row.key: written for row, written in answered}

    seed = build.config.seed
    actions = offline_actions(videos, seed)
    construction = Construction(videos, ask, actions=actions, seed=seed, multiple=MULTIPLE if split == "train" else ())
    return list(build.passed(f"{split}: pairs", list(construction.rows())))


def counts_table(source: Source, counts: Mapping[str, Counter[str]]) -> Table:
    """The pairs of each split per disruption, beside Table 1 of the paper."""
    table = Table(title=f"{source}_comp: pairs per disruption", title_justify="left")
    for column in ("split", "", *KINDS, "total", "multi"):
        table.add_column(column, justify="right" if column in {*KINDS, "total", "multi"} else "left")
    for split, found in counts.items():
        built = [found[kind] for kind in KINDS]
        table.add_row(split, "built", *(f"{count:,}" for count in (*built, sum(built), found["multi"])))
        if published := TABLE_1.get((source, split)):
            table.add_row("", "Table 1", *(f"{count:,}" for count in (*published, sum(published))))
    return table


def main(config: BuildCompConfig) -> int:
    if not config.source:
        raise ValueError("name the folder of the annotations with --source")
    build = Build(config)
    source = source_of(config)
    max_iou = MAX_IOU[source] if config.max_iou is None else config.max_iou
    tables, counts = {}, {}
    for split, path in annotation_files(Path(config.source)).items():
        annotated = read_annotations(path, source, split)
        videos = build.limited(build.passed(f"{split}: annotated videos", annotated))
        rows = pairs(build, split, select(build, split, videos, max_iou))
        if rows:
            tables[split] = [with_labels(pa.Table.from_pylist(rows, schema=PAIR_SCHEMA), PAIR_FEATURES)]
            counts[split] = Counter(row["disruption_type"] for row in rows)
    facts = {f"{split}, {kind}": count for split, found in counts.items() for kind, count in found.items()}
    status = build.write({"source": tables}, card=CARD, source=Path(config.source).name, max_iou=max_iou, **facts)
    if not config.dry_run:
        Screen(width=120).print(counts_table(source, counts))
    return status
