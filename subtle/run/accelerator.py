"""The processes of a launch and the accelerator of a recipe: device, precision, tracker."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs, PartialState
from accelerate.tracking import get_available_trackers
from accelerate.utils import InitProcessGroupKwargs, ProjectConfiguration, broadcast_object_list

from subtle.run.shared_config import Device

# One process may read videos or ask a chat model for hours while the others wait for it, and NCCL would end them after
# ten minutes. Where one fails, the launcher ends the others at once.
LONGEST_WAIT = timedelta(days=1)

Value = TypeVar("Value")
REQUEUE = 75
"""Exit status of a run that a signal or `max_hours` stopped: sysexits.h's EX_TEMPFAIL, start it again."""


class Stopped(SystemExit):
    """The run stopped with a checkpoint before it was complete; starting it again goes on."""


def processes(*, cpu: bool = False) -> PartialState:
    """The processes of this launch, which wait for each other for `LONGEST_WAIT`; whoever asks first connects them."""
    return PartialState(cpu, timeout=LONGEST_WAIT)


def from_main(find: Callable[[], Value]) -> Value:
    """What the main process finds, on every process; only it need see the files, and where it refuses all end.

    Example:
        >>> from_main(lambda: 2 + 3)
        5
    """
    found: list[Any] = [None]
    refusal: Exception | SystemExit | None = None
    if processes().is_main_process:
        try:
            found = [(find(),)]
        except (Exception, SystemExit) as error:
            refusal = error
    (answer,) = broadcast_object_list(found)
    if refusal is not None:
        raise refusal
    if answer is None:  # the main process says why
        raise SystemExit(1)
    return cast("Value", answer[0])


def make_accelerator(
    device: Device,
    output_dir: Path,
    *,
    mixed_precision: str | None = None,
    tracker: str | None = None,
    find_unused_parameters: bool = False,
) -> Accelerator:
    """An accelerator as `accelerate launch` configured it, or an error where the requested device is missing.

    `mixed_precision` None leaves the choice to `accelerate launch`.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(
            "no GPU: the configuration asks for device 'cuda' but PyTorch sees none; check `nvidia-smi` and that this "
            "PyTorch was built for CUDA, or run with `--device cpu`"
        )
    if tracker is not None and tracker not in (there := [one.value for one in get_available_trackers()]):
        raise SystemExit(
            f"--tracker {tracker}: there is {', '.join(there) or 'none'}; install its package, such as by `pip install "
            "tensorboard`, or leave out --tracker"
        )
    accelerator = Accelerator(
        cpu=device == "cpu",
        mixed_precision=mixed_precision,
        log_with=tracker,
        project_config=ProjectConfiguration(project_dir=str(output_dir), logging_dir=str(output_dir / "logs")),
        kwargs_handlers=[
            DistributedDataParallelKwargs(find_unused_parameters=find_unused_parameters),
            InitProcessGroupKwargs(timeout=LONGEST_WAIT),
        ],
    )
    if accelerator.gradient_accumulation_steps > 1:
        raise SystemExit(
            f"gradient_accumulation_steps is {accelerator.gradient_accumulation_steps} in accelerate's configuration; "
            "only 1 is allowed, as negatives come from the whole batch: set it to 1, and where memory is short lower "
            "--batch_size, or see the options of VERB --help that save memory"
        )
    return accelerator
