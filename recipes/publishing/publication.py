"""A folder that is ready for the Hub, and where it goes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Publication:
    """Everything that one commit on the Hub takes."""

    repo_type: Literal["dataset", "model", "space"]
    repo_id: str
    """`ORG/NAME`."""
    folder: Path
    """Every file in it goes up; nothing else does. Its `README.md` is the card."""
    needs: tuple[str, ...] = ()
    """Repositories, as `ORG/NAME`, that this one's files refer to; `publish.py all` publishes them before."""
