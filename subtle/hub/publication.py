"""A folder that is ready for the Hub, and where it goes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from huggingface_hub import RepoCard
from huggingface_hub.utils import validate_repo_id


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


def check_repo_id(repo_id: str) -> None:
    """Refuse what is not `ORG/NAME`.

    Raises:
        ValueError: With the form.
    """
    try:
        validate_repo_id(repo_id)
    except ValueError as error:
        raise ValueError(f"{repo_id!r} is not a name on the Hub: {error}") from None
    if "/" not in repo_id:
        raise ValueError(f"{repo_id!r} names no organization or user; write it as ORG/NAME")


def read_header_and_text(path: Path) -> tuple[dict[str, Any], str]:
    """The YAML header of a card, and its text.

    Raises:
        ValueError: The header is not readable.
    """
    try:
        card = RepoCard.load(path, ignore_metadata_errors=True)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path} has no readable YAML header: {' '.join(str(error).split())}") from None
    return card.data.to_dict(), card.text.strip()
