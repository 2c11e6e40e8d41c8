"""Registers our classes with the Auto classes of transformers without importing either before it is used.

`Auto*.register` takes classes, which take seconds to import. So the mapping behind each Auto class gets our entries as
names, and registers the class of a name when it is looked up. This is the one file that touches what transformers
keeps private.
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

import wrapt

if TYPE_CHECKING:
    from _collections_abc import dict_items, dict_keys, dict_values

# Auto class -> its module of `transformers.models.auto` and the mapping behind it.
MAPPINGS = {
    "AutoConfig": ("configuration_auto", "CONFIG_MAPPING"),
    "AutoModel": ("modeling_auto", "MODEL_MAPPING"),
    "AutoModelForVideoClassification": ("modeling_auto", "MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING"),
    "AutoProcessor": ("processing_auto", "PROCESSOR_MAPPING"),
    "AutoVideoProcessor": ("video_processing_auto", "VIDEO_PROCESSOR_MAPPING"),
}


class LazyEntries(dict[Any, Any]):
    """What was registered with an Auto class: a dict of which some entries are made when they are read.

    Example:
        >>> entries = LazyEntries()
        >>> entries.add("ordered", lambda key: entries.update({key: import_object("collections:OrderedDict")}))
        >>> "ordered" in entries, entries["ordered"].__name__
        (True, 'OrderedDict')
    """

    def __init__(self, entries: Mapping[Any, Any] = MappingProxyType({})) -> None:
        super().__init__(entries)
        self._pending: dict[str, Callable[[Any], None]] = {}

    def add(self, key: str, register: Callable[[Any], None]) -> None:
        """Let `register` make the entry `key`: a string, or the full name of a class that is the key."""
        self._pending[key] = register

    def _make(self, key: Any) -> None:
        register = self._pending.pop(full_name(key), None)
        if register is not None:
            register(key)

    def _make_all(self) -> None:
        for key in list(self._pending):
            self._make(import_object(key) if ":" in key else key)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or full_name(key) in self._pending

    def __getitem__(self, key: Any) -> Any:
        self._make(key)
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._pending.pop(full_name(key), None)
        super().__setitem__(key, value)

    def __iter__(self) -> Iterator[Any]:
        self._make_all()
        return super().__iter__()

    def __len__(self) -> int:
        return super().__len__() + len(self._pending)

    def keys(self) -> "dict_keys[Any, Any]":
        """All keys, none pending."""
        self._make_all()
        return super().keys()

    def values(self) -> "dict_values[Any, Any]":
        """All values, none pending."""
        self._make_all()
        return super().values()

    def items(self) -> "dict_items[Any, Any]":
        """All keys and values, none pending."""
        self._make_all()
        return super().items()


def full_name(key: object) -> str:
    """`module:Class` of a class, the text of anything else."""
    return f"{key.__module__}:{key.__qualname__}" if isinstance(key, type) else str(key)


def import_object(name: str) -> Any:
    """The object `module:name`."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def register_lazily(auto_name: str, key: str, name: str) -> None:
    """Register a class with an Auto class of transformers, and let a folder saved from it carry its code.

    Both happen when the module of the Auto class or of the class is imported; now, where it has been.

    Args:
        auto_name: A key of `MAPPINGS`.
        key: What it gives the class for: a `model_type`, or a configuration as `module:Class`.
        name: The class as `module:Class`.
    """
    auto_module, mapping_name = MAPPINGS[auto_name]
    module, _, attribute = name.partition(":")

    def register(imported: ModuleType) -> None:
        mapping, auto_class = getattr(imported, mapping_name), getattr(imported, auto_name)
        if not isinstance(mapping._extra_content, LazyEntries):
            mapping._extra_content = LazyEntries(mapping._extra_content)
        mapping._extra_content.add(key, lambda found: auto_class.register(found, import_object(name), exist_ok=True))

    def save_code(imported: ModuleType) -> None:
        getattr(imported, attribute).register_for_auto_class(auto_name)

    wrapt.register_post_import_hook(register, f"transformers.models.auto.{auto_module}")
    wrapt.register_post_import_hook(save_code, module)


def register_peft_method(library: str, method: str, *, needs: tuple[str, ...]) -> None:
    """Import the module `method`, which registers a PEFT method, as soon as `library` has been imported.

    Where one of the modules that it `needs` is what imports the library, that one is finished first.
    """
    finished = set()

    def register(imported: ModuleType) -> None:
        finished.add(imported.__name__)
        begun = {library, *(name for name in needs if name in sys.modules)}
        if begun <= finished:
            importlib.import_module(method)

    for name in (library, *needs):
        wrapt.register_post_import_hook(register, name)
