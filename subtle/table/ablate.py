"""Vary options of TF-CoVR's two stages, each with several seeds: Table 5 (beta), Table D3 (text encoder), your own."""

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from hf_datasets.drafts import replacing
from hf_models.encoders import Estimate
from subtle.evaluate.evaluate_tfcovr import evaluate_ranking, is_trained, standard, trained, write_parquet
from subtle.options import adopt, override, parse_config
from subtle.run.accelerator import make_accelerator, processes
from subtle.run.data import load_split, load_splits, with_split
from subtle.run.model_folders import check_model_folder
from subtle.run.shared_config import DataConfig, ShuffleConfig
from subtle.table.costs import OPERATIONS, OVERHEAD_SECONDS, PASSES, Cost, Forward, Machine
from subtle.table.differences import QUERIES_FILE, find_differences, over_seeds, variation_of
from subtle.table.options import AblateConfig
from subtle.table.query_groups import by_group, groups_of, write_groups
from subtle.table.rows import TableRow, data_of, row_folder
from subtle.table.table import METRICS, Measured, Table, finish_table, run_table
from subtle.table.variations import Variation, VariationRun, plan_run, read_variations
from subtle.tfcovr.batches import embed_config
from subtle.tfcovr.clip_embeddings import encoders_made_by, imported_into
from subtle.tfcovr.measure import CUTOFFS, ComposedRetrievalMeasure, gallery_ids, held_out_groups
from subtle.train import stage1, stage2
from subtle.train.options import Stage1Config, Stage2Config
from subtle.tuning.verdict import average_precisions

AIM_ATTENDS_TWICE = 1.35
"""What AIM's second attention, over time, makes of CLIP's operations."""


@dataclass
class VariedConfig(Stage2Config, ShuffleConfig):
    """Stage 2 with an option of `embed.py clips`."""


FOLDER_FLAG = "--output_dir"  # what names another place for the models
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


def planned_runs(config: AblateConfig, variations: dict[str, Variation]) -> list[VariationRun]:
    """The runs of this call, all seeds of a variation after each other."""
    unknown = sorted(set(config.rows or ()) - variations.keys())
    if unknown:
        raise SystemExit(f"there is no variation {', '.join(unknown)}; there are {', '.join(variations)}")
    base1, base2 = base_configs(config)
    return [
        plan_run(variation, seed, base1, base2, Path(config.output_dir), each_seed=config.stage1_per_seed)
        for name, variation in variations.items()
        if config.rows is None or name in config.rows
        for seed in config.seeds
    ]


def train(run: VariationRun) -> None:
    """Both stages, as far as they are not trained yet."""
    if run.stage1 and not is_trained(run.stage1, FOLDER_FLAG):
        stage1.run(run.stage1)
    if not is_trained(run.stage2, FOLDER_FLAG):
        take_clips(run, "")
        stage2.run(run.stage2)


def take_clips(run: VariationRun, order: str) -> None:
    """Copy the embeddings of clips from another folder where only the texts are encoded anew."""
    there, here = (Path(f"{folder}{order}", "video") for folder in (run.clips_from, run.stage2.embeddings))
    if run.clips_from and there.is_dir() and not here.exists() and processes().is_main_process:
        with replacing(here) as draft:
            shutil.copytree(there, draft)
    processes().wait_for_everyone()


def is_imported(run: VariationRun) -> bool:
    """Whether its clips need no encoder, because their embeddings were imported."""
    return not run.stage1 and imported_into(run.clips_from or run.stage2.embeddings) is not None


class Ablation(Table[VariationRun]):
    """All variations with all seeds; the table that is printed has their means."""

    def __init__(self, config: AblateConfig) -> None:
        self.variations = read_variations(config.variations, STAGES)
        runs = planned_runs(config, self.variations)
        super().__init__(with_split(config))
        self.title = config.title
        self.seed = config.seed
        self.rows = [
            replace(run, shuffled=shuffled)
            for run in runs
            for shuffled in ((False, True) if config.shuffled and not run.stage2.shuffle_frames else (False,))
        ]

    def asked(self) -> list[VariationRun]:
        """All: `planned_runs` leaves other variations out."""
        return list(self.rows)

    def settings(self, row: VariationRun) -> dict[str, Any]:
        """What decides the figures of a run."""
        return row.config | {"shuffled": row.shuffled}

    def columns(self, row: VariationRun) -> dict[str, Any]:
        """What is varied."""
        return {"changes": row.variation.changes}

    def seed_of(self, row: VariationRun) -> int:
        """The one that it was trained with."""
        return row.seed

    def prepare(self, rows: Sequence[VariationRun]) -> None:
        """Read queries and clips, so that a mistake about the data ends the run before anything is trained."""
        if not rows:
            return
        for row in rows:
            if not row.stage1 and not is_imported(row) and "vision_model" not in row.variation.stage2:
                check_model_folder(row.stage2.vision_model)  # what all start from; a model of one row fails with it
        config = self.config
        folder, precision = self.output_dir, config.mixed_precision
        self.device = make_accelerator(config.device, folder, mixed_precision=precision).device
        self.protocol = standard(config)
        self.score = ComposedRetrievalMeasure()
        clips = load_split(config, config.split, clips=True)
        queries, gallery = load_split(config, config.split), gallery_ids(self.protocol)
        self.data = data_of(config, config.split, queries, gallery, self.protocol.protocol)
        self.videos = dict(zip(clips["clip_id"], clips["video_id"], strict=True))

    def measure(self, row: VariationRun) -> Measured:
        """Train a run as far as it is not, and measure it; each query's results are written beside its row."""
        train(row)
        own: dict[str, Any] = {}
        folder = row.stage2.embeddings
        if row.stage2.end_to_end:  # its encoders are nobody else's
            folder = f"{row.stage2.output_dir}/embeddings"
            own = dict.fromkeys(("vision_model", "text_model"), f"{row.stage2.output_dir}/model")
        if row.shuffled:
            folder, own = f"{folder}-shuffled", {**own, "shuffle_frames": True, "splits": [self.config.split]}
            if not row.stage2.end_to_end:
                take_clips(row, "-shuffled")
        ready = trained(row.stage2, embed_config(row.stage2, folder, **own), FOLDER_FLAG)
        encoders = encoders_made_by(ready.model)
        found = evaluate_ranking(ready, self.protocol, self.device, self.score)
        if processes().is_main_process:
            values = average_precisions(found.predictions, CUTOFFS, "standard")
            queries = found.predictions.select("query_id", video_id=pl.col("query_clip_id").replace_strict(self.videos))
            queries = queries.with_columns(pl.Series(name, values[:, place]) for place, name in enumerate(METRICS))
            write_parquet(queries, row_folder(self.output_dir, row.name) / QUERIES_FILE)
        details: dict[str, Any] = {"variation": row.variation.name, "shuffled": row.shuffled, "encoders": encoders}
        data = self.data | {"signature": found.signature}
        return Measured(found.metrics, data, details=details | {"coverage": found.coverage})

    def finish(self, found: Mapping[str, TableRow]) -> int:
        """Put the seeds of each variation together, and compare them."""
        config, variations = self.config, self.variations
        named = {variation_of(row) for row in found.values() if row.metrics is not None}
        if others := sorted(named - variations.keys()):
            print(f"left out, because --variations has no such name: {', '.join(others)}")
        results = over_seeds(found, variations, config.seeds, shuffled=config.shuffled)
        compared = find_differences(results, variations)
        table = {row.name: row for row in (result.as_row(compared) for result in results.values()) if row}
        status = finish_table(
            self.output_dir,
            table,
            [result.label for result in results.values()],
            self.title,
            config=config,
            seed=self.seed,
            asked=[result.label for result in results.values() if result.variation.name in (config.rows or variations)],
            differences=[asdict(one) for one in compared],
            by_seed={result.label: result.by_seed for result in results.values()},
        )
        if table:
            queries = list(load_split(config, config.split))
            groups = groups_of(queries, held_out_groups(config, queries))
            write_groups(by_group(results.values(), groups), self.output_dir)
        return status

    def costs(self, machine: Machine) -> list[Cost]:
        """What is left of each variation; a training or a folder of embeddings that several share counts once."""
        sizes = {split: len(clips) for split, clips in load_splits(self.config, clips=True).items()}
        num_triplets = len(load_splits(self.config)["train"])
        forwards: dict[str, Forward] = {}
        models: dict[str, dict[str, Estimate | None]] = {}
        left: dict[tuple[str, str], tuple[str, float]] = {}
        for row in self.rows:
            variation = row.variation.name
            base = row.stage1.base if row.stage1 else row.stage2.vision_model
            for model in ([] if is_imported(row) else [base]) + [row.stage2.text_model]:
                if model not in forwards:
                    forwards[model] = Forward.of(model, None)
                models.setdefault(variation, {})[model] = forwards[model].estimate
            frame = 0.0 if is_imported(row) else forwards[base].frame
            for *step, is_done, hours in work_of_row(row, frame, machine, sizes, num_triplets):
                if not is_done:
                    left.setdefault((step[0], step[1]), (variation, hours))
        found = []
        for variation, estimates in models.items():
            own = Counter(kind for (kind, _), (one, _) in left.items() if one == variation)
            hours = sum(hours for one, hours in left.values() if one == variation)
            note = ", ".join(f"{kind}: {number}" for kind, number in own.items()) or "all is trained"
            found.append(Cost(variation, estimates, hours, note))
        return found


def work_of_row(
    row: VariationRun, frame: float, machine: Machine, sizes: Mapping[str, int], num_triplets: int
) -> Iterator[tuple[str, str, bool, float]]:
    """What a row takes: kind, folder, whether it is done, hours.

    Args:
        row: of the table.
        frame: operations of its encoder for a frame.
        machine: that computes it.
        sizes: clips of each split.
        num_triplets: to train on.
    """
    stage1, stage2 = row.stage1, row.stage2
    clip = frame * ((stage1 or stage2).num_frames or 12) * AIM_ATTENDS_TWICE
    num_clips = sum(sizes.values())
    if stage1:
        hours = machine.hours(PASSES * sizes["train"] * stage1.epochs * clip, num_clips)
        yield "stage 1", stage1.output_dir, is_trained(stage1, FOLDER_FLAG), hours
    folder = f"{stage2.embeddings}{'-shuffled' * row.shuffled}"
    yield "embeddings", folder, Path(folder, "results.json").is_file(), machine.hours(num_clips * clip, num_clips)
    hidden, inner = stage2.fusion_hidden_dim, stage2.fusion_projection_dim
    width, seen = stage2.projection_dim or hidden, num_triplets * stage2.epochs
    weights = 2 * width * inner + 2 * inner * hidden + hidden * width
    hours = machine.hours(PASSES * seen * (OPERATIONS * weights + 2 * clip * stage2.end_to_end))
    overhead = OVERHEAD_SECONDS * seen / stage2.batch_size / 3600
    yield "stage 2", stage2.output_dir, is_trained(stage2, FOLDER_FLAG), hours + overhead


def main(config: AblateConfig) -> int:
    """Train, measure and compare all variations, or say what that will cost; the exit status."""
    return run_table(Ablation(config))
