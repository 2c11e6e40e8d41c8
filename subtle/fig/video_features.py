"""Features of videos second by second, encoded here or by the workers of a Ray cluster."""

import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from hf_datasets.video import VideoFrames
from hf_datasets.video.pool import VideoFailure, VideoReaderPool
from hf_datasets.video.segments import count_segments, group_frames, segment_requests
from hf_models.moments.feature_encoders import CLIPS_PER_READ, ClipEncoder
from subtle.run.accelerator import make_accelerator
from subtle.run.shards import ShardWorker, check_origin


def answers(
    videos: list[dict[str, Any]], encoder: ClipEncoder, config: Any
) -> Iterator[tuple[tuple[str, float], VideoFrames | VideoFailure]]:
    """The frames of each read or why there are none, in any order."""
    requests = [
        request
        for video in videos
        for request in segment_requests(
            video["video_id"],
            video["video"],
            video["duration_seconds"],
            segment_seconds=config.clip_seconds,
            segments_per_read=CLIPS_PER_READ,
        )
    ]
    limits: dict[str, Any] = {"num_workers": config.num_workers, "timeout_seconds": config.timeout_seconds}
    with VideoReaderPool(CLIPS_PER_READ * encoder.frames_per_clip, size=encoder.size, **limits) as pool:
        yield from pool.read(requests)


def encode_videos(
    videos: list[dict[str, Any]],
    encoder: ClipEncoder,
    config: Any,
    failures: dict[str, str],
    accelerator: Accelerator,
) -> Iterator[tuple[list[str], list[Tensor]]]:
    """Video ids and their features `(clips, D)`, as videos are complete; what cannot be read goes to `failures`."""
    by_id = {video["video_id"]: video for video in videos}
    parts: dict[str, dict[float, Tensor | None]] = {video_id: {} for video_id in by_id}
    for (video_id, start), read in answers(videos, encoder, config):
        video = by_id[video_id]
        if isinstance(read, VideoFailure):
            parts[video_id][start] = None
            if not start:  # a later read may begin behind the end
                failures[video_id] = read.reason
        else:
            clips = group_frames(read, start, config.clip_seconds, CLIPS_PER_READ, encoder.frames_per_clip)
            with accelerator.autocast():
                parts[video_id][start] = encoder(clips)
        num_clips = count_segments(video["duration_seconds"], config.clip_seconds)
        if len(parts[video_id]) == math.ceil(num_clips / CLIPS_PER_READ):
            done = parts.pop(video_id)
            in_order: list[Any] = [done[start] for start in sorted(done)]
            kept = list(itertools.takewhile(lambda part: part is not None, in_order))
            if kept:
                yield [video_id], [torch.cat(kept)[:num_clips]]


def origin_of(encoder: ClipEncoder, config: Any) -> dict[str, Any]:
    """What the features depend on, by name."""
    return {**encoder.fingerprints, "sampler": encoder.sampler, "clip_seconds": config.clip_seconds}


class VideoWorker(ShardWorker):
    """Encodes shards of videos in a worker.

    Args:
        config: The fields of `EmbedMomentsConfig`.
        origin: What the features depend on, by `origin_of`; it has to be the same on every machine.

    Raises:
        ValueError: It is not.
    """

    def __init__(self, config: Mapping[str, Any], origin: Mapping[str, Any]) -> None:
        self.config = SimpleNamespace(**config)
        self.accelerator = make_accelerator(
            self.config.device, Path("outputs"), mixed_precision=self.config.mixed_precision
        )
        self.encoder = ClipEncoder(self.config.vision_model, frames_per_clip=self.config.frames_per_clip)
        check_origin(origin_of(self.encoder, self.config), origin)
        self.encoder.model.to(self.accelerator.device)

    def encode(self, items: list[dict[str, Any]], failures: dict[str, str]) -> Iterator[tuple[list[str], list[Tensor]]]:
        """See `shards.ShardWorker`."""
        return encode_videos(items, self.encoder, self.config, failures, self.accelerator)
