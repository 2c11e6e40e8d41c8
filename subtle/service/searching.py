"""The search behind the page: a query that is trimmed, and what every place of moments is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from hf_datasets.footage.files import file_fingerprint
from hf_models.encoders.protocol import Encoder
from subtle.service.media import MAX_CLIP_SECONDS, Footage, Media

One = TypeVar("One")
LONGEST_QUERY = 1000
CONTEXT_SECONDS = 3.0
"""What is shown before and after a moment, at least, so that it can be trimmed wider."""
SHORTEST_SECONDS = 0.1
NEIGHBORS = 8
"""Most moments of the same video that are shown before and after one."""


@dataclass(frozen=True)
class Query:
    """A query clip: a part of a stretch of footage.

    Attributes:
        stretch: What can be trimmed, as it is in the video.
        copy: Where the page finds it.
        start_seconds: Where the clip starts in the video.
        end_seconds: Where it ends.
        label: What is said of it.
        fingerprint: Of its file; empty where it is not known.
        moment_id: Of a moment of the index.
    """

    stretch: Footage
    copy: str
    start_seconds: float
    end_seconds: float
    label: str = ""
    fingerprint: str = ""
    moment_id: str = ""

    @property
    def clip(self) -> Footage:
        """The part that is searched with."""
        return replace(self.stretch, start_seconds=self.start_seconds, end_seconds=self.end_seconds)

    def trimmed(self, start_seconds: Any, end_seconds: Any) -> "Query":
        """Another part of the same stretch.

        Raises:
            ValueError: It is not within the stretch.
        """
        least, most = self.stretch.start_seconds, self.stretch.end_seconds
        try:
            start, end = max(float(start_seconds), least), min(float(end_seconds), most)
        except (TypeError, ValueError):
            start = end = least
        if not end - start >= SHORTEST_SECONDS * 0.99:  # also of what is not a number
            raise ValueError(f"the clip must have at least {SHORTEST_SECONDS:g} s between {least:.2f} and {most:.2f} s")
        return replace(self, start_seconds=start, end_seconds=end)


class MomentSearch:
    """Moments that a page shows, and the model that finds them; a subclass knows where they are.

    A moment is a row: `moment_id`, `video`, `start_seconds`, `end_seconds`, `label`, `text` and its video's
    `fingerprint`; one that was found has a `score`, too.
    """

    def __init__(self, encoder: Encoder, media: Media, model: str = "") -> None:
        self.encoder, self.media, self.model_name = encoder, media, model
        self.lock = Lock()  # tokenizers keep settings while they work

    def folders_and_labels(self) -> tuple[list[str], list[str]]:
        """The folders of the videos, and the labels, to filter by; both ordered."""
        raise NotImplementedError

    def choices(self, words: str, number: int) -> tuple[list[dict[str, Any]], int]:
        """Moments whose label, text or video has all the words, spread over those found; and how many there are."""
        raise NotImplementedError

    def nearest(
        self, vector: np.ndarray, limit: int, *, folder: str | None, label: str | None, exclude_fingerprint: str | None
    ) -> list[dict[str, Any]]:
        """The moments with the largest dot products, best first."""
        raise NotImplementedError

    def count(self) -> int:
        """How many moments there are."""
        raise NotImplementedError

    def moments_of(self, video: str) -> list[dict[str, Any]]:
        """All moments of a video, in any order."""
        raise NotImplementedError

    def moved(self, vector: np.ndarray, more_like: list[str], less_like: list[str]) -> np.ndarray:
        """A query's vector after some moments, named by their ids, were judged."""
        raise NotImplementedError

    def neighbors(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        """A moment among those of its video that are next to it, in the order of time."""
        rows = sorted(
            self.moments_of(row["video"]),
            key=lambda one: (one["start_seconds"] or 0.0, one["end_seconds"] or np.inf, one["moment_id"]),
        )
        place = next((place for place, one in enumerate(rows) if one["moment_id"] == row["moment_id"]), None)
        if place is None:  # it has been removed since it was found
            return [row]
        return rows[max(0, place - NEIGHBORS) : place + NEIGHBORS + 1]

    def trouble_with(self, row: dict[str, Any]) -> str:  # noqa: ARG002 for subclasses
        """Why a found moment cannot be shown; empty where nothing is known against it."""
        return ""

    def query_of_moment(self, row: dict[str, Any]) -> Query:
        """A moment as a query, with what is around it.

        Raises:
            VideoError: Its video cannot be read.
        """
        start, end = row["start_seconds"] or 0.0, row["end_seconds"]
        end = start + MAX_CLIP_SECONDS if end is None else min(end, start + MAX_CLIP_SECONDS)
        margin = min(max(CONTEXT_SECONDS, end - start), max(0.0, MAX_CLIP_SECONDS - (end - start)) / 2)
        stretch, copy = self.shown(Footage(row["video"], max(0.0, start - margin), end + margin))
        start = min(max(start, stretch.start_seconds), stretch.end_seconds - SHORTEST_SECONDS)
        label = "  ".join(filter(None, (row["label"], row["text"])))
        end = min(end, stretch.end_seconds)
        return Query(stretch, copy, start, end, label, row["fingerprint"] or "", row["moment_id"])

    def query_of_upload(self, upload: Footage) -> Query:
        """What `Media.take` took as a query.

        Raises:
            VideoError: It cannot be read.
        """
        stretch, copy = self.shown(upload)
        known = file_fingerprint(self.media.path(upload))
        return Query(stretch, copy, stretch.start_seconds, stretch.end_seconds, "your clip", known)

    def shown(self, footage: Footage) -> tuple[Footage, str]:
        """A stretch as its copy shows it, which may end before it was to, and where the page finds that."""
        _, begin, end = self.media.made("clip", footage)
        end = max(begin + SHORTEST_SECONDS, min(end, footage.end_seconds))
        return replace(footage, start_seconds=begin, end_seconds=end), self.media.address("clip", footage)

    def find(
        self,
        query: Query | None,
        text: str,
        *,
        limit: int,
        folder: str | None = None,
        label: str | None = None,
        leave_out_video: bool = False,
        min_score: float | None = None,
        more_like: Sequence[str] = (),
        less_like: Sequence[str] = (),
    ) -> tuple[list[dict[str, Any]], str]:
        """The best moments without the query's own, best first; and, where there is none, why.

        The query moves towards the moments `more_like` and away from `less_like`, which are named by their ids.

        Raises:
            ValueError: There is neither clip nor text, or the text is too long.
            VideoError: The clip cannot be read.
        """
        text = " ".join((text or "").split())
        if query is None and not text:
            raise ValueError("choose or upload a clip, or write a text")
        if len(text) > LONGEST_QUERY:
            raise ValueError(f"the text has {len(text)} characters; write at most {LONGEST_QUERY}")
        if text:
            self.encoder.check_text(text)
        frames = None
        if query is not None:
            frames = self.media.frames(query.clip, self.encoder.num_frames, self.encoder.frame_size)
        with self.lock:
            vector = self.encoder.query(frames, text or None)
        if more_like or less_like:
            vector = self.moved(vector, list(more_like), list(less_like))
        own = query.fingerprint if query is not None and leave_out_video else None
        found = self.nearest(vector, limit + 1, folder=folder, label=label, exclude_fingerprint=own)
        others = [row for row in found if query is None or row["moment_id"] != query.moment_id][:limit]
        fitting = [row for row in others if min_score is None or row["score"] >= min_score]
        if fitting:
            return fitting, ""
        if others:
            return [], f"the best score is {others[0]['score']:.2f}, below {min_score:g}"
        filters = [f"in folder “{folder}”"] if folder else []
        filters += [f"labeled “{label}”"] if label else []
        filters += ["outside the query's own video"] if leave_out_video else []
        return [], f"there is no other moment {' '.join(filters)}".rstrip()


def evenly_chosen(rows: Sequence[One], most: int) -> list[One]:
    """At most so many, evenly chosen.

    >>> evenly_chosen([0, 1, 2, 3, 4, 5], 3)
    [0, 2, 4]
    """
    return list(rows) if len(rows) <= most else [rows[place * len(rows) // most] for place in range(most)]
