"""Texts of queries in a fraction of a second: the text half of a model, exported on this machine.

It lies in the user's cache and is never taken from an index, which may come from anyone: a program in it would run. A
search by a text alone runs it without importing torch. Where it is missing, or the model has changed since, the model
itself is loaded: the same answer, or the refusal of a model that makes other vectors, some seconds later.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_models.atomic_files import replacing
from hf_models.index.store import IndexedModel
from hf_models.query_texts import ExportedTextEncoder, cached_commit, files_of_model

if TYPE_CHECKING:
    from hf_models.encoders import Encoder

MODEL = "model.json"


def exported_text_encoder(model: IndexedModel) -> ExportedTextEncoder | None:
    """The text half of a model, which embeds texts without the model; None where that is not possible."""
    if model.details.get("trust_remote_code"):
        return None
    try:
        folder = folder_of(model.name, model.key)
        # First, as an index may name a folder that takes long to look through.
        known = read_export_state(folder).get("state")
        if not known or known != state_of(model.name):
            return None
        encoder = ExportedTextEncoder(folder)
    except (ImportError, OSError, ValueError):
        return None
    return encoder if encoder.fields["dimensions"] == model.dimensions else None


def keep_text_queries(name: str, encoder: "Encoder") -> str | None:
    """Export the text half of a model, by its folder or Hub name, if it is not done; why it cannot be, or None."""
    state = state_of(name)
    if not encoder.reads_texts or not state:
        return None
    from hf_models.fingerprints import key_of
    from subtle.footage.models import vector_origin

    try:
        folder = folder_of(name, key_of(vector_origin(encoder)))
        known = read_export_state(folder)
        if known.get("state") == state:
            refused: str | None = known["reason"]
            return refused
        for old in folder.parent.glob("*"):  # of what the model was before
            if read_export_state(old).get("state") != state:
                shutil.rmtree(old, ignore_errors=True)
        from hf_models.text_export import export_text_half

        reason = export_text_half(encoder, folder)
        if "is not installed" not in (reason or ""):
            with replacing(folder / MODEL) as unfinished:
                unfinished.write_text(json.dumps({"state": state, "reason": reason}), encoding="utf-8")
    except OSError as error:
        return str(error)
    return reason


def read_export_state(folder: Path) -> dict[str, Any]:
    """`state`, what the model's files looked like, and `reason`, why there is no export, or None; empty: not known."""
    try:
        known = json.loads((folder / MODEL).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) and {"state", "reason"} <= known.keys() else {}


def folder_of(name: str, key: str) -> Path:
    """Where the text half of a model is kept: in the user's cache, by names that are hashes of what an index says."""
    from huggingface_hub import cached_assets_path

    place = str(Path(name).resolve()) if Path(name).is_dir() else name
    names = (hashlib.sha256(part.encode()).hexdigest()[:24] for part in (place, key))
    return cached_assets_path("subtle-video", "text_queries", next(names)) / next(names)


def state_of(name: str) -> Any:
    """What a model's files look like now: those of its folder, or the commit in the cache of the Hub; None: no idea."""
    files = files_of_model(name)
    return cached_commit(name) if files is None else files or None
