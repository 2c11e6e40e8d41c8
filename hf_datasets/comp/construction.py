"""From videos with their events to contrast pairs, disruption by disruption (VideoComp, section 3.1)."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from difflib import SequenceMatcher
from typing import Any, Final

from hf_datasets.comp.disruptions import EventRange, Segments, choose_order, choose_segments, crop
from hf_datasets.comp.pairs import make_pair
from hf_datasets.comp.paragraphs import MAX_IOU, as_sentence, select_events, split_sentences
from hf_datasets.comp.tasks import ActionTask, Paragraph, ReorderingTask, StructuringTask, WrittenParagraph
from hf_datasets.generation.task import PromptSet
from hf_datasets.records import CaptionedEvent, CaptionedVideo, DisruptionType, Rejection
from hf_datasets.seeds import generator_for

Row = dict[str, Any]
MULTIPLE: Final[tuple[tuple[DisruptionType, ...], ...]] = (
    ("temporal_reorder", "action_replace"),
    ("temporal_reorder", "segment_mismatch"),
    ("action_replace", "segment_mismatch"),
    ("temporal_reorder", "action_replace", "segment_mismatch"),
)
"""All combinations of two or more disruptions."""
AskForParagraphs = Callable[[str, Any, list[Paragraph]], dict[str, WrittenParagraph]]
"""Step, task and rows -> key -> the written paragraph; rejected rows are left out."""


def select_video(
    video: CaptionedVideo, *, max_iou: float = MAX_IOU["activitynet"]
) -> tuple[CaptionedVideo | Rejection, list[CaptionedEvent | Rejection]]:
    """A video with the events that follow one another, or a rejection where fewer than two are left.

    Args:
        video: The video with its events in any order.
        max_iou: See `paragraphs.select_events`.

    Returns:
        The video or its rejection; and the events kept, followed by a rejection for each of the others.

    Example:
        >>> video = CaptionedVideo("v", 9.0, (CaptionedEvent(0, 9, "A man runs."),))
        >>> select_video(video)[0].reason
        'fewer than two events'
    """
    events, rejections = select_events(video, max_iou=max_iou)
    kept: CaptionedVideo | Rejection = CaptionedVideo(video.video_id, video.duration_seconds, events)
    if len(events) < 2:
        raw = json.dumps([asdict(event) for event in events])
        kept = Rejection("fewer than two events", raw, video.video_id)
    return kept, [*events, *rejections]


class PairConstruction:
    """The pairs of one split.

    Args:
        videos: Videos of at least two events, in order.
        ask: Writes the paragraphs; see `AskForParagraphs`.
        actions: The task that replaces actions.
        seed: Decides orders, intervals and which text comes first in a question, for each video by itself.
        multiple: Which disruptions to combine in one pair, such as `MULTIPLE`; these pairs are for training only.
        prompts: Whose prompts the writer gets; with the paper's it chooses the new orders, not the seed.
    """

    def __init__(
        self,
        videos: Iterable[CaptionedVideo],
        ask: AskForParagraphs,
        *,
        actions: ActionTask,
        seed: int = 0,
        multiple: Sequence[tuple[DisruptionType, ...]] = (),
        prompts: PromptSet = "own",
    ) -> None:
        self.videos = list(videos)
        self.ask, self.actions, self.seed, self.multiple = ask, actions, seed, multiple
        self.reordering = ReorderingTask(prompts=prompts)
        self.segments = {video.video_id: self._segments(video) for video in self.videos}

    def rows(self) -> Iterator[Row | Rejection]:
        """Rows of `pairs.PAIR_SCHEMA`, one disruption after the other.

        Yields:
            A row, or a rejection where both texts are the same or describe the same events.
        """
        structured = self._structured()
        videos = [video for video in self.videos if f"{video.video_id}/whole" in structured]
        yield from self._reordered(videos, structured)
        replaced = self._replaced(videos, structured)
        for video in videos:
            if negative := replaced.get(f"{video.video_id}/action"):
                positive = structured[f"{video.video_id}/whole"].text
                decision = {"replaced": changed_words(positive, negative.text)}
                yield self._row("action_replace", video, (positive, negative.text), decision)
        yield from self._mismatched(videos, structured)
        for kinds in self.multiple:
            yield from self._combined(kinds, videos, structured)

    def _structured(self) -> dict[str, WrittenParagraph]:
        whole = [self._paragraph(video, "whole") for video in self.videos]
        parts = [
            self._paragraph(video, name, range(*interval))
            for video in self.videos
            for name, interval in self.segments[video.video_id]._asdict().items()
        ]
        return self.ask("structuring", StructuringTask(), whole + parts)

    def _reordered(
        self, videos: list[CaptionedVideo], structured: dict[str, WrittenParagraph]
    ) -> Iterator[Row | Rejection]:
        orders = {
            video.video_id: choose_order(len(video.events), generator_for(f"{video.video_id}/reorder", self.seed))
            for video in videos
        }
        given = orders if self.reordering.prompts == "own" else {}
        rows = [self._paragraph(video, "reorder", given.get(video.video_id)) for video in videos]
        written = self.ask("reordering", self.reordering, rows)
        for video in videos:
            negative = written.get(f"{video.video_id}/reorder")
            order = (negative and negative.order) or orders[video.video_id]
            if negative and _captions(video, order) == _captions(video, range(len(order))):
                yield Rejection("the reordered captions are the same", negative.text, negative.key)
            elif negative:
                positive = structured[f"{video.video_id}/whole"].text
                yield self._row("temporal_reorder", video, (positive, negative.text), {"order": order})

    def _replaced(
        self, videos: list[CaptionedVideo], structured: dict[str, WrittenParagraph]
    ) -> dict[str, WrittenParagraph]:
        rows = []
        for video in videos:
            sentences = split_sentences(structured[f"{video.video_id}/whole"].text)
            rows.append(Paragraph(f"{video.video_id}/action", tuple(sentences), self.seed))
        return self.ask("action replacement", self.actions, rows)

    def _mismatched(
        self, videos: list[CaptionedVideo], structured: dict[str, WrittenParagraph]
    ) -> Iterator[Row | Rejection]:
        for video in videos:
            shown, told = (structured.get(f"{video.video_id}/{name}") for name in ("shown", "told"))
            chosen = self.segments[video.video_id]
            if not (shown and told):
                continue
            if _captions(video, range(*chosen.shown)) == _captions(video, range(*chosen.told)):
                yield Rejection("the two intervals have the same captions", told.text, told.key)
                continue
            texts = (shown.text, told.text)
            decision = chosen._asdict() | {"told_seconds": crop(video.events, chosen.told)}
            yield self._row("segment_mismatch", video, texts, decision, shown=chosen.shown)

    def _combined(
        self,
        kinds: tuple[DisruptionType, ...],
        videos: list[CaptionedVideo],
        structured: dict[str, WrittenParagraph],
    ) -> Iterator[Row | Rejection]:
        # Several disruptions at once: of the text of another interval an action is replaced, then it is reordered.
        # Rejects an interval with too few events to reorder.
        name = "-".join(["multi", *(kind.partition("_")[0] for kind in kinds if kinds != MULTIPLE[0])])
        part = "shown" if "segment_mismatch" in kinds else "whole"
        told = {}
        for video in videos:
            captions = self._told(kinds, video, structured, name)
            if isinstance(captions, Rejection):
                yield captions
            elif captions:
                told[video.video_id] = captions
        decisions: dict[str, dict[str, Any]] = {video_id: {"kinds": kinds} for video_id in told}
        if "action_replace" in kinds:
            told = self._with_other_actions(told, name, decisions)
        texts = {video_id: captions.text for video_id, captions in told.items()}
        if "temporal_reorder" in kinds:
            texts = self._in_other_orders(told, name, decisions)
        for video in videos:
            if negative := texts.get(video.video_id):
                decision, chosen = decisions[video.video_id], self.segments[video.video_id]
                if part == "shown":
                    decision |= chosen._asdict() | {"told_seconds": crop(video.events, chosen.told)}
                both = structured[f"{video.video_id}/{part}"].text, negative
                shown = chosen.shown if part == "shown" else None
                yield self._row("multi", video, both, decision, shown, name=name)

    def _told(
        self,
        kinds: tuple[DisruptionType, ...],
        video: CaptionedVideo,
        structured: dict[str, WrittenParagraph],
        name: str,
    ) -> Paragraph | Rejection | None:
        """What is to be disrupted further, of the whole video or of the mismatched interval; None where that failed."""
        interval: EventRange = (0, len(video.events))
        if "segment_mismatch" in kinds:
            shown, interval = self.segments[video.video_id]
            if not {f"{video.video_id}/shown", f"{video.video_id}/told"} <= structured.keys():
                return None
            if _captions(video, range(*shown)) == _captions(video, range(*interval)):
                return None
        captions = self._paragraph(video, f"{name}-action", range(*interval))
        if "temporal_reorder" not in kinds:
            return Paragraph(captions.key, tuple(split_sentences(structured[f"{video.video_id}/told"].text)), self.seed)
        if len(set(captions.sentences)) < 2:
            return Rejection("fewer than two events to reorder", captions.text, f"{video.video_id}/{name}")
        return captions

    def _with_other_actions(
        self, told: dict[str, Paragraph], name: str, decisions: dict[str, dict[str, Any]]
    ) -> dict[str, Paragraph]:
        written = self.ask(f"action replacement for {name}", self.actions, list(told.values()))
        changed = {}
        for video_id, captions in told.items():
            action = written.get(captions.key)
            sentences = split_sentences(action.text) if action else []
            if action and len(sentences) == len(captions.sentences):
                decisions[video_id]["replaced"] = changed_words(captions.text, action.text)
                changed[video_id] = Paragraph(captions.key, tuple(sentences), self.seed)
        return changed

    def _in_other_orders(
        self, told: dict[str, Paragraph], name: str, decisions: dict[str, dict[str, Any]]
    ) -> dict[str, str]:
        rows = []
        for video_id, captions in told.items():
            key, count = f"{video_id}/{name}", len(captions.sentences)
            order = choose_order(count, generator_for(key, self.seed))
            decisions[video_id]["order"] = order
            given = order if self.reordering.prompts == "own" else range(count)
            rows.append(Paragraph(key, tuple(captions.sentences[index] for index in given), self.seed))
        written = {
            key.removesuffix(f"/{name}"): paragraph
            for key, paragraph in self.ask(f"reordering for {name}", self.reordering, rows).items()
        }
        for video_id, paragraph in written.items():
            decisions[video_id]["order"] = paragraph.order or decisions[video_id]["order"]
        return {video_id: paragraph.text for video_id, paragraph in written.items()}

    def _row(
        self,
        kind: DisruptionType,
        video: CaptionedVideo,
        texts: tuple[str, str],
        decision: dict[str, Any],
        shown: EventRange | None = None,
        name: str | None = None,
    ) -> Row | Rejection:
        every = (0, len(video.events))
        pair = make_pair(
            video.video_id,
            kind,
            texts,
            original=crop(video.events, every),
            query=crop(video.events, shown or every),
            seed=self.seed,
            name=name,
        )
        return pair if isinstance(pair, Rejection) else asdict(pair) | {"decision": json.dumps(decision)}

    def _paragraph(self, video: CaptionedVideo, kind: str, order: Iterable[int] | None = None) -> Paragraph:
        order = range(len(video.events)) if order is None else order
        sentences = tuple(as_sentence(video.events[index].caption) for index in order)
        return Paragraph(f"{video.video_id}/{kind}", sentences, self.seed)

    def _segments(self, video: CaptionedVideo) -> Segments:
        return choose_segments(len(video.events), generator_for(f"{video.video_id}/segments", self.seed))


def changed_words(positive: str, negative: str) -> list[list[str]]:
    """The words that were removed, and those that were added, in order.

    Example:
        >>> changed_words("A man runs.", "A man sits.")
        [['runs.'], ['sits.']]
    """
    before, after = positive.split(), negative.split()
    changes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    edits = [change for change in changes if change[0] != "equal"]
    return [
        [word for _, start, end, _, _ in edits for word in before[start:end]],
        [word for _, _, _, start, end in edits for word in after[start:end]],
    ]


def _captions(video: CaptionedVideo, indices: Iterable[int]) -> list[str]:
    return [video.events[index].caption for index in indices]
