"""A published model's card from what was measured: results as model-index and `.eval_results`, tables, training curve.

`subtle/hub/model.py` puts them together for the folders that recipes write; each works alone on your own.
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import (
    EvalResult,
    EvalResultEntry,
    ModelCard,
    ModelCardData,
    eval_result_entries_to_yaml,
)

CURVE_FILE = "training_curve.png"
CURVE_PIXELS = (900, 450)
"""Width and height of the picture."""
RESULTS_FOLDER = ".eval_results"
DOTS_PER_INCH = 100


@dataclass(frozen=True)
class Measurement:
    """One value that was measured.

    Attributes:
        metric: Its name in the results, such as `map@50`.
        value: As it was measured; most metrics give a fraction in [0, 1].
        metric_id: Of what computes it: a name for `evaluate.load`, or a plain word such as `accuracy`.
        dataset: Id of the dataset on the Hub, `ORG/NAME`; None for data that is not there.
        config: Configuration of the dataset.
        split: Split of the dataset.
        signature: The metric's line about its protocol; None where it has none.
        date: When it was measured, in ISO 8601; None where nobody noted it.
        revision: Commit of the dataset on the Hub that was measured on; None where its rows came from elsewhere.
    """

    metric: str
    value: float
    metric_id: str
    dataset: str | None = None
    config: str | None = None
    split: str | None = None
    signature: str | None = None
    date: str | None = None
    revision: str | None = None


def eval_results(measurements: Iterable[Measurement], *, task_type: str, task_name: str) -> list[EvalResult]:
    """Measurements as the card's `model-index` has them; those on data that is not on the Hub are left out.

    Args:
        measurements: What was measured; values that are not finite are left out.
        task_type: The task's identifier, such as `video-classification`.
        task_name: The task in words.

    Returns:
        One entry for each, with the signature among the metric's arguments.

    Example:
        >>> measured = Measurement("map@50", 0.25, "org/map_at_k", "org/tfcovr", "mini", "test", "map@k|version:1")
        >>> (found,) = eval_results([measured], task_type="video-retrieval", task_name="Composed video retrieval")
        >>> found.metric_value, found.metric_args
        (0.25, {'signature': 'map@k|version:1'})
    """
    return [
        EvalResult(
            task_type=task_type,
            task_name=task_name,
            dataset_type=one.dataset,
            dataset_name=one.dataset.rpartition("/")[2],
            dataset_config=one.config,
            dataset_split=one.split,
            dataset_revision=one.revision,
            metric_type=one.metric_id,
            metric_name=one.metric,
            metric_value=one.value,
            metric_args={"signature": one.signature} if one.signature else None,
        )
        for one in measurements
        if one.dataset and math.isfinite(one.value)
    ]


def write_benchmark_results(
    folder: str | os.PathLike[str], tasks: Mapping[str, Measurement], *, source: str | None = None
) -> list[Path]:
    """Write `.eval_results/<dataset>.yaml`, which the Hub shows on the model's page and the benchmark's leaderboard.

    Args:
        folder: The model's folder.
        tasks: Task id in the `eval.yaml` of the measurement's dataset -> the one value that it takes.
        source: Address of where the values can be checked, such as the files of the model on the Hub.

    Returns:
        The files, one for each dataset; none without measurements on datasets of the Hub.
    """
    entries: dict[str, list[EvalResultEntry]] = {}
    for task_id, one in tasks.items():
        if one.dataset and math.isfinite(one.value):
            entry = EvalResultEntry(
                dataset_id=one.dataset,
                task_id=task_id,
                value=one.value,
                dataset_revision=one.revision,
                date=one.date,
                source_url=source,
                source_name="results" if source else None,
                notes=one.signature,
            )
            entries.setdefault(one.dataset, []).append(entry)
    files = []
    for dataset, found in entries.items():
        path = Path(folder, RESULTS_FOLDER, f"{dataset.rpartition('/')[2]}.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(eval_result_entries_to_yaml(found), sort_keys=False), encoding="utf-8")
        files.append(path)
    return files


def draw_training_curve(history: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> bool:
    """Draw the loss and the validation metrics of every epoch as a PNG of `CURVE_PIXELS`.

    Args:
        history: One entry for each epoch: `loss` and metrics by name, as the `history` of `results.json`.
        path: The picture.

    Returns:
        Whether there was something to draw.
    """
    names = [name for name in (history[0] if history else {}) if name != "epoch"]
    curves = {name: [epoch.get(name) for epoch in history] for name in names}
    curves = {
        name: values for name, values in curves.items() if all(isinstance(value, int | float) for value in values)
    }
    panels = [[name for name in curves if name == "loss"], [name for name in curves if name != "loss"]]
    panels = [panel for panel in panels if panel]
    if not panels:
        return False
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    width, height = (pixels / DOTS_PER_INCH for pixels in CURVE_PIXELS)
    figure = Figure((width, height), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for name in panel:
            axes.plot(range(1, len(history) + 1), curves[name], marker=".", label=name)
        axes.set_xlabel("epoch")
        axes.set_title("training loss" if panel == ["loss"] else "validation")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        if panel != ["loss"]:
            figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize="small")
    figure.savefig(path, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    return True


def results_table(measurements: Sequence[Measurement]) -> str:
    """A Markdown table of measurements, and the signature of each protocol under it.

    Values keep four significant digits, and are the fractions of the results, not percent.

    Example:
        >>> print(results_table([Measurement("accuracy", 0.87946, "accuracy", split="validation")]))
        | metric | dataset | split | value |
        |---|---|---|---:|
        | accuracy |  | validation | 0.8795 |
    """
    rows = ["| metric | dataset | split | value |", "|---|---|---|---:|"]
    for one in measurements:
        dataset = " ".join(filter(None, (one.dataset, one.config)))
        rows.append(f"| {cell(one.metric)} | {cell(dataset)} | {cell(one.split or '')} | {one.value:.4g} |")
    signatures = dict.fromkeys(one.signature for one in measurements if one.signature)
    protocols = [f"    {' '.join(signature.split())}" for signature in signatures]
    return "\n".join([*rows, *(["", "Protocol, as the metric states it:", "", *protocols] if protocols else [])])


def options_table(options: Mapping[str, Any]) -> str:
    """A Markdown table of the options of a run.

    Example:
        >>> print(options_table({"epochs": 2, "tracker": None}))
        | option | value |
        |---|---|
        | epochs | `2` |
        | tracker | `none` |
    """
    rows = [f"| {cell(name)} | `{cell(option_text(value)).replace('`', chr(39))}` |" for name, value in options.items()]
    return "\n".join(["| option | value |", "|---|---|", *rows])


def option_text(value: Any) -> str:
    """A value as one gives it on the command line."""
    if isinstance(value, list):
        return " ".join(option_text(item) for item in value)
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def cell(value: object) -> str:
    """A value for a cell of a Markdown table: one line that cannot leave its cell."""
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")


def write_card(folder: str | os.PathLike[str], data: ModelCardData, text: str) -> None:
    """Write `README.md`.

    Args:
        folder: The model's folder.
        data: The metadata.
        text: The body, Markdown.
    """
    ModelCard(f"---\n{data.to_yaml()}\n---\n\n{text.strip()}\n").save(Path(folder, "README.md"))
