"""Tables for a person at a terminal, in a log, or in Markdown."""

from collections.abc import Mapping, Sequence

from rich.table import Table

from hf_models.cards import cell
from subtle.run.screen import Screen

REPORT_WIDTH = 100
"""Columns of what is printed where no terminal says how many it has."""
WIDEST = 40
"""Characters of a cell beyond which it takes several lines."""


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}"


def show(head: Sequence[str], cells: Sequence[Sequence[str]], title: str, first: Sequence[str] = ()) -> None:
    """Print a table without empty columns; those that do not fit beside the others follow below, in parts.

    Args:
        head: headings, that of the names first.
        cells: of each row.
        title: of the table.
        first: headings that come before all others where not all fit.
    """
    console = Screen()
    room = console.width if console.is_terminal else REPORT_WIDTH
    widths = []
    for place, heading in enumerate(head):
        longest = max((len(row[place]) for row in cells), default=0)
        widths.append(max(longest if not place else min(longest, WIDEST), *map(len, heading.split() or [""])))
    left = [place for place in range(1, len(head)) if any(row[place] for row in cells)]
    left.sort(key=lambda place: head[place] not in first)
    parts: list[list[int]] = []
    while left or not parts:
        part, free = [0], room - widths[0] - 4
        for place in left:
            if widths[place] + 3 <= free or part == [0]:
                part.append(place)
                free -= widths[place] + 3
        left = [place for place in left if place not in part]
        parts.append(sorted(part))
    print(title)  # a table's own title is broken at the table's width
    for part in parts:
        table = Table()
        for place in part:
            table.add_column(head[place], width=widths[place], no_wrap=not place, overflow="fold")
        for row in cells:
            if part is parts[0] or any(row[place] for place in part[1:]):
                table.add_row(*(row[place] for place in part))
        wide = max(room, sum(widths[place] + 3 for place in part) + 1)
        Screen(width=wide, highlight=False).print(table)


def show_beside_paper(compared: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """Print what `hf_datasets.paper_counts.beside_paper` found, if anything."""
    rows = [(f"{of}: {count}", row) for of, counts in compared.items() for count, row in counts.items()]
    cells = [[name, *(f"{round(row[key], 4):,.10g}" for key in ("paper", "here", "difference"))] for name, row in rows]
    if cells:
        show(["count", "paper", "here", "difference"], cells, "beside the paper's figures")


def as_markdown(heading: str, lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown under its heading; the first line is its head."""
    head, *body = [[cell(value) for value in line] for line in lines]
    return "\n".join([heading, "", *(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *body)), ""])
