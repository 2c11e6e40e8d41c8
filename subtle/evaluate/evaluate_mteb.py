"""Measure models on our benchmarks as tasks of mteb 2, with a query's own clip left out and with it kept."""

import math
from pathlib import Path
from typing import Any

from subtle.evaluate.options import EvaluateMTEBConfig
from subtle.run.model_folders import check_model_folder

try:
    import mteb
except ImportError as error:
    raise SystemExit("mteb: not installed; run: pip install 'subtle-video[mteb]'") from error
from mteb.models import ModelMeta
from mteb.models.model_implementations import MODEL_REGISTRY
from mteb.results import TaskResult
from mteb.types import EncodeKwargs
from transformers import AutoConfig

from hf_datasets.drafts import replacing, write_json
from hf_models.encoders import ENCODERS, load_encoder, short_name, short_names
from hf_models.fingerprints import key_of, weights_fingerprint
from subtle.mteb import TASKS, ComposedRetrieval
from subtle.mteb.composed import CUTS, KEPT, LEFT_OUT
from subtle.mteb.encoders import OurEncoder, RandomEncoder
from subtle.options import nearest
from subtle.run.accelerator import make_accelerator
from subtle.run.printing import percent, show
from subtle.run.results import write_results

MEASURED = [kind for kind in ENCODERS if kind not in {"aim", "xclip", "pe_video", "vjepa2"}]
"""What reads texts and compares by the cosine."""
HALVES = {"text-only": "text", "video-only": "video"}
SHOWN_SCORES = ("recall_at_1", "recall_at_5", "recall_at_10", "ndcg_at_10", "comprehensive_accuracy", "max_ap")


def load_mteb_model(name: str, config: EvaluateMTEBConfig, device: Any) -> Any:
    """A model of ours, of sentence-transformers, or what mteb needs to load one that it knows."""
    if name in MODEL_REGISTRY and not Path(name).exists():
        return mteb.get_model_meta(name)
    if (Path(name) / "modules.json").is_file() and (config.as_sentence_transformer or model_type(name) not in MEASURED):
        return wrap_sentence_transformer(name, config, device)
    check_model_folder(name)
    kind = model_type(name)
    if kind in MEASURED:
        return OurEncoder(load_encoder(name, device), short_name(name), num_workers=config.num_workers)
    raise SystemExit(
        f"{name} is a {kind!r} model; give a folder of {', '.join(MEASURED)}, one of "
        f"sentence-transformers (with modules.json), or a name that mteb knows{nearest(name, MODEL_REGISTRY)}"
    )


def model_type(folder: str) -> str | None:
    """What a folder or a name on the Hub is in transformers, None where it has no configuration."""
    if Path(folder).is_dir() and not (Path(folder) / "config.json").is_file():
        return None
    kind: str = AutoConfig.from_pretrained(folder).model_type
    return kind


def wrap_sentence_transformer(folder: str, config: EvaluateMTEBConfig, device: Any) -> Any:
    """A model of sentence-transformers as mteb wraps it, with a hash of its weights as revision."""
    from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device=str(device), trust_remote_code=config.trust_remote_code)
    wrapped = SentenceTransformerEncoderWrapper(model, num_frames=config.num_frames)
    own = {
        "name": f"sentence-transformers/{short_name(folder)}",
        "revision": key_of({"weights": weights_fingerprint(model), "frames": str(config.num_frames)}),
        # mteb takes every such model for one of texts, and gives it these columns only.
        "modalities": [kind for kind in ("text", "image", "audio", "video") if model.supports(kind)],
    }
    wrapped.mteb_model_meta = wrapped.mteb_model_meta.model_copy(update=own)
    return wrapped


def models_and_baselines(config: EvaluateMTEBConfig, device: Any) -> dict[str, Any]:
    """Models and baselines by the name of their row."""
    found = {name: load_mteb_model(model, config, device) for name, model in short_names(config.models).items()}
    ours = next((model for model in found.values() if isinstance(model, OurEncoder)), None)
    for baseline in config.baselines:
        options = {"num_workers": config.num_workers, "parts": HALVES.get(baseline, "both")}
        options |= {"known": ours.known} if ours is not None else {}
        if baseline == "random":
            found[baseline] = RandomEncoder(seed=config.seed)
        elif baseline in HALVES and ours is not None:
            found[baseline] = OurEncoder(ours.encoder, baseline, **options)
    return found


def open_task(name: str, config: EvaluateMTEBConfig) -> Any:
    if name not in TASKS:
        raise SystemExit(f"there is no task {name!r}; there are {', '.join(TASKS)}{nearest(name, TASKS)}")
    options = {"dataset_config": config.dataset_config} if config.dataset_config else {}
    given: dict[str, Any] = {"data_dir": config.data_dir, "video_dir": config.video_dir, "dataset": config.dataset}
    task = TASKS[name](split=config.split, **given, **options)
    task.load_data()
    return task


def task_scores(model: Any, task: Any, config: EvaluateMTEBConfig) -> dict[str, Any]:
    """The scores of a model on a task: those that are there, or else measured now."""
    meta: Any = meta_of(model)
    folder = Path(config.output_dir, "mteb", "results", meta.name.replace("/", "__").replace(" ", "_"))
    other = "" if task.split == "test" else f"-{task.split}"
    path = folder / str(meta.revision) / f"{task.metadata.name}{other}.json"
    known = TaskResult.from_disk(path) if path.is_file() else None  # written whole, so what is there can be read
    if known is None or known.dataset_revision != task.metadata.dataset["revision"] or task.split not in known.scores:
        if meta.modalities and "video" not in meta.modalities:
            raise SystemExit(f"{meta.name} reads {', '.join(meta.modalities)}, not video; name a model of videos")
        kwargs: EncodeKwargs = {"batch_size": config.batch_size, "show_progress_bar": False}
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


def show_task(task: Any, results: dict[str, dict[str, Any]]) -> None:
    """Print one task: composed retrieval with two lines per model, the query's own clip left out and kept."""
    title = f"{task.metadata.name}, %"
    if not isinstance(task, ComposedRetrieval):
        shown = [name for name in SHOWN_SCORES if any(name in scores for scores in results.values())]
        cells = [[name, *(percent(scores.get(column)) for column in shown)] for name, scores in results.items()]
        show(["model", *shown], cells, title)
        return
    columns = [f"map_at_{k}" for k in CUTS if k > 1] + ["recall_at_1", "recall_at_10"]
    titles = [name.replace("map_at_", "mAP@").replace("recall_at_", "R@") for name in columns]
    cells = [
        [
            f"{name}, own clip {text}",
            *(percent(scores[f"{column}_{how}"]) for column in columns),
            percent(scores.get("own_clip_ranked_first")) if how == KEPT else "",
        ]
        for name, scores in results.items()
        for how, text in ((LEFT_OUT, "left out"), (KEPT, "kept"))
    ]
    show(["model", *titles, "own clip first"], cells, title)


def run(config: EvaluateMTEBConfig) -> dict[str, dict[str, float]]:
    """Measure all models on all tasks and write everything; returns the scores by model."""
    if "none" in config.baselines:
        config.baselines = []
    output_dir = Path(config.output_dir)
    device = make_accelerator(config.device, output_dir).device
    tasks = [open_task(name, config) for name in config.tasks]
    models = models_and_baselines(config, device)
    figures: dict[str, dict[str, float]] = {name: {} for name in models}
    for task in tasks:
        results = {}
        for name, model in models.items():
            if name in HALVES and not isinstance(task, ComposedRetrieval):
                continue
            results[name] = task_scores(model, task, config)
            figures[name] |= {f"{task.metadata.name}/{score}": value for score, value in results[name].items()}
        show_task(task, results)
    revisions = {task.metadata.name: task.metadata.dataset["revision"] for task in tasks}
    revisions |= {name: meta_of(model).revision for name, model in models.items()}
    details = {"revisions": revisions, "splits": {task.metadata.name: task.split for task in tasks}}
    write_results(output_dir, figures, config=config, seed=config.seed, mteb=mteb.__version__, **details)
    return figures


def main(config: EvaluateMTEBConfig) -> None:
    run(config)
