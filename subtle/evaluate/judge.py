"""Ask a multimodal language model which of two paragraphs fits a video (VideoComp, Table 7)."""

import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hf_datasets.builders import write_rejections
from hf_datasets.comp.contrasts import Span, span_of
from hf_datasets.comp.counterfactuals import Counterfactual
from hf_datasets.comp.judge import UNREADABLE_VERDICT, JudgedPair, JudgedVideos, JudgeTask, Verdict, VideoJudgeTask
from hf_datasets.generation.answer_checks import is_about_reply
from hf_datasets.generation.dry_run import DryRun
from hf_datasets.generation.images import image_parts
from subtle.comp.data import load_rows, pairs_of
from subtle.comp.scores import show_scores
from subtle.evaluate.options import JudgeConfig
from subtle.evaluate.search_steps import some
from subtle.run.build import Build
from subtle.run.data import with_split
from subtle.run.metric_loading import load_metric
from subtle.run.results import write_results


def frames_of(config: JudgeConfig, span: Span) -> list[dict[str, Any]]:
    """The frames of a stretch of video as images; read when a question about it is asked."""
    options = {"num_frames": config.num_frames, "max_side": config.max_side}
    return image_parts(span.path, span.start_seconds, span.end_seconds, **options)


def ask_of_pairs(build: Build, config: JudgeConfig, pairs: list[Counterfactual]) -> list[Verdict]:
    """Three more questions of each pair: the texts of the other video, and for each text its video."""
    spans: dict[str, Span] = {}
    texts: list[JudgedPair] = []
    videos: list[JudgedVideos] = []
    for pair in pairs:
        told = f"{pair.key}/told"
        spans[told] = pair.videos[1]
        texts.append(JudgedPair(told, "segment_mismatch", pair.texts[1], pair.texts[0], config.seed))
        for place, text in enumerate(pair.texts):
            key = f"{pair.key}/text {place}"
            spans |= {key: pair.videos[place], f"{key}/other": pair.videos[1 - place]}
            videos.append(JudgedVideos(key, text, config.seed))

    def of(key: str) -> list[dict[str, Any]]:
        return frames_of(config, spans[key])

    answered: list[tuple[Any, Verdict]] = build.ask(
        JudgeTask(lambda pair: of(pair.key)), texts, name="judge the other videos"
    )
    task = VideoJudgeTask(lambda judged: (of(judged.key), of(f"{judged.key}/other")))
    answered += build.ask(task, videos, name="judge which video")
    return [verdict for _, verdict in answered]


def scores_of_pairs(pairs: list[Counterfactual], verdicts: list[Verdict]) -> tuple[dict[str, float], int]:
    """Text, video and group score of the pairs with all four verdicts, and how many these are."""
    right = {verdict.key: verdict.given == verdict.answer for verdict in verdicts}
    keys = [(pair.key, f"{pair.key}/told", f"{pair.key}/text 0", f"{pair.key}/text 1") for pair in pairs]
    groups = [[right[key] for key in four] for four in keys if right.keys() >= set(four)]
    if not groups:
        return {}, 0
    both = {"text_score": [all(four[:2]) for four in groups], "video_score": [all(four[2:]) for four in groups]}
    both["group_score"] = [all(four) for four in groups]
    return {name: sum(values) / len(groups) for name, values in both.items()}, len(groups)


def verdict_accuracy(verdicts: list[Verdict]) -> dict[str, float]:
    """Accuracy per disruption and comprehensive accuracy; empty without a verdict."""
    if not verdicts:
        return {}
    references = [{"disruption_type": verdict.disruption_type, "answer": verdict.answer} for verdict in verdicts]
    measured = load_metric("comprehensive_accuracy").compute(
        predictions=[verdict.given for verdict in verdicts], references=references
    )
    return {name: value for name, value in measured.items() if isinstance(value, float)}


def verdicts_on_unreadable(build: Build, pairs: list[JudgedPair]) -> list[Verdict]:
    """A wrong verdict for each reply that is not an answer; a question without a reply has none."""
    kinds = {pair.key: pair.disruption_type for pair in pairs}
    return [
        Verdict(one.key, kinds.get(one.key, "segment_mismatch"), "", "1")
        for _, one in build.rejections
        if one.key is not None and (one.reason == UNREADABLE_VERDICT or is_about_reply(one.reason))
    ]


def write_tables(folder: Path, build: Build, verdicts: list[Verdict]) -> None:
    """`verdicts.parquet`, and `rejections.parquet` with the judge's replies that are not an answer, and why."""
    schema = pa.schema([(field.name, pa.string()) for field in fields(Verdict)])
    table = pa.Table.from_pylist([asdict(verdict) for verdict in verdicts], schema=schema)
    pq.write_table(table, folder / "verdicts.parquet")
    write_rejections(folder, build.rejections)


def main(config: JudgeConfig) -> int:
    config = with_split(config)
    assert config.split is not None
    build = Build(config)
    rows, coverage = load_rows(config, config.split)
    rows = list(build.limited(some(rows, config.max_queries, config.seed)))
    texts = ("key", "disruption_type", "positive_text", "negative_text")
    pairs = [
        JudgedPair(
            **{name: row[name] for name in texts},
            seed=config.seed,
            asked=None if config.own_questions else (row["question"], row["answer"]),
        )
        for row in rows
    ]
    spans = {row["key"]: span_of(row) for row in rows}
    task = JudgeTask(lambda pair: frames_of(config, spans[pair.key]))
    verdicts = [verdict for _, verdict in build.ask(task, pairs, name="judge")]
    refused = len(build.rejections)
    counterfactuals, found = pairs_of(rows) if config.counterfactual else ([], {})
    of_pairs = ask_of_pairs(build, config, counterfactuals) if counterfactuals else []
    build.show()
    if isinstance(build.chat, DryRun):
        return 0
    if build.keeps_earlier():
        return 1
    wrong = [] if config.leave_out_unreadable or not verdicts else verdicts_on_unreadable(build, pairs)
    scores, answered = scores_of_pairs(counterfactuals, verdicts + of_pairs + wrong)
    asked = {pair.key for pair in pairs}
    wrong = [verdict for verdict in wrong if verdict.key in asked]
    measured = verdict_accuracy(verdicts + wrong) | scores
    coverage |= {
        "asked": len(verdicts) + refused,
        "answered": len(verdicts),
        "unreadable or failed": refused,
        "unreadable, counted as wrong": len(wrong),
        **({"counterfactual answered": answered} if config.counterfactual else {}),
        **{f"counterfactual {what}": count for what, count in found.items()},
    }
    with build.draft() as draft:
        write_tables(draft, build, verdicts + of_pairs)
        write_results(
            draft,
            measured | build.counts(),
            config=config,
            seed=config.seed,
            coverage=coverage,
            complete=build.incomplete is None,
            judge=build.chat.model,
            prompts=build.chat.meter.prompts,
        )
    if not verdicts:
        sys.stderr.write(f"no answer can be read; {build.output_dir / 'rejections.parquet'} says why\n")
        return 1
    judged = f"{len(verdicts) + len(wrong)} of {len(rows)} judged"
    title = f"{config.dataset} ({config.dataset_config}), {config.split}: {judged}"
    title += f", {len(wrong)} of them unreadable and so wrong" if wrong else ""
    show_scores({build.chat.model: measured}, title)
    return int(build.incomplete is not None)
