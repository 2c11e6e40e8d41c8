"""What `--dry_run` of a training recipe counts: the same without values as with them, for every kind of recipe."""

from pathlib import Path

import pytest
import torch

from subtle.options import parse_config
from subtle.run.architectures import KNOWN, read_sizes
from subtle.run.gpus import GPUS
from subtle.run.step_costs import count_step
from subtle.train import estimates
from subtle.train.estimates import estimate_run, plan_stage1
from subtle.train.options import NoiseEvaluatorConfig, Stage1Config, Stage2Config, VCMRConfig, VidCLIPRunConfig

ON_PAPER = {
    "stage1": (Stage1Config, ["--num_frames", "2", "--batch_size", "2"], "AIM, adapters, on miniature-clip"),
    "stage2": (Stage2Config, ["stage2_one_gpu.yaml"], "35,156 steps"),
    "end to end": (Stage2Config, ["--end_to_end", "true", "--vision_model", "outputs/stage1/model"], "not known"),
    "vcmr": (VCMRConfig, ["vcmr_charades_fig.yaml", "vcmr_xml.yaml"], "9,693 steps"),
    "hero": (VCMRConfig, ["--model", "hero"], "not known"),
    "vidclip": (VidCLIPRunConfig, ["--max_steps", "7"], "7 steps"),
    "negclip": (VidCLIPRunConfig, ["--objective", "negclip", "--stack", "2", "--captioning_weight", "2"], "not known"),
    "noise_evaluator": (NoiseEvaluatorConfig, [], "not known"),
}


@pytest.mark.parametrize("checkpointing", [False, True])
def test_what_is_counted_without_values_is_what_a_real_step_holds(checkpointing):
    config = Stage1Config(batch_size=4, activation_checkpointing=checkpointing, num_frames=4)
    fake, real = plan_stage1(config, 1), plan_stage1(config, 1)
    found = count_step(fake.model.train(), fake.loss_of)
    for part in (*real.model.to_empty(device="cpu").parameters(), *real.model.buffers()):
        part.detach().zero_()  # places in a table, among others
    measured = count_step(real.model.train(), real.loss_of, fake=False)
    assert (found.parameters, found.trained_parameters) == (measured.parameters, measured.trained_parameters)
    for what in ("saved_bytes", "peak_bytes", "flops"):  # up to 1.7 % were seen
        assert getattr(found, what) == pytest.approx(getattr(measured, what), rel=0.03), what
    assert found.peak_bytes > found.saved_bytes > 0


@pytest.mark.parametrize("name", ON_PAPER)
def test_every_kind_of_training_is_estimated_without_data_or_weights(name, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    kind, words, says = ON_PAPER[name]
    estimates.main(parse_config(kind, None, [*words, "--dry_run"]))
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    assert all(part in shown for part in ("GPU memory:", "activations", "RTX 4090 (24)", "TFLOP", says))
    assert not [*tmp_path.iterdir()]


def test_stage_1_on_one_gpu_fits_24_gb():
    run = estimate_run(parse_config(Stage1Config, None, ["stage1_one_gpu.yaml"]))
    assert 5e9 < run.memory_bytes < 0.9 * GPUS["RTX 4090"][0] * 2**30
    assert run.hours("H100") < run.hours("A100") < 20
    halves = estimate_run(parse_config(Stage1Config, None, ["--batch_size", "24"]), 2)
    assert halves.memory["gradients"] == 2 * halves.cost.gradient_bytes


def test_a_model_of_unknown_size_is_refused_with_the_names_that_are_known():
    with pytest.raises(ValueError, match=r"sizes of some/model are not known.*openai/clip-vit-base-patch16"):
        estimate_run(Stage1Config(base="some/model"))
    assert all(read_sizes(name) is not None for name in KNOWN)


def test_shards_hold_a_part_of_what_each_process_would():
    with torch.device("meta"):
        model = torch.nn.Linear(100, 100)
    cost = count_step(model, lambda model: model(torch.ones(3, 100)).sum(), precision="bf16")
    whole, shard = cost.memory_bytes(4), cost.memory_bytes(4, sharded=True)
    assert [whole[name] / shard[name] for name in ("weights", "gradients", "optimizer")] == [4, 8, 4]


def test_a_dry_run_of_a_configuration_for_a_gpu_needs_none(tmp_path, warm_python):
    recipe = Path(__file__).parents[3] / "recipes" / "vcmr.py"
    done = warm_python.run([recipe, "vcmr_didemo_fig.yaml", "--dry_run"], cwd=tmp_path)
    assert done.stdout.startswith("trains:"), done.stderr
    assert done.returncode == 0
    assert not [*tmp_path.iterdir()]
