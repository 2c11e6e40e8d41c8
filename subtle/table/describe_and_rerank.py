"""Describe the target of each composed query, retrieve by the description, re-rank the first clips (as for CoVR-R)."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from transformers.utils.logging import disable_progress_bar

from hf_datasets.builders import write_rejections
from hf_datasets.drafts import replacing_files
from hf_datasets.generation.dry_run import DryRun
from hf_datasets.generation.relevance import RelevanceTask
from hf_datasets.records import Rejection
from hf_datasets.tfcovr.captions import CaptionTask, ClipToCaption
from hf_datasets.tfcovr.describing import DescribeTargetTask, QueryToDescribe
from hf_datasets.tfcovr.rewriting import CaptionedQuery, RewriteTask
from hf_models.encoders import load_encoder, short_name
from subtle.embedding.loop import Work
from subtle.run.accelerator import make_accelerator
from subtle.run.build import Build, run_build
from subtle.run.data import with_split
from subtle.run.model_folders import ENCODER_FILES, check_model_folder
from subtle.run.results import write_results
from subtle.table.caption_texts import Captions, caption_from, captions_in, check_share, texts_digest
from subtle.table.embedding import Embedder
from subtle.table.options import DescribeAndRerankConfig
from subtle.table.reranking import ClipImages, RankedCandidate, label_score, match, rerank, to_score
from subtle.table.rows import is_done, read_rows, write_failure, write_row
from subtle.table.scoring import EvaluatedSplit, Ranked, measure_ranked, rank_row
from subtle.table.table import finish_table
from subtle.tfcovr.captions import LABEL_CAPTIONS, label_of, sport_of_clip
from subtle.tfcovr.measure import CUTOFFS, ComposedRetrievalMeasure

RETRIEVED, RERANKED = "describe, retrieve", "describe, retrieve, re-rank"
LABEL_ATTRIBUTES = "label attributes (upper bound)"
"""What the re-ranker without a model is called: it knows the labels, so it is an upper bound, no model's."""
NO_FRAMES = [{"type": "text", "text": "(no frames: the rule-based generator reads the label)"}]
TITLE = "Composed retrieval by description and re-ranking"


class Pipeline:
    """One run: description, retrieval, re-ranking.

    Attributes:
        described: by query id, once `describe` has run.
        columns: what the table says of a row, as far as it is known.
    """

    described: Captions

    def __init__(self, config: DescribeAndRerankConfig) -> None:
        for folder in filter(None, (config.encoder, config.matcher)):  # before anything is asked and paid
            check_model_folder(folder, *ENCODER_FILES)
        self.config = config = with_split(config)
        self.output_dir = Path(config.output_dir)
        benchmark = EvaluatedSplit.load(config).drawn(config.max_queries, config.seed)
        self.benchmark = replace(benchmark, rows=benchmark.rows[: config.limit])
        self.descriptions = {clip["label"]: clip["description"] for clip in benchmark.clips.values()}
        self.images = ClipImages(benchmark.clips, config.num_frames, config.max_side) if config.model else None
        self.build = Build(replace(config, output_dir=str(self.output_dir / "answers")))
        self.judging = self.build
        self.measure = ComposedRetrievalMeasure()
        self.device: Any = None
        self.names = [RETRIEVED, RERANKED] if config.shortlist else [RETRIEVED]
        self.columns = {"encoder": short_name(config.encoder)}
        self.columns |= {"written from": "a file" if config.rewritten else config.describe, "re-ranker": ""}

    def describe(self) -> None:
        """Get the descriptions; answers that cannot be used are among the rejections."""
        ids = [row["query_id"] for row in self.benchmark.rows]
        if self.config.rewritten:
            self.described = captions_in(self.config.rewritten, ids, "query_id", "target_caption")
            return
        texts = self.from_captions() if self.config.describe == "captions" else self.from_frames()
        reasons = {one.key: one.reason for _, one in self.build.rejections}
        unusable = {one: reasons.get(one, "not asked: the run was stopped") for one in ids if one not in texts}
        source = self.config.model or LABEL_CAPTIONS
        source = f"dry run of {source}" if isinstance(self.build.chat, DryRun) else source
        self.described = Captions(texts, source, unusable)

    def from_frames(self) -> dict[str, str]:
        """Descriptions by query id, from frames and modification text."""
        asked = [
            QueryToDescribe(
                row["query_id"],
                row["modification_text"],
                partial(self.images.of, row["query_clip_id"]) if self.images else list,
                caption_from(row["target_label"], self.descriptions.get(row["target_label"])),
            )
            for row in self.benchmark.rows
        ]
        return {row.query_id: text for row, text in self.build.ask(DescribeTargetTask(), asked, name="descriptions")}

    def from_captions(self) -> dict[str, str]:
        """Descriptions by query id, from captions of the query clips; see `caption write` and `caption rewrite`."""
        rows, images, any_form = self.benchmark.rows, self.images, self.config.any_form
        query_clips = dict.fromkeys(row["query_clip_id"] for row in rows)
        asked = list(self.build.passed("clips", map(self.to_caption, query_clips)))
        task = CaptionTask(lambda clip: images.of(clip.clip_id) if images else NO_FRAMES, any_form=any_form)
        answered = self.build.ask(task, asked, name="captions")
        captions = {clip.clip_id: (clip.sport, found.caption) for clip, found in answered}

        def to_rewrite(row: Mapping[str, Any]) -> CaptionedQuery | Rejection:
            text, label_id = row["modification_text"], row["target_label"]
            if row["query_clip_id"] not in captions:
                return Rejection("its clip has no caption", text, row["query_id"])
            target = label_of(label_id, self.descriptions.get(label_id))
            return CaptionedQuery(row["query_id"], *captions[row["query_clip_id"]], text, target)

        captioned = list(self.build.passed("queries", map(to_rewrite, rows)))
        rewritten = self.build.ask(RewriteTask(any_form=any_form), captioned, name="descriptions")
        return {row.query_id: found.target_caption for row, found in rewritten}

    def to_caption(self, clip_id: str) -> ClipToCaption | Rejection:
        """A clip as the task takes it, or why it cannot be captioned."""
        clip = self.benchmark.clips.get(clip_id)
        label = None if clip is None else label_of(clip["label"], clip["description"])
        sport = sport_of_clip(clip_id, label, self.config)
        if sport is None:
            return Rejection("no label of TF-CoVR says the sport; give --sport", "", clip_id)
        return ClipToCaption(clip_id, sport, label)

    def retrieve(self) -> Ranked:
        """The gallery of each described query, best first.

        Raises:
            ValueError: too few descriptions can be used, or nothing can be ranked.
        """
        config = self.config
        check_share(self.described, "--model or --rewritten")
        self.device = make_accelerator(config.device, self.output_dir).device
        encoder = load_encoder(config.encoder, self.device, trust_remote_code=config.trust_remote_code)
        work = Work(config.batch_size, config.shard_size, config.num_workers)
        embedder = Embedder(encoder, self.output_dir / "embeddings", work)
        most = max(CUTOFFS[-1], config.shortlist)
        frames = None, config.target_frames
        return rank_row(self.benchmark, embedder, "captions", frames, self.described.texts, k=most)

    def pairs(self, rows: list[dict[str, Any]], ids: list[list[str]]) -> list[RankedCandidate]:
        """What is to be judged: of each query the first clips of its ranking, each once."""
        return [
            RankedCandidate(row, clip, self.described.texts.get(row["query_id"], ""))
            for row, ranked in zip(rows, ids, strict=True)
            for clip_id in dict.fromkeys(ranked[: self.config.shortlist])
            if (clip := self.benchmark.clips.get(clip_id)) is not None
        ]

    def judge(self, pairs: list[RankedCandidate]) -> list[tuple[RankedCandidate, float]]:
        """Those pairs that could be judged, with their scores."""
        config = self.config
        if config.matcher:
            found = match(config.matcher, pairs, self.device, num_frames=config.num_frames)
            return list(self.build.passed("re-ranking", found))
        self.judging = self.judge_build()
        asked = {}
        for pair in pairs:
            expected = None if config.model else label_score(pair.clip, pair.query["target_label"], self.descriptions)
            asked[pair.key] = pair, to_score(pair, self.images, expected)
        if not config.model:  # the rule has nothing to say of clips without labels
            asked = {key: one for key, one in asked.items() if one[1].expected is not None}
        task = RelevanceTask("describe-rerank")
        answered = self.judging.ask(task, [one for _, one in asked.values()], name="re-ranking")
        return [(asked[row.key][0], float(score)) for row, score in answered]

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
            self.judge(self.pairs(rows, others))
        for build in self.builds:
            build.show()
        sys.stdout.write(
            f"re-ranking: {self.config.shortlist} clips of each query; the first of the gallery stand for those that "
            "will be retrieved\n"
        )
        return 0

    def run(self) -> int:
        """Describe, retrieve, re-rank, measure; the exit status."""
        self.describe()
        self.columns = {"descriptions": self.described.source} | self.columns
        for name in self.names if not self.build.incomplete else ():
            # Rows of other options are refused before anything more is paid.
            is_done(self.output_dir, name, self.row_config(name))
        ranked: Ranked | None = None
        reranked: list[tuple[list[str], list[float | None]]] = []
        try:
            if self.build.incomplete:
                raise ValueError(self.build.incomplete)
            ranked = self.retrieve()
            self.write(RETRIEVED, ranked)
        except ValueError as error:
            write_failure(self.output_dir, RETRIEVED, str(error), self.columns)
        if ranked and self.config.shortlist:
            reranked = self.rerank(ranked)
        self.write_answers()
        if ranked:
            self.write_predictions(ranked, reranked)
        return self.finish()

    def rerank(self, ranked: Ranked) -> list[tuple[list[str], list[float | None]]]:
        """Re-rank and measure; the rankings with their scores."""
        rows, number = ranked.queries.rows, self.config.shortlist
        pairs = self.pairs(rows, ranked.ids)
        judged = self.judge(pairs)
        self.columns |= {"re-ranker": self.reranker, "judged": f"{len(judged):,} of {len(pairs):,} clips"}
        scores: dict[str, dict[str, float]] = {row["query_id"]: {} for row in rows}
        for pair, score in judged:
            scores[pair.query["query_id"]][pair.clip["clip_id"]] = score
        found = [rerank(ids, scores[row["query_id"]], number) for row, ids in zip(rows, ranked.ids, strict=True)]
        reason = self.incomplete or (None if judged else "no clip could be judged; answers/rejections.parquet says why")
        if reason:
            write_failure(self.output_dir, RERANKED, reason, self.columns)
        else:
            again = replace(ranked, ids=[ids for ids, _ in found], num_encoded=0)
            self.write(RERANKED, again, judged=len(judged), pairs=len(pairs))
        return found

    @property
    def reranker(self) -> str:
        """What it is called in the table."""
        return self.config.matcher or self.config.reranker or self.config.model or LABEL_ATTRIBUTES

    def write(self, name: str, ranked: Ranked, **counts: int) -> None:
        """Measure and write a row."""
        measured = measure_ranked(self.benchmark, ranked, self.measure)
        write_row(
            self.output_dir,
            name,
            measured.metrics,
            config=self.row_config(name),
            seed=self.config.seed,
            columns=self.columns | measured.columns,
            data=measured.data,
            coverage=measured.details["coverage"] | counts | {"descriptions": self.described.coverage},
        )

    def row_config(self, name: str) -> dict[str, Any]:
        """All that decides the figures of a row; no folder of this machine but the models'."""
        is_reranked = name == RERANKED
        names = ["dataset_config", "split", "gallery", "protocol", "encoder", "target_frames"]
        if is_reranked:
            names += ["shortlist", "num_frames", "max_side", "temperature"]
        made = {option: getattr(self.config, option) for option in names}
        made |= {"descriptions": self.described.source, "descriptions_digest": texts_digest(self.described.texts)}
        made["data"] = self.benchmark.data("")["fingerprint"]
        return made | ({"reranker": self.reranker} if is_reranked else {})

    def write_answers(self) -> None:
        """Write the descriptions, the rejections and what was asked, unless a whole run is there and this is none."""
        for build in self.builds:
            build.show()
        if any(build.keeps_earlier() for build in self.builds):
            return
        described = self.described
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

    def write_predictions(self, ranked: Ranked, reranked: list[tuple[list[str], list[float | None]]]) -> None:
        """Write `predictions.parquet`, a row for each query; `ranked_clip_ids` are those of the last step."""
        last = reranked or [(ids, []) for ids in ranked.ids]
        names = ("query_id", "query_clip_id", "modification_text", "target_clip_ids", "target_label")
        rows = [
            {name: row[name] for name in names}
            | {"description": self.described.texts[row["query_id"]], "retrieved_clip_ids": ids}
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


def measure(config: DescribeAndRerankConfig) -> int:
    """Measure the rows, or say what they will cost; the exit status."""
    pipeline = Pipeline(config)
    return pipeline.dry_run() if config.dry_run else pipeline.run()


def main(config: DescribeAndRerankConfig) -> int:
    """The same, with what answers requests where it is asked for; the exit status."""
    disable_progress_bar()
    return run_build(measure, config)
