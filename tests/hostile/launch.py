"""Start a recipe or `python -m hf_datasets` as a user would, on data small enough for a test.

    MARK=file python launch.py recipes/stage2.py --flag value
    MARK=file python launch.py hf_datasets prepare tfcovr

The file MARK appears when the imports are over and the work begins, MARK.done when it is complete.
"""

import argparse
import functools
import importlib.util
import os
import runpy
import sys
from pathlib import Path

RECIPES = Path(__file__).parents[2] / "recipes"
TINY = {
    "labels": ("119", "117", "45", "93", "241", "103b"),
    "clips_per_label": {"train": 6, "validation": 2, "test": 2},
    "videos_per_split": {"train": 6, "validation": 2, "test": 2},
    "size": 64,
}


def mark(end: str = "") -> None:
    """Note that the work has begun or ended; of several processes, in the first."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        Path(os.environ["MARK"] + end).touch()


def use_tiny_miniature() -> None:
    """A miniature of ten short videos."""
    import hf_datasets.miniature as miniature
    from hf_datasets.miniature import competitions

    tiny = competitions.MiniatureConfig(**TINY)
    whole = miniature.prepare_miniature
    miniature.prepare_miniature = lambda *args, **options: whole(*args, **{"config": tiny, **options})
    competitions.with_more_competitions = lambda *_, **__: tiny


def start_command(name: str) -> None:
    """`python -m hf_datasets` with a tiny miniature."""
    use_tiny_miniature()
    parse = argparse.ArgumentParser.parse_args

    @functools.wraps(parse)
    def parse_args(*args, **options):
        mark()
        return parse(*args, **options)

    argparse.ArgumentParser.parse_args = parse_args
    runpy.run_module(name, run_name="__main__")


def start_recipe(path: str) -> None:
    """A recipe; builds poll a batch more often and need no scene detector; the quickstart and `tune` are small."""
    from subtle import options as config

    run_recipe = config.run_recipe

    def run_marked(main, given):
        mark()
        return run_recipe(main, given)

    config.run_recipe = run_marked
    if "quickstart" in path:
        use_tiny_miniature()
    if "tune" in path:  # each further system takes a second to train
        from subtle.tuning import plan

        plan.COMPARED_SYSTEMS = ("two-stage", "text-only", "zero-shot average")
    is_build = Path(path).stem == "build"
    if is_build:
        from hf_datasets.generation.batch import OpenAIBatchChat

        OpenAIBatchChat.poll_seconds = 0.2
    if is_build and "fig" in sys.argv[1:2] and importlib.util.find_spec("scenedetect") is None:
        from hf_datasets.fig import keyframes

        keyframes.keyframe_seconds = lambda path, start, end: [(start + end) / 2]
    runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
    del sys.argv[0]
    try:
        (start_recipe if sys.argv[0].endswith(".py") else start_command)(sys.argv[0])
    except SystemExit as end:
        if not end.code:
            mark(".done")
        raise
