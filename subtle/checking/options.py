"""The options of `check` and `doctor`."""

from dataclasses import dataclass

from subtle.options import option
from subtle.run.shared_config import DeviceConfig, OutputConfig, VideosConfig


@dataclass
class CheckConfig(VideosConfig, OutputConfig):
    """What to check."""

    data_dir: str | None = option(None, "Folder of the annotations, as they were downloaded; needed.")
    output_dir: str = "outputs/check"


@dataclass
class DoctorConfig(DeviceConfig, OutputConfig):
    """What to check."""

    output_dir: str = "outputs/doctor"
