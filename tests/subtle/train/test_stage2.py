"""Stage 2 learns, resumes to the same weights, is the same on two processes, and refuses what it cannot do."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState
from published_run import publish
from safetensors.torch import load_file
from trained_alike import assert_trained_alike, stopped_after
from transformers import AutoModel

from hf_datasets.tfcovr.labels import answers_of
from hf_models import AIMForVideoClassification, FactoredCoVRForComposedRetrieval, TFCoVRForComposedRetrieval
from hf_models.feature_store import FeatureStore
from hf_models.retrieval import encode
from subtle.evaluate import evaluate_tfcovr
from subtle.evaluate.options import EvaluateConfig
from subtle.options import run_recipe
from subtle.run.accelerator import Stopped
from subtle.tfcovr.batches import PIXEL_INPUTS, PairFrames, PixelSource
from subtle.train import stage2
from subtle.train.stage2 import Stage2Config


@pytest.fixture
def config(tiny, embedded, tmp_path):
    return Stage2Config(
        **tiny,
        embeddings=embedded,
        output_dir=str(tmp_path / "run"),
        projection_dim=16,
        fusion_hidden_dim=32,
        batch_size=45,  # 192 triplets: the last batch holds 12
        epochs=4,
        learning_rate=3e-3,
    )


@pytest.fixture
def factored(config, tiny_factored, embedded_factored):
    """The same for FactoredCoVR."""
    return replace(config, **tiny_factored, embeddings=embedded_factored, model="factored_covr")


def weights(folder):
    return load_file(Path(folder) / "model" / "model.safetensors")


def assert_close_weights(one, other):
    torch.testing.assert_close(weights(other.output_dir), weights(one.output_dir), atol=2e-5, rtol=1e-4)


def learned(config):
    """Train, see that the loss falls and that the best epoch counts; its figure and what was written as results."""
    measured = stage2.run(config)["validation/map@50"]
    results = json.loads(Path(config.output_dir, "results.json").read_text())
    first, *_, last = results["history"]
    assert last["loss"] < first["loss"]
    assert measured == pytest.approx(max(epoch["map@50"] for epoch in results["history"]))
    return measured, results


def evaluated(config, **changes):
    """What the evaluation measures of a trained model on the validation split."""
    places = {"models": [f"{config.output_dir}/model"], "output_dir": f"{config.output_dir}/evaluation"}
    data = {"dataset": config.dataset, "embeddings": config.embeddings, "split": "validation", "num_workers": 0}
    return evaluate_tfcovr.run(EvaluateConfig(**places, **data, **changes))["two-stage"]["map@50"]


def test_training_from_embeddings_learns_and_leaves_a_complete_model(config):
    _, results = learned(config)
    assert results["coverage"]["train"] == {"triplets": 192, "usable": 192}
    assert results["coverage"]["validation"]["queries_ranked"] == 24
    model = TFCoVRForComposedRetrieval.from_pretrained(Path(config.output_dir) / "model")
    assert model.encode_video(torch.rand(1, 4, 3, 16, 16)).shape == (1, 16)
    assert not Path(config.output_dir, "checkpoints").exists()
    card, published = publish(config.output_dir)
    assert published["signature"] == results["signature"]
    assert results["signature"].split("|")[0] in card.text


@pytest.mark.parametrize("model", ["config", pytest.param("factored", marks=pytest.mark.slow)])
def test_a_killed_run_ends_with_the_weights_of_one_that_was_not(model, request, tmp_path, kill_in_training):
    config = request.getfixturevalue(model)
    config.epochs, config.checkpoint_steps = 20, 7
    whole = stage2.run(config)
    killed = replace(config, output_dir=str(tmp_path / "killed"))
    kill_in_training("stage2.py", killed)
    assert stage2.run(killed) == whole
    assert_trained_alike(config.output_dir, killed.output_dir)


def test_two_processes_go_on_where_one_stopped_and_end_with_the_weights_of_one(config, tmp_path, run_on_two_processes):
    config.fusion_dropout, config.epochs = 0.0, 2
    stage2.run(config)
    double = replace(config, output_dir=str(tmp_path / "double"))
    with pytest.raises(Stopped):
        stage2.run(replace(double, max_hours=1e-9))
    assert len(list(tmp_path.glob("double/checkpoints/step-0000000001"))) == 1
    run_on_two_processes("stage2.py", double)
    assert_close_weights(config, double)


@pytest.fixture(params=["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def compiled(request, monkeypatch):
    """As `accelerate launch --dynamo_backend eager`, which puts `_orig_mod.` before names, eager at once."""
    if request.param == "inductor" and not any(map(shutil.which, ("g++", "c++", "clang++"))):
        pytest.skip("inductor needs a C++ compiler, which is not on PATH")
    AcceleratorState._reset_state(reset_partial_state=True)
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", request.param)
    with torch.compiler.set_stance("force_eager" if request.param == "eager" else "default"):
        yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.usefixtures("compiled")
def test_a_compiled_run_publishes_what_it_trained(config):
    config.epochs = 1
    stage2.run(config)
    folder = Path(config.output_dir)
    best = load_file(folder / "best.safetensors")
    loaded = TFCoVRForComposedRetrieval.from_pretrained(folder / "model").state_dict()
    torch.testing.assert_close({name: loaded[name] for name in best}, best)


@pytest.mark.slow
def test_two_launched_processes_end_with_the_weights_of_one_between_labels(
    factored, tmp_path, warm_python, command_of, environment
):
    factored.fusion_dropout, factored.epochs = 0.0, 2
    stage2.run(factored)
    double = replace(factored, output_dir=str(tmp_path / "double"))
    launch = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"]
    launch += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    done = warm_python.run([*launch, *command_of("stage2.py", double)], env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(Path(double.output_dir, "results.json").read_text())["num_processes"] == 2
    assert_close_weights(factored, double)


def test_training_between_labels_learns_and_leaves_a_complete_model(factored):
    measured, _ = learned(factored)
    model = AutoModel.from_pretrained(Path(factored.output_dir) / "model")
    assert isinstance(model, FactoredCoVRForComposedRetrieval)
    start = AIMForVideoClassification.from_pretrained(factored.vision_model)
    clips = torch.rand(2, 4, 3, 16, 16)
    torch.testing.assert_close(model.target_classifier(model.encode_video(clips)), start(clips).logits)
    assert model.word_classifier.linear.weight.abs().max() > 0.01  # fitted
    card, _ = publish(factored.output_dir)
    assert "factored-covr" in card.data.tags
    assert "in the space of labels" in card.text
    assert evaluated(factored) == pytest.approx(measured)


def test_options_that_the_other_model_reads_are_refused():
    with pytest.raises(ValueError, match="--no_composed_labels: TF-CoVR has no labels"):
        Stage2Config(composed_labels=False)
    with pytest.raises(ValueError, match="--loss, --beta: FactoredCoVR has no contrastive loss"):
        Stage2Config(model="factored_covr", loss="hn_nce", beta=0.5)


def test_another_classifier_of_clips_is_another_run(factored, tmp_path):
    factored.vision_model = str(shutil.copytree(factored.vision_model, tmp_path / "stage1"))
    stage2.run(factored)
    model = AIMForVideoClassification.from_pretrained(factored.vision_model)
    with torch.no_grad():
        model.classifier.linear.bias[0] += 1
    model.save_pretrained(factored.vision_model)
    with pytest.raises(SystemExit, match="encoders"):
        stage2.run(factored)


def test_training_between_labels_from_pixels_moves_encoder_and_classifier(factored):
    factored.end_to_end, factored.epochs = True, 1
    stage2.run(factored)
    trained, start = weights(factored.output_dir), load_file(Path(factored.vision_model) / "model.safetensors")
    name = "encoder.layers.0.self_attn.q_proj.weight"
    assert not torch.equal(trained[f"vision_model.{name}"], start[f"aim.{name}"])
    assert not torch.equal(trained["vision_model.pooling.gru.weight_hh_l0"], start["aim.pooling.gru.weight_hh_l0"])
    assert not torch.equal(trained["target_classifier.linear.weight"], start["classifier.linear.weight"])
    assert torch.equal(trained["target_classifier.membership"], start["classifier.membership"])


def test_labels_with_the_same_text_share_a_number_and_own_labels_have_theirs():
    assert answers_of()["216"] == "180"
    numbers = stage2.label_numbers({"216": 0, "45": 1, "my own": 2})
    assert numbers["180"] == numbers["216"] == 0
    assert (numbers["45"], numbers["my own"]) == (1, 2)
    assert "407c" not in numbers
    both = stage2.label_numbers({"180": 0, "216": 1})
    assert both["180"] == both["216"]


def test_target_labels_that_the_model_does_not_have_are_refused_with_the_cure(factored, tiny_factored, tmp_path):
    folder = tmp_path / "three-labels"
    names = ("red", "green", "blue")
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: place for place, name in enumerate(names)}}
    trained = AIMForVideoClassification.from_pretrained(
        tiny_factored["vision_model"], label_factors=None, **labels, ignore_mismatched_sizes=True
    )
    shutil.copytree(tiny_factored["vision_model"], folder)
    trained.save_pretrained(folder)
    factored.vision_model = str(folder)
    with pytest.raises(ValueError, match=r"has no class for 1 of 4 labels, such as 'grey'; train stage 1 on"):
        stage2.run(factored)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"vision_model": None}, "without a classifier of labels; give the model that stage1.py wrote"),
        ({"fusion": "gated"}, "'gated' has no place in it"),
    ],
    ids=["no classifier", "another fusion"],
)
def test_what_factored_covr_cannot_be_is_refused_without_a_traceback(factored, tiny, capsys, options, says):
    clip = str(Path(tiny["vision_model"]).parent / "clip")
    for name, value in options.items():
        setattr(factored, name, value or clip)
    assert run_recipe(stage2.main, factored) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert says in shown
    assert "Traceback" not in shown


def test_end_to_end_training_moves_the_encoders_and_validates_with_texts_in_batches(config, tiny, monkeypatch):
    config.end_to_end, config.epochs = True, 1
    embeddings, encode_text, sizes = PixelSource.embeddings, TFCoVRForComposedRetrieval.encode_text, []

    def compared(source, model, queries):
        with monkeypatch.context() as patched:
            patched.setattr(
                TFCoVRForComposedRetrieval,
                "encode_text",
                lambda self, **inputs: sizes.append(len(inputs["input_ids"])) or encode_text(self, **inputs),
            )
            made = embeddings(source, model, queries)
        alone = ({"texts": [text], **source.processor(text=[text])} for text in source.texts)
        _, expected = encode(model, alone, features="encode_text", id_key="texts")
        torch.testing.assert_close(made["text_embeds"], expected, atol=1e-5, rtol=1e-5)
        assert sum(sizes) == len(source.texts)
        return made

    monkeypatch.setattr(PixelSource, "embeddings", compared)
    collate, dtypes = PairFrames.collate, set()

    def collated(pairs, items):
        batch = collate(pairs, items)
        dtypes.update((name, batch[name].dtype) for name in PIXEL_INPUTS)
        return batch

    monkeypatch.setattr(PairFrames, "collate", collated)
    stage2.run(config)
    assert dtypes == {(name, torch.uint8) for name in PIXEL_INPUTS}  # until they are on the device
    assert sizes
    assert max(sizes) > 1
    trained, start = weights(config.output_dir), load_file(Path(tiny["vision_model"]) / "model.safetensors")
    name = "encoder.layers.0.self_attn.q_proj.weight"
    assert not torch.equal(trained[f"vision_model.{name}"], start[f"aim.{name}"])


def test_an_end_to_end_run_goes_on_in_the_middle_of_an_epoch_as_if_it_had_not_stopped(config, tmp_path):
    config.end_to_end, config.epochs, config.checkpoint_steps = True, 1, 2
    stage2.run(config)
    stopped = replace(config, output_dir=str(tmp_path / "stopped"))
    with stopped_after(2):
        stage2.run(stopped)
    stage2.run(stopped)
    assert_trained_alike(config.output_dir, stopped.output_dir)


def test_queries_may_have_other_frames_than_targets(config, tiny):
    config.vision_model = str(Path(tiny["vision_model"]).parent / "clip")
    config.embeddings = f"{config.embeddings}-clip"
    config.query_frames, config.num_frames, config.epochs = 1, 4, 1
    training = stage2.Stage2(config)
    source = training.source
    assert source.video_embeds.shape == source.target_embeds.shape
    assert not torch.allclose(source.video_embeds, source.target_embeds)
    batch = next(iter(source.batches(training.triplets, [torch.arange(8)], "both")))
    assert torch.equal(batch["video_embeds"], source.video_embeds[training.triplets.query[:8]])
    assert torch.equal(batch["target_video_embeds"], source.target_embeds[training.triplets.target[:8]])
    for folder, found in (
        (f"{config.embeddings}-1-frames", source.video_embeds),
        (config.embeddings, source.target_embeds),
    ):
        ids, rows = FeatureStore(Path(folder) / "video").load()
        torch.testing.assert_close(rows[ids.index("test-red-0")], found[source.clips["test-red-0"]])
    measured = training.train()
    assert evaluated(config, query_frames=1) == pytest.approx(measured["validation/map@50"])


def test_frames_of_the_query_need_stored_embeddings():
    with pytest.raises(ValueError, match="leave out --end_to_end or --query_frames"):
        Stage2Config(end_to_end=True, query_frames=1)


@pytest.mark.parametrize("loss", ["infonce", "hn_nce"])
def test_every_fusion_and_loss_trains_also_with_texts_as_the_encoder_gives_them(config, loss):
    config.loss, config.epochs, config.fusion_projection_dim = loss, 1, 8
    if loss == "hn_nce":
        config.fusion, config.project_text, config.projection_dim = "gated", False, None
    assert 0 < stage2.run(config)["validation/map@50"] < 1
    projections = [name for name in weights(config.output_dir) if name.startswith("text_projection")]
    assert bool(projections) is config.project_text


def test_the_cosine_moves_in_each_step_or_as_released_once_per_epoch(config, tmp_path, monkeypatch):
    config.epochs, rates = 2, []
    finish_step = stage2.Stage2.finish_step

    def recorded(run, loss, *rows):
        rates.append(run.optimizer.param_groups[0]["lr"])
        finish_step(run, loss, *rows)

    monkeypatch.setattr(stage2.Stage2, "finish_step", recorded)
    for cosine_per, wanted in (("epoch", 2), ("step", 0)):
        config.cosine_per, config.output_dir = cosine_per, str(tmp_path / cosine_per)
        del rates[:]
        stage2.Stage2(config).train()
        assert rates[0] == config.learning_rate
        assert len(set(rates)) == (wanted or len(rates))
        assert len(rates) > 2


def test_another_configuration_in_the_same_folder_is_refused_until_restarted(config):
    config.epochs = 1
    stage2.run(config)
    config.seed = 1
    with pytest.raises(SystemExit, match=r"other seed; name another --output_dir, or give --restart"):
        stage2.run(config)
    config.restart = True
    stage2.run(config)
    assert json.loads(Path(config.output_dir, "results.json").read_text())["seed"] == 1


def test_embeddings_of_another_encoder_are_refused(config, tiny):
    config.vision_model = str(Path(tiny["vision_model"]).parent / "clip")
    with pytest.raises(ValueError, match="features of two models must not be mixed"):
        stage2.run(config)


def test_a_missing_stage_1_says_how_to_make_it(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config.vision_model = "outputs/stage1/model"
    with pytest.raises(SystemExit, match=r"recipes/stage1.py"):
        stage2.run(config)


@pytest.mark.usefixtures("diverging")
def test_a_loss_that_is_not_finite_names_the_clips_of_its_triplets(config):
    with pytest.raises(SystemExit, match=r"the loss of step 1 is nan, among rows train-\w+-\d -> train-\w+-\d, train"):
        stage2.run(config)
