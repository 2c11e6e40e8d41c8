"""What recipes print of files: tables, titles and lines show it as it is written."""

import ast
import sys
from pathlib import Path

import pytest
from rich.table import Table

from subtle.run.screen import Screen
from subtle.running import CONTROL_CHARACTERS, run_recipe

SUBTLE = Path(__file__).parents[3] / "subtle"
HOSTILE = "[/x] [red]a :dog: \x1b[31m\x1b]0;t\x07\x9b1A\u202e\r"
SHOWN = "[/x] [red]a :dog: \\x1b[31m\\x1b]0;t\\x07\\x9b1A\\u202e\\r"


def in_table():
    table = Table(HOSTILE, title=HOSTILE, caption=HOSTILE)
    table.add_row(HOSTILE)
    Screen(width=200).print(table)


PRINTERS = {
    "table": (in_table, 4),
    "line": (lambda: Screen(width=200).print(HOSTILE, style="dim"), 1),
    "rule": (lambda: Screen(width=200).rule(HOSTILE), 1),
    "print": (lambda: print(HOSTILE), 1),  # noqa: T201
    "write": (lambda: sys.stdout.write(HOSTILE), 1),
    "a recipe in a recipe": (lambda: run_recipe(lambda _: in_table(), None) and None, 4),
}


@pytest.mark.parametrize("name", PRINTERS)
def test_what_a_recipe_prints_of_a_file_is_shown_as_it_is_written(name, capsys):
    show, times = PRINTERS[name]
    before = sys.stdout
    assert run_recipe(lambda _: (show(), 0)[1], None) == 0
    assert sys.stdout is before
    out = capsys.readouterr().out
    assert out.count(SHOWN) == times, out
    assert not CONTROL_CHARACTERS.search(out.replace("\n", ""))


def test_colors_of_ours_still_reach_a_terminal(capsys):
    assert run_recipe(lambda _: Screen(force_terminal=True, color_system="standard").print("a", style="red"), None) == 0
    assert capsys.readouterr().out == "\x1b[31ma\x1b[0m\n"


def test_recipes_print_with_this_console_only():
    sources = {path: ast.parse(path.read_text(encoding="utf-8")) for path in SUBTLE.rglob("*.py")}
    users = {
        path.name
        for path, tree in sources.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in {"rich", "rich.console", "rich.markup"}
    }
    assert users == {"screen.py"}
