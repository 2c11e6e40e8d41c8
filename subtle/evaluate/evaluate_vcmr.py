"""Measure moment retrieval in a corpus (VCMR), within a video (SVMR) and of whole videos (VR)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from transformers import AutoModel
from transformers.utils.logging import disable_progress_bar

from hf_models.checkpoints import open_whole
from hf_models.moments.dataset import MomentSplit
from hf_models.moments.modeling_moments import MomentRetrievalModel
from hf_models.moments.ranking import encode_split, rank_encoded, write_submission
from subtle.evaluate.options import EvaluateVCMRConfig
from subtle.fig.data import load_moments, read_moment_rows
from subtle.fig.harder_searches import measure_without_moment, show_figures
from subtle.fig.measure import MomentRetrievalMeasure
from subtle.options import adopt, given_in, override, parse_config
from subtle.run.accelerator import make_accelerator, processes
from subtle.run.data import open_dataset, with_split
from subtle.run.intervals import Interval, interval_of_mean
from subtle.run.model_folders import check_model_folder
from subtle.run.over_seeds import in_percent, summarize
from subtle.run.printing import show
from subtle.run.results import read_json, write_results
from subtle.run.shared_config import Granularity, MomentDataConfig
from subtle.train.options import VCMRConfig
from subtle.train.vcmr import make_features
from subtle.train.vcmr import run as train

RECALL_AT, RECALL_IOU = (1, 5, 10, 100), (0.5, 0.7)
RECALLS = {
    task: [f"{task.lower()}_recall@{k}_iou@{iou}" for iou in RECALL_IOU for k in RECALL_AT] for task in ("VCMR", "SVMR")
} | {"VR": [f"vr_recall@{k}" for k in RECALL_AT]}  # without an IoU
"""Metrics by task, the columns of its line in the table."""


@dataclass(frozen=True)
class MomentEvaluation:
    """One model's metrics with and without NMS, their coverage, and the results and the video of every query."""

    metrics: dict[str, float]
    without_nms: dict[str, float]
    coverage: dict[str, Any]
    without_moment: dict[str, float]
    per_query: dict[str, list[float]]
    videos: list[int]


def trained_models(config: EvaluateVCMRConfig) -> Iterator[tuple[str, Path]]:
    """Architecture and training captions of each model, and its folder; `--compare` trains those that are missing."""
    if not config.compare:
        for folder in map(Path, config.models):
            yield model_label(folder), folder
        return
    for architecture in config.architectures:
        for granularity in config.train_on:
            for seed in config.seeds:
                training = training_config(config, architecture)
                training.model, training.granularity, training.seed = architecture, granularity, seed
                training.output_dir = str(Path(config.runs_dir) / f"{architecture}-{granularity}" / str(seed))
                train(training)
                yield f"{architecture}, {granularity}", Path(training.output_dir) / "model"


def training_config(config: EvaluateVCMRConfig, architecture: str | None = None) -> VCMRConfig:
    """How `vcmr.py` trains an architecture; the data that only its files name are also those to measure on."""
    files = []
    for file in config.vcmr_config or []:
        alone = parse_config(VCMRConfig, None, [file])
        if "model" not in given_in(alone) or alone.model == architecture:
            files.append(file)
    training = parse_config(VCMRConfig, None, files)
    data = MomentDataConfig.__dataclass_fields__
    adopt(config, [training], data)
    override(training, config, [*data, "device"])
    return training


def model_label(folder: Path) -> str:
    """Architecture and training captions from the results beside a model, or the name of its folder."""
    results = folder.parent / "results.json"
    if folder.name != "model" or not results.is_file():
        return folder.name
    trained = read_json(results, config=dict)["config"]
    return f"{trained.get('model')}, {trained.get('granularity')}"


def load_vcmr_model(folder: Path) -> MomentRetrievalModel:
    """A model that finds moments, in evaluation mode."""
    check_model_folder(str(folder))
    disable_progress_bar()
    model = open_whole(AutoModel, folder)
    if not isinstance(model, MomentRetrievalModel):
        raise SystemExit(f"{folder} holds a {type(model).__name__}, not a model that finds moments")
    model.eval()
    return model


def evaluate_moments(
    model: MomentRetrievalModel,
    config: EvaluateVCMRConfig,
    split: MomentSplit,
    submission: Path,
    measure: MomentRetrievalMeasure,
    calibration: MomentSplit | None = None,
) -> MomentEvaluation:
    """Rank, suppress, measure, and write the predictions of one model."""
    encoded = encode_split(model, split, batch_size=config.batch_size)
    rankings = rank_encoded(model, split, encoded)
    kept = rankings.suppressed(split.preset.nms_threshold, legacy_truncate=config.legacy_truncate)
    write_submission(submission, kept, split)
    threshold = {}
    if calibration is not None:
        threshold = measure_without_moment(model, config, split, calibration, encoded, measure)
    without_nms, metrics = measure(rankings, split), measure(kept, split)
    per_query, videos = measure.per_query, split.targets.tolist()
    return MomentEvaluation(metrics, without_nms, split.coverage, threshold, per_query, videos)


def open_split(
    config: EvaluateVCMRConfig, model: MomentRetrievalModel, granularity: Granularity, name: str
) -> MomentSplit:
    """A split with queries of this granularity, if this model can read it."""
    split = load_moments(config, name, granularity=granularity, long_videos=model.config.long_videos)
    sizes = (model.config.video_feature_size, model.config.query_feature_size)
    if split.feature_sizes != sizes:
        raise SystemExit(
            f"the features of {config.features} have sizes {split.feature_sizes} (clips, tokens), the model reads "
            f"{sizes}: give the features that it was trained on"
        )
    if split.num_clips.max() > model.config.max_video_clips:
        raise SystemExit(
            f"videos have up to {split.num_clips.max()} clips and the model reads {model.config.max_video_clips}: "
            f"--max_video_clips {model.config.max_video_clips} fits them"
        )
    split.count_long_queries(model.config.max_query_tokens)
    return split


def run(config: EvaluateVCMRConfig) -> dict[str, dict[str, float]]:
    """Measure and write everything; returns the metrics by system."""
    training_config(config)
    config = with_split(config)
    if config.without_moment:
        config = with_split(config, "calibration_split", ("validation", "train"))
    assert config.split is not None
    if config.two_step:
        make_features(config, config.device, config.num_workers)
        return two_step(config, list(trained_models(config)))
    output_dir = Path(config.output_dir)
    evaluations: dict[str, list[MomentEvaluation]] = {}
    measure = MomentRetrievalMeasure()
    make_features(config, config.device, config.num_workers)
    for trained, folder in trained_models(config):
        accelerator = make_accelerator(config.device, output_dir)
        model = load_vcmr_model(folder).to(accelerator.device)
        for granularity in config.queries:
            split, name = open_split(config, model, granularity, config.split), f"{trained} -> {granularity}"
            other = None
            if config.without_moment:
                assert config.calibration_split is not None  # `with_split` filled it
                other = open_split(config, model, granularity, config.calibration_split)
            several = evaluations.setdefault(name, [])
            place = output_dir / "submissions" / name.replace(", ", "-").replace(" -> ", "-to-")
            if accelerator.is_main_process:
                several.append(evaluate_moments(model, config, split, place / f"{len(several)}.json", measure, other))
    return finish(config, evaluations, measure) if processes().is_main_process else {}


def two_step(config: EvaluateVCMRConfig, models: list[tuple[str, Path]]) -> dict[str, dict[str, float]]:
    """Measure a search in two steps on an index of windows, write and show it; returns the metrics by system."""
    from subtle.evaluate.search_steps import IOU, SEARCH_METRICS, K, SearchQueries, added, some
    from subtle.footage.options import TwoStepConfig
    from subtle.footage.second_step import SecondStep

    output_dir, queried = Path(config.output_dir), config.queries[0]
    opened, encoder, root = index_of_windows(config)
    assert config.split is not None  # `with_split` filled it
    rows = read_moment_rows(config, config.split, queried).to_dicts()
    queries = SearchQueries(
        opened, opened.active, encoder, some(rows, config.max_queries, config.seed), shortlist=config.shortlist
    )
    by_seed = {"vectors": [queries.measure(queries.shortlists, queries.seconds)]}

    def measured(name: str, shortlist: int, found: list[Any], **models: Any) -> list[Any]:
        made = SecondStep(TwoStepConfig(**models), output_dir / "search_cache", config.device, root)
        step = queries.after(lambda text, before: made(text, None, before[:shortlist], skip), found, name)
        by_seed.setdefault(name, []).append(queries.measure(*step))
        return step[0]

    for matcher in config.matchers:
        measured("vectors + matcher", config.rerank_shortlist, queries.shortlists, rerank=matcher)
    for trained, folder in models:
        name = f"vectors + {trained}"
        refined = measured(name, config.shortlist, queries.shortlists, refine=str(folder))
        if config.matchers:
            matcher = config.matchers[(len(by_seed[name]) - 1) % len(config.matchers)]
            measured(f"{name} + matcher", config.rerank_shortlist, refined, rerank=matcher)
    results = {name: summarize(several) for name, several in by_seed.items()}
    write_results(
        output_dir,
        results,
        config=config,
        seed=config.seed,
        by_seed=by_seed,
        added_to_vectors=added(results, "vectors"),
        coverage={"queries": len(rows), "queries_used": len(queries.rows)},
        models=[str(folder) for _, folder in models],
    )
    figures = {name: [in_percent(values, metric) for metric in SEARCH_METRICS] for name, values in results.items()}
    cells = [[name, *figures[name], f"{values['seconds']:.3f}"] for name, values in results.items()]
    error = max(values[f"{metric}_error"] for values in results.values() for metric in SEARCH_METRICS)
    title = (
        f"VCMR recall in %, {config.split}, {len(queries.rows)} queries ({queried}), mean ± standard deviation over "
        f"seeds; another set of as many queries moves a figure by up to {100 * error:.1f} (its standard error)"
    )
    show(["search", *(f"R@{k} IoU {iou}" for iou in IOU for k in K), "s/query"], cells, title)
    return results


def skip(message: str) -> None:
    """Leave out what a search says beside its result; of a measurement it would come with every query."""


def index_of_windows(config: EvaluateVCMRConfig) -> tuple[Any, Any, str]:
    """An index of the split's videos cut into windows, its encoder, and the folder of the videos."""
    from hf_datasets.footage.moments import Windows
    from hf_models.index.store import MomentIndex
    from subtle.footage.index import run as make_index
    from subtle.footage.models import load_again
    from subtle.footage.options import IndexConfig

    videos = [row for row in open_dataset(config, config.split, part="-videos") if row["video"]]
    if not videos:
        raise SystemExit(f"no video of {config.dataset!r}, {config.split!r}, is there; --two_step reads them")
    windows = Windows(config.window_seconds, config.window_seconds / 2)
    table = pl.DataFrame(
        [
            {"video": Path(row["video"]).name, "start_seconds": start, "end_seconds": end}
            for row in videos
            for start, end in windows.spans(row["duration_seconds"])
        ]
    )
    output_dir, root = Path(config.output_dir), str(Path(videos[0]["video"]).parent)
    output_dir.mkdir(parents=True, exist_ok=True)
    table.write_csv(output_dir / "windows.csv")
    make_index(
        IndexConfig(
            source=str(output_dir / "windows.csv"),
            video_dir=root,
            output=str(output_dir / "index"),
            model=config.index_model,
            device=config.device,
        )
    )
    opened = MomentIndex(output_dir / "index")
    opened.activate(config.index_model)
    return opened, load_again(opened.active, config.device), root


def finish(
    config: EvaluateVCMRConfig, evaluations: dict[str, list[MomentEvaluation]], measure: MomentRetrievalMeasure
) -> dict[str, dict[str, float]]:
    results = {name: summarize([evaluation.metrics for evaluation in several]) for name, several in evaluations.items()}
    intervals = intervals_of(evaluations)
    extra = {}
    if config.without_moment:
        thresholds = {name: [one.without_moment for one in several] for name, several in evaluations.items()}
        extra["without_moment"] = {name: summarize(several) for name, several in thresholds.items()}
    write_results(
        Path(config.output_dir),
        results,
        config=config,
        seed=config.seed,
        figures_without_nms={
            name: summarize([evaluation.without_nms for evaluation in several]) for name, several in evaluations.items()
        },
        by_seed={name: [evaluation.metrics for evaluation in several] for name, several in evaluations.items()},
        coverage={name: several[0].coverage for name, several in evaluations.items()},
        signature=measure.signature,
        **{
            kind: {name: {m: asdict(i) for m, i in of.items()} for name, of in systems.items()}
            for kind, systems in intervals.items()
        },
        **extra,
    )
    first = next(iter(evaluations.values()))[0]
    show_recall(results, intervals["intervals"], first.coverage, measure.signature)
    for part, figures in extra.items():
        show_figures(part, figures)
    return results


def intervals_of(systems: Mapping[str, Sequence[MomentEvaluation]]) -> dict[str, dict[str, dict[str, Interval]]]:
    """Intervals of each system, and of its difference to the first one that was asked the same queries.

    Args:
        systems: "xml, fine -> fine" (trained on -> queried with) -> its results, one for each seed.

    Returns:
        `intervals`: system -> metric -> interval, and `differences`: "SYSTEM, less FIRST" -> the same, for systems with
        as many seeds as the first one.
    """
    found: dict[str, dict[str, dict[str, Interval]]] = {"intervals": {}, "differences": {}}
    firsts: dict[str, str] = {}
    metrics = [metric for names in RECALLS.values() for metric in names]
    for name, several in systems.items():
        first = firsts.setdefault(name.rpartition(" -> ")[2], name)
        own, other = (
            {metric: np.array([one.per_query[metric] for one in systems[system]]) for metric in metrics}
            for system in (name, first)
        )
        videos = several[0].videos
        found["intervals"][name] = {metric: interval_of_mean(own[metric], videos, share=True) for metric in metrics}
        if name != first and len(several) == len(systems[first]):
            found["differences"][f"{name}, less {first}"] = {
                metric: interval_of_mean(own[metric] - other[metric], videos) for metric in metrics
            }
    return found


def show_recall(
    results: Mapping[str, dict[str, float]],
    intervals: Mapping[str, Mapping[str, Interval]],
    coverage: Mapping[str, Any],
    signature: str,
) -> None:
    head = [f"R@{k} IoU {iou}" for iou in RECALL_IOU for k in RECALL_AT]
    cells = []
    for name, values in results.items():
        for task, metrics in RECALLS.items():
            shown = [
                f"{in_percent(values, metric)} {intervals[name][metric].bounds_in_percent(1)}" for metric in metrics
            ]
            cells.append([f"{name}, {task}", *shown, *[""] * (len(head) - len(shown))])
    show(["trained on -> queried with", *head], cells, "Recall, %")
    print(
        f"coverage: {coverage['queries_used']:,} of {coverage['queries']:,} queries, {coverage['videos_used']:,} of "
        f"{coverage['videos']:,} videos; mean ± standard deviation over seeds, [95 % interval over videos and seeds]\n"
        f"{signature}"
    )


def main(config: EvaluateVCMRConfig) -> None:
    run(config)
