"""The systems that a composed-retrieval result is held against, each in the same training and protocol."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from embed import EmbedConfig
from stage2 import Stage2Config
from stage2 import run as train

from harness.models import load_encoders, load_trained
from harness.training import INCIDENTAL
from hf_models import TFCoVRForComposedRetrieval, TFCoVRProcessor
from tfcovr.batches import embed_config
from tfcovr.ranking import QueryParts
from tfcovr.systems import SYSTEMS, System


def system_config(system: System, base: Stage2Config, image_model: str, runs_dir: str, seed: int) -> Stage2Config:
    """The training configuration of a system with one seed; that of `base` itself keeps its output folder."""
    trained_as = SYSTEMS[0].name if system.shuffle_frames else system.name
    changes: dict[str, Any] = {"query": system.query, "seed": seed}
    if system.image_model:
        changes |= {"vision_model": image_model, "vision_model_class": system.vision_model_class}
        changes["embeddings"] = str(Path(base.embeddings).parent / system.embeddings)
    if system.zero_shot:
        changes |= {"fusion": "average", "projection_dim": None}
    config = replace(base, **changes)
    if config != base:
        config.output_dir = str(Path(runs_dir) / trained_as.replace(" ", "-") / f"seed-{seed}")
    return config


def is_trained(config: Stage2Config) -> bool:
    """Whether the output folder holds the complete run of this configuration; another one there is refused."""
    results = Path(config.output_dir) / "results.json"
    if not results.is_file():
        return False
    # Whether stored embeddings are the model's own is found out when they are opened, wherever they lie.
    ignored = {*INCIDENTAL, "embeddings"}
    wanted, found = asdict(config), json.loads(results.read_text(encoding="utf-8"))["config"]
    changed = sorted(name for name in (wanted | found).keys() - ignored if wanted.get(name) != found.get(name))
    if changed:
        raise SystemExit(
            f"{config.output_dir} holds a model that was trained with other {', '.join(changed)}; name another "
            "--runs_dir, or delete this folder"
        )
    return True


@dataclass(frozen=True)
class Prepared:
    """A system ready to be measured: its model and the embeddings it works on."""

    model: TFCoVRForComposedRetrieval
    processor: TFCoVRProcessor
    embed: EmbedConfig
    query: QueryParts = "both"


def prepare(system: System, base: Stage2Config, image_model: str, runs_dir: str, seed: int) -> Prepared:
    """A system with one seed; trained now if it has not been."""
    config = system_config(system, base, image_model, runs_dir, seed)
    if system.zero_shot:
        model, processor = load_encoders(config, fusion="average")
    else:
        if not is_trained(config):
            train(config)
        model, processor = load_trained(str(Path(config.output_dir) / "model"))
    folder = f"{config.embeddings}-shuffled" if system.shuffle_frames else config.embeddings
    embed = embed_config(config, folder, shuffle_frames=system.shuffle_frames)
    return Prepared(model.eval(), processor, embed, system.query)
