"""Prepare a model or an adapter for the Hub: weights, code, processor, cleaned results, card, curve, results."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Literal

from safetensors import SafetensorError, safe_open

import hf_models
from hf_datasets.drafts import draft_of, write_json
from hf_models.cards import CURVE_FILE, draw_training_curve, write_benchmark_results, write_card
from subtle.fig.data import FEATURES_FILE
from subtle.hub.machine_paths import SHIPPED, without_paths
from subtle.hub.model_card import card_body, card_data
from subtle.hub.model_kinds import AIM
from subtle.hub.publication import Publication, check_repo_id
from subtle.hub.runs import Run, SavedPart, benchmark_results, find_run
from subtle.run.model_folders import WEIGHTS
from subtle.run.results import read_json

PICKLED = frozenset({".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".npy", ".npz", ".h5", ".msgpack"})
"""Files that run code when they are loaded, or hold weights that nothing here reads."""
PUBLISHED = frozenset({".json", ".safetensors", ".py", ".txt", ".model", ".jinja"})
OF_THE_RUN = frozenset({"README.md", "results.json", "run.json", "run.lock", "best.safetensors", CURVE_FILE})
"""Files of a run that are not the model, or that are written again."""
SKIPPED_FOLDERS = frozenset({"checkpoints", "__pycache__"})
FROM_THIS_MACHINE = ("name_or_path", "_name_or_path", "is_local", "local_files_only")
"""Keys that transformers leaves in configurations of what was loaded from a folder."""


def prepare_model(
    source: str,
    repo_id: str,
    folder: Path,
    *,
    base_repo: str | None = None,
    part: SavedPart | Literal["classifier"] | None = None,
    license: str | None = None,
) -> Publication:
    """Write a folder that is complete for the Hub.

    Args:
        source: A name in `recipes/weights`; the folder that a recipe wrote, which means its `model`; or the `model` or
            `adapter` in it. A `README.md` beside the weights becomes the card's body, its YAML header comes first.
        repo_id: `ORG/NAME`. Datasets, metrics and weights that ship here are taken to be in the same ORG.
        folder: A folder that does not exist yet, or is empty.
        base_repo: Id on the Hub of the model that this one started from; by default as the run says.
        part: Which of the two to take of a run that has both; "classifier": the adapter of AIM, as the classifier that
            it makes of its base; None: the model.
        license: As the Hub calls it; None: as the card says, apache-2.0 where all comes from the miniature.

    Returns:
        The publication.

    Raises:
        ValueError: The source is not a finished run, or holds what must not be published; the message has the cure.
        OSError: The folder has files, or cannot be written.
    """
    for name in filter(None, (repo_id, base_repo)):
        check_repo_id(name)
    run, folder = find_run(str(source), "adapter" if part == "classifier" else part), Path(folder)
    if folder.is_dir() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; name another folder, or remove this one")
    namespace, _, name = repo_id.partition("/")
    bases = run.base_models(namespace, base_repo)
    if part == "classifier":
        adapter = [f"{namespace}/{shipped[1]}"] if (shipped := SHIPPED.fullmatch(str(run.model))) else []
        bases = [*adapter, *bases]
        header = {name: value for name, value in run.header.items() if name == "license"}
        run = replace(run, kind=AIM, text="", header=header)
    base = base_of_adapter(run, bases) if run.kind.is_adapter else None
    dataset, measurements = run.dataset(namespace), run.measurements(namespace)
    license_id = license or license_of(run)
    with draft_of(folder) as draft:
        if part == "classifier":
            save_merged(run, draft)
        else:
            copy_model(run.model, draft)
            add_code(run, draft)
        if base:
            name_base(draft, base)
        forget_machine(draft)
        for place, results in {"": run.results, **run.evaluations}.items():
            cleaned = without_paths(results, shipped=lambda shipped: f"{namespace}/{shipped}")
            write_json(draft / place / "results.json", cleaned)
        draw_training_curve(run.results.get("history", []), draft / CURVE_FILE)
        address = f"https://huggingface.co/{repo_id}/tree/main"
        write_benchmark_results(draft, benchmark_results(measurements, namespace), source=address)
        data = card_data(run, draft, name, measurements, bases=bases, dataset=dataset, license_id=license_id)
        write_card(draft, data, card_body(run, draft, repo_id, measurements, base=base))
    named = [*bases, *([dataset] if dataset else []), *(one.metric_id for one in measurements)]
    needs = tuple(dict.fromkeys(one for one in named if one.startswith(f"{namespace}/") and one != repo_id))
    return Publication("model", repo_id, folder, needs)


def base_of_adapter(run: Run, bases: list[str]) -> str:
    """The id of the model that an adapter is put on.

    Raises:
        ValueError: The run knows none on the Hub.
    """
    if bases:
        return bases[0]
    known = " or ".join(str(run.config.get(name)) for name in run.kind.bases)
    raise ValueError(
        f"{run.model} is an adapter of {known}, which is not on the Hub; publish that model first and give its "
        "id, ORG/NAME, as the base"
    )


def license_of(run: Run) -> str:
    """The license that the card's header names, or that of the weights that ship here.

    Raises:
        ValueError: Nobody named one, and others' weights or data have a part in the model.
    """
    named = run.header.get("license") or ("apache-2.0" if run.is_miniature else None)
    if named:
        return str(named)
    raise ValueError(
        f"{run.model} was trained on weights or data of others, so only you can say under which license it may be "
        "published; name it with --license, such as --license cc-by-4.0"
    )


def copy_model(model: Path, draft: Path) -> None:
    """Copy weights, configurations, code, processor and tokenizer.

    Raises:
        ValueError: A file may be a pickle, or is no file of a model, or the weights cannot be read.
    """
    names = []
    for path in sorted(path for path in model.rglob("*") if path.is_file()):
        name = path.relative_to(model)
        if name.name in OF_THE_RUN or any(part.startswith(".") or part in SKIPPED_FOLDERS for part in name.parts):
            continue
        if path.suffix in PICKLED:
            raise ValueError(
                f"{path} may hold a pickle, which runs code when it is loaded, so it is not published; save the model "
                "again with `save_pretrained`, which writes model.safetensors, and remove the file"
            )
        if path.suffix not in PUBLISHED:
            raise ValueError(f"{path} is not a file of a model; move it out of {model} first")
        if path.suffix == ".safetensors":
            check_weights(path)
        names.append(name)
    if not any(name.suffix == ".safetensors" for name in names):
        raise ValueError(f"{model} has no weights (*.safetensors); save the model again with `save_pretrained`")
    for name in names:
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(model / name, draft / name)


def check_weights(path: Path) -> None:
    """See that a file of weights is whole.

    Raises:
        ValueError: It is not.
    """
    try:
        with safe_open(path, "np") as weights:
            weights.keys()
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is not a whole safetensors file ({error}); train or save the model again") from error


def save_merged(run: Run, draft: Path) -> None:
    """Save the classifier that an adapter makes of its base, with its code and what prepares videos for it."""
    from transformers import AutoImageProcessor, CLIPVisionModel

    from hf_models.encoders.adapters import with_adapter
    from hf_models.tfcovr.merging_aim import to_aim

    named = str(run.config["base"])
    shipped = SHIPPED.fullmatch(named)
    base = str(WEIGHTS / shipped[1]) if shipped else named
    model = to_aim(with_adapter(CLIPVisionModel.from_pretrained(base), str(run.model)))
    model.save_pretrained(draft)
    images = AutoImageProcessor.from_pretrained(base)
    hf_models.AIMVideoProcessor.from_image_processor(images, num_frames=model.config.num_frames).save_pretrained(draft)


def add_code(run: Run, draft: Path) -> None:
    """Save a model of ours again, with its code and `auto_map`, where its folder lacks them."""
    if not run.kind.has_own_code or run.kind.library_name != "transformers" or has_code(draft):
        return
    from transformers import AutoProcessor
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    (architecture,) = read_json(run.model / "config.json")["architectures"]
    getattr(hf_models, architecture).from_pretrained(run.model).save_pretrained(draft)
    if any((run.model / name).is_file() for name in ("processor_config.json", "video_preprocessor_config.json")):
        AutoProcessor.from_pretrained(run.model).save_pretrained(draft)


def has_code(folder: Path) -> bool:
    """Whether a folder has the files of code that its configurations name, which those of our classes do."""
    named = [code for path in folder.glob("*config.json") for code in read_json(path).get("auto_map", {}).values()]
    return bool(named) and all(
        (folder / f"{name.rpartition('--')[2].partition('.')[0]}.py").is_file() for name in named
    )


def name_base(folder: Path, base: str) -> None:
    """Write the id of its base into an adapter's configuration, for `AutoPeftModel` and for whoever reads it."""
    path = next(folder / name for name in ("adapter_config.json", "config.json") if (folder / name).is_file())
    settings = read_json(path) | {"base_model_name_or_path": base}
    settings |= {"revision": None} if "revision" in settings else {}
    write_json(path, settings)  # in the order of the file, which is that of the labels


def forget_machine(draft: Path) -> None:
    """Remove what transformers notes in configurations of what was loaded from a folder."""
    for name in ("config.json", "tokenizer_config.json", "processor_config.json"):
        path = draft / name
        if path.is_file():
            settings = read_json(path)
            kept = {key: value for key, value in settings.items() if key not in FROM_THIS_MACHINE}
            if kept != settings:
                path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    features = draft / FEATURES_FILE
    if features.is_file():
        write_json(features, without_paths(read_json(features)))
