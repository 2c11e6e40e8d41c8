"""Keep paths and names of the machine that made a result out of what is published."""

import platform
import re
from collections.abc import Callable, Iterator
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
        value: What `json.loads` gives; paths with blanks are recognized where they are options, under `config`.
        shipped: The id on the Hub of a folder of `recipes/weights`, by its name; a path of such a folder becomes it.

    Returns:
        A new value.

    Example:
        >>> without_paths({"config": {"base": "/lib/subtle_recipes/weights/miniature-clip", "output_dir": "outputs"}})
        {'config': {'base': 'miniature-clip'}}
        >>> without_paths(["no file in /data/videos", "validation/accuracy", "https://huggingface.co/org/name"])
        ['no file in <path>', 'validation/accuracy', 'https://huggingface.co/org/name']
    """
    options = value.get("config", {}) if isinstance(value, dict) else {}
    whole = {text for text in strings_in(options) if Path(text).is_absolute() and len(Path(text).parts) > 1}
    known = "|".join(re.escape(text) for text in sorted(whole, key=len, reverse=True))
    # An option is a path as a whole, blanks and all, and what follows it in a text is of that path.
    pattern = re.compile(rf"(?:{known})[^\s'\"`,;:()|<>]*|{PATH.pattern}") if known else PATH
    host = platform.node()

    def clean(value: Any) -> Any:
        if isinstance(value, list):
            return [clean(item) for item in value]
        if isinstance(value, dict):
            cleaned: dict[str, Any] = {}
            for key, item in value.items():
                if key not in DROPPED_KEYS:
                    name = clean(key)
                    several = f" {len(cleaned)}" if name in cleaned else ""
                    cleaned[f"{name}{several}"] = clean(item)
            return cleaned
        if not isinstance(value, str):
            return value
        if found := SHIPPED.fullmatch(value):
            return shipped(found[1])
        text = pattern.sub(PLACEHOLDER, value)
        return re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "<host>", text) if len(host) > 1 else text

    return clean(value)


def strings_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings_in(item)
