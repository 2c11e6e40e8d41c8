"""How benchmarks measure: side by side, interleaved, medians, because the machines are noisy."""

import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Ratio:
    """One line of a benchmark: the ratio of `baseline` to our way, and the goal.

    With `at_most` the value is a cost (ours over the baseline) and the goal an upper bound; otherwise it is a
    gain (the baseline over ours) and the goal a lower bound. `goal=None` marks a value for information.
    """

    what: str
    baseline: str
    value: float
    goal: float | None = None
    at_most: bool = False
    detail: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None where there is none."""
        if self.goal is None:
            return None
        return self.value <= self.goal if self.at_most else self.value >= self.goal


def interleave(ways: dict[str, Callable[[], object]], rounds: int = 5) -> dict[str, float]:
    """Median seconds of each way, run in turns after one warm-up so that noise falls on all alike."""
    for way in ways.values():
        way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def peak_megabytes() -> float:
    """Peak resident memory of this process so far, in MB; `ru_maxrss` would carry over that of its parent."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def resident_megabytes() -> float:
    """Memory that this process has now, in MB (Linux)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def cpu_seconds() -> float:
    """Processor seconds of this process and its threads so far, which other work on the machine does not lengthen."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
