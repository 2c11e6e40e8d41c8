"""Figures of several runs of one system: mean, and standard deviation over n - 1."""

import statistics


def summarise(several: list[dict[str, float]]) -> dict[str, float]:
    """Mean and, from two runs on, standard deviation (`NAME_std`) of each figure.

    Example:
        >>> summarise([{"map@5": 0.5}, {"map@5": 0.7}])["map@5"]
        0.6
    """
    summary = {}
    for name in several[0]:
        values = [figures[name] for figures in several]
        summary[name] = statistics.mean(values)
        if len(values) > 1:
            summary[f"{name}_std"] = statistics.stdev(values)
    return summary


def in_percent(values: dict[str, float], figure: str, *, digits: int = 1) -> str:
    """A figure in percent, with its deviation where there is one."""
    deviation = values.get(f"{figure}_std")
    spread = "" if deviation is None else f" ± {100 * deviation:.{digits}f}"
    return f"{100 * values[figure]:.{digits}f}{spread}"
