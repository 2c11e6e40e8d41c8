"""Start-up: what our imports, `--help` and a decoding worker cost, as multiples of `import torch`.

Each value is the processor time of a fresh process, because on a busy machine the wall time varies; the
processes take turns, and medians count.
"""

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.timing import Ratio

ROUNDS = 5
BASELINE = "import torch"
STAGE2 = Path(__file__).parents[1] / "recipes" / "stage2.py"
# What is started -> the arguments of Python, and how many times `import torch` it may cost.
STARTS: dict[str, tuple[list[str], float | None]] = {
    BASELINE: (["-c", BASELINE], None),
    "import hf_models": (["-c", "import hf_models"], 1.0),
    "import hf_datasets": (["-c", "import hf_datasets"], 0.5),
    "import metrics": (["-c", "import metrics"], 0.5),
    "a decoding worker": (["-c", "import hf_datasets.video.worker, av.video.reformatter, PIL.Image"], 0.5),
    "stage2.py --help": ([str(STAGE2), "--help"], 0.5),
    "from hf_models import AIMModel": (["-c", "from hf_models import AIMModel"], None),
    "import hf_models, peft": (["-c", "import hf_models, peft"], None),
}


def processor_seconds(arguments: list[str]) -> float:
    """The processor time of one Python process.

    Raises:
        RuntimeError: It failed.
    """
    given = ["-P", *arguments] if arguments[0] == "-c" else arguments
    process = subprocess.Popen([sys.executable, *given], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"python {' '.join(arguments)} ended with exit status {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def measure() -> Iterator[Ratio]:
    """Give the ratios of start-up."""
    seconds: dict[str, list[float]] = {name: [] for name in STARTS}
    for round_number in range(ROUNDS + 1):
        for name, (arguments, _) in STARTS.items():
            taken = processor_seconds(arguments)
            if round_number:  # the first reads the files from disk
                seconds[name].append(taken)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    for name, (_, goal) in STARTS.items():
        if name != BASELINE:
            detail = f"{medians[name]:.2f} s against {medians[BASELINE]:.2f} s of processor time"
            yield Ratio(name, BASELINE, medians[name] / medians[BASELINE], goal, at_most=True, detail=detail)
