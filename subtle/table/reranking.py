"""Another order of the first retrieved clips: by a chat model, by a local cross-encoder, or by the labels."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from hf_datasets.generation.images import image_parts
from hf_datasets.generation.relevance import HIGHEST_RELEVANCE, PairToScore
from hf_datasets.records import ClipRow, Rejection
from hf_datasets.tfcovr.caption_scores import score_caption
from hf_datasets.tfcovr.captions import caption_of
from hf_datasets.tfcovr.labels import Label, sport_of
from hf_datasets.video import VideoError, read_frames
from hf_datasets.video.pool import NO_FILE
from hf_models.video_text_matching import Scorer, load_matcher
from subtle.footage.refining import reordered
from subtle.tfcovr.captions import label_of

FRAMES_KEPT = 256
"""Clips whose images stay in memory: a query's clip is sent with each of its candidates."""


@dataclass(frozen=True)
class RankedCandidate:
    """A query and one of its first clips.

    Attributes:
        query: a row of the dataset.
        clip: the candidate.
        description: of what the query looks for.
    """

    query: Mapping[str, Any]
    clip: ClipRow
    description: str = ""

    @property
    def key(self) -> str:
        """How a rejection names it."""
        return f"{self.query['query_id']} {self.clip['clip_id']}"


class ClipImages:
    """Frames of clips as images, read when they are asked for.

    Args:
        clips: by id.
        num_frames: of each clip.
        max_side: longer side of a frame, in pixels.
    """

    def __init__(self, clips: Mapping[str, ClipRow], num_frames: int, max_side: int) -> None:
        self.clips, self.num_frames, self.max_side = clips, num_frames, max_side
        self.of = lru_cache(FRAMES_KEPT)(self.read)

    def read(self, clip_id: str) -> list[dict[str, Any]]:
        """Those of a clip, in order; without a readable video a ValueError or a VideoError says so."""
        clip = self.clips.get(clip_id)
        if clip is None or not clip["video"]:
            raise ValueError(f"{NO_FILE} ({clip_id})")
        span = clip["start_seconds"], clip["end_seconds"]
        return image_parts(clip["video"], *span, num_frames=self.num_frames, max_side=self.max_side)


def to_score(pair: RankedCandidate, images: ClipImages | None, expected: int | None = None) -> PairToScore:
    """A pair as the task takes it; without `images` the rule-based generator scores it by `expected`."""
    if images is None:
        return PairToScore(pair.key, pair.query["modification_text"], list, list, expected)
    query, clip = (partial(images.of, clip_id) for clip_id in (pair.query["query_clip_id"], pair.clip["clip_id"]))
    return PairToScore(pair.key, pair.query["modification_text"], query, clip, expected)


def label_score(clip: ClipRow, target_label: str | None, descriptions: Mapping[str, str]) -> int | None:
    """How much of a wanted label a clip's own label has, 0 to 10: an upper bound for any model that sees the clip.

    Args:
        clip: with `label` and `description`.
        target_label: of the query's targets.
        descriptions: label -> description, of labels beyond TF-CoVR's.

    Returns:
        The share of the attributes that either label states and both agree in; of labels of another vocabulary, or of
        two sports, all or nothing; None without a label.

    Example:
        >>> clip = {"label": "40", "description": None}  # switch leap with 0.5 turn, floor exercise
        >>> label_score(clip, "40", {}), label_score(clip, "45", {}), label_score(clip, "5253b", {})
        (10, 8, 0)
    """
    if not clip["label"] or not target_label:
        return None
    own, wanted = label_of(clip["label"], clip["description"]), label_of(target_label, descriptions.get(target_label))
    if own is None or wanted is None:
        is_same: bool = clip["label"] == target_label
        return HIGHEST_RELEVANCE * is_same
    return agreement(own, wanted)


@lru_cache(maxsize=65_536)
def agreement(own: Label, wanted: Label) -> int:
    """See `label_score`."""
    if sport_of(own) != sport_of(wanted):
        return 0
    score = score_caption(caption_of(own), wanted)
    total = len(score.right) + len(score.wrong) + len(score.not_said)
    return round(HIGHEST_RELEVANCE * len(score.right) / total) if total else HIGHEST_RELEVANCE


def match(
    folder: str, pairs: Sequence[RankedCandidate], device: torch.device, *, num_frames: int
) -> Iterator[tuple[RankedCandidate, float] | Rejection]:
    """Scores of pairs by a cross-encoder that reads the description beside the clip, or why a pair has none.

    Args:
        folder: a VidCLIP matcher or BLIP with a trained head.
        pairs: each clip is read once.
        device: where to compute.
        num_frames: most frames of a clip.

    Raises:
        ValueError: it is no such model.
    """
    disable_progress_bar()
    matcher, processor, tokenizer = load_matcher(folder, num_frames=num_frames, needs_trained_head=True)
    matcher.to(device).eval()  # type: ignore[arg-type]  # a wrapped method, which its annotation does not bind
    scorer = Scorer(matcher, processor, tokenizer)
    by_clip: dict[str, list[RankedCandidate]] = defaultdict(list)
    for pair in pairs:
        if len(tokenizer(pair.description)["input_ids"]) > matcher.max_tokens:
            reason = f"the description has more tokens than the cross-encoder reads ({matcher.max_tokens})"
            yield Rejection(reason, pair.description, pair.key)
        else:
            by_clip[pair.clip["clip_id"]].append(pair)
    for some in by_clip.values():
        clip = some[0].clip
        span = clip["start_seconds"], clip["end_seconds"]
        try:
            frames = read_frames(clip["video"], min(num_frames, matcher.max_frames), *span, size=scorer.frame_size)
        except (VideoError, OSError) as error:
            yield from (Rejection(f"the clip cannot be read: {error}", "", pair.key) for pair in some)
            continue
        yield from zip(some, scorer(frames.frames, [pair.description for pair in some]), strict=True)


def rerank(ids: Sequence[str], scores: Mapping[str, float], number: int) -> tuple[list[str], list[float | None]]:
    """A ranking whose first clips are ordered by their scores, and the scores in that order.

    Equal scores keep their order; a clip without a score keeps its place.

    Args:
        ids: of the gallery, best first.
        scores: clip id -> score.
        number: how many clips are ordered anew.

    Example:
        >>> rerank(["a", "b", "c", "d", "e"], {"a": 2, "c": 5, "d": 2}, 4)
        (['c', 'b', 'a', 'd', 'e'], [5, None, 2, 2])
    """
    rows = reordered([{"clip_id": one, "score": scores.get(one)} for one in ids[:number]], "score")
    return [row["clip_id"] for row in rows] + list(ids[number:]), [row["score"] for row in rows]
