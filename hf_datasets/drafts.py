"""Files and folders that are written whole or not at all, even if their writer is killed.

`draft_of` is for a folder that several processes may write: one at a time does, and the old folder stays until the end.
`replacing` is for a file, or for a folder that only one process writes; `replacing_files` for some files of a folder.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError

# safetensors and PyTorch have errors of their own for a full disk; tokenizers raises a plain one, see `writing`.
WRITE_ERRORS = (OSError, SafetensorError, RuntimeError)


@contextmanager
def draft_of(folder: str | PathLike[str]) -> Iterator[Path]:
    """Lend an empty folder that takes the place of `folder` when the block ends without an error.

    One process at a time writes a folder, the next one waits. Leftovers of a killed writer are removed first.

    Args:
        folder: The folder to write; its old content is replaced as a whole, or left unchanged.

    Yields:
        Where to write, on the same disk.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as place:
        ...     with draft_of(Path(place, "made")) as draft:
        ...         _ = (draft / "rows.txt").write_text("1")
        ...     [path.relative_to(place).as_posix() for path in Path(place).rglob("*")]
        ['made', 'made/rows.txt']
    """
    folder = Path(folder).absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _folder_lock(folder, timeout=-1):
        _restore(folder)
        draft = _workplace(folder) / "new"
        try:
            draft.mkdir(parents=True)
            yield draft
            to_disk(*draft.rglob("*"), draft)
            if folder.exists():
                folder.replace(draft.with_name("old"))
            draft.replace(folder)
            to_disk(folder.parent)
        finally:
            _restore(folder)


def sweep(folder: str | PathLike[str]) -> None:
    """Remove a killed writer's leftovers and restore the old `folder`; a running writer's draft stays."""
    folder = Path(folder).absolute()
    if _workplace(folder).is_dir():
        with suppress(Timeout), _folder_lock(folder, timeout=0):
            _restore(folder)


def _workplace(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.draft")


@contextmanager
def _folder_lock(folder: Path, timeout: float) -> Iterator[None]:
    lock = folder.with_name(f".{folder.name}.lock")
    with FileLock(lock, timeout=timeout):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)  # a waiting process notices, and makes its own


def _restore(folder: Path) -> None:
    old = _workplace(folder) / "old"
    if old.exists() and not folder.exists():
        old.replace(folder)
    shutil.rmtree(_workplace(folder), ignore_errors=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the path and the cure where the block cannot write it: the libraries' errors of a full disk name neither.

    Args:
        path: What the block writes, or the folder it writes into.

    Raises:
        OSError: It cannot be written.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, WRITE_ERRORS) and "(os error " not in str(error):  # a plain one of tokenizers
            raise
        if getattr(error, "errno", None) in {errno.EMFILE, errno.ENFILE}:
            raise  # too many open files are not the folder's fault
        raise OSError(
            f"{path} cannot be written ({error}); see that its disk has room and that you may write there, or name "
            "another folder, and run again: finished work is kept"
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Lend a name beside `path` to write a file or a folder under; it takes the place of `path` when the block ends.

    A reader of a file sees the old one or the new one, never half of it. After an error nothing of the new one stays.

    Args:
        path: The file or folder to write; missing parent folders are made.

    Yields:
        Where to write: a name with the suffix `.tmp`, on the same disk.

    Raises:
        OSError: It cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with replacing(Path(folder, "made", "rows.txt")) as unfinished:
        ...         _ = unfinished.write_text("1")
        ...     [path.relative_to(folder).as_posix() for path in Path(folder).rglob("*.*")]
        ['made/rows.txt']
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield unfinished
            to_disk(*unfinished.rglob("*"), unfinished)
            if unfinished.is_dir():
                shutil.rmtree(path, ignore_errors=True)  # a folder replaces an empty one alone
            unfinished.replace(path)
            to_disk(path.parent)
        finally:
            remove(unfinished)


@contextmanager
def replacing_files(folder: Path) -> Iterator[Path]:
    """Lend a folder to write several files into; when the block ends, each of them takes its place in `folder`.

    After an error none of them does. Other files of `folder` stay. `results.json` is moved last, so it is never beside
    another run's files.

    Args:
        folder: The folder that is to hold the files; it is made where it is missing.

    Yields:
        Where to write: an empty folder in `folder`.

    Raises:
        OSError: It cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with replacing_files(Path(folder)) as unfinished:
        ...         _ = (unfinished / "rows.txt").write_text("1")
        ...     [path.name for path in Path(folder).iterdir()]
        ['rows.txt']
    """
    unfinished = folder / f"{os.getpid()}.tmp"
    try:
        with writing(folder):
            unfinished.mkdir(parents=True)
        yield unfinished
        with writing(folder):
            files = [path for path in unfinished.rglob("*") if path.is_file()]
            to_disk(*files)
            for path in sorted(files, key=lambda path: path.name == "results.json"):
                place = folder / path.relative_to(unfinished)
                place.parent.mkdir(parents=True, exist_ok=True)
                path.replace(place)
            to_disk(folder)
    finally:
        remove(unfinished)


def to_disk(*paths: Path) -> None:
    """Wait until files, and the names in folders, are on the disk, where a power loss leaves them."""
    if len(paths) == 1:
        _to_disk(*paths)
        return
    with ThreadPoolExecutor(8) as pool:  # what is waited for together is few writes to the disk
        list(pool.map(_to_disk, paths))


def _to_disk(path: Path) -> None:
    if os.name != "posix" and path.is_dir():
        return  # only POSIX opens folders
    # What another process removed meanwhile, or a link to nothing; some network file systems know no fsync of folders.
    with suppress(OSError if path.is_dir() else FileNotFoundError):
        file = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a file atomically, as UTF-8."""
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, atomically; what JSON does not know is written as its `str`."""
    write_text(path, json.dumps(value, indent=2, default=str))
