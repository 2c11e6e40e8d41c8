"""Measure how well models tell true from disrupted paragraphs, and their retrieval."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hf_datasets.builders import write_rejections
from hf_datasets.comp.contrasts import Span, SpanReader
from hf_datasets.comp.counterfactuals import Counterfactual
from hf_datasets.drafts import replacing_files, writing
from hf_datasets.records import Rejection
from hf_models.encoders import Encoder, load_encoder, short_names
from subtle.comp.data import load_pairs, load_retrieval, load_rows, pairs_of
from subtle.comp.scores import CLIP_SCALE, Scores, draw_confidence, show_scores
from subtle.evaluate.options import EvaluateCompConfig
from subtle.evaluate.search_steps import some
from subtle.options import adopt, override, parse_config
from subtle.run.accelerator import make_accelerator
from subtle.run.data import with_split
from subtle.run.model_folders import check_model_folder
from subtle.run.over_seeds import average, summarize
from subtle.run.results import write_results
from subtle.run.shared_config import ContrastConfig
from subtle.train.options import VidCLIPRunConfig
from subtle.train.vidclip import run as train

COMP_PRETRAIN, CAPTIONING = "comppretrain", "captioning"
OBJECTIVES = {COMP_PRETRAIN: "comploss", CAPTIONING: "clip"}
"""What `vidclip.py` calls the objective, where it is another name."""
COCA_WEIGHT = 2.0
CONFIDENCE_PLOT = "confidence.png"
"""VideoComp's Figure 4."""
SHARED = (*ContrastConfig.__dataclass_fields__, "num_workers", "device")
"""The options of `vidclip.py` that are given here, too."""


def systems(config: EvaluateCompConfig) -> Iterator[tuple[str, str, str]]:
    """What is measured: its name, which several seeds share, that of the run, and the folder; trained where missing."""
    if not config.compare:
        for name, path in short_names(config.models).items():
            yield name, name, path
        return
    file = [config.vidclip_config] if config.vidclip_config else []
    for name in config.objectives:
        objective = ["--objective", OBJECTIVES.get(name, name)]
        start = pretrain(config) if name == COMP_PRETRAIN else None
        for seed in config.seeds:
            training = vidclip_config(config, [*file, *objective])
            training.model = start or training.model
            training.captioning_weight = training.captioning_weight or COCA_WEIGHT if name == CAPTIONING else 0.0
            training.seed, training.output_dir = seed, f"{config.runs_dir}/{name}/{seed}"
            train(training)
            yield name, f"{name}/{seed}", f"{training.output_dir}/model"


def pretrain(config: EvaluateCompConfig) -> str:
    """The folder of the model that was pre-trained on stacked clips; trained where missing."""
    training = parse_config(VidCLIPRunConfig, None, [config.pretrain_config])
    override(training, config, SHARED)
    training.output_dir = f"{config.runs_dir}/stacked"
    train(training)
    return f"{training.output_dir}/model"


def vidclip_config(config: EvaluateCompConfig, arguments: list[str]) -> VidCLIPRunConfig:
    """How `vidclip.py` trains with these arguments; the data that only its file names are also those to measure on."""
    training = parse_config(VidCLIPRunConfig, None, arguments)
    adopt(config, [training], ContrastConfig.__dataclass_fields__)
    override(training, config, SHARED)
    return training


@dataclass
class EvaluationData:
    """What is measured: the rows and pairs of each draw, what was left out, how many there are; or a retrieval."""

    draws: list[tuple[list[dict[str, Any]], list[Counterfactual]]]
    coverage: dict[str, int]
    rejections: list[Rejection]
    retrieval: list[tuple[Span, str]] | None = None


def load_evaluation_data(config: EvaluateCompConfig) -> EvaluationData:
    """The rows of the dataset with the pairs among them, the pairs of a user's table, or a retrieval benchmark."""
    if config.retrieval:
        folders = config.data_dir, config.video_dir
        described, rejections, coverage = load_retrieval(config.retrieval, *folders, num_workers=config.num_workers)
        return EvaluationData([([], [])], coverage, rejections, described)
    if config.pairs:
        pairs, rejections, coverage = load_pairs(config.pairs, config.video_dir, num_workers=config.num_workers)
        return EvaluationData([([], pairs)], coverage, rejections)
    assert config.split is not None  # `with_split` filled it
    by_draw = [
        load_rows(config, config.split, draw=draw, num_workers=config.num_workers) for draw in range(config.draws)
    ]
    by_draw = [(some(rows, config.max_queries, config.seed), counts) for rows, counts in by_draw]
    found = [pairs_of(rows, num_workers=config.num_workers) for rows, _ in by_draw]
    coverage = {reason: sum(counts[reason] for _, counts in by_draw) for reason in by_draw[0][1]}
    if config.max_queries is not None:
        coverage["drawn"] = sum(len(rows) for rows, _ in by_draw)
    coverage |= {f"counterfactual {what}": sum(counts[what] for _, counts in found) for what in found[0][1]}
    return EvaluationData([(rows, pairs) for (rows, _), (pairs, _) in zip(by_draw, found, strict=True)], coverage, [])


@dataclass
class Outcome:
    """A model's mean metrics over the draws, its similarities with all rows and pairs, and the metrics' signatures."""

    metrics: dict[str, float]
    similarities: list[dict[str, float]]
    pair_similarities: list[list[list[float]]]
    intervals: list[dict[str, list[float] | None]]
    signature: str


def measure_draws(scores: list[Scores], encoder: Encoder, threshold: float | None = None) -> Outcome:
    """Measure a model over several draws of the pairs."""
    measured = [score(encoder, threshold=threshold, progress=True) for score in scores]
    similarities = [pair for draw in measured for pair in draw.pop("similarities")]
    of_pairs = [pair for draw in measured for pair in draw.pop("pair_similarities", ())]
    intervals = [draw.pop("intervals") for draw in measured if "intervals" in draw]
    names = ("signature", "counterfactual_signature")
    signature = "; ".join(dict.fromkeys(draw.pop(name) for name in names for draw in measured if name in draw))
    return Outcome(average(measured), similarities, of_pairs, intervals, signature)


def run(config: EvaluateCompConfig) -> dict[str, dict[str, Any]]:
    """Measure all models; returns model -> metrics."""
    if config.vidclip_config:
        vidclip_config(config, [config.vidclip_config])
    config = config if config.pairs or config.retrieval else with_split(config)
    output_dir = Path(config.output_dir)
    accelerator = make_accelerator(config.device, output_dir)
    data = load_evaluation_data(config)
    scoring: dict[str, Any] = {
        "batch_size": config.batch_size,
        "retrieval": data.retrieval if config.score == "embedding" else (),  # a decoder takes a pass for every pair
        "dual_softmax": CLIP_SCALE if config.dual_softmax else None,
        "num_workers": config.num_workers,
    }
    scores = [Scores(rows, SpanReader(), pairs=pairs, **scoring) for rows, pairs in data.draws]
    fitting = None
    if config.threshold_split:
        others, _ = load_rows(config, config.threshold_split, num_workers=config.num_workers)
        fitting = Scores(others, SpanReader(), **scoring | {"retrieval": (), "dual_softmax": None})
    rows = [{"draw": draw, **row} for draw, (drawn, _) in enumerate(data.draws) for row in drawn]
    columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in ("draw", "key", "disruption_type")}
    pairs = [(draw, pair) for draw, (_, drawn) in enumerate(data.draws) for pair in drawn]
    of_pairs: dict[str, list[Any]] = {"draw": [draw for draw, _ in pairs]}
    of_pairs |= {name: [getattr(pair, name) for _, pair in pairs] for name in ("key", "kind")}
    by_seed: dict[str, list[dict[str, Any]]] = {}
    intervals: dict[str, list[dict[str, list[float] | None]]] = {}
    thresholds: dict[str, float | None] = {}
    for name, run_name, path in systems(config):
        check_model_folder(path)
        options = {"score": config.score} if config.score != "embedding" else {}
        encoder = load_encoder(path, accelerator.device, config.num_frames, options=options)
        thresholds[run_name] = fitting.fit_threshold(encoder) if fitting else None
        outcome = measure_draws(scores, encoder, thresholds[run_name])
        by_seed.setdefault(name, []).append(outcome.metrics)
        intervals[run_name] = outcome.intervals
        for text in ("positive", "negative"):
            columns[f"{run_name}/{text}"] = [row[text] for row in outcome.similarities]
        of_pairs[run_name] = outcome.pair_similarities
    results = {name: summarize(several) for name, several in by_seed.items()}
    with replacing_files(output_dir) as draft:
        for file, table_of in (("similarities.parquet", columns), ("pairs.parquet", of_pairs)):
            with writing(output_dir / file):
                pq.write_table(pa.table(table_of), draft / file)
        if rows and config.score == "embedding":
            figure = draw_confidence(list(thresholds), columns)
            with writing(output_dir / CONFIDENCE_PLOT):
                figure.savefig(draft / CONFIDENCE_PLOT, dpi=150)
        write_rejections(draft, [("retrieval" if config.retrieval else "pairs", one) for one in data.rejections])
        write_results(
            draft,
            results,
            config=config,
            seed=config.seed,
            by_seed=by_seed,
            coverage=data.coverage,
            intervals=intervals,
            thresholds=thresholds,
            signature=outcome.signature,
        )
    show_scores(results, table_title(config, data.coverage))
    return results


def table_title(config: EvaluateCompConfig, coverage: dict[str, int]) -> str:
    """What was measured, and how much was left out."""
    left_out = coverage["rows"] - coverage["used"]
    if config.pairs or config.retrieval:
        reasons = f", {left_out:,} left out (rejections.parquet says why)" if left_out else ""
        if config.pairs:
            return f"{Path(config.pairs).name}: {coverage['used']:,} counterfactual pairs{reasons}"
        how = ", with dual softmax" if config.dual_softmax else ""
        what = f"{coverage['used']:,} of {coverage['rows']:,} videos, {coverage['texts']:,} texts"
        return f"{config.retrieval}: {what}{reasons}{how}"
    title = f"{config.dataset} ({config.dataset_config}), {config.split}: "
    title += f"{coverage['drawn']:,} of " if "drawn" in coverage else ""
    title += f"{coverage['used']:,} pairs"
    title += f", {left_out:,} left out without a readable video" if left_out else ""
    title += f"; {coverage['counterfactual pairs']:,} counterfactual pairs of videos"
    return f"{title}; compared by {config.score}"


def main(config: EvaluateCompConfig) -> None:
    run(config)
