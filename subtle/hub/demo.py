"""The Space for composed search on the miniature: the page with all that it imports, and the vectors of its clips."""

import json
import shutil
import tempfile
from pathlib import Path

import torch
from transformers.utils.logging import disable_progress_bar

from hf_datasets.drafts import write_json
from hf_datasets.publishing.generation_code import imported_files
from hf_models.encoders import Encoder, load_encoder
from hf_models.feature_store import FeatureStore
from subtle.commands import SUBTLE
from subtle.demo_space.app import code_hash, open_vectors
from subtle.embedding.loop import Work, read_clip_frames
from subtle.hub.publication import Publication, check_repo_id
from subtle.run.data import load_split
from subtle.run.model_folders import MINIATURE_TFCOVR
from subtle.run.shared_config import DataConfig

SPACE = SUBTLE / "demo_space"
VECTORS = SPACE / "vectors"
COPIED_PACKAGES = ("hf_datasets", "hf_models", "subtle")
BARE_PACKAGES = ("hf_datasets", "hf_models", "hf_models.encoders")
"""Packages that import more than the page needs; they go without."""


def prepare_demo(
    repo_id: str, folder: Path, *, model_repo: str, dataset_repo: str, revision: str | None = None
) -> Publication:
    """Write the Space; it runs with public libraries and the two repositories.

    Args:
        repo_id: `ORG/NAME`.
        folder: Where to write; it is made.
        model_repo: Where `miniature-tfcovr` is published. The Space runs its code only if it is that of this checkout.
        dataset_repo: Where `tfcovr` is published, with `mini-clips` and `mini-videos`.
        revision: Tag or branch of both; None: main.

    Returns:
        The Space.

    Raises:
        ValueError: One of the names is not `ORG/NAME`, or the vectors that ship are not of the model that ships.
    """
    for name in (model_repo, dataset_repo):
        check_repo_id(name)
    code = check_model()
    shutil.copytree(SPACE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__*"))
    copy_page(folder)
    settings = json.loads((folder / "demo.json").read_text(encoding="utf-8"))
    settings |= {"model": model_repo, "dataset": dataset_repo, "revision": revision, "code": code}
    write_json(folder / "demo.json", settings)
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8")
    text = text.replace("ORG/miniature-tfcovr", model_repo).replace("ORG/tfcovr", dataset_repo)
    card.write_text(text, encoding="utf-8")
    return Publication("space", repo_id, folder, (model_repo, dataset_repo))


def copy_page(folder: Path) -> None:
    """Copy what `app.py` imports of this project, under the same names, with the page's script and style."""
    programs = ["subtle.demo_space.app", "hf_datasets.video.worker"]  # the page starts the other
    modules = imported_files(programs, packages=COPIED_PACKAGES, bare=BARE_PACKAGES)
    bare = {Path(*name.split("."), "__init__.py") for name in BARE_PACKAGES}
    for path in [*modules, *(Path("subtle/service/page").with_suffix(end) for end in (".js", ".css"))]:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if path in bare:
            (folder / path).write_text('"""What the page needs of this package."""\n', encoding="utf-8")
        elif path.name != "app.py":
            shutil.copyfile(SUBTLE.parent / path, folder / path)


def check_model() -> str:
    """The hash of the code with which the shipped model is published.

    Raises:
        ValueError: The vectors that ship are of another model.
    """
    disable_progress_bar()
    encoder = load_encoder(str(MINIATURE_TFCOVR))
    try:
        vectors = open_vectors(encoder, VECTORS)
    except ValueError as error:
        raise ValueError(f"{error}; then publish the demo again") from error
    if not vectors:
        write_vectors(encoder, vectors)
    with tempfile.TemporaryDirectory() as saved:
        encoder.model.save_pretrained(saved)
        encoder.processor.save_pretrained(saved)
        return code_hash(Path(saved))


def write_vectors(encoder: Encoder, store: FeatureStore) -> None:
    """Decode and encode the clips that the Space shows.

    Raises:
        ValueError: The miniature is damaged; what is rendered decodes.
    """
    failures: dict[str, str] = {}
    rows = [row for row in load_split(DataConfig(), "test", clips=True) if row["video"]]
    read = read_clip_frames(rows, encoder.num_frames, failures, Work(), size=encoder.frame_size)
    vectors = {clip_id: torch.from_numpy(encoder.vectors([frames])[0]) for clip_id, frames in read}
    if failures:
        raise ValueError(
            f"{len(failures)} clips of the miniature cannot be read, such as {next(iter(failures.items()))}; render it "
            "again with `python -m hf_datasets prepare tfcovr`"
        )
    store.append(list(vectors), list(vectors.values()))
