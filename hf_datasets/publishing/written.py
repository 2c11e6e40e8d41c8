"""A folder for the Hub made of one that `write_folder` wrote before, such as the output of a build recipe."""

import html
import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Features

from hf_datasets.builders import REJECTIONS_FILE
from hf_datasets.drafts import draft_of
from hf_datasets.publish import check_names, write_folder
from hf_datasets.publishing.cards import COUNTS_END, COUNTS_START, About, read_card
from hf_datasets.publishing.generation_code import GENERATION_FOLDER, PARAMETERS_FILE
from hf_datasets.publishing.shards import has_media, split_files, tables_in

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
        FileExistsError: The folder has files.
        ValueError: There is no such configuration, or videos would be published without a license.
    """
    source, folder = Path(source), Path(folder)
    if folder.is_dir() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; name another folder, or remove this one")
    card = read_card(source / "README.md")
    found = _configurations(source, card)
    names = _chosen(source, found, configs, videos, license)
    rows = {name: {split: tables_in(split_files(source, name, split)) for split in found[name]} for name in names}
    copied = [REJECTIONS_FILE, GENERATION_FOLDER]
    links = [path for name in copied for path in (source / name, *(source / name).rglob("*")) if path.is_symlink()]
    if links:  # they would publish what they lead to
        raise ValueError(f"{links[0]} is a link; copy {source} with its files (`cp -rL`) and publish the copy")
    with draft_of(folder) as draft:
        descriptions = {name: _plain(what) for name, what in DESCRIBED.findall(card.text)}
        counts = card.text.partition(COUNTS_START)[2].partition(COUNTS_END)[0]
        facts = {_plain(key): _plain(value) for key, value in FACT.findall(counts)}
        about = About(repo_id=repo_id, license=license, descriptions=descriptions)
        write_folder(rows, draft, card=source / "README.md", provenance=facts, about=about)
        for name in copied:
            if (source / name).is_dir():
                shutil.copytree(source / name, draft / name, ignore=shutil.ignore_patterns("__pycache__"))
                _choose_parameters(draft / name / PARAMETERS_FILE, names)
            elif (source / name).is_file():
                shutil.copyfile(source / name, draft / name)
    return folder


def _chosen(
    source: Path, found: dict[str, list[str]], configs: Sequence[str] | None, videos: bool, license: str | None
) -> list[str]:
    # The configurations that go along.
    unknown = sorted(set(configs or ()) - found.keys())
    if unknown:
        raise ValueError(f"{source} holds no configuration {', '.join(unknown)}; it has {', '.join(found)}")
    with_videos = set()
    for name, splits in found.items():
        path = split_files(source, name, splits[0])[0]
        try:
            schema = pq.read_schema(path)
        except pa.ArrowInvalid as error:
            raise ValueError(f"{path} is not a Parquet file ({error}); make the folder again") from None
        if has_media(Features.from_arrow_schema(schema)):
            with_videos.add(name)
    refused = with_videos & set(configs or ())
    if refused and not videos:
        raise ValueError(
            f"{', '.join(sorted(refused))} holds videos; ask for videos to publish them, or leave it out of configs"
        )
    names = [name for name in configs or found if videos or name not in with_videos]
    if not names:
        raise ValueError(f"{source} holds nothing but videos; ask for videos to publish them")
    if with_videos & set(names) and license is None:
        raise ValueError(f"{source} holds videos: leave them out, or name the license that allows to pass them on")
    return names


def _configurations(source: Path, card: Any) -> dict[str, list[str]]:
    # Configuration -> its splits, as the card's header names them and files hold them.
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
        f"{name}/{split}" for name, splits in found.items() for split in splits if not split_files(source, name, split)
    ]
    if missing or not all(found.values()):
        raise ValueError(f"{source} holds no Parquet file of {', '.join(missing) or 'a configuration'}; make it again")
    return found


def _choose_parameters(path: Path, names: Sequence[str]) -> None:
    # Without those of configurations that do not go along, so that the code rebuilds what is there.
    try:
        code = json.loads(path.read_text(encoding="utf-8"))
        code["configurations"] = {name: code["configurations"][name] for name in names}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path.name} of {GENERATION_FOLDER} does not say how {', '.join(names)} was made ({error}); make the "
            "folder again, or remove its code"
        ) from None
    path.write_text(json.dumps(code, indent=2) + "\n", encoding="utf-8")


def _plain(text: str) -> str:
    """What `cards.one_line` made a line of."""
    return html.unescape(re.sub(r"\\([\\`*\[\]|~_])", r"\1", text))
