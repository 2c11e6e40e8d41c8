"""A finished run as it is published: its model, what it measured, what it was trained on and started from."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_args

from hf_datasets.builders import RENDERED
from hf_datasets.long_videos import SPLITS
from hf_datasets.registry import task_id
from hf_models.cards import Measurement
from subtle.hub.machine_paths import SHIPPED
from subtle.hub.model_kinds import ADAPTERS, KINDS, ModelKind
from subtle.hub.publication import read_header_and_text
from subtle.run.model_folders import MINIATURE_AIM, WEIGHTS
from subtle.run.results import read_json
from subtle.run.shared_config import COMP_DATASETS, FIG_DATASETS, TFCOVR_DATASETS

SavedPart = Literal["model", "adapter"]
DATASETS = (*TFCOVR_DATASETS, *COMP_DATASETS, *FIG_DATASETS)
RESULT_PARTS = {"config": dict, "history": list, "versions": dict, "coverage": dict}
"""What recipes write into results.json beside the metrics."""
NEIGHBOR = re.compile(r"\.\./([\w.-]+)")
"""How the card of a folder in `recipes/weights` names another."""
HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
METRIC_NAMES = (
    ("map_at_k", re.compile(r"map@\d+")),
    ("vcmr_recall", re.compile(r"(?:vcmr|svmr|vr)_recall@.+")),
    ("comprehensive_accuracy", re.compile(r"comprehensive_accuracy|accuracy/.+")),
    ("counterfactual_accuracy", re.compile(r"(?:(?:text|video|group)_score|(?:classic|strict)_vle)(?:/.+)?")),
)
"""This project's metrics by the names of their values."""
BENCHMARK_METRICS = {"tfcovr": "map@50", "comp": "comprehensive_accuracy", "fig": "vr_recall@1"}
"""Last part of a dataset's name -> what its task on the Hub takes; the FIG sets' is the retrieval of videos."""
PEFT_TEMPLATE = "[More Information Needed]"
"""What the card has that PEFT writes beside adapters."""


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        model: the folder of its model or adapter.
        results: its `results.json`.
        kind: of the model.
        header, text: of a card that somebody wrote; empty where nobody did.
        evaluations: `results.json` of each evaluation of this model that stands beside it, by the name of its folder.
    """

    model: Path
    results: dict[str, Any]
    kind: ModelKind
    header: dict[str, Any]
    text: str
    evaluations: dict[str, dict[str, Any]]

    @property
    def config(self) -> dict[str, Any]:
        """The options of the run."""
        options: dict[str, Any] = self.results.get("config", {})
        return options

    @property
    def is_miniature(self) -> bool:
        """Whether all its data and weights come from the miniature."""
        data = str(self.config.get("dataset_config") or "mini")
        bases = [str(self.config.get(name) or "") for name in self.kind.bases]
        own = all(SHIPPED.fullmatch(base) or is_folder(base) for base in bases)
        return data.startswith(RENDERED) and own and not self.config.get("build")

    def base_models(self, namespace: str, base_repo: str | None) -> list[str]:
        """The ids on the Hub of what it started from, as far as it has any."""
        if base_repo:
            return [base_repo]
        named = self.header.get("base_model") or [self.config.get(name) for name in self.kind.bases]
        if "auto" in named:  # the adapters that ship, where they fit
            from subtle.tfcovr.classifiers import misfits_of_shipped  # torch comes with it

            options: Any = SimpleNamespace(**self.config)
            named = [*named, MINIATURE_AIM] if misfits_of_shipped(options) == [] else named
        found = []
        for name in [named] if isinstance(named, str) else named:
            if base := hub_id(name, namespace):
                found.append(base)
            elif (
                isinstance(name, str) and Path(name).is_dir() and (Path(name).parent / "results.json").is_file()
            ):  # another run's model
                found += find_run(name).base_models(namespace, None)
        return list(dict.fromkeys(found))

    def dataset(self, namespace: str) -> str | None:
        """The id on the Hub of the dataset, or None for data of one's own."""
        return dataset_id(self.config, namespace)

    def measurements(self, namespace: str) -> list[Measurement]:
        """Every fraction in its results and in those of its evaluations."""
        own = measurements(self.results, namespace, self.config.get("validation_split"))
        return own + [one for evaluation in self.evaluations.values() for one in of_evaluation(evaluation, namespace)]


def dataset_id(config: dict[str, Any], namespace: str) -> str | None:
    """The id on the Hub of the dataset that options name, or None for data of one's own."""
    name = config.get("dataset")
    if name in DATASETS:
        return None if config.get("dataset_config") == "own" else f"{namespace}/{name}"
    return hub_id(name, namespace)


def measurements(results: dict[str, Any], namespace: str, split: str | None) -> list[Measurement]:
    """Every fraction in results, on the dataset as it is called on the Hub; of `split` where no name says another."""
    config = results.get("config", {})
    dataset = dataset_id(config, namespace)
    found = []
    for name, value in flattened(results["figures"]):
        first, _, rest = name.partition("/")
        metric = rest if first in SPLITS else name
        own = next((own for own, pattern in METRIC_NAMES if pattern.fullmatch(metric)), None)
        found.append(
            Measurement(
                metric=metric,
                value=value,
                metric_id=f"{namespace}/{own}" if own else plain_id(metric),
                dataset=dataset,
                config=config.get("dataset_config") if dataset else None,
                split=results.get("measured_on") or (first if first in SPLITS else split),
                signature=signature_of(results, metric, own) if own else None,
                date=results.get("date"),
                revision=results.get("dataset_revision"),
            )
        )
    return found


def of_evaluation(results: dict[str, Any], namespace: str) -> list[Measurement]:
    """What an evaluation measured of its one model; with several kinds of queries, their names go to the metrics'."""
    systems, split = results["figures"], results["config"].get("split")
    found = []
    for system, figures in systems.items():
        queries = f" ({system.rpartition('-> ')[2]} queries)" if len(systems) > 1 else ""
        measured = measurements(results | {"figures": figures}, namespace, split)
        found += [replace(one, metric=f"{one.metric}{queries}") for one in measured]
    return found


def signature_of(results: dict[str, Any], metric: str, own: str) -> str | None:
    """The protocol's line as the metric gives it; of the three tasks of moments, results keep that of the last.

    Where results hold the lines of several metrics, it is those that begin with the name of the metric `own`.
    """
    signature: str | None = results.get("signature")
    lines = [line for line in (signature or "").split("; ") if line.startswith(f"{own}|")]
    signature = "; ".join(lines) or signature
    return re.sub(r"\|task:\w+", f"|task:{metric.partition('_')[0]}", signature) if signature else None


def benchmark_results(measured: list[Measurement], namespace: str) -> dict[str, Measurement]:
    """The value that each benchmark of this project takes of a model, by the id of its task.

    A benchmark is measured on the split that its paper reports on, by the standard protocol, with fine captions.
    """
    found = {}
    for one in measured:
        owner, _, name = (one.dataset or "").rpartition("/")
        metric, _, queries = one.metric.partition(" (")
        has_no_test = name in COMP_DATASETS and one.config == "release"
        split = "validation" if has_no_test else "test"
        if owner != namespace or name not in DATASETS or one.split != split or queries not in {"", "fine queries)"}:
            continue
        task = task_id(name, str(one.config))
        is_standard = "tfcovr-official" not in (one.signature or "")
        if task and metric == BENCHMARK_METRICS[name.rpartition("_")[2]] and is_standard:
            found[task] = one
    return found


def flattened(values: dict[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    """The fractions among nested values, by their names joined with `/`; counts are left out."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flattened(value, f"{above}{name}/")
        elif isinstance(value, float):
            yield f"{above}{name}", value


def plain_id(metric: str) -> str:
    """The plain word for a metric that is not of this project.

    >>> plain_id("t2v_recall@1"), plain_id("mean_class_accuracy"), plain_id("joints_r2")
    ('recall', 'accuracy', 'joints_r2')
    """
    return next((word for word in ("recall", "accuracy") if word in metric), metric)


def hub_id(name: str | None, namespace: str) -> str | None:
    """What a model or dataset of a run's options is called on the Hub, or None where it is a folder of this machine.

    >>> hub_id("recipes/weights/miniature-clip", "org"), hub_id("openai/clip-vit-base-patch16", "org")
    ('org/miniature-clip', 'openai/clip-vit-base-patch16')
    >>> hub_id("outputs/stage1/model", "org")
    """
    if not isinstance(name, str):
        return None
    shipped = SHIPPED.fullmatch(name) or NEIGHBOR.fullmatch(name)
    if shipped:
        return f"{namespace}/{shipped[1]}"
    return None if is_folder(name) else name


def is_folder(name: str) -> bool:
    """Whether a name is a folder's rather than one on the Hub."""
    return not HUB_ID.fullmatch(name) or name.startswith("outputs/") or Path(name).exists()


def find_run(source: str, part: SavedPart | None = None) -> Run:
    """The run that a name in `recipes/weights`, the folder of a run, or the `model` or `adapter` in it stands for.

    Raises:
        ValueError: It is none of these, or the run is not finished, or has no such part.
    """
    shipped = sorted(path.name for path in WEIGHTS.iterdir() if path.is_dir())
    folder = WEIGHTS / source if source in shipped else Path(source)
    if not folder.is_dir():
        raise ValueError(f"{source} is not a folder, and not among the weights that ship ({', '.join(shipped)})")
    run = folder if (folder / "results.json").is_file() or folder.name not in get_args(SavedPart) else folder.parent
    if not (run / "results.json").is_file():
        if (run / "run.json").is_file() or (run / "checkpoints").is_dir():
            raise ValueError(
                f"{run} holds a run that is not finished (there is no results.json in it); start its recipe again with "
                "the same options: it goes on from its last checkpoint"
            )
        raise ValueError(
            f"{source} has no results.json, from which a card is made; give the folder of a finished run, such as that "
            "of `python recipes/stage1.py`"
        )
    parts = [folder / name for name in (part or "model", "model")] if folder == run else []
    model = next((path for path in parts if path.is_dir()), folder)
    kind = model_kind(model)
    if part and (part == "adapter") != kind.is_adapter:
        raise ValueError(f"{model} holds no {part}; it holds {'an adapter' if kind.is_adapter else 'a model'}")
    evaluations = {} if model == run else find_evaluations(model)
    return Run(model, read_results(run / "results.json"), kind, *written_card(model), evaluations)


def find_evaluations(model: Path) -> dict[str, dict[str, Any]]:
    """The results in folders `evaluation...` beside a model, as `--output_dir RUN/evaluation` leaves them.

    Raises:
        ValueError: One is not of this model alone.
    """
    found = {}
    for path in sorted(model.parent.glob("evaluation*/results.json")):
        results = read_results(path)
        config = results.get("config", {})
        models = [str(name) for name in config.get("models", [])]
        is_own = len(models) == 1 and Path(models[0]).parts[-2:] == model.parts[-2:] and not config.get("compare")
        if not is_own or not all(isinstance(figures, dict) for figures in results["figures"].values()):
            raise ValueError(
                f"{path} measured {' and '.join(models)}, and not {model} alone; evaluate it with `--models {model} "
                f"--output_dir {path.parent}`, or move the folder elsewhere"
            )
        found[path.parent.name] = results
    return found


def read_results(path: Path) -> dict[str, Any]:
    """What a recipe wrote.

    Raises:
        ValueError: It is not what recipes write.
    """
    results = read_json(path)
    if not isinstance(results.get("figures"), dict):
        raise ValueError(f"{path} has no metrics under `figures`, as every recipe writes them")
    wrong = [name for name, kind in RESULT_PARTS.items() if name in results and not isinstance(results[name], kind)]
    if not all(isinstance(epoch, dict) for epoch in results.get("history", [])):
        wrong.append("history")
    if wrong:
        raise ValueError(f"{path} was not written by a recipe: its {' and '.join(wrong)} has another form")
    return results


def model_kind(model: Path) -> ModelKind:
    """What kind of model a folder holds.

    Raises:
        ValueError: None, or one that no recipe writes.
    """
    for name, key, kinds in (("adapter_config.json", "peft_type", ADAPTERS), ("config.json", "model_type", KINDS)):
        if (model / name).is_file():
            found = str(read_json(model / name).get(key)).partition(":")[0]
            if found not in kinds:
                raise ValueError(
                    f"{model} holds a {found!r} model, which no recipe writes; they write {', '.join(kinds)}"
                )
            return kinds[found]
    raise ValueError(f"{model} holds no model (there is no config.json in it); give the folder of a training run")


def written_card(model: Path) -> tuple[dict[str, Any], str]:
    """Header and text of a card that somebody wrote for a model; what PEFT writes by itself is none.

    Raises:
        ValueError: It cannot be read.
    """
    path = model / "README.md"
    if not path.is_file() or PEFT_TEMPLATE in path.read_text(encoding="utf-8"):
        return {}, ""
    return read_header_and_text(path)
