"""Build ActivityNet-Comp or YouCook2-Comp: captioned events -> paragraphs -> disruptions -> contrast pairs.

    python recipes/build_comp.py --source annotations/activitynet_captions
    python recipes/build_comp.py --source annotations/youcook2 --model gpt-4o --dry-run
    python recipes/build_comp.py --source annotations/youcook2 --model gpt-4o --max-usd 20

`--source` is a folder with `train*.json` and `val*.json` of ActivityNet-Captions or YouCook2. Without `--model` the
offline writer writes, so no key is needed. A killed run started again goes on where it was and pays nothing twice.
"""

import json
import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from build import Build, BuildConfig, run
from config import parse_config
from transformers.hf_argparser import HfArg

from hf_datasets.comp.disruptions import Interval, choose_order, choose_segments, crop, generator_for
from hf_datasets.comp.pairs import PAIR_SCHEMA, make_pair
from hf_datasets.comp.paragraphs import MAX_IOU, as_sentence, select_events, split_sentences
from hf_datasets.comp.tasks import ActionTask, Paragraph, ReorderingTask, StructuringTask, WrittenParagraph
from hf_datasets.comp.verbs import Verbs
from hf_datasets.records import CaptionedEvent, CaptionedVideo, DisruptionType, Rejection
from hf_datasets.sources.activitynet_captions import read_activitynet_captions
from hf_datasets.sources.youcook2 import read_youcook2

VERB_SENTENCES = 3000  # what the offline writer's verbs are gathered from
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


def read(config: BuildCompConfig, path: Path) -> Iterator[CaptionedVideo | Rejection]:
    youcook2 = config.dataset == "youcook2" or (
        config.dataset == "auto" and "youcook2" in path.parent.name.lower()
    )
    return read_youcook2(path) if youcook2 else read_activitynet_captions(path)


def files(folder: Path) -> dict[str, Path]:
    """Split -> annotation file."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        stem = path.stem.removesuffix("_modified")
        split = {"train": "train", "val": "validation", "val_1": "validation", "val_2": "validation_2"}.get(
            stem
        )
        if split:
            found[split] = path
    if not found:
        raise FileNotFoundError(
            f"{folder} holds no train.json, val.json, val_1.json or val_2.json; see --source"
        )
    return found


def select(
    build: Build, split: str, videos: Iterable[CaptionedVideo], max_iou: float
) -> list[CaptionedVideo]:
    """The videos with the events that follow one another; at least two."""
    kept: list[CaptionedVideo | Rejection] = []
    dropped: list[CaptionedEvent | Rejection] = []
    for video in videos:
        events, rejections = select_events(video, max_iou=max_iou)
        dropped += [*events, *rejections]
        single = Rejection(
            "fewer than two events", json.dumps([asdict(event) for event in events]), video.video_id
        )
        kept.append(
            CaptionedVideo(video.video_id, video.duration_seconds, events) if len(events) > 1 else single
        )
    list(build.passed(f"{split}: events", dropped))
    return list(build.passed(f"{split}: videos of several events", kept))


class Split:
    """The pairs of one split, disruption by disruption."""

    def __init__(self, build: Build, name: str, videos: list[CaptionedVideo]) -> None:
        self.build, self.name, self.seed = build, name, build.config.seed
        self.videos = {video.video_id: video for video in videos}
        self.verbs: Verbs | None = None
        self.rows: list[dict[str, Any]] = []

    def _paragraph(self, video: CaptionedVideo, kind: str, order: Iterable[int] | None = None) -> Paragraph:
        order = range(len(video.events)) if order is None else order
        sentences = tuple(as_sentence(video.events[index].caption) for index in order)
        return Paragraph(f"{video.video_id}/{kind}", sentences, self.seed)

    def _ask(self, step: str, task: Any, rows: list[Paragraph]) -> dict[str, WrittenParagraph]:
        answered = self.build.ask(task, rows, name=f"{self.name}: {step}")
        return {row.key: written for row, written in answered}

    def pairs(self) -> list[dict[str, Any]]:
        """All rows of the split; in the training split with several disruptions at once as well."""
        videos = list(self.videos.values())
        whole = [self._paragraph(video, "whole") for video in videos]
        segments = {video.video_id: self._segments(video) for video in videos}
        parts = [
            self._paragraph(video, name, range(*interval))
            for video in videos
            for name, interval in segments[video.video_id]._asdict().items()
        ]
        structured = self._ask("structuring", StructuringTask(), whole + parts)
        videos = [video for video in videos if f"{video.video_id}/whole" in structured]
        self._add_reordered(videos, structured)
        replaced = self._add_replaced(videos, structured)
        self._add_mismatched(videos, structured, segments)
        if self.name == "train":
            self._add_multiple(videos, structured, replaced)
        return list(self.build.passed(f"{self.name}: pairs", self.rows))

    def _add(
        self,
        kind: DisruptionType,
        video: CaptionedVideo,
        texts: tuple[str, str],
        decision: dict[str, Any],
        shown: Interval | None = None,
    ) -> None:
        every = (0, len(video.events))
        pair = make_pair(
            video.video_id,
            kind,
            texts,
            original=crop(video.events, every),
            query=crop(video.events, shown or every),
            seed=self.seed,
        )
        row = pair if isinstance(pair, Rejection) else asdict(pair) | {"decision": json.dumps(decision)}
        self.rows.append(row)

    def _order(self, video: CaptionedVideo, kind: str) -> tuple[int, ...]:
        return choose_order(len(video.events), generator_for(f"{video.video_id}/{kind}", self.seed))

    def _segments(self, video: CaptionedVideo) -> Any:
        return choose_segments(len(video.events), generator_for(f"{video.video_id}/segments", self.seed))

    def _add_reordered(self, videos: list[CaptionedVideo], structured: dict[str, WrittenParagraph]) -> None:
        orders = {video.video_id: self._order(video, "reorder") for video in videos}
        rows = [self._paragraph(video, "reorder", orders[video.video_id]) for video in videos]
        written = self._ask("reordering", ReorderingTask(), rows)
        for video in videos:
            negative = written.get(f"{video.video_id}/reorder")
            if negative:
                positive = structured[f"{video.video_id}/whole"].text
                decision = {"order": orders[video.video_id]}
                self._add("temporal_reorder", video, (positive, negative.text), decision)

    def _add_replaced(
        self, videos: list[CaptionedVideo], structured: dict[str, WrittenParagraph]
    ) -> dict[str, WrittenParagraph]:
        rows = [
            self._text_of(structured[f"{video.video_id}/whole"].text, video, "action") for video in videos
        ]
        written = self._ask("action replacement", ActionTask(self._gather_verbs()), rows)
        for video in videos:
            negative = written.get(f"{video.video_id}/action")
            if negative:
                positive = structured[f"{video.video_id}/whole"].text
                decision = {"replaced": changed_words(positive, negative.text)}
                self._add("action_replace", video, (positive, negative.text), decision)
        return written

    def _add_mismatched(
        self, videos: list[CaptionedVideo], structured: dict[str, WrittenParagraph], segments: dict[str, Any]
    ) -> None:
        for video in videos:
            shown, told = (structured.get(f"{video.video_id}/{name}") for name in ("shown", "told"))
            if shown and told:
                chosen = segments[video.video_id]
                decision = chosen._asdict()
                self._add("segment_mismatch", video, (shown.text, told.text), decision, shown=chosen.shown)

    def _add_multiple(
        self,
        videos: list[CaptionedVideo],
        structured: dict[str, WrittenParagraph],
        replaced: dict[str, WrittenParagraph],
    ) -> None:
        """Reorder the paragraphs whose action was replaced."""
        rows, orders = [], {}
        for video in videos:
            action = replaced.get(f"{video.video_id}/action")
            sentences = split_sentences(action.text) if action else []
            if len(sentences) > 1:
                order = choose_order(len(sentences), generator_for(f"{video.video_id}/multi", self.seed))
                orders[video.video_id] = order
                key = f"{video.video_id}/multi"
                rows.append(Paragraph(key, tuple(sentences[index] for index in order), self.seed))
        written = self._ask("reordering of replaced actions", ReorderingTask(), rows)
        for video in videos:
            negative = written.get(f"{video.video_id}/multi")
            if negative:
                positive = structured[f"{video.video_id}/whole"].text
                swapped = changed_words(positive, replaced[f"{video.video_id}/action"].text)
                decision = {"order": orders[video.video_id], "replaced": swapped}
                self._add("multi", video, (positive, negative.text), decision)

    def _text_of(self, text: str, video: CaptionedVideo, kind: str) -> Paragraph:
        return Paragraph(f"{video.video_id}/{kind}", tuple(split_sentences(text)), self.seed)

    def _gather_verbs(self) -> Verbs:
        """The data set's own verbs, from a seeded sample of its captions."""
        captions = [event.caption for video in self.videos.values() for event in video.events]
        random.Random(self.seed).shuffle(captions)
        return Verbs(captions[:VERB_SENTENCES])


def changed_words(positive: str, negative: str) -> list[list[str]]:
    """The words that were taken out, and those that were put in."""
    before, after = positive.split(), negative.split()
    return [sorted(set(before) - set(after)), sorted(set(after) - set(before))]


def main(config: BuildCompConfig) -> int:
    if not config.source:
        raise ValueError("name the folder of the annotations with --source")
    build = Build(config)
    tables = {}
    for split, path in files(Path(config.source)).items():
        videos = build.limited(build.passed(f"{split}: annotated videos", read(config, path)))
        rows = Split(build, split, select(build, split, videos, config.max_iou)).pairs()
        if rows:
            tables[split] = [pa.Table.from_pylist(rows, schema=PAIR_SCHEMA)]
    return build.write({"source": tables}, card=CARD, source=Path(config.source).name, max_iou=config.max_iou)


if __name__ == "__main__":
    sys.exit(run(main, lambda: parse_config(BuildCompConfig, __doc__)))
