"""A folder and its repository on the Hub: what would change, and the one commit that changes it.

Whose is a file of the repository? A publication's commits have a title of their own (`COMMIT_TITLE`), and the Hub knows
which commit changed a file last. Files that one of them changed last, and that the new folder lacks, are deleted in the
same commit. All others stay: `.gitattributes`, results and discussions that other people added. A card that someone
else changed last stays too. A repository in which nothing is ours is left alone, unless it is taken over.
"""

import importlib.metadata
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx2
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, constants, get_token
from huggingface_hub.errors import (
    HfHubHTTPError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils.sha import git_hash, sha_fileobj
from rich.filesize import decimal

from subtle.hub.contents import check_files, files_of, hidden_files, machine_folders
from subtle.hub.options import PublishConfig
from subtle.hub.publication import Publication, check_repo_id, read_header_and_text

CARD_FILE = "README.md"
STARTS_WITH = {"gradio": "app.py", "docker": "Dockerfile", "static": "index.html"}
"""What a Space runs on -> the file that it starts with."""
GIT_ATTRIBUTES = ".gitattributes"
COMMIT_TITLE = re.compile(r"Publish \d+ files? with subtle-video \S+")
OF_THE_HUB = "initial commit"
"""The title of the commit with which the Hub makes a repository."""
OF_ANSWERS = (RuntimeError, ValueError, KeyError, TypeError, AttributeError)
"""What the client raises of metadata that the Hub refuses, and of an answer that no Hub gives."""
LOG_IN = "log in with `hf auth login`, or set HF_TOKEN to a token with write access"


class PublishingError(OSError):
    """The Hub or the way to it does not let a publication through."""


@dataclass(frozen=True)
class Remote:
    """A repository as it is before a publication.

    Attributes:
        head: The commit; None where there is none yet.
        files: Its files by path.
        private: Whether it is private; None where it is not there yet.
        tags: Name -> commit.
    """

    head: str | None = None
    files: dict[str, RepoFile] = field(default_factory=dict)
    private: bool | None = None
    tags: dict[str, str] = field(default_factory=dict)

    @cached_property
    def ours(self) -> set[str]:
        """Files that a publication changed last."""
        return {name for name, file in self.files.items() if COMMIT_TITLE.fullmatch(commit_title(file))}

    @property
    def is_strange(self) -> bool:
        """Whether someone else filled it."""
        return not self.ours and any(commit_title(file) != OF_THE_HUB for file in self.files.values())


@dataclass(frozen=True)
class UploadPlan:
    """What a publication does to its repository."""

    publication: Publication
    files: dict[str, Path]
    remote: Remote
    config: PublishConfig

    @cached_property
    def same(self) -> set[str]:
        """Files that are there already as they are."""
        there = self.remote.files
        return {name for name, path in self.files.items() if name in there and is_same(path, there[name])}

    @property
    def takes_over(self) -> bool:
        """Whether all that someone else put there goes."""
        return self.config.take_over and self.remote.is_strange

    @property
    def keeps_card(self) -> bool:
        """Whether someone edited the card on the Hub, and it stays."""
        there = self.remote.files.get(CARD_FILE)
        is_ours = there is None or CARD_FILE in self.remote.ours or commit_title(there) == OF_THE_HUB
        return not (is_ours or CARD_FILE in self.same or self.config.replace_card or self.takes_over)

    @property
    def sent(self) -> list[str]:
        """Files that are added or replaced."""
        return [name for name in self.files if name not in self.same and not (name == CARD_FILE and self.keeps_card)]

    @property
    def deleted(self) -> list[str]:
        """Files of the repository that go."""
        candidates = set(self.remote.files) if self.takes_over else self.remote.ours
        return sorted(candidates - set(self.files) - {GIT_ATTRIBUTES})

    @property
    def is_empty(self) -> bool:
        """Whether the repository is already what it is to become."""
        return not self.sent and not self.deleted

    def lines(self) -> Iterator[str]:
        """The plan as people read it: files with sizes, and what happens to each."""
        total = decimal(sum(path.stat().st_size for path in self.files.values()))
        publication = self.publication
        yield f"{publication.repo_id} ({publication.repo_type}): {count_files(self.files)}, {total}"
        marks = dict.fromkeys(self.same, "=") | {name: "~" for name in self.sent if name in self.remote.files}
        for name, path in self.files.items():
            mark = "!" if name == CARD_FILE and self.keeps_card else marks.get(name, "+")
            yield f"  {mark} {decimal(path.stat().st_size):>9}  {name}"
        for name in self.deleted:
            yield f"  - {decimal(self.remote.files[name].size):>9}  {name}"
        others = sorted(set(self.remote.files) - set(self.files) - set(self.deleted) - {GIT_ATTRIBUTES})
        if others:
            yield f"  files that others put there stay: {', '.join(others)}"
        if hidden := hidden_files(publication.folder):
            yield f"  hidden files stay here: {', '.join(hidden)}"
        if self.keeps_card:
            yield (
                "  ! README.md was edited on the Hub and stays as it is, which may not fit the new files; "
                "--replace_card replaces it"
            )


def commit_title(file: RepoFile) -> str:
    """The title of the commit that changed a file last."""
    return file.last_commit.title if file.last_commit else ""


def count_files(files: Collection[str]) -> str:
    return "1 file" if len(files) == 1 else f"{len(files)} files"


def is_same(path: Path, there: RepoFile) -> bool:
    """Whether a file is the one in the repository."""
    if path.stat().st_size != there.size:
        return False
    if there.lfs is None:
        return git_hash(path.read_bytes()) == there.blob_id
    with path.open("rb") as file:
        return sha_fileobj(file).hex() == there.lfs.sha256


def make_plan(publication: Publication, remote: Remote, config: PublishConfig) -> UploadPlan:
    """What a publication changes.

    Raises:
        FileNotFoundError: The folder is not there, or has no card.
        ValueError: The repository's name is not one, its card is not readable, a file must not leave this machine,
            someone else filled the repository, it is public and was to be private, or has the tag for another commit.
    """
    check_repo_id(publication.repo_id)
    files = files_of(publication.folder)
    check_files(files, machine_folders(publication.folder, config.output_dir, config.data_dir, config.video_dir))
    header = read_header_and_text(files[CARD_FILE])[0]
    if publication.repo_type == "space":
        check_space(header, files)
    if remote.is_strange and not config.take_over:
        some = ", ".join([*sorted(set(remote.files) - {GIT_ATTRIBUTES})[:3], "..."])
        raise ValueError(
            f"{publication.repo_id} holds files that this command did not publish ({some}); publish under another "
            "name, or add --take_over to replace them all (the repository's history keeps them)"
        )
    if config.private and remote.private is False:
        raise ValueError(
            f"{publication.repo_id} is public; make it private in its settings first, or leave out --private"
        )
    plan = UploadPlan(publication, files, remote, config)
    if config.tag in remote.tags and not (plan.is_empty and remote.tags[config.tag] == remote.head):
        raise ValueError(f"{publication.repo_id} has a tag {config.tag} for another commit; name another --tag")
    return plan


def look_up(api: HfApi, publication: Publication) -> Remote:
    """The repository as it is; an empty one where there is none."""
    where: dict[str, Any] = {"repo_id": publication.repo_id, "repo_type": publication.repo_type}
    with explained(publication.repo_id):
        try:
            info = api.repo_info(**where)
        except RepositoryNotFoundError:
            return Remote()
        if info.sha is None:
            return Remote(private=info.private)
        entries = api.list_repo_tree(**where, revision=info.sha, recursive=True, expand=True)
        files = {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}
        tags = {tag.name: tag.target_commit for tag in api.list_repo_refs(**where).tags}
    return Remote(info.sha, files, info.private, tags)


def look_up_if_possible(publication: Publication) -> tuple[Remote, str]:
    """The repository for a dry run, which needs neither connection nor token, and what it was compared with."""
    try:
        remote = look_up(HfApi(), publication)
    except PublishingError as error:
        return Remote(), f"compared with nothing: {str(error).partition(';')[0]}"
    if remote.private is None:
        return remote, "there is no such repository yet, or the token may not see it"
    return remote, f"compared with its commit {str(remote.head)[:8]}"


def check_token(api: HfApi, repo_id: str) -> None:
    """Ask the Hub whether it knows the token, before anything is made.

    Raises:
        PublishingError: There is none, or the Hub does not accept it.
    """
    with explained(repo_id):
        if get_token() is None:
            raise LocalTokenNotFoundError
        api.whoami()


def upload(api: HfApi, plan: UploadPlan) -> str:
    """Make the repository what the folder is, in one commit, or in none where it is that already.

    Large files go first, and those that the Hub has are not sent again; only the commit makes them visible.

    Returns:
        The commit.

    Raises:
        PublishingError: The Hub refuses or fails; the repository is as it was, or lacks only its tag.
    """
    publication, remote, tag = plan.publication, plan.remote, plan.config.tag
    where: dict[str, Any] = {"repo_id": publication.repo_id, "repo_type": publication.repo_type}
    with explained(publication.repo_id):
        head = remote.head
        if remote.private is None:
            sdk = read_header_and_text(plan.files[CARD_FILE])[0]["sdk"] if publication.repo_type == "space" else None
            api.create_repo(**where, private=plan.config.private or None, exist_ok=True, space_sdk=sdk)
            head = api.repo_info(**where).sha
        if not plan.is_empty:
            version = importlib.metadata.version("subtle-video")
            head = api.create_commit(
                **where,
                operations=[
                    *(CommitOperationDelete(name, is_folder=False) for name in plan.deleted),
                    *(CommitOperationAdd(name, plan.files[name]) for name in plan.sent),
                ],
                commit_message=f"Publish {count_files(plan.files)} with subtle-video {version}",
                parent_commit=head,
            ).oid
    if tag and tag not in remote.tags:
        try:
            with explained(publication.repo_id):
                api.create_tag(**where, tag=tag, revision=head)
        except PublishingError as error:
            cause = " ".join(str(error.__cause__).split())
            raise PublishingError(
                f"{publication.repo_id} is published as {head}, but without the tag {tag} ({cause}); run again"
            ) from error
    return str(head)


def check_space(header: dict[str, Any], files: Collection[str]) -> None:
    """See that a Space says what it runs on, and has the file that it starts with.

    Raises:
        ValueError: It does not, or has not.
    """
    sdk = header.get("sdk")
    if sdk not in STARTS_WITH:
        raise ValueError(f"README.md has sdk: {sdk!r} in its YAML header; a Space runs on {', '.join(STARTS_WITH)}")
    first = STARTS_WITH[sdk] if sdk == "docker" else header.get("app_file", STARTS_WITH[sdk])
    if first not in files:
        raise ValueError(f"the Space starts with {first}, which is not in its folder; write it, or name it as app_file")


@contextmanager
def explained(repo_id: str) -> Iterator[None]:
    """Turn the errors of the client into one that names the repository and the cure.

    Raises:
        PublishingError: In place of theirs.
    """
    try:
        yield
    except (httpx2.HTTPError, OfflineModeIsEnabled, LocalTokenNotFoundError, *OF_ANSWERS) as error:
        # Parts of an upload run in threads, whose errors come wrapped.
        cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
        raise PublishingError(explanation(cause, repo_id)) from error


def explanation(error: BaseException, repo_id: str) -> str:
    """What to do about an error of the Hub or of its client, in one line."""
    if isinstance(error, OfflineModeIsEnabled):
        return f"{repo_id} cannot be reached in offline mode; unset HF_HUB_OFFLINE (a dry run needs no connection)"
    if isinstance(error, LocalTokenNotFoundError):
        return f"there is no token to write to {repo_id} with; {LOG_IN}"
    if isinstance(error, HfHubHTTPError):
        return of_status(error, repo_id)
    if isinstance(error, httpx2.HTTPError):
        return (
            f"no connection to {constants.ENDPOINT} ({error or type(error).__name__}); {repo_id} is as it was, or "
            "complete if the connection broke at the very end: run again"
        )
    return f"{repo_id} is not accepted: {' '.join(str(error).split())}"


def of_status(error: HfHubHTTPError, repo_id: str) -> str:
    """What a status of the Hub means for a publication."""
    status = error.response.status_code
    said = error.server_message or error.response.headers.get("X-Error-Message") or error.response.reason_phrase
    namespace = repo_id.partition("/")[0]
    if status == 401:
        return f"the Hub does not accept the token; {LOG_IN}"
    if status in {403, 404}:
        return (
            f"the token may not write to {repo_id} ({said}); it needs write access and, where {namespace!r} is an "
            "organization, a role in it that may write"
        )
    if status == 412:
        return (
            f"{repo_id} was changed by someone else meanwhile, so nothing was published; run again, with --dry_run "
            "first to see what would happen to it"
        )
    if status >= 500:
        return (
            f"the Hub failed ({status}, {said}), and nothing of {repo_id} was published; run again: large files that "
            "arrived are not sent again"
        )
    return f"the Hub refuses {repo_id} ({status}): {' '.join(said.split())}"
