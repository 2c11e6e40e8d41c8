"""The life of a training run: what it writes, resumes and removes, when it stops, and that two runs share no folder."""

import json
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import tracking
from accelerate.tracking import GeneralTracker
from filelock import FileLock
from safetensors.torch import load_file
from trained_alike import stopped_after
from transformers import get_linear_schedule_with_warmup

from subtle.run import locks, step_monitor, training
from subtle.run.locks import LOCK
from subtle.run.schedules import rate_factor
from subtle.run.shared_config import TrainingRunConfig
from subtle.run.step_monitor import StepMonitor
from subtle.run.training import TrainingRun, epoch_batches, split_batches

HOLD = f"""
import sys, time
from filelock import FileLock
lock = FileLock(sys.argv[1] + "/{LOCK}")
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


@dataclass
class SmallConfig(TrainingRunConfig):
    epochs: int = 3
    warmup_steps: int = 0
    output_dir: str = "run"


class SmallRun(TrainingRun):
    """Two steps an epoch on one linear layer; validation scores come from a list."""

    NAME, METRIC = "small", "score"
    scores = (0.1, 0.3, 0.2, 0.1, 0.9)

    def __init__(self, config):
        super().__init__(config)
        model = torch.nn.Linear(2, 1)
        self.model, self.optimizer = self.accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.1))

    def count_steps(self):
        return 2

    def train_epoch(self):
        for step in self.fetched(range(self.progress.step, self.steps_per_epoch)):
            loss = (self.model(torch.rand(4, 2)) - 1).square().mean()
            self.accelerator.backward(loss)
            self.clip_gradients()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.finish_step(loss, [f"row {step}"] * 4)

    def validate(self):
        return {"score": self.scores[self.progress.epoch], "other": 1.0}

    def publish(self):
        (self.output_dir / "model").mkdir(exist_ok=True)
        shutil.copy(self.best_weights, self.output_dir / "model/model.safetensors")
        return {"score": self.progress.best}, {"coverage": {"train": 8}}


@pytest.fixture
def config(tmp_path):
    return SmallConfig(device="cpu", checkpoint_steps=3, output_dir=str(tmp_path / "run"))


@pytest.fixture
def no_wait(monkeypatch):
    monkeypatch.setattr(locks, "LOCK_SECONDS", 0.05)


def files(folder):
    return {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file()}


def train_until(method, config):
    """Train, and stop where this method is called."""

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SmallRun, method, interrupt)
        with pytest.raises(KeyboardInterrupt):
            SmallRun(config).train()


def test_a_complete_run_leaves_results_and_the_weights_of_the_best_epoch(config, tmp_path):
    best, kept = [], SmallRun.keep_best

    class Watched(SmallRun):
        def keep_best(self, state):
            best.append({name: value.clone() for name, value in state.items()})
            kept(self, state)

    assert Watched(config).train() == {"score": 0.3}
    assert files(config.output_dir) == {"best.safetensors", "model/model.safetensors", "results.json", "run.json", LOCK}
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    always = ["figures", "config", "seed", "date", "code_revision", "versions"]
    assert list(results) == [*always, "history", "coverage", "num_processes"]
    assert [epoch["score"] for epoch in results["history"]] == [0.1, 0.3, 0.2]
    assert len(best) == 2
    published = load_file(tmp_path / "run/model/model.safetensors")
    assert all(torch.equal(published[name], value) for name, value in best[-1].items())


def test_the_checkpoint_layout_stays_as_earlier_versions_wrote_it(config, tmp_path):
    train_until("publish", config)
    names = ("model.safetensors", "optimizer.bin", "random_states_0.pkl", "progress.json")
    assert files(tmp_path / "run" / "checkpoints") == {f"step-0000000006/{name}" for name in names}
    progress = json.loads((tmp_path / "run/checkpoints/step-0000000006/progress.json").read_text())
    place, sums = ["epoch", "step", "total_steps"], ["loss_sum", "best", "history", "skipped"]
    assert list(progress) == [*place, *sums, "steps_per_epoch", "sizes"]
    assert (progress["epoch"], progress["step"], progress["total_steps"]) == (2, 2, 6)
    assert [list(epoch) for epoch in progress["history"]] == [["loss", "score", "other"]] * 2


@pytest.mark.parametrize("stopped_at", [None, 4, 5])
def test_max_steps_end_a_run_within_an_epoch_also_one_that_was_stopped(config, stopped_at):
    config.max_steps, config.epochs, config.checkpoint_steps = 5, 1, 1
    if stopped_at:
        with stopped_after(stopped_at):
            SmallRun(config).train()
    run = SmallRun(config)
    run.train()
    assert run.progress.total_steps == run.total_steps == 5
    assert [epoch["score"] for epoch in run.progress.history] == [0.1, 0.3, 0.2]
    assert run.optimizer.param_groups[0]["lr"] == 0.0  # the schedule has come to its end


def test_a_run_killed_before_it_removed_its_checkpoints_loses_them_at_the_next_start(config, monkeypatch, capsys):
    train_until("remove_leftovers", config)
    assert Path(config.output_dir, "checkpoints").is_dir()
    monkeypatch.setattr(SmallRun, "train_epoch", None)  # would fail
    assert SmallRun(config).train() == {"score": 0.3}
    assert "says that this run is complete; --restart trains again from scratch" in capsys.readouterr().out
    assert not Path(config.output_dir, "checkpoints").exists()
    model = Path(config.output_dir, "model/model.safetensors")
    model.write_bytes(model.read_bytes()[:-1])
    with pytest.raises(SystemExit, match=r"model.safetensors is damaged .* give --restart to train again"):
        SmallRun(config).train()


@pytest.mark.parametrize("how", ["SIGTERM", "SIGUSR1", "max_hours"])
def test_a_run_told_to_stop_writes_a_checkpoint_ends_for_requeueing_and_goes_on(config, tmp_path, how):
    SmallRun(config).train()
    stopped = replace(config, output_dir=str(tmp_path / "stopped"), checkpoint_steps=100)
    stopped.max_hours = 0.0 if how == "max_hours" else None
    handler = signal.getsignal(signal.SIGTERM)

    class ToldToStop(SmallRun):
        def train_epoch(self):
            if how != "max_hours":
                os.kill(os.getpid(), getattr(signal, how))
            super().train_epoch()

    with pytest.raises(SystemExit) as raised:
        ToldToStop(stopped).train()
    assert raised.value.code == 75
    assert signal.getsignal(signal.SIGTERM) is handler
    (checkpoint,) = (tmp_path / "stopped/checkpoints").iterdir()
    assert checkpoint.name == "step-0000000001"
    stopped.max_hours = None
    SmallRun(stopped).train()
    folders = [Path(one.output_dir) for one in (config, stopped)]
    whole, resumed = ((folder / "model/model.safetensors").read_bytes() for folder in folders)
    assert whole == resumed
    whole, resumed = (json.loads((folder / "results.json").read_text())["history"] for folder in folders)
    assert whole == resumed


class Recorder(GeneralTracker):
    """A tracker that keeps what it is told: `(step, values)`."""

    name, requires_logging_directory, told = "tensorboard", False, []

    def __init__(self, run_name):
        super().__init__()

    @property
    def tracker(self):
        return self

    def store_init_configuration(self, values):
        self.told.clear()

    def log(self, values, step):
        self.told.append((step, values))


@pytest.fixture
def recorder(monkeypatch):
    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, "tensorboard", Recorder)
    monkeypatch.setattr(tracking, "_available_trackers", [tracking.LoggerType.TENSORBOARD])
    return Recorder.told


class Measured(SmallRun):
    """Remembers the loss and the gradient norm of each step, the latter by another way; each batch takes a while."""

    def train_epoch(self):
        self.seen = getattr(self, "seen", [])
        super().train_epoch()

    def fetched(self, batches):
        return super().fetched(time.sleep(0.01) or batch for batch in batches)

    def clip_gradients(self):
        self.norm = math.sqrt(sum(weight.grad.square().sum().item() for weight in self.model.parameters()))
        super().clip_gradients()

    def finish_step(self, loss, rows):
        self.seen.append((loss.item(), self.norm))
        super().finish_step(loss, rows)


@pytest.mark.parametrize("clipped", [0.0, 0.05])
def test_a_tracker_is_told_of_every_tenth_step_what_it_was(config, recorder, monkeypatch, tmp_path, clipped):
    config.epochs, config.warmup_steps, config.max_gradient_norm = 6, 4, clipped
    alone = replace(config, output_dir=str(tmp_path / "alone"))
    config.tracker = "tensorboard"
    monkeypatch.setattr(SmallRun, "scores", (0.1,) * 6)
    monkeypatch.setattr(step_monitor, "peak_flops", lambda _: 1e6)
    monkeypatch.setattr(training, "StepMonitor", lambda device, **_: StepMonitor(device, is_half=True))
    run = Measured(config)
    run.train()
    steps = {step: values for step, values in recorder if "step/loss" in values}
    assert list(steps) == [1, 11]
    for step, values in steps.items():
        loss, norm = run.seen[step - 1]
        assert values["step/loss"] == pytest.approx(loss)
        assert values["step/gradient_norm"] == pytest.approx(norm, rel=1e-5)
        assert values["step/learning_rate"] == pytest.approx(0.1 * rate_factor(step - 1, 12, 4))
        assert 0 < values["step/rows_per_second"] <= 4 / 0.01
        assert 0 < values["step/share_waiting_for_data"] <= 1
        assert 0.01 < values["step/peak_memory_gigabytes"] < 100
        # four rows of two numbers and one result, forward, and for the gradient of the weights
        assert values["step/flop_utilization"] == pytest.approx(values["step/rows_per_second"] * 2 * 4 / 1e6)
    assert [step for step, values in recorder if "train/loss" in values] == [2, 4, 6, 8, 10, 12]
    SmallRun(alone).train()
    told, untold = (load_file(Path(one.output_dir, "model/model.safetensors")) for one in (config, alone))
    assert all(torch.equal(told[name], value) for name, value in untold.items())


def test_a_tracker_that_is_not_there_is_refused_with_those_that_are(config, recorder):
    config.tracker = "wandb"
    with pytest.raises(SystemExit, match=r"--tracker wandb: there is tensorboard; install its package"):
        SmallRun(config)


def test_a_profiled_run_writes_a_trace_of_three_steps_and_the_same_weights(config, tmp_path):
    config.epochs = 5
    SmallRun(config).train()
    profiled = replace(config, output_dir=str(tmp_path / "profiled"), profile=True)
    SmallRun(profiled).train()
    events = json.loads((tmp_path / "profiled/trace_0.json").read_text())["traceEvents"]
    steps = {event["name"] for event in events if event.get("name", "").startswith("ProfilerStep")}
    assert steps == {"ProfilerStep#4", "ProfilerStep#5", "ProfilerStep#6"}
    plain, traced = (Path(one.output_dir, "model/model.safetensors").read_bytes() for one in (config, profiled))
    assert plain == traced


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA A10", None),
        ("", None),
    ],
)
def test_the_peak_of_a_gpu_is_known_by_its_whole_name_or_not_at_all(name, peak):
    assert step_monitor.peak_flops(name) == peak


def test_a_worker_outlives_the_signal_that_its_whole_group_gets(config):
    def signaled(times):
        signal.raise_signal(signal.SIGUSR1)  # which is said to its parent
        for _ in range(times):
            signal.raise_signal(signal.SIGTERM)

    with SmallRun(config).heeding_signals():
        workers = [multiprocessing.get_context("fork").Process(target=signaled, args=(times,)) for times in (1, 2)]
        for worker in workers:
            worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, -signal.SIGTERM]


def test_a_loss_that_is_not_finite_ends_the_run_and_names_step_and_rows_but_keeps_the_checkpoint(config, tmp_path):
    class Diverging(SmallRun):
        def finish_step(self, loss, rows):
            super().finish_step(loss / (0 if self.progress.total_steps == 3 else 1), rows)

    config.checkpoint_steps = 2
    with pytest.raises(SystemExit, match=r"the loss of step 4 is inf, among rows row 1; the last checkpoint"):
        Diverging(config).train()
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["step-0000000002"]


@pytest.mark.parametrize("share", [pytest.param(0, marks=pytest.mark.slow), 0.5])
def test_a_run_whose_checkpoint_is_cut_says_so_and_how_to_go_on(config, tmp_path, share):
    train_until("publish", config)
    names = sorted(files(config.output_dir) - {LOCK})
    assert len(names) == 6
    for number, name in enumerate(names):
        copy = tmp_path / str(number)
        shutil.copytree(config.output_dir, copy)
        content = (copy / name).read_bytes()
        (copy / name).write_bytes(content[: int(share * len(content))])
        cut = replace(config, output_dir=str(copy))
        with pytest.raises(SystemExit, match=rf"{Path(name).name} is damaged.* give --restart to train again"):
            SmallRun(cut).train()
        cut.restart = True
        assert SmallRun(cut).train() == {"score": 0.3}
        results = copy / "results.json"
        results.write_bytes(results.read_bytes()[: int(share * results.stat().st_size)])
        with pytest.raises(SystemExit, match=r"results.json is damaged.* give --restart to train again"):
            SmallRun(replace(cut, restart=False)).train()


def test_training_stops_after_as_many_epochs_without_a_better_score_as_patience_says(config, tmp_path):
    config.epochs = 5
    run = SmallRun(config)
    run.patience = 2
    assert run.train() == {"score": 0.3}
    assert len(json.loads((tmp_path / "run" / "results.json").read_text())["history"]) == 4


def test_a_mean_of_equal_figures_in_another_order_is_no_better_score(config, monkeypatch):
    monkeypatch.setattr(SmallRun, "scores", (0.6, 0.1 + 0.2 + 0.3, 0.5))
    run = SmallRun(config)
    run.patience = 2
    assert run.scores[1] > run.scores[0]
    run.train()
    assert run.progress.best == 0.6
    assert run.is_exhausted()


def test_a_score_that_is_not_a_number_does_not_replace_the_best_weights(config, monkeypatch):
    monkeypatch.setattr(SmallRun, "scores", (0.5, float("nan"), 0.4))
    assert SmallRun(config).train() == {"score": 0.5}


def test_a_second_run_in_a_folder_is_refused_until_the_first_has_ended_or_was_killed(config, no_wait, capsys):
    folder = Path(config.output_dir)
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(OSError, match=rf"{folder}; wait until it ends, or name another --output_dir") as end:
            SmallRun(config)
        assert "\n" not in str(end.value)
        assert files(folder) == {LOCK}
        first.send_signal(signal.SIGKILL)
    assert SmallRun(config).train() == {"score": 0.3}


def test_a_run_in_a_folder_that_another_run_completed_first_writes_nothing(config, no_wait):
    run = SmallRun(config)
    with FileLock(Path(config.output_dir, LOCK)), pytest.raises(OSError, match="another run is writing"):
        run.train()
    assert files(config.output_dir) == {LOCK}


def test_a_folder_that_cannot_be_written_is_a_mistake_that_one_can_fix(config, tmp_path):
    (tmp_path / "file").write_text("a file, no folder")
    config.output_dir = str(tmp_path / "file")
    with pytest.raises(OSError, match=r"file cannot be written .* run again"):  # `run_recipe` makes it status 2
        SmallRun(config)


def test_the_learning_rate_rises_then_falls_to_zero():
    rates = [rate_factor(step, 104, 4) for step in range(105)]
    assert rates[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates[54] == pytest.approx(0.5)
    assert rates[104] == pytest.approx(0.0)


def test_a_cosine_that_moves_once_per_epoch_is_that_of_the_release():
    """Its `CosineSchedule`, called with the number of the epoch: (1 + cos(pi epoch / epochs)) / 2."""
    rates = [2 * rate_factor(step, 5 * 7, 0, steps_at_once=7) for step in range(5 * 7)]
    assert rates == pytest.approx([1 + math.cos(math.pi * epoch / 5) for epoch in range(5) for _ in range(7)])


@pytest.mark.parametrize("warmup", [0, 1, 7, 30])
def test_a_line_that_starts_at_zero_is_that_of_transformers(warmup):
    (weight,) = torch.nn.Linear(1, 1, bias=False).parameters()
    optimizer = torch.optim.SGD([weight], lr=2.0)
    schedule, rates = get_linear_schedule_with_warmup(optimizer, warmup, 30), []
    for _ in range(30):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    ours = [2 * rate_factor(step, 30, warmup, shape="linear", first=0) for step in range(30)]
    assert ours == pytest.approx(rates)


def test_every_row_is_in_one_batch_of_one_process_and_a_batch_too_small_for_all_is_left_out(config):
    config.batch_size = 4
    processes = [SimpleNamespace(num_processes=2, process_index=place) for place in (0, 1)]
    first, second = (epoch_batches(15, 3, config, process) for process in processes)
    assert [len(batch) for batch in first] == [len(batch) for batch in second] == [2, 2, 2]
    assert torch.cat([*first, *second]).unique().numel() == 12
    assert not torch.equal(torch.cat(first), torch.cat(epoch_batches(15, 4, config, processes[0])))
    alone = split_batches(torch.arange(9), 4, SimpleNamespace(num_processes=1, process_index=0))
    assert [batch.tolist() for batch in alone] == [[0, 1, 2, 3], [4, 5, 6, 7]]
