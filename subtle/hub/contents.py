"""The files of a folder that go to the Hub, and what must not go with them."""

import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.plugins.base import RegexBasedDetector
from detect_secrets.plugins.keyword import CONFIG_DENYLIST_REGEX_TO_GROUP, DENYLIST, KeywordDetector

from hf_models.cards import RESULTS_FOLDER
from subtle.commands import RECIPES

NOT_PUBLISHED = {".git", ".cache", "__pycache__", ".DS_Store"}
"""Names of folders and files that tools leave behind."""
SAMPLE_BYTES = 8192
"""A file with a zero byte among so many first ones is not text."""
BINARY_BYTES = 1 << 17
"""How much of a file that is not text is searched for secrets: the pickled options of a training may hold a token."""
VOCABULARIES = {"tokenizer.json", "vocab.json", "vocab.txt", "merges.txt"}
"""Files of tokens, in which a text that looks like a path or a password is none."""
HOMES = (
    r"/(?:home|Users|root|mnt|media|Volumes|scratch)/[^/\s\"'`<>$]+"
    r"|[A-Za-z]:(?:\\{1,2}|/)(?i:users|documents and settings)(?:\\{1,2}|/)[^/\\\s\"'`<>$]+"
)
KEY_FILES = re.compile(r"id_(rsa|dsa|ecdsa|ed25519)|_netrc|.*\.(pem|ppk|p12|pfx|jks|kdbx)")
ASSIGNMENTS = {"Cloudant Credentials", "IBM COS HMAC Credentials", "IBM Cloud IAM Key", "SoftLayer Credentials"}
"""Found by `KEYWORDS`, too, and slowly here."""
SECRET_CLASSES: dict[str, Any] = get_mapping_from_secret_type_to_class()
SECRET_DETECTORS = [
    detector()
    for kind, detector in sorted(SECRET_CLASSES.items())
    if issubclass(detector, RegexBasedDetector) and kind not in ASSIGNMENTS | {"Artifactory Credentials"}
]
KEYWORDS = KeywordDetector()
KEYWORD = re.compile("|".join(DENYLIST), re.IGNORECASE)
MORE_SECRETS = {
    "a token of the Hub": re.compile(r"\b(?:hf|api_org)_[A-Za-z0-9]{20,}\b"),
    "a key of Google": re.compile(r"\bAIza[\w-]{35}"),
    "a key of a language model": re.compile(r"\bsk-(?:ant|or|proj|svcacct|admin)-[\w-]{20,}"),
    "a token of GitHub": re.compile(r"\bgithub_pat_\w{22,}"),
}
"""What `detect-secrets` does not know."""
PREFIXED = [detector for detector in SECRET_DETECTORS if detector.secret_type in {"AWS Access Key", "GitHub Token"}]
"""Those whose secrets begin in a way that no word of a vocabulary does, as those of `MORE_SECRETS` do."""
LOOKS_MADE = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])[\w+/=.~-]{20,}")
"""A value after `password` or `api_key` that no one would call a word or an expression."""


def files_of(folder: Path) -> dict[str, Path]:
    """Path in the repository -> file, sorted; empty folders, hidden files and what tools leave behind are left out.

    Raises:
        FileNotFoundError: The folder is not there, or has no card.
        ValueError: It holds a link that leads out of it, or something that is neither a file nor a folder, or a
            file of keys.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder")
    root = folder.resolve()
    found = {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if NOT_PUBLISHED & set(relative.parts) or is_hidden(relative):
            continue
        if path.is_symlink() and (path.is_dir() or not path.resolve().is_relative_to(root)):
            raise ValueError(f"{path} is a link to {path.readlink()}; put a copy in its place, or remove it")
        if path.is_file():
            if KEY_FILES.fullmatch(path.name):
                raise ValueError(f"{relative.as_posix()} is a file of keys by its name; remove it, or rename it")
            found[relative.as_posix()] = path
        elif not path.is_dir():
            raise ValueError(f"{path} is neither a file nor a folder; remove it")
    if "README.md" not in found:
        raise FileNotFoundError(f"{folder} has no README.md, the card that the Hub shows; write one")
    return found


def is_hidden(path: Path) -> bool:
    """Whether a file or one of its folders is hidden, as those with keys of a user are; the Hub's own are not."""
    is_of_the_hub = path.parts[:-1] == (RESULTS_FOLDER,) and path.suffix == ".yaml"
    return any(part.startswith(".") for part in path.parts) and not is_of_the_hub


def hidden_files(folder: Path) -> list[str]:
    """Files that do not go because they are hidden, without what tools leave behind."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    return sorted(path.as_posix() for path in found if is_hidden(path) and not NOT_PUBLISHED & set(path.parts))


def machine_folders(*more: Path | str | None) -> set[str]:
    """Absolute paths that tell where a file was made: home, working directory, this checkout, and `more`."""
    folders = [Path.home(), Path.cwd(), RECIPES.parent, *(Path(path) for path in more if path)]
    paths = {str(path) for folder in folders for path in (folder.absolute(), folder.resolve())}
    return paths - {"/", tempfile.gettempdir()}


def check_files(files: dict[str, Path], folders: Iterable[str]) -> None:
    """Refuse text that names a folder of this machine or someone's home, and any file with a secret.

    Raises:
        ValueError: With the file, its line and the path, or the kind of the secret, which is not repeated.
    """
    own = "|".join(re.escape(folder) for folder in sorted(folders, key=len, reverse=True))
    # A word, a dot or a bracket before the slash makes it the middle of another path or address.
    machine = re.compile(rf"(?<![\w.~*)}}\]<>-])(?:{own}|{HOMES})(?![\w.-])")
    for name, path in files.items():
        is_vocabulary = path.name in VOCABULARIES
        is_text, lines = text_lines(path)
        for number, line in enumerate(lines, start=1):
            if kind := secret_in(line, of_words=is_vocabulary):
                raise ValueError(f"{name}, line {number}, holds {kind}; remove it, and revoke it where others saw it")
            if is_text and not is_vocabulary and (match := machine.search(line)):
                rest = re.match(r"[^\s\"'`<>]{0,80}", line[match.start() :])
                raise ValueError(
                    f"{name}, line {number}, names {rest[0] if rest else match[0]}, a path of the machine that made "
                    "it; write it without, or leave the file out"
                )


def secret_in(line: str, *, of_words: bool = False) -> str | None:
    """The kind of secret that a line holds; in a line `of_words`, of those that begin as no word does."""
    for kind, pattern in MORE_SECRETS.items():
        if pattern.search(line):
            return kind
    for detector in PREFIXED if of_words else SECRET_DETECTORS:
        if any(detector.analyze_string(line)):
            return f"a secret ({detector.secret_type})"
    if of_words:
        return None
    values = KEYWORDS.analyze_string(line, CONFIG_DENYLIST_REGEX_TO_GROUP) if KEYWORD.search(line) else ()
    return f"a secret ({KEYWORDS.secret_type})" if any(LOOKS_MADE.match(value) for value in values) else None


def text_lines(path: Path) -> tuple[bool, Iterator[str]]:
    """Whether a file is text, and its lines; of another file the first ones, read as if it were.

    Without its zero bytes, UTF-16 reads as UTF-8 as far as secrets go, which are ASCII.
    """
    with path.open("rb") as file:
        sample = file.read(SAMPLE_BYTES)
        if b"\0" in sample:
            content = (sample + file.read(BINARY_BYTES)).replace(b"\0", b"").decode(errors="replace")
            return False, iter(content.split("\n"))
    return True, path.open(encoding="utf-8", errors="replace", newline="\n")
