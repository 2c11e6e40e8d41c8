"""The upstream annotations of each split of VideoComp, and the verbs of their captions."""

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from hf_datasets.comp.tasks import ActionTask
from hf_datasets.comp.verbs import Verbs
from hf_datasets.records import CaptionedVideo, Rejection
from hf_datasets.sources.activitynet_captions import read_activitynet_captions
from hf_datasets.sources.youcook2 import Subset, read_youcook2

SourceName = Literal["activitynet", "youcook2"]
CAPTION_SPLITS = {"train": "train", "val": "validation", "val_1": "validation", "val_2": "validation_2"}
"""Stem of an annotation file, without `_modified` -> split."""
OFFICIAL_YOUCOOK2 = "youcookii_annotations*.json"
SUBSETS: dict[str, Subset] = {"train": "training", "validation": "validation"}
"""Split -> subset of YouCook2's official file, which holds both."""
VERB_SENTENCES = 3000
"""Captions from which the rule-based generator collects its verbs; more take time and add few."""


def caption_files(folder: Path) -> dict[str, Path]:
    """The annotation file of each split in a folder; YouCook2's official file serves two.

    Raises:
        FileNotFoundError: The folder holds none.
    """
    found = {}
    for path in sorted(folder.glob("*.json")):
        split = CAPTION_SPLITS.get(path.stem.removesuffix("_modified"))
        if split:
            found[split] = path
    official = sorted(folder.glob(OFFICIAL_YOUCOOK2))
    if official and not found:
        found = dict.fromkeys(SUBSETS, official[0])
    if not found:
        raise FileNotFoundError(
            f"{folder} holds no train.json, val.json, val_1.json or val_2.json of ActivityNet-Captions or YouCook2, "
            f"and no {OFFICIAL_YOUCOOK2} of YouCook2; give the folder of the annotations"
        )
    return found


def read_captioned_videos(path: Path, source: SourceName, split: str) -> Iterator[CaptionedVideo | Rejection]:
    """The videos of one split, in the order of the file, or rejections."""
    if source == "activitynet":
        return read_activitynet_captions(path)
    official = path.match(OFFICIAL_YOUCOOK2)
    return read_youcook2(path, subset=SUBSETS[split] if official else None)


def offline_actions(videos: Iterable[CaptionedVideo], seed: int = 0) -> ActionTask:
    """An action task whose rule-based generator takes verbs from a seeded sample of these videos' captions."""
    captions = [event.caption for video in videos for event in video.events]
    random.Random(seed).shuffle(captions)
    return ActionTask(Verbs(captions[:VERB_SENTENCES]))
