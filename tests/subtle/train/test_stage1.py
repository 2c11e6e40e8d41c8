"""Stage 1: learns, resumes exactly, saves both forms, refuses what cannot work."""

import json
import multiprocessing
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from published_run import publish
from safetensors.torch import load_file, save_file
from trained_alike import assert_trained_alike
from transformers import AutoModelForVideoClassification, AutoVideoProcessor

from hf_datasets.video import read_frames
from hf_models import AIMVideoProcessor
from hf_models.encoders import load_encoder
from hf_models.tfcovr.merging_aim import to_aim
from subtle.options import parse_config
from subtle.tfcovr.classifiers import (
    MINIATURE_AIM,
    ClassifierConfig,
    accuracies,
    class_indices,
    class_names,
    make_classifier,
    shipped_adapters,
)
from subtle.train.options import Stage1Config
from subtle.train.stage1 import Stage1, epoch_items, run

RECIPES = Path(__file__).parents[3] / "recipes"

# Stage 1, which dies by kill -9 in its second checkpoint: the model is on disk, the optimizer is not.
DIE_INSIDE_A_CHECKPOINT = """
import os, pathlib, signal, sys
import torch
folder, save = pathlib.Path(sys.argv.pop(1)) / "checkpoints", torch.save

def save_or_die(*arguments, **options):
    if list(folder.glob("step-*")):
        os.kill(os.getpid(), signal.SIGKILL)
    save(*arguments, **options)

torch.save = save_or_die
from subtle.options import parse_config
from subtle.train.options import Stage1Config
from subtle.train.stage1 import main
main(parse_config(Stage1Config, None))
"""


FACTORED = {"temporal_pooling": "gru", "factored_labels": True}


@pytest.fixture
def config(tiny, tmp_path):
    places = {"cache_dir": str(tmp_path / "frames"), "output_dir": str(tmp_path / "stage1")}
    data = {"dataset": tiny["dataset"], "base": str(Path(tiny["vision_model"]).parent / "clip"), **places}
    short = {"num_frames": 4, "epochs": 2, "batch_size": 4, "warmup_steps": 0.125, "checkpoint_steps": 3}
    # Starting decoders, to cache frames, takes longer than these clips do.
    return Stage1Config(**data, **short, crop_scale=0.6, cache_frames=False, num_workers=0, device="cpu")


def weights(folder):
    return load_file(Path(folder) / "model/model.safetensors")


def test_training_learns_colors_and_saves_both_forms(config):
    measured = run(replace(config, epochs=6, learning_rate=1e-2, brightness=0.0))
    assert measured["validation/accuracy"] > 0.7
    assert set(measured) == {
        *(f"{split}/{name}" for split in ("validation", "test") for name in ("accuracy", "mean_class_accuracy")),
        "validation/accuracy_shuffled_frames",
    }
    folder = Path(config.output_dir)
    model = AutoModelForVideoClassification.from_pretrained(folder / "model").eval()
    assert AutoVideoProcessor.from_pretrained(folder / "model").num_frames == 4
    again = Stage1(replace(config, init_from=str(folder / "adapter"), output_dir=str(folder / "again")))
    pixels = torch.rand(2, 4, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(again.model.eval()(pixel_values=pixels).logits, model(pixels).logits)
    results = json.loads((folder / "results.json").read_text())
    assert results["coverage"]["train"] == {"clips": 16, "usable": 16}
    assert not list(folder.glob("*.tmp"))
    assert not (folder / "best.safetensors").exists()
    card, _ = publish(folder)
    assert card.data.to_dict()["pipeline_tag"] == "video-classification"
    card, _ = publish(folder, part="adapter", base_repo="org/clip")
    assert (card.data.library_name, card.data.base_model) == ("peft", "org/clip")


def test_a_gru_and_factored_labels_learn_and_are_those_of_both_forms(config):
    config = replace(config, **FACTORED)
    measured = run(replace(config, epochs=6, learning_rate=1e-2, brightness=0.0))
    assert measured["validation/accuracy"] > 0.7
    folder, pixels = Path(config.output_dir), torch.rand(2, 4, 3, 16, 16)
    model = AutoModelForVideoClassification.from_pretrained(folder / "model").eval()
    assert model.config.temporal_pooling == "gru"
    assert model.config.label_factors == [[name] for name in model.config.id2label.values()]
    adapter, again = str(folder / "adapter"), str(folder / "again")
    native = model(pixels).logits
    for form in ({"init_from": adapter}, {"init_from": str(folder / "model"), "full": True}):
        started = Stage1(replace(config, **form, output_dir=again)).model.eval()(pixel_values=pixels)
        torch.testing.assert_close(started.logits, native)
    for pooling, factored, says in (
        ("mean", True, "temporal_pooling gru, not mean"),
        ("gru", False, "a head with fact"),
    ):
        other = replace(config, temporal_pooling=pooling, factored_labels=factored, output_dir=again)
        with pytest.raises(SystemExit, match=rf"it has {says}.*or --init_from none"):
            Stage1(replace(other, init_from=adapter))
        cured = Stage1(replace(other, init_from=None)).model.peft_config["default"]
        assert (cured.temporal_pooling, cured.label_factors is not None) == (pooling, factored)


@pytest.mark.slow
def test_two_processes_end_with_the_weights_of_one(config, tmp_path, run_on_two_processes):
    config = replace(config, **FACTORED, epochs=1, classifier_dropout=0.0, checkpoint_steps=100)
    run(config)
    double = replace(config, output_dir=str(tmp_path / "double"))
    run_on_two_processes("stage1.py", double)
    torch.testing.assert_close(weights(double.output_dir), weights(config.output_dir), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("full", [False, True])
def test_all_weights_train_when_asked_and_what_was_trained_fits_its_own_classes_and_sizes_only(config, full):
    config = replace(config, full=full, epochs=1)
    run(config)
    folder, again = Path(config.output_dir), f"{config.output_dir}-2"
    trained, base = weights(folder), load_file(Path(config.base) / "model.safetensors")
    name = "encoder.layers.0.mlp.fc1.weight"
    assert torch.equal(trained[f"aim.{name}"], base[f"vision_model.{name}"]) is not full
    assert (folder / "adapter").exists() is not full
    if full:
        with pytest.raises(SystemExit, match=r"num_frames 4, not 3; .*--init_from none"):
            Stage1(replace(config, init_from=str(folder / "model"), num_frames=3, output_dir=again))
        return
    path = folder / "adapter" / "adapter_config.json"
    settings = json.loads(path.read_text()) | {"id2label": dict(enumerate(("red", "green", "blue", "violet")))}
    path.write_text(json.dumps(settings))
    with pytest.raises(SystemExit, match="head of 4 classes"):
        Stage1(replace(config, init_from=str(path.parent), output_dir=again))


def test_a_run_killed_inside_a_checkpoint_ends_with_the_weights_of_one_that_was_not(
    config, tmp_path, warm_python, command_of, environment
):
    config = replace(config, **FACTORED, epochs=5)
    measured = run(config)
    killed = replace(config, output_dir=str(tmp_path / "killed"))
    _, path = command_of("stage1.py", killed)
    process = warm_python.start(["-c", DIE_INSIDE_A_CHECKPOINT, killed.output_dir, path], env=environment)
    assert process.wait(120) == -signal.SIGKILL, process.output()
    assert not Path(killed.output_dir, "results.json").exists()
    unfinished = tmp_path / "killed/checkpoints/unfinished"
    assert [path.name for path in unfinished.iterdir()] == ["model.safetensors"]
    assert run(killed) == measured
    # The best weights may come from before the kill; the losses of all epochs may not.
    assert_trained_alike(config.output_dir, killed.output_dir)


def test_batches_are_what_the_video_processor_makes(config):
    stage = Stage1(config)
    batch = next(iter(stage.batches("validation", [(0, None)], 1)))
    clip = stage.data["validation"].clips[0]
    of_images = {name: getattr(stage.processor, name) for name in ("image_mean", "image_std")}
    processor = AIMVideoProcessor(size={"height": 16, "width": 16}, num_frames=4, **of_images)
    expected = processor(read_frames(clip["video"], 4).frames, do_sample_frames=False, return_tensors="pt")
    # Frames are resized with Pillow when they are read; torchvision, which the processor uses, rounds its weights.
    level = 1 / 255 / min(stage.processor.image_std)
    difference = (batch["pixel_values"] - expected["pixel_values"]).abs()
    assert difference.max() < 2.1 * level
    assert difference.mean() < 0.02 * level


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_clip_that_does_not_decode_is_left_out_of_its_batch_and_counted(config, tmp_path, num_workers, capsys):
    stage = Stage1(replace(config, num_workers=num_workers))
    (tmp_path / "broken.mp4").write_bytes(b"not a video")
    clip = stage.data["validation"].clips[0]
    clip["video"] = str(tmp_path / "broken.mp4")
    items = [(position, None) for position in range(3)]
    (batch,) = stage.batches("validation", items, 3)
    assert len(batch["pixel_values"]) == 2
    assert batch["labels"].tolist() == stage.data["validation"].labels[1:3]
    assert not list(stage.batches("validation", items[:1], 1))
    (reason,) = stage.progress.skipped
    assert reason.startswith(f"clip {clip['clip_id']!r} does not decode: {tmp_path}/broken.mp4: ")
    assert "\n" not in reason
    assert capsys.readouterr().out.count("left out: ") == 1


def test_batches_are_the_same_for_any_number_of_workers_which_stay_and_read_the_cache(config):
    made = {}
    for num_workers in (0, 1, 2):
        stage = Stage1(replace(config, num_workers=num_workers, cache_frames=True, rand_augment=[1, 5]))
        assert stage.data["train"].cache is not None
        orders = [epoch_items(torch.tensor(stage.data["train"].labels), epoch, config) for epoch in (0, 1)]
        next(stage.batches("train", orders[0], 4))  # the rest of this epoch is dropped
        workers = {child.pid for child in multiprocessing.active_children()}
        assert len(workers) == num_workers
        read = [batch for order in orders for batch in stage.batches("train", order, 4)]
        read += stage.batches("validation", [(0, None), (1, None)], 2)
        assert {child.pid for child in multiprocessing.active_children()} == workers
        made[num_workers] = read
        assert len(read) > 2
    for num_workers in (1, 2):
        for one, other in zip(made[0], made[num_workers], strict=True):
            assert one["labels"].equal(other["labels"])
            torch.testing.assert_close(one["pixel_values"], other["pixel_values"])


@pytest.mark.parametrize(("balanced", "least", "most"), [(False, 100, 100), (True, 401, 599)])
def test_every_epoch_has_its_own_order_and_a_balanced_one_draws_rare_classes_as_often(config, balanced, least, most):
    config, labels = replace(config, class_balanced=balanced), torch.tensor([0] * 900 + [1] * 100)
    first, second = (epoch_items(labels, epoch, config) for epoch in (0, 1))
    assert first != second == epoch_items(labels, 1, config)
    assert least <= sum(labels[position] for position, _ in first) <= most


@pytest.mark.parametrize(
    "name", ["stage1", "stage1_miniature_from_clip", "stage1_one_gpu", "stage1_4xa100", "stage1_factored_hard"]
)
def test_the_configurations_that_ship_are_valid(name):
    path = RECIPES / "configs" / f"{name}.yaml"
    chosen = parse_config(Stage1Config, None, [str(path)])
    assert all(getattr(chosen, key) == value for key, value in yaml.safe_load(path.read_text()).items())


def test_labels_with_the_same_text_are_one_class():
    measured = accuracies([(0, 1), (1, 1), (2, 0)], ["180", "216", "181"])
    assert measured == {"accuracy": pytest.approx(2 / 3), "mean_class_accuracy": pytest.approx(0.5)}


def test_the_head_has_the_present_classes_or_all():
    clips = [{"label": "407c", "clip_id": "a"}, {"label": "2", "clip_id": "b"}]
    assert class_names(clips, "present") == ["2", "407c"]
    assert len(class_names(clips, "all")) == 306
    assert class_names([*clips, {"label": "serve", "clip_id": "c"}], "all") == ["2", "407c", "serve"]
    with pytest.raises(SystemExit, match=r"'c' of test has the label '5'"):
        class_indices([{"label": "5", "clip_id": "c"}], ["2", "407c"], "test")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base": "no/such/model/folder"}, "is not a model folder"),
        ({"init_from": "no/such/adapter"}, "adapter_config.json"),
        ({"device": "cuda"}, "no GPU"),
        ({"batch_size": 64}, "less than one batch"),
    ],
)
def test_options_that_cannot_work_are_errors_that_name_the_fix(config, change, message):
    if change.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(SystemExit, match=message):
        run(replace(config, **change))


@pytest.fixture(scope="module")
def shipped_names():
    settings = json.loads((Path(MINIATURE_AIM) / "adapter_config.json").read_text())
    return [settings["id2label"][str(index)] for index in range(112)]


def test_auto_means_the_shipped_adapters_for_the_shipped_base_alone(config, shipped_names, capsys):
    assert shipped_adapters(ClassifierConfig(), shipped_names) == MINIATURE_AIM
    assert shipped_adapters(ClassifierConfig(full=True), shipped_names) is None
    assert shipped_adapters(config, shipped_names) is None
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("change", "classes", "says"),
    [
        ({"num_frames": 8}, 112, "num_frames 12, not 8"),
        ({"num_temporal_adapters": 1}, 112, "num_temporal_adapters 2, not 1"),
        ({}, 3, "a head of 112 classes, which are not the 3 of this data"),
        ({"factored_labels": True}, 112, "a head without factored_labels"),
        ({"temporal_pooling": "gru"}, 3, "temporal_pooling mean, not gru"),
    ],
)
def test_adapters_that_do_not_fit_are_left_out_by_auto_and_refused_by_name(
    shipped_names, capsys, change, classes, says
):
    names = shipped_names[:classes]
    chosen = ClassifierConfig(**change)
    model = make_classifier(chosen, names)
    shown = capsys.readouterr().out
    assert says in shown
    assert shown.count("\n") == 1
    assert model.peft_config["default"].num_frames == chosen.num_frames
    assert list(model.peft_config["default"].id2label.values()) == names
    with pytest.raises(SystemExit, match=rf"{says}.*or --init_from none"):
        make_classifier(replace(chosen, init_from=MINIATURE_AIM), names)
    cured = make_classifier(replace(chosen, init_from=None), names)  # what --init_from none stands for
    assert cured.peft_config["default"].num_temporal_adapters == chosen.num_temporal_adapters


def test_adapters_of_other_classes_go_on_with_a_new_head_under_auto():
    model = make_classifier(ClassifierConfig(), ["lamp goes out", "lamp turns red"])
    shipped = load_file(Path(MINIATURE_AIM) / "adapter_model.safetensors")
    found = {name.replace(".default", ""): value for name, value in model.state_dict().items()}
    different = {name for name, value in shipped.items() if not torch.equal(found[name], value)}
    assert different == {name for name in shipped if "classifier" in name}
    assert all(value.requires_grad for name, value in model.named_parameters() if "classifier" in name)


@pytest.mark.parametrize("change", [{"id2label": {"0": "red"}}, {"adapter_scale": {}}])
def test_damaged_adapters_are_refused_by_their_name(tmp_path, change):
    folder = Path(shutil.copytree(MINIATURE_AIM, tmp_path / "adapter"))
    settings = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(settings | change))
    with pytest.raises(ValueError, match=str(folder)):
        load_encoder(str(folder))


@pytest.mark.parametrize("full", [False, True])
def test_trained_weights_that_are_not_all_there_are_refused(shipped_names, tmp_path, full):
    trained = make_classifier(ClassifierConfig(), shipped_names)
    (to_aim(trained) if full else trained).save_pretrained(tmp_path, save_embedding_layers=False)
    (path,) = tmp_path.glob("*.safetensors")
    rest = {name: value for name, value in load_file(path).items() if "temporal." not in name}
    save_file(rest, path, {"format": "pt"})
    with pytest.raises(SystemExit, match=r"\d+ weights of .* are missing"):
        make_classifier(ClassifierConfig(init_from=str(tmp_path), full=full), shipped_names)
    if not full:
        with pytest.raises(ValueError, match=r"\d+ weights of .* are missing"):
            load_encoder(str(tmp_path))


def test_dropout_of_trained_adapters_is_what_this_run_asks_for(shipped_names):
    model = make_classifier(ClassifierConfig(classifier_dropout=0.4, drop_path_rate=0.3), shipped_names)
    assert 0.4 in [module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)]
    assert (model.peft_config["default"].drop_path_rate, model.training) == (0.3, True)


def test_the_temporal_embedding_starts_at_the_configured_amplitude(config):
    for amplitude, largest in ((0.0, 0.0), (0.5, 0.5)):
        folder = f"{config.output_dir}-{amplitude}"
        model = Stage1(replace(config, time_amplitude=amplitude, output_dir=folder)).model
        (embedding,) = (value for name, value in model.named_parameters() if "temporal_embedding" in name)
        assert embedding.abs().max().item() == pytest.approx(largest, rel=0.05)


def test_gradient_checkpointing_changes_nothing(config):
    gradients = []
    for checkpointing in (False, True):
        changes = {"activation_checkpointing": checkpointing, "output_dir": f"{config.output_dir}-{checkpointing}"}
        stage = Stage1(replace(config, classifier_dropout=0.0, **changes))
        batch = next(iter(stage.batches("train", [(0, 1), (1, 2)], 2)))
        stage.model.train()
        stage.loss(stage.model(pixel_values=batch["pixel_values"]).logits, batch["labels"]).backward()
        gradients.append([weight.grad for weight in stage.model.parameters() if weight.grad is not None])
    torch.testing.assert_close(*gradients)


@pytest.mark.usefixtures("diverging")
def test_a_loss_that_is_not_finite_names_the_clips_of_its_batch(config):
    with pytest.raises(SystemExit, match=r"the loss of step 1 is nan, among rows train-\w+-\d, train"):
        run(config)
