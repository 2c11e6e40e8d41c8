"""A folder that is written whole or not at all, whatever happens to its writer."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def draft_of(folder: str | PathLike[str]) -> Iterator[Path]:
    """Lend an empty folder that takes the place of `folder` when the block ends without an error.

    One process at a time writes a folder, the next one waits. What a killed writer left is removed first.

    Args:
        folder: The folder to write; what it held is gone afterwards, or all of it is still there.

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
    with _locked(folder, timeout=-1):
        _restore(folder)
        draft = _workplace(folder) / "new"
        try:
            draft.mkdir(parents=True)
            yield draft
            if folder.exists():
                folder.replace(draft.with_name("old"))
            draft.replace(folder)
        finally:
            _restore(folder)


def sweep(folder: str | PathLike[str]) -> None:
    """Remove what a killed writer of `folder` left, and put back what it had put aside; a living writer's draft stays."""
    folder = Path(folder).absolute()
    if _workplace(folder).is_dir():
        with suppress(Timeout), _locked(folder, timeout=0):
            _restore(folder)


def _workplace(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.draft")


@contextmanager
def _locked(folder: Path, timeout: float) -> Iterator[None]:
    lock = folder.with_name(f".{folder.name}.lock")
    with FileLock(lock, timeout=timeout):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)  # who waits for it notices, and takes the next one


def _restore(folder: Path) -> None:
    old = _workplace(folder) / "old"
    if old.exists() and not folder.exists():
        old.replace(folder)
    shutil.rmtree(_workplace(folder), ignore_errors=True)
