"""The frames of the moments of many videos: planned, read in worker processes and batched ahead of the model.

Videos come in groups, whose batches do not depend on anything that was read before: after a kill the groups that are
left are the same, and so are their vectors. Reading does not stop between them: while the frames of one file are read,
the next files are hashed and planned.
"""

import itertools
import queue
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hf_datasets.footage.moments import VideoMoment
from hf_datasets.video import VideoFrames
from hf_datasets.video.pool import VideoFailure, VideoReaderPool, VideoRequest
from hf_datasets.video.spans import request_of, timeline_of
from hf_datasets.video.timeline import Timeline
from subtle.footage.planning import FilePlan, ReadFile, ShotPlan, plan_moments
from subtle.footage.sources import WantedFile

FILES_PER_GROUP = 8
BYTES_PER_GROUP = 256 << 20
BATCHES_AHEAD = 2
READS_AHEAD_PER_WORKER = 5  # that wait for those before them: three are held by the worker
CHANGED = "it changed or vanished while it was indexed"


@dataclass(frozen=True)
class MomentBatch:
    """Moments to embed: `frames`, a tensor `(num_frames, 3, height, width)` uint8 of each."""

    moments: list[VideoMoment]
    frames: list[Any]


@dataclass(frozen=True)
class EmbeddedMoments:
    """Moments and their vectors `(n, D)`, float32, that were made elsewhere."""

    moments: list[VideoMoment]
    vectors: Any


@dataclass(frozen=True)
class GroupEnd:
    """After its last batch: the files of a group."""

    files: list[ReadFile]


@dataclass(frozen=True)
class BytesRead:
    """How many bytes of files are done since the last message."""

    bytes: int


ReaderMessage = MomentBatch | EmbeddedMoments | GroupEnd | BytesRead


def file_groups(files: Iterable[WantedFile]) -> Iterator[list[WantedFile]]:
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
    """Reads groups of files.

    Args:
        pool: With `spans.read_spans` as its reader.
        num_frames: Of each moment.
        batch_size: Moments of a batch.
        moments_per_read: As many frames as these have are read together, or a few more or less.
    """

    def __init__(self, pool: VideoReaderPool, num_frames: int, *, batch_size: int, moments_per_read: int) -> None:
        self.pool, self.num_frames, self.batch_size = pool, num_frames, batch_size
        self.frames_per_read = moments_per_read * num_frames

    def read_all(self, groups: Iterable[list[WantedFile]]) -> Iterator[ReaderMessage]:
        """The batches of each group and its end, one group after the other.

        Raises:
            OSError: See `VideoReaderPool.read`.
        """
        reading = Reading(self, groups)
        try:
            for key, answer in self.pool.read_on_demand(reading.requests()):
                number, place = key
                reading.answer(number, place, answer)
                yield from reading.new_messages()
            yield from reading.new_messages()
        finally:
            reading.stopped.set()
        if reading.files:
            raise RuntimeError(f"the frames of {reading.files[0].file.wanted.file.video} have not come")


@dataclass(eq=False)
class FileInWork:
    """A file between its discovery and its last moment.

    Attributes:
        number: Of all files, in order.
        file: What is known of it.
        hashed: Done when its fingerprint is known.
        group: When it is the last of a group, all files of that.
        plan: Once its frames are known.
        sent: How many reads were requested.
        taken: How many reads were taken over.
        answers: Of reads that wait for those before them; None: no frames.
        alone: Moments that are read alone, when everything else is read; None before.
    """

    number: int
    file: ReadFile
    hashed: "Future[None]"
    group: list[ReadFile] | None = None
    is_asked: bool = False
    plan: FilePlan | ShotPlan | None = None
    sent: int = 0
    taken: int = 0
    answers: dict[int, Any] = field(default_factory=dict)
    alone: list[VideoMoment] | None = None

    @property
    def num_reads(self) -> int:
        """How many reads there are to request now."""
        if self.plan is None or self.file.reason is not None:
            return 0
        return len(self.plan.reads if self.alone is None else self.alone)


class Reading:
    """One run of a `GroupReader`: what is requested and what becomes of the answers.

    Attributes:
        files: Those in work, in order.
        stopped: Set when nobody wants more.
    """

    def __init__(self, reader: GroupReader, groups: Iterable[list[WantedFile]]) -> None:
        self.reader, self.groups = reader, iter(groups)
        self.files: deque[FileInWork] = deque()
        self.hashing: queue.SimpleQueue[FileInWork] = queue.SimpleQueue()
        self.stopped = threading.Event()
        self.messages: list[ReaderMessage] = []
        self.batch: list[tuple[VideoMoment, Any]] = []
        self.num_files = self.num_running = 0
        self.files_ahead = 2 + 2 * reader.pool.num_workers
        self.reads_ahead = READS_AHEAD_PER_WORKER * max(1, reader.pool.num_workers)
        threading.Thread(target=self.hash_files, daemon=True).start()

    def hash_files(self) -> None:
        """Find the fingerprints of files, one after the other."""
        while not self.stopped.is_set():
            with suppress(queue.Empty):
                work = self.hashing.get(timeout=0.2)
                try:
                    work.file.identify()
                except BaseException as error:
                    work.hashed.set_exception(error)
                else:
                    work.hashed.set_result(None)

    def requests(self) -> Iterator[VideoRequest | None]:
        """For `VideoReaderPool.read_on_demand`."""
        while True:
            self.look_ahead()
            self.advance()
            request = self.next_request()
            if request is None and not self.num_running:
                if not self.files or self.files[0].hashed.done():
                    return
                self.files[0].hashed.result()  # nothing else is under way
                continue
            self.num_running += request is not None
            yield request

    def look_ahead(self) -> None:
        """Have the fingerprints of the next files found."""
        while len(self.files) < self.files_ahead and (group := next(self.groups, None)) is not None:
            files = [ReadFile(wanted) for wanted in group]
            for place, file in enumerate(files, start=1):
                self.num_files += 1
                work = FileInWork(self.num_files, file, Future(), files if place == len(files) else None)
                self.files.append(work)
                self.hashing.put(work)

    def next_request(self) -> VideoRequest | None:
        """What a worker can do now: plan the next files, else read the frames of the first that are planned."""
        files = list(itertools.islice(self.files, self.files_ahead))
        for work in files:
            if not work.is_asked and work.hashed.done() and work.file.reason is None:
                work.is_asked = True
                path = work.file.wanted.file.path
                return VideoRequest((work.number, None), path, options={"find": "timeline"})
        if sum(work.sent - work.taken for work in files) < self.reads_ahead:
            for work in files:
                if work.sent < work.num_reads:
                    work.sent += 1
                    return self.frames_of(work, work.sent - 1)
        return None

    @staticmethod
    def frames_of(work: FileInWork, place: int) -> VideoRequest:
        """The request of a read."""
        key, path = (work.number, place), work.file.wanted.file.path
        if work.alone is not None:
            return VideoRequest(key, path, work.alone[place].start_seconds, work.alone[place].end_seconds)
        assert work.plan is not None
        return request_of(key, path, work.plan.reads[place], work.plan.timeline, **work.plan.options)

    def answer(self, number: int, place: int | None, answer: VideoFrames | VideoFailure) -> None:
        """Take over an answer, and all that waited for it."""
        self.num_running -= 1
        work = next((work for work in self.files if work.number == number), None)
        if work is None:
            return  # of a file that was given up
        if isinstance(answer, VideoFailure) and (
            place is None or str(work.file.wanted.file.path) in self.reader.pool.quarantine
        ):
            work.file.reason = answer.reason
        elif place is not None:
            work.answers[place] = answer
        else:
            assert isinstance(answer, VideoFrames)  # a failure without a place is of the whole file, as above
            timeline = timeline_of(answer)
            if work.file.wanted.finds_shots:
                work.plan = ShotPlan(work.file, timeline)
            else:
                self.plan_moments(work, timeline)
        self.advance()

    def plan_moments(self, work: FileInWork, timeline: Timeline, edges: Sequence[float] = ()) -> None:
        """Plan the moments of a file whose frames and, where they matter, shots are known."""
        plan_moments(work.file, timeline, edges)
        work.plan = FilePlan(work.file, timeline, self.reader.num_frames, self.reader.frames_per_read)
        work.sent = work.taken = 0

    def advance(self) -> None:
        """Take over the answers whose turn it is, and finish files."""
        while self.files:
            work = self.files[0]
            if work.file.reason is None:
                if not work.hashed.done() or work.plan is None:
                    return
                self.take_reads(work)
                if work.taken < work.num_reads:
                    return
                if isinstance(work.plan, ShotPlan):
                    self.plan_moments(work, work.plan.timeline, work.plan.edges())
                    continue
                if work.alone is None:
                    work.alone, work.sent, work.taken = work.plan.left, 0, 0
                    continue
            self.finish(work)

    def take_reads(self, work: FileInWork) -> None:
        """Take over the answers to the reads of a file, in order."""
        assert work.plan is not None
        while work.taken in work.answers and work.file.reason is None:
            answer, number = work.answers.pop(work.taken), work.taken
            work.taken += 1
            if work.alone is None:
                is_read = isinstance(answer, VideoFrames) and answer.indices
                pixels = answer.frames.permute(0, 2, 3, 1).numpy() if is_read else ()
                keys = answer.indices if is_read else ()
                for moment, frames in work.plan.add(number, dict(zip(keys, pixels, strict=True))):
                    self.add(moment, frames)
                if isinstance(work.plan, FilePlan):
                    self.messages.append(BytesRead(work.file.wanted.file.size // len(work.plan.reads)))
            elif isinstance(answer, VideoFrames):
                self.add(work.alone[number], answer.frames)
            else:
                work.file.failures[work.alone[number].moment_id] = answer.reason

    def add(self, moment: VideoMoment, frames: Any) -> None:
        """Add a moment to the batch."""
        self.batch.append((moment, frames))
        if len(self.batch) == self.reader.batch_size:
            self.end_batch()

    def end_batch(self) -> None:
        """Hand the batch over."""
        if self.batch:
            self.messages.append(MomentBatch(*map(list, zip(*self.batch, strict=True))))
            self.batch = []

    def finish(self, work: FileInWork) -> None:
        """Leave a file behind, and with the last one its group."""
        self.files.popleft()
        if work.group is None:
            return
        self.end_batch()
        for file in work.group:
            if not file.wanted.file.is_unchanged:
                file.reason, file.is_lasting = CHANGED, False
        self.messages.append(GroupEnd(work.group))

    def new_messages(self) -> list[ReaderMessage]:
        """What was not handed over yet."""
        messages, self.messages = self.messages, []
        return messages


def read_ahead(reader: GroupReader, groups: Iterable[list[WantedFile]]) -> Iterator[ReaderMessage]:
    """What the reader gives for all groups, read in a thread so that decoding and the model overlap."""
    messages: queue.Queue[ReaderMessage | BaseException | None] = queue.Queue(BATCHES_AHEAD)
    stopped = threading.Event()
    work = threading.Thread(target=fill_queue, args=(messages, reader, groups, stopped), daemon=True)
    work.start()
    try:
        while (message := messages.get()) is not None:
            if isinstance(message, BaseException):
                raise message
            yield message
    finally:
        stopped.set()
        work.join(timeout=1.0)


def fill_queue(
    messages: "queue.Queue[ReaderMessage | BaseException | None]",
    reader: GroupReader,
    groups: Iterable[list[WantedFile]],
    stopped: threading.Event,
) -> None:
    """Put all that the reader gives into a queue, and in the end None, or the error that ended it."""
    ending: BaseException | None = None
    try:
        for message in reader.read_all(groups):
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
