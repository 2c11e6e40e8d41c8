"""Measure models that were not trained on the dataset: TF-CoVR's Table 2, and any further model."""

import gc
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from hf_models.encoders import AIMEncoder, load_encoder, short_name, short_names
from hf_models.encoders.aim import is_aim
from subtle.embedding.loop import Work
from subtle.options import nearest
from subtle.run.accelerator import make_accelerator, processes
from subtle.run.data import with_split
from subtle.run.model_folders import ENCODER_FILES, check_model_folder
from subtle.run.screen import Screen
from subtle.table.caption_texts import Captions, captions_for, check_share, texts_digest
from subtle.table.costs import Cost, Forward, Machine
from subtle.table.embedding import Embedder, clips_of_queries
from subtle.table.options import ZeroShotConfig
from subtle.table.queries import WAYS, WayName
from subtle.table.rows import TableRow, is_done
from subtle.table.scoring import EvaluatedSplit, measure_ranked, rank_row
from subtle.table.table import Measured, Table, run_table
from subtle.tfcovr.measure import ComposedRetrievalMeasure

CAPTION_FLAGS = {"descriptions": "--captions", "rewritten": "--rewritten"}


@dataclass(frozen=True)
class ZeroShotRow:
    """A row: a model that was not trained on the dataset, and how it is asked.

    Attributes:
        name: in the table.
        option: the option that names its model; empty for those of --models.
        way: a name of `WAYS`.
        query_frames: frames of the query's clip, 1: the middle one; None: as many as the model was made for.
        target_frames: frames of each target; None: the same.
        paper: the paper's mAP@5, 10, 25 and 50 in percent, on the release.
        model: where no option names it.
    """

    name: str
    option: str
    way: WayName
    query_frames: int | None
    target_frames: int | None
    paper: tuple[float, ...] = ()
    model: str = ""

    @property
    def modalities(self) -> str:
        """What of the query the model sees."""
        way = WAYS[self.way]
        return " + ".join(["video"] * way.reads_video + ["text"] * way.reads_text)


TABLE_2 = (
    ZeroShotRow("GME-Qwen2-VL-2B", "gme", "prompt", 1, 15, (2.28, 2.64, 3.29, 3.81)),
    ZeroShotRow("MM-Embed", "mm_embed", "prompt", 1, 15, (2.39, 2.81, 3.61, 4.14)),
    ZeroShotRow("E5-V", "e5_v", "average", 1, 15, (3.14, 3.78, 4.65, 5.22)),
    ZeroShotRow("BLIP2, text", "blip2", "text", None, 15, (1.34, 1.79, 2.20, 2.50)),
    ZeroShotRow("BLIP2, video", "blip2", "video", 1, 15, (1.74, 2.20, 3.06, 3.62)),
    ZeroShotRow("BLIP-CoVR", "blip_covr", "cross-attention", 1, 15, (2.33, 2.99, 3.90, 4.50)),
    ZeroShotRow("BLIP-CoVR-ECDE", "blip_covr_ecde", "ecde", 1, 15, (0.78, 0.88, 1.16, 1.37)),
    ZeroShotRow("TF-CVR", "tf_cvr", "captions", None, 15, (0.56, 0.76, 0.99, 1.24)),
    ZeroShotRow("LanguageBind", "languagebind", "average", None, None, (3.43, 4.37, 5.26, 5.92)),
    ZeroShotRow("AIM (k400), 8 frames", "aim_k400_8", "average", 8, 8, (3.75, 4.37, 5.47, 6.12)),
    ZeroShotRow("AIM (k400), 16 frames", "aim_k400_16", "average", 16, 16, (4.23, 5.14, 6.37, 7.13)),
    ZeroShotRow("AIM (k400), 32 frames", "aim_k400_32", "average", 32, 32, (4.22, 5.15, 6.50, 7.30)),
    ZeroShotRow("AIM (diving48), 32 frames", "aim_diving48_32", "average", 32, 32, (4.81, 5.78, 6.82, 7.51)),
)
"""As the paper prints them. LanguageBind's 8 frames are the model's own number."""


def further_rows(
    models: Sequence[str], ways: Sequence[WayName], query_frames: int | None, target_frames: int | None
) -> list[ZeroShotRow]:
    """A row for each further model and way, named after both.

    Example:
        >>> [row.name for row in further_rows(["openai/clip-vit-base-patch32"], ["average", "text"], None, None)]
        ['clip-vit-base-patch32, average', 'clip-vit-base-patch32, text']
    """
    return [
        ZeroShotRow(f"{name}, {way}", "", way, query_frames, target_frames, model=model)
        for name, model in short_names(models).items()
        for way in ways
    ]


def rows_of(config: ZeroShotConfig) -> list[ZeroShotRow]:
    """All rows of the table, Table 2 first, each with its model; empty where none is configured.

    Raises:
        SystemExit: `--rows` names one that there is not.
    """
    table2 = [replace(row, model=getattr(config, row.option) or "") for row in TABLE_2]
    rows = [*table2, *further_rows(config.models, config.ways, config.query_frames, config.target_frames)]
    names = [row.name for row in rows]
    for name in config.rows or ():
        if name not in names:
            known = ", ".join(map(repr, names))
            raise SystemExit(f"there is no row {name!r}; there are {known}{nearest(name, names)}")
    return rows


class Table2(Table[ZeroShotRow]):
    """The rows of one run, one after the other, each with its model."""

    title = "Composed retrieval without training on the dataset"

    def __init__(self, config: ZeroShotConfig) -> None:
        self.rows = rows_of(config)
        super().__init__(with_split(config))
        self.loading: dict[str, Any] = {"aim_text": config.aim_text, "trust_remote_code": config.trust_remote_code}
        self.benchmark = EvaluatedSplit.load(self.config)
        self.work = Work(config.batch_size, config.shard_size, config.num_workers, config.timeout_seconds)
        self.captions: dict[str, Captions] = {}
        self.score = ComposedRetrievalMeasure()
        self.loaded: tuple[str, Any] | None = None

    def hint(self, row: ZeroShotRow) -> str:
        """The option that a row without a model misses."""
        return "" if row.model else f"not measured: name a model with --{row.option}"

    def asked(self) -> list[ZeroShotRow]:
        """Rows of one model follow each other, so that each is loaded once."""
        rows = super().asked()
        order = {row.model: place for place, row in reversed(list(enumerate(rows)))}
        return sorted(rows, key=lambda row: order[row.model])

    def prepare(self, rows: Sequence[ZeroShotRow]) -> None:  # noqa: ARG002
        """Where all are measured."""
        self.device = make_accelerator(self.config.device, self.output_dir).device

    def costs(self, machine: Machine) -> list[Cost]:
        """With all that a row embeds as if nothing were stored."""
        return [self.cost(row, machine) if row.model else Cost(row.name) for row in super().asked()]

    def cost(self, row: ZeroShotRow, machine: Machine) -> Cost:
        """Of one row."""
        clips, num_queries = len(self.benchmark.clips), len(self.benchmark.rows)
        way = WAYS[row.way]
        composes = row.way in {"prompt", "cross-attention", "ecde"}
        of_queries = len(clips_of_queries(self.benchmark.rows, list(self.benchmark.clips.values())))
        query_clips = num_queries * (1 + (row.way == "ecde")) if composes else of_queries
        frames = (row.target_frames or 12) * clips
        if way.reads_video and (composes or row.query_frames != row.target_frames):
            frames += (row.query_frames or 12) * query_clips
            clips += query_clips
        texts = num_queries if composes or way.needs else len({one["modification_text"] for one in self.benchmark.rows})
        most = max(row.query_frames or 0, row.target_frames or 0) or None
        forward = Forward.of(row.model, most, **self.loading)
        return forward.cost(row.name, machine, frames=frames, texts=texts * way.reads_text, clips=clips)

    def measure(self, row: ZeroShotRow) -> Measured:
        """Embed, rank and measure a row."""
        started = time.monotonic()
        encoder, extra = self.encoder(row.model), self.extra_texts(row)
        embedder = Embedder(encoder, self.output_dir / "embeddings", self.work)
        frames = row.query_frames, row.target_frames
        ranked = rank_row(self.benchmark, embedder, row.way, frames, extra.texts if extra else {})
        found = measure_ranked(self.benchmark, ranked, self.score)
        target = row.target_frames or encoder.num_frames
        found.columns |= {"target frames": target, "license": encoder.usage.license}
        found.columns["query frames"] = (row.query_frames or encoder.num_frames) if WAYS[row.way].reads_video else "-"
        if isinstance(encoder, AIMEncoder) and encoder.num_frames != target:
            made_for = f" (made for {encoder.num_frames} frames, stretched)"
            found.columns["model"] = self.columns(row)["model"] + made_for
        found.details |= {"usage": vars(encoder.usage), "encoded": ranked.num_encoded}
        found.details["seconds"] = round(time.monotonic() - started, 1)
        return found

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
            Screen(stderr=True).print(f"{needs}: {self.captions[needs]}", highlight=False)
        found = self.captions[needs]
        check_share(found, CAPTION_FLAGS[needs])
        return found.by_query(self.benchmark.rows) if needs == "descriptions" else found

    def columns(self, row: ZeroShotRow) -> dict[str, Any]:
        """What the table says of a row before its model is loaded."""
        config, needs = self.config, WAYS[row.way].needs
        found: dict[str, Any] = {"model": short_name(row.model), "modalities": row.modalities}
        found |= {"fusion": WAYS[row.way].fusion, "query frames": row.query_frames, "target frames": row.target_frames}
        found["captions"] = self.captions[needs].source if needs in self.captions else ""
        if row.paper and (config.dataset, config.dataset_config) == ("tfcovr", "release"):
            found["paper"] = " / ".join(f"{value:.2f}" for value in row.paper)
        return found

    def settings(self, row: ZeroShotRow) -> dict[str, Any]:
        """All that decides the figures of a row; no folder of this machine but the model's."""
        config = self.config
        made = {name: getattr(config, name) for name in ("dataset_config", "split", "gallery", "protocol")}
        made |= {"model": row.model, "way": row.way, "query_frames": row.query_frames}
        made |= {"target_frames": row.target_frames, "data": self.benchmark.data("")["fingerprint"]}
        if is_aim(row.model):
            made["aim_text"] = config.aim_text
        try:
            extra = self.extra_texts(row)
        except ValueError:
            is_done(self.output_dir, row.name, {})  # an earlier measurement was of other captions
            raise
        if extra is not None:
            made |= {"captions": extra.source, "captions_digest": texts_digest(extra.texts)}
        return made

    def finish(self, found: Mapping[str, TableRow]) -> int:
        """Licenses are in the files, and whether every row ranks all queries is said where one does not."""
        counts = {row.details.get("coverage", {}).get("queries_ranked") for row in found.values() if row.metrics}
        self.only_in_files = ("license", "queries") if counts <= {len(self.benchmark.rows)} else ("license",)
        return super().finish(found)

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


def main(config: ZeroShotConfig) -> int:
    """Measure the rows, or say what they will cost; the exit status."""
    disable_progress_bar()
    # On several GPUs: other --rows on each, and --merge.
    return run_table(Table2(config)) if processes().is_main_process else 0
