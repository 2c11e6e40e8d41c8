"""Measure models on our benchmarks as tasks of mteb 2, with a query's own clip left out and with it kept.

    python recipes/evaluate_mteb.py
    python recipes/evaluate_mteb.py --tasks ActivityNetComp DiDeMoFIGMoments --models recipes/weights/miniature-vidclip
    python recipes/evaluate_mteb.py --tasks ComposedBenchmark --data_dir covr-r --models recipes/weights/miniature-clip

Needs the extra `mteb`: `pip install "subtle-video[mteb]"`. A model is a folder of ours (TF-CoVR; VidCLIP or an image
model such as CLIP, whose mean of clip and text is a composed query), a folder of sentence-transformers, or a name that
mteb knows. `random` is chance; `text-only` and `video-only` are the first of our models with half of each composed
query. Tasks: TFCoVR, ComposedBenchmark (any composed benchmark in mteb's layout, from `--data_dir`), ActivityNetComp,
YouCook2Comp, and CharadesFIG, DiDeMoFIG and ActivityNetFIG with Videos or Moments at the end. They are on the miniature
unless `--dataset_config` says otherwise. Published results of composed retrieval leave the query's own clip out of its
ranking (TF-CoVR) or keep it (mteb's other tasks), rarely say so, and cannot be compared; this reports both.

It writes to `OUTPUT_DIR`:

    results.json  `figures`: model -> {"TFCoVRMini/map_at_50_own_clip_left_out": ..., ...} in [0, 1]; `revisions` of the
                  data of each task and of each model, configuration, versions
    mteb/         mteb's own result of each model and task; what is there is not measured again, unless the model's
                  weights or the task's rows have changed
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.config import option, parse_config, run_recipe
from harness.model_folders import check_model_folder
from harness.shared_config import Device


@dataclass
class EvaluateMTEBConfig:
    """Which models to measure, and on which tasks."""

    models: list[str] = option(["outputs/stage2/model"], "Model folders, or names that mteb knows.")
    baselines: list[Literal["none", "random", "text-only", "video-only"]] = option(
        ["random", "text-only", "video-only"], "Baselines to measure beside them; none: no baseline."
    )
    tasks: list[str] = option(["TFCoVR"], "Tasks, by name.")
    dataset: str | None = option(
        None,
        "Folder, or repository on the Hub, of the tasks' dataset; none: the datasets that the tasks are named after.",
    )
    dataset_config: str | None = option(
        None, "Configuration of the tasks' datasets: mini, release, source or own; none: mini, of a folder composed."
    )
    data_dir: str | None = option(None, "Folder of the annotations; none where they need none, as the miniature.")
    video_dir: str | None = option(None, "Folder of the videos; none where the dataset knows its own.")
    split: str | None = option(None, "Split to measure on; none: test, or where there is none validation.")
    as_sentence_transformer: bool = option(False, "Load every folder with sentence-transformers, also models of ours.")
    trust_remote_code: bool = option(False, "Let a folder of sentence-transformers run the code that it holds.")
    num_frames: int | None = option(
        12, "Frames that mteb gives a model of sentence-transformers; none: all, of which its processor takes some."
    )
    batch_size: int = option(16, "Videos or texts per forward pass.")
    num_workers: int = option(
        2, "Processes that decode videos; 0: this one decodes, and a video that hangs hangs the run."
    )
    device: Device = option("auto", "Where to compute; auto: on the GPU where there is one.")
    output_dir: str = option("outputs/evaluate_mteb", "Folder for results.json and mteb's results.")
    seed: int = option(0, "Seed of the random baseline.")


if __name__ == "__main__":  # before the imports below, which take seconds
    CONFIG = parse_config(EvaluateMTEBConfig, __doc__)

try:
    import mteb
except ImportError as error:
    raise SystemExit("mteb: not installed; run: pip install 'subtle-video[mteb]'") from error
from mteb.models import ModelMeta
from mteb.models.model_implementations import MODEL_REGISTRY
from mteb.results import TaskResult
from rich.console import Console
from rich.table import Table
from transformers import AutoConfig

from harness.accelerator import make_accelerator
from harness.config import nearest
from harness.results import replacing, write_json, write_results
from hf_models.encoders import ENCODERS, load_encoder, short_name
from hf_models.fingerprints import weights_fingerprint
from hf_models.tfcovr.configuration_tfcovr import COMPOSED_MODEL_TYPES
from mteb_tasks import TASKS, ComposedRetrieval
from mteb_tasks.composed import CUTS, KEPT, LEFT_OUT
from mteb_tasks.encoders import AverageEncoder, ComposedEncoder, RandomEncoder, digest_of, load_composed

AVERAGED = sorted(ENCODERS.keys() - {"xclip", "pe_video", "vjepa2"})  # whose similarities are dot products
HALVES = {"text-only": "text", "video-only": "video"}
SHOWN = ("recall_at_1", "recall_at_5", "recall_at_10", "ndcg_at_10", "comprehensive_accuracy", "max_ap")


def load_model(name: str, config: EvaluateMTEBConfig, device: Any) -> Any:
    """A model of ours, of sentence-transformers, or what mteb needs to load one that it knows."""
    if name in MODEL_REGISTRY and not Path(name).exists():
        return mteb.get_model_meta(name)
    if (Path(name) / "modules.json").is_file() and (
        config.as_sentence_transformer or model_type(name) not in {*COMPOSED_MODEL_TYPES, *AVERAGED}
    ):
        return load_sentence_transformer(name, config, device)
    check_model_folder(name)
    options = {"num_workers": config.num_workers}
    kind = model_type(name)
    if kind in COMPOSED_MODEL_TYPES:
        return load_composed(name, short_name(name), device=device, **options)
    if kind in AVERAGED:
        return AverageEncoder(load_encoder(name, device), short_name(name), **options)
    raise SystemExit(
        f"{name} is a {kind!r} model; give a folder of {', '.join([*COMPOSED_MODEL_TYPES, *AVERAGED])}, one of "
        f"sentence-transformers (with modules.json), or a name that mteb knows{nearest(name, MODEL_REGISTRY)}"
    )


def model_type(folder: str) -> str | None:
    """What a folder or a name on the Hub is in transformers, None where it has no configuration."""
    if Path(folder).is_dir() and not (Path(folder) / "config.json").is_file():
        return None
    kind: str = AutoConfig.from_pretrained(folder).model_type
    return kind


def load_sentence_transformer(folder: str, config: EvaluateMTEBConfig, device: Any) -> Any:
    """A model of sentence-transformers as mteb wraps it, with a hash of its weights as revision."""
    from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device=str(device), trust_remote_code=config.trust_remote_code)
    wrapped = SentenceTransformerEncoderWrapper(model, num_frames=config.num_frames)
    own = {
        "name": f"sentence-transformers/{short_name(folder)}",
        "revision": digest_of(weights_fingerprint(model), str(config.num_frames)),
        # mteb takes every such model for one of texts, and gives it these columns only.
        "modalities": [kind for kind in ("text", "image", "audio", "video") if model.supports(kind)],
    }
    wrapped.mteb_model_meta = wrapped.mteb_model_meta.model_copy(update=own)
    return wrapped


def systems(config: EvaluateMTEBConfig, device: Any) -> dict[str, Any]:
    """Models and baselines by the name of their row."""
    found: dict[str, Any] = {}
    for name in config.models:
        short = short_name(name)
        found[name if short in found else short] = load_model(name, config, device)
    ours = next((model for model in found.values() if isinstance(model, (ComposedEncoder, AverageEncoder))), None)
    for baseline in config.baselines:
        options = {"num_workers": config.num_workers, "parts": HALVES.get(baseline, "both")}
        options |= {"known": ours.known} if ours is not None else {}
        if baseline == "random":
            found[baseline] = RandomEncoder(seed=config.seed)
        elif baseline in HALVES and isinstance(ours, ComposedEncoder):
            found[baseline] = ComposedEncoder(ours.model, ours.processor, baseline, **options)
        elif baseline in HALVES and ours is not None:
            found[baseline] = AverageEncoder(ours.encoder, baseline, **options)
    return found


def open_task(name: str, config: EvaluateMTEBConfig) -> Any:
    """A task with its data."""
    if name not in TASKS:
        raise SystemExit(f"there is no task {name!r}; there are {', '.join(TASKS)}{nearest(name, TASKS)}")
    options = {"dataset_config": config.dataset_config} if config.dataset_config else {}
    given = {"data_dir": config.data_dir, "video_dir": config.video_dir, "dataset": config.dataset}
    task = TASKS[name](split=config.split, **given, **options)
    task.load_data()
    return task


def result_of(model: Any, task: Any, config: EvaluateMTEBConfig) -> dict[str, Any]:
    """The scores of a model on a task: those that are there, or else measured now."""
    meta = meta_of(model)
    folder = Path(config.output_dir, "mteb", "results", meta.name.replace("/", "__").replace(" ", "_"))
    other = "" if task.split == "test" else f"-{task.split}"
    path = folder / str(meta.revision) / f"{task.metadata.name}{other}.json"
    known = TaskResult.from_disk(path) if path.is_file() else None  # written whole, so what is there can be read
    if known is None or known.dataset_revision != task.metadata.dataset["revision"] or task.split not in known.scores:
        if meta.modalities and "video" not in meta.modalities:
            raise SystemExit(f"{meta.name} reads {', '.join(meta.modalities)}, not video; name a model of videos")
        kwargs = {"batch_size": config.batch_size, "show_progress_bar": False}
        done = mteb.evaluate(model, task, cache=None, encode_kwargs=kwargs, co2_tracker=False, show_progress_bar=False)
        with replacing(path) as draft:
            done.task_results[0].to_disk(draft)
        write_json(path.with_name("model_meta.json"), meta.to_dict())
        known = TaskResult.from_disk(path)
    (scores,) = known.scores[task.split]
    return {
        name: value
        for name, value in scores.items()
        if isinstance(value, float) and math.isfinite(value) and not name.startswith("nauc")
    }


def meta_of(model: Any) -> ModelMeta:
    return model if isinstance(model, ModelMeta) else model.mteb_model_meta


def table_of(task: Any, results: dict[str, dict[str, Any]]) -> Table:
    """One task: composed retrieval with two lines per model, the query's own clip left out and kept."""
    if not isinstance(task, ComposedRetrieval):
        shown = [name for name in SHOWN if any(name in scores for scores in results.values())]
        made = Table("model", *shown, title=f"{task.metadata.name}, %", title_justify="left")
        for name, scores in results.items():
            made.add_row(name, *(percent(scores.get(column)) for column in shown))
        return made
    columns = [f"map_at_{k}" for k in CUTS if k > 1] + ["recall_at_1", "recall_at_10"]
    titles = [name.replace("map_at_", "mAP@").replace("recall_at_", "R@") for name in columns]
    heads = ("model", "query's own clip", *titles, "own clip first")
    made = Table(*heads, title=f"{task.metadata.name}, %", title_justify="left")
    for name, scores in results.items():
        for how, text in ((LEFT_OUT, "left out"), (KEPT, "kept")):
            first = percent(scores.get("own_clip_ranked_first")) if how == KEPT else ""
            made.add_row(
                name if how == LEFT_OUT else "", text, *(percent(scores[f"{c}_{how}"]) for c in columns), first
            )
    return made


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}"


def run(config: EvaluateMTEBConfig) -> dict[str, dict[str, float]]:
    """Measure all models on all tasks and write everything; returns the scores by model."""
    if "none" in config.baselines:
        config.baselines = []
    output_dir = Path(config.output_dir)
    device = make_accelerator(config.device, output_dir).device
    tasks = [open_task(name, config) for name in config.tasks]
    models = systems(config, device)
    figures: dict[str, dict[str, float]] = {name: {} for name in models}
    console = Console(width=140)
    for task in tasks:
        results = {}
        for name, model in models.items():
            if name in HALVES and not isinstance(task, ComposedRetrieval):
                continue
            results[name] = result_of(model, task, config)
            figures[name] |= {f"{task.metadata.name}/{score}": value for score, value in results[name].items()}
        console.print(table_of(task, results))
    revisions = {task.metadata.name: task.metadata.dataset["revision"] for task in tasks}
    revisions |= {name: meta_of(model).revision for name, model in models.items()}
    details = {"revisions": revisions, "splits": {task.metadata.name: task.split for task in tasks}}
    write_results(output_dir, figures, config=config, seed=config.seed, mteb=mteb.__version__, **details)
    return figures


def main(config: EvaluateMTEBConfig) -> None:
    run(config)


if __name__ == "__main__":
    sys.exit(run_recipe(main, CONFIG))
