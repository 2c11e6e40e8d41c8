"""Vary options of TF-CoVR's two stages, each with several seeds: Table 5 (beta), Table D3 (text encoder), your own."""

import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl
import torch
from accelerate import Accelerator, PartialState

from hf_models.fingerprints import weights_fingerprint
from subtle.evaluate.evaluate_tfcovr import Evaluation, Prepared, evaluate, is_trained, write_table
from subtle.evaluate.options import EvaluateConfig
from subtle.options import adopt, option, override, parse_config
from subtle.run.accelerator import make_accelerator
from subtle.run.data import load_split, with_split
from subtle.run.model_folders import check_model_folder
from subtle.run.models import load_trained
from subtle.run.results import replacing
from subtle.run.shared_config import DataConfig
from subtle.running import message_of, users_mistake
from subtle.table.ablation_costs import print_costs
from subtle.table.differences import METRICS, QUERIES, differences, over_seeds, row_name, variation_of
from subtle.table.options import AblateConfig
from subtle.table.query_groups import by_group, groups_of, write_groups
from subtle.table.rows import data_of, finish_table, is_done, read_rows, row_folder, write_failure, write_row
from subtle.table.variations import Run, Variation, plan_run, read_variations
from subtle.tfcovr.batches import embed_config
from subtle.tfcovr.measure import CUTOFFS, ComposedRetrievalMeasure, gallery_ids
from subtle.tfcovr.stage2_config import Stage2Config
from subtle.train import stage1, stage2
from subtle.train.options import Stage1Config
from subtle.tuning.verdict import average_precisions


@dataclass
class VariedConfig(Stage2Config):
    """Stage 2 with an option of `embed.py`."""

    shuffle_frames: bool = option(False, "Train and measure on clips with their frames in a random order.")


STAGES = {"stage1": Stage1Config, "stage2": VariedConfig}


def base_configs(config: AblateConfig) -> tuple[Stage1Config, VariedConfig]:
    """What all variations start from; the data that only their files name are also those to measure on."""
    files = (config.stage1_config, config.stage2_config)
    bases: list[Any] = [
        parse_config(kind, None, [file] if file else []) for kind, file in zip(STAGES.values(), files, strict=True)
    ]
    base1, base2 = bases
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
        assert config.split is not None  # `with_split` filled it
        clips = load_split(config, config.split, clips=True)
        queries, gallery = load_split(config, config.split), gallery_ids(protocol)
        data = data_of(config, config.split, queries, gallery, protocol.protocol)
        videos = dict(zip(clips["clip_id"], clips["video_id"], strict=True))
        return cls(protocol, accelerator, ComposedRetrievalMeasure(), videos, data)

    def __call__(self, run: Run, *, shuffled: bool) -> tuple[Evaluation, dict[str, str]]:
        """Measure a trained run; also the fingerprints of its encoders."""
        trained = str(Path(run.stage2.output_dir) / "model")
        model, processor = load_trained(trained)
        own: dict[str, Any] = {}
        folder = run.stage2.embeddings
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
            about: dict[str, Any] = {"config": settings, "seed": run.seed, "columns": columns, "data": data}
            details: dict[str, Any] = {"variation": run.variation.name, "shuffled": shuffled, "encoders": encoders}
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
    by_seed = {result.label: result.by_seed for result in results.values()}
    details: dict[str, Any] = {"differences": [asdict(one) for one in found], "by_seed": by_seed}
    status = finish_table(
        config.output_dir, table, names, METRICS, config.title, config=config, seed=config.seed, **details
    )
    if table:
        assert config.split is not None  # `with_split` filled it
        groups = groups_of(load_split(config, config.split))
        write_groups(by_group(results.values(), groups), Path(config.output_dir))
    return status


def run(config: AblateConfig) -> int:
    """Train, measure and compare all variations; the exit status."""
    variations = read_variations(config.variations, STAGES)
    runs = planned(config, variations)
    if config.dry_run:
        speed: dict[str, Any] = {"device": config.device, "tflops": config.tflops}
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
