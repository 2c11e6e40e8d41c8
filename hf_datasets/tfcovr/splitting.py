"""The choice of held-out videos, so that no video is in two splits and every label stays in training."""

from collections import Counter
from collections.abc import Iterable

import numpy as np
import polars as pl


def held_out_videos(clips: pl.DataFrame, count: int, *, seed: int = 0) -> list[str]:
    """Choose videos to hold out: first to cover many labels, then at random.

    >>> clips = pl.DataFrame({"video_id": ["a", "b", "c", "d"], "label": ["x", "x", "x", "y"]})
    >>> len(held_out_videos(clips, 3)), "d" in held_out_videos(clips, 3)
    (2, False)

    Args:
        clips: At least `video_id` and `label`, without nulls.
        count: How many videos, at least 0.
        seed: Decides which.

    Returns:
        Video ids in the order in which they were chosen. Fewer than `count` where one more would leave a label without
        a clip to train on; a label of one video alone is never held out.
    """
    labels_of = _grouped(clips.select("video_id", "label").iter_rows())
    videos = np.random.default_rng(seed).permutation(sorted(labels_of)).tolist()
    videos_of = _grouped((label, video_id) for video_id in videos for label in labels_of[video_id])
    left = Counter({label: len(several) for label, several in videos_of.items()})
    chosen: dict[str, None] = {}

    def choose_one(candidates: list[str]) -> None:
        for video_id in candidates:
            if video_id not in chosen and all(left[label] > 1 for label in labels_of[video_id]):
                chosen[video_id] = None
                left.subtract(labels_of[video_id])
                return

    # The rarest label first: it has the fewest videos to choose from.
    for label in sorted(videos_of, key=lambda label: (len(videos_of[label]), label)):
        is_covered = left[label] < len(videos_of[label])
        if len(chosen) < count and not is_covered:
            choose_one(videos_of[label])
    for video_id in videos:
        if len(chosen) < count:
            choose_one([video_id])
    return list(chosen)


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    groups: dict[str, dict[str, None]] = {}
    for key, value in pairs:
        groups.setdefault(key, {})[value] = None
    return {key: list(values) for key, values in groups.items()}
