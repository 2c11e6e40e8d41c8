"""Search an index by a clip, by a text, or by a clip and how the wanted moment differs from it."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from subtle.footage.options import SearchConfig
from subtle.footage.output import OUTPUT_FORMATS
from subtle.index import Index
from subtle.running import visible


def to_stderr(message: str) -> None:
    sys.stderr.write(f"{visible(message)}\n")


def find(config: SearchConfig, *, say: Callable[[str], None] = to_stderr) -> list[dict[str, Any]]:
    """The moments that fit best, best first; see `Index.search`."""
    return opened(config).find(config, say)


def opened(config: SearchConfig) -> Index:
    """The index that is searched."""
    asked = {name: getattr(config, name) for name in ("model", "device", "video_dir", "trust_remote_code")}
    return Index(config.index, **asked)


def main(config: SearchConfig) -> int:
    root = None if config.export is None else str(opened(config).root())  # refused before the search
    found = find(config)
    print(OUTPUT_FORMATS[config.format](found))
    if root is None or config.export is None:
        return 0
    from subtle.footage.exporting import export, told_of_copies

    failures = export(found, root, Path(config.export), exact=config.exact, mute=config.mute)
    sys.stderr.write(f"{config.export}: {len(found) - len(failures)} of {len(found)} moments\n")
    if (told := told_of_copies(Path(config.export))) is not None:
        sys.stderr.write(f"  {told}\n")
    for reason in failures:
        sys.stderr.write(f"  left out: {visible(' '.join(reason.split()))}\n")
    return 1 if failures else 0
