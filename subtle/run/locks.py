"""One run at a time in a folder."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from hf_datasets.drafts import writing

LOCK = "run.lock"
# Loader processes of a killed run hold its lock until they notice, which takes PyTorch's up to 5 seconds.
LOCK_SECONDS = 10.0


@contextmanager
def only_run_in(folder: Path, option: str = "--output_dir", name: str = LOCK) -> Iterator[None]:
    """Lock a run's folder: two runs would overwrite each other's files.

    The kernel releases the lock when the process ends, however it ends.

    Args:
        folder: It is made where it is missing.
        option: That names another folder.
        name: Of the lock's file.

    Raises:
        OSError: Another run holds the folder, or it cannot be written.
    """
    lock = FileLock(folder / name)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(Timeout):
            lock.acquire(timeout=LOCK_SECONDS)
    if not lock.is_locked:
        raise OSError(f"another run is writing to {folder}; wait until it ends, or name another {option}")
    try:
        yield
    finally:
        lock.release()
