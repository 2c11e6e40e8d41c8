"""The frames of the moments of many videos: planned, read in worker processes and batched ahead of the model.

Videos come in groups, whose batches do not depend on anything that was read before: after a kill the groups that are
left are the same, and so are their vectors.
"""

import itertools
import json
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from hf_datasets.footage.files import fingerprint
from hf_datasets.footage.moments import VideoMoment, cut_moments, shots
from hf_datasets.video import VideoFrames
from hf_datasets.video.pool import VideoFailure, VideoReaderPool, VideoRequest
from indexing.sources import WantedFile

FILES_PER_GROUP = 8
BYTES_PER_GROUP = 256 << 20
BATCHES_AHEAD = 2
END_TOLERANCE_SECONDS = 1.0  # as of TF-CoVR's clips: annotated times are rounded
CHANGED = "it changed or vanished while it was indexed"


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


@dataclass(frozen=True)
class Batch:
    """Moments to embed: `frames`, a tensor `(num_frames, 3, height, width)` uint8 of each."""

    moments: list[VideoMoment]
    frames: list[Any]


@dataclass(frozen=True)
class GroupEnd:
    """After its last batch: the files of a group."""

    files: list[ReadFile]


@dataclass(frozen=True)
class Progress:
    """How many bytes of files are done since the last message."""

    bytes: int


Message = Batch | GroupEnd | Progress


def grouped(files: Iterable[WantedFile]) -> Iterator[list[WantedFile]]:
    """Groups of files that are committed together."""
    group: list[WantedFile] = []
    for wanted in files:
        group.append(wanted)
        if len(group) == FILES_PER_GROUP or sum(one.file.size for one in group) >= BYTES_PER_GROUP:
            yield group
            group = []
    if group:
        yield group


class GroupReader:
    """Reads groups of files, one after the other.

    Args:
        pool: With `spans.read_spans` as its reader.
        num_frames: Of each moment.
        batch_size: Moments of a batch.
        moments_per_read: Moments of one file that a worker reads together, each frame once.
    """

    def __init__(self, pool: VideoReaderPool, num_frames: int, *, batch_size: int, moments_per_read: int) -> None:
        self.pool, self.num_frames, self.batch_size = pool, num_frames, batch_size
        self.moments_per_read = moments_per_read

    def read(self, group: list[WantedFile]) -> Iterator[Message]:
        """The batches of a group and its end."""
        files = [ReadFile(wanted) for wanted in group]
        for file in files:
            self.identify(file)
        self.plan(files)
        waiting: list[tuple[VideoMoment, Any]] = []
        for found in self.frames(files):
            if isinstance(found, Progress):
                yield found
                continue
            waiting.append(found)
            if len(waiting) == self.batch_size:
                yield Batch(*map(list, zip(*waiting, strict=True)))
                waiting = []
        if waiting:
            yield Batch(*map(list, zip(*waiting, strict=True)))
        for file in files:
            if not file.wanted.file.is_unchanged:
                file.reason, file.is_lasting = CHANGED, False
        yield GroupEnd(files)

    @staticmethod
    def identify(file: ReadFile) -> None:
        """Set the fingerprint of a file."""
        try:
            file.fingerprint = fingerprint(file.wanted.file.path)
        except OSError as error:
            file.reason, file.is_lasting = f"{file.wanted.file.video}: {error.strerror or error}", False

    def plan(self, files: Sequence[ReadFile]) -> None:
        """Find where each video ends, and its moments."""
        usable = {number: file for number, file in enumerate(files) if file.reason is None}
        requests = []
        for number, file in usable.items():
            finds_shots = file.wanted.moments is None and file.wanted.windows is None
            options = {"find": "shots" if finds_shots else "end"}
            requests.append(VideoRequest(number, file.wanted.file.path, options=options))
        for number, answer in self.pool.read(requests):
            file = usable[number]
            if isinstance(answer, VideoFailure):
                file.reason = answer.reason
            else:
                plan_moments(file, answer.timestamps_seconds)

    def frames(self, files: Sequence[ReadFile]) -> Iterator[tuple[VideoMoment, Any] | Progress]:
        """The frames of each moment in the order of files and moments, those of failed reads in the end."""
        parts = [(file, part) for file in files for part in self.parts_of(file)]
        alone: list[tuple[ReadFile, list[VideoMoment]]] = []
        for number, answer in in_order(self.pool.read(self.requests(parts)), len(parts)):
            file, part = parts[number]
            if isinstance(answer, VideoFrames):
                yield from zip(part, self.split(answer, len(part)), strict=True)
            elif str(file.wanted.file.path) in self.pool.quarantine:
                file.reason = answer.reason
            elif len(part) == 1:
                file.failures[part[0].moment_id] = answer.reason
            else:
                alone += [(file, [moment]) for moment in part]
            yield Progress(file.wanted.file.size * len(part) // max(1, len(file.moments)))
        for number, answer in in_order(self.pool.read(self.requests(alone)), len(alone)):
            file, (moment,) = alone[number]
            if isinstance(answer, VideoFrames):
                yield moment, answer.frames
            elif str(file.wanted.file.path) in self.pool.quarantine:
                file.reason = answer.reason
            else:
                file.failures[moment.moment_id] = answer.reason

    def parts_of(self, file: ReadFile) -> Iterator[list[VideoMoment]]:
        """The moments of a file that are read together."""
        moments = [] if file.reason else [one for one in file.moments if one.moment_id not in file.failures]
        for start in range(0, len(moments), self.moments_per_read):
            yield moments[start : start + self.moments_per_read]

    def requests(self, parts: Sequence[tuple[ReadFile, list[VideoMoment]]]) -> list[VideoRequest]:
        """What the pool is to read, by number."""
        requests = []
        for number, (file, part) in enumerate(parts):
            start, end = part[0].start_seconds, part[0].end_seconds
            options = {}
            if len(part) > 1:
                options["spans"] = [[moment.start_seconds, moment.end_seconds] for moment in part]
                end = None
            requests.append(VideoRequest(number, file.wanted.file.path, start, end, options))
        return requests

    def split(self, read: VideoFrames, number: int) -> list[Any]:
        """The frames of each of several moments."""
        size = self.num_frames
        return [read.frames[place * size : (place + 1) * size] for place in range(number)]


def plan_moments(file: ReadFile, times: Sequence[float]) -> None:
    """Set the moments of a file whose end, or the edges of whose shots, are known."""
    wanted, end = file.wanted, round(times[-1], 3)
    if wanted.windows is not None:
        file.moments = cut_moments(wanted.file.video, wanted.windows.spans(end))
    elif wanted.moments is None:
        file.moments = cut_moments(wanted.file.video, shots(times))
    else:
        file.moments = [
            moment if moment.end_seconds is not None else replace(moment, start_seconds=0.0, end_seconds=end)
            for moment in wanted.moments
        ]
        for moment in file.moments:
            if moment.end_seconds > end + END_TOLERANCE_SECONDS:
                file.failures[moment.moment_id] = (
                    f"{moment.video}: the moment {moment.start_seconds:g} to {moment.end_seconds:g} s ends after the "
                    f"video, which has {end:g} s; correct it"
                )


def in_order(answers: Iterable[tuple[Any, Any]], number: int) -> Iterator[tuple[int, Any]]:
    """The answers 0 to `number` - 1 in this order, each as soon as those before it have come.

    >>> list(in_order([(1, "b"), (0, "a")], 2))
    [(0, 'a'), (1, 'b')]
    """
    early: dict[int, Any] = {}
    following = 0
    for place, answer in answers:
        early[place] = answer
        while following in early:
            yield following, early.pop(following)
            following += 1
    if following != number:
        raise RuntimeError(f"{number - following} reads have no answer")


def read_ahead(reader: GroupReader, groups: Iterable[list[WantedFile]]) -> Iterator[Message]:
    """What the reader gives for all groups, read in a thread so that decoding and the model overlap."""
    messages: queue.Queue[Message | BaseException | None] = queue.Queue(BATCHES_AHEAD)
    stopped = threading.Event()
    work = threading.Thread(target=fill, args=(messages, reader, groups, stopped), daemon=True)
    work.start()
    try:
        while (message := messages.get()) is not None:
            if isinstance(message, BaseException):
                raise message
            yield message
    finally:
        stopped.set()
        work.join(timeout=1.0)


def fill(
    messages: "queue.Queue[Message | BaseException | None]",
    reader: GroupReader,
    groups: Iterable[list[WantedFile]],
    stopped: threading.Event,
) -> None:
    """Put all that the reader gives into a queue, and in the end None, or the error that ended it."""
    ending: BaseException | None = None
    try:
        for message in itertools.chain.from_iterable(map(reader.read, groups)):
            put(messages, message, stopped)
            if stopped.is_set():
                return
    except BaseException as error:
        ending = error
    put(messages, ending, stopped)


def put(messages: "queue.Queue[Any]", message: Any, stopped: threading.Event) -> None:
    """Wait for a place in the queue, unless nobody takes anything from it any more."""
    while not stopped.is_set():
        with suppress(queue.Full):
            messages.put(message, timeout=0.2)
            return
