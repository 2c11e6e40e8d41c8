"""What one runs, as a library: training, measuring, tables, footage, publishing.

An index of one's own videos is at hand here; `subtle.index` says more.
"""

from importlib import import_module
from typing import Any

MODULE_OF = {
    **dict.fromkeys(("Index", "Moment", "create_index", "open_index"), "subtle.index"),
    **dict.fromkeys(("Client", "ServiceError"), "subtle.client"),
    "to_fiftyone": "subtle.footage.fiftyone",
    **dict.fromkeys(("IndexDamagedError", "ModelChangedError"), "hf_models.index.store"),
    "VideoError": "hf_datasets.video",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, which takes seconds; `__init__.pyi` says what there is."""
    if name not in MODULE_OF:
        raise AttributeError(f"module 'subtle' has no attribute {name!r}")
    return getattr(import_module(MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *MODULE_OF])
