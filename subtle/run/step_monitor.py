"""What a tracker is told of training steps: speed, waiting, memory, and the share of a GPU's peak that they use."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

import torch
from torch.utils.flop_counter import FlopCounterMode

from subtle.run.gpus import peak_flops

LOG_STEPS = 10
"""Of so many steps one is logged, from the first on."""

AnyBatch = TypeVar("AnyBatch")


class StepMonitor:
    """Measures the steps of one process, and sums up those of all.

    Nothing is read from a device: what a step measured goes with its loss to all processes, and comes back as
    numbers once the step is done.

    Args:
        device: Of this process.
        is_half: Whether the forward pass is in float16 or bfloat16; the share of the peak is known only then.
    """

    def __init__(self, device: torch.device, *, is_half: bool) -> None:
        self.device = device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
        self.peak = peak_flops(name) if is_half else None
        self.flops_per_row: float | None = None
        self.counter: FlopCounterMode | None = None
        self.waited = 0.0
        self.restart()

    def restart(self) -> None:
        """Begin to measure anew, after what is no training."""
        self.since, self.rows, self.waited_seconds = time.perf_counter(), 0.0, 0.0

    def waiting(self, batches: "Iterator[AnyBatch]") -> "Iterator[AnyBatch]":
        """The batches, with the time counted until each is there; the FLOPs of the first step are counted, too."""
        while True:
            begin = time.perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                return
            self.waited += time.perf_counter() - begin
            if self.peak and self.flops_per_row is None:
                self.counter = FlopCounterMode(display=False).__enter__()
            yield batch

    def close(self) -> None:
        """Count no further FLOPs."""
        if self.counter is not None:
            self.counter.__exit__(None, None, None)
            self.counter = None

    def measured(self, num_rows: int) -> list[float]:
        """Of the step that ends, on this process: its rows, the seconds that it waited for them, and peak bytes."""
        if self.counter is not None:
            self.flops_per_row = self.counter.get_total_flops() / num_rows
            self.close()
        waited, self.waited = self.waited, 0.0
        return [float(num_rows), waited, float(self.peak_bytes())]

    def peak_bytes(self) -> int:
        """The most memory that the process had: on its GPU, or without one of the machine."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        if sys.platform == "win32":
            return 0
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    def add(self, measured: Sequence[Sequence[float]]) -> None:
        """Count a step that is done.

        Args:
            measured: What `measured` gave on each process.
        """
        self.rows += sum(rows for rows, *_ in measured)
        self.waited_seconds += sum(waited for _, waited, _ in measured) / len(measured)

    def figures(self, measured: Sequence[Sequence[float]]) -> dict[str, float]:
        """What to log after a step, over the steps since the last figures; begins anew.

        Args:
            measured: What `measured` gave on each process.
        """
        seconds = max(time.perf_counter() - self.since, 1e-9)
        figures = {
            "step/rows_per_second": self.rows / seconds,
            "step/share_waiting_for_data": self.waited_seconds / seconds,
            "step/peak_memory_gigabytes": max(most for *_, most in measured) / 1e9,
        }
        if self.peak and self.flops_per_row:
            used = self.flops_per_row * self.rows / len(measured) / seconds
            figures["step/flop_utilization"] = used / self.peak
        self.restart()
        return figures
