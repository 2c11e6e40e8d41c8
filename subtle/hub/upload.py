"""A folder and its repository on the Hub: what would change, and the one commit that changes it.

Whose is a file of the repository? `.subtle.json` there lists the files of the last publication and the card that it
put up. Files on that list which the new folder lacks are deleted in the same commit. All others stay: `.gitattributes`,
results and discussions that other people added. A card that is no longer the one on record was edited on the Hub, and
stays too. A repository that someone else filled is left alone, unless it is taken over.
"""

import hashlib
import importlib.metadata
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, RepoCard, get_token, hf_hub_url
from huggingface_hub.errors import LocalTokenNotFoundError, RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

from subtle.hub.contents import RECORD, check_text, files_of, hidden_files, machine_folders, size_text
from subtle.hub.hub_errors import PublishingError, explained
from subtle.hub.publication import Publication, check_repo_id

CARD = "README.md"
STARTS_WITH = {"gradio": "app.py", "docker": "Dockerfile", "static": "index.html"}
"""What a Space runs on -> the file that it starts with."""
OF_THE_HUB = {".gitattributes", RECORD}
BUFFER_BYTES = 1 << 20
MOST_RECORD_BYTES = 20_000_000


@dataclass(frozen=True)
class Remote:
    """A repository as it is before a publication.

    Attributes:
        head: The commit; None where there is none yet.
        files: Its files by path.
        published: Paths that the last publication put there.
        card: Git's hash of the card that it put there.
        is_strange: Someone else filled it: it has commits after its first, which is the Hub's own, and no record.
        private: Whether it is private; None where it is not there yet.
        tags: Name -> commit.
    """

    head: str | None = None
    files: dict[str, RepoFile] = field(default_factory=dict)
    published: frozenset[str] = frozenset()
    card: str | None = None
    is_strange: bool = False
    private: bool | None = None
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """What a publication does to its repository."""

    publication: Publication
    files: dict[str, Path]
    remote: Remote
    replace_card: bool = False
    take_over: bool = False
    private: bool = False
    tag: str | None = None

    @cached_property
    def same(self) -> set[str]:
        """Files that are there already as they are."""
        return {
            name
            for name, path in self.files.items()
            if name in self.remote.files and is_same(path, self.remote.files[name])
        }

    @property
    def keeps_card(self) -> bool:
        """Whether someone edited the card on the Hub, and it stays."""
        there = self.remote.files.get(CARD)
        is_ours = there is None or self.remote.card in {None, there.blob_id}
        return not (is_ours or CARD in self.same or self.replace_card)

    @property
    def sent(self) -> list[str]:
        """Files that are added or replaced."""
        return [name for name in self.files if name not in self.same and not (name == CARD and self.keeps_card)]

    @property
    def deleted(self) -> list[str]:
        """Files of the repository that go."""
        ours = set(self.remote.files) if self.take_over else self.remote.published
        return sorted((ours & set(self.remote.files)) - set(self.files) - OF_THE_HUB)

    @property
    def is_empty(self) -> bool:
        """Whether the repository is already what it is to become."""
        return not self.sent and not self.deleted and self.remote.published == set(self.files)

    def record(self) -> bytes:
        """The content of `.subtle.json` after the publication."""
        card = self.remote.card if self.keeps_card else git_hash(self.files[CARD])
        version = importlib.metadata.version("subtle-video")
        record = {"published_by": f"subtle-video {version}", "card": card, "files": list(self.files)}
        return f"{json.dumps(record, indent=2)}\n".encode()

    def lines(self) -> Iterator[str]:
        """The plan as people read it: files with sizes, and what happens to each."""
        total = size_text(sum(path.stat().st_size for path in self.files.values()))
        publication = self.publication
        yield f"{publication.repo_id} ({publication.repo_type}): {counted(self.files)}, {total}"
        marks = dict.fromkeys(self.same, "=") | {name: "~" for name in self.sent if name in self.remote.files}
        for name, path in self.files.items():
            mark = "!" if name == CARD and self.keeps_card else marks.get(name, "+")
            yield f"  {mark} {size_text(path.stat().st_size):>9}  {name}"
        for name in self.deleted:
            yield f"  - {size_text(self.remote.files[name].size):>9}  {name}"
        others = sorted(set(self.remote.files) - set(self.files) - set(self.deleted) - OF_THE_HUB)
        if others:
            yield f"  files that others put there stay: {', '.join(others)}"
        if hidden := hidden_files(publication.folder):
            yield f"  hidden files stay here: {', '.join(hidden)}"
        if self.keeps_card:
            yield (
                "  ! README.md was edited on the Hub and stays as it is, which may not fit the new files; "
                "--replace_card replaces it"
            )


def counted(files: Collection[str]) -> str:
    return "1 file" if len(files) == 1 else f"{len(files)} files"


def git_hash(path: Path) -> str:
    """A file's hash as git names it."""
    return hash_of(path, hashlib.sha1(b"blob %d\0" % path.stat().st_size))


def hash_of(path: Path, digest: "hashlib._Hash") -> str:
    with path.open("rb") as file:
        while part := file.read(BUFFER_BYTES):
            digest.update(part)
    return digest.hexdigest()


def is_same(path: Path, there: RepoFile) -> bool:
    """Whether a file is the one in the repository."""
    if path.stat().st_size != there.size:
        return False
    if there.lfs is not None:
        return hash_of(path, hashlib.sha256()) == there.lfs.sha256
    return git_hash(path) == there.blob_id


def make_plan(
    publication: Publication,
    remote: Remote,
    *,
    replace_card: bool = False,
    take_over: bool = False,
    private: bool = False,
    tag: str | None = None,
    private_folders: tuple[Path | str | None, ...] = (),
) -> Plan:
    """What a publication changes.

    Args:
        publication: The folder and its repository.
        remote: The repository as it is.
        replace_card: Replace a card that was edited on the Hub.
        take_over: Publish into a repository that someone else filled: its other files are deleted, its card replaced.
        private: Make a new repository private.
        tag: Name for the commit.
        private_folders: More folders of this machine that no text may name.

    Raises:
        FileNotFoundError: The folder is not there, or has no card.
        ValueError: The repository's name is not one, its card is not readable, a file must not leave this machine,
            someone else filled the repository, it is public and was to be private, or has the tag for another commit.
    """
    check_repo_id(publication.repo_id)
    files = files_of(publication.folder)
    check_text(files, machine_folders(publication.folder, *private_folders))
    header_of(files[CARD])
    if publication.repo_type == "space":
        check_space(files)
    if remote.is_strange and not take_over:
        some = ", ".join([*sorted(set(remote.files) - OF_THE_HUB)[:3], "..."])
        raise ValueError(
            f"{publication.repo_id} holds files that this command did not publish ({some}); publish under another "
            "name, or add --take_over to replace them all (the repository's history keeps them)"
        )
    if private and remote.private is False:
        raise ValueError(
            f"{publication.repo_id} is public; make it private in its settings first, or leave out --private"
        )
    plan = Plan(publication, files, remote, replace_card, take_over and remote.is_strange, private, tag)
    if tag in remote.tags and not (plan.is_empty and remote.tags[tag] == remote.head):
        raise ValueError(f"{publication.repo_id} has a tag {tag} for another commit; name another --tag")
    return plan


def look_up(api: HfApi, publication: Publication) -> Remote:
    """The repository as it is; an empty one where there is none."""
    where: dict[str, Any] = {"repo_id": publication.repo_id, "repo_type": publication.repo_type}
    try:
        info = api.repo_info(**where)
    except RepositoryNotFoundError:
        return Remote()
    if info.sha is None:
        return Remote(private=info.private)
    entries = api.list_repo_tree(**where, revision=info.sha, recursive=True)
    files = {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}
    record = read_record(api, publication, info.sha) if RECORD in files else None
    return Remote(
        head=info.sha,
        files=files,
        published=frozenset(record["files"] if record else ()),
        card=record["card"] if record else None,
        is_strange=record is None and len(api.list_repo_commits(**where)) > 1,
        private=info.private,
        tags={tag.name: tag.target_commit for tag in api.list_repo_refs(**where).tags},
    )


def read_record(api: HfApi, publication: Publication, revision: str) -> dict[str, Any] | None:
    """What the last publication wrote into the repository; None where that is not readable."""
    address = hf_hub_url(
        publication.repo_id, RECORD, repo_type=publication.repo_type, revision=revision, endpoint=api.endpoint
    )
    content = bytearray()
    with get_session().stream("GET", address, headers=build_hf_headers(), follow_redirects=True) as response:
        hf_raise_for_status(response)
        for part in response.iter_bytes():
            content += part
            if len(content) > MOST_RECORD_BYTES:
                return None
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("card"), str | None):
        return None
    files = record.get("files")
    return record if isinstance(files, list) and all(isinstance(name, str) for name in files) else None


def look_up_if_possible(publication: Publication) -> tuple[Remote, str]:
    """The repository for a dry run, which needs neither connection nor token, and what it was compared with."""
    try:
        with explained(publication.repo_id):
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


def upload(api: HfApi, plan: Plan) -> str:
    """Make the repository what the folder is, in one commit, or in none where it is that already.

    Large files go first, and those that the Hub has are not sent again; only the commit makes them visible.

    Args:
        api: The client.
        plan: What to do.

    Returns:
        The commit.

    Raises:
        PublishingError: The Hub refuses or fails; the repository is as it was, or lacks only its tag.
    """
    publication, remote = plan.publication, plan.remote
    where: dict[str, Any] = {"repo_id": publication.repo_id, "repo_type": publication.repo_type}
    sdk = header_of(plan.files[CARD])["sdk"] if publication.repo_type == "space" else None
    with explained(publication.repo_id):
        head = remote.head
        if remote.private is None:
            api.create_repo(**where, private=plan.private or None, exist_ok=True, space_sdk=sdk)
            head = api.repo_info(**where).sha
        if not plan.is_empty:
            head = api.create_commit(
                **where,
                operations=[
                    *(CommitOperationDelete(name, is_folder=False) for name in plan.deleted),
                    *(CommitOperationAdd(name, plan.files[name]) for name in plan.sent),
                    CommitOperationAdd(RECORD, plan.record()),
                ],
                commit_message=f"Publish {counted(plan.files)}",
                parent_commit=head,
            ).oid
    if plan.tag and plan.tag not in remote.tags:
        try:
            with explained(publication.repo_id):
                api.create_tag(**where, tag=plan.tag, revision=head)
        except PublishingError as error:
            cause = " ".join(str(error.__cause__).split())
            raise PublishingError(
                f"{publication.repo_id} is published as {head}, but without the tag {plan.tag} ({cause}); run again"
            ) from error
    return str(head)


def header_of(card: Path) -> dict[str, Any]:
    """The YAML header of a card.

    Raises:
        ValueError: It is not readable.
    """
    try:
        return dict(RepoCard.load(card, ignore_metadata_errors=True).data.to_dict())
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{card} has no readable YAML header: {' '.join(str(error).split())}") from None


def check_space(files: dict[str, Path]) -> None:
    """See that a Space says what it runs on, and has the file that it starts with.

    Raises:
        ValueError: It does not, or has not.
    """
    header = header_of(files[CARD])
    sdk = header.get("sdk")
    if sdk not in STARTS_WITH:
        raise ValueError(f"README.md has sdk: {sdk!r} in its YAML header; a Space runs on {', '.join(STARTS_WITH)}")
    first = STARTS_WITH[sdk] if sdk == "docker" else header.get("app_file", STARTS_WITH[sdk])
    if first not in files:
        raise ValueError(f"the Space starts with {first}, which is not in its folder; write it, or name it as app_file")
