"""VidCLIP's training on a tiny miniature: it learns, resumes exactly, stacks clips, is the same on two processes."""

import json
from dataclasses import replace
from pathlib import Path

import datasets
import pyarrow.parquet as pq
import pytest
import torch
from published_run import publish
from safetensors.torch import load_file
from trained_alike import assert_same_weights, assert_trained_alike, stopped_after

from hf_datasets.comp.contrasts import Stacks
from hf_datasets.video.pool import VideoReaderPool
from hf_models.encoders import load_encoder
from subtle.comp.data import clips_to_stack
from subtle.run.model_folders import MINIATURE_CLIP, MINIATURE_VIDCLIP
from subtle.train.options import VidCLIPRunConfig
from subtle.train.vidclip import Training, collate, run


@pytest.fixture
def config(tiny_comp, short_clips, tmp_path):
    def make(name="run", **changes):
        places = {
            **tiny_comp,
            "clips_dataset": short_clips,
            "clips_config": "default",
            "output_dir": str(tmp_path / name),
        }
        short = {"clips_config": "default", "num_frames": 4, "epochs": 2, "batch_size": 8, "warmup_steps": 2}
        return VidCLIPRunConfig(**places | short | {"device": "cpu"} | changes)

    return make


def results_of(config):
    return json.loads(Path(config.output_dir, "results.json").read_text())


def weights(config):
    return load_file(Path(config.output_dir, "model", "model.safetensors"))


@pytest.mark.parametrize("objective", ["clip", pytest.param("negclip", marks=pytest.mark.slow), "comploss"])
def test_training_lowers_the_loss_and_leaves_a_model_with_its_results(config, objective):
    one = config(objective=objective, epochs=4, preference_weight=10.0)
    measured, results = run(one), results_of(one)
    losses = [epoch["loss"] for epoch in results["history"]]
    assert losses[-1] < losses[0]
    assert measured == results["figures"]
    assert {"validation/comprehensive_accuracy", "validation/t2v_recall@1"} <= measured.keys()
    assert results["coverage"]["train"]["used"] == results["coverage"]["train"]["rows"]
    assert json.loads(Path(one.output_dir, "model", "config.json").read_text())["loss"] == objective
    card, published = publish(one.output_dir)
    assert published["signature"].startswith("comprehensive_accuracy|rows:")
    assert published["signature"] in card.text


def test_only_options_that_the_objective_reads_tell_runs_apart(config, capsys):
    run(config(objective="negclip", epochs=1))
    run(config(objective="negclip", epochs=1, preference_weight=9.0))
    assert "complete" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="other negclip_negatives"):
        run(config(objective="negclip", epochs=1, negclip_negatives=0))


def test_a_stopped_run_with_captioning_loss_goes_on_exactly_and_its_model_scores_texts(config, capsys):
    changes = {"objective": "clip", "captioning_weight": 2.0, "num_captioning_layers": 1, "draws": 1}
    whole, stopped = config("whole", **changes), config("stopped", checkpoint_steps=1, **changes)
    run(whole)
    losses = [epoch["loss"] for epoch in results_of(whole)["history"]]
    assert losses[-1] < losses[0]
    assert "clip + captioning" in capsys.readouterr().err
    with stopped_after(2):
        run(stopped)
    run(stopped)
    assert_trained_alike(whole.output_dir, stopped.output_dir)
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
        ({"stack": 9}, "a stack has 1 to 8"),
        ({"stack": 1}, "no disrupted texts"),
        ({"draws": 0}, "at least 1 draw"),
        ({"negclip_negatives": -1}, "0 for all, or more"),
        ({"captioning_weight": -1.0}, "0 for no captioning loss"),
        ({"num_captioning_layers": 0}, "at least 1"),
        ({"model": "no/such/folder"}, "not a model folder"),
        ({"data_dir": "/nowhere"}, "cannot be read"),
    ],
)
def test_a_users_mistake_is_one_line(config, changes, message):
    with pytest.raises((ValueError, SystemExit), match=message):
        run(config(**changes))


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
    training = Training(config())
    rest, poolers, zero = training.optimizer.param_groups
    pooler = training.accelerator.unwrap_model(training.model).video_pooler
    gate = pooler.video_pooler.layernorm.weight
    assert [weight is gate for weight in zero["params"]] == [True]
    assert {id(weight) for weight in poolers["params"]} == {id(weight) for weight in pooler.parameters()} - {id(gate)}
    rate = training.config.learning_rate
    assert (rest["lr"], poolers["lr"], zero["lr"]) == (rate, rate, 20 * rate)
    groups = Training(config("own", pooler_learning_rate=0.5)).optimizer.param_groups
    assert [group["lr"] for group in groups] == [rate, 0.5, 0.5]


def test_the_kept_tokens_of_a_frozen_tower_train_the_same_weights(config):
    kept, anew = config("kept"), config("anew", keep_frames=False)
    assert (Training(kept).visual, Training(anew).visual) == ("frame_tokens", "pixel_values")
    run(kept)
    run(anew)
    assert_same_weights(kept.output_dir, anew.output_dir)


def test_stacks_leave_nothing_on_the_disk(short_clips):
    def cached():
        return set(Path(datasets.config.HF_DATASETS_CACHE).rglob("cache-*"))

    before = cached()
    clips, _ = clips_to_stack(short_clips, "default", size=2)
    assert len(list(Stacks(clips, size=2, seed=123_456))) == len(clips) // 2
    assert cached() == before


def test_an_image_stage_moves_the_poolers_alone_and_a_video_stage_with_larger_frames_goes_on_from_it(config):
    poolers_alone = {"learning_rate": 0.0, "pooler_learning_rate": 1e-2, "weight_decay": 1e-2}
    image = config("image", stack=1, objective="clip", num_frames=1, **poolers_alone)
    first = Training(image)
    before = {name: value.clone() for name, value in first.model.state_dict().items()}
    first.train()
    moved = {name for name, value in weights(image).items() if not torch.equal(value, before[name])}
    pooler = {name for name in before if name.startswith("video_pooler.")}
    assert moved == pooler - {"video_pooler.temporal_embedding.weight"}
    video = config("video", stack=1, objective="clip", model=f"{image.output_dir}/model", frame_side=24)
    second = Training(video)
    sides = second.processor.video_processor.size
    assert (sides["height"], sides["width"], second.processor.video_processor.num_frames) == (24, 24, 4)
    frame = torch.rand(2, 1, 3, 24, 24)
    expected = first.model.eval().get_video_features(frame, interpolate_pos_encoding=True)
    torch.testing.assert_close(second.model.eval().get_video_features(frame), expected)
    second.train()
    encoder = load_encoder(f"{video.output_dir}/model")
    assert encoder.encode_video([torch.zeros(4, 3, 40, 40, dtype=torch.uint8)]).shape == (1, 16)
    with pytest.raises(SystemExit, match="has 4 frames; give it as --num_frames"):
        Training(config("other", model=f"{video.output_dir}/model", num_frames=8))


def test_a_damaged_video_is_left_out_of_its_batch_and_counted(config, tmp_path):
    one = config("damaged", stack=2, checkpoint_steps=1)
    training = Training(one)
    clips = training.clips.to_list()
    (tmp_path / "broken.mp4").write_bytes(b"not a video")
    clips[3]["video"], clips[5]["video"] = str(tmp_path / "broken.mp4"), str(tmp_path / "absent.mp4")
    training.clips = datasets.Dataset.from_list(clips, training.clips.features)
    training.train()
    assert results_of(one)["skipped_videos"] == 2
    reasons = [row["reason"] for row in pq.read_table(Path(one.output_dir, "rejections.parquet")).to_pylist()]
    assert sorted(reason[:28] for reason in reasons) == ["does not decode: absent.mp4:", "does not decode: broken.mp4:"]
    training.clips = datasets.Dataset.from_list([dict(clip, video="/nowhere.mp4") for clip in clips])
    with pytest.raises(SystemExit, match="none of the 8 videos of a batch can be read; the last: /nowhere"):
        training.train_epoch()


@pytest.mark.slow
def test_two_processes_with_workers_end_with_the_weights_and_measures_of_one(config, run_on_two_processes):
    alone = config("alone", pooler_learning_rate=config().learning_rate)  # rounding times 20
    together = replace(alone, output_dir=f"{alone.output_dir}-together", num_workers=1)
    run(alone)
    run_on_two_processes("vidclip.py", together)
    assert_same_weights(alone.output_dir, together.output_dir)
    assert results_of(together)["figures"] == pytest.approx(results_of(alone)["figures"])


@pytest.mark.usefixtures("diverging")
@pytest.mark.parametrize("stack", [0, 2])
def test_a_loss_that_is_not_finite_names_the_spans_of_its_batch(config, stack):
    two = r"\w+ at [\d.]+ s \+ " if stack else ""
    with pytest.raises(SystemExit, match=rf"the loss of step 1 is nan, among rows {two}\w+ at [\d.]+ s, \w+ at"):
        run(config(stack=stack))


def test_validation_is_not_decoded_again_where_frames_are_kept(config, monkeypatch):
    asked, read = [], VideoReaderPool.read_on_demand

    def watched(pool, requests):
        return read(pool, (asked.append(one) or one for one in requests))

    monkeypatch.setattr(VideoReaderPool, "read_on_demand", watched)
    training = Training(config())
    first, second = training.validate(), training.validate()
    assert first == second
    assert len(asked) == len(training.scores.spans)


def test_frames_are_uint8_until_they_are_on_the_device(config):
    training = Training(config(keep_frames=False))
    contrasts = training.epoch_contrasts(0)[:2]
    items = [training.frames[contrast] for contrast in contrasts]
    batch = collate(items, processor=training.processor, visual="pixel_values", negatives=True)
    assert batch["pixel_values"].dtype == torch.uint8
