"""All rows of Table 3 by one command: measured once each, resumed, merged, and each missing one with its reason."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from trained_alike import assert_trained_alike, stopped_after
from transformers import CLIPVisionConfig

from hf_models import TFCoVRConfig
from hf_models.tfcovr.fusion import GatedFusion
from subtle.options import parse_config
from subtle.table import cross_attention, finetune_baseline
from subtle.table.finetune_baseline import run_config
from subtle.table.options import FinetuneConfig
from subtle.table.rows import changes
from subtle.table.table import main
from subtle.tfcovr.finetuned_rows import ROWS
from tests.subtle.conftest import save_aim

NAMES = [row.name for row in ROWS]
CROSS_ATTENTION = next(row for row in ROWS if row.name == "blip-covr")
ECDE = next(row for row in ROWS if row.name == "blip-covr-ecde")


@pytest.fixture(scope="module")
def aim_of_12_frames(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aim") / "model"
    save_aim(folder, num_frames=12)
    return str(folder)


@pytest.fixture(scope="module")
def shared(tiny, aim_of_12_frames, caches, tmp_path_factory):
    """A configuration for the tiny dataset, whose embeddings and random models all tests of this file share."""
    root = tmp_path_factory.mktemp("finetune")
    places = {"embeddings": str(root / "base"), "cache_dir": str(root / "frames"), "output_dir": str(root / "table")}
    small = {"projection_dim": 16, "fusion_hidden_dim": 16, "batch_size": 64, "epochs": 1, "seeds": [0]}
    return FinetuneConfig(**tiny | {"vision_model": aim_of_12_frames}, **places, **small, split="test")


def results_of(folder):
    return json.loads(Path(folder, "results.json").read_text())


def weights(run):
    return load_file(Path(run.output_dir) / "model" / "model.safetensors")


def covr(shared, folder, row=CROSS_ATTENTION, **changes):
    """A run with cross attention, in a folder of its own, on the shared embeddings."""
    run = run_config(row, shared, 0)
    run = finetune_baseline.with_random_models(run, shared)
    return replace(run, output_dir=str(folder), **changes)


def test_one_command_measures_all_ten_rows_and_a_second_one_measures_none(shared, monkeypatch, capsys):
    assert main(shared) == 0
    table = results_of(shared.output_dir)
    assert list(table["figures"]) == NAMES
    assert all(0 < metrics["map@50"] <= 1 for metrics in table["figures"].values())
    columns = {name: row["columns"] for name, row in table["rows"].items()}
    assert columns["blip2-video"]["weights"] == "random weights"
    assert columns["blip-covr-ecde"]["weights"] == "random weights; label captions"
    assert [columns[name]["query frames"] for name in ("blip2-text", "clip-mlp-1", "clip-mlp-15")] == ["-", 1, 15]
    monkeypatch.setattr(finetune_baseline.Table3, "measure", None)
    assert main(shared) == 0
    assert results_of(shared.output_dir)["figures"] == table["figures"]
    with pytest.raises(ValueError, match="measured with other learning_rate; name another --output_dir"):
        main(replace(shared, learning_rate=0.5))
    merged = replace(shared, output_dir=f"{shared.output_dir}-elsewhere", merge=[shared.output_dir])
    assert main(merged) == 0
    assert results_of(merged.output_dir)["figures"] == table["figures"]


@pytest.mark.parametrize(
    ("row", "size", "parameters"), [("blip2-mlp-1", 256, 9_445_633), ("clip-mlp-1", 1024, 62_936_065)]
)
def test_the_combiners_have_the_released_numbers_of_parameters(row, size, parameters):
    widths = next(each for each in ROWS if each.name == row).combiner
    vision = CLIPVisionConfig(hidden_size=size, num_attention_heads=1)
    sizes = {"fusion_projection_dim": round(widths[0] * size), "fusion_hidden_dim": round(widths[1] * size)}
    with torch.device("meta"):
        fusion = GatedFusion(TFCoVRConfig(vision_config=vision, fusion="gated", **sizes))
    assert sum(weight.numel() for weight in fusion.parameters()) == parameters


def test_a_row_that_fails_is_named_and_costs_no_other_row(shared, tiny, tmp_path, capsys):
    config = replace(shared, vision_model=tiny["vision_model"], embeddings=str(tmp_path / "aim"), blip_model=None)
    config = replace(config, rows=["blip2-text", "clip-mlp-15", "blip-covr", "tf-covr-base"])
    config = replace(config, blip2_model=str(tmp_path / "no-model"), seeds=[0, 1], output_dir=str(tmp_path))
    assert main(config) == 1
    table = results_of(tmp_path)
    assert list(table["figures"]) == ["clip-mlp-15"]
    assert table["figures"]["clip-mlp-15"]["map@50_std"] > 0
    assert "no-model" in table["failed"]["blip2-text"]
    assert "takes 4 frames, not 12" in table["failed"]["tf-covr-base"]
    printed = (tmp_path / "table.md").read_text()
    assert printed.count("not measured: name a model with --blip_model") == 2
    assert all(f"| {name} |" in printed for name in NAMES)


def test_cross_attention_learns_and_a_stopped_run_ends_with_the_same_weights(shared, tmp_path):
    whole = covr(shared, tmp_path / "whole", epochs=3, batch_size=32, checkpoint_steps=5, learning_rate=3e-3)
    cross_attention.CrossAttentionTraining(whole, None).train()
    first, *_, last = [epoch["loss"] for epoch in results_of(whole.output_dir)["history"]]
    assert last < 0.9 * first
    stopped = replace(whole, output_dir=str(tmp_path / "stopped"))
    with stopped_after(5):
        cross_attention.CrossAttentionTraining(stopped, None).train()
    cross_attention.CrossAttentionTraining(stopped, None).train()
    assert_trained_alike(whole.output_dir, stopped.output_dir)
    expected = weights(whole)
    start = load_file(Path(whole.model) / "model.safetensors")
    moved = {name.split(".")[0] for name in start if not torch.equal(start[name], expected[name])}
    assert moved == {"text_encoder", "text_proj"}


def test_vision_states_made_for_each_batch_train_the_same_weights_as_stored_ones(shared, tmp_path, monkeypatch):
    runs = [covr(shared, tmp_path / str(size)) for size in (2.0, 0.0)]
    for run, size in zip(runs, (2.0, 0.0), strict=True):
        monkeypatch.setattr(cross_attention, "STATES_GIGABYTES", size)
        cross_attention.CrossAttentionTraining(run, None).train()
    stored, made = map(weights, runs)
    for name, value in stored.items():
        torch.testing.assert_close(made[name], value, atol=1e-5, rtol=1e-4)


def test_a_clip_without_description_is_left_out_of_ecde_and_counted(shared, tmp_path):
    captions = tmp_path / "captions.csv"
    rows = finetune_baseline.descriptions_of(shared).texts
    captions.write_text("clip_id,caption\n" + "".join(f"{one},it is {text}\n" for one, text in list(rows.items())[1:]))
    config = replace(shared, captions=str(captions))
    descriptions = finetune_baseline.descriptions_of(config)
    assert descriptions.unusable == {next(iter(rows)): "not in the file"}
    run = covr(config, tmp_path / "run", ECDE)
    metrics, details = finetune_baseline.measure_cross_attention(run, config)
    assert 0 < metrics["map@50"] <= 1
    assert details["captions"]["unusable"] == {"not in the file": 1}
    coverage = results_of(run.output_dir)["coverage"]["train"]
    assert coverage["usable"] < coverage["triplets"]


def test_other_captions_of_the_same_name_make_another_training(shared, tmp_path):
    captions, made = tmp_path / "captions.csv", []
    for text in ("it turns", "it spins"):
        captions.write_text(f"clip_id,caption\ntest-red-0,{text}\n")
        config = replace(shared, captions=str(captions))
        made.append((run_config(ECDE, config, 0).output_dir, finetune_baseline.Table3(config).settings(ECDE)))
    (one, settings), (other, other_settings) = made
    assert one != other
    assert changes(settings, other_settings) == ["captions_digest"]


def test_a_dry_run_loads_nothing_and_names_every_row(shared, tmp_path, capsys):
    assert main(replace(shared, dry_run=True, blip_model=None, output_dir=str(tmp_path / "no"))) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in NAMES)
    assert "random weights" in printed
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rows", "clip"], "there is no row 'clip'; there are blip2-text, "),
        (["--seeds", "1", "1"], "--seeds must be different numbers, at least one, not [1, 1]"),
        (["--query_frames", "1"], "--query_frames is decided by each row"),
    ],
)
def test_what_a_row_decides_and_rows_that_are_not_there_are_refused(words, message, capsys):
    with pytest.raises(SystemExit):
        parse_config(FinetuneConfig, None, words)
    assert message in capsys.readouterr().err


def test_a_model_without_cross_attention_is_refused(shared, tmp_path):
    run = replace(run_config(CROSS_ATTENTION, shared, 0), model=shared.clip_model, output_dir=str(tmp_path))
    with pytest.raises(ValueError, match="a 'clip' model, whose text encoder does not look at a frame; take a BLIP"):
        cross_attention.CrossAttentionTraining(run, None)
