"""What can be seen only where there is a GPU; `make test-gpu`. On the processor the functions run as slow tests."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState

from subtle.checking.doctor import CHECKED_RECIPES, TOLERANCES, compared, trained_losses
from subtle.run.step_costs import count_step
from subtle.train.estimates import plan_stage1
from subtle.train.options import Stage1Config

ROOT = Path(__file__).parents[2]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two CUDA devices")
ON_DEVICES = [pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=needs_gpu)]
SUM = """
import torch, torch.distributed as dist
backend, device = ("nccl", "cuda") if torch.cuda.device_count() > 1 else ("gloo", "cpu")
dist.init_process_group(backend)
where = torch.device(device, dist.get_rank() if device == "cuda" else None)
value = torch.ones(3, device=where) * (dist.get_rank() + 1)
dist.all_reduce(value)
assert value.tolist() == [3, 3, 3]
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2)).to(where)
expected = model(torch.ones(4, 8, device=where)).detach()
fully_shard(model, mesh=dist.device_mesh.init_device_mesh(device, (2,)))
assert isinstance(next(model.parameters()), DTensor)
found = model(torch.ones(4, 8, device=where))
torch.testing.assert_close(found, expected)
found.sum().backward()
dist.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("device", ON_DEVICES)
@pytest.mark.parametrize("name", CHECKED_RECIPES)
def test_ten_steps_in_bfloat16_have_the_losses_of_the_processor(name, device):
    expected, _ = trained_losses(name, "cpu", "no")
    found, speed = trained_losses(name, device, "bf16")
    check = compared(name, expected, found, TOLERANCES["bf16"], f"{speed:.1f} rows/s")
    assert check.state == "ok", check.found


@pytest.mark.parametrize("device", ON_DEVICES)
def test_a_compiled_model_trains_as_one_that_is_not(device):
    def compile_model(run):
        run.model = torch.compile(run.model)

    expected, _ = trained_losses("stage1", device, "no")
    found, _ = trained_losses("stage1", device, "no", compile_model)
    assert compared("stage1", expected, found, TOLERANCES["no"], "").state == "ok"


@pytest.mark.parametrize("checkpointing", [False, True])
@needs_gpu
def test_memory_is_what_the_dry_run_says(checkpointing):
    config = Stage1Config(
        base="openai/clip-vit-base-patch16",
        batch_size=8,
        activation_checkpointing=checkpointing,
        num_temporal_adapters=1,
        adapter_ratio=0.25,
    )
    plan = plan_stage1(config, 1)
    estimated = count_step(plan.model.train(), plan.loss_of, precision="bf16")
    real = plan_stage1(config, 1)
    model = real.model.to_empty(device="cuda").train()
    with torch.no_grad():
        for part in (*model.parameters(), *model.buffers()):
            part.zero_()
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-4)
    torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        with torch.device("cuda"), torch.autocast("cuda", dtype=torch.bfloat16):
            loss = real.loss_of(model)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    expected = sum(estimated.memory_bytes().values())
    assert torch.cuda.max_memory_allocated() == pytest.approx(expected, rel=0.25)


@pytest.mark.parametrize(
    "devices", [pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=needs_two)]
)
def test_two_processes_add_up_and_share_weights(devices, tmp_path):
    (tmp_path / "sum.py").write_text(SUM)
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(tmp_path / "sum.py")]
    subprocess.run(words, check=True, timeout=300)


@needs_two
def test_stage_2_trains_in_shards(tmp_path):
    files = [str(ROOT / "recipes" / name) for name in ("accelerate/8xa100_fsdp2.yaml", "stage2.py")]
    weights = ROOT / "recipes" / "weights"
    words = ["--end_to_end", "true", "--vision_model", f"{weights / 'miniature-clip'}", "--num_frames", "2"]
    words += ["--max_steps", "4", "--batch_size", "8", "--num_workers", "0", "--output_dir", str(tmp_path)]
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", files[0], "--num_processes", "2"]
    wrapped = ["--fsdp_transformer_layer_cls_to_wrap", "CLIPEncoderLayer"]
    subprocess.run([*launch, *wrapped, files[1], *words], check=True, timeout=600)
    assert (tmp_path / "model" / "model.safetensors").is_file()


@needs_gpu
def test_an_index_is_made_faster_than_on_the_processor(tmp_path):
    verb, seconds = ROOT / "recipes" / "index.py", {}
    for device in ("cpu", "cuda"):
        words = ["--device", device, "--output", str(tmp_path / device), "--batch_size", "64"]
        begin = time.perf_counter()
        subprocess.run([sys.executable, str(verb), *words], check=True, timeout=900)
        seconds[device] = time.perf_counter() - begin
    assert seconds["cuda"] < seconds["cpu"]
