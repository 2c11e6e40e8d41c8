"""From moments with coarse captions to fine ones and to training captions of the noise evaluator (VERIFIED, sec. 3)."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from os import PathLike
from typing import Any

import numpy as np
import pyarrow as pa

from hf_datasets.fig.keyframes import keyframe_seconds
from hf_datasets.fig.lexicon import beside, named_things
from hf_datasets.fig.moments import MOMENT_SCHEMA
from hf_datasets.fig.tasks import (
    AnswersTask,
    AttributesTask,
    Candidates,
    DynamicRow,
    DynamicTask,
    Keyframe,
    MomentAnswers,
    QuestionsTask,
    StaticRow,
    StaticTask,
    rewriting_tasks,
)
from hf_datasets.generation.images import image_part, image_parts
from hf_datasets.generation.task import PromptSet
from hf_datasets.records import Moment, Rejection
from hf_datasets.seeds import generator_for
from hf_datasets.video import VideoStore

CAPTION_SCHEMA = (
    MOMENT_SCHEMA.append(pa.field("kind", pa.string()))
    .append(pa.field("candidates", pa.list_(pa.string())))
    .append(pa.field("candidate_kinds", pa.list_(pa.string())))
)
"""A moment with its fine caption, the caption's kind (`static` or `dynamic`), and all candidates with theirs."""
REWRITING_SCHEMA = pa.schema({"desc_id": pa.int64(), "kind": pa.string(), "captions": pa.list_(pa.string())})
"""Rewritten captions of a moment; `kind` is a key of `tasks.rewriting_tasks`."""

Row = dict[str, Any]
Ask = Callable[[str, Any, Iterable[Any]], list[tuple[Any, Any]]]
"""Step, task and rows -> the rows with an accepted answer, in order, each with its record."""
Passed = Callable[[str, Iterable[Any]], Iterator[Any]]
"""Step and records -> the records without the rejections, which the callable collects."""


class CaptionConstruction:
    """The fine captions of one split.

    Args:
        moments: The moments with their coarse captions.
        ask: Runs a generation task; see `Ask`.
        passed: Collects rejections; see `Passed`.
        sees_frames: Whether the writer is shown frames; the rule-based generator does not see them.
        video_dir: The folder of videos; without one each frame is a gray image, as in a dry run.
        num_frames: Frames of each moment that questions are answered from.
        seed: Decides the kind of each fine caption, for each moment by itself.
        prompts: Whose prompts the writer gets.
    """

    def __init__(
        self,
        moments: Iterable[Moment],
        ask: Ask,
        passed: Passed,
        *,
        sees_frames: bool = False,
        video_dir: str | PathLike[str] | None = None,
        num_frames: int = 8,
        seed: int = 0,
        prompts: PromptSet = "own",
    ) -> None:
        moments = list(moments)
        self.moments = {moment.desc_id: moment for moment in moments}
        self.ask, self.passed = ask, passed
        self.sees_frames, self.num_frames, self.seed = sees_frames, num_frames, seed
        self.prompts: PromptSet = prompts
        self.store = VideoStore(video_dir) if video_dir else None
        self.by_video: dict[str, list[Moment]] = defaultdict(list)
        for moment in moments:
            self.by_video[moment.video_id].append(moment)

    def rows(self) -> Iterator[Row | Rejection]:
        """Rows of `CAPTION_SCHEMA`, in the order of the moments.

        Yields:
            A row, or the rejection of a moment without a candidate.
        """
        found: dict[int, dict[str, Candidates]] = defaultdict(dict)
        for kind, answers in (("static", self._static()), ("dynamic", self._dynamic())):
            for candidates in answers:
                found[candidates.desc_id][kind] = candidates
        for desc_id, moment in self.moments.items():
            yield self._choose(moment, found[desc_id])

    def rewritings(self) -> list[Row]:
        """Rows of `REWRITING_SCHEMA`: positive and negative rewritings of every caption."""
        return [
            {"desc_id": candidates.desc_id, "kind": kind, "captions": list(candidates.captions)}
            for kind, task in rewriting_tasks(self.prompts).items()
            for _, candidates in self.ask(kind.replace("_", " "), task, list(self.moments.values()))
        ]

    def _frame_at(self, moment: Moment, seconds: float) -> dict[str, Any]:
        if self.store is None:
            return image_part(np.full((3, 360, 640), 128, np.uint8))
        return image_parts(self.store.path(moment.video_id), seconds, seconds + 0.1, num_frames=1)[0]

    def _frames_of(self, moment: Moment) -> tuple[dict[str, Any], ...]:
        if self.store is None:
            return (self._frame_at(moment, 0.0),) * self.num_frames
        span = moment.start_seconds, moment.end_seconds
        return tuple(image_parts(self.store.path(moment.video_id), *span, num_frames=self.num_frames))

    def _others(self, moment: Moment) -> list[Moment]:
        return [other for other in self.by_video[moment.video_id] if other.desc_id != moment.desc_id]

    def _static(self) -> list[Candidates]:
        attributes: dict[int, list[Any]] = defaultdict(list)
        if self.sees_frames:
            keyframes = self.passed("keyframes", self._keyframes())
            for keyframe, found in self.ask(
                "keyframe attributes", AttributesTask(self._frame_at, prompts=self.prompts), keyframes
            ):
                attributes[keyframe.moment.desc_id].append(found)
        rows = [
            StaticRow(moment, tuple(attributes[desc_id]), self._named(moment))
            for desc_id, moment in self.moments.items()
            if attributes[desc_id] or not self.sees_frames
        ]
        return [candidates for _, candidates in self.ask("static captions", StaticTask(prompts=self.prompts), rows)]

    def _keyframes(self) -> Iterator[Keyframe | Rejection]:
        for moment in self.moments.values():
            start, end = moment.start_seconds, moment.end_seconds
            try:
                path = self.store.path(moment.video_id) if self.store else None
                times = keyframe_seconds(path, start, end) if path else [(start + end) / 2]
            except (OSError, ValueError, RuntimeError) as error:
                yield Rejection(f"no keyframes: {error}", repr(moment), moment.key)
            else:
                yield from (Keyframe(moment, seconds) for seconds in times)

    def _named(self, moment: Moment) -> tuple[str, ...]:
        own = set(moment.coarse_caption.lower().rstrip(".").split())
        things = named_things(other.coarse_caption for other in self._others(moment))
        return tuple(thing for thing in things if thing.split()[-1] not in own)

    def _dynamic(self) -> list[Candidates]:
        rows = [DynamicRow(moment, beside=beside(moment, self._others(moment))) for moment in self.moments.values()]
        rows = [
            replace(row, questions=questions)
            for row, questions in self.ask("questions", QuestionsTask(prompts=self.prompts), rows)
        ]
        if self.sees_frames:
            answered: list[tuple[DynamicRow, MomentAnswers]] = self.ask(
                "answers", AnswersTask(self._frames_of, prompts=self.prompts), rows
            )
            rows = [replace(row, answers=answers.answers, description=answers.description) for row, answers in answered]
        return [candidates for _, candidates in self.ask("dynamic captions", DynamicTask(prompts=self.prompts), rows)]

    def _choose(self, moment: Moment, found: dict[str, Candidates]) -> Row | Rejection:
        """The first candidate of a seeded kind; a noise evaluator may choose among `candidates` later."""
        if not found:
            return Rejection("no candidate", moment.coarse_caption, moment.key)
        kind = generator_for(str(moment.desc_id), self.seed).choice(sorted(found))
        row = asdict(moment) | {"fine_caption": found[kind].captions[0], "fine_caption_score": None, "kind": kind}
        return row | {
            "candidates": [caption for candidates in found.values() for caption in candidates.captions],
            "candidate_kinds": [kind for kind, candidates in found.items() for _ in candidates.captions],
        }
