"""Build ActivityNet-Comp or YouCook2-Comp: captioned events -> paragraphs -> disruptions -> contrast pairs.

    python recipes/build_comp.py --source annotations/activitynet_captions
    python recipes/build_comp.py --source annotations/youcook2 --model gpt-4o --dry-run
    python recipes/build_comp.py --source annotations/youcook2 --model gpt-4o --max-usd 20

`--source` is a folder with `train*.json` and `val*.json` of ActivityNet-Captions or YouCook2. Without `--model` the
offline writer writes, so no key is needed. A killed run started again goes on where it was and pays nothing twice.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from build import Build, BuildConfig, run
from config import parse_config
from transformers.hf_argparser import HfArg

from hf_datasets.comp.annotations import Source, annotation_files, offline_actions, read_annotations
from hf_datasets.comp.construction import Construction, select_video
from hf_datasets.comp.pairs import PAIR_SCHEMA
from hf_datasets.comp.paragraphs import MAX_IOU
from hf_datasets.comp.tasks import Paragraph, WrittenParagraph
from hf_datasets.records import CaptionedVideo

CARD = Path(__file__).parents[1] / "hf_datasets" / "comp" / "README.md"


@dataclass
class BuildCompConfig(BuildConfig):
    """What to build from, and how."""

    source: str = HfArg(default="", help="a folder with train*.json and val*.json")
    dataset: Literal["auto", "activitynet", "youcook2"] = HfArg(
        default="auto", help="auto: by the folder's name"
    )
    max_iou: float = HfArg(
        default=MAX_IOU, help="of two events with a larger temporal IoU the longer is kept"
    )
    output_dir: str = "outputs/build_comp"


def source_of(config: BuildCompConfig) -> Source:
    """Which data set the annotations are of."""
    if config.dataset != "auto":
        return config.dataset
    return "youcook2" if "youcook2" in Path(config.source).name.lower() else "activitynet"


def select(
    build: Build, split: str, videos: Iterable[CaptionedVideo], max_iou: float
) -> list[CaptionedVideo]:
    """The videos with the events that follow one another; at least two."""
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
    construction = Construction(videos, ask, actions=actions, seed=seed, multiple=split == "train")
    return list(build.passed(f"{split}: pairs", list(construction.rows())))


def main(config: BuildCompConfig) -> int:
    if not config.source:
        raise ValueError("name the folder of the annotations with --source")
    build = Build(config)
    tables = {}
    for split, path in annotation_files(Path(config.source)).items():
        annotated = read_annotations(path, source_of(config), split)
        videos = build.limited(build.passed(f"{split}: annotated videos", annotated))
        rows = pairs(build, split, select(build, split, videos, config.max_iou))
        if rows:
            tables[split] = [pa.Table.from_pylist(rows, schema=PAIR_SCHEMA)]
    return build.write({"source": tables}, card=CARD, source=Path(config.source).name, max_iou=config.max_iou)


if __name__ == "__main__":
    sys.exit(run(main, lambda: parse_config(BuildCompConfig, __doc__)))
