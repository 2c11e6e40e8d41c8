"""The accelerator of a recipe: device, precision, tracker."""

from pathlib import Path

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.utils import ProjectConfiguration

from subtle.run.shared_config import Device


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
    return Accelerator(
        cpu=device == "cpu",
        mixed_precision=mixed_precision,
        log_with=tracker,
        project_config=ProjectConfiguration(project_dir=str(output_dir), logging_dir=str(output_dir / "logs")),
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=find_unused_parameters)],
    )
