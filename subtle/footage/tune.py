"""Tune a search model to your own sport: from a table of clips with labels to a model folder that `index.py` takes."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hf_datasets.drafts import remove
from hf_datasets.tables import read_text_table
from hf_datasets.tfcovr.own_clips import OwnClips
from subtle.building import build_tfcovr
from subtle.building.options import BuildTFCoVRConfig
from subtle.footage.options import TuneConfig
from subtle.options import parse_config
from subtle.run import build
from subtle.run.locks import only_run_in
from subtle.run.screen import Screen
from subtle.train.quickstart import PIPELINE
from subtle.tuning.clips import count, places_of, read_clip_table
from subtle.tuning.estimates import count_stage1, facts, in_words, read_base, seconds_of_steps
from subtle.tuning.example import draw_example
from subtle.tuning.plan import (
    COMPARED_SYSTEMS,
    EXAMPLE,
    LOCK,
    MADE_FROM,
    Plan,
    RecipeStep,
    check_dataset,
    check_same_run,
    is_miniature,
    made_from,
    steps_of,
)
from subtle.tuning.results import cut_texts, show_amounts, splits_in_words, summarize_tuning, texts_of

TUNING_RECIPES: dict[str, tuple[Callable[[Any], int | None], type[Any]]] = {
    "build tfcovr": (lambda config: build.run_build(build_tfcovr.main, config), BuildTFCoVRConfig),
    **PIPELINE,
}


def has_splits(table: Path, own: OwnClips) -> bool:
    """Whether the table says which clips are held out.

    Raises:
        ValueError: It names some splits and not all.
    """
    columns, _ = read_text_table(table)
    if "split" not in columns.columns or columns["split"].str.strip_chars().replace("", None).is_null().all():
        return False
    named = set(own.clips["split"])
    if missing := sorted({"train", "validation", "test"} - named):
        raise ValueError(
            f"the column split names no clip of {' and '.join(missing)}; name some in each of train, validation and "
            "test, or leave the column out"
        )
    return True


def planned(config: TuneConfig, table: Path, video_dir: Path, own: OwnClips, *, is_divided: bool) -> Plan:
    """How long to train on so many clips."""
    train = own.clips.filter(own.clips["split"] == "train").height
    if not is_divided:
        train = round(train * (1 - config.validation_fraction - config.test_fraction))
    return Plan.of(config, table, video_dir, num_clips=len(own.clips), num_train=max(train, 1))


def show_plan(plan: Plan, console: Screen) -> None:
    """Print the steps as commands, and what they would take."""
    config, base = plan.config, read_base(plan.config.base, offline=True)
    cost = count_stage1(plan) if base else None
    seconds = seconds_of_steps(plan, cost) if cost else {}
    for step in steps_of(plan):
        about = f", about {in_words(seconds[step.name])}" if seconds else ""
        console.print(f"{step.name}{about}", style="bold", highlight=False)
        console.print(f"  {step.command}", highlight=False, soft_wrap=True)
    for name, text in facts(config.base, base, cost).items():
        console.print(f"{name}: {text}", highlight=False, soft_wrap=True)
    total = f"about {in_words(sum(seconds.values()))} on this device" if seconds else "not known"
    console.print(f"time: {total}. These are estimates; nothing was trained or written.", soft_wrap=True)


def run_steps(plan: Plan, console: Screen) -> int:
    """Run what is not done yet; an exit status."""
    steps, estimates = steps_of(plan), seconds_of_steps(plan, count_stage1(plan))
    todo = [step for step in steps if not step.is_done]
    expected = took = 0.0
    for number, step in enumerate(steps, start=1):
        if step not in todo:
            console.print(f"{step.name}: done before", style="dim")
            check_step(step, plan)
            continue
        left = sum(estimates[other.name] for other in todo[todo.index(step) :])
        pace = took / expected if expected else 1.0
        about = f"about {in_words(left * pace)} left"
        console.rule(f"{number} of {len(steps)}: {step.name}, {about}", align="left")
        console.print(step.command, style="dim", highlight=False, soft_wrap=True)
        start = time.monotonic()
        if status := run_step(step):
            console.print(f"stopped at “{step.name}”; see above, then run the same command again to go on", style="red")
            return status
        check_step(step, plan)
        took += time.monotonic() - start
        expected += estimates[step.name]
    return 0


def check_step(step: RecipeStep, plan: Plan) -> None:
    """See that the next step has something to work on."""
    if step.name == "dataset":
        check_dataset(plan)
        print(splits_in_words(plan))
        if cut := cut_texts(plan.config.base, texts_of(plan.output / "dataset")):
            sys.stderr.write(f"little: {cut}\n")


def run_step(step: RecipeStep) -> int:
    """Run a step as its recipe would; an exit status."""
    main, config_class = TUNING_RECIPES[step.recipe]
    return main(parse_config(config_class, None, list(step.arguments))) or 0


def tune(config: TuneConfig, table: Path, video_dir: Path, console: Screen) -> int:
    own = read_clip_table(table, video_dir)
    is_divided = has_splits(table, own)
    amounts = count(own.clips, min_clips=config.min_clips, has_splits=is_divided)
    show_amounts(amounts, own.rejections, is_drawn_base=is_miniature(config.base) and config.clips is not None)
    if amounts.missing:
        return 2
    plan = planned(config, table, video_dir, own, is_divided=is_divided)
    if config.dry_run:
        show_plan(plan, console)
        if config.writer == "chat":
            run_step(steps_of(plan)[0])
        return 0
    read_base(config.base, offline=False)  # before anything is written
    with only_run_in(plan.output, "--output", LOCK):
        if config.restart:
            forget(plan.output)
        check_same_run(plan, made_from(plan))
        if status := run_steps(plan, console):
            return status
        summarize_tuning(plan, amounts, COMPARED_SYSTEMS)
    return 0


def forget(output: Path) -> None:
    """Delete what an earlier run of `tune.py` left; a folder that is none stays as it is."""
    if (output / MADE_FROM).is_file():
        kept = {LOCK, EXAMPLE, MADE_FROM}
        for path in output.iterdir():
            if path.name not in kept:
                remove(path)
        remove(output / MADE_FROM)  # last: until then nothing passes for another run's


def main(config: TuneConfig) -> int:
    console = Screen()
    if config.clips is not None:
        return tune(config, *places_of(config), console)
    with TemporaryDirectory() as aside:
        folder = Path(aside if config.dry_run else config.output_dir) / EXAMPLE
        return tune(config, *draw_example(folder, num_workers=config.num_workers), console)
