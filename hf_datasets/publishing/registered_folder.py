"""A folder for the Hub with the configurations of a registered name, its code beside them."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from hf_datasets.builders import REJECTIONS_FILE, RENDERED, RegisteredBuilder
from hf_datasets.publish import write_folder
from hf_datasets.publishing.cards import About
from hf_datasets.publishing.generation_code import PACKAGE, GenerationCode
from hf_datasets.publishing.rebuilding import open_builder, prepared_splits
from hf_datasets.publishing.shards import has_media
from hf_datasets.records import Rejection
from hf_datasets.registry import BUILDERS, TITLES

MINIATURE_NAME = "mini"
MINIATURE_KINDS = {"mini": "miniature", "hard": "harder miniature", "unseen": "harder miniature, unseen labels"}
MINIATURE_LICENSE = "apache-2.0"
NOT_PARAMETERS = frozenset({"name", "version", "data_dir", "data_files", "description", "video_dir"})


def write_registered(
    name: str,
    folder: str | os.PathLike[str],
    *,
    repo_id: str | None = None,
    configs: Sequence[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    video_dir: str | os.PathLike[str] | None = None,
    videos: bool = False,
    license: str | None = None,
) -> Path:
    """Write configurations of a registered name as `write_folder` does, with the code that makes them.

    Args:
        name: A key of `hf_datasets.registry.BUILDERS`.
        folder: A folder that does not exist yet, or is empty.
        repo_id: `ORG/NAME`, for the card's code.
        configs: The configurations, the default one first; by default the name's own default and those that go with it
            (`mini`, `mini-clips`), without those that hold videos unless `videos` asks for them.
        data_dir: What the rows are made of; without it the miniature is rendered and a release fetched.
        video_dir: The folder of videos of other rows than the miniature's.
        videos: Whether files of videos go into the folder. The miniature's may be passed on; for any other, `license`
            must name what allows it.
        license: The identifier of the license on the Hub, such as "cc-by-4.0"; by default that of the miniature, or the
            card's own.

    Returns:
        The folder.

    Raises:
        ValueError: There is no such name or configuration, or videos would be published without a license.
    """
    if name not in BUILDERS:
        raise ValueError(f"unknown dataset {name!r}; there are {', '.join(sorted(BUILDERS))}")
    builders = _open(name, configs, data_dir, video_dir, videos)
    origins = {config.partition("-")[0] for config in builders}
    drawn = sorted(origins & set(RENDERED))
    if len(drawn) > 1:
        raise ValueError(
            f"{' and '.join(drawn)} are drawn by different parameters: publish each in a folder of its own"
        )
    if videos and license is None and origins != set(drawn):
        raise ValueError(
            f"videos of {', '.join(sorted(origins.difference(drawn)))} are not this package's to pass on: leave videos "
            "out, or name the license that allows it, such as cc-by-4.0"
        )
    first = next(iter(builders.values()))
    of_miniature = [builder for config, builder in builders.items() if config.partition("-")[0] in RENDERED]
    miniature = _plan(of_miniature[0]._miniature_dir()) if of_miniature else None
    holds_videos = any(has_media(builder.info.features) for builder in builders.values())
    rows = {config: prepared_splits(builder) for config, builder in builders.items()}
    is_miniature = origins == set(drawn)
    about = About(
        name=name,
        title=f"{TITLES[name]} ({MINIATURE_KINDS[drawn[0]]})" if is_miniature else TITLES[name],
        repo_id=repo_id,
        license=license or (MINIATURE_LICENSE if is_miniature else None),
        descriptions={config: builder.info.description for config, builder in builders.items()},
        others=[config for config in first.builder_configs if config not in builders],
        citation=first.info.citation,
        homepage=first.info.homepage,
    )
    parameters = {
        config: {key: value for key, value in dataclasses.asdict(builder.config).items() if key not in NOT_PARAMETERS}
        for config, builder in builders.items()
    }
    code = GenerationCode(name, parameters, miniature)
    wing = BUILDERS[name].split(".")[:2]
    return write_folder(
        rows,
        folder,
        card=PACKAGE.parent.joinpath(*wing, "README.md"),
        provenance=_provenance(parameters, miniature)
        | ({"license of the videos": about.license} if holds_videos else {}),
        rejections=_rejections(builders),
        about=about,
        code=code,
    )


def _open(
    name: str,
    configs: Sequence[str] | None,
    data_dir: str | os.PathLike[str] | None,
    video_dir: str | os.PathLike[str] | None,
    videos: bool,
) -> dict[str, RegisteredBuilder]:
    # The builders of the wanted configurations, those with videos only where they are asked for.
    if configs is None:
        default = open_builder(name, MINIATURE_NAME, data_dir=data_dir)
        names = [config for config in default.builder_configs if config.partition("-")[0] == MINIATURE_NAME]
    else:
        names = list(dict.fromkeys(configs))
    opened = {config: open_builder(name, config, data_dir=data_dir, video_dir=video_dir) for config in names}
    with_videos = [
        config
        for config, builder in opened.items()
        if has_media(builder.info.features) and (config.partition("-")[0] in RENDERED or video_dir is not None)
    ]
    if configs is not None and with_videos and not videos:
        raise ValueError(
            f"{', '.join(with_videos)} holds videos; ask for videos to publish them, or leave it out of configs"
        )
    return {config: builder for config, builder in opened.items() if videos or config not in with_videos}


def _plan(miniature: Path) -> dict[str, Any]:
    # How a miniature was rendered, as it says itself.
    from hf_datasets.miniature.render import PLAN_FILE  # imports the renderer

    path = miniature / PLAN_FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{miniature} holds no {PLAN_FILE}, which says how it was rendered: call prepare_miniature (or `python -m "
            "hf_datasets render`) with the same arguments once more, which writes it and renders nothing"
        )
    plan: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return plan


def _provenance(parameters: Mapping[str, Mapping[str, Any]], miniature: Mapping[str, Any] | None) -> dict[str, object]:
    facts: dict[str, object] = {}
    try:
        facts["made by"] = f"subtle-video {version('subtle-video')}"
    except PackageNotFoundError:
        facts["made by"] = "subtle-video"
    seed = next(iter(parameters.values())).get("seed")
    if seed is not None:
        facts["seed"] = seed
    if miniature is not None:
        counts = miniature["videos_per_split"]
        facts["rendered competitions"] = ", ".join(f"{count} {split}" for split, count in counts.items())
        facts["seed of the rendering"] = miniature["seed"]
    return facts


def _rejections(builders: Mapping[str, RegisteredBuilder]) -> list[Rejection]:
    """The refused rows of all configurations; the same one, of rows and their clips, once."""
    found: dict[Rejection, None] = {}
    for builder in builders.values():
        path = Path(builder.cache_dir, REJECTIONS_FILE)
        for row in pq.read_table(path).to_pylist() if path.is_file() else ():
            found[Rejection(row["reason"], row["raw"], row["key"], row.get("request"))] = None
    return list(found)
