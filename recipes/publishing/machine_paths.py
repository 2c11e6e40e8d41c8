"""Keep paths and names of the machine that made a result out of what is published."""

import json
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

PLACEHOLDER = "<path>"
DROPPED_KEYS = frozenset({"output_dir", "source", "cache_dir"})
"""Folders of a run that say nothing about its result."""
SHIPPED = re.compile(r"(?:.*/)?(?:recipes|subtle_recipes)/weights/([\w.-]+)/?")
# An absolute path of POSIX or Windows, one of a home folder, one that climbs out of the working directory, a file URL;
# a URL's own slashes and those of names such as `validation/accuracy` follow a letter or a colon.
PATH = re.compile(
    r"file://[^\s,;()'\"`]+"
    r"|(?<![\w.:/~@<>-])(?:~[\w.-]*/|(?:\.\.?/)+(?=[\w.~-])|/(?=[\w.~-]))[^\s'\"`,;:()\[\]{}|<>]*"
    r"|(?<!\w)[A-Za-z]:[\\/][^\s'\"`,;()|<>]*"
    r"|\\\\[\w.-]+\\[^\s'\"`,;()|<>]*"
)


def without_paths(value: Any, *, shipped: Callable[[str], str] = lambda name: name) -> Any:
    """A value of JSON without `DROPPED_KEYS`, with `<path>` for paths and without the name of this machine.

    Args:
        value: What `json.loads` gives.
        shipped: The id on the Hub of a folder of `recipes/weights`, by its name; a path of such a folder becomes it.

    Returns:
        A new value.

    Example:
        >>> without_paths({"config": {"base": "/lib/subtle_recipes/weights/miniature-clip", "output_dir": "outputs"}})
        {'config': {'base': 'miniature-clip'}}
        >>> without_paths(["no file in /data/videos", "validation/accuracy", "https://huggingface.co/org/name"])
        ['no file in <path>', 'validation/accuracy', 'https://huggingface.co/org/name']
    """
    if isinstance(value, dict):
        return {
            without_paths(key, shipped=shipped): without_paths(item, shipped=shipped)
            for key, item in value.items()
            if key not in DROPPED_KEYS
        }
    if isinstance(value, list):
        return [without_paths(item, shipped=shipped) for item in value]
    return _clean_text(value, shipped) if isinstance(value, str) else value


def _clean_text(text: str, shipped: Callable[[str], str]) -> str:
    found = SHIPPED.fullmatch(text)
    if found:
        return shipped(found[1])
    if Path(text).is_absolute():
        return PLACEHOLDER  # whatever characters it has
    text = PATH.sub(PLACEHOLDER, text)
    host = platform.node()
    return re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "<host>", text) if len(host) > 1 else text


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds.

    Raises:
        ValueError: It cannot be read as JSON, or is not an object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} does not hold a JSON object")
    return value
