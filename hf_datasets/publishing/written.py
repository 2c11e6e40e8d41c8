"""A folder for the Hub made of one that `write_folder` wrote before, such as the output of a build recipe."""

import html
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Features

from hf_datasets.drafts import draft_of
from hf_datasets.publish import EVALUATION_FILE, check_names, write_folder
from hf_datasets.publishing.cards import COUNTS_END, COUNTS_START, About, read_card
from hf_datasets.publishing.generation_code import GENERATION_FOLDER
from hf_datasets.publishing.shards import GROUP_ROWS, MEDIA_ROWS, has_media
from hf_datasets.registration import REJECTIONS_FILE

FACT = re.compile(r"(?m)^\* (?!without rows, so not loadable: )([^:\n]+): (.*)$")
DESCRIBED = re.compile(r"(?m)^\| `([^`|]+)`(?: \(default\))? \| [\d,]+ \| (.*) \|$")


def rewrite_folder(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    repo_id: str | None = None,
    configs: Sequence[str] | None = None,
    videos: bool = False,
    license: str | None = None,
) -> Path:
    """Write a published folder again, for a repository, with fewer configurations or another license.

    What stands beside the rows in it, such as the `results.json` of a recipe, stays behind.

    Args:
        source: A folder that `write_folder` made.
        folder: A folder that does not exist yet, or is empty.
        repo_id: `ORG/NAME`, for the card's code.
        configs: The configurations, the default one first; by default all, without those that hold videos unless
            `videos` asks for them.
        videos: Whether files of videos go along; `license` must name what allows it.
        license: The identifier of the license on the Hub; by default the one that the folder's card has.

    Returns:
        The folder.

    Raises:
        ValueError: There is no such configuration, or videos would be published without a license.
    """
    source, folder = Path(source), Path(folder)
    card = read_card(source / "README.md")
    found = _configurations(source, card)
    copied = [source / REJECTIONS_FILE, source / EVALUATION_FILE, *(source / GENERATION_FOLDER).rglob("*")]
    links = [path for path in copied if path.is_symlink()]
    if links:  # they would publish what they lead to
        raise ValueError(f"{links[0]} is a link; copy {source} with its files (`cp -rL`) and publish the copy")
    unknown = sorted(set(configs or ()) - found.keys())
    if unknown:
        raise ValueError(f"{source} holds no configuration {', '.join(unknown)}; it has {', '.join(found)}")
    with_videos = {name for name, splits in found.items() if _holds_media(source, name, splits[0])}
    refused = with_videos & set(configs or ())
    if refused and not videos:
        raise ValueError(
            f"{', '.join(sorted(refused))} holds videos; ask for videos to publish them, or leave it out of configs"
        )
    if videos and with_videos and license is None:
        raise ValueError(f"{source} holds videos: leave them out, or name the license that allows to pass them on")
    names = [name for name in configs or found if videos or name not in with_videos]
    rows = {name: {split: _tables(source, name, split) for split in found[name]} for name in names}
    with draft_of(folder) as draft:
        about = About(repo_id=repo_id, license=license, descriptions=_descriptions(card.text))
        write_folder(rows, draft, card=source / "README.md", provenance=_facts(card.text), about=about)
        is_benchmark = names[0] == next(iter(found))
        for file in (REJECTIONS_FILE, *([EVALUATION_FILE] if is_benchmark else [])):
            if (source / file).is_file():
                shutil.copyfile(source / file, draft / file)
        if (source / GENERATION_FOLDER).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source / GENERATION_FOLDER, draft / GENERATION_FOLDER, ignore=ignored)
    return folder


def _configurations(source: Path, card: Any) -> dict[str, list[str]]:
    """Configuration -> its splits, as the card's header names them and files hold them.

    Raises:
        ValueError: The header names none, or one that is not there.
    """
    try:
        found = {
            str(config["config_name"]): [str(files["split"]) for files in config["data_files"]]
            for config in card.data.get("configs")
        }
    except (KeyError, TypeError):
        raise ValueError(
            f"{source / 'README.md'} does not name its configurations and their files; make the folder with "
            "hf_datasets.publish.write_folder"
        ) from None
    check_names(found)
    missing = [
        f"{name}/{split}" for name, splits in found.items() for split in splits if not _files(source, name, split)
    ]
    if missing or not all(found.values()):
        raise ValueError(f"{source} holds no Parquet file of {', '.join(missing) or 'a configuration'}; make it again")
    return found


def _files(source: Path, name: str, split: str) -> list[Path]:
    return sorted((source / name).glob(f"{split}-*.parquet"))


def _holds_media(source: Path, name: str, split: str) -> bool:
    path = _files(source, name, split)[0]
    try:
        return has_media(Features.from_arrow_schema(pq.read_schema(path)))
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is not a Parquet file ({error}); make the folder again") from None


def _tables(source: Path, name: str, split: str) -> Iterator[pa.Table]:
    size = MEDIA_ROWS if _holds_media(source, name, split) else GROUP_ROWS
    for path in _files(source, name, split):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(size):
                yield pa.Table.from_batches([batch]).replace_schema_metadata(file.schema_arrow.metadata)


def _facts(text: str) -> dict[str, object]:
    """The facts between the marks of a card, as they were before they were written into it."""
    block = text.partition(COUNTS_START)[2].partition(COUNTS_END)[0]
    return {_plain(key): _plain(value) for key, value in FACT.findall(block)}


def _descriptions(text: str) -> dict[str, str]:
    """The descriptions in a card's table of configurations."""
    return {name: _plain(what) for name, what in DESCRIBED.findall(text)}


def _plain(text: str) -> str:
    return html.unescape(re.sub(r"\\([\\`*\[\]|~_])", r"\1", text))
