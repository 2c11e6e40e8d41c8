"""What a paper counts beside what was counted here: `PAPER_COUNTS` of each wing's `statistics` module."""

from collections.abc import Mapping

Counts = Mapping[str, Mapping[str, float]]
"""What was counted (a dataset, a split of it) -> name of the count -> figure."""


def beside_paper(paper: Counts, here: Counts) -> list[dict[str, str | float]]:
    """Each figure of a paper that was counted here too, in the paper's order.

    Returns:
        Records with `of`, `count`, `paper`, `here` and `difference` (here less paper, to 6 decimals).

    Example:
        >>> beside_paper({"train": {"rows": 10, "words": 6.1}, "test": {"rows": 3}}, {"train": {"rows": 9}})
        [{'of': 'train', 'count': 'rows', 'paper': 10, 'here': 9, 'difference': -1}]
    """
    return [
        {
            "of": of,
            "count": count,
            "paper": figure,
            "here": here[of][count],
            "difference": round(here[of][count] - figure, 6),
        }
        for of, figures in paper.items()
        for count, figure in figures.items()
        if count in here.get(of, {})
    ]
