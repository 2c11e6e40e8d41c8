"""Cutting videos into segments of equal length, several of which are read at a time."""

import math
import os
from collections.abc import Hashable

import torch
from torch import Tensor

from .reading import VideoFrames
from .worker_process import VideoRequest

ROUNDING_SECONDS = 1e-3
"""Annotated durations and timestamps are compared to this precision."""


def count_segments(duration_seconds: float, segment_seconds: float) -> int:
    """How many segments cover a video, at least 1; the last may be shorter.

    Args:
        duration_seconds: Of the video.
        segment_seconds: Of each segment; positive.

    Example:
        >>> count_segments(18.5, 1.0), count_segments(18.0004, 1.0), count_segments(0.0, 1.0)
        (19, 18, 1)
    """
    return max(1, math.ceil((duration_seconds - ROUNDING_SECONDS) / segment_seconds))


def segment_requests(
    key: Hashable,
    path: str | os.PathLike[str],
    duration_seconds: float,
    *,
    segment_seconds: float,
    segments_per_read: int,
) -> list[VideoRequest]:
    """Reads of `segments_per_read` segments each that cover a video, the last one beyond its end.

    Args:
        key: Of the video; the keys of the requests are `(key, start_seconds)`.
        path: Its file.
        duration_seconds: Of the video.
        segment_seconds: Of each segment; positive.
        segments_per_read: At least 1.

    Example:
        >>> requests = segment_requests("dive", "dive.mp4", 18.5, segment_seconds=1.0, segments_per_read=16)
        >>> [(request.key, request.end_seconds) for request in requests]
        [(('dive', 0.0), 16.0), (('dive', 16.0), 32.0)]
    """
    width = segments_per_read * segment_seconds
    num_reads = math.ceil(count_segments(duration_seconds, segment_seconds) / segments_per_read)
    starts = [number * width for number in range(num_reads)]
    return [VideoRequest((key, start), path, start, start + width) for start in starts]


def group_frames(
    read: VideoFrames, start_seconds: float, segment_seconds: float, num_segments: int, num_frames: int
) -> Tensor:
    """Cut the frames of a read into segments by their times.

    A segment with few frames repeats its last; one with none, at a low frame rate, shows the nearest.

    Args:
        read: Frames of at most `num_segments` segments.
        start_seconds: Where the read starts.
        segment_seconds: Of each segment; positive.
        num_segments: How many segments were read, at least 1.
        num_frames: Frames per segment, at least 1.

    Returns:
        `(segments, num_frames, 3, height, width)` uint8, fewer than `num_segments` where the video ends before.

    Example:
        >>> pixels = torch.arange(4, dtype=torch.uint8)[:, None, None, None].expand(4, 2, 2, 3).numpy()
        >>> read = VideoFrames(pixels, (0, 1, 2, 3), (5.0, 5.5, 6.0, 6.5), 4, 0.0)
        >>> group_frames(read, 5.0, 1.0, 2, 3)[:, :, 0, 0, 0]
        tensor([[0, 1, 1],
                [2, 3, 3]], dtype=torch.uint8)
    """
    places = {index: place for place, index in reversed(list(enumerate(read.indices)))}  # each frame once
    times = {place: read.timestamps_seconds[place] - start_seconds for place in sorted(places.values())}
    seconds = num_segments * segment_seconds - read.missing_seconds
    num_segments = max(1, min(num_segments, math.ceil((seconds - ROUNDING_SECONDS) / segment_seconds)))
    groups: list[list[int]] = [[] for _ in range(num_segments)]
    for place, time in times.items():
        groups[min(max(int((time + ROUNDING_SECONDS) / segment_seconds), 0), num_segments - 1)].append(place)
    chosen = []
    for number, group in enumerate(groups):
        middle = (number + 0.5) * segment_seconds
        members = group or [min(times, key=lambda place: abs(times[place] - middle))]
        steps = [(2 * step + 1) * len(members) // (2 * num_frames) for step in range(num_frames)]
        chosen.append([members[step] for step in steps])
    return read.frames[torch.tensor(chosen)]
