"""The folder of an index's videos, if this user named it: an index may come from anyone, and says where they are.

Otherwise a stranger's index could have a user's own files exported, shown or sent to a model. What was indexed on this
machine is noted in the user's cache; of other indexes only a folder beside them is taken unasked.
"""

import hashlib
import json
from pathlib import Path

from hf_datasets.drafts import write_json
from hf_models.index.store import IndexedModel, MomentIndex


def note_root(index: MomentIndex, root: Path) -> None:
    """Note that this user named a folder as that of an index's videos.

    Raises:
        OSError: The cache cannot be written.
    """
    note, roots = noted(index)
    if str(root) not in roots:
        write_json(note, [*roots, str(root)])


def root_of(index: MomentIndex, model: IndexedModel, given: str | None) -> Path:
    """The folder of the videos: what is given now, was indexed on this machine, or lies beside the index.

    Raises:
        ValueError: It is none of these.
    """
    if given is not None:
        return Path(given).expanduser()
    root = Path(model.root)
    if model.root in noted(index)[1]:
        return root
    if "://" not in index.path:
        beside = Path(index.path).resolve().parent
        if root.is_absolute() and beside in root.resolve().parents:
            return root
    raise ValueError(
        f"{index.path} says that its videos are in {model.root}, which is not beside it and was not indexed on this "
        f"machine; an index may come from anyone: if these are its videos, add --video_dir {model.root}"
    )


def noted(index: MomentIndex) -> tuple[Path, list[str]]:
    """Where the folders of an index are noted, and those that are."""
    from huggingface_hub import cached_assets_path

    note = cached_assets_path("subtle-video", "roots") / f"{hashlib.sha256(index.place.encode()).hexdigest()[:24]}.json"
    try:
        roots = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        roots = []
    return note, [root for root in roots if isinstance(root, str)] if isinstance(roots, list) else []
