"""Texts of queries in a fraction of a second: the text half of an index's model, exported when the index is made.

It lies in the index, in `text_queries/KEY`, where KEY is that of the model. A search by a text alone runs it without
importing torch. Where it is missing, or the model has changed since, the model itself is loaded: the same answer, or
the refusal of a model that makes other vectors, some seconds later.
"""

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_models.atomic_files import replacing
from hf_models.index.store import IndexedModel, MomentIndex
from hf_models.query_texts import DESCRIPTION, ExportedTextEncoder, cached_commit, check_text, files_of_model

if TYPE_CHECKING:
    from hf_models.moment_encoders import MomentEncoder

FOLDER = "text_queries"
MODEL = "model.json"


def text_query(index: MomentIndex, model: IndexedModel, text: str) -> np.ndarray | None:
    """The vector of a text, `(D,)`, without loading the model; None where that is not possible.

    Raises:
        ValueError: The model does not read such a text.
    """
    check_text(text)
    try:
        folder = folder_of(index, model)
        if folder is None or model.details.get("trust_remote_code"):
            return None
        known = json.loads((folder / MODEL).read_text(encoding="utf-8"))
        if known is None or known != state_of(model):
            return None
        encoder = ExportedTextEncoder(folder)
    except (ImportError, OSError, ValueError):
        return None
    return encoder.query(text) if encoder.fields["dimensions"] == model.dimensions else None


def keep_text_queries(index: MomentIndex, model: IndexedModel, encoder: "MomentEncoder") -> str | None:
    """Export the text half of an index's model, where that is not done; returns why it cannot be, or None.

    Raises:
        OSError: It cannot be written.
    """
    folder = folder_of(index, model)
    if folder is None:
        return f"the index is not in a folder of this machine: {index.path}"
    if not encoder.reads_texts:
        return None
    state = state_of(model)
    with suppress(OSError, ValueError):
        if (folder / DESCRIPTION).is_file() and json.loads((folder / MODEL).read_text(encoding="utf-8")) == state:
            return None
    from hf_models.text_export import export_text_half

    (folder / MODEL).unlink(missing_ok=True)
    reason = export_text_half(encoder, folder)
    if reason is None:
        with replacing(folder / MODEL) as unfinished:
            unfinished.write_text(json.dumps(state), encoding="utf-8")
    return reason


def folder_of(index: MomentIndex, model: IndexedModel) -> Path | None:
    """Where the text half of a model lies; None in a bucket."""
    is_plain = re.fullmatch(r"\w+", model.key) is not None  # an index may come from anyone
    return Path(index.path) / FOLDER / model.key if is_plain and "://" not in index.path else None


def state_of(model: IndexedModel) -> Any:
    """What the model's files look like now: those of its folder, or the commit in the cache of the Hub; None: no idea.

    A folder must also be as it was when the vectors were made.
    """
    files = files_of_model(model.name)
    if files is not None:
        return files if files == model.details.get("files") else None
    return cached_commit(model.name) if model.details.get("files") is None else None
