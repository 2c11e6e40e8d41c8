"""The console on which recipes print tables and lines: texts from files are shown in it as they are written."""

import sys
from typing import IO, Any

from rich.console import Console
from rich.text import Text

from subtle.running import VisibleOutput, visible


class Screen(Console):
    """A console of rich that takes no text for markup, emoji or control characters, wherever the text comes from.

    Args:
        options: Of rich's console.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    @property  # type: ignore[misc]  # which nothing sets here
    def file(self) -> IO[str]:
        """Where it prints: its own colors are no text, and reach a terminal."""
        stream = sys.stderr if self.stderr else sys.stdout
        while isinstance(stream, VisibleOutput):
            stream = stream.stream
        return stream

    def render_str(self, text: str, **options: Any) -> Text:
        """A text of a cell, a title or a line."""
        return super().render_str(visible(text, kept="\n\t"), **options)
