"""Files that appear whole or not at all, and the removal of what a killed process left unfinished."""

import errno
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

ABANDONED_SECONDS = 3600  # without a change, of a writer whose process cannot be looked up


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a name to write a file under; once it is whole it takes the place of `path`, else nothing of it stays.

    Args:
        path: what to write; its folder is made.

    Yields:
        A path beside it.

    Raises:
        OSError: It cannot be written; the message names the path, which the libraries' errors of a full disk do not.

    Example:
        >>> path = Path(tempfile.mkdtemp()) / "words.txt"
        >>> with replacing(path) as unfinished:
        ...     _ = unfinished.write_text("subtle")
        >>> path.read_text()
        'subtle'
    """
    unfinished = path.with_name(f"{path.name}.{platform.node()}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield unfinished
            to_disk(unfinished)
            unfinished.replace(path)
            to_disk(path.parent)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            raise  # the path is not at fault
        raise OSError(_how_to_write(path, error)) from error
    except (SafetensorError, RuntimeError) as error:  # of safetensors and PyTorch for a full disk
        raise OSError(_how_to_write(path, error)) from error


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder to write into; once it is whole it gets the name `path`, else nothing of it stays.

    Args:
        path: Must not exist, or be an empty folder; the folders above it are made.

    Yields:
        A folder beside it.

    Raises:
        ValueError: Something is there.

    Example:
        >>> path = Path(tempfile.mkdtemp()) / "model"
        >>> with new_folder(path) as scratch:
        ...     _ = (scratch / "words.txt").write_text("subtle")
        >>> [file.name for file in path.iterdir()]
        ['words.txt']
    """
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise ValueError(f"{str(path)!r} is there already; name a new folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
    try:
        yield scratch
        scratch.chmod(0o755)  # mkdtemp's folders are private
        to_disk(*scratch.rglob("*"), scratch)
        scratch.replace(path)
        to_disk(path.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


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


def _how_to_write(path: Path, error: Exception) -> str:
    return (
        f"{path} cannot be written ({error}); see that its disk has room and that you may write there, or name another "
        "folder, and run again: what is done is kept"
    )


def remove_abandoned(folder: Path) -> None:
    """Remove what `replacing` left in a folder when its process was killed.

    A file of this machine is removed if its process is gone, one of another machine if it has not changed for an hour.
    """
    for unfinished in folder.glob("*.tmp"):
        with suppress(OSError):  # another process removed it, or it is not ours to remove
            if _is_abandoned(unfinished):
                unfinished.unlink()


def _is_abandoned(unfinished: Path) -> bool:
    name, _, process = unfinished.stem.rpartition(".")
    # Earlier releases left out the machine. On Windows, signal 0 would interrupt the process.
    is_from_here = name.endswith((f".{platform.node()}", ".safetensors", ".json")) and process.isdecimal()
    if not is_from_here or os.name != "posix":
        return time.time() - unfinished.stat().st_mtime > ABANDONED_SECONDS
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return True
    return False
