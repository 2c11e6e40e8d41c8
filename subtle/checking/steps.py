"""Which command fills which table of a paper, in hours of GPU, and what a chat model costs that writes the texts."""

import contextlib
import importlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from subtle.building.options import BuildCompConfig, BuildFigConfig, BuildTFCoVRConfig
from subtle.checking.annotations import RELEASE, Part
from subtle.options import parse_config
from subtle.run.build import Build
from subtle.run.gpus import GPUS, UTILIZATION
from subtle.table.costs import OPERATIONS, Machine
from subtle.train.estimates import estimate_run
from subtle.train.options import Stage1Config, VidCLIPRunConfig

Paper = Literal["tfcovr", "comp", "fig"]
Parts = Mapping[str, Part]
BUILDS: dict[Paper, type] = {"tfcovr": BuildTFCoVRConfig, "comp": BuildCompConfig, "fig": BuildFigConfig}
CHAT_MODEL, SAMPLE = "gpt-4o", 40
"""What texts are priced for, and of how many videos or moments of each split."""
A100 = Machine(torch.device("cuda"), UTILIZATION * GPUS["A100"][1], num_workers=12)
HOURS = (
    "Hours are estimated, not measured: one A100 at 35 % of its 312 TFLOP/s (bfloat16), by what `--dry_run` counts, "
    "and 12 processes that decode a clip in 0.12 s."
)
RESNET_OPERATIONS = OPERATIONS * 11.5e9
"""Of ResNet-152 for one picture; it has 11.5 billion multiplications and additions (torchvision's documentation)."""


@dataclass(frozen=True)
class Step:
    """What fills a table.

    Attributes:
        rows: Tables or figures of the paper.
        part: Name of the part that it needs, or how such a name begins.
        command: What one types, with `{data}` for the folders and `{annotations}` for that of the annotations.
        needs_videos: Whether it reads them.
        hours: Of one A100; None where they are minutes, or where the command prints them.
    """

    rows: str
    part: str
    command: str
    needs_videos: bool = True
    hours: float | None = None


def steps_of_tfcovr(parts: Parts) -> list[Step]:
    stage1 = parse_config(Stage1Config, None, ["stage1_4xa100.yaml"])
    clips, step = len(parts[RELEASE].items), estimate_run(stage1, 1).cost
    training = A100.hours(stage1.epochs * clips * step.flops / stage1.batch_size, stage1.epochs * clips)
    encoding = A100.hours(clips * step.forward_flops / stage1.batch_size, clips)
    launch = "accelerate launch $(subtle path "
    return [
        Step("Figures A1 and A2", RELEASE, "subtle analyse tfcovr --dataset_config release {data}", needs_videos=False),
        Step("stage 1", RELEASE, launch + "stage1) stage1_4xa100.yaml {data}", hours=training),
        Step("features", RELEASE, launch + "embed) clips embed_4xa100.yaml {data}", hours=encoding),
        Step("Table 3, last rows", RELEASE, launch + "stage2) stage2_4xa100.yaml {data}"),
        Step(
            "features, those that the authors publish",
            RELEASE,
            "subtle embed clips embed_one_gpu.yaml --data_dir {annotations} --video_dir none --import_from FILE",
            needs_videos=False,
        ),
        Step("Table 2", RELEASE, "subtle table zero_shot_paper.yaml {data} --dry_run"),
        Step("Table 3", RELEASE, "subtle table finetune_baseline_paper.yaml {data} --dry_run"),
        Step("section 3", "FineGym", "subtle build tfcovr --source {annotations}", needs_videos=False),
    ]


def steps_of_comp(_: Parts) -> list[Step]:
    judge = f"subtle judge --dataset_config release {{data}} --model {CHAT_MODEL} --dry_run --dataset "
    steps = []
    for name in ("activitynet_comp", "youcook2_comp"):
        file = f"vidclip_paper_4_{name.removesuffix('_comp')}.yaml"
        tuning = parse_config(VidCLIPRunConfig, None, [file])
        steps_of_run = tuning.max_steps or 0
        hours = A100.hours(steps_of_run * estimate_run(tuning, 1).cost.flops, steps_of_run * tuning.batch_size)
        steps += [
            Step(f"Tables 2 to 5, {name}, each row", name, f"subtle vidclip {file} {{data}}", hours=hours),
            Step(f"Table 7, {name}", name, judge + name),
        ]
    return [*steps, Step("Table 1", "captions", "subtle build comp --source {annotations}", needs_videos=False)]


def steps_of_fig(parts: Parts) -> list[Step]:
    models = "--vision_model microsoft/resnet-152 --text_model FacebookAI/roberta-base"
    steps = []
    for name, part in parts.items():
        embed = f"subtle embed moments --dataset {name} --dataset_config release {{data}} {models}"
        files = " ".join(f"vcmr_{one}.yaml" for one in (name, "xml", "reloclnet", "hero"))
        places = f"--runs_dir outputs/vcmr/{name} --output_dir outputs/vcmr_evaluation/{name}"
        grid = f"subtle evaluate vcmr --compare --seeds 0 --queries fine coarse --vcmr_config {files} {places}"
        steps += [
            Step(f"Tables 1 and 2, {name}", name, "subtle analyse fig --release {annotations}", needs_videos=False),
            Step(f"features, {name}", name, embed, hours=A100.hours(4 * part.seconds * RESNET_OPERATIONS)),
            Step(f"Tables 4 to 6, {name}", name, f"{grid} --data_dir {{annotations}}"),
        ]
    return steps


STEPS = {"tfcovr": steps_of_tfcovr, "comp": steps_of_comp, "fig": steps_of_fig}


def price_of_texts(paper: Paper, part: Part, folder: Path) -> tuple[float, float]:
    """The least and the most dollars that `CHAT_MODEL` costs for all texts, from those of a sample."""
    options: dict[str, Any] = {"source": str(folder), "model": CHAT_MODEL, "dry_run": True, "quiet": True}
    build = Build(BUILDS[paper](**options, limit=None if paper == "tfcovr" else SAMPLE))
    with contextlib.redirect_stdout(io.StringIO()):
        importlib.import_module(f"subtle.building.build_{paper}").main(build.config, build)
    chat: Any = build.chat
    sampled = sum(step.accepted for step in build.steps if step.name.endswith(("annotated videos", "moments")))
    share = len(part.items) / sampled if sampled else 1.0
    return share * chat.meter.usd, share * chat.high.usd
