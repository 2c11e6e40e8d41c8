"""The options of `check`."""

from dataclasses import dataclass

from subtle.options import option
from subtle.run.shared_config import Device, OutputConfig, VideosConfig


@dataclass
class CheckConfig(VideosConfig, OutputConfig):
    """What to check."""

    data_dir: str | None = option(None, "Folder of the annotations, as they were downloaded; needed.")
    output_dir: str = "outputs/check"


@dataclass
class DoctorConfig(OutputConfig):
    """What to check."""

    device: Device = option("auto", "What to check beside the processor; auto: the GPU where there is one.")
    output_dir: str = "outputs/doctor"
