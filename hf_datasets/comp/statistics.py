"""The statistics of ActivityNet-Comp and YouCook2-Comp in the paper."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

PAPER_COUNTS: Final[dict[str, dict[str, float]]] = {
    f"{dataset}/{split}": {
        "temporal_reorder": reorder,
        "action_replace": action,
        "segment_mismatch": segment,
        "total": reorder + action + segment,
    }
    for dataset, split, reorder, action, segment in (
        ("activitynet_comp", "train", 5995, 5583, 4502),
        ("activitynet_comp", "validation", 280, 221, 334),
        ("youcook2_comp", "train", 1174, 1100, 1082),
        ("youcook2_comp", "validation", 409, 361, 397),
    )
}
"""VideoComp, Table 1: dataset/split -> pairs of each disruption; its validation splits are random samples."""


def disruption_counts(dataset: str, splits: Mapping[str, Iterable[str]]) -> dict[str, dict[str, float]]:
    """Pairs of each disruption, under the names of `PAPER_COUNTS`; those of several disruptions are not in the total.

    Args:
        dataset: `activitynet_comp` or `youcook2_comp`.
        splits: Split -> the `disruption_type` of each row.

    Example:
        >>> disruption_counts("youcook2_comp", {"train": ["action_replace", "multi"]})["youcook2_comp/train"]["total"]
        1
    """
    found: dict[str, dict[str, float]] = {}
    for split, types in splits.items():
        counts = Counter(types)
        names = ("temporal_reorder", "action_replace", "segment_mismatch")
        figures = {name: counts[name] for name in names}
        found[f"{dataset}/{split}"] = {**figures, "total": sum(figures.values()), "multi": counts["multi"]}
    return found
