"""Measure models that were not trained on the dataset: TF-CoVR's Table 2, and any further model, by one command."""

import gc
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from transformers.utils.logging import disable_progress_bar

from hf_models.encoders import AIMEncoder, load_encoder, short_name
from hf_models.encoders.aim import is_aim
from subtle.embedding.loop import Work
from subtle.options import nearest
from subtle.run.accelerator import make_accelerator
from subtle.run.data import with_split
from subtle.run.model_folders import ENCODER_FILES, check_model_folder
from subtle.table.caption_texts import Captions, captions_for, check_share
from subtle.table.costs import Cost, cost_of, show_costs
from subtle.table.embedding import clips_of
from subtle.table.failures import reason_of
from subtle.table.options import ZeroShotConfig
from subtle.table.queries import WAYS
from subtle.table.rows import finish_table, is_done, read_rows, write_failure, write_row
from subtle.table.scoring import Benchmark, Measured, measure_row
from subtle.table.zero_shot_rows import CUTS, TABLE_2, ZeroShotRow, further_rows
from subtle.tfcovr.measure import ComposedRetrievalMeasure

METRICS = [f"map@{cut}" for cut in CUTS]
CAPTION_FLAGS = {"descriptions": "--captions", "rewritten": "--rewritten"}
TITLE = "Composed retrieval without training on the dataset"


def rows_of(config: ZeroShotConfig) -> list[ZeroShotRow]:
    """All rows of the table, Table 2 first.

    Raises:
        SystemExit: `--rows` names one that there is not.
    """
    rows = [*TABLE_2, *further_rows(config.models, config.ways, config.query_frames, config.target_frames)]
    names = [row.name for row in rows]
    for name in config.rows or ():
        if name not in names:
            known = ", ".join(map(repr, names))
            raise SystemExit(f"there is no row {name!r}; there are {known}{nearest(name, names)}")
    return rows


def model_of(row: ZeroShotRow, config: ZeroShotConfig) -> str | None:
    """The model that is configured for a row."""
    return getattr(config, row.option) if row.option else row.model


class Table2:
    """One run: the rows that are to be measured, one after the other, each with its model."""

    def __init__(self, config: ZeroShotConfig) -> None:
        self.rows = rows_of(config)
        self.config = config = with_split(config)
        self.output_dir = Path(config.output_dir)
        self.accelerator = make_accelerator(config.device, self.output_dir)
        self.device = self.accelerator.device
        self.loading: dict[str, Any] = {"aim_text": config.aim_text, "trust_remote_code": config.trust_remote_code}
        self.benchmark = Benchmark.load(config)
        self.work = Work(config.batch_size, config.shard_size, config.num_workers, config.timeout_seconds)
        self.captions: dict[str, Captions] = {}
        self.measure = ComposedRetrievalMeasure()
        self.loaded: tuple[str, Any] | None = None

    def wanted(self) -> list[tuple[ZeroShotRow, str]]:
        """The rows to measure that have a model, with it."""
        chosen = [row for row in self.rows if self.config.rows is None or row.name in self.config.rows]
        return [(row, model) for row in chosen if (model := model_of(row, self.config))]

    def hints(self) -> dict[str, str]:
        """How to measure the rows that have no model."""
        return {
            row.name: f"not measured: name a model with --{row.option}"
            for row in self.rows
            if not model_of(row, self.config)
        }

    def costs(self) -> list[Cost]:
        """What every wanted row will cost; no weight is read."""
        named = {row.name: model for row, model in self.wanted()}
        return [
            self.cost(row, named[row.name]) if row.name in named else Cost(row.name, None)
            for row in self.rows
            if self.config.rows is None or row.name in self.config.rows
        ]

    def cost(self, row: ZeroShotRow, model: str) -> Cost:
        """What one row will cost, with all that it embeds as if nothing were stored."""
        num_targets, num_queries = len(self.benchmark.clips), len(self.benchmark.rows)
        way = WAYS[row.way]
        composes = row.way in {"prompt", "cross-attention", "ecde"}
        query_clips = num_queries * (1 + (row.way == "ecde")) if composes else len(self.query_clips())
        frames = (row.target_frames or 12) * num_targets
        if way.reads_video and (composes or row.query_frames != row.target_frames):
            frames += (row.query_frames or 12) * query_clips
        most = max(row.query_frames or 0, row.target_frames or 0) or None
        texts = num_queries if composes or way.needs else len({one["modification_text"] for one in self.benchmark.rows})
        return cost_of(
            row.name,
            model,
            most,
            (frames, texts * way.reads_text),
            self.config.tflops,
            device=self.device,
            **self.loading,
        )

    def query_clips(self) -> list[Any]:
        """The clips of all queries."""
        return clips_of(self.benchmark.rows, list(self.benchmark.clips.values()))

    def run(self) -> int:
        """Measure what is missing and write the table; the exit status."""
        wanted = self.wanted()
        # Rows of one model follow each other, so that each is loaded once.
        order = {model: place for place, (_, model) in reversed(list(enumerate(wanted)))}
        for row, model in sorted(wanted, key=lambda one: order[one[1]]):
            self.run_row(row, model)
        found = read_rows([self.output_dir, *self.config.merge])
        names = [row.name for row in self.rows]
        counts = [row.details.get("coverage", {}).get("queries_ranked") for row in found.values() if row.metrics]
        hidden = ["license", "queries"] if set(counts) <= {len(self.benchmark.rows)} else ["license"]
        made: dict[str, Any] = {
            "config": self.config,
            "seed": self.config.seed,
            "hints": self.hints(),
            "only_in_files": hidden,
        }
        return finish_table(self.output_dir, found, names, METRICS, TITLE, **made)

    def run_row(self, row: ZeroShotRow, model: str) -> None:
        """Measure a row, unless it is measured; what goes wrong with it becomes its reason.

        Raises:
            ValueError: the row was measured with another configuration.
        """
        columns = self.columns(row, model)
        try:
            extra = self.extra_texts(row)
        except ValueError as error:
            is_done(self.output_dir, row.name, {})  # an earlier measurement was of other captions
            write_failure(self.output_dir, row.name, str(error), columns)
            return
        columns["captions"] = extra.source if extra else ""
        config = self.row_config(row, model, extra)
        if is_done(self.output_dir, row.name, config):
            return
        Console(stderr=True).print(f"{row.name}: {model}", highlight=False)
        started = time.monotonic()
        try:
            encoder = self.encoder(model)
            measured = self.measured(row, encoder, extra)
        except (Exception, SystemExit) as error:
            memory = f"the GPU ran out of memory at batch size {self.config.batch_size}; lower --batch_size"
            write_failure(self.output_dir, row.name, reason_of(error, memory), columns)
            return
        self.write(row, config, columns | frames_of(row, encoder), measured, time.monotonic() - started, encoder)

    def measured(self, row: ZeroShotRow, encoder: Any, extra: Captions | None) -> Measured:
        """Embed, rank and measure a row."""
        return measure_row(
            self.benchmark,
            encoder,
            row.way,
            self.output_dir / "embeddings",
            (row.query_frames, row.target_frames),
            self.measure,
            extra_texts=None if extra is None else extra.texts,
            work=self.work,
        )

    def write(
        self,
        row: ZeroShotRow,
        config: dict[str, Any],
        columns: dict[str, Any],
        measured: Measured,
        seconds: float,
        encoder: Any,
    ) -> None:
        """Write a measured row."""
        coverage = measured.coverage
        columns["queries"] = f"{coverage['queries_ranked']:,} of {coverage['queries']:,}"
        if isinstance(encoder, AIMEncoder) and encoder.num_frames != columns["target frames"]:
            columns["model"] += f" (made for {encoder.num_frames} frames, stretched)"
        columns["license"] = encoder.usage.license
        write_row(
            self.output_dir,
            row.name,
            measured.metrics,
            config=config,
            seed=self.config.seed,
            columns=columns,
            data=self.benchmark.data(measured.signature),
            coverage=coverage,
            usage=vars(encoder.usage),
            seconds=round(seconds, 1),
            encoded=measured.num_encoded,
        )

    def extra_texts(self, row: ZeroShotRow) -> Captions | None:
        """The captions that a row takes, by query id; None where it takes none.

        Raises:
            ValueError: too few of them can be used.
        """
        needs, config = WAYS[row.way].needs, self.config
        if not needs:
            return None
        if needs not in self.captions:
            files = {"captions": config.captions, "rewritten": config.rewritten}
            clips = list(self.benchmark.clips.values())
            self.captions[needs] = captions_for(needs, self.benchmark.rows, clips, **files)
            Console(stderr=True).print(f"{needs}: {self.captions[needs]}", highlight=False)
        found = self.captions[needs]
        check_share(found, config.min_caption_share, CAPTION_FLAGS[needs])
        return found.by_query(self.benchmark.rows) if needs == "descriptions" else found

    def columns(self, row: ZeroShotRow, model: str) -> dict[str, Any]:
        """What the table says of a row before its model is loaded."""
        config = self.config
        found: dict[str, Any] = {"model": short_name(model), "modalities": row.modalities}
        found |= {"fusion": WAYS[row.way].fusion, "query frames": row.query_frames, "target frames": row.target_frames}
        found["captions"] = ""
        if row.paper and (config.dataset, config.dataset_config) == ("tfcovr", "release"):
            found["paper"] = " / ".join(f"{value:.2f}" for value in row.paper)
        return found

    def row_config(self, row: ZeroShotRow, model: str, extra: Captions | None) -> dict[str, Any]:
        """All that decides the figures of a row; no folder of this machine but the model's."""
        config = self.config
        made = {name: getattr(config, name) for name in ("dataset_config", "split", "gallery", "protocol")}
        made |= {"model": model, "way": row.way, "query_frames": row.query_frames, "target_frames": row.target_frames}
        made["data"] = self.benchmark.data("")["fingerprint"]
        if is_aim(model):
            made["aim_text"] = config.aim_text
        if extra is not None:
            texts = json.dumps(extra.texts, sort_keys=True).encode()
            made |= {"captions": extra.source, "captions_digest": hashlib.sha256(texts).hexdigest()[:16]}
        return made

    def encoder(self, model: str) -> Any:
        """The encoder of a model; the one before it is given back first."""
        if self.loaded is None or self.loaded[0] != model:
            self.loaded = None
            gc.collect()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            check_model_folder(model, *ENCODER_FILES)
            self.loaded = model, load_encoder(model, self.device, **self.loading)
        return self.loaded[1]


def frames_of(row: ZeroShotRow, encoder: Any) -> dict[str, Any]:
    """The numbers of frames that a row really read."""
    target = row.target_frames or encoder.num_frames
    query = (row.query_frames or encoder.num_frames) if WAYS[row.way].reads_video else "-"
    return {"query frames": query, "target frames": target}


def run(config: ZeroShotConfig) -> int:
    """Measure the rows, or say what they will cost; the exit status."""
    disable_progress_bar()
    table = Table2(config)
    if not table.accelerator.is_main_process:  # on several GPUs: other --rows on each, and --merge
        return 0
    if config.dry_run:
        show_costs(table.costs(), config.tflops)
        return 0
    return table.run()


def main(config: ZeroShotConfig) -> int:
    return run(config)
