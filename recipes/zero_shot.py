"""Measure models that were not trained on the dataset: TF-CoVR's Table 2, and any further model, by one command.

    python recipes/zero_shot.py
    python recipes/zero_shot.py recipes/configs/zero_shot_paper.yaml --dry_run
    python recipes/zero_shot.py recipes/configs/zero_shot_paper.yaml --rows BLIP-CoVR LanguageBind
    python recipes/zero_shot.py --models openai/clip-vit-base-patch32 --ways average text video

Each row is a model, a way to make the query (`baselines/queries.py`) and two numbers of frames. Which model a row takes
is an option of its own, in the paper's file its name on the Hub or the folder of its converted weights; a row without
one says so. `--models` adds rows. Gallery, own clip and metric are those of `evaluate_tfcovr.py`. Without an argument
it measures on the miniature what ships for it.

ECDE takes descriptions of the query clips (`--captions`), TF-CVR rewritten captions of what to find (`--rewritten`);
`caption_clips.py` and `rewrite_captions.py` write them. Without a file the rule-based generator writes them from the
labels, an upper bound that the table calls "label captions". How a text entered the paper's rows of AIM is not known;
here it is the text tower of the CLIP that AIM was built on, `--aim_text`, which is inferred.

`OUTPUT_DIR` gets `rows/` (a folder for each row; what is there is not measured again), `embeddings/` (a second run
encodes what is missing), `table.md`, `table.csv` and `results.json` (`figures`: row -> mAP@K in [0, 1]; `failed`: row
-> reason). `--merge` adds the rows of other machines. The exit status is 1 where a row failed.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.config import option, parse_config, run_recipe
from harness.model_folders import MINIATURE_AIM, MINIATURE_CLIP, MINIATURE_VIDCLIP
from harness.shared_config import DataConfig, Device, Protocol


@dataclass
class RowModelsConfig:
    """The model of each row of Table 2: a folder or a name on the Hub; none: the row is not measured."""

    gme: str | None = option(None, "GME-Qwen2-VL-2B.")
    mm_embed: str | None = option(None, "MM-Embed, converted by hf_models.encoders.convert_mmembed.")
    e5_v: str | None = option(None, "E5-V.")
    blip2: str | None = option(None, "BLIP-2 for retrieval, of two rows.")
    blip_covr: str | None = option(None, "BLIP-CoVR, converted by hf_models.encoders.convert_covr.")
    blip_covr_ecde: str | None = option(None, "BLIP-CoVR-ECDE, converted by hf_models.encoders.convert_covr.")
    tf_cvr: str | None = option(MINIATURE_CLIP, "Model of videos and texts that finds TF-CVR's rewritten captions.")
    languagebind: str | None = option(None, "LanguageBind, converted by hf_models.encoders.convert_languagebind.")
    aim_k400_8: str | None = option(MINIATURE_AIM, "AIM for 8 frames, converted by hf_models.tfcovr.convert_aim.")
    aim_k400_16: str | None = option(MINIATURE_AIM, "AIM for 16 frames; another number of frames is stretched.")
    aim_k400_32: str | None = option(MINIATURE_AIM, "AIM for 32 frames.")
    aim_diving48_32: str | None = option(None, "AIM for 32 frames, trained on Diving48.")
    aim_text: str | None = option(
        MINIATURE_CLIP, "CLIP that these AIM were built on, whose text tower reads the text; none: AIM reads no text."
    )


@dataclass
class ZeroShotConfig(RowModelsConfig, DataConfig):
    """Which rows to measure, on what, and how."""

    models: list[str] = option(
        [MINIATURE_CLIP, MINIATURE_VIDCLIP], "Further models: folders or names on the Hub; none: no further one."
    )
    ways: list[Literal["average", "text", "video", "prompt", "cross-attention", "ecde", "captions"]] = option(
        ["average", "text", "video"], "Ways to make the query of --models."
    )
    query_frames: int | None = option(
        None, "Frames of a query's clip for --models; 1: the middle frame; none: as many as the model was made for."
    )
    target_frames: int | None = option(None, "Frames of a target for --models; none: as many as it was made for.")
    captions: str | None = option(
        None, "Table of clip_id, caption that describes the query clips; none: label captions."
    )
    rewritten: str | None = option(
        None, "Table of query_id, target_caption that says what to find; none: label captions."
    )
    min_caption_share: float = option(0.9, "Smallest share (0 to 1) of usable captions with which a row is measured.")
    rows: list[str] | None = option(None, "Rows to measure, by name; none: all.")
    merge: list[str] = option([], "Output folders of other machines, whose rows join the table.")
    dry_run: bool = option(False, "Print download, memory and hours of each row; load nothing.")
    tflops: float = option(100.0, "Operations that the machine sustains, in 10^12 per second, for --dry_run.")
    split: str | None = option(None, "Split to measure on; none: test, or where there is none validation.")
    gallery: Literal["clips", "targets"] = option(
        "clips", "What is ranked: every clip of the split, or only those that are the target of some query."
    )
    protocol: Protocol = option("standard", "Protocol; tfcovr-official gives what the released script would print.")
    trust_remote_code: bool = option(False, "Let a model run the code that its folder or repository holds.")
    batch_size: int = option(16, "Clips, texts or queries per forward pass.")
    shard_size: int = option(256, "Clips, texts or queries per file of embeddings; a kill costs at most one file.")
    num_workers: int = option(2, "Processes that decode; 0: this one decodes, and a video that hangs hangs the run.")
    timeout_seconds: float = option(60.0, "Longest wait for the frames of one clip, in seconds.")
    device: Device = option("auto", "Where to compute; auto: on the GPU where there is one.")
    output_dir: str = option("outputs/zero_shot", "Folder for the rows, the embeddings and the table.")
    seed: int = option(0, "Seed to record; nothing here is random.")

    def __post_init__(self) -> None:
        if self.models == ["none"]:
            self.models = []
        if not 0 <= self.min_caption_share <= 1:
            raise ValueError(f"--min_caption_share is {self.min_caption_share}; it is a share between 0 and 1")
        for name in ("batch_size", "shard_size", "query_frames", "target_frames", "tflops"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise ValueError(f"--{name} is {getattr(self, name)}; it must be above 0")


if __name__ == "__main__":  # before the imports below, which take seconds
    CONFIG = parse_config(ZeroShotConfig, __doc__)

import gc
import hashlib
import json
import time

import torch
from rich.console import Console
from transformers.utils.logging import disable_progress_bar

from baselines.aim import AIMEncoder, is_aim
from baselines.caption_texts import Captions, captions_for, check_share
from baselines.costs import Cost, cost_of, show_costs
from baselines.embedding import Work, clips_of
from baselines.failures import reason_of
from baselines.models import load_model
from baselines.queries import WAYS
from baselines.rows import finish_table, is_done, read_rows, write_failure, write_row
from baselines.scoring import Benchmark, Measured, measure_row
from baselines.zero_shot_rows import CUTS, TABLE_2, ZeroShotRow, further_rows
from harness.accelerator import make_accelerator
from harness.config import nearest
from harness.data import with_split
from hf_models.encoders import short_name
from tfcovr.measure import ComposedRetrievalMeasure

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
        self.loading = {"aim_text": config.aim_text, "trust_remote_code": config.trust_remote_code}
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
        made = {"config": self.config, "seed": self.config.seed, "hints": self.hints(), "only_in_files": hidden}
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
            self.loaded = model, load_model(model, self.device, **self.loading)
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


if __name__ == "__main__":
    sys.exit(run_recipe(main, CONFIG))
