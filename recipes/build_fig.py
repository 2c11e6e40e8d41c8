"""Build fine captions of moments from coarse ones, by rules or a model that sees keyframes.

    python recipes/build_fig.py --source annotations/charades_fig
    python recipes/build_fig.py --source annotations/charades_fig --video_dir videos --model gpt-4o --dry_run
    python recipes/build_fig.py --source annotations/charades_fig --video_dir videos --model gpt-4o --max_usd 20

Keyframes of a moment lead to questions, their answers to an enriched caption. `--source` is a folder with the coarse
captions of one dataset: JSON lines as VERIFIED publishes them (`*_train.jsonl`, `*_val.jsonl`, `*_test.jsonl`),
Charades-STA (`charades_sta_*.txt` with `Charades_v1_*.csv`), DiDeMo (`*_data.json`) or ActivityNet-Captions
(`train.json`, `val_1.json`, `val_2.json`). Without `--model` the rule-based generator enriches a caption from other
captions of the same video; it needs no video and no key. A chat model looks at the frames, so it needs `--video_dir`. A
killed run started again goes on where it was.
"""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness.config import option, parse_config, run_recipe
from harness.shared_config import BuildConfig


@dataclass
class BuildFigConfig(BuildConfig):
    """What to build from, and how."""

    source: str = option("", "Folder with the coarse captions of one dataset; needed.")
    video_dir: str | None = option(None, "Folder of the videos; needed with --model.")
    num_frames: int = option(8, "Frames of each moment that questions are answered from.")
    rewritings: bool = option(True, "Also write the noise evaluator's training captions.")
    output_dir: str = "outputs/build_fig"


if __name__ == "__main__":  # before the imports below, which take seconds
    CONFIG = parse_config(BuildFigConfig, __doc__)

import pyarrow as pa

from harness.build import Build, run
from hf_datasets import fig
from hf_datasets.fig.annotations import annotation_files, read_annotations
from hf_datasets.fig.construction import CAPTION_SCHEMA, REWRITING_SCHEMA, Construction
from hf_datasets.records import Moment

CARD = Path(fig.__file__).with_name("README.md")


def construct(build: Build, split: str, moments: list[Moment]) -> Construction:
    """The stages of one split, each a step of the build."""
    config = build.config
    return Construction(
        moments,
        lambda step, task, rows: build.ask(task, rows, name=f"{split}: {step}"),
        lambda step, records: build.passed(f"{split}: {step}", records),
        sees_frames=config.model is not None,
        video_dir=config.video_dir,
        num_frames=config.num_frames,
        seed=config.seed,
    )


def main(config: BuildFigConfig) -> int:
    if not config.source:
        raise ValueError("name the folder of the annotations with --source")
    if config.model and not config.video_dir and not config.dry_run:
        raise ValueError("a chat model has to see the moments: name the videos' folder with --video_dir")
    build = Build(config)
    moments, rewritings = {}, {}
    for split, path in annotation_files(Path(config.source)).items():
        annotated = list(build.limited(build.passed(f"{split}: moments", read_annotations(path))))
        construction = construct(build, split, annotated)
        rows = list(build.passed(f"{split}: fine captions", list(construction.rows())))
        if rows:
            moments[split] = [pa.Table.from_pylist(rows, schema=CAPTION_SCHEMA)]
        rewritten = construction.rewritings() if config.rewritings else []
        if rewritten:
            rewritings[split] = [pa.Table.from_pylist(rewritten, schema=REWRITING_SCHEMA)]
    configurations = {"source": moments} | ({"rewritings": rewritings} if rewritings else {})
    return build.write(configurations, card=CARD, source=Path(config.source).name)


if __name__ == "__main__":
    sys.exit(run_recipe(partial(run, main), CONFIG))
