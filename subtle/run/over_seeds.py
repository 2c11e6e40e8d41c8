"""Metrics of several runs of one system: mean, and standard deviation over n - 1."""

import statistics


def average(several: list[dict[str, float]]) -> dict[str, float]:
    """Mean of each metric.

    Example:
        >>> average([{"map@5": 0.5}, {"map@5": 0.7}])
        {'map@5': 0.6}
    """
    return {name: statistics.mean(run[name] for run in several) for name in several[0]}


def summarize(several: list[dict[str, float]]) -> dict[str, float]:
    """Mean and, from two runs on, standard deviation (`NAME_std`) of each metric.

    Example:
        >>> summarize([{"map@5": 0.5}, {"map@5": 0.7}])["map@5"]
        0.6
    """
    summary = {}
    for name, mean in average(several).items():
        summary[name] = mean
        if len(several) > 1:
            summary[f"{name}_std"] = statistics.stdev(run[name] for run in several)
    return summary


def in_percent(values: dict[str, float], metric: str, *, digits: int = 1) -> str:
    """A metric in percent, with its deviation where there is one."""
    deviation = values.get(f"{metric}_std")
    spread = "" if deviation is None else f" ± {100 * deviation:.{digits}f}"
    return f"{100 * values[metric]:.{digits}f}{spread}"
