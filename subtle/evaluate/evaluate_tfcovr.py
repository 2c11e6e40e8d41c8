"""Measure composed retrieval by mAP@5/10/25/50: one model, several seeds, or all baselines."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl
import torch

from hf_datasets.drafts import replacing_files, writing
from hf_models import TFCoVRForComposedRetrieval, TFCoVRProcessor
from hf_models.tfcovr.queries import Queries, place_queries
from hf_models.tfcovr.ranking import rank_clips
from subtle.embedding import embed_clips
from subtle.evaluate.options import EvaluateConfig
from subtle.options import adopt, override, parse_config
from subtle.run.accelerator import make_accelerator
from subtle.run.data import load_split, with_split
from subtle.run.models import load_encoders, load_trained
from subtle.run.over_seeds import in_percent, summarize
from subtle.run.printing import show
from subtle.run.results import read_json, write_results
from subtle.run.shared_config import DataConfig, EmbedConfig, QueryParts
from subtle.run.training import INCIDENTAL
from subtle.tfcovr.batches import EmbeddingSource, embed_config
from subtle.tfcovr.measure import CUTOFFS, ComposedRetrievalMeasure, gallery_ids, held_out_groups
from subtle.tfcovr.systems import SYSTEMS, System
from subtle.train.options import Stage2Config
from subtle.train.stage2 import run as train


@dataclass(frozen=True)
class Prepared:
    """A system ready to be measured: its model and the embeddings it works on."""

    model: TFCoVRForComposedRetrieval
    processor: TFCoVRProcessor
    embeddings: EmbedConfig
    query: QueryParts = "both"
    query_frames: int | None = None


@dataclass(frozen=True)
class Evaluation:
    """One model's metrics, its rankings by query, their coverage, and the metrics of each group of queries."""

    metrics: dict[str, float]
    predictions: pl.DataFrame
    coverage: dict[str, int]
    signature: str
    by_group: dict[str, dict[str, float]] = field(default_factory=dict)


def prepared_systems(config: EvaluateConfig, base: Stage2Config | None) -> Iterator[tuple[str, Prepared]]:
    """Systems by name, one for each seed of a training like `base`, or for each model."""
    if base is None:
        for folder in config.models:
            model, processor = load_trained(folder)
            made_as = embed_config(config, config.embeddings, vision_model=folder, text_model=folder)
            yield config.name, Prepared(model, processor, made_as, config.query, config.query_frames)
        return
    unknown = set(config.systems) - {system.name for system in SYSTEMS}
    if unknown:
        raise SystemExit(
            f"there is no system {sorted(unknown)}; there are {', '.join(repr(system.name) for system in SYSTEMS)}"
        )
    for system in SYSTEMS:
        if system.name in config.systems:
            for seed in config.seeds[: 1 if system.zero_shot else None]:
                yield system.name, prepare_system(system, base, config.image_model, config.runs_dir, seed)


def base_training(config: EvaluateConfig) -> Stage2Config:
    """How the compared systems are trained; the data that only this names are also those to measure on."""
    made = Path(config.models[0]).parent / "results.json"
    shared = [*DataConfig.__dataclass_fields__, "embeddings", "cache_dir"]
    own = ["num_workers", "device"]
    if config.stage2_config or not made.is_file():
        base = parse_config(Stage2Config, None, [config.stage2_config] if config.stage2_config else [])
        override(base, config, [*own, "mixed_precision"])
    else:
        trained_as = read_json(made, config=dict)["config"]
        unknown = sorted(trained_as.keys() - asdict(Stage2Config()).keys())
        if unknown:
            raise SystemExit(
                f"{made} was not written by this version of stage2.py, which has no {', '.join(unknown)}; give the "
                "training configuration as --stage2_config"
            )
        base = Stage2Config(**trained_as | {"restart": False, **{name: getattr(config, name) for name in own}})
    adopt(config, [base], shared)
    override(base, config, shared)
    return base


def system_config(system: System, base: Stage2Config, image_model: str, runs_dir: str, seed: int) -> Stage2Config:
    """The training configuration of a system with one seed; that of `base` itself keeps its output folder."""
    trained_as = SYSTEMS[0].name if system.shuffle_frames else system.name
    changes: dict[str, Any] = {"query": system.query, "seed": seed}
    if system.image_model:
        assert system.embeddings is not None  # an image model has its own
        changes |= {"vision_model": image_model, "vision_model_class": system.vision_model_class, "model": "tfcovr"}
        changes["embeddings"] = str(Path(base.embeddings).parent / system.embeddings)
    if system.zero_shot:
        changes |= {"fusion": "average", "projection_dim": None}
    config = replace(base, **changes)
    if config != base:
        config.output_dir = str(Path(runs_dir) / trained_as.replace(" ", "-") / f"seed-{seed}")
    return config


def is_trained(config: Any, folder_flag: str) -> bool:
    """Whether the output folder holds the complete run of this configuration; another one there is refused.

    The flag is what names another folder.
    """
    results = Path(config.output_dir) / "results.json"
    if not results.is_file():
        return False
    # Whether stored embeddings are the model's own is checked when they are opened, wherever they are.
    ignored = {*INCIDENTAL, "embeddings"}
    wanted, found = asdict(config), read_json(results, config=dict)["config"]
    changed = sorted(name for name in (wanted | found).keys() - ignored if wanted.get(name) != found.get(name))
    if changed:
        raise SystemExit(
            f"{config.output_dir} holds a model that was trained with other {', '.join(changed)}; name another "
            f"{folder_flag}, or delete this folder"
        )
    return True


def prepare_system(system: System, base: Stage2Config, image_model: str, runs_dir: str, seed: int) -> Prepared:
    """A system with one seed; trained now if it has not been."""
    config = system_config(system, base, image_model, runs_dir, seed)
    folder = f"{config.embeddings}-shuffled" if system.shuffle_frames else config.embeddings
    made_as = embed_config(config, folder, shuffle_frames=system.shuffle_frames)
    if not system.zero_shot:
        return trained(config, made_as, "--runs_dir")
    model, processor = load_encoders(config, fusion="average")
    return Prepared(model.eval(), processor, made_as, config.query, config.query_frames)


def trained(config: Stage2Config, made_as: EmbedConfig, folder_flag: str) -> Prepared:
    """What a training gives, with these embeddings; trained now if it has not been."""
    if not is_trained(config, folder_flag):
        train(config)
    model, processor = load_trained(str(Path(config.output_dir) / "model"))
    return Prepared(model, processor, made_as, config.query, config.query_frames)


def standard(config: Any) -> EvaluateConfig:
    """What tables are measured by: the standard protocol on the data and the split of their configuration."""
    return EvaluateConfig(**{name: getattr(config, name) for name in ("split", *DataConfig.__dataclass_fields__)})


def evaluate_ranking(
    ready: Prepared,
    config: EvaluateConfig,
    device: torch.device,
    measure: ComposedRetrievalMeasure,
    groups: Mapping[str, str] | None = None,
) -> Evaluation:
    """Rank and measure one model; with the group of each query by its id also each group."""
    source = EmbeddingSource.open(
        ready.embeddings, ready.model, ready.processor, device, make=embed_clips.run, query_frames=ready.query_frames
    )
    assert config.split is not None  # `with_split` filled it
    queries = place_queries(load_split(config, config.split), gallery_ids(config), source.clips, source.texts)
    ranked, scores = rank_clips(
        ready.model.to(device),  # type: ignore[arg-type]  # a wrapped method, which its annotation does not bind
        queries,
        **source.embeddings(ready.model, queries),
        parts=ready.query,
        protocol=config.protocol,
    )
    measured = measure(ranked, queries, config.protocol)
    return Evaluation(
        metrics={name: value for name, value in measured.items() if name.startswith("map@")},
        predictions=predictions(queries, ranked, scores),
        coverage=queries.coverage,
        signature=measured["signature"],
        by_group=measure.by_group(ranked, queries, groups or {}, config.protocol),
    )


def predictions(queries: Queries, ranked: list[list[str]], scores: list[list[float]]) -> pl.DataFrame:
    """One row per ranked query, with the columns that the module lists."""
    return pl.DataFrame(queries.rows).with_columns(
        ranked_clip_ids=pl.Series(ranked, dtype=pl.List(pl.String)),
        scores=pl.Series(scores, dtype=pl.List(pl.Float64)),
    )


def show_results(results: dict[str, dict[str, float]], coverage: dict[str, int], signature: str) -> None:
    cells = [[name, *(in_percent(values, f"map@{k}", digits=2) for k in CUTOFFS)] for name, values in results.items()]
    show(["system", *(f"mAP@{k}" for k in CUTOFFS)], cells, "Composed retrieval, %")
    print(
        f"coverage: {coverage['queries_ranked']:,} of {coverage['queries']:,} queries, "
        f"{coverage['targets_in_gallery']:,} of {coverage['targets']:,} targets, "
        f"{coverage['gallery_clips_ranked']:,} of {coverage['gallery_clips']:,} gallery clips\n{signature}"
    )


def run(config: EvaluateConfig) -> dict[str, dict[str, float]]:
    """Measure and write everything; returns the metrics by system."""
    base = base_training(config) if config.compare else None
    config = with_split(config)
    output_dir = Path(config.output_dir)
    accelerator = make_accelerator(config.device, output_dir, mixed_precision=config.mixed_precision)
    measure = ComposedRetrievalMeasure()
    groups = held_out_groups(config, load_split(config, str(config.split)))
    evaluations: dict[str, list[Evaluation]] = {}
    for name, ready in prepared_systems(config, base):
        evaluations.setdefault(name, []).append(evaluate_ranking(ready, config, accelerator.device, measure, groups))
    results = {name: summarize([evaluation.metrics for evaluation in several]) for name, several in evaluations.items()}
    by_group = {
        name: {group: summarize([one.by_group[group] for one in several]) for group in several[0].by_group}
        for name, several in evaluations.items()
    }
    first = next(iter(evaluations.values()))[0]
    if accelerator.is_main_process:
        with replacing_files(output_dir) as draft:
            write_parquet(first.predictions, draft / "predictions.parquet")
            for name, several in evaluations.items():
                for number, evaluation in enumerate(several):
                    write_parquet(
                        evaluation.predictions, draft / "predictions" / name.replace(" ", "-") / f"{number}.parquet"
                    )
            write_results(
                draft,
                results,
                config=config,
                seed=config.seed,
                gallery_size=first.coverage["gallery_clips_ranked"],
                signature=first.signature,
                coverage={name: several[0].coverage for name, several in evaluations.items()},
                by_seed={name: [evaluation.metrics for evaluation in several] for name, several in evaluations.items()},
                **({"by_group": by_group} if groups else {}),
            )
        show_results(results, first.coverage, first.signature)
        if groups:
            last = f"map@{CUTOFFS[-1]}"
            head = [f"{group.replace('_', ' ')} ({values['queries']:,})" for group, values in first.by_group.items()]
            cells = [
                [name, *(in_percent(one, last, digits=2) for one in own.values())] for name, own in by_group.items()
            ]
            show(["system", *head], cells, "mAP@50 by whether the labels of query and target have training clips, %")
    return results


def write_parquet(table: pl.DataFrame, path: Path) -> None:
    """Write Parquet, and its folder where it is missing."""
    content = BytesIO()  # Polars' own error of a full disk is not an OSError
    table.write_parquet(content)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.getvalue())


def main(config: EvaluateConfig) -> None:
    run(config)
