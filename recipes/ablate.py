"""Vary options of TF-CoVR's two stages, each with several seeds: Table 5 (beta), Table D3 (text encoder), your own.

    python recipes/ablate.py
    python recipes/ablate.py --variations '{multi-positive: {}, InfoNCE: {loss: infonce}}' --shuffled
    python recipes/ablate.py recipes/configs/ablate_table5.yaml --dry_run
    python recipes/ablate.py recipes/configs/ablate_tableD3.yaml --seeds 0 1

`--variations` has a name for each row of the table, and the options of stage2.py that it changes. Options of stage1.py
stand under `stage1`, which is then trained for this row; `shuffle_frames: true` trains and measures without the order
of frames. Everything else is as in `--stage1_config` and `--stage2_config`. A row is compared with the first one, or
with that which it names as `against`: the difference of mAP, query by query and seed by seed, with a 95 % interval over
the queries' long videos and the seeds. Nothing is tuned here; the protocol is that of evaluate_tfcovr.py, a query's own
clip excluded. `--shuffled` also measures every model on clips with shuffled frames.

A killed run started again goes on where it was, also in the middle of a training; `--merge` takes rows that other
machines measured. It writes to `OUTPUT_DIR`:

    results.json   `figures`: variation -> mAP in [0, 1] with its deviation; `differences`: of each variation to another
    table.md       the table, also as table.csv
    groups.csv     mAP@50 by kind of change, and on rendered data by what labels differ in
    rows/          each variation with each seed: results.json, and each query's results in queries.parquet
    stage1/, embeddings/, stage2/   what was trained; variations that share it train it once
"""

import sys
from dataclasses import dataclass
from typing import Any

from harness.config import option, parse_config, run_recipe
from harness.model_folders import MINIATURE_CLIP, MINIATURE_VIDCLIP
from harness.shared_config import DataConfig, FrameCacheConfig, RunConfig

MINIATURE = {
    "beta 0.0": {"loss": "hn_nce", "beta": 0.0},
    **{f"beta {beta}": {"loss": "hn_nce", "beta": beta} for beta in (0.3, 0.5, 0.7)},
    "text encoder CLIP": {"loss": "hn_nce", "text_model": MINIATURE_CLIP, "against": None},
    "text encoder VidCLIP": {"loss": "hn_nce", "text_model": MINIATURE_VIDCLIP, "against": "text encoder CLIP"},
}


@dataclass
class AblateConfig(RunConfig, FrameCacheConfig, DataConfig):
    """What to vary, on what, and how often."""

    variations: dict[str, Any] = option(
        MINIATURE, "Rows: {name: {option: value, stage1: {option: value}, against: name}}."
    )
    title: str = option("Ablation", "Title of the table.")
    seeds: list[int] = option([0, 1, 2, 3, 4], "Seeds of stage 2, each trained and measured.")
    stage1_per_seed: bool = option(False, "Train stage 1 with each seed, too, instead of once.")
    shuffled: bool = option(False, "Measure each model on shuffled frames, too.")
    stage1_config: str | None = option(None, "YAML file of stage1.py that variations of stage 1 start from.")
    stage2_config: str | None = option(None, "YAML file of stage2.py that all variations start from.")
    split: str | None = option(None, "Split to measure on; none: test, or where there is none validation.")
    embeddings: str = option(
        "outputs/embeddings/stage1", "Folder of embed.py's embeddings for variations that keep the encoders."
    )
    num_workers: int = option(2, "Processes that decode videos; 0: this one decodes.")
    rows: list[str] | None = option(None, "Variations to run now; none: all.")
    merge: list[str] | None = option(None, "Output folders of other machines, whose rows are taken over; none: none.")
    dry_run: bool = option(False, "Print what would be trained, downloaded and how long it takes; run nothing.")
    tflops: float | None = option(
        None, "Speed to expect in a dry run, in 10^12 operations per second; none: as measured here."
    )
    output_dir: str = option("outputs/ablation", "Folder for the table, its rows and what is trained.")


if __name__ == "__main__":  # before the imports below, which take seconds
    CONFIG = parse_config(AblateConfig, __doc__)

import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import polars as pl
import stage1
import stage2
import torch
from accelerate import Accelerator, PartialState
from evaluate_tfcovr import EvaluateConfig, Evaluation, Prepared, evaluate, gallery_ids, is_trained, write_table
from stage1 import Stage1Config
from stage2 import Stage2Config

from baselines.ablation_costs import print_costs
from baselines.differences import METRICS, QUERIES, differences, over_seeds, row_name, variation_of
from baselines.query_groups import by_group, groups_of, write_groups
from baselines.rows import data_of, finish_table, is_done, read_rows, row_folder, write_failure, write_row
from baselines.variations import Run, Variation, plan_run, read_variations
from harness.accelerator import make_accelerator
from harness.config import adopt, override
from harness.data import load_split, with_split
from harness.models import check_model_folder, load_trained
from harness.results import replacing
from harness.running import message_of, users_mistake
from hf_models.fingerprints import weights_fingerprint
from tfcovr.batches import embed_config
from tfcovr.measure import CUTOFFS, ComposedRetrievalMeasure
from tuning.verdict import average_precisions


@dataclass
class VariedConfig(Stage2Config):
    """Stage 2 with an option of `embed.py`."""

    shuffle_frames: bool = option(False, "Train and measure on clips with their frames in a random order.")


STAGES = {"stage1": Stage1Config, "stage2": VariedConfig}


def base_configs(config: AblateConfig) -> tuple[Stage1Config, VariedConfig]:
    """What all variations start from; the data that only their files name are also those to measure on."""
    files = (config.stage1_config, config.stage2_config)
    base1, base2 = (
        parse_config(kind, None, [file] if file else []) for kind, file in zip(STAGES.values(), files, strict=True)
    )
    data = DataConfig.__dataclass_fields__
    adopt(config, [base1, base2], data)
    adopt(config, [base2], ["embeddings"])
    for base in (base1, base2):
        override(base, config, [*data, "cache_dir", "num_workers", "device", "mixed_precision"])
    override(base2, config, ["embeddings"])
    return base1, base2


def planned(config: AblateConfig, variations: dict[str, Variation]) -> list[Run]:
    """The runs of this call, all seeds of a variation after each other."""
    unknown = sorted(set(config.rows or ()) - variations.keys())
    if unknown:
        raise SystemExit(f"there is no variation {', '.join(unknown)}; there are {', '.join(variations)}")
    if not config.seeds or len(set(config.seeds)) < len(config.seeds):
        raise SystemExit(f"--seeds must be different numbers, at least one, not {config.seeds}")
    base1, base2 = base_configs(config)
    return [
        plan_run(variation, seed, base1, base2, Path(config.output_dir), each_seed=config.stage1_per_seed)
        for name, variation in variations.items()
        if config.rows is None or name in config.rows
        for seed in config.seeds
    ]


@dataclass
class Measurement:
    """What all runs are measured with, and on."""

    config: EvaluateConfig
    accelerator: Accelerator
    measure: ComposedRetrievalMeasure
    videos: dict[str, str]
    data: dict[str, str]

    @classmethod
    def of(cls, config: AblateConfig, accelerator: Accelerator) -> "Measurement":
        """Reads queries and clips, so that a mistake about the data ends the run before anything is trained."""
        shared = {name: getattr(config, name) for name in DataConfig.__dataclass_fields__}
        protocol = EvaluateConfig(**shared, split=config.split)
        clips = load_split(config, config.split, clips=True)
        queries, gallery = load_split(config, config.split), gallery_ids(protocol)
        data = data_of(config, config.split, queries, gallery, protocol.protocol)
        videos = dict(zip(clips["clip_id"], clips["video_id"], strict=True))
        return cls(protocol, accelerator, ComposedRetrievalMeasure(), videos, data)

    def __call__(self, run: Run, *, shuffled: bool) -> tuple[Evaluation, dict[str, str]]:
        """Measure a trained run; also the fingerprints of its encoders."""
        trained = str(Path(run.stage2.output_dir) / "model")
        model, processor = load_trained(trained)
        folder, own = run.stage2.embeddings, {}
        if run.stage2.end_to_end:  # its encoders are nobody else's
            folder, own = f"{Path(trained).parent / 'embeddings'}", {"vision_model": trained, "text_model": trained}
        if shuffled:
            folder, own = f"{folder}-shuffled", {**own, "shuffle_frames": True, "splits": [self.config.split]}
            if not run.stage2.end_to_end:
                take_clips(run, "-shuffled")
        ready = Prepared(model, processor, embed_config(run.stage2, folder, **own), run.stage2.query)
        encoders = {kind: weights_fingerprint(getattr(model, f"{kind}_model")) for kind in ("vision", "text")}
        return evaluate(ready, self.config, self.accelerator.device, self.measure), encoders

    def per_query(self, found: Evaluation) -> pl.DataFrame:
        """Each query with its video and its average precision at every cut-off."""
        values = average_precisions(found.predictions, CUTOFFS, "standard")
        queries = found.predictions.select("query_id", video_id=pl.col("query_clip_id").replace_strict(self.videos))
        return queries.with_columns(pl.Series(name, values[:, place]) for place, name in enumerate(METRICS))


def train(run: Run) -> None:
    """Both stages, as far as they are not trained yet."""
    if run.stage1 and not is_trained(run.stage1):
        stage1.run(run.stage1)
    if not is_trained(run.stage2):
        take_clips(run, "")
        stage2.run(run.stage2)


def take_clips(run: Run, order: str) -> None:
    """Copy the embeddings of clips from another folder where only the texts are encoded anew."""
    there, here = (Path(f"{folder}{order}", "video") for folder in (run.clips_from, run.stage2.embeddings))
    if run.clips_from and there.is_dir() and not here.exists() and PartialState().is_main_process:
        with replacing(here) as draft:
            shutil.copytree(there, draft)
    PartialState().wait_for_everyone()


def left(run: Run, config: AblateConfig) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a run that no folder holds yet: their names and configurations."""
    for shuffled in (False, True) if config.shuffled and not run.stage2.shuffle_frames else (False,):
        name, settings = row_name(run.variation.name, run.seed, shuffled), run.config | {"shuffled": shuffled}
        if not any(is_done(folder, name, settings) for folder in (config.output_dir, *(config.merge or ()))):
            yield name, settings


def run_one(run: Run, config: AblateConfig, measurement: Measurement) -> None:
    """Train and measure one variation with one seed, and write its rows; those that are there stay."""
    for name, settings in left(run, config):
        columns, shuffled = {"changes": run.variation.changes}, settings["shuffled"]
        try:
            train(run)
            found, encoders = measurement(run, shuffled=shuffled)
        except (Exception, SystemExit) as error:
            if (reason := reason_of(error)) is None:
                raise
            measurement.accelerator.print(f"{name} could not be measured: {reason}")
            if measurement.accelerator.is_main_process:
                write_failure(config.output_dir, name, reason, columns)
            continue
        if measurement.accelerator.is_main_process:
            write_table(measurement.per_query(found), row_folder(config.output_dir, name) / QUERIES)
            data = measurement.data | {"signature": found.signature}
            about = {"config": settings, "seed": run.seed, "columns": columns, "data": data}
            details = {"variation": run.variation.name, "shuffled": shuffled, "encoders": encoders}
            write_row(config.output_dir, name, found.metrics, **about, **details, coverage=found.coverage)


def reason_of(error: BaseException) -> str | None:
    """Why a row could not be measured, where its options or this machine are the reason; None for a bug."""
    if isinstance(error, SystemExit):
        return str(error.code)
    if isinstance(error, torch.OutOfMemoryError):
        return f"out of memory on this device: {message_of(error)}"
    mistake = users_mistake(error)
    return None if mistake is None else message_of(mistake)


def finish(config: AblateConfig, variations: dict[str, Variation]) -> int:
    """Put the rows together and write the table; the exit status."""
    rows = read_rows([config.output_dir, *(config.merge or ())])
    if others := sorted({variation_of(row) for row in rows.values() if row.metrics is not None} - variations.keys()):
        print(f"left out, because --variations has no such name: {', '.join(others)}")
    results = over_seeds(rows, variations, config.seeds, shuffled=config.shuffled)
    found = differences(results, variations)
    table = {row.name: row for row in (result.as_row(found) for result in results.values()) if row}
    names = [result.label for result in results.values()]
    details = {"differences": [asdict(one) for one in found], "by_seed": {r.label: r.by_seed for r in results.values()}}
    status = finish_table(
        config.output_dir, table, names, METRICS, config.title, config=config, seed=config.seed, **details
    )
    if table:
        groups = groups_of(load_split(config, config.split))
        write_groups(by_group(results.values(), groups), Path(config.output_dir))
    return status


def run(config: AblateConfig) -> int:
    """Train, measure and compare all variations; the exit status."""
    variations = read_variations(config.variations, STAGES)
    runs = planned(config, variations)
    if config.dry_run:
        speed = {"device": config.device, "tflops": config.tflops}
        print_costs(runs, config.output_dir, shuffled=config.shuffled, is_trained=is_trained, **speed)
        return 0
    config = with_split(config)
    read_rows([config.output_dir, *(config.merge or ())])  # what cannot be merged is said before anything is trained
    accelerator = make_accelerator(config.device, Path(config.output_dir), mixed_precision=config.mixed_precision)
    if pending := [one for one in runs if any(left(one, config))]:
        for one in pending:
            if not one.stage1 and "vision_model" not in one.variation.stage2:
                check_model_folder(one.stage2.vision_model)  # what all start from; a model of one row fails with it
        measurement = Measurement.of(config, accelerator)
        for number, one in enumerate(pending, start=1):
            accelerator.print(f"{number} of {len(pending)}: {one.name}")
            run_one(one, config, measurement)
    accelerator.wait_for_everyone()
    return finish(config, variations) if accelerator.is_main_process else 0


def main(config: AblateConfig) -> int:
    return run(config)


if __name__ == "__main__":
    sys.exit(run_recipe(main, CONFIG))
