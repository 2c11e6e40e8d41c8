"""The options of `serve`."""

from dataclasses import dataclass

from subtle.options import option
from subtle.run.shared_config import DeviceConfig, IndexModelConfig, TrustConfig, VideosConfig

DEFAULT_INDEX = "outputs/index"


@dataclass
class ServeConfig(DeviceConfig, IndexModelConfig, VideosConfig, TrustConfig):
    """What to search, and where."""

    index: str | None = option(
        None,
        "Folder that index.py made, the first word, or the address of a bucket; none: outputs/index, where the "
        "miniature's clips are indexed first if nothing is there.",
    )
    marks: str | None = option(
        None, "CSV file of the marks; none: marks.csv in the index, of a bucket's in this folder."
    )
    limit: int = option(12, "Most moments to show.")
    port: int | None = option(None, "Port on this machine; none: the first free one from 7860 on.")
    host: str = option(
        "127.0.0.1",
        "Address to listen at. On any but this machine's own there is the service without the page, and requests must "
        "bear the token that the environment variable SUBTLE_TOKEN holds.",
    )
    requests_per_minute: int | None = option(None, "Most requests of a client to the service; none: any number.")
    log_texts: bool = option(False, "Also write the texts of queries into the log of the service.")
    num_workers: int = option(2, "Processes that read videos, each one clip at a time.")
    timeout_seconds: float = option(60.0, "Longest wait for one clip; an upload that takes longer is refused.")

    def __post_init__(self) -> None:
        """Refuse what no machine has."""
        if self.port is not None and not 0 < self.port < 65536:
            raise ValueError(f"--port {self.port}: a port is a number from 1 to 65535")
        counts = {name: getattr(self, name) for name in ("limit", "num_workers", "requests_per_minute")}
        if wrong := [name for name, value in counts.items() if value is not None and value < 1]:
            raise ValueError(f"--{wrong[0]} must be at least 1, not {counts[wrong[0]]}")
        if not self.timeout_seconds > 0:
            raise ValueError(f"--timeout_seconds must be positive, not {self.timeout_seconds:g}")
