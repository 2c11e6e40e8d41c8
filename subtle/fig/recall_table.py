"""The table of moment retrieval's figures: three tasks, one below the other, for each system."""

from collections.abc import Mapping
from typing import Any

from subtle.run.intervals import Interval
from subtle.run.over_seeds import in_percent
from subtle.run.printing import show

K, IOU = (1, 5, 10, 100), (0.5, 0.7)
COLUMNS = [f"R@{k} IoU {iou}" for iou in IOU for k in K]
TASKS = {task: [f"{task.lower()}_recall@{k}_iou@{iou}" for iou in IOU for k in K] for task in ("VCMR", "SVMR")} | {
    "VR": [f"vr_recall@{k}" for k in K]  # without an IoU
}
SHOWN = [metric for names in TASKS.values() for metric in names]


def show_recall(
    results: Mapping[str, dict[str, float]],
    intervals: Mapping[str, Mapping[str, Interval]],
    coverage: Mapping[str, Any],
    signature: str,
) -> None:
    """Print the table, with coverage and protocol."""
    cells = []
    for name, values in results.items():
        for task, metrics in TASKS.items():
            shown = [
                f"{in_percent(values, metric)} {intervals[name][metric].bounds_in_percent(1)}" for metric in metrics
            ]
            cells.append([f"{name}, {task}", *shown, *[""] * (len(COLUMNS) - len(shown))])
    show(["trained on -> queried with", *COLUMNS], cells, "Recall, %")
    print(
        f"coverage: {coverage['queries_used']:,} of {coverage['queries']:,} queries, {coverage['videos_used']:,} of "
        f"{coverage['videos']:,} videos; mean ± standard deviation over seeds, [95 % interval over videos and seeds]\n"
        f"{signature}"
    )
