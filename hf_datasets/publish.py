"""Rows -> Parquet and a card in a folder that `load_dataset` opens, and that `subtle publish dataset` sends."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from hf_datasets.builders import FOLDERS, write_rejections
from hf_datasets.drafts import draft_of
from hf_datasets.publishing.cards import COUNTS_END as COUNTS_END
from hf_datasets.publishing.cards import COUNTS_START as COUNTS_START
from hf_datasets.publishing.cards import About, card_text
from hf_datasets.publishing.generation_code import GenerationCode, write_generation_code
from hf_datasets.publishing.shards import MAX_SHARD_BYTES, write_split
from hf_datasets.records import Rejection

CONFIGURATION_NAME = re.compile(r"\w[\w.-]*")
SPLIT_NAME = re.compile(r"\w+(\.\w+)*")
"""What `datasets` takes for a split; both become a folder or file name and a cell of the card's table."""
LICENSE_ID = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")

Configurations = Mapping[str, Mapping[str, Iterable[pa.Table]]]
"""Configuration -> split -> its rows, in tables of one schema."""


class NoRowsError(ValueError):
    """Nothing was accepted, so there is no dataset to write."""


def write_folder(
    configurations: Configurations,
    folder: str | os.PathLike[str],
    *,
    card: str | os.PathLike[str],
    provenance: Mapping[str, object] | None = None,
    rejections: Sequence[Rejection] = (),
    about: About | None = None,
    code: GenerationCode | None = None,
) -> Path:
    """Write `<configuration>/<split>-00000-of-00001.parquet` and the card, all or nothing.

    A split of 1,000 rows or more has at least four files. A split without rows is counted in the card but gets no file,
    because `datasets` opens no empty split. Videos of a `Video` feature (images and audio too) are stored in the files;
    a column `video` of plain paths is emptied.

    Args:
        configurations: The rows to write; the first configuration is the default one. A `Dataset` gives its tables with
            `dataset.with_format("arrow").iter(10_000)`, or fewer rows where they hold videos.
        folder: A folder that does not exist yet, or is empty.
        card: The card to start from, Markdown with a YAML header and the two marks `COUNTS_START` and `COUNTS_END`;
            the counts go between them, configurations, features, sizes and number of rows into the header. Of its
            parts, those about other configurations are left out (`hf_datasets.publishing.cards`).
        provenance: Other facts of the origin: writer, seed, revisions, coverage.
        rejections: The refused rows; counted in the card and written beside it.
        about: What else the card says: title, repository, license, citation.
        code: What made the rows; the folder then holds `generation`, which rebuilds them.

    Returns:
        The folder.

    Raises:
        FileExistsError: The folder has files.
        NoRowsError: There are no rows to write.
        FileNotFoundError: A video is not where its row says.
        ValueError: A configuration or split has a name that is not a file name, the license is not an identifier, or
            the card lacks the marks or has an unreadable header.
    """
    folder, card, about = Path(folder), Path(card), _publishable(about or About())
    if folder.is_dir() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; name another folder, or remove this one")
    check_names(configurations)
    with draft_of(folder) as draft:
        splits = {
            (name, split): write_split(tables, draft / name, split, max_shard_bytes=MAX_SHARD_BYTES)
            for name, parts in configurations.items()
            for split, tables in parts.items()
        }
        if not any(written.num_rows for written in splits.values()):
            raise NoRowsError(f"there is no row to write to {folder}; see what was rejected")
        sections = {"Generation code": write_generation_code(draft, code)} if code else {}
        text = card_text(
            card, splits, provenance=provenance or {}, rejections=rejections, about=about, sections=sections
        )
        (draft / "README.md").write_text(text, encoding="utf-8")
        if rejections:
            write_rejections(draft, ((None, rejection) for rejection in rejections))
    return folder


def check_names(configurations: Mapping[str, Iterable[str]]) -> None:
    """Check that configurations and their splits have names that stay in the folder and that `datasets` takes.

    Raises:
        ValueError: One has not.
    """
    for name, splits in configurations.items():
        if not CONFIGURATION_NAME.fullmatch(name):
            raise ValueError(
                f"configuration {name!r} is not a folder name; use letters, digits, '_', '-' and '.', "
                "the first a letter"
            )
        for split in splits:
            if not SPLIT_NAME.fullmatch(split):
                raise ValueError(
                    f"split {split!r} of {name!r} is not a split name; use letters, digits and '_', such as 'train'"
                )


def _publishable(about: About) -> About:
    """The same without the folders of this machine in its texts.

    Raises:
        ValueError: The license has no name that the Hub knows the form of.
    """
    if about.license and not LICENSE_ID.fullmatch(about.license):
        raise ValueError(f"license {about.license!r} is not an identifier of the Hub; write it like cc-by-4.0 or mit")
    return replace(about, descriptions={name: FOLDERS.sub("", text) for name, text in about.descriptions.items()})
