"""The folder of a dataset's publication: one of the registered names, or a folder of rows that a recipe built."""

from collections.abc import Sequence
from pathlib import Path

from hf_datasets.names import BUILDERS
from subtle.hub.publication import Publication


def prepare(
    name: str,
    repo_id: str,
    folder: Path,
    *,
    configs: Sequence[str] | None = None,
    data_dir: str | None = None,
    video_dir: str | None = None,
    videos: bool = False,
    license: str | None = None,
) -> Publication:
    """Write the folder of a dataset, complete for the Hub: rows, card, metadata and the code that makes them.

    Args:
        name: A registered name, or a folder that `hf_datasets.publish.write_folder` made, such as a build.
        repo_id: `ORG/NAME`.
        folder: A folder that does not exist yet, or is empty.
        configs: The configurations, the default one first; by default the miniature and those that go with it, or all
            of a folder.
        data_dir: What a registered name's rows are made of.
        video_dir: The folder of videos of other rows than the miniature's.
        videos: Whether files of videos go up. Those of the miniature may; any others need `license`.
        license: The identifier of the license on the Hub, such as "cc-by-4.0".

    Returns:
        The publication.

    Raises:
        ValueError: The name is neither, or videos would go up without a license that allows it.
    """
    if name in BUILDERS:
        from hf_datasets.publishing.registered import write_registered

        write_registered(
            name, folder, repo_id=repo_id, configs=configs, data_dir=data_dir, video_dir=video_dir, videos=videos,
            license=license,
        )  # fmt: skip
    elif (Path(name) / "README.md").is_file():
        from hf_datasets.publishing.written import rewrite_folder

        if data_dir or video_dir:
            raise ValueError(f"{name} holds its rows already; leave out data_dir and video_dir")
        rewrite_folder(name, folder, repo_id=repo_id, configs=configs, videos=videos, license=license)
    else:
        raise ValueError(
            f"{name} is neither a registered dataset ({', '.join(sorted(BUILDERS))}) nor a folder with a README.md "
            "that a build recipe wrote"
        )
    return Publication("dataset", repo_id, folder)
