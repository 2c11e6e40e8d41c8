"""Build fine-grained moments: coarse captions -> keyframes, questions, answers -> enriched captions.

    python recipes/build_fig.py --source annotations/charades_fig
    python recipes/build_fig.py --source annotations/charades_fig --video_dir videos --model gpt-4o --dry_run
    python recipes/build_fig.py --source annotations/charades_fig --video_dir videos --model gpt-4o --max_usd 20

`--source` is a folder with the coarse captions of one data set: JSON lines as VERIFIED publishes them
(`*_train.jsonl`, `*_val.jsonl`, `*_test.jsonl`), Charades-STA (`charades_sta_*.txt` with `Charades_v1_*.csv`), DiDeMo
(`*_data.json`) or ActivityNet-Captions (`train.json`, `val_1.json`, `val_2.json`). Without
`--model` the offline writer enriches a caption by what other captions of the same video say; it needs no video and no
key. A chat model looks at the frames, so it needs `--video_dir`. A killed run started again goes on where it was.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from harness.config import option, parse_config, run_recipe
from harness.shared_config import BuildConfig


@dataclass
class BuildFigConfig(BuildConfig):
    """What to build from, and how."""

    source: str = option("", "Folder with the coarse captions of one dataset; needed.")
    video_dir: str | None = option(None, "Folder of the videos, which a chat model has to see.")
    num_frames: int = option(8, "Frames of each moment that questions are answered from.")
    rewritings: bool = option(True, "Also write the noise evaluator's training captions.")
    output_dir: str = "outputs/build_fig"


if __name__ == "__main__":  # before the imports below, which take seconds
    CONFIG = parse_config(BuildFigConfig, __doc__)

import numpy as np
import pyarrow as pa

from harness.build import Build, run
from hf_datasets import fig
from hf_datasets.comp.disruptions import generator_for
from hf_datasets.fig.keyframes import keyframe_seconds
from hf_datasets.fig.lexicon import beside, named_things
from hf_datasets.fig.negatives import rewriting_tasks
from hf_datasets.fig.release import read_release
from hf_datasets.fig.tasks import (
    Answers,
    AnswersTask,
    AttributesTask,
    Candidates,
    DynamicRow,
    DynamicTask,
    Keyframe,
    QuestionsTask,
    StaticRow,
    StaticTask,
)
from hf_datasets.generation.images import image_part
from hf_datasets.records import CaptionedVideo, Moment, Rejection
from hf_datasets.sources.activitynet_captions import read_activitynet_captions
from hf_datasets.sources.charades_sta import read_charades_sta, read_durations
from hf_datasets.sources.didemo import read_didemo
from hf_datasets.video import VideoStore, read_frames

CARD = Path(fig.__file__).with_name("README.md")
MOMENT_SCHEMA = pa.schema(
    {
        "desc_id": pa.int64(),
        "video_id": pa.string(),
        "duration_seconds": pa.float64(),
        "start_seconds": pa.float64(),
        "end_seconds": pa.float64(),
        "coarse_caption": pa.string(),
        "fine_caption": pa.string(),
        "fine_caption_score": pa.float64(),
        "kind": pa.string(),
        "candidates": pa.list_(pa.string()),
        "candidate_kinds": pa.list_(pa.string()),
    }
)
REWRITING_SCHEMA = pa.schema({"desc_id": pa.int64(), "kind": pa.string(), "captions": pa.list_(pa.string())})


class Split:
    """The stages of one split."""

    def __init__(self, build: Build, name: str, moments: list[Moment]) -> None:
        self.build, self.config, self.name = build, build.config, name
        self.moments = {moment.desc_id: moment for moment in moments}
        by_video: dict[str, list[Moment]] = defaultdict(list)
        for moment in moments:
            by_video[moment.video_id].append(moment)
        self.by_video = by_video
        self.store = VideoStore(build.config.video_dir) if build.config.video_dir else None

    def rows(self) -> list[dict[str, Any]]:
        """One row per moment that found a fine caption."""
        found: dict[int, dict[str, Candidates]] = defaultdict(dict)
        for kind, candidates in (("static", self._static()), ("dynamic", self._dynamic())):
            for one in candidates:
                found[one.desc_id][kind] = one
        chosen = (self._choose(moment, found[desc_id]) for desc_id, moment in self.moments.items())
        return list(self.build.passed(f"{self.name}: fine captions", chosen))

    def rewritings(self) -> list[dict[str, Any]]:
        """Positive and negative rewritings of every caption."""
        return [
            {"desc_id": candidates.desc_id, "kind": kind, "captions": list(candidates.captions)}
            for kind, task in rewriting_tasks().items()
            for _, candidates in self._ask(kind.replace("_", " "), task, list(self.moments.values()))
        ]

    def _ask(self, step: str, task: Any, rows: Any) -> list[tuple[Any, Any]]:
        return self.build.ask(task, rows, name=f"{self.name}: {step}")

    def _sees(self) -> bool:
        """Whether the writer looks at frames; a dry run without videos counts a grey picture for each."""
        return self.config.model is not None

    def _frame_at(self, moment: Moment, seconds: float) -> dict[str, Any]:
        if self.store is None:
            return image_part(np.full((3, 360, 640), 128, np.uint8))
        path = self.store.path(moment.video_id)
        return image_part(read_frames(path, 1, seconds, seconds + 0.1).frames[0])

    def _frames_of(self, moment: Moment) -> tuple[dict[str, Any], ...]:
        if self.store is None:
            return (self._frame_at(moment, 0.0),) * self.config.num_frames
        path = self.store.path(moment.video_id)
        frames = read_frames(path, self.config.num_frames, moment.start_seconds, moment.end_seconds).frames
        return tuple(image_part(frame) for frame in frames)

    def _others(self, moment: Moment) -> list[Moment]:
        return [other for other in self.by_video[moment.video_id] if other.desc_id != moment.desc_id]

    def _static(self) -> list[Candidates]:
        attributes: dict[int, list[Any]] = defaultdict(list)
        if self._sees():
            keyframes = self.build.passed(f"{self.name}: keyframes", self._keyframes())
            for keyframe, found in self._ask("keyframe attributes", AttributesTask(self._frame_at), keyframes):
                attributes[keyframe.moment.desc_id].append(found)
        rows = [
            StaticRow(moment, tuple(attributes[desc_id]), self._named(moment))
            for desc_id, moment in self.moments.items()
            if attributes[desc_id] or not self._sees()
        ]
        return [candidates for _, candidates in self._ask("static captions", StaticTask(), rows)]

    def _keyframes(self) -> Iterator[Keyframe | Rejection]:
        for moment in self.moments.values():
            yield from self._keyframes_of(moment)

    def _keyframes_of(self, moment: Moment) -> list[Keyframe | Rejection]:
        start, end = moment.start_seconds, moment.end_seconds
        try:
            path = self.store.path(moment.video_id) if self.store else None
            times = keyframe_seconds(path, start, end) if path else [(start + end) / 2]
        except (OSError, ValueError, RuntimeError) as error:
            return [Rejection(f"no keyframes: {error}", repr(moment), moment.key)]
        return [Keyframe(moment, seconds) for seconds in times]

    def _named(self, moment: Moment) -> tuple[str, ...]:
        own = set(moment.coarse_caption.lower().rstrip(".").split())
        things = named_things(other.coarse_caption for other in self._others(moment))
        return tuple(thing for thing in things if thing.split()[-1] not in own)

    def _dynamic(self) -> list[Candidates]:
        rows = [DynamicRow(moment, beside=beside(moment, self._others(moment))) for moment in self.moments.values()]
        asked = [replace(row, questions=found) for row, found in self._ask("questions", QuestionsTask(), rows)]
        if self._sees():
            answered: list[tuple[DynamicRow, Answers]] = self._ask("answers", AnswersTask(self._frames_of), asked)
            asked = [replace(row, answers=said.answers, description=said.description) for row, said in answered]
        return [candidates for _, candidates in self._ask("dynamic captions", DynamicTask(), asked)]

    def _choose(self, moment: Moment, found: dict[str, Candidates]) -> dict[str, Any] | Rejection:
        """The first candidate of a seeded kind; where a noise evaluator judges, it chooses among `candidates`."""
        if not found:
            return Rejection("no candidate", moment.coarse_caption, moment.key)
        kind = generator_for(str(moment.desc_id), self.config.seed).choice(sorted(found))
        captions = found[kind].captions
        row = asdict(moment) | {"fine_caption": captions[0], "fine_caption_score": None, "kind": kind}
        return row | {
            "candidates": [caption for one in found.values() for caption in one.captions],
            "candidate_kinds": [kind for kind, one in found.items() for _ in one.captions],
        }


def files(folder: Path) -> dict[str, Path]:
    """Split -> annotation file."""
    names = {"train": "train", "val": "validation", "val_1": "validation", "val_2": "test", "test": "test"}
    found = {}
    for path in sorted(path for path in folder.glob("*") if path.suffix in {".json", ".jsonl", ".txt"}):
        stem = path.stem.removesuffix("_data").removesuffix("_modified")
        found |= {split: path for name, split in names.items() if stem == name or stem.endswith(f"_{name}")}
    if not found:
        raise FileNotFoundError(f"{folder} holds no annotation file of a known name; see --help on --source")
    return found


def read(path: Path) -> Iterator[Moment | Rejection]:
    """The moments of one annotation file, of whichever data set."""
    if path.suffix == ".jsonl":
        return read_release(path)
    if path.suffix == ".txt":
        tables = [read_durations(table) for table in sorted(path.parent.glob("Charades_v1_*.csv"))]
        return read_charades_sta(path, {video: seconds for table in tables for video, seconds in table.items()})
    return read_didemo(path) if path.stem.endswith("_data") else moments_of(read_activitynet_captions(path))


def moments_of(videos: Iterator[CaptionedVideo | Rejection]) -> Iterator[Moment | Rejection]:
    """Captioned events as moments, numbered in order."""
    number = count()
    for video in videos:
        if isinstance(video, Rejection):
            yield video
            continue
        for event in video.events:
            span = (event.start_seconds, event.end_seconds)
            yield Moment(next(number), video.video_id, video.duration_seconds, *span, event.caption, "", None)


def main(config: BuildFigConfig) -> int:
    if not config.source:
        raise ValueError("name the folder of the annotations with --source")
    if config.model and not config.video_dir and not config.dry_run:
        raise ValueError("a chat model has to see the moments: name the videos' folder with --video_dir")
    build = Build(config)
    moments, rewritings = {}, {}
    for name, path in files(Path(config.source)).items():
        split = Split(build, name, list(build.limited(build.passed(f"{name}: moments", read(path)))))
        rows = split.rows()
        if rows:
            moments[name] = [pa.Table.from_pylist(rows, schema=MOMENT_SCHEMA)]
        rewritten = split.rewritings() if config.rewritings else []
        if rewritten:
            rewritings[name] = [pa.Table.from_pylist(rewritten, schema=REWRITING_SCHEMA)]
    configurations = {"source": moments} | ({"rewritings": rewritings} if rewritings else {})
    return build.write(configurations, card=CARD, source=Path(config.source).name)


if __name__ == "__main__":
    sys.exit(run_recipe(partial(run, main), CONFIG))
