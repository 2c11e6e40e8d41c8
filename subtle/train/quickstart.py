"""Run composed retrieval from data to report on the miniature, in a few minutes."""

import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

import hf_datasets.__main__ as datasets_command
from metrics import METRICS, install
from subtle.commands import command_of
from subtle.embedding import embed_clips
from subtle.evaluate import evaluate_tfcovr, report
from subtle.evaluate.options import EvaluateConfig, ReportConfig
from subtle.options import parse_config, run_recipe
from subtle.run.screen import Screen
from subtle.run.shared_config import EmbedConfig
from subtle.train import stage1, stage2
from subtle.train.options import BEGIN, QuickstartConfig, Stage1Config, Stage2Config

PIPELINE: dict[str, tuple[Callable[[Any], int | None], type[Any]]] = {
    "stage1": (stage1.main, Stage1Config),
    "embed clips": (embed_clips.main, EmbedConfig),
    "stage2": (stage2.main, Stage2Config),
    "evaluate tfcovr": (evaluate_tfcovr.main, EvaluateConfig),
    "report": (report.main, ReportConfig),
}
# `evaluate.py tfcovr --compare` shows all; training these takes half a minute.
QUICKSTART_SYSTEMS = ("two-stage", "stage-2-only", "text-only")


@dataclass(frozen=True)
class QuickstartStep:
    """A title, the command that one would type, and the same as a call."""

    title: str
    command: str
    call: Callable[[], int | None]


def recipe_step(title: str, name: str, *arguments: str) -> QuickstartStep:
    """A step that is a recipe with these arguments."""
    main, config_class = PIPELINE[name]
    command = f"{command_of(name)} {shlex.join(arguments)}"
    return QuickstartStep(title, command, lambda: main(parse_config(config_class, None, list(arguments))))


def install_metrics() -> None:
    for name in METRICS:
        install(name)


def steps(output_dir: Path) -> list[QuickstartStep]:
    """What is done, in order."""
    model, embeddings = str(output_dir / "stage1/model"), str(output_dir / "embeddings/stage1")
    frames = ("--cache_dir", str(output_dir / "frames"))
    return [
        QuickstartStep("install the metrics' names", "python -m metrics install", install_metrics),
        QuickstartStep(
            "render the miniature",
            "python -m hf_datasets prepare tfcovr",
            lambda: datasets_command.fill_cache(["tfcovr"]),
        ),
        recipe_step(
            "stage 1: train AIM's adapters to classify clips",
            "stage1",
            *("--epochs", "1", "--warmup_steps", "0.5", *frames),
            *("--output_dir", str(output_dir / "stage1")),
        ),
        recipe_step(
            "encode clips and texts once",
            "embed clips",
            *("--vision_model", model, *frames),
            *("--output_dir", embeddings),
        ),
        recipe_step(
            "stage 2: train the composition of clip and text",
            "stage2",
            *("--vision_model", model),
            *("--embeddings", embeddings),
            *("--output_dir", str(output_dir / "stage2")),
        ),
        recipe_step(
            "train two baselines and evaluate",
            "evaluate tfcovr",
            *("--compare", "--systems", *QUICKSTART_SYSTEMS),
            *("--models", str(output_dir / "stage2/model")),
            *("--runs_dir", str(output_dir / "systems")),
            *("--embeddings", embeddings, *frames),
            *("--output_dir", str(output_dir / "evaluation")),
        ),
        recipe_step(
            "report",
            "report",
            *("--evaluation_dir", str(output_dir / "evaluation")),
            *("--output_dir", str(output_dir / "report")),
        ),
    ]


def main(config: QuickstartConfig) -> int:
    console = Screen()
    seconds = {"import libraries": time.monotonic() - BEGIN}
    for step in steps(Path(config.output_dir)):
        console.rule(step.title, align="left")
        console.print(step.command, style="dim", highlight=False)
        start = time.monotonic()
        status = status_of(step)
        if status:
            console.print(f"stopped at “{step.title}”; fix it and run this again to go on", style="red")
            return status
        seconds[step.title] = time.monotonic() - start
    print_seconds(seconds, console)
    return 0


def status_of(step: QuickstartStep) -> int:
    """Run a step; 0, or an exit status after an error that has been printed."""
    try:
        return run_recipe(lambda _: step.call(), None)
    except SystemExit as stop:
        if isinstance(stop.code, str):
            sys.stderr.write(f"{stop.code}\n")
        return stop.code if isinstance(stop.code, int) else 1


def print_seconds(seconds: dict[str, float], console: Screen) -> None:
    """Print the seconds of each step."""
    table = Table("step", "seconds", title="Time", title_justify="left")
    table.columns[1].justify = "right"
    for title, value in seconds.items():
        table.add_row(title, f"{value:.0f}")
    table.add_row("total", f"{sum(seconds.values()):.0f}")
    console.print(table)
