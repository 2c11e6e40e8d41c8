"""The frozen records that flow between the steps of the three data pipelines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

ClipRow = Mapping[str, Any]
"""A dataset row with `clip_id`, `video` (a path or None), `start_seconds` and `end_seconds` (None, None: all of it)."""
ChangeType = Literal["temporal", "event"]
DisruptionType = Literal["temporal_reorder", "action_replace", "segment_mismatch", "multi"]


@dataclass(frozen=True, slots=True)
class Clip:
    """A labeled stretch of a video: half-open `[start_seconds, end_seconds)`; None, None is the whole file."""

    clip_id: str
    video_id: str
    label: str
    start_seconds: float | None = None
    end_seconds: float | None = None
    split: str | None = None


@dataclass(frozen=True, slots=True)
class LabelPair:
    """An ordered pair of label ids whose difference a modification text describes; similarity in [-1, 1]."""

    source: str
    target: str
    change_type: ChangeType
    similarity: float

    @property
    def key(self) -> str:
        """The name of the pair in rejections."""
        return f"{self.source}->{self.target}"


@dataclass(frozen=True, slots=True)
class ContrastPair:
    """A video interval with a text that fits it and one that does not (VideoComp, section 3).

    The text pair is judged on the *query* interval; it equals the original one except for segment mismatch.
    """

    key: str
    video_id: str
    disruption_type: DisruptionType
    original_start_seconds: float
    original_end_seconds: float
    query_start_seconds: float
    query_end_seconds: float
    positive_text: str
    negative_text: str
    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Moment:
    """A captioned stretch of a video with a coarse and a fine caption; the score is a logit, not a probability."""

    desc_id: int
    video_id: str
    duration_seconds: float
    start_seconds: float
    end_seconds: float
    coarse_caption: str
    fine_caption: str
    fine_caption_score: float | None

    @property
    def key(self) -> str:
        """The name of the moment in rejections."""
        return f"{self.video_id}/{self.desc_id}"


@dataclass(frozen=True, slots=True)
class Rejection:
    """An input that a step refused, with the reason, so that nothing is lost.

    Attributes:
        reason: Its text up to the first colon is the kind, which reports count.
        raw: The input, or a writer's answer.
        key: The row or pair, by the name that it has in the input.
        request: For a writer's answer, the key of the request, under which the answer cache holds its messages.
    """

    reason: str
    raw: str
    key: str | None = None
    request: str | None = None


@dataclass(frozen=True, slots=True)
class CaptionedEvent:
    """A captioned stretch of a video: half-open `[start_seconds, end_seconds)`."""

    start_seconds: float
    end_seconds: float
    caption: str


@dataclass(frozen=True, slots=True)
class CaptionedVideo:
    """A video with its captioned events, in the order of the annotation."""

    video_id: str
    duration_seconds: float
    events: tuple[CaptionedEvent, ...]
