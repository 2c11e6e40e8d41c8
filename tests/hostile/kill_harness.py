"""Kill a program at random moments, start it again with the same command, and compare with a run that was not killed.

A chain is one folder in which a program is killed up to `KILLS_PER_CHAIN` times, each run going on from the last, until
one run completes. Every kill is checked: nothing the run started outlives it, and an interrupt (-2) ends it
in one line. Which signals come, and at which share of a run, is decided by the seed alone: where a run was complete
before its signal came, the chain begins again with half as long a wait, so every machine counts the same kills.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hf_datasets.video.shared_memory import PREFIX, PixelFolder
from subtle.run.accelerator import REQUEUE

LAUNCH = Path(__file__).with_name("launch.py")
SIGNALS = tuple(signal.Signals(int(number)) for number in os.environ.get("KILL_SIGNALS", "9 15 2").split())
KILLS_PER_CHAIN = 3
IMPORT_SHARE = 0.1  # of the kills, in the import phase
LONGEST_RUN_SECONDS = 400
MOST_BEGINNINGS = 12  # of one chain
# An interrupted run finishes the step at hand; what a killed one started notices within seconds.
GRACE_SECONDS = 20
LEFTOVERS = ("*.tmp", "*.partial", "*.draft", "*.old", "*.incomplete", "best.safetensors", "checkpoints")
INTERRUPTED = "interrupted; what is done is kept, run again to go on"


@dataclass(frozen=True)
class Job:
    """A program that can be killed.

    Attributes:
        name: of the program.
        command: the words after `python launch.py` that make it write below a folder.
        outcome: what it left in that folder, by name: arrays are compared by value, all else as it is.
        status: with which a complete run ends.
        processes: how many `accelerate launch` starts; with one it starts by itself.
        tolerance: largest difference of two arrays, relative to the largest value.
        environment: further variables of a run that writes below a folder.
    """

    name: str
    command: Callable[[Path], list[Any]]
    outcome: Callable[[Path], Mapping[str, Any]]
    tolerance: float = 0.0
    status: int = 0
    processes: int = 1
    environment: Callable[[Path], Mapping[str, str]] = lambda folder: {}


@dataclass
class Report:
    """The outcomes of the kills of one job."""

    name: str
    kills: Counter = field(default_factory=Counter)
    chains: int = 0
    faults: list[str] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """What the seed decides, so the same in every run."""
        by_signal = {f"-{int(one)}": self.kills[one] for one in SIGNALS}
        return {"recipe": self.name, "kills": sum(by_signal.values()), **by_signal, "in groups": self.kills["group"],
                "in imports": self.kills["import"], "resumed": self.chains, "escapes": len(self.faults),
                "equal": "no" if self.faults else "yes"}  # fmt: skip


@dataclass(frozen=True)
class Strike:
    """Which signal comes when: seconds after the start, or after the imports; of several processes, to this rank."""

    signal: signal.Signals
    whole_group: bool
    rank: int
    in_imports: bool
    seconds: float


class Run:
    """One started process in its own group, known by a variable that all it starts inherit."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.status, self.processes = job.status, job.processes
        self.token = uuid.uuid4().hex
        self.mark, self.log = folder / f"{self.token}.mark", folder / f"{self.token}.log"
        environment = os.environ | {
            "KILL_TOKEN": self.token,
            "MARK": str(self.mark),
            "OMP_NUM_THREADS": "1",
            "ACCELERATE_USE_CPU": "true",
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_CACHE": str(folder / "cache"),
            **job.environment(folder / "out"),
        }
        (folder / "here").mkdir(parents=True, exist_ok=True)
        self.start = time.monotonic()
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, *launcher(job.processes), LAUNCH, *map(str, job.command(folder / "out"))],
                env=environment,
                cwd=folder / "here",
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def wait(self, is_enough: Callable[[], bool] = lambda: False, seconds: float = LONGEST_RUN_SECONDS) -> bool:
        """Wait until the process has ended or something else is enough; whether either came in time."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and not is_enough():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    def wait_for_imports(self) -> float:
        """Seconds until the work began."""
        self.wait(self.mark.exists)
        return time.monotonic() - self.start

    def strike(self, strike: Strike) -> bool:
        """Send the signal at its moment; whether the process was still there."""
        if not strike.in_imports:
            self.wait_for_imports()
        begin = time.monotonic()
        self.wait(lambda: time.monotonic() - begin >= strike.seconds)
        if self.process.poll() is not None:
            return False
        self.held = pixel_folders(self.token)
        for pid in self.struck(strike):
            with suppress(ProcessLookupError):
                os.kill(pid, strike.signal)
        return True

    def struck(self, strike: Strike) -> list[int]:
        """The processes that a signal goes to, the first that was started before those that it started."""
        if strike.whole_group:
            return [self.process.pid, *(pid for pid in living(self.token) if pid != self.process.pid)]
        if self.processes == 1:
            return [self.process.pid]
        found = [pid for pid in living(self.token) if rank_of(pid, self.process.pid) == strike.rank]
        return found or [self.process.pid]

    @property
    def is_complete(self) -> bool:
        """Whether the work was complete, even if a signal met the interpreter at its end."""
        return self.process.poll() == self.status or Path(f"{self.mark}.done").exists()

    def errors(self) -> str:
        return self.log.read_text(errors="replace")

    def end(self) -> None:
        """End it and all that it started."""
        for pid in [self.process.pid, *living(self.token)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


def living(token: str) -> list[int]:
    """The processes that inherited a token, but for those that have ended and wait for their parent."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"KILL_TOKEN={token}".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:  # it ended, or is another user's
            continue
    return found


def launcher(processes: int) -> list[str]:
    """The words that start so many processes on the CPU; none for one."""
    if processes == 1:
        return []
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"num_processes": processes, "num_machines": 1, "mixed_precision": "no", "dynamo_backend": "no"}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return ["-m", "accelerate.commands.launch", "--multi_gpu", *words, "--main_process_port", str(port)]


def rank_of(pid: int, parent: int) -> int | None:
    """The rank of a process that `accelerate launch` started; None for all others."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        started_by = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None
    named = [one.partition(b"=")[2] for one in variables if one.startswith(b"LOCAL_RANK=")]
    return int(named[0]) if named and started_by == parent else None


def pixel_folders(token: str) -> set[Path]:
    """The folders of pixels that the processes of a run hold open."""
    found = set()
    for pid in living(token):
        try:
            links = [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        found |= {link for link in links if link.name.startswith(PREFIX)}
    return found


def plan(seconds: tuple[float, float], generator: random.Random, processes: int = 1) -> Strike:
    """A moment of a run whose imports and whose work take so many seconds."""
    in_imports = generator.random() < IMPORT_SHARE
    return Strike(
        signal=generator.choice(SIGNALS),
        whole_group=generator.random() < 0.5,
        rank=generator.randrange(processes),
        in_imports=in_imports,
        seconds=generator.uniform(0, seconds[0 if in_imports else 1]),
    )


def faults_of_kill(run: Run, strike: Strike, report: Report) -> list[str]:
    """What is wrong with how a struck run ended."""
    struck, faults = time.monotonic(), []
    if not run.wait(seconds=GRACE_SECONDS):
        faults.append(f"{strike} did not end it within {GRACE_SECONDS} s")
        run.process.kill()
    status = run.process.wait()
    while (left := living(run.token)) and time.monotonic() - struck < GRACE_SECONDS:
        time.sleep(0.02)
    if left:
        commands = [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")[:200] for pid in left]
        faults.append(f"{strike} left processes behind: {commands}")
        run.end()
    if run.processes > 1:  # what their launcher says of a dead rank is its own
        return faults if status or run.is_complete else [*faults, f"{strike} ended it with status 0"]
    ends = {-strike.signal, REQUEUE if strike.signal == signal.SIGTERM else -strike.signal}  # after a checkpoint
    if strike.signal != signal.SIGINT and status not in ends and not run.is_complete:
        faults.append(f"{strike} ended it with status {status}")
    if strike.signal == signal.SIGINT and run.mark.exists() and not run.is_complete:
        errors = run.errors()
        if status != 130 or "Traceback" in errors or INTERRUPTED not in errors:
            faults.append(f"{strike} ended it with status {status} and these words:\n{errors[-3000:]}")
    return faults


def chain(
    job: Job, folder: Path, seconds: tuple[float, float], seed: str, late: list[int], report: Report
) -> list[Strike]:
    """Kill and resume until a run completes.

    Args:
        job: The program.
        folder: An empty folder.
        seconds: How long the imports and the work take.
        seed: Decides signals and moments.
        late: For each kill how often it was too late before; each time halves its wait.
        report: Takes the faults.

    Returns:
        The kills before a run was complete.
    """
    generator, held, hits = random.Random(seed), set(), []
    for number in range(len(late) + 1):
        run = Run(job, folder)
        try:
            if number < len(late):
                imports, work = seconds
                strike = plan((imports, work / 2 ** late[number]), generator, job.processes)
                if run.strike(strike):
                    report.faults += [f"{seed}: {fault}" for fault in faults_of_kill(run, strike, report)]
                    held |= run.held
                    if not run.is_complete:
                        hits.append(strike)
                        continue
            if not run.wait() or not run.is_complete:
                report.faults.append(f"{seed}: resumed, it ended with {run.process.poll()}:\n{run.errors()[-3000:]}")
            break
        finally:
            run.end()
    PixelFolder().remove()  # as the next run does that reads videos
    report.faults += [f"{seed}: {one} of a killed run is still there" for one in held if one.exists()]
    return hits


def differences(expected: Mapping[str, Any], found: Mapping[str, Any], tolerance: float) -> list[str]:
    """In which names two outcomes differ."""
    wrong = [f"{name} is only in one of them" for name in sorted(expected.keys() ^ found.keys())]
    for name in expected.keys() & found.keys():
        one, other = expected[name], found[name]
        if isinstance(one, np.ndarray):
            same = one.shape == other.shape and (
                np.array_equal(one, other) or bool(np.abs(one - other).max() <= tolerance * max(1.0, np.abs(one).max()))
            )
        else:
            same = one == other
        if not same:
            wrong.append(f"{name} differs: {str(one)[:100]} and {str(other)[:100]}")
    return wrong


def leftovers(folder: Path) -> set[str]:
    """What an unfinished run leaves for the next one."""
    return {str(path.relative_to(folder)) for pattern in LEFTOVERS for path in folder.rglob(pattern)}


def hunt(job: Job, root: Path, kills: int, seed_of_all: int = 0, at_once: int = 2) -> Report:
    """Kill a job so many times; the outcomes.

    Args:
        job: The program.
        root: An empty folder for its runs.
        kills: How many.
        seed_of_all: Decides signals and moments.
        at_once: Chains that run at the same time.
    """
    report = Report(job.name)
    whole = Run(job, root / "whole")
    imports = whole.wait_for_imports()
    try:
        if not whole.wait() or not whole.is_complete:
            raise AssertionError(f"{job.name} ended with {whole.process.poll()}:\n{whole.errors()[-3000:]}")
    finally:
        whole.end()
    seconds = imports, time.monotonic() - whole.start - imports
    expected = job.outcome(root / "whole" / "out")
    assert expected, f"{job.name} left nothing to compare"

    def one(number: int, kills: int) -> None:
        seed, late = f"{job.name} {seed_of_all} {number}", [0] * kills
        for beginning in range(MOST_BEGINNINGS):
            folder = root / f"chain-{number}-{beginning}"
            hits = chain(job, folder, seconds, seed, late, report)
            wrong = differences(expected, job.outcome(folder / "out"), job.tolerance)
            wrong += [f"{name} is left behind" for name in sorted(leftovers(folder) - leftovers(root / "whole"))]
            report.faults += [f"{seed}: {one}" for one in wrong]
            shutil.rmtree(folder)
            if len(hits) == kills:
                break
            late[len(hits)] += 1
        report.chains += 1
        for strike in hits:
            report.kills.update([strike.signal] + ["group"] * strike.whole_group + ["import"] * strike.in_imports)

    sizes = [KILLS_PER_CHAIN] * (kills // KILLS_PER_CHAIN) + [kills % KILLS_PER_CHAIN] * (kills % KILLS_PER_CHAIN > 0)
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(one, range(len(sizes)), sizes))
    return report
