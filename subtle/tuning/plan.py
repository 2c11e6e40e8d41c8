"""The steps of a tuning run as commands, which of them are done, and what the run in a folder was made from."""

import hashlib
import math
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hf_datasets.drafts import write_json
from subtle.commands import command_of
from subtle.run.model_folders import MINIATURE_CLIP
from subtle.run.results import read_json

COMPARED_SYSTEMS = ("two-stage", "stage-2-only", "text-only", "video-only", "zero-shot average")
LOCK, MADE_FROM, EXAMPLE = "tune.lock", "tune.json", "example"
"""In the output folder: held by a running process; what the run was made from; the drawn clips."""
AIM_RECIPE = (
    *("--num_temporal_adapters", "1", "--adapter_ratio", "0.25", "--adapter_scale", "0.5"),
    *("--drop_path_rate", "0.2", "--classifier_dropout", "0.5", "--weight_decay", "0.05", "--adam_beta2", "0.999"),
    *("--temporal_learning_rate_factor", "1.0", "--time_amplitude", "0.0"),
)
"""As in `configs/stage1_one_gpu.yaml`, for CLIPs that have seen photographs."""
STAGE1_STEPS = 200
STAGE2_STEPS = 400
STAGE2_BATCH = 256
MOST_EPOCHS = 100
TRIPLETS_PER_CLIP = 40
"""Roughly: each clip meets the clips of a few other labels."""
INCIDENTAL_TO_TUNING = (
    "restart",
    "dry_run",
    "output_dir",
    "num_workers",
    "device",
    "num_queries",
    "api_key_env",
    "max_usd",
    "min_clips",
)
"""Options that may change between a run and its continuation."""


@dataclass(frozen=True)
class Plan:
    """A run: its options, and what follows from the number of clips.

    Attributes:
        config: The options of `tune.py`.
        table, video_dir: The clips and their videos.
        num_clips: Clips that can be used.
        stage1_steps: Optimizer steps of stage 1, roughly.
        stage1_epochs, stage2_epochs: Passes over the training clips, and over the triplets.
        batch_size: Of stage 1; not more than there are training clips.
    """

    config: Any
    table: Path
    video_dir: Path
    num_clips: int
    stage1_steps: int
    stage1_epochs: int
    stage2_epochs: int
    batch_size: int

    @classmethod
    def of(cls, config: Any, table: Path, video_dir: Path, *, num_clips: int, num_train: int) -> "Plan":
        """Train for a number of steps rather than of epochs, so that few clips are seen often enough."""
        batch_size = max(1, min(config.batch_size, num_train // 2))
        per_epoch = max(num_train // batch_size, 1)
        batches = max(num_train * TRIPLETS_PER_CLIP / STAGE2_BATCH, 1)
        stage1_epochs = config.stage1_epochs or epochs_for(STAGE1_STEPS, per_epoch)
        stage2_epochs = config.stage2_epochs or epochs_for(STAGE2_STEPS, batches)
        return cls(
            config, table, video_dir, num_clips, stage1_epochs * per_epoch, stage1_epochs, stage2_epochs, batch_size
        )

    @property
    def output(self) -> Path:
        """Where everything goes."""
        return Path(self.config.output_dir)

    @property
    def learning_rate(self) -> float:
        """Of stage 1."""
        return self.config.learning_rate or (1e-3 if is_miniature(self.config.base) else 3e-4)


def is_miniature(base: str) -> bool:
    """Whether a base is the CLIP that ships, for which the defaults of stage 1 are; others take AIM's own recipe."""
    return Path(base).resolve() == Path(MINIATURE_CLIP).resolve()


def epochs_for(steps: int, per_epoch: float) -> int:
    """Epochs that make about so many steps.

    >>> epochs_for(300, 4), epochs_for(300, 1000), epochs_for(300, 1)
    (75, 4, 100)
    """
    return min(max(math.ceil(steps / per_epoch), 4), MOST_EPOCHS)


@dataclass(frozen=True)
class RecipeStep:
    """A recipe with its arguments, and the file that says that it is done."""

    name: str
    recipe: str
    arguments: tuple[str, ...]
    result: Path

    @property
    def is_done(self) -> bool:
        """Whether it has ended; every recipe writes its result last, in one move."""
        return self.result.is_file()

    @property
    def command(self) -> str:
        """What one would type."""
        return f"{command_of(self.recipe)} {shlex.join(self.arguments)}"


def steps_of(plan: Plan) -> list[RecipeStep]:
    """What is done, in order."""
    config, output = plan.config, plan.output
    data = ("--dataset_config", "own", "--data_dir", f"{output / 'dataset'}", "--video_dir", f"{plan.video_dir}")
    run: tuple[str, ...] = ("--seed", f"{config.seed}", "--device", config.device)
    run += ("--mixed_precision", config.mixed_precision) if config.mixed_precision else ()
    frames = ("--cache_dir", f"{output / 'frames'}", "--num_workers", f"{config.num_workers}")
    encoders = ("--vision_model", f"{output / 'stage1' / 'model'}", "--text_model", config.base)
    embeddings = f"{output / 'embeddings' / 'stage1'}"
    return [
        RecipeStep("dataset", "build tfcovr", dataset_arguments(plan), output / "dataset" / "results.json"),
        RecipeStep(
            "stage 1",
            "stage1",
            (
                *data, *run, *frames, "--base", config.base, "--head", "all",
                "--num_frames", f"{config.num_frames}", "--batch_size", f"{plan.batch_size}",
                "--checkpoint_steps", "20",
                "--epochs", f"{plan.stage1_epochs}", "--warmup_steps", f"{0.5 / plan.stage1_epochs}",
                "--learning_rate", f"{plan.learning_rate}",
                *(() if is_miniature(config.base) else AIM_RECIPE), "--output_dir", f"{output / 'stage1'}",
            ),
            output / "stage1" / "results.json",
        ),
        RecipeStep(
            "embeddings",
            "embed clips",
            (*data, *run, *frames, *encoders, "--output_dir", embeddings),
            output / "embeddings" / "stage1" / "results.json",
        ),
        RecipeStep(
            "stage 2",
            "stage2",
            (
                *data, *run, *frames, *encoders, "--embeddings", embeddings,
                "--batch_size", f"{STAGE2_BATCH}", "--epochs", f"{plan.stage2_epochs}", "--output_dir", f"{output}",
            ),
            output / "results.json",
        ),
        RecipeStep(
            "comparison",
            "evaluate tfcovr",
            (
                *data, *run, *frames, "--compare", "--systems", *COMPARED_SYSTEMS, "--seeds", f"{config.seed}",
                "--models", f"{output / 'model'}", "--runs_dir", f"{output / 'systems'}", "--embeddings", embeddings,
                "--image_model", config.base, "--output_dir", f"{output / 'comparison'}",
            ),
            output / "comparison" / "results.json",
        ),
        RecipeStep(
            "report",
            "report",
            (
                "--evaluation_dir", f"{output / 'comparison'}", "--output_dir", f"{output / 'report'}",
                "--title", f"Tuned on {plan.table.name}", "--num_queries", f"{config.num_queries}",
            ),
            output / "report" / "index.html",
        ),
    ]  # fmt: skip


def dataset_arguments(plan: Plan) -> tuple[str, ...]:
    """Of the step that pairs labels, writes texts and makes triplets."""
    config = plan.config
    arguments = ["--data_dir", f"{plan.table}", "--video_dir", f"{plan.video_dir}", "--seed", f"{config.seed}"]
    for name in ("validation_fraction", "test_fraction"):
        arguments += [f"--{name}", f"{getattr(config, name)}"]
    if config.marks:
        arguments += ["--marks", config.marks]
    if config.chat_model:
        arguments += ["--model", config.chat_model, "--api_key_env", config.api_key_env]
        arguments += ["--cache", f"{plan.output / 'answers.sqlite'}"]
        arguments += ["--base_url", config.base_url] if config.base_url else []
        for name in ("max_usd", "input_usd", "output_usd"):
            arguments += [f"--{name}", f"{getattr(config, name)}"] if getattr(config, name) is not None else []
        arguments += ["--dry_run"] if config.dry_run else []
    return (*arguments, "--output_dir", f"{plan.output / 'dataset'}")


def made_from(plan: Plan) -> dict[str, Any]:
    """What decides the model: the options, and the content of the tables."""
    options = {name: value for name, value in asdict(plan.config).items() if name not in INCIDENTAL_TO_TUNING}
    tables = {"clips": plan.table, "marks": plan.config.marks and Path(plan.config.marks).expanduser()}
    return options | {f"content of {name}": content(path) for name, path in tables.items() if path}


def content(path: Path) -> str:
    """A hash of a table's content."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file; give the table of marks that `python recipes/serve.py` wrote")
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def check_same_run(plan: Plan, wanted: dict[str, Any]) -> None:
    """Note what the run is made from, or refuse to go on with a run that was made from something else.

    Raises:
        ValueError: The output folder holds another run, or something that is none.
    """
    path = plan.output / MADE_FROM
    if path.is_file():
        earlier = read_json(path, "give --restart to begin again")
        changed = sorted(name for name in wanted | earlier if wanted.get(name) != earlier.get(name))
        if changed:
            raise ValueError(
                f"{plan.output} holds a run with other {', '.join(changed)}; name another --output_dir, or give "
                "--restart to begin again there"
            )
        return
    others = [one.name for one in plan.output.iterdir() if one.name not in {LOCK, EXAMPLE}]
    if others:
        raise ValueError(f"{plan.output} holds something else ({sorted(others)[0]}); name another --output_dir")
    write_json(path, wanted)


def check_dataset(plan: Plan) -> None:
    """Refuse a dataset without something to train, validate and test on.

    Raises:
        ValueError: A split has no queries.
    """
    folder = plan.output / "dataset" / "own"
    empty = [split for split in ("train", "validation", "test") if not any(folder.glob(f"{split}-*.parquet"))]
    if empty:
        raise ValueError(
            f"there is no query to {' or '.join(empty)} with, because no two labels that make a pair have clips "
            "there: label the same actions in more videos, try another --seed, or name the split of each clip in a "
            "column split; then run again with --restart"
        )
