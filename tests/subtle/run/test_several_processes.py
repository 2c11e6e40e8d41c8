"""Training by several processes: every remainder of validation, weights in shards, and one launch for all checks."""

import json
import os
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from accelerate.utils import DistributedType, DynamoBackend
from safetensors.torch import load_file
from several_processes import SureStage2, accuracies_by_size, end_to_end_embeddings

from subtle.run.training import TrainingRun
from subtle.train.options import Stage1Config, Stage2Config

SCRIPT = Path(__file__).parents[2] / "fixtures" / "several_processes.py"


@pytest.fixture(scope="module")
def configs(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    data = {"dataset": tiny["dataset"], "base": str(Path(tiny["vision_model"]).parent / "clip")}
    here = {"cache_frames": False, "num_workers": 0, "device": "cpu"}
    stage1 = Stage1Config(**data, **here, num_frames=4, batch_size=4, output_dir=str(folder / "stage1"))
    sizes = {"projection_dim": 16, "fusion_hidden_dim": 32, "fusion_dropout": 0.0, "batch_size": 9, "max_steps": 3}
    return {
        "stage1": stage1,
        "sharded": Stage2Config(**tiny, **sizes, end_to_end=True, output_dir=str(folder / "sharded")),
    }


@pytest.fixture(scope="module")
def launches(configs, tmp_path_factory, warm_python):
    """What several processes left, by their number."""

    @cache
    def launched(count):
        folder = tmp_path_factory.mktemp(f"by{count}")
        given = {name: asdict(config) for name, config in configs.items() if count == 3 or name == "stage1"}
        (folder / "given.json").write_text(json.dumps(given))
        environment = os.environ | {"HF_DATASETS_CACHE": str(folder / "cache"), "ACCELERATE_USE_CPU": "true"}
        for done in warm_python.run_ranks(count, [SCRIPT, folder / "given.json", folder], env=environment):
            assert done.returncode == 0, done.stderr[-4000:]
        return folder

    return launched


@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(4, marks=pytest.mark.slow)])
def test_stage_1_validates_any_number_of_clips_as_one_process_does(launches, configs, count):
    alone = accuracies_by_size(configs["stage1"])
    assert len(alone) == 8
    assert len({one["accuracy"] for one in alone}) > 2
    for rank in range(count):
        found = json.loads((launches(count) / f"accuracies{rank}.json").read_text())
        assert [one["accuracy"] for one in found] == pytest.approx([one["accuracy"] for one in alone])


def test_end_to_end_validation_of_two_processes_encodes_the_videos_of_one(launches, configs, tmp_path):
    config = replace(configs["sharded"], output_dir=str(tmp_path / "alone"))
    expected = end_to_end_embeddings(config)
    assert expected.any(1).sum() > 2
    for rank in range(3):
        torch.testing.assert_close(torch.load(launches(3) / f"embeddings{rank}.pt"), expected, atol=1e-5, rtol=1e-4)


def test_stage_2_in_shards_also_stopped_and_gone_on_publishes_the_weights_of_one_process(launches, configs, tmp_path):
    config = replace(configs["sharded"], output_dir=str(tmp_path / "alone"))
    assert launches(3)
    SureStage2(config).train()
    folders = [config.output_dir, *(f"{configs['sharded'].output_dir}{suffix}" for suffix in ("", "-stopped"))]
    alone, sharded, resumed = (load_file(Path(folder, "model/model.safetensors")) for folder in folders)
    torch.testing.assert_close(sharded, alone, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(resumed, sharded)


@pytest.mark.parametrize(
    ("shards", "version", "compiler", "says"),
    [
        (False, 2, "no", r"but tried supports neither FSDP nor another.*8xa100.yaml"),
        (True, 1, "no", r"supports only FSDP version 2.*8xa100.yaml"),
        (True, 2, "inductor", r"a compiler beside FSDP.*leave out dynamo_config"),
        (True, 2, "no", None),
    ],
)
def test_a_recipe_that_cannot_publish_from_shards_refuses_them_with_the_cure(shards, version, compiler, says):
    run = Mock(NAME="tried", TRAINS_IN_SHARDS=shards)
    run.accelerator.distributed_type, run.accelerator.is_fsdp2 = DistributedType.FSDP, version == 2
    run.accelerator.state.dynamo_plugin.backend = DynamoBackend(compiler.upper())
    with pytest.raises(SystemExit, match=says) if says else nullcontext():
        TrainingRun.refuse_shards(run)


def test_nodes_that_share_no_folder_go_on_from_the_checkpoint_of_the_main_process(tmp_path, warm_python):
    script = SCRIPT.with_name("separate_nodes.py")
    for done in warm_python.run_ranks(2, [script, tmp_path], env=os.environ | {"ACCELERATE_USE_CPU": "true"}):
        assert done.returncode == 0, done.stderr[-4000:]
    names = ("whole0", "whole1", "node0", "node1")
    models = [json.loads((tmp_path / name / "model.json").read_text()) for name in names]
    assert all(model == models[0] for model in models)
    assert not list(tmp_path.glob("*/checkpoints"))
