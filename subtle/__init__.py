"""What one runs, as a library: training, measuring, tables, footage, publishing.

An index of one's own videos is at hand here; `subtle.index` says more.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hf_datasets.video import VideoError as VideoError
    from hf_models.index.store import IndexDamagedError as IndexDamagedError
    from hf_models.index.store import ModelChangedError as ModelChangedError
    from subtle.index import Index as Index
    from subtle.index import Moment as Moment
    from subtle.index import create_index as create_index
    from subtle.index import open_index as open_index

PLACES = {
    **dict.fromkeys(("Index", "Moment", "create_index", "open_index"), "subtle.index"),
    **dict.fromkeys(("IndexDamagedError", "ModelChangedError"), "hf_models.index.store"),
    "VideoError": "hf_datasets.video",
}
__all__ = [*PLACES]


def __getattr__(name: str) -> Any:
    """Import what is asked for, as it takes seconds."""
    if name not in PLACES:
        raise AttributeError(f"module 'subtle' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(PLACES[name]), name)
