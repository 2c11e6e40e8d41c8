"""The rows of a published folder made again by their builder, and compared with the published ones."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import datasets.load

from hf_datasets.builders import RegisteredBuilder, registered_module
from hf_datasets.drafts import draft_of
from hf_datasets.publishing.shards import GROUP_ROWS, MEDIA_ROWS, has_media, split_files, tables_in, write_split


def open_builder(
    name: str,
    config: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    video_dir: str | os.PathLike[str] | None = None,
    **options: Any,
) -> RegisteredBuilder:
    """The builder of a registered name, whatever folder of that name stands in the working directory.

    Args:
        name: A key of `BUILDERS`.
        config: One of its configurations.
        data_dir: The folder that it reads.
        video_dir: The folder of videos.
        options: Other values of its `BuilderConfig`, or `cache_dir`.

    Returns:
        The builder; nothing is read or rendered yet.

    Raises:
        ValueError: There is no such configuration.
    """
    module = registered_module(name)
    kind = datasets.load.get_dataset_builder_class(module)
    if config not in kind.builder_configs:
        raise ValueError(f"{name!r} has no configuration {config!r}; it has {', '.join(kind.builder_configs)}")
    folders = {"data_dir": data_dir, "video_dir": video_dir}
    given = {key: os.fspath(value) for key, value in folders.items() if value is not None}
    default = kind.builder_configs[config]
    chosen = {key: value for key, value in options.items() if value != getattr(default, key, None)}
    builder: RegisteredBuilder = kind(config_name=config, hash=module.hash, **module.builder_kwargs, **given, **chosen)
    return builder


def prepared_splits(builder: RegisteredBuilder) -> dict[str, Iterator[Any]]:
    """Prepare a builder, and give its splits as tables for `write_split`."""
    builder.download_and_prepare()
    opened = builder.as_dataset()
    size = MEDIA_ROWS if has_media(builder.info.features) else GROUP_ROWS
    return {str(split): rows.with_format("arrow").iter(size) for split, rows in opened.items()}


def rebuild(
    generation: Path,
    output_dir: str | os.PathLike[str],
    *,
    configs: Sequence[str] = (),
    data_dir: str | None = None,
    video_dir: str | None = None,
) -> list[str]:
    """Make configurations of a published folder again.

    Args:
        generation: Its folder `generation`, with the parameters.
        output_dir: A folder that does not exist yet, or is empty; it gets `<configuration>/<split>-*.parquet`.
        configs: The configurations; by default the default one.
        data_dir: What the rows are made of; the miniature is rendered if none is given.
        video_dir: The folder of videos.

    Returns:
        The configurations.

    Raises:
        FileExistsError: The folder has files.
        ValueError: A configuration is not published.
    """
    code = json.loads((generation / "parameters.json").read_text(encoding="utf-8"))
    published = code["configurations"]
    names = list(configs) or [next(iter(published))]
    unknown = [name for name in names if name not in published]
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: not published here; there are {', '.join(published)}")
    output_dir = Path(output_dir)
    if output_dir.is_dir() and any(output_dir.iterdir()):
        raise FileExistsError(f"{output_dir} is not empty; name another folder, or remove this one")
    if data_dir is None and code["miniature"] is not None:
        from hf_datasets.miniature import MiniatureConfig, prepare_miniature  # imports the renderer

        sizes = code["miniature"] | {"labels": tuple(code["miniature"]["labels"])}
        data_dir = os.fspath(prepare_miniature(seed=sizes["seed"], config=MiniatureConfig(**sizes)))
    with draft_of(output_dir) as draft:
        for name in names:
            # In a cache of its own: the bare name in the reader's cache stays what it was.
            cache = {"cache_dir": os.fspath(draft / ".cache")}
            builder = open_builder(
                code["name"], name, data_dir=data_dir, video_dir=video_dir, **cache, **published[name]
            )
            for split, tables in prepared_splits(builder).items():
                write_split(tables, draft / name, split)
        shutil.rmtree(draft / ".cache")
    return names


def row_differences(made: Path, published: Path, config: str) -> tuple[list[str], int]:
    """Compare the rows of a configuration in two folders, in their order.

    Args:
        made: A folder that `rebuild` wrote.
        published: The published folder.
        config: The configuration.

    Returns:
        A sentence for each split that differs, with its first different value; and the number of media whose bytes
        differ while everything else is equal, as another version of an encoder writes them.
    """
    found, num_media = [], 0
    files = [*split_files(made, config), *split_files(published, config)]
    for split in sorted({path.name.rpartition("-of-")[0].rpartition("-")[0] for path in files}):
        tables = (tables_in(split_files(folder, config, split)) for folder in (made, published))
        rows = ((row for table in of_one for row in table.to_pylist()) for of_one in tables)
        for number, (ours, theirs) in enumerate(zip_longest(*rows)):
            if ours is None or theirs is None:
                where = "the published" if ours is None else "the rebuilt"
                found.append(f"{config}/{split}: only {where} rows go on after row {number - 1}")
                break
            names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
            media = [name for name in names if _is_media(ours.get(name)) and _is_media(theirs.get(name))]
            num_media += len(media)
            other = [name for name in names if name not in media]
            if other:
                name = other[0]
                found.append(
                    f"{config}/{split}, row {number}, {name}: {ours.get(name)!r} was made, {theirs.get(name)!r} is "
                    "published"
                )
                break
    return found, num_media


def _is_media(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"bytes", "path"}
