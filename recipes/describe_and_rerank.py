"""Describe the target of each composed query, retrieve by the description, re-rank the first clips (as for CoVR-R).

    python recipes/describe_and_rerank.py
    python recipes/describe_and_rerank.py --model gpt-4o --max_queries 50 --dry_run
    python recipes/describe_and_rerank.py --model gpt-4o --max_queries 50 --max_usd 20
    python recipes/describe_and_rerank.py --model Qwen/Qwen2.5-VL-7B-Instruct --base_url http://localhost:8000/v1
    python recipes/describe_and_rerank.py --model gpt-4o --describe captions --matcher outputs/noise_evaluator/model

1. Describe: a video-language model sees the frames of the query clip and the modification text, and writes what the
   target shows: one request for each query. With `--describe captions` it captions the query clip, then edits the
   caption (`caption_clips.py`, `rewrite_captions.py`). `--rewritten` takes descriptions that there are.
2. Retrieve: `--encoder`, any model of videos and texts, ranks the gallery by the description.
3. Re-rank: the same model, or `--reranker`, scores the first `--shortlist` clips of each query from 0 to 10 against
   query clip and modification text: one request for each pair. Or `--matcher`, a local cross-encoder, scores them
   against the description. Equal scores keep their order, and clips without a usable answer keep their place.

mAP@K is measured after steps 2 and 3 by the protocol of `zero_shot.py`. Answers are kept as they arrive, so a killed
run started again pays nothing twice. `--dry_run` gives requests and price of each step. Without `--model` rules write
the descriptions from the labels ("label captions") and score by the attributes that agree ("label attributes"): upper
bounds, not models.

`OUTPUT_DIR` gets `rows/`, `table.md`, `table.csv`, `results.json`, `predictions.parquet` (the rankings of each query
and its scores), `embeddings/`, and `answers/`: `rewritten.parquet` (the descriptions, for `--rewritten`),
`rejections.parquet` (answers that cannot be used, with the reason) and `results.json` (requests and cost).
"""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from harness.config import option, parse_config, run_recipe
from harness.model_folders import MINIATURE_CLIP
from harness.shared_config import BuildConfig, DataConfig, Device, Protocol


@dataclass
class DescribeAndRerankConfig(BuildConfig, DataConfig):
    """What writes the descriptions, what retrieves, what re-ranks, and on what it is measured."""

    split: str | None = option(None, "Split to measure on; none: test, or where there is none validation.")
    gallery: Literal["clips", "targets"] = option(
        "clips", "What is ranked: every clip of the split, or only those that are the target of some query."
    )
    protocol: Protocol = option("standard", "Protocol; tfcovr-official gives what the released script would print.")
    max_queries: int | None = option(None, "Queries to measure on, drawn by the seed; none: all.")
    describe: Literal["frames", "captions"] = option(
        "frames",
        "What the target's description is written from: frames of the query clip with the modification text; or the "
        "clip's caption, which is rewritten, in two requests.",
    )
    rewritten: str | None = option(None, "Table of query_id, target_caption to take as descriptions; none: ask.")
    sport: Literal["gymnastics", "diving"] | None = option(
        None, "For --describe captions: sport of clips without a label of TF-CoVR; none: they are rejected."
    )
    any_form: bool = option(False, "For --describe captions: accept English lines without the form of its prompts.")
    min_caption_share: float = option(0.9, "Smallest share (0 to 1) of usable descriptions with which it is measured.")
    encoder: str = option(MINIATURE_CLIP, "Model of videos and texts that retrieves: a folder or a name on the Hub.")
    target_frames: int | None = option(None, "Frames of a target for it; none: as many as it was made for.")
    shortlist: int = option(20, "Clips of each query that are re-ranked; 0: no re-ranking.")
    reranker: str | None = option(None, "Another chat model that re-ranks; none: --model.")
    reranker_base_url: str | None = option(None, "URL of its OpenAI-compatible server; none: as --base_url.")
    matcher: str | None = option(
        None, "Cross-encoder that re-ranks on this machine, a VidCLIP matcher or BLIP: a folder; none: a chat model."
    )
    num_frames: int = option(8, "Frames of each clip that the chat models or --matcher see.")
    max_side: int = option(448, "Longer side of such a frame, in pixels; smaller frames stay as they are.")
    trust_remote_code: bool = option(False, "Let --encoder run the code that its folder or repository holds.")
    batch_size: int = option(16, "Clips or texts per forward pass of --encoder.")
    shard_size: int = option(256, "Clips or texts per file of embeddings; a kill costs at most one file.")
    num_workers: int = option(2, "Processes that decode for --encoder; 0: this one decodes.")
    device: Device = option("auto", "Where --encoder and --matcher compute; auto: on the GPU where there is one.")
    max_output_tokens: int = 160
    output_dir: str = "outputs/describe_and_rerank"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.matcher and self.reranker:
            raise ValueError("--matcher and --reranker both re-rank: give one of them")
        if self.reranker and not self.model:
            raise ValueError("--reranker is another chat model beside --model: name that one, too")
        if self.reranker_base_url and not self.reranker:
            raise ValueError("--reranker_base_url is the server of --reranker: name that model")
        if not 0 <= self.min_caption_share <= 1:
            raise ValueError(f"--min_caption_share is {self.min_caption_share}; it is a share between 0 and 1")
        if self.shortlist < 0:
            raise ValueError(f"--shortlist is {self.shortlist}; it is a number of clips, 0 for no re-ranking")
        for name in ("max_queries", "num_frames", "max_side", "target_frames", "batch_size", "shard_size"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise ValueError(f"--{name} is {getattr(self, name)}; it must be above 0")


if __name__ == "__main__":  # before the imports below, which take seconds
    CONFIG = parse_config(DescribeAndRerankConfig, __doc__)

import hashlib
import json
from dataclasses import replace

import polars as pl
from transformers.utils.logging import disable_progress_bar

from baselines.caption_texts import Captions, check_share, read_captions
from baselines.describing import describe
from baselines.embedding import Work
from baselines.models import load_model
from baselines.reranking import ClipImages, Pair, label_score, match, rerank, shortlist, to_score
from baselines.rows import finish_table, is_done, read_rows, write_failure, write_row
from baselines.scoring import Benchmark, Measured, Ranked, measure_ranked, rank_row
from baselines.zero_shot_rows import CUTS
from harness.accelerator import make_accelerator
from harness.build import Build, run
from harness.data import with_split
from harness.model_folders import check_model_folder
from harness.results import replacing_files, write_results
from hf_datasets.generation.relevance import RelevanceTask
from hf_datasets.registration import write_rejections
from hf_models.encoders import short_name
from tfcovr.measure import ComposedRetrievalMeasure

RETRIEVED, RERANKED = "describe, retrieve", "describe, retrieve, re-rank"
LABEL_ATTRIBUTES = "label attributes (upper bound)"
"""What the re-ranker without a model is called: it knows the labels, so it is an upper bound, no model's."""
METRICS = [f"map@{cut}" for cut in CUTS]
TITLE = "Composed retrieval by description and re-ranking"
Scores = dict[tuple[str, str], float]
"""Ids of a query and a clip -> score."""


class Pipeline:
    """One run: description, retrieval, re-ranking."""

    def __init__(self, config: DescribeAndRerankConfig) -> None:
        check_models(config)
        self.config = config = with_split(config)
        self.output_dir = Path(config.output_dir)
        benchmark = Benchmark.load(config).drawn(config.max_queries, config.seed)
        self.benchmark = replace(benchmark, rows=benchmark.rows[: config.limit])
        self.images = ClipImages(benchmark.clips, config.num_frames, config.max_side) if config.model else None
        self.build = Build(replace(config, output_dir=str(self.output_dir / "answers")))
        self.judging = self.build
        self.measure = ComposedRetrievalMeasure()
        self.device: Any = None

    def describe(self) -> Captions:
        """The descriptions by query id."""
        rows = self.benchmark.rows
        if self.config.rewritten:
            return read_captions(self.config.rewritten, [row["query_id"] for row in rows], "query_id", "target_caption")
        return describe(self.build, self.config, rows, self.benchmark.clips, self.images)

    def retrieve(self, described: Captions) -> Ranked:
        """The gallery of each described query, best first.

        Raises:
            ValueError: too few descriptions can be used, or nothing can be ranked.
        """
        config = self.config
        check_share(described, config.min_caption_share, "--model or --rewritten")
        self.device = make_accelerator(config.device, self.output_dir).device
        encoder = load_model(config.encoder, self.device, trust_remote_code=config.trust_remote_code)
        work = Work(config.batch_size, config.shard_size, config.num_workers)
        folder, frames = self.output_dir / "embeddings", (None, config.target_frames)
        most = max(CUTS[-1], config.shortlist)
        return rank_row(
            self.benchmark, encoder, "captions", folder, frames, extra_texts=described.texts, work=work, k=most
        )

    def pairs(self, rows: list[dict[str, Any]], ids: list[list[str]], texts: dict[str, str]) -> list[Pair]:
        """What is to be judged."""
        clip_of, number = self.benchmark.clips.get, self.config.shortlist
        return [
            pair
            for row, ranked in zip(rows, ids, strict=True)
            for pair in shortlist(row, ranked, clip_of, number, texts.get(row["query_id"], ""))
        ]

    def judge(self, pairs: list[Pair]) -> Scores:
        """The scores of those pairs that could be judged."""
        config = self.config
        if config.matcher:
            found = match(config.matcher, pairs, self.device, num_frames=config.num_frames)
            return {ids_of(pair): score for pair, score in self.build.passed("re-ranking", found)}
        self.judging = self.judge_build()
        descriptions = {one["label"]: one["description"] for one in self.benchmark.clips.values()}
        asked = {}
        for pair in pairs:
            expected = None if config.model else label_score(pair.clip, pair.query["target_label"], descriptions)
            asked[pair.key] = pair, to_score(pair, self.images, expected)
        if not config.model:  # the rule has nothing to say of clips without labels
            asked = {key: one for key, one in asked.items() if one[1].expected is not None}
        task = RelevanceTask("describe-rerank")
        answered = self.judging.ask(task, [one for _, one in asked.values()], name="re-ranking")
        return {ids_of(asked[row.key][0]): float(score) for row, score in answered}

    def judge_build(self) -> Build:
        """What asks the re-ranker: the same client, or that of another model with what is left of the budget."""
        config = self.config
        if not config.reranker:
            return self.build
        spent = self.build.chat.meter.usd or 0.0
        left = None if config.max_usd is None else max(config.max_usd - spent, 1e-9)
        other = {"model": config.reranker, "base_url": config.reranker_base_url or config.base_url, "max_usd": left}
        if config.reranker != config.model:  # the given price is that of --model
            other |= {"input_usd": None, "output_usd": None}
        return Build(replace(self.build.config, **other))

    @property
    def builds(self) -> list[Build]:
        """Those that asked, each once."""
        return list(dict.fromkeys((self.build, self.judging)))

    @property
    def incomplete(self) -> str | None:
        """Why a further run could add answers."""
        return next((build.incomplete for build in self.builds if build.incomplete), None)

    def dry_run(self) -> int:
        """Print requests and price of each step; nothing is retrieved, so other clips stand for the shortlists."""
        self.describe()
        if self.config.shortlist and not self.config.matcher:
            rows, some = self.benchmark.rows, list(dict.fromkeys(self.benchmark.gallery))[: self.config.shortlist + 1]
            others = [[one for one in some if one != row["query_clip_id"]][: self.config.shortlist] for row in rows]
            self.judge(self.pairs(rows, others, {}))
        for build in self.builds:
            build.show()
        sys.stdout.write(
            f"re-ranking: {self.config.shortlist} clips of each query; the first of the gallery stand for those that "
            "will be retrieved\n"
        )
        return 0

    def run(self) -> int:
        """Describe, retrieve, re-rank, measure; the exit status."""
        described = self.describe()
        if not self.build.incomplete:
            self.check_earlier_rows(described)
        ranked: Ranked | None = None
        reranked: list[tuple[list[str], list[float | None]]] = []
        columns = {"descriptions": described.source, "encoder": short_name(self.config.encoder)}
        columns |= {"written from": "a file" if self.config.rewritten else self.config.describe, "re-ranker": ""}
        try:
            if self.build.incomplete:
                raise ValueError(self.build.incomplete)
            ranked = self.retrieve(described)
            self.write(RETRIEVED, ranked, described, columns)
        except ValueError as error:
            write_failure(self.output_dir, RETRIEVED, str(error), columns)
        if ranked and self.config.shortlist:
            reranked = self.rerank(ranked, described, columns)
        self.write_answers(described)
        if ranked:
            self.write_predictions(ranked, reranked, described)
        return self.finish()

    def check_earlier_rows(self, described: Captions) -> None:
        """Refuse an output folder with rows of other options, before anything more is paid.

        Raises:
            ValueError: it has some.
        """
        for name in self.names:
            is_done(self.output_dir, name, self.row_config(described, is_reranked=name == RERANKED))

    @property
    def names(self) -> list[str]:
        """Of the rows."""
        return [RETRIEVED, RERANKED] if self.config.shortlist else [RETRIEVED]

    def rerank(
        self, ranked: Ranked, described: Captions, columns: dict[str, Any]
    ) -> list[tuple[list[str], list[float | None]]]:
        """Re-rank and measure; the rankings with their scores."""
        rows, number = ranked.queries.rows, self.config.shortlist
        pairs = self.pairs(rows, ranked.ids, described.texts)
        scores = self.judge(pairs)
        columns["re-ranker"] = self.reranker
        columns["judged"] = f"{len(scores):,} of {len(pairs):,} clips"
        by_query: dict[str, dict[str, float]] = {row["query_id"]: {} for row in rows}
        for (query_id, clip_id), score in scores.items():
            by_query[query_id][clip_id] = score
        found = [rerank(ids, by_query[row["query_id"]], number) for row, ids in zip(rows, ranked.ids, strict=True)]
        reason = self.incomplete or (None if scores else "no clip could be judged; answers/rejections.parquet says why")
        if reason:
            write_failure(self.output_dir, RERANKED, reason, columns)
            return found
        again = replace(ranked, ids=[ids for ids, _ in found], num_encoded=0)
        self.write(RERANKED, again, described, columns, judged=len(scores), pairs=len(pairs))
        return found

    @property
    def reranker(self) -> str:
        """What it is called in the table."""
        return self.config.matcher or self.config.reranker or self.config.model or LABEL_ATTRIBUTES

    def write(self, name: str, ranked: Ranked, described: Captions, columns: dict[str, Any], **counts: int) -> None:
        """Write a measured row."""
        measured: Measured = measure_ranked(self.benchmark, ranked, self.measure)
        coverage = measured.coverage | counts | {"descriptions": described.coverage}
        shown = f"{coverage['queries_ranked']:,} of {coverage['queries']:,}"
        config = self.row_config(described, is_reranked=name == RERANKED)
        write_row(
            self.output_dir,
            name,
            measured.metrics,
            config=config,
            seed=self.config.seed,
            columns=columns | {"queries": shown},
            data=self.benchmark.data(measured.signature),
            coverage=coverage,
        )

    def row_config(self, described: Captions, *, is_reranked: bool) -> dict[str, Any]:
        """All that decides the figures of a row; no folder of this machine but the models'."""
        names = ["dataset_config", "split", "gallery", "protocol", "encoder", "target_frames"]
        if is_reranked:
            names += ["shortlist", "num_frames", "max_side", "temperature"]
        made = {name: getattr(self.config, name) for name in names}
        texts = json.dumps(described.texts, sort_keys=True).encode()
        made |= {"descriptions": described.source, "descriptions_digest": hashlib.sha256(texts).hexdigest()[:16]}
        made["data"] = self.benchmark.data("")["fingerprint"]
        return made | ({"reranker": self.reranker} if is_reranked else {})

    def write_answers(self, described: Captions) -> None:
        """Write the descriptions, the rejections and what was asked, unless a whole run is there and this is none."""
        for build in self.builds:
            build.show()
        if any(build.keeps_earlier() for build in self.builds):
            return
        texts = {"query_id": list(described.texts), "target_caption": list(described.texts.values())}
        table = pl.DataFrame(texts, {"query_id": pl.String, "target_caption": pl.String})
        steps = [step for build in self.builds for step in build.steps]
        with self.build.draft() as draft:
            table.with_columns(model=pl.lit(described.source)).write_parquet(draft / "rewritten.parquet")
            write_rejections(draft, [one for build in self.builds for one in build.rejections])
            write_results(
                draft,
                {build.chat.model: build.counts() for build in self.builds},
                config=self.config,
                seed=self.config.seed,
                complete=self.incomplete is None,
                steps=[{"step": one.name, "accepted": one.accepted, "rejected": dict(one.rejected)} for one in steps],
            )

    def write_predictions(
        self, ranked: Ranked, reranked: list[tuple[list[str], list[float | None]]], described: Captions
    ) -> None:
        """Write `predictions.parquet`, a row for each query; `ranked_clip_ids` are those of the last step."""
        last = reranked or [(ids, []) for ids in ranked.ids]
        names = ("query_id", "query_clip_id", "modification_text", "target_clip_ids", "target_label")
        rows = [
            {name: row[name] for name in names}
            | {"description": described.texts[row["query_id"]], "retrieved_clip_ids": ids}
            | {"ranked_clip_ids": order, "rerank_scores": scores}
            for row, ids, (order, scores) in zip(ranked.queries.rows, ranked.ids, last, strict=True)
        ]
        schema = {"rerank_scores": pl.List(pl.Float64)}
        with replacing_files(self.output_dir) as draft:
            pl.DataFrame(rows, schema_overrides=schema, infer_schema_length=None).write_parquet(
                draft / "predictions.parquet"
            )

    def finish(self) -> int:
        """Write the table; the exit status."""
        found = {name: row for name, row in read_rows([self.output_dir]).items() if name in self.names}
        made = {"config": self.config, "seed": self.config.seed}
        status = finish_table(self.output_dir, found, self.names, METRICS, TITLE, **made)
        return int(bool(status or self.incomplete))


def check_models(config: DescribeAndRerankConfig) -> None:
    """Refuse folders without a model before anything is asked and paid.

    Raises:
        SystemExit: one of them holds none.
    """
    for folder in (config.encoder, config.matcher):
        if folder and not (Path(folder) / "modules.json").is_file():  # of sentence-transformers
            check_model_folder(folder)


def ids_of(pair: Pair) -> tuple[str, str]:
    """Of the query and the clip."""
    return pair.query["query_id"], pair.clip["clip_id"]


def main(config: DescribeAndRerankConfig) -> int:
    disable_progress_bar()
    pipeline = Pipeline(config)
    return pipeline.dry_run() if config.dry_run else pipeline.run()


if __name__ == "__main__":
    sys.exit(run_recipe(partial(run, main), CONFIG))
