"""VidCLIP's training on a tiny miniature: it learns, resumes exactly, stacks clips, is the same on two processes."""

import json
import os
from pathlib import Path

import datasets
import pytest
import torch
from published_run import publish
from safetensors.torch import load_file
from trained_alike import assert_same_weights, assert_trained_alike

from hf_models.encoders import load_encoder
from subtle.comp.data import load_stacks
from subtle.run.models import MINIATURE_CLIP, MINIATURE_VIDCLIP
from subtle.train.options import VidCLIPRunConfig
from subtle.train.vidclip import Training, run

RECIPE = Path(__file__).parents[3] / "recipes" / "vidclip.py"


@pytest.fixture
def config(tiny_comp, tmp_path):
    def make(name="run", **changes):
        fields = {
            **tiny_comp,
            "clips_data_dir": tiny_comp["data_dir"],
            "num_frames": 4,
            "epochs": 2,
            "batch_size": 8,
            "warmup_steps": 2,
            "device": "cpu",
            "output_dir": str(tmp_path / name),
            **changes,
        }
        return VidCLIPRunConfig(**fields)

    return make


def weights(config):
    return load_file(Path(config.output_dir, "model", "model.safetensors"))


@pytest.mark.parametrize("objective", ["clip", "negclip", "comploss"])
def test_training_lowers_the_loss_and_leaves_a_model_with_its_results(config, objective):
    one = config(objective=objective, epochs=4, preference_weight=10.0)
    measured = run(one)
    results = json.loads(Path(one.output_dir, "results.json").read_text())
    losses = [epoch["loss"] for epoch in results["history"]]
    assert losses[-1] < losses[0]
    assert measured == results["figures"]
    assert {"validation/comprehensive_accuracy", "validation/t2v_recall@1"} <= measured.keys()
    assert results["coverage"]["train"]["used"] == results["coverage"]["train"]["rows"]
    assert json.loads(Path(one.output_dir, "model", "config.json").read_text())["loss"] == objective
    card, published = publish(one.output_dir)
    assert published["signature"].startswith("comprehensive_accuracy|rows:")
    assert published["signature"] in card.text


def test_a_killed_run_ends_with_the_weights_of_one_that_was_not(config, monkeypatch):
    whole, killed = config("whole"), config("killed", checkpoint_steps=3)
    run(whole)
    training, steps = Training(killed), []
    step = training.optimizer.optimizer.step

    def die(*args, **kwargs):
        if len(steps) == 4:
            raise KeyboardInterrupt
        steps.append(step(*args, **kwargs))

    monkeypatch.setattr(training.optimizer.optimizer, "step", die)
    with pytest.raises(KeyboardInterrupt):
        training.train()
    run(killed)
    assert_trained_alike(whole.output_dir, killed.output_dir)


def test_a_complete_run_is_not_repeated_and_another_configuration_is_refused(config, capsys):
    measured = run(config())
    assert run(config()) == measured
    assert "complete" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="other objective"):
        run(config(objective="clip"))


def test_only_options_that_the_objective_reads_tell_runs_apart(config, capsys):
    run(config(objective="negclip", epochs=1))
    run(config(objective="negclip", epochs=1, preference_weight=9.0))
    assert "complete" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="other negclip_negatives"):
        run(config(objective="negclip", epochs=1, negclip_negatives=0))


def test_a_killed_run_with_captioning_loss_goes_on_exactly_and_its_model_scores_texts(config, monkeypatch, capsys):
    changes = {"objective": "clip", "captioning_weight": 2.0, "num_captioning_layers": 1, "draws": 1}
    whole, killed = config("whole", **changes), config("killed", checkpoint_steps=1, **changes)
    run(whole)
    losses = [epoch["loss"] for epoch in json.loads(Path(whole.output_dir, "results.json").read_text())["history"]]
    assert losses[-1] < losses[0]
    assert "clip + captioning" in capsys.readouterr().err
    training, steps = Training(killed), []
    step = training.optimizer.optimizer.step

    def die(*args, **kwargs):
        if len(steps) == 2:
            raise KeyboardInterrupt
        steps.append(step(*args, **kwargs))

    monkeypatch.setattr(training.optimizer.optimizer, "step", die)
    with pytest.raises(KeyboardInterrupt):
        training.train()
    run(killed)
    assert_trained_alike(whole.output_dir, killed.output_dir)
    encoder = load_encoder(f"{whole.output_dir}/model", options={"score": "likelihood"})
    shown = encoder.encode_video([torch.zeros(4, 3, 16, 16, dtype=torch.uint8)])
    assert encoder.compare(shown, encoder.encode_text(["a vault"])).item() < 0
    with pytest.raises(SystemExit, match="other captioning_weight"):
        run(config("whole", **{**changes, "captioning_weight": 1.0}))


def test_a_decoder_is_added_to_a_vidclip_and_kept_as_it_is_without_captioning_loss(config):
    first = Training(config("first", objective="clip", epochs=1, draws=1))
    first.train()
    assert first.model.captioner is None
    start = f"{first.config.output_dir}/model"
    changes = {"objective": "clip", "epochs": 1, "draws": 1}
    added = [Training(config(f"added{n}", model=start, captioning_weight=1.0, **changes)) for n in range(2)]
    weights_of = [one.model.captioner.state_dict() for one in added]
    torch.testing.assert_close(*weights_of, rtol=0, atol=0)  # the seed decides them
    assert len(added[0].model.captioner.layers) == 2
    added[0].train()
    assert added[0].model.config.captioning_weight == 1.0
    later = Training(config("later", model=f"{added[0].config.output_dir}/model", **changes))
    assert later.model.config.captioning_weight == 0.0  # nor does it train the towers
    before = {name: value.clone() for name, value in later.model.captioner.state_dict().items()}
    later.train()
    torch.testing.assert_close(later.model.captioner.state_dict(), before, rtol=0, atol=0)


def test_pretraining_makes_new_stacks_each_epoch_and_fine_tuning_starts_from_it(config):
    stacked = config("stacked", stack=4, epochs=1)
    run(stacked)
    training = Training(config("again", stack=3))
    first, second = training.epoch_contrasts(0), training.epoch_contrasts(1)
    assert all(len(one.spans) == 3 and one.levels for one in first)
    assert [one.positive for one in first] != [one.positive for one in second]
    fine = config("fine", model=f"{stacked.output_dir}/model", epochs=1, learning_rate=0.0)
    run(fine)
    torch.testing.assert_close(weights(fine), weights(stacked))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "no/such/folder"}, "not a model folder"),
        ({"data_dir": "/nowhere"}, "cannot be read"),
    ],
)
def test_a_users_mistake_is_one_line(config, changes, message):
    with pytest.raises(SystemExit, match=message):
        run(config(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stack": 9}, "a stack has 1 to 8"),
        ({"stack": 1}, "no disrupted texts"),
        ({"draws": 0}, "at least 1 draw"),
        ({"negclip_negatives": -1}, "0 for all, or more"),
        ({"captioning_weight": -1.0}, "0 for no captioning loss"),
        ({"num_captioning_layers": 0}, "at least 1"),
    ],
)
def test_a_wrong_configuration_is_refused(config, changes, message):
    with pytest.raises(ValueError, match=message):
        config(**changes)


def test_pretraining_starts_from_the_clip_and_fine_tuning_from_vidclip_base():
    assert VidCLIPRunConfig(stack=4).model == MINIATURE_CLIP
    assert VidCLIPRunConfig().model == MINIATURE_VIDCLIP
    assert VidCLIPRunConfig(stack=4, model="mine").model == "mine"


def test_epochs_take_turns_at_the_draws_of_pairs(config):
    training = Training(config(draws=2))
    first, second, third = (training.epoch_contrasts(epoch) for epoch in range(3))
    assert first != second
    assert first == third


def test_negclip_draws_a_new_negative_of_each_video_each_epoch(config):
    training = Training(config(objective="negclip", draws=1))
    first, second, first_again = (training.epoch_contrasts(epoch) for epoch in (0, 1, 0))
    assert first == first_again != second
    for drawn, whole in zip(first, training.draws[0], strict=True):
        assert (drawn.spans, drawn.positive) == (whole.spans, whole.positive)
        ((negative, level),) = zip(drawn.negatives, drawn.levels, strict=True)
        assert (negative, level) in zip(whole.negatives, whole.levels, strict=True)
    training.config.negclip_negatives = 0
    assert training.epoch_contrasts(0) == training.draws[0]


def test_each_step_takes_the_temperature_back_to_its_limit(config):
    training = Training(config(epochs=1))
    limit = training.model.config.max_logit_scale
    with torch.no_grad():
        training.model.logit_scale.fill_(limit + 1)
    training.train()
    assert limit - 0.1 < weights(training.config)["logit_scale"] < limit + 1e-5


def test_weights_that_start_at_zero_have_the_higher_learning_rate(config):
    training = Training(config(zero_init_rate=7.0))
    rest, zero = training.optimizer.param_groups
    gate = training.accelerator.unwrap_model(training.model).video_pooler.video_pooler.layernorm.weight
    assert [weight is gate for weight in zero["params"]] == [True]
    assert (rest["lr"], zero["lr"]) == (training.config.learning_rate, 7 * training.config.learning_rate)


def test_the_kept_tokens_of_a_frozen_tower_train_the_same_weights(config):
    kept, anew = config("kept"), config("anew", keep_frames=False)
    assert (Training(kept).visual, Training(anew).visual) == ("frame_tokens", "pixel_values")
    run(kept)
    run(anew)
    assert_same_weights(kept.output_dir, anew.output_dir)


def test_stacks_leave_nothing_on_the_disk(config):
    def cached():
        return set(Path(datasets.config.HF_DATASETS_CACHE).rglob("cache-*"))

    load_stacks("activitynet_comp", "mini-clips", config().data_dir, size=2, seed=0)
    before = cached()
    load_stacks("activitynet_comp", "mini-clips", config().data_dir, size=2, seed=123_456)
    assert cached() == before


def test_two_processes_end_with_the_weights_of_one(config, warm_python):
    alone, together = (config(name, zero_init_rate=1.0) for name in ("alone", "together"))  # rounding times 20
    run(alone)
    flags = []
    for name, value in vars(together).items():
        if value is not None:
            flags += [f"--{name}", str(value)]
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true"}
    for done in warm_python.run_ranks(2, [RECIPE, *flags], env=environment):
        assert done.returncode == 0, done.stderr
    assert json.loads(Path(together.output_dir, "results.json").read_text())["num_processes"] == 2
    assert_same_weights(alone.output_dir, together.output_dir)
