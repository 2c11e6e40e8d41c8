"""Folders through which processes pass pixels, in memory where there is room; those of dead programs are removed.

Each folder is locked by the program that made it. The kernel releases the lock when that program ends, however it
ends, so a folder that can be locked is abandoned. Process ids do not serve: they are reused, and differ between
containers that share their memory.
"""

import os
import platform
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: nothing is locked, so nothing is swept
    fcntl = None  # type: ignore[assignment]  # a module or None

PREFIX = "subtle-video-"
MEMORY = Path("/dev/shm")
MIN_FREE_MEMORY_BYTES = 1 << 30


class PixelFolder:
    """A new folder of this program's own; folders of programs that have ended are removed first.

    Args:
        in_memory: Whether it may be in memory; whole videos are too large for that.

    Attributes:
        path: The folder, in memory if at least 1 GiB is free there, else among the temporary files.
    """

    def __init__(self, *, in_memory: bool = True) -> None:
        # Machines may share their temporary files without sharing locks, so each removes only its own.
        prefixes = {Path(tempfile.gettempdir()): f"{PREFIX}{platform.node()}-", MEMORY: PREFIX}
        if fcntl is not None:
            for base, prefix in prefixes.items():
                _sweep(base, prefix)
        has_room = in_memory and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MIN_FREE_MEMORY_BYTES
        base, prefix = list(prefixes.items())[-1 if has_room else 0]
        self._owner = os.getpid()
        self._lock = None
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
            if fcntl is None:
                return
            # Another program's sweep can come before the lock.
            with suppress(BlockingIOError, FileNotFoundError):
                self._lock = _lock_folder(self.path)
                return

    @property
    def is_owned(self) -> bool:
        """Whether this is the process that made the folder, and not one that was forked from it."""
        return self._owner == os.getpid()

    def remove(self) -> None:
        """Remove the folder and what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _lock_folder(folder: Path) -> int | None:
    # The open folder, locked; None where the file system has no locks: then no other program can lock it either.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), folder.stat()):
            raise FileNotFoundError(folder)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, (BlockingIOError, FileNotFoundError)):
            raise
        return None
    return descriptor


def _sweep(base: Path, prefix: str) -> None:
    for folder in base.glob(f"{prefix}*"):
        with suppress(OSError):  # in use, another user's, or gone by now
            if (descriptor := _lock_folder(folder)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(descriptor)
