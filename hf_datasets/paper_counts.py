"""What a paper counts beside what was counted here: `PAPER_COUNTS` of each wing's `statistics` module."""

from collections.abc import Mapping

Counts = Mapping[str, Mapping[str, float]]
"""What was counted (a dataset, a split of it) -> name of the count -> figure."""


def beside_paper(paper: Counts, here: Counts) -> dict[str, dict[str, dict[str, float]]]:
    """Each figure of a paper that was counted here too, in the paper's order, as `statistics.json` holds it.

    Returns:
        The keys of both -> `paper`, `here` and `difference` (here less paper, to 6 decimals).

    Example:
        >>> beside_paper({"train": {"rows": 10, "words": 6.1}, "test": {"rows": 3}}, {"train": {"rows": 9}})
        {'train': {'rows': {'paper': 10, 'here': 9, 'difference': -1}}}
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for of, figures in paper.items():
        for count, figure in figures.items():
            if count in here.get(of, {}):
                value = here[of][count]
                row = {"paper": figure, "here": value, "difference": round(value - figure, 6)}
                found.setdefault(of, {})[count] = row
    return found
