"""What keeps an index in a folder whole when the power fails.

New files are on the disk before a commit counts as done, and tables whose newest version cannot be read go back to the
last one that can.

LanceDB replaces files atomically but leaves it to the system when their content reaches the disk, so what a power loss
cuts are the newest files. A bucket needs none of this.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hf_models.atomic_files import to_disk

NEWEST_VERSION = "latest_version_hint.json"
TRANSACTIONS = "_transactions"
DAMAGE = re.compile(r"LanceError\(IO\)|LanceError\(Arrow\): (?:Io|Parser) error|lance error: Not found: ")


def connect(path: str) -> Any:
    """A connection to the LanceDB database of an index.

    Raises:
        ImportError: LanceDB is not installed.
    """
    try:
        import lancedb
    except ImportError as error:
        raise ImportError("an index needs LanceDB: pip install 'subtle-video[index]'") from error
    return lancedb.connect(path)


class FilesOnDisk:
    """The files of tables that are known to be on the disk: none at first.

    Args:
        folder: Of the tables.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known: set[Path] = set()

    def add_new(self) -> None:
        """Wait until all new files and folders are on the disk."""
        found = set(self._files())
        new = found - self.known
        to_disk(*new, *{path.parent for path in new})
        self.known = found

    def _files(self) -> Iterator[Path]:
        """All but those of transactions, which are of use only while they run.

        Yields:
            Files and folders.
        """
        for table in self.folder.glob("*.lance"):
            yield table
            for place, folders, names in os.walk(table):
                if TRANSACTIONS in folders:
                    folders.remove(TRANSACTIONS)
                yield from (Path(place, name) for name in (*folders, *names))


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Name an index, and the cure, where LanceDB cannot read its files.

    Raises:
        OSError: It cannot be read.
        RuntimeError: Something else is wrong.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_damage(error):
            raise
        reason = str(error).partition(", /")[0]
        raise OSError(
            f"the index {path} cannot be read ({reason}); where its files were cut short, as by a power loss, run the "
            f"`subtle index FOLDER --output {path}` that made it again: it goes back to the last state that can be "
            "read, and indexes what is missing"
        ) from error


def is_damage(error: Exception) -> bool:
    """Whether an error of LanceDB is a file that is not whole or not there, and not one of the system or of a query."""
    return bool(DAMAGE.search(str(error))) and not re.search(r"\(os error (?!2\))\d+\)", str(error))


def go_back(folder: Path) -> list[str]:
    """Take back the newest versions of the tables of a folder until each can be read.

    A table without any such version is removed.

    Returns:
        The names of the tables that lost something.
    """
    changed = []
    for table in sorted(folder.glob("*.lance")):
        versions = sorted((table / "_versions").glob("*.manifest"))  # their names count down: the newest is the first
        whole = len(versions)
        while versions and not _can_be_read(folder, table.stem):
            (table / "_versions" / NEWEST_VERSION).unlink(missing_ok=True)
            versions.pop(0).unlink()
        if not versions:
            shutil.rmtree(table)
        if len(versions) < max(whole, 1):
            changed.append(table.stem)
    return changed


def _can_be_read(folder: Path, name: str) -> bool:
    """Whether each file of a table's newest version is there up to its end, where LanceDB keeps what it reads first.

    Raises:
        RuntimeError: It cannot be read for another reason, such as the version of LanceDB that wrote it.
    """
    try:
        table = connect(str(folder)).open_table(name)
        key = table.schema.names[0]
        num_rows = table.search().select([key]).limit(None).to_arrow().num_rows
        for index in table.list_indices():
            (column,) = index.columns
            if column == "vector":
                table.search([0.0] * table.schema.field(column).type.list_size, column).nprobes(1).limit(1).to_arrow()
            elif table.count_rows(f"{column} >= ''") != num_rows:
                return False
    except RuntimeError as error:
        if not is_damage(error):
            raise
        return False
    return True
