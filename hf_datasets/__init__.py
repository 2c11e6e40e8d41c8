"""Datasets of fine-grained video retrieval; importing this registers their names with `load_dataset`.

`datasets` itself is not imported here, so that a process which only reads videos starts at once.
"""

from typing import TYPE_CHECKING, Any

from hf_datasets.records import Clip, ContrastPair, LabelPair, Moment, Rejection
from hf_datasets.registry import register

if TYPE_CHECKING:
    from hf_datasets.builders import prepare

register()

__all__ = ["Clip", "ContrastPair", "LabelPair", "Moment", "Rejection", "prepare", "register"]


def __getattr__(name: str) -> Any:
    if name == "prepare":
        from hf_datasets.builders import prepare

        return prepare
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
