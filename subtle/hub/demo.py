"""The Space for composed search on the miniature: its page, the ids that it reads, and the clips' embeddings."""

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoProcessor
from transformers.utils.logging import disable_progress_bar

from hf_models import TFCoVRForComposedRetrieval, TFCoVRProcessor
from hf_models.encoders import TFCoVREncoder
from subtle.commands import SUBTLE
from subtle.demo_space.composed_search import code_hash, fingerprint, read_embeddings, write_embeddings
from subtle.embedding.loop import Work, read_clips
from subtle.hub.publication import Publication, check_repo_id
from subtle.run.data import load_split
from subtle.run.model_folders import MINIATURE_TFCOVR
from subtle.run.results import write_json
from subtle.run.shared_config import DataConfig

SPACE = SUBTLE / "demo_space"


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
    shutil.copytree(SPACE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__init__.py", "__pycache__"))
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
    made_by = fingerprint(model, processor)
    if not path.is_file():
        rows = [row for row in load_split(DataConfig(), "test", clips=True) if row["video"]]
        write_embeddings(path, *encode_clips(model, processor, rows), made_by)
    try:
        read_embeddings(path, [], made_by)
    except ValueError as error:
        raise ValueError(f"{error}: remove the file and publish the demo again") from error
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        processor.save_pretrained(saved)
        return code_hash(Path(saved))


def encode_clips(
    model: TFCoVRForComposedRetrieval, processor: TFCoVRProcessor, rows: Sequence[dict[str, Any]]
) -> tuple[list[str], Tensor]:
    """Decode and encode the clips that the Space shows.

    Raises:
        ValueError: The miniature is damaged; what is rendered decodes.
    """
    failures: dict[str, str] = {}
    encoder = TFCoVREncoder(model.eval(), processor, processor.video_processor.num_frames)
    clip_ids, embeds = [], []
    for clip_id, frames in read_clips(rows, encoder.num_frames, failures, Work(), size=encoder.frame_size):
        with torch.inference_mode():
            embeds.append(encoder.see([frames]))
        clip_ids.append(clip_id)
    if failures:
        raise ValueError(
            f"{len(failures)} clips of the miniature cannot be read, such as {next(iter(failures.items()))}; render it "
            "again with `python -m hf_datasets prepare tfcovr`"
        )
    return clip_ids, torch.cat(embeds)
