"""Which frames each moment of a file needs, and the reads that bring them, each frame once.

Reading stretches of eight windows one by one would be simpler, and took 1.4 times the processor time on 80 s of 1080p
with a keyframe every 10 s (12.0 and 8.6 s, 78 windows of 2 s every second).
"""

import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from hf_datasets.footage.files import file_fingerprint
from hf_datasets.footage.moments import VideoMoment, cut_moments, moment_name, shots
from hf_datasets.footage.shot_detection import shot_detector
from hf_datasets.video.spans import clip_keys
from hf_datasets.video.timeline import Timeline
from subtle.footage.sources import WantedFile

FRAMES_PER_READ_OF_SHOTS = 250
END_TOLERANCE_SECONDS = 1.0  # as of TF-CoVR's clips: annotated times are rounded


@dataclass
class ReadFile:
    """What became of a file.

    Attributes:
        wanted: The file and its moments.
        fingerprint: Of its content.
        moments: Those to read, each with its times.
        failures: By moment id, why it could not be read.
        reason: Why the whole file cannot be used; None where it can.
        is_lasting: Whether `reason` stays until the file changes.
    """

    wanted: WantedFile
    fingerprint: str = ""
    moments: list[VideoMoment] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    reason: str | None = None
    is_lasting: bool = True

    def identify(self) -> None:
        """Set the fingerprint."""
        try:
            self.fingerprint = file_fingerprint(self.wanted.file.path)
        except OSError as error:
            self.reason, self.is_lasting = f"{self.wanted.file.video}: {error.strerror or error}", False

    def as_row(self) -> dict[str, Any]:
        """The row of the index's table of files."""
        file = self.wanted.file
        kept = [moment for moment in self.moments if moment.moment_id not in self.failures]
        reason = self.reason or (next(iter(self.failures.values()), "no moment") if not kept else None)
        return {
            "video": file.video,
            "fingerprint": self.fingerprint,
            "moments_of": self.wanted.moments_of,
            "status": "indexed" if reason is None else "quarantined",
            "reason": reason,
            "failures": json.dumps(self.failures),
            "size": file.size,
            "modified_ns": file.modified_ns,
            "num_moments": len(kept) if self.reason is None else 0,
        }


def plan_moments(file: ReadFile, timeline: Timeline, edges: Sequence[float] = ()) -> None:
    """Set the moments of a file whose frames are known, and the edges of whose shots where it is cut into them."""
    wanted, end = file.wanted, round(timeline.end_seconds, 3)
    if (promised := timeline.promised_seconds) > end + END_TOLERANCE_SECONDS:
        file.failures[moment_name(wanted.file.video, end, promised)] = (
            f"{wanted.file.video}: its frames end at {end:g} s, and its header says {promised:g} s: the rest is "
            "missing; fetch the file again if it was cut off"
        )
    if wanted.windows is not None:
        file.moments = cut_moments(wanted.file.video, wanted.windows.spans(end))
    elif wanted.moments is None:
        file.moments = cut_moments(wanted.file.video, shots(edges))
    else:
        file.moments = [
            moment if moment.end_seconds is not None else replace(moment, start_seconds=0.0, end_seconds=end)
            for moment in wanted.moments
        ]
        for moment in file.moments:
            assert moment.end_seconds is not None
            if moment.end_seconds > end + END_TOLERANCE_SECONDS:
                file.failures[moment.moment_id] = (
                    f"{moment.video}: the moment {moment.start_seconds:g} to {moment.end_seconds:g} s ends after the "
                    f"video, which has {end:g} s; correct it"
                )


class FilePlan:
    """The moments of a file, each of which is complete when the last of its frames has been read.

    They come in the order in which they are complete, which the file alone decides: as few frames as possible wait.

    Args:
        file: With its moments; gets the failures of those without frames.
        timeline: Of the file.
        num_frames: Of each moment.
        frames_per_read: About how many frames are read together.

    Attributes:
        reads: In the order of the video.
        options: Of the requests.
        left: Moments whose frames do not all decode, which are to be read one by one.
    """

    def __init__(self, file: ReadFile, timeline: Timeline, num_frames: int, frames_per_read: int) -> None:
        found = []
        for moment in file.moments:
            if moment.moment_id in file.failures:
                continue
            assert moment.start_seconds is not None  # `plan_moments` has set both
            assert moment.end_seconds is not None
            keys = clip_keys(timeline, moment.start_seconds, moment.end_seconds, num_frames)
            if keys:
                found.append((moment, keys))
            else:
                file.failures[moment.moment_id] = (
                    f"{file.wanted.file.path}: no frame in [{moment.start_seconds}, {moment.end_seconds}) seconds; the "
                    f"video has {timeline.end_seconds:.3f} s: fix the annotation, or check that this is the right file"
                )
        self.timeline, self.options = timeline, dict[str, Any]()
        self.waiting = deque(sorted(found, key=lambda one: max(one[1])))
        self.uses = Counter(key for _, keys in found for key in set(keys))
        self.reads = timeline.reads(sorted(self.uses), frames_per_read) if found else []
        self.kept: dict[int, np.ndarray] = {}
        self.left: list[VideoMoment] = []

    def add(self, number: int, pixels: Mapping[int, np.ndarray]) -> Iterator[tuple[VideoMoment, Any]]:
        """Take the frames of the next read, by their keys; gives the moments that are complete now."""
        at = self.reads[number].keys[-1]
        have = self.kept | dict(pixels)
        while self.waiting and max(self.waiting[0][1]) <= at:
            moment, keys = self.waiting.popleft()
            self.uses.subtract(set(keys))
            if all(key in have for key in keys):
                frames = np.stack([have[key] for key in keys])
                yield moment, torch.from_numpy(frames).permute(0, 3, 1, 2)  # (T, C, H, W), as `read_frames` has them
            else:
                self.left.append(moment)
        # Copied, or a frame would keep all frames of its read in memory.
        self.kept = {key: frame if key in self.kept else frame.copy() for key, frame in have.items() if self.uses[key]}


class ShotPlan:
    """All frames of a file, small, for a detector of shots; reads as those of a `FilePlan`, but complete no moment.

    Attributes:
        reads: In the order of the video.
        options: Of the requests.
    """

    def __init__(self, file: ReadFile, timeline: Timeline) -> None:
        self.timeline = timeline
        self.detector = shot_detector(file.wanted.detector)
        self.options = {"size": self.detector.size}
        self.reads = timeline.reads(timeline.keys.tolist(), FRAMES_PER_READ_OF_SHOTS)
        self.last: np.ndarray | None = None

    def add(self, number: int, pixels: Mapping[int, np.ndarray]) -> Iterator[tuple[VideoMoment, Any]]:
        """Take the frames of the next read, by their keys; for one that does not decode, the one before."""
        frames = []
        for key in self.reads[number].keys:
            self.last = pixels.get(key, self.last)
            frames.append(self.last)
        first = next((frame for frame in frames if frame is not None), None)
        if first is not None:
            self.detector.add(np.stack([first if frame is None else frame for frame in frames]))
        return iter(())

    def edges(self) -> list[float]:
        """Where shots begin, from 0 on, and where the last one ends, in seconds."""
        end = self.timeline.end_seconds
        cuts = (self.timeline.seconds(int(self.timeline.keys[cut])) for cut in self.detector.cuts())
        return [0.0, *(cut for cut in cuts if 0 < cut < end), end]
