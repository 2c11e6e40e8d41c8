"""Figures of several runs of one system: mean, and standard deviation over n - 1."""

import statistics


def average(several: list[dict[str, float]]) -> dict[str, float]:
    """Mean of each figure.

    Example:
        >>> average([{"map@5": 0.5}, {"map@5": 0.7}])
        {'map@5': 0.6}
    """
    return {name: statistics.mean(figures[name] for figures in several) for name in several[0]}


def summarise(several: list[dict[str, float]]) -> dict[str, float]:
    """Mean and, from two runs on, standard deviation (`NAME_std`) of each figure.

    Example:
        >>> summarise([{"map@5": 0.5}, {"map@5": 0.7}])["map@5"]
        0.6
    """
    summary = {}
    for name, mean in average(several).items():
        summary[name] = mean
        if len(several) > 1:
            summary[f"{name}_std"] = statistics.stdev(figures[name] for figures in several)
    return summary


def in_percent(values: dict[str, float], figure: str, *, digits: int = 1) -> str:
    """A figure in percent, with its deviation where there is one."""
    deviation = values.get(f"{figure}_std")
    spread = "" if deviation is None else f" ± {100 * deviation:.{digits}f}"
    return f"{100 * values[figure]:.{digits}f}{spread}"
