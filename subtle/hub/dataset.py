"""The folder of a dataset's publication: one of the registered names, or a folder of rows that a recipe built."""

from pathlib import Path
from typing import Any

from hf_datasets.registry import BUILDERS
from subtle.hub.publication import Publication


def prepare(name: str, repo_id: str, folder: Path, **options: Any) -> Publication:
    """Write the folder of a dataset, complete for the Hub: rows, card, metadata and the code that makes them.

    Args:
        name: A registered name, or a folder that `hf_datasets.publish.write_folder` made, such as a build.
        repo_id: `ORG/NAME`.
        folder: A folder that does not exist yet, or is empty.
        options: Of `write_registered` for a registered name, of `rewrite_folder` for a folder, which has its rows and
            takes no `data_dir` and `video_dir`.

    Returns:
        The publication.

    Raises:
        ValueError: The name is neither, or videos would go up without a license that allows it.
    """
    if name in BUILDERS:
        from hf_datasets.publishing.registered import write_registered

        write_registered(name, folder, repo_id=repo_id, **options)
    elif (Path(name) / "README.md").is_file():
        from hf_datasets.publishing.written import rewrite_folder

        if options.pop("data_dir", None) or options.pop("video_dir", None):
            raise ValueError(f"{name} holds its rows already; leave out data_dir and video_dir")
        rewrite_folder(name, folder, repo_id=repo_id, **options)
    else:
        raise ValueError(
            f"{name} is neither a registered dataset ({', '.join(sorted(BUILDERS))}) nor a folder with a README.md "
            "that a build recipe wrote"
        )
    return Publication("dataset", repo_id, folder)
