"""Clips in memory for the page to choose from, and those that fit a query best."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hf_models.encoders.protocol import Encoder
from subtle.service.media import Media
from subtle.service.searching import MomentSearch, spread


class GallerySearch(MomentSearch):
    """A few hundred clips; the fingerprint of one's video is the video's id.

    Args:
        encoder: What made the vectors.
        media: Reads the videos by their ids.
        clips: Rows with `clip_id`, `video_id`, `description`, `start_seconds` and `end_seconds`.
        vectors: Of each clip, by its id, what `encoder.vectors` gave.
        model: The name of the model.

    Raises:
        ValueError: There are clips without a vector.
    """

    def __init__(
        self,
        encoder: Encoder,
        media: Media,
        clips: Sequence[Mapping[str, Any]],
        vectors: Mapping[str, Any],
        model: str = "",
    ) -> None:
        super().__init__(encoder, media, model)
        if missing := [clip["clip_id"] for clip in clips if clip["clip_id"] not in vectors]:
            raise ValueError(f"{len(missing)} clips have no vector, such as {missing[0]}; make the vectors again")
        self.vectors = np.stack([np.asarray(vectors[clip["clip_id"]]) for clip in clips])
        self.rows = [
            {"moment_id": clip["clip_id"], "video": clip["video_id"], "fingerprint": clip["video_id"]}
            | {name: clip[name] for name in ("start_seconds", "end_seconds")}
            | {"label": clip["description"], "text": None}
            for clip in clips
        ]

    def folders_and_labels(self) -> tuple[list[str], list[str]]:
        """See `MomentSearch`; clips that were published lie in no folders."""
        return [], sorted({row["label"] for row in self.rows})

    def choices(self, words: str, number: int) -> tuple[list[dict[str, Any]], int]:
        """See `MomentSearch`."""
        wanted = words[:200].lower().split()
        found = [row for row in self.rows if all(word in f"{row['label']} {row['video']}".lower() for word in wanted)]
        return spread(found, number), len(found)

    def count(self) -> int:
        """See `MomentSearch`."""
        return len(self.rows)

    def moments_of(self, video: str) -> list[dict[str, Any]]:
        """See `MomentSearch`."""
        return [row for row in self.rows if row["video"] == video]

    def nearest(
        self,
        vector: np.ndarray,
        limit: int,
        *,
        folder: str | None,  # noqa: ARG002 there are none
        label: str | None,
        exclude_fingerprint: str | None,
    ) -> list[dict[str, Any]]:
        """See `MomentSearch`."""
        scores = self.vectors @ vector
        found = [self.rows[place] | {"score": float(scores[place])} for place in np.argsort(-scores, kind="stable")]
        return [row for row in found if label in {None, row["label"]} and row["video"] != exclude_fingerprint][:limit]
