"""The card of a model folder: how to load it, what was measured, how it was trained, its limits."""

import re
from pathlib import Path
from string import Template
from typing import Any

from huggingface_hub import ModelCardData

from hf_models.cards import CURVE_FILE, Measurement, cell, eval_results, options_table, results_table
from subtle.hub.model_kinds import PROJECT, ModelKind
from subtle.hub.runs import Run
from subtle.run.results import read_json

PYTHON_BLOCK = re.compile(r"^```python\n.*?^```\n?", re.MULTILINE | re.DOTALL)
NEIGHBOR_LINK = re.compile(r"\]\(\.\./([\w.-]+)\)")
"""A link from one folder of `recipes/weights` to another."""
SENTENCE_TRANSFORMERS_FILE = "sentence_bert_config.json"
SENTENCE_TRANSFORMERS_MODULES = "modules.json"
PLAIN_METRICS = {"accuracy", "recall"}
"""Metrics of the Hub that are not of this project; its own have an id with a namespace."""
SENTENCE_TRANSFORMERS = Template("""\
from sentence_transformers import SentenceTransformer

encoder = SentenceTransformer("$repo", trust_remote_code=True)
clip = "video.mp4"  # a path, or RGB frames: (frames, height, width, 3), uint8
$calls
""")
ENCODE = {
    "video": 'videos = encoder.encode([{"video": clip}])',
    "text": 'texts = encoder.encode(["show with 2 turns"])',
    "text+video": 'queries = encoder.encode([{"video": clip, "text": "show with 2 turns"}])',
}
"""What a folder takes, as that file names it -> how to type it."""
REMOTE_CODE = (
    "`trust_remote_code=True` runs the Python files of this repository: read them, and name the commit that you read "
    "as `revision=`. After `pip install subtle-video` and `import hf_models`, transformers does not need it."
)
MINIATURE_LIMITS = (
    "It was trained and measured on the miniature, a few thousand clips of rendered figures. Its values compare "
    "methods and show that a pipeline works; they say nothing about real sport, real people or real video, and it "
    "must not be used to judge any."
)


def card_data(
    run: Run,
    folder: Path,
    name: str,
    measurements: list[Measurement],
    *,
    bases: list[str],
    dataset: str | None,
    license_id: str,
) -> ModelCardData:
    """The metadata of a folder; what somebody wrote into the header of a card comes before what is computed."""
    kind, task = run.kind, run.kind.task
    results = eval_results(measurements, task_type=task[0], task_name=task[1])
    is_classifier = kind.pipeline_tag == "video-classification"  # which transformers runs by that name
    of_sentences = (folder / SENTENCE_TRANSFORMERS_MODULES).is_file()
    metrics = dict.fromkeys(
        one.metric_id for one in measurements if "/" in one.metric_id or one.metric_id in PLAIN_METRICS
    )
    computed: dict[str, Any] = {
        "license": license_id,
        "library_name": "sentence-transformers" if of_sentences and not is_classifier else kind.library_name,
        "pipeline_tag": kind.pipeline_tag,
        "base_model": (bases[0] if len(bases) == 1 else bases) or None,
        "base_model_relation": ("adapter" if kind.is_adapter else "finetune") if bases else None,
        "datasets": [dataset] if dataset else None,
        "metrics": list(metrics) or None,
        "tags": [*kind.tags, *(["synthetic", "miniature"] if run.is_miniature else [])],
    }
    written = {key: value for key, value in run.header.items() if key not in {"license", "model-index", "base_model"}}
    own_tags = written.pop("tags", [])
    tags = [*([own_tags] if isinstance(own_tags, str) else own_tags), *computed.pop("tags")]
    tags += ["sentence-transformers", "transformers"] if of_sentences else []
    data = {key: value for key, value in (computed | written).items() if value is not None}
    if results:
        data |= {"model_name": name, "eval_results": results}
    return ModelCardData(**data, tags=list(dict.fromkeys(tags)))


def card_body(run: Run, folder: Path, repo_id: str, measurements: list[Measurement], *, base: str | None) -> str:
    """The body: what somebody wrote with code that loads it from the Hub, then what is computed."""
    namespace, _, name = repo_id.partition("/")
    loading = how_to_load(run.kind, folder, repo_id, base)
    text = NEIGHBOR_LINK.sub(rf"](https://huggingface.co/{namespace}/\1)", run.text)
    if PYTHON_BLOCK.search(text):
        text = PYTHON_BLOCK.sub(lambda _: loading, text, count=1)
    else:
        text = f"{text or f'# {name}{chr(10)}{chr(10)}{run.kind.about}'}\n\n## How to load\n\n{loading}"
    parts = [text]
    if measurements:
        parts += ["## Measured", results_table(measurements)]
    parts += ["## Training", *training(run.kind, folder)]
    if "## Limits" not in text:
        parts += ["## Limits", MINIATURE_LIMITS if run.is_miniature else limits(run, measurements)]
    return "\n\n".join(part.strip() for part in parts if part)


def how_to_load(kind: ModelKind, folder: Path, repo_id: str, base: str | None) -> str:
    """What to install, code that runs as it stands, and what the code of a repository means."""
    code = Template(kind.code).substitute(repo=repo_id, base=base or "")
    parts = [f"```bash\n{kind.install}\n```", f"```python\n{code}```"]
    if (folder / SENTENCE_TRANSFORMERS_MODULES).is_file():
        takes = read_json(folder / SENTENCE_TRANSFORMERS_FILE, modality_config=dict)["modality_config"]
        calls = "\n".join(line for modality, line in ENCODE.items() if modality in takes)
        code = SENTENCE_TRANSFORMERS.substitute(repo=repo_id, calls=calls)
        parts.append(f'With `pip install "sentence-transformers>=6"`:\n\n```python\n{code}```')
    if kind.has_own_code and kind.library_name == "transformers":
        parts.append(REMOTE_CODE)
    return "\n\n".join(parts) + "\n"


def training(kind: ModelKind, folder: Path) -> list[str]:
    """Curve, counts, options and versions of a run, from its results as they are published."""
    from subtle.run.training import INCIDENTAL  # torch comes with it

    results = read_json(folder / "results.json")
    parts = [f"Trained by `{kind.made_by}` of [Subtle]({PROJECT}); `results.json` holds all of it."]
    if (folder / CURVE_FILE).is_file():
        parts.append(f"![Training loss and validation metrics by epoch]({CURVE_FILE})")
    if results.get("config", {}).get("train_on") == "texts":
        parts.append("It was trained on texts alone; no video was seen.")
    counts = [f"* {cell(name)}: {value:,}" for name, value in all_counts(results.get("coverage", {}))]
    if counts:
        parts.append("\n".join(["Data used:", "", *counts]))
    options = {name: value for name, value in results.get("config", {}).items() if name not in INCIDENTAL}
    if options:
        parts.append(f"<details><summary>Options</summary>\n\n{options_table(options)}\n\n</details>")
    versions = ", ".join(f"{cell(name)} {cell(version)}" for name, version in results.get("versions", {}).items())
    if results.get("code_revision"):
        versions += f"; code revision {cell(results['code_revision'])}"
    return [*parts, f"Versions: {versions}." if versions else ""]


def all_counts(values: Any, above: str = "") -> list[tuple[str, int]]:
    """The whole numbers among nested values, by their names joined with `/`."""
    if isinstance(values, dict):
        return [found for name, value in values.items() for found in all_counts(value, f"{above}/{name}".lstrip("/"))]
    return [(above, values)] if isinstance(values, int) and not isinstance(values, bool) else []


def limits(run: Run, measurements: list[Measurement]) -> str:
    """What follows from how a model was measured."""
    seed = run.results.get("seed")
    seeds = f" One seed ({cell(seed)}): no spread is known." if seed is not None else ""
    where = " and ".join(dict.fromkeys(one.dataset for one in measurements if one.dataset)) or "its author's own data"
    return f"It was measured on {where} alone, by the protocols above.{seeds}"
