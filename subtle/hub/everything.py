"""Everything that this repository can publish, in the order of what depends on what."""

import importlib.metadata
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from subtle.hub.publication import Publication
from subtle.run.model_folders import MINIATURE_CLIP, MINIATURE_TFCOVR, WEIGHTS

VERSION = importlib.metadata.version("subtle-video")


@dataclass(frozen=True)
class Target:
    """One thing to publish: of which kind, its name here, its name on the Hub, and the model that it starts from.

    With `videos` a dataset goes up with its videos, which is for those of the miniature.
    """

    what: str
    name: str
    repo_id: str
    base_repo: str | None = None
    videos: bool = False


def everything(org: str) -> list[Target]:
    """All datasets, shipped weights and metrics under their own names, and the demo, which shows TF-CoVR's videos."""
    import metrics
    from hf_datasets.registry import BUILDERS

    return [
        *(Target("dataset", name, f"{org}/{name}", videos=name == "tfcovr") for name in BUILDERS),
        *(
            Target(*("adapter", name, f"{org}/{name}"), f"{org}/{Path(MINIATURE_CLIP).name}")
            if (WEIGHTS / name / "adapter_config.json").is_file()
            else Target("model", name, f"{org}/{name}")
            for name in sorted(path.name for path in WEIGHTS.iterdir() if path.is_dir())
        ),
        *(
            Target("classifier", path.parent.name, f"{org}/{path.parent.name}-classifier")
            for path in sorted(WEIGHTS.glob("*/adapter_config.json"))
        ),
        *(Target("metric", name, f"{org}/{name}") for name in metrics.METRICS),
        Target("demo", "demo", f"{org}/subtle-demo", f"{org}/{Path(MINIATURE_TFCOVR).name}"),
    ]


def in_order(publications: Sequence[Publication]) -> list[Publication]:
    """Each after those that it needs; where nothing depends, as given.

    Raises:
        ValueError: Two need each other.
    """
    by_id = {publication.repo_id: publication for publication in publications}
    graph = {
        publication.repo_id: sorted(set(publication.needs) & set(by_id) - {publication.repo_id}, key=list(by_id).index)
        for publication in publications
    }
    try:
        return [by_id[repo_id] for repo_id in TopologicalSorter(graph).static_order()]
    except CycleError as error:
        raise ValueError(f"these need each other, so none can go first: {', '.join(error.args[1])}") from None


def next_release(targets: Iterable[Target]) -> list[str]:
    """What the next release of the wheel must carry, so that it and the published repositories agree."""
    targets = list(targets)
    lines = []
    for target in targets:
        path = WEIGHTS / target.name / "adapter_config.json"
        if target.what != "adapter" or not path.is_file():
            continue
        base = json.loads(path.read_text(encoding="utf-8")).get("base_model_name_or_path")
        if base != target.base_repo:
            shown = path.relative_to(WEIGHTS.parents[1])
            lines.append(f"{shown}: base_model_name_or_path {target.base_repo} (now {base})")
    names = ", ".join(target.repo_id for target in targets)
    lines.append(f"these names in its cards and documents: {names}")
    lines.append(f"the code of this checkout, as version {VERSION} or newer: cards name it, and adapters load with it")
    return lines
