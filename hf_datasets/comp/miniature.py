"""VideoComp on the rendered athletes: stretches of several actions, described by the label grammar."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from hf_datasets.comp.annotations import SourceName
from hf_datasets.comp.paragraphs import join, keeps_words
from hf_datasets.comp.tasks import ActionTask, Paragraph
from hf_datasets.generation.repair import as_data
from hf_datasets.miniature.actions import ACTIONS, ALL_ACTIONS, Action
from hf_datasets.miniature.captions import PLACES, action_phrase
from hf_datasets.records import CaptionedEvent, CaptionedVideo
from hf_datasets.seeds import generator_for

NUM_EVENTS: dict[SourceName, tuple[int, int]] = {"activitynet": (2, 5), "youcook2": (3, 5)}
"""Fewest and most events of a stretch."""
CAPTIONS: dict[SourceName, str] = {"activitynet": "The athlete performs {}.", "youcook2": "perform {}"}
"""Captions of ActivityNet-Captions are statements, those of YouCook2 instructions."""


def caption(action: Action, style: SourceName) -> str:
    """An action in words, with its place.

    Example:
        >>> caption(ACTIONS["125"], "activitynet")
        'The athlete performs a double salto backward, tucked, with one twist on the floor.'
    """
    return CAPTIONS[style].format(f"{action_phrase(action)} {PLACES[action.apparatus]}")


def read_clips(root: Path, style: SourceName) -> dict[str, list[dict[str, Any]]]:
    """The clips of each split of a rendered miniature with a caption each, in the order of the tables.

    Args:
        root: A folder that `prepare_miniature` made.
        style: How the captions are worded.

    Returns:
        Split -> rows with `clip_id, video_id, video, start_seconds, end_seconds, caption`.
    """
    rows: dict[str, list[dict[str, Any]]] = {}
    for clip in pq.read_table(root / "clips.parquet").to_pylist():
        row = {name: clip[name] for name in ("clip_id", "video_id", "start_seconds", "end_seconds")}
        row["video"] = str(root / "videos" / f"{clip['video_id']}.mp4")
        row["caption"] = caption(ALL_ACTIONS[clip["label"]], style)
        rows.setdefault(clip["split"], []).append(row)
    return rows


def read_stretches(root: Path, style: SourceName, seed: int = 0) -> dict[str, list[CaptionedVideo]]:
    """The stretches of each split of a rendered miniature, in the order of its videos.

    A long video is cut into stretches of consecutive clips, without overlap; too few clips at its
    end are left out.

    Args:
        root: A folder that `prepare_miniature` made.
        style: How the captions are worded and how many events a stretch has.
        seed: Decides the number of events of each stretch.

    Returns:
        Split -> stretches; the id of each is its video's, a colon, and the number of its first clip.
    """
    videos: dict[str, list[dict[str, Any]]] = {}
    for clip in pq.read_table(root / "clips.parquet").to_pylist():
        videos.setdefault(clip["video_id"], []).append(clip)
    stretches: dict[str, list[CaptionedVideo]] = {}
    for video_id, clips in videos.items():
        clips.sort(key=lambda clip: clip["start_seconds"])
        for start, end in _windows(video_id, len(clips), style, seed):
            events = tuple(
                CaptionedEvent(clip["start_seconds"], clip["end_seconds"], caption(ALL_ACTIONS[clip["label"]], style))
                for clip in clips[start:end]
            )
            stretch = CaptionedVideo(f"{video_id}:{start:03d}", clips[-1]["end_seconds"], events)
            stretches.setdefault(clips[0]["split"], []).append(stretch)
    return stretches


def _windows(video_id: str, count: int, style: SourceName, seed: int) -> Iterator[tuple[int, int]]:
    generator = generator_for(f"{video_id}/{style}", seed)
    start, (fewest, most) = 0, NUM_EVENTS[style]
    while count - start >= fewest:
        end = start + generator.randint(fewest, min(most, count - start))
        yield start, end
        start = end


@dataclass(frozen=True)
class LabelActionTask(ActionTask):
    """Replace one action by another of the same place, as the label grammar words it.

    Of all sentences and actions, in an order that the row's seed decides, it takes the first that keeps 0.8 of the
    words and that the paragraph does not mention already.
    """

    def write(self, row: Paragraph) -> str:
        """The paragraph with an action replaced.

        Raises:
            ValueError: No sentence has an action whose replacement keeps enough words.
        """
        generator = generator_for(row.key, row.seed)
        choices = [
            (index, found, other)
            for index, sentence in enumerate(row.sentences)
            for found, others in [_mentioned_action(sentence)]
            for other in others
        ]
        for index, found, other in generator.sample(choices, len(choices)):
            replaced = row.sentences[index].replace(found, other)
            text = join([*row.sentences[:index], replaced, *row.sentences[index + 1 :]])
            if other not in row.text and keeps_words(text, row.text):
                return as_data(paragraph=text)
        raise ValueError("no action can be replaced with 0.8 of the words kept")


def _mentioned_action(sentence: str) -> tuple[str, list[str]]:
    """The action that a sentence mentions, and the others of its place; all with the place."""
    for place in PLACES.values():
        if place not in sentence:
            continue
        phrases = {
            f"{action_phrase(action)} {place}" for action in ACTIONS.values() if PLACES[action.apparatus] == place
        }
        mentioned = [phrase for phrase in phrases if phrase in sentence]
        if mentioned:
            longest = max(mentioned, key=len)  # "a split leap" is in "a switch split leap"
            return longest, sorted(phrases - {longest})
    return "", []
