"""The Space for composed search on the miniature: its page, the ids that it reads, and the clips' embeddings."""

import json
import shutil
import tempfile
from pathlib import Path

from transformers import AutoProcessor
from transformers.utils.logging import disable_progress_bar

from demo_space.composed_search import code_hash, fingerprint, read_embeddings
from harness.commands import RECIPES
from harness.model_folders import MINIATURE_TFCOVR
from harness.results import write_json
from hf_models import TFCoVRForComposedRetrieval
from publishing.publication import Publication, check_repo_id

SPACE = RECIPES / "demo_space"
NOT_OF_THE_SPACE = {"__init__.py", "__pycache__"}
"""What makes the folder a package of ours."""


def prepare(
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
        ValueError: One of the names is not `ORG/NAME`, or the embeddings that ship are not of the model that ships.
    """
    for name in (model_repo, dataset_repo):
        check_repo_id(name)
    shutil.copytree(SPACE, folder, dirs_exist_ok=True, ignore=lambda *_: NOT_OF_THE_SPACE)
    settings = json.loads((folder / "demo.json").read_text(encoding="utf-8"))
    settings |= {"model": model_repo, "dataset": dataset_repo, "revision": revision, "code": check_model()}
    write_json(folder / "demo.json", settings)
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8")
    text = text.replace("ORG/miniature-tfcovr", model_repo).replace("ORG/tfcovr", dataset_repo)
    card.write_text(text, encoding="utf-8")
    return Publication("space", repo_id, folder, (model_repo, dataset_repo))


def check_model() -> str:
    """The hash of the code with which the shipped model is published.

    Raises:
        ValueError: The embeddings that ship are of another model.
    """
    disable_progress_bar()
    model = TFCoVRForComposedRetrieval.from_pretrained(MINIATURE_TFCOVR)
    processor = AutoProcessor.from_pretrained(MINIATURE_TFCOVR)
    path = SPACE / "clips.safetensors"
    try:
        read_embeddings(path, [], fingerprint(model, processor))
    except ValueError as error:
        raise ValueError(f"{error}: remove the file and start `python recipes/demo.py` once") from error
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        processor.save_pretrained(saved)
        return code_hash(Path(saved))
