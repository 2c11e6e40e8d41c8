"""Intervals of moment retrieval's figures over the videos that were drawn, and over seeds."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from subtle.run.intervals import Interval, interval_of_mean


class Measured(Protocol):
    """One model's results."""

    @property
    def per_query(self) -> dict[str, list[float]]:
        """Metric -> the results of every query."""
        ...

    @property
    def videos(self) -> list[int]:
        """The video of every query."""
        ...


def intervals_of(
    systems: Mapping[str, Sequence[Measured]], metrics: Sequence[str]
) -> dict[str, dict[str, dict[str, Interval]]]:
    """Intervals of each system, and of its difference to the first one that was asked the same queries.

    Args:
        systems: "xml, fine -> fine" (trained on -> queried with) -> its results, one for each seed.
        metrics: to give them of.

    Returns:
        `intervals`: system -> metric -> interval, and `differences`: "SYSTEM, less FIRST" -> the same, for systems with
        as many seeds as the first one.
    """
    found: dict[str, dict[str, dict[str, Interval]]] = {"intervals": {}, "differences": {}}
    firsts: dict[str, str] = {}
    for name, several in systems.items():
        first = firsts.setdefault(name.rpartition(" -> ")[2], name)
        own, other = (
            {metric: np.array([one.per_query[metric] for one in systems[system]]) for metric in metrics}
            for system in (name, first)
        )
        videos = several[0].videos
        found["intervals"][name] = {metric: interval_of_mean(own[metric], videos, share=True) for metric in metrics}
        if name != first and len(several) == len(systems[first]):
            found["differences"][f"{name}, less {first}"] = {
                metric: interval_of_mean(own[metric] - other[metric], videos) for metric in metrics
            }
    return found
