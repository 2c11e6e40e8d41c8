r"""Measure how well models tell true from disrupted paragraphs, and their retrieval.

    python recipes/evaluate_comp.py
    python recipes/evaluate_comp.py --models outputs/vidclip/comploss/model outputs/vidclip/negclip/model
    python recipes/evaluate_comp.py --compare --seeds 0 1 2 3 4 --draws 6
    python recipes/evaluate_comp.py --models openai/clip-vit-base-patch32 microsoft/xclip-base-patch32 \
        google/videoprism-lvt-base-f16r288 google/siglip2-base-patch16-224 facebook/pe-av-base

VideoComp, section 3.4. Without an argument it measures what `vidclip.py` made of the miniature, beside what it started
from. `--compare` trains what is missing of `--objectives` (`vidclip.py`; "comppretrain" is CompLoss after CompPretrain)
and measures that; several seeds give mean and standard deviation (over n - 1). A model is VidCLIP, X-CLIP, VideoPrism,
Perception Encoder, or an image model (CLIP, SigLIP 2) averaged over frames as CLIP4Clip does. `OUTPUT_DIR` gets
`results.json` (`figures`: model -> accuracy per disruption, comprehensive accuracy, R@1 both ways, all in [0, 1];
`by_seed`; `coverage`) and `similarities.parquet` (for every row and model the similarities with both texts).
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from harness.config import option, parse_config, run_recipe
from harness.model_folders import MINIATURE_CLIP, MINIATURE_VIDCLIP, check_model_folder
from harness.shared_config import ContrastConfig, Device


@dataclass
class EvaluateCompConfig(ContrastConfig):
    """Which models to measure, and on what."""

    models: list[str] = option(
        ["outputs/vidclip/comploss/model", MINIATURE_VIDCLIP, MINIATURE_CLIP],
        "Model folders or names on the Hub.",
    )
    split: str = option("test", "Split to measure on.")
    compare: bool = option(False, "Measure what each of --objectives trains instead of --models.")
    draws: int = option(1, "Drawings of orders, replacements and intervals to average over; published pairs have 1.")
    objectives: list[Literal["clip", "negclip", "comploss", "comppretrain"]] = option(
        ["clip", "negclip", "comploss", "comppretrain"],
        "Objectives that --compare trains; comppretrain is CompLoss after CompPretrain.",
    )
    seeds: list[int] = option([0], "Seeds of the fine-tuning that --compare does.")
    vidclip_config: str | None = option(None, "YAML file of vidclip.py for that fine-tuning; none: its defaults.")
    pretrain_config: str = option(
        str(Path(__file__).parent / "configs" / "vidclip_miniature_stacked.yaml"),
        "YAML file of vidclip.py for CompPretrain.",
    )
    runs_dir: str = option("outputs/vidclip_runs", "Folder for the models that --compare trains.")
    num_frames: int | None = option(
        None, "Frames of each video; none: as each model was made for, 12 for an image model."
    )
    batch_size: int = option(32, "Videos per forward pass.")
    num_workers: int = option(0, "Processes that read videos; 0: this one reads them.")
    device: Device = option("auto", "Where to compute; auto: on the GPU where there is one.")
    output_dir: str = option("outputs/evaluate_comp", "Folder for results.json and the similarities.")
    seed: int = option(0, "Seed to record in results.json; --compare trains with --seeds.")

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise ValueError(f"--draws {self.draws}: at least 1 draw of the pairs is needed")


if __name__ == "__main__":  # before the imports below, which take seconds
    CONFIG = parse_config(EvaluateCompConfig, __doc__)

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from vidclip import VidCLIPRunConfig
from vidclip import run as train

from comp.data import load_rows
from comp.scores import Scores, table
from harness.accelerator import make_accelerator
from harness.over_seeds import average, summarize
from harness.results import replacing_files, write_results, writing
from hf_datasets.comp.contrasts import SpanReader
from hf_models.encoders import VideoTextEncoder, load_encoder, short_name

COMP_PRETRAIN = "comppretrain"


def names(models: list[str]) -> dict[str, str]:
    """What each model is called, its whole path where two would be called the same."""
    short = [short_name(model) for model in models]
    return {model if short.count(name) > 1 else name: model for model, name in zip(models, short, strict=True)}


def systems(config: EvaluateCompConfig) -> Iterator[tuple[str, str, str]]:
    """What is measured: its name, which several seeds share, that of the run, and the folder; trained where missing."""
    if not config.compare:
        for name, path in names(config.models).items():
            yield name, name, path
        return
    file = [config.vidclip_config] if config.vidclip_config else []
    for name in config.objectives:
        objective = ["--objective", "comploss" if name == COMP_PRETRAIN else name]
        start = pretrain(config) if name == COMP_PRETRAIN else None
        for seed in config.seeds:
            training = training_config(config, [*file, *objective])
            training.model = start or training.model
            training.seed, training.output_dir = seed, f"{config.runs_dir}/{name}/{seed}"
            train(training)
            yield name, f"{name}/{seed}", f"{training.output_dir}/model"


def pretrain(config: EvaluateCompConfig) -> str:
    """The folder of the model that was pre-trained on stacked clips; trained where missing."""
    training = training_config(config, [config.pretrain_config])
    training.output_dir = f"{config.runs_dir}/stacked"
    train(training)
    return f"{training.output_dir}/model"


def training_config(config: EvaluateCompConfig, arguments: list[str]) -> VidCLIPRunConfig:
    """How `vidclip.py` trains with these arguments, on the data that is measured here."""
    training = parse_config(VidCLIPRunConfig, None, arguments)
    for shared in (*(field.name for field in fields(ContrastConfig)), "num_workers", "device"):
        setattr(training, shared, getattr(config, shared))
    return training


def measure(scores: list[Scores], encoder: VideoTextEncoder) -> tuple[dict[str, float], list[dict[str, float]], str]:
    """A model's mean metrics over several draws of the pairs, its similarities with all of them, and the signature."""
    measured = [score(encoder, progress=True) for score in scores]
    similarities = [pair for draw in measured for pair in draw.pop("similarities")]
    signature = "; ".join(dict.fromkeys(draw.pop("signature") for draw in measured))
    return average(measured), similarities, signature


def run(config: EvaluateCompConfig) -> dict[str, dict[str, Any]]:
    """Measure all models; returns model -> metrics."""
    output_dir = Path(config.output_dir)
    accelerator = make_accelerator(config.device, output_dir)
    by_draw = [
        load_rows(config, config.split, draw=draw, num_workers=config.num_workers) for draw in range(config.draws)
    ]
    coverage = {reason: sum(counts[reason] for _, counts in by_draw) for reason in by_draw[0][1]}
    scores = [Scores(rows, SpanReader(), batch_size=config.batch_size) for rows, _ in by_draw]
    rows = [{"draw": draw, **row} for draw, (drawn, _) in enumerate(by_draw) for row in drawn]
    columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in ("draw", "key", "disruption_type")}
    by_seed: dict[str, list[dict[str, Any]]] = {}
    for name, run_name, path in systems(config):
        check_model_folder(path)
        encoder = load_encoder(path, accelerator.device, config.num_frames)
        measured, similarities, signature = measure(scores, encoder)
        by_seed.setdefault(name, []).append(measured)
        for text in ("positive", "negative"):
            columns[f"{run_name}/{text}"] = [row[text] for row in similarities]
    results = {name: summarize(several) for name, several in by_seed.items()}
    with replacing_files(output_dir) as draft:
        with writing(output_dir / "similarities.parquet"):
            pq.write_table(pa.table(columns), draft / "similarities.parquet")
        write_results(
            draft,
            results,
            config=config,
            seed=config.seed,
            by_seed=by_seed,
            coverage=coverage,
            signature=signature,
        )
    left_out = coverage["rows"] - coverage["used"]
    title = f"{config.dataset} ({config.dataset_config}), {config.split}: {coverage['used']:,} pairs"
    title += f", {left_out:,} left out without a readable video" if left_out else ""
    Console(width=120).print(table(results, title))
    return results


def main(config: EvaluateCompConfig) -> None:
    run(config)


if __name__ == "__main__":
    sys.exit(run_recipe(main, CONFIG))
