"""Describe the target of each composed query, retrieve by the description, re-rank the first clips (as for CoVR-R)."""

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from transformers.utils.logging import disable_progress_bar

from hf_datasets.builders import write_rejections
from hf_datasets.generation.relevance import RelevanceTask
from hf_models.encoders import load_encoder, short_name
from subtle.embedding.loop import Work
from subtle.run.accelerator import make_accelerator
from subtle.run.build import Build, run
from subtle.run.data import with_split
from subtle.run.model_folders import ENCODER_FILES, check_model_folder
from subtle.run.results import replacing_files, write_results
from subtle.table.caption_texts import Captions, captions_in, check_share
from subtle.table.describing import describe
from subtle.table.options import DescribeAndRerankConfig
from subtle.table.reranking import ClipImages, Pair, label_score, match, rerank, shortlist, to_score
from subtle.table.rows import is_done, read_rows, write_failure, write_row
from subtle.table.scoring import Benchmark, Ranked, measure_ranked, rank_row
from subtle.table.table import finish_table
from subtle.tfcovr.measure import CUTOFFS, ComposedRetrievalMeasure

RETRIEVED, RERANKED = "describe, retrieve", "describe, retrieve, re-rank"
LABEL_ATTRIBUTES = "label attributes (upper bound)"
"""What the re-ranker without a model is called: it knows the labels, so it is an upper bound, no model's."""
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
            return captions_in(self.config.rewritten, [row["query_id"] for row in rows], "query_id", "target_caption")
        return describe(self.build, self.config, rows, self.benchmark.clips, self.images)

    def retrieve(self, described: Captions) -> Ranked:
        """The gallery of each described query, best first.

        Raises:
            ValueError: too few descriptions can be used, or nothing can be ranked.
        """
        config = self.config
        check_share(described, "--model or --rewritten")
        self.device = make_accelerator(config.device, self.output_dir).device
        check_model_folder(config.encoder, *ENCODER_FILES)
        encoder = load_encoder(config.encoder, self.device, trust_remote_code=config.trust_remote_code)
        work = Work(config.batch_size, config.shard_size, config.num_workers)
        folder, frames = self.output_dir / "embeddings", (None, config.target_frames)
        most = max(CUTOFFS[-1], config.shortlist)
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
        """What asks the re-ranker: the same client, or that of another model, which shares the budget."""
        config = self.config
        if not config.reranker:
            return self.build
        other: dict[str, Any] = {"model": config.reranker}
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
        measured = measure_ranked(self.benchmark, ranked, self.measure)
        config = self.row_config(described, is_reranked=name == RERANKED)
        write_row(
            self.output_dir,
            name,
            measured.metrics,
            config=config,
            seed=self.config.seed,
            columns=columns | measured.columns,
            data=measured.data,
            coverage=measured.details["coverage"] | counts | {"descriptions": described.coverage},
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
        made: dict[str, Any] = {"config": self.config, "seed": self.config.seed}
        status = finish_table(self.output_dir, found, self.names, TITLE, **made)
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


def measure(config: DescribeAndRerankConfig) -> int:
    """Measure the rows, or say what they will cost; the exit status."""
    pipeline = Pipeline(config)
    return pipeline.dry_run() if config.dry_run else pipeline.run()


def main(config: DescribeAndRerankConfig) -> int:
    """The same, with what answers requests where it is asked for; the exit status."""
    disable_progress_bar()
    return run(measure, config)
