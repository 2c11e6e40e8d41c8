"""A training run: start, resume, checkpoints, best weights, results; the loop over batches stays in the recipe."""

import json
import math
import os
import shutil
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, DynamoBackend, broadcast_object_list, gather_object, set_seed
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import Dataset, default_collate
from tqdm import tqdm

from hf_datasets.builders import write_rejections
from hf_datasets.drafts import replacing, write_json
from hf_datasets.records import Rejection
from hf_datasets.video import VideoError
from subtle.run.accelerator import REQUEUE, Stopped, from_main, make_accelerator
from subtle.run.checkpoints import AGAIN, Checkpoints, Progress
from subtle.run.data import DOES_NOT_DECODE
from subtle.run.loading import BatchLoader
from subtle.run.locks import only_run_in
from subtle.run.results import write_results
from subtle.run.schedules import rate_factor
from subtle.run.step_monitor import LOG_STEPS, AnyBatch, StepMonitor

STOP_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGUSR1") if hasattr(signal, name)]
PROFILED_STEPS = {"wait": 2, "warmup": 2, "active": 3, "repeat": 1}
MOST_SHOWN = 10
"""Videos that cannot be read whose reasons are printed; `rejections.parquet` has all."""
WHOLE_MODELS = (DistributedType.NO, DistributedType.MULTI_GPU, DistributedType.MULTI_CPU)
# What may change between a run and its continuation without changing the weights by more than rounding.
INCIDENTAL = (
    *("restart", "output_dir", "checkpoint_steps", "num_workers", "device", "tracker", "max_hours", "dry_run"),
    *("profile", "cache_dir", "keep_frames"),
)


class LastStepError(Exception):
    """The last of `max_steps` is done, perhaps within an epoch."""


class TrainingRun(ABC):
    """One training run, from its start or its last checkpoint to `results.json`.

    A subclass makes data, model and optimizer after `super().__init__`, and implements `count_steps`, `train_epoch`,
    `validate` and `publish`.

    Args:
        config: a configuration with the fields of `TrainingRunConfig`, `epochs` and `output_dir`.
        find_unused_parameters: whether some parameters may get no gradient.

    Attributes:
        NAME: of the recipe, for the tracker.
        METRIC: the entry of `summary` that the progress bar shows and that chooses the best weights.
        TRAINS_IN_SHARDS: whether it trains under FSDP2, which publishes from the gathered weights.
        KEEPS_BEST: whether `best.safetensors` holds the weights of the best epoch.
        patience: epochs without a better `METRIC` after which training stops; None: never.
        model, optimizer: prepared by the accelerator; the subclass sets them, with the highest learning rates.
        progress: how far the run has come, from `train` on.
        steps_per_epoch, total_steps: optimizer steps of an epoch and of all epochs, from `train` on.
        metrics: those of the last epoch that was validated.
    """

    NAME: ClassVar[str]
    METRIC: ClassVar[str]
    KEEPS_BEST: ClassVar[bool] = True
    TRAINS_IN_SHARDS: ClassVar[bool] = False
    model: Any
    optimizer: torch.optim.Optimizer

    def __init__(self, config: Any, *, find_unused_parameters: bool = False) -> None:
        self.config, self.output_dir = config, Path(config.output_dir)
        self.accelerator = make_accelerator(
            config.device,
            self.output_dir,
            mixed_precision=config.mixed_precision,
            tracker=config.tracker,
            find_unused_parameters=find_unused_parameters,
        )
        self.refuse_shards()
        with only_launch_in(self.output_dir, self.accelerator):
            pass  # refused before the data are read, which can take hours
        # Reading a loss on a GPU would wait for every step; Apple's have no float64.
        self.sum_device = torch.device("cpu") if self.accelerator.device.type == "mps" else self.accelerator.device
        set_seed(config.seed)
        self.patience: int | None = None
        self.started, self.signaled = time.monotonic(), False
        self.reports: list[tuple[int, float, Tensor, Sequence[Any]]] = []
        half = self.accelerator.mixed_precision in {"fp16", "bf16"}
        self.monitor = StepMonitor(self.accelerator.device, is_half=half) if config.tracker else None
        self.gradient_norm: Any = None
        self.profiler: torch.profiler.profile | None = None
        self.progress = Progress()
        self.loader: BatchLoader | None = None

    def refuse_shards(self) -> None:
        """Refuse a distribution of the weights that this recipe could train with but not publish from."""
        accelerator = self.accelerator
        asked = f"{accelerator.distributed_type.value} in accelerate's configuration"
        cure = "start it with recipes/accelerate/8xa100.yaml, where each GPU holds the whole model"
        if accelerator.distributed_type in WHOLE_MODELS:
            return
        if not (self.TRAINS_IN_SHARDS and accelerator.is_fsdp2):
            others = "only FSDP version 2" if self.TRAINS_IN_SHARDS else "neither FSDP nor another split of weights"
            raise SystemExit(f"distributed_type is {asked}, but {self.NAME} supports {others}; {cure}")
        if accelerator.state.dynamo_plugin.backend != DynamoBackend.NO:
            raise SystemExit(f"a compiler beside {asked} is not supported; leave out dynamo_config, or {cure}")

    @abstractmethod
    def count_steps(self) -> int:
        """Optimizer steps of an epoch, or an error where there are too few data for one."""

    @abstractmethod
    def train_epoch(self) -> None:
        """Train on the rest of the current epoch, batches from `progress.step` on; calls `finish_step` after each."""

    @abstractmethod
    def validate(self) -> dict[str, float]:
        """The metrics of the current weights, the same on every process."""

    @abstractmethod
    def publish(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Write the model; returns the metrics of the run, and further entries of `results.json`."""

    @property
    def description(self) -> str:
        """The label of the progress bar."""
        return self.NAME

    @property
    def plain_model(self) -> Any:
        """The model under what the accelerator put around it: DDP and the compiler, which would rename its weights."""
        return self.accelerator.unwrap_model(self.model, keep_torch_compile=False)

    def trained_state(self) -> dict[str, Tensor]:
        """The whole weights by the names of `plain_model`; takes all processes. Empty off the main one under FSDP."""
        return cast("dict[str, Tensor]", self.accelerator.get_state_dict(self.plain_model))

    def rate_factor(self, step: int) -> float:
        """The learning rate of a step, as a share of the highest of each group of weights.

        Where the configuration says so, its cosine stays where it is for an epoch.
        """
        at_once = self.steps_per_epoch if getattr(self.config, "cosine_per", "step") == "epoch" else 1
        return rate_factor(step, self.total_steps, self.warmup, steps_at_once=at_once)

    @property
    def warmup(self) -> float:
        """Optimizer steps of the warm-up; the option may give their share of all steps."""
        given: float = self.config.warmup_steps
        return given if given >= 1 else given * self.total_steps

    def summary(self, metrics: dict[str, float]) -> dict[str, float]:
        """The metrics of an epoch that the history keeps."""
        return metrics

    def tracked(self, loss: float, metrics: dict[str, float]) -> dict[str, float]:
        """The metrics that the tracker logs after an epoch."""
        return {"train/loss": loss} | {f"validation/{name}": value for name, value in metrics.items()}

    def identity(self) -> dict[str, Any]:
        """The options that decide the weights; another run in the same folder is refused."""
        return {name: value for name, value in asdict(self.config).items() if name not in INCIDENTAL}

    def train(self) -> dict[str, Any]:
        """Train from the last checkpoint on; returns the metrics of the run."""
        config, accelerator = self.config, self.accelerator
        with only_launch_in(self.output_dir, accelerator):
            self.checkpoints = Checkpoints(accelerator, self.output_dir, self.identity(), restart=config.restart)
            if (figures := from_main(self.complete_figures)) is not None:
                self.remove_leftovers()
                return figures
            if config.tracker:
                given = {name: value for name, value in asdict(config).items() if value is not None}
                simple = bool | int | float | str  # what every tracker takes
                shown = {name: value if isinstance(value, simple) else str(value) for name, value in given.items()}
                accelerator.init_trackers(self.NAME, config=shown)
            highest = [group["lr"] for group in self.optimizer.param_groups]
            self.progress = self.checkpoints.resume()
            self.steps_per_epoch, earlier = self.count_steps(), self.progress.steps_per_epoch
            if earlier not in {0, self.steps_per_epoch}:
                raise SystemExit(
                    f"an epoch of {accelerator.num_processes} processes has {self.steps_per_epoch} steps, not {earlier}"
                    f": each needs two rows of a batch, the last too; start as many processes as before, or {AGAIN}"
                )
            self.progress.steps_per_epoch = self.steps_per_epoch
            self.total_steps = config.max_steps or config.epochs * self.steps_per_epoch
            for group, rate in zip(self.optimizer.param_groups, highest, strict=True):
                group["initial_lr"] = rate
            self.schedule = LambdaLR(self.optimizer, self.rate_factor, last_epoch=self.progress.total_steps - 1)
            try:
                with self.heeding_signals(), self.observed():
                    self.train_epochs()
                return self.finish()
            finally:
                self.loader = None  # which ends its workers

    def complete_figures(self) -> dict[str, Any] | None:
        """The metrics of a run that is complete, or None; on the main process.

        Raises:
            SystemExit: What it wrote is damaged.
        """
        path = results = self.output_dir / "results.json"
        if not results.is_file():
            return None
        try:
            figures: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))["figures"]
            for path in self.output_dir.glob("*/*.safetensors"):
                with safe_open(path, "pt"):  # which compares its size with what its header says
                    pass
        except (ValueError, KeyError, TypeError, SafetensorError) as error:
            raise SystemExit(f"{path} is damaged ({error}); {AGAIN}") from None
        print(f"{results} says that this run is complete; --restart trains again from scratch")
        return figures

    def train_epochs(self) -> None:
        """Train and validate epoch by epoch, with a progress bar."""
        progress = self.progress
        with tqdm(
            total=self.total_steps,
            initial=progress.total_steps,
            desc=self.description,
            unit="step",
            disable=not self.accelerator.is_local_main_process,
        ) as self.bar:
            most = self.config.max_steps
            # An epoch that has begun is still to be validated.
            while (
                (progress.step or progress.total_steps < most) if most else progress.epoch < self.config.epochs
            ) and not self.is_exhausted():
                self.loss_sum = torch.tensor(progress.loss_sum, dtype=torch.float64, device=self.sum_device)
                with suppress(LastStepError):
                    if not most or progress.total_steps < most:
                        self.train_epoch()
                self.finish_epoch(self.loss_sum.item() / progress.step)
                shown = {name: progress.history[-1][name] for name in ("loss", self.METRIC)}
                self.bar.set_postfix({name: f"{value:.4f}" for name, value in shown.items()})

    def fetched(self, batches: Iterable[AnyBatch]) -> Iterator[AnyBatch]:
        """The batches of an epoch; the time until each is there is measured for the tracker."""
        return self.monitor.waiting(iter(batches)) if self.monitor else iter(batches)

    def clip_gradients(self, weights: Iterable[Tensor] | None = None) -> None:
        """Clip the gradients as the configuration says, and keep their norm before that for the tracker.

        Args:
            weights: What is trained; None: the model's.
        """
        weights, most = list(self.model.parameters() if weights is None else weights), self.config.max_gradient_norm
        if most:
            self.gradient_norm = self.accelerator.clip_grad_norm_(weights, most)
        elif self.monitor:
            self.accelerator.unscale_gradients()
            self.gradient_norm = get_total_norm([weight.grad for weight in weights if weight.grad is not None])
        if hasattr(self.gradient_norm, "full_tensor"):  # in shards
            self.gradient_norm = self.gradient_norm.full_tensor()

    def take_step(self, loss: Tensor) -> None:
        """Move the weights against the gradients of a loss; then comes `finish_step`."""
        self.accelerator.backward(loss)
        self.clip_gradients()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def row_name(self, row: Any) -> str:
        """What a row that `finish_step` was given is called, for a message."""
        return str(row)

    def finish_step(self, loss: Tensor, rows: Sequence[Any]) -> None:
        """Count an optimizer step, and write a checkpoint where one is due.

        Args:
            loss: Of the step.
            rows: What this process trained on: how many, and which where the loss is not finite; see `row_name`.

        Raises:
            Stopped: A signal or `max_hours` ends the run, whose checkpoint is written.
            SystemExit: The loss is not finite; the last checkpoint stays.
        """
        progress = self.progress
        self.loss_sum += loss.detach().to(self.sum_device)
        progress.step += 1
        progress.total_steps += 1
        rate = max(group["lr"] for group in self.optimizer.param_groups)
        self.schedule.step()
        self.bar.update()
        if self.profiler:
            self.profiler.step()
        is_due = progress.total_steps % self.config.checkpoint_steps == 0
        is_last = progress.total_steps == self.config.max_steps or progress.step == self.steps_per_epoch
        hours = (time.monotonic() - self.started) / 3600
        is_late = self.config.max_hours is not None and hours >= self.config.max_hours
        measured = [float(self.signaled or is_late), *(self.monitor.measured(len(rows)) if self.monitor else ())]
        norm = torch.zeros_like(loss) if self.gradient_norm is None else self.gradient_norm
        report = torch.cat([torch.stack([loss.detach(), norm]).float(), loss.new_tensor(measured, dtype=torch.float32)])
        self.reports.append((progress.total_steps, rate, self.accelerator.gather(report[None]), rows))
        # On a GPU the report before this one is read: reading this one would wait for the step.
        waits = self.accelerator.device.type != "cpu" and not is_due and not is_last
        stops = self.read_reports(keep=int(waits))
        if is_due or stops:
            progress.loss_sum = self.loss_sum.item()
            self.share_skipped()
            self.checkpoints.save(progress)
            if self.monitor:
                self.monitor.restart()
        if stops:
            self.accelerator.print(f"stopped after step {progress.total_steps}, which is kept; run again to go on")
            raise Stopped(REQUEUE)
        if progress.total_steps == self.config.max_steps:
            raise LastStepError

    def read_reports(self, *, keep: int) -> bool:
        """Whether the run is to stop after the steps whose reports are read; the last `keep` are left for later."""
        stops = False
        while len(self.reports) > keep:
            step, rate, report, rows = self.reports.pop(0)
            table = report.tolist()
            losses = [loss for loss, *_ in table]
            stops |= any(asked for _, _, asked, *_ in table)
            if not all(map(math.isfinite, losses)):
                is_own = not math.isfinite(losses[self.accelerator.process_index])
                own = [self.row_name(row) for row in rows] if is_own else []
                wrong = sorted({row for part in gather_object([own]) for row in part})
                found = next(loss for loss in losses if not math.isfinite(loss))
                shown = f", among rows {', '.join(wrong[:MOST_SHOWN])}" if wrong else ""
                raise SystemExit(
                    f"the loss of step {step} is {found}{shown}; the last checkpoint is as it was: lower "
                    "--learning_rate or give --max_gradient_norm, with --restart"
                )
            if self.monitor:
                self.log_step(self.monitor, step, rate, table)
        return stops

    def log_step(self, monitor: StepMonitor, step: int, rate: float, table: list[list[float]]) -> None:
        """Tell the tracker of one of `LOG_STEPS` steps; `table` has the report of each process."""
        losses, norms, _, *columns = zip(*table, strict=True)
        measured = list(zip(*columns, strict=True))
        monitor.add(measured)
        if step % LOG_STEPS == 1:
            loss = sum(losses) / len(losses)
            figures = {"step/loss": loss, "step/learning_rate": rate, "step/gradient_norm": norms[0]}
            self.accelerator.log(figures | monitor.figures(measured), step=step)

    @contextmanager
    def observed(self) -> Iterator[None]:
        """With `profile`, record a few steps and write their trace, one file for each process."""

        def write(profiler: Any) -> None:
            with replacing(self.output_dir / f"trace_{self.accelerator.process_index}.json") as unfinished:
                profiler.export_chrome_trace(str(unfinished))

        with ExitStack() as stack:
            if self.monitor:
                self.monitor.restart()
                stack.callback(self.monitor.close)
            if self.config.profile:
                steps = torch.profiler.schedule(**PROFILED_STEPS)
                self.profiler = stack.enter_context(torch.profiler.profile(schedule=steps, on_trace_ready=write))
            yield

    @contextmanager
    def heeding_signals(self) -> Iterator[None]:
        """Let SIGTERM and SIGUSR1, by which clusters announce the end, stop the run after the next step."""
        own, earlier = os.getpid(), {}

        def heed(number: int, _: Any) -> None:
            if os.getpid() == own:
                self.signaled = True
            elif number == signal.SIGTERM:
                # A worker: clusters signal all processes, and this run still needs its batch. The next one ends it.
                signal.signal(number, signal.SIG_DFL)

        if threading.current_thread() is threading.main_thread():
            earlier = {number: signal.signal(number, heed) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)

    def read_batches(
        self,
        data: "Dataset[Any]",
        batches: Iterable[Any],
        *,
        num_workers: int,
        collate: Callable[[list[Any]], dict[str, Any]] = default_collate,
        may_be_empty: bool = False,
        needed_bytes: int = 0,
    ) -> Iterator[dict[str, Any]]:
        """The batches of a dataset; a video that cannot be read is left out of its batch, and counted in the results.

        Args:
            data: The same object in every epoch: the workers that read it stay. Frames are to be uint8 until they are
                on the device: float32 would be four times as much in shared memory.
            batches: The indices of each batch.
            num_workers: See `BatchLoader`.
            collate: See `BatchLoader`.
            may_be_empty: Whether all videos of a batch may be damaged.
            needed_bytes: See `BatchLoader`.

        Yields:
            What `collate` makes of the items that can be read, on the device; nothing for a batch without any, if it
            `may_be_empty`.

        Raises:
            SystemExit: A batch that may not be empty is, or shared memory is too small.
        """
        if self.loader is None or self.loader.data.data is not data:
            self.loader = BatchLoader(
                ReadableItems(data),
                num_workers=num_workers,
                device=self.accelerator.device,
                collate=partial(without_damaged, collate=collate),
                needed_bytes=needed_bytes,
            )
        skipped, device = self.progress.skipped, self.accelerator.device
        for batch, damaged in self.loader.read(batches):
            for reason in damaged:
                if reason not in skipped and len(skipped) < MOST_SHOWN:
                    tqdm.write(f"left out: {reason}")
                skipped[reason] = None
            if batch is not None:
                is_pinned = device.type == "cuda"
                yield {name: value.to(device, non_blocking=is_pinned) for name, value in batch.items()}
            elif not may_be_empty:
                raise SystemExit(f"none of the {len(damaged)} videos of a batch can be read; the last: {damaged[-1]}")

    def share_skipped(self) -> None:
        """Let every process know what each could not read."""
        if self.accelerator.num_processes > 1:
            self.progress.skipped = dict.fromkeys(gather_object(list(self.progress.skipped)))

    def finish_epoch(self, loss: float) -> None:
        """Validate, and keep the best weights."""
        progress, self.metrics = self.progress, self.validate()
        progress.history.append({"loss": loss, **self.summary(self.metrics)})
        self.accelerator.log(self.tracked(loss, self.metrics), step=progress.total_steps)
        if self.KEEPS_BEST:
            state = self.trained_state()  # takes all processes, whatever each measured
            if (score := self.score_of(progress.history[-1])) > progress.best:
                progress.best = score
                if self.accelerator.is_main_process:
                    self.keep_best(state)
        self.accelerator.wait_for_everyone()
        progress.epoch, progress.step, progress.loss_sum = progress.epoch + 1, 0, 0.0
        if self.monitor:
            self.monitor.restart()

    def score_of(self, epoch: dict[str, float]) -> float:
        """What chooses the best epoch; rounded, as means of equal figures added in another order are not better."""
        return round(epoch[self.METRIC], 9)

    def keep_best(self, state: dict[str, Tensor]) -> None:
        """Replace the best weights; runs on the main process."""
        with replacing(self.best_weights) as unfinished:
            save_file({name: value.contiguous() for name, value in state.items()}, unfinished)

    @property
    def best_weights(self) -> Path:
        """The file of the best weights."""
        return self.output_dir / "best.safetensors"

    def write_model(
        self,
        model: Any,
        *processors: Any,
        state: dict[str, Tensor] | None = None,
        folder: str = "model",
        files: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Write a model, and load it again before it is there; runs on the main process.

        Args:
            model: Of transformers or PEFT.
            processors: Written beside it, as a tokenizer is.
            state: Its weights; None: those that it has.
            folder: In the output folder.
            files: Name -> what else to write there as JSON.
            options: Of `save_pretrained`.

        Raises:
            AssertionError: What is loaded is not what was trained.
        """
        with replacing(self.output_dir / folder) as unfinished:
            if hasattr(model, "peft_config"):
                from peft import get_peft_model_state_dict
                from peft.utils import load_peft_weights

                model.save_pretrained(unfinished, **options)
                state = get_peft_model_state_dict(model, **options)
                loaded = load_peft_weights(str(unfinished), device="cpu")
            else:
                state = state or model.state_dict()
                model.save_pretrained(unfinished, state_dict=dict(state), **options)  # which empties what it is given
                loaded = type(model).from_pretrained(unfinished).state_dict()
            check_same_weights(state, loaded, str(self.output_dir / folder))
            for processor in processors:
                processor.save_pretrained(unfinished)
            for name, content in (files or {}).items():
                write_json(unfinished / name, content)

    def is_exhausted(self) -> bool:
        """Whether the best epoch lies `patience` epochs back."""
        if self.patience is None or not self.progress.history:
            return False
        scores = [self.score_of(epoch) for epoch in self.progress.history]
        return len(scores) - 1 - scores.index(max(scores)) >= self.patience

    def finish(self) -> dict[str, Any]:
        """Write the model, and `results.json` last: it marks the run as complete."""
        accelerator = self.accelerator
        accelerator.wait_for_everyone()
        metrics, details = self.publish()
        self.share_skipped()
        if accelerator.is_main_process:
            if skipped := self.progress.skipped:
                reasons = [("training", Rejection(f"{DOES_NOT_DECODE}: {reason}", "")) for reason in skipped]
                write_rejections(self.output_dir, reasons)
            write_results(
                self.output_dir,
                metrics,
                config=self.config,
                seed=self.config.seed,
                history=self.progress.history,
                **({"skipped_videos": len(skipped)} if skipped else {}),
                **details,
                num_processes=accelerator.num_processes,
            )
        self.remove_leftovers()
        accelerator.wait_for_everyone()
        accelerator.end_training()
        return metrics

    def remove_leftovers(self) -> None:
        """Remove what a complete run no longer needs; one that was killed at its end left it."""
        shutil.rmtree(self.output_dir / "checkpoints", ignore_errors=True)  # of each node


def check_same_weights(trained: Mapping[str, Tensor], loaded: Mapping[str, Tensor], name: str) -> None:
    """Refuse to publish what is not what was trained.

    Raises:
        AssertionError: A weight is missing, or differs by more than rounding.

    Example:
        >>> check_same_weights({"_orig_mod.bias": torch.zeros(2)}, {"bias": torch.zeros(2)}, "model")
        Traceback (most recent call last):
        AssertionError: model would not hold what was trained: of 1 weights 1 differ or are missing, as _orig_mod.bias
    """
    differing = [
        key
        for key, value in trained.items()
        if key not in loaded
        or value.shape != loaded[key].shape
        or not torch.allclose(value.cpu().float(), loaded[key].cpu().float(), rtol=1e-5, atol=1e-7, equal_nan=True)
    ]
    if differing:
        raise AssertionError(
            f"{name} would not hold what was trained: of {len(trained)} weights {len(differing)} differ or are "
            f"missing, as {', '.join(differing[:3])}"
        )


class ReadableItems(Dataset[Any]):
    """The items of a dataset; for one whose video cannot be read, its `VideoError`."""

    def __init__(self, data: Dataset[Any]) -> None:
        self.data = data

    def __getitem__(self, index: Any) -> Any:
        try:
            return self.data[index]
        except VideoError as error:
            return error


def without_damaged(items: list[Any], collate: Callable[[list[Any]], Any]) -> tuple[Any, list[str]]:
    """The batch of the items that could be read, None where there is none; and why the others could not.

    Example:
        >>> without_damaged([1, VideoError("x.mp4: the moov atom is missing"), 2], sum)
        (3, ['x.mp4: the moov atom is missing'])
    """
    readable = [item for item in items if not isinstance(item, VideoError)]
    damaged = [" ".join(str(item).split()) for item in items if isinstance(item, VideoError)]
    return collate(readable) if readable else None, damaged


@contextmanager
def only_launch_in(folder: Path, accelerator: Accelerator) -> Iterator[None]:
    """Lock a run's folder; the main process holds the lock for all processes of a launch.

    Raises:
        OSError: Another run holds the folder, or it cannot be written.
        SystemExit: The same on the other processes, which say nothing.
    """
    with ExitStack() as held:
        refusal: OSError | None = None
        if accelerator.is_main_process:
            try:
                held.enter_context(only_run_in(folder))
            except OSError as error:
                refusal = error
        (is_refused,) = broadcast_object_list([refusal is not None])
        if refusal is not None:
            raise refusal
        if is_refused:
            raise SystemExit(1)
        yield


def epoch_seed(seed: int, epoch: int) -> int:
    """The seed of what is drawn for one epoch; no two epochs of runs with small seeds share one."""
    return seed * 1_000_003 + epoch


def epoch_batches(num_rows: int, epoch: int, config: Any, accelerator: Accelerator) -> list[Tensor]:
    """This process's part of each batch of an epoch, in an order that seed and epoch decide; see `split_batches`."""
    generator = torch.Generator().manual_seed(epoch_seed(config.seed, epoch))
    return split_batches(torch.randperm(num_rows, generator=generator), config.batch_size, accelerator)


def split_batches(order: Tensor, batch_size: int, accelerator: Accelerator) -> list[Tensor]:
    """This process's part of each batch of `order`.

    The last batch may be smaller and the parts uneven; one with fewer than two rows for each process is left out.
    """
    parts, rank = accelerator.num_processes, accelerator.process_index
    batches = [batch for batch in order.split(batch_size) if len(batch) >= 2 * parts]
    return [batch.tensor_split(parts)[rank] for batch in batches]
