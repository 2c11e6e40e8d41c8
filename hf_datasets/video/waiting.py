"""The requests of one call of a pool: which wait, which are set aside, and which worker has what helps with them."""

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from .worker_process import VideoRequest, WorkerProcess


@dataclass(slots=True)
class Run:
    """The requests of one call that no worker holds.

    Attributes:
        waiting: In the order in which they are to be read.
        source: Gives more of them; None while it has none.
        lanes: The worker of each lane.
        postponed: By file, the requests that timed out, which a loaded machine can cause, and those behind them.
        retried: The postponed request that is being tried once more, while no other request is running.
    """

    waiting: deque[VideoRequest]
    source: Iterator[VideoRequest | None] | None = None
    lanes: dict[Hashable, WorkerProcess] = field(default_factory=dict)
    postponed: dict[str, deque[VideoRequest]] = field(default_factory=dict)
    retried: VideoRequest | None = None

    def refill(self, number: int) -> None:
        """Take requests from the source until so many wait, or it has none for now; a retried one stays alone."""
        while self.source is not None and self.retried is None and len(self.waiting) < number:
            try:
                request = next(self.source)
            except StopIteration:
                self.source = None
                return
            if request is None:
                return
            self.waiting.append(request)

    def postpone(self, request: VideoRequest) -> None:
        """Set a request aside until nothing else is left."""
        self.postponed.setdefault(str(request.path), deque()).append(request)

    def is_postponed(self, request: VideoRequest) -> bool:
        """Whether a request waits behind one of its file that was set aside."""
        return str(request.path) in self.postponed and request is not self.retried

    def retry_next(self) -> None:
        """Try one of those set aside once more."""
        self.retried = next(iter(self.postponed.values())).popleft()
        self.waiting.append(self.retried)

    def release(self, request: VideoRequest) -> None:
        """After the answer to a retried request, queue the others of its file again."""
        if request is self.retried:
            self.retried = None
            self.waiting.extend(self.postponed.pop(str(request.path)))
