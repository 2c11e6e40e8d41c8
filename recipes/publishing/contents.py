"""The files of a folder that go to the Hub, and what must not go with them."""

import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.commands import RECIPES

RECORD = ".subtle.json"
"""What the upload writes into each repository about itself."""
NOT_PUBLISHED = {".git", ".cache", "__pycache__", ".DS_Store", RECORD}
"""Names of folders and files that tools leave behind."""
SAMPLE_BYTES = 8192
"""A file with a zero byte among so many first ones is not text."""
VOCABULARIES = {"tokenizer.json", "vocab.json", "vocab.txt", "merges.txt"}
"""Files of tokens, in which a text that looks like a path is none."""
HUB_TOKEN = re.compile(rb"\bhf_[A-Za-z0-9]{34}\b")
HOMES = r"/(?:home|Users)/[^/\s\"'`<>$]+"


def files_of(folder: Path) -> dict[str, Path]:
    """Path in the repository -> file, sorted; empty folders, and what tools leave behind, are left out.

    Raises:
        FileNotFoundError: The folder is not there, or has no card.
        ValueError: It holds a link that leads out of it, or something that is neither a file nor a folder.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder")
    root = folder.resolve()
    found = {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if NOT_PUBLISHED & set(relative.parts):
            continue
        if path.is_symlink() and (path.is_dir() or not path.resolve().is_relative_to(root)):
            raise ValueError(f"{path} is a link to {path.readlink()}; put a copy in its place, or remove it")
        if path.is_file():
            found[relative.as_posix()] = path
        elif not path.is_dir():
            raise ValueError(f"{path} is neither a file nor a folder; remove it")
    if "README.md" not in found:
        raise FileNotFoundError(f"{folder} has no README.md, the card that the Hub shows; write one")
    return found


def machine_folders(*more: Path | str | None) -> set[str]:
    """Absolute paths that tell where a file was made: home, working directory, this checkout, and `more`."""
    folders = [Path.home(), Path.cwd(), RECIPES.parent, *(Path(path) for path in more if path)]
    paths = {str(path) for folder in folders for path in (folder.absolute(), folder.resolve())}
    return paths - {"/", tempfile.gettempdir()}


def check_text(files: dict[str, Path], folders: Iterable[str]) -> None:
    """Refuse text that names a folder of this machine, someone's home, or holds a token of the Hub.

    Raises:
        ValueError: With the file, its line and the path; a token is not repeated.
    """
    own = "|".join(re.escape(folder) for folder in sorted(folders, key=len, reverse=True))
    # A word, a dot or a bracket before the slash makes it the middle of another path or address.
    machine = re.compile(rf"(?<![\w.~*)}}\]>-])(?:{own}|{HOMES})(?![\w.-])".encode())
    for name, path in files.items():
        for number, line in enumerate(text_lines(path), start=1):
            if HUB_TOKEN.search(line):
                raise ValueError(f"{name}, line {number}, holds a token of the Hub; remove it, and revoke the token")
            if path.name not in VOCABULARIES and (match := machine.search(line)):
                rest = re.match(rb"[^\s\"'`<>]{0,80}", line[match.start() :])
                shown = (rest[0] if rest else match[0]).decode(errors="replace")
                raise ValueError(
                    f"{name}, line {number}, names {shown}, a path of the machine that made it; write it without, "
                    "or leave the file out"
                )


def text_lines(path: Path) -> Iterator[bytes]:
    """The lines of a text file; none of another."""
    with path.open("rb") as file:
        if b"\0" not in file.read(SAMPLE_BYTES):
            file.seek(0)
            yield from file


def size_text(num_bytes: int) -> str:
    """A size as people read it.

    >>> size_text(999), size_text(1_249_728)
    ('999 B', '1.2 MB')
    """
    size = float(num_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
