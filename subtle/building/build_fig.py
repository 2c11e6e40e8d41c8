"""Build fine captions of moments from coarse ones, by rules or a model that sees keyframes."""

from pathlib import Path
from typing import cast

import polars as pl
import pyarrow as pa

from hf_datasets import fig
from hf_datasets.fig.annotations import annotation_files, dataset_of, read_annotated_moments
from hf_datasets.fig.construction import CAPTION_SCHEMA, REWRITING_SCHEMA, CaptionConstruction
from hf_datasets.fig.statistics import PAPER_COUNTS, counts_of
from hf_datasets.paper_counts import beside_paper
from hf_datasets.records import Moment
from subtle.building.options import BuildFigConfig
from subtle.run.build import Build

FIG_CARD = Path(fig.__file__).with_name("README.md")


def construct(build: Build, config: BuildFigConfig, split: str, moments: list[Moment]) -> CaptionConstruction:
    """The stages of one split, each a step of the build."""
    return CaptionConstruction(
        moments,
        lambda step, task, rows: build.ask(task, rows, name=f"{split}: {step}"),
        lambda step, records: build.passed(f"{split}: {step}", records),
        sees_frames=config.model is not None,
        video_dir=config.video_dir,
        num_frames=config.num_frames,
        seed=config.seed,
        prompts=config.prompts,
    )


def main(config: BuildFigConfig, build: Build | None = None) -> int:
    if not config.source:
        raise ValueError("name the folder of the annotations with --source")
    if config.model and not config.video_dir and not config.dry_run:
        raise ValueError("a chat model has to see the moments: name the videos' folder with --video_dir")
    build = build or Build(config)
    moments: dict[str, list[pa.Table]] = {}
    rewritings: dict[str, list[pa.Table]] = {}
    built: dict[str, pl.DataFrame] = {}
    files = annotation_files(Path(config.source))
    for split, path in files.items():
        annotated = list(build.limited(build.passed(f"{split}: moments", read_annotated_moments(path))))
        construction = construct(build, config, split, annotated)
        rows = list(build.passed(f"{split}: fine captions", list(construction.rows())))
        if rows:
            moments[split] = [pa.Table.from_pylist(rows, schema=CAPTION_SCHEMA)]
            built[split] = cast(pl.DataFrame, pl.from_arrow(moments[split][0]))
        rewritten = construction.rewritings() if config.rewritings else []
        if rewritten:
            rewritings[split] = [pa.Table.from_pylist(rewritten, schema=REWRITING_SCHEMA)]
    configurations = {"source": moments} | ({"rewritings": rewritings} if rewritings else {})
    return build.write(
        configurations,
        card=FIG_CARD,
        compare=lambda _: beside_paper(PAPER_COUNTS, counts_of(str(dataset_of(files)), built) if built else {}),
        source=Path(config.source).name,
    )
