"""Fine-tuning learns, resumes to the same weights, is the same on two processes, and refuses what it cannot do."""

import json
import re
from dataclasses import replace
from pathlib import Path

import av
import pytest
import torch
from accelerate import Accelerator
from peft import AutoPeftModel
from safetensors.torch import load_file, save_file
from small_encoders import clip, save_small, v_jepa_2
from trained_alike import assert_trained_alike, stopped_after

from hf_datasets.video import read_frames
from hf_models.encoders import load_encoder
from hf_models.retrieval import ranked_ids, search
from subtle.hub.model import prepare_model
from subtle.options import parse_config
from subtle.train import finetune_vlm
from subtle.train.finetune_vlm import FinetuneVLM
from subtle.train.options import FinetuneVLMConfig
from subtle.vlm.costs import estimate_finetuning
from subtle.vlm.models import TINY, make_tiny, read_checked_config
from tests.fixtures.published_run import read_card

RECIPES = Path(__file__).parents[3] / "recipes"
VIDEO = torch.randint(256, (2, 3, 32, 32), generator=torch.Generator().manual_seed(0)).byte()


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """The folders of the two small models."""
    root = tmp_path_factory.mktemp("vlm")
    return {name: make_tiny(name, root / name) for name in TINY}


@pytest.fixture(params=[TINY[1], pytest.param(TINY[0], marks=pytest.mark.slow)])
def config(request, tiny, models, tmp_path):
    return make_config(tiny, models[request.param], tmp_path / "run")


@pytest.fixture
def one_config(tiny, models, tmp_path):
    return make_config(tiny, models["tiny-random-qwen3-vl"], tmp_path / "run")


def make_config(tiny, model, output_dir):
    chosen = {"num_frames": 2, "epochs": 2, "batch_size": 8, "chunk_size": 16, "rank": 4, "device": "cpu"}
    chosen |= {"learning_rate": 1e-2, "num_workers": 0, "activation_checkpointing": False}
    return FinetuneVLMConfig(dataset=tiny["dataset"], model=model, output_dir=str(output_dir), **chosen)


def results_of(config):
    return json.loads(Path(config.output_dir, "results.json").read_text())


def weights(config):
    (file,) = Path(config.output_dir, "model").glob("*.safetensors")
    return load_file(file)


def no_video(*_, **__):
    raise AssertionError("a video was opened")


def test_training_from_texts_learns_without_opening_a_video_and_leaves_a_small_adapter(config, monkeypatch):
    monkeypatch.setattr(av, "open", no_video)
    finetune_vlm.run(config)
    first, *_, last = results_of(config)["history"]
    assert last["loss"] < first["loss"]
    folder = Path(config.output_dir, "model")
    assert sum(file.stat().st_size for file in folder.iterdir()) < 1_000_000
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == config.model
    loaded = AutoPeftModel.from_pretrained(folder).eval()
    encoder = load_encoder(config.model, num_frames=2, adapter=str(folder))
    expected = encoder.encode_text(["red", "blue"])
    encoder.model = loaded.get_base_model()
    torch.testing.assert_close(encoder.encode_text(["red", "blue"]), expected)
    bare = load_encoder(config.model, num_frames=2)
    assert (bare.encode_text(["red", "blue"]) - expected).abs().max() > 1e-3


@pytest.mark.parametrize("method", ["lora", "frozen_layers"])
def test_what_was_trained_is_published_and_the_code_of_its_card_loads_it(one_config, method, tmp_path, monkeypatch):
    config = replace(one_config, method=method)
    measured = finetune_vlm.run(config)["validation/map@50"]
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "base").symlink_to(config.model)
    with pytest.raises(ValueError, match=r"is an adapter of .*, which is not on the Hub"):
        prepare_model(config.output_dir, "org/name", tmp_path / "org" / "name", part="adapter")
    prepare_model(config.output_dir, "org/name", tmp_path / "org" / "name", part="adapter", base_repo="org/base")
    card = read_card(tmp_path / "org" / "name")
    assert f"| map@50 |  | validation, texts | {measured:.4g} |" in card.text
    assert (card.data.base_model, card.data.base_model_relation) == ("org/base", "adapter")
    assert "no video was seen" in card.text
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(re.search(r"```python\n(.*?)```", card.text, re.DOTALL)[1], names)
    expected = load_encoder(config.model, adapter=f"{config.output_dir}/model").encode_text(["red"])
    torch.testing.assert_close(names["encoder"].encode_text(["red"]), expected)


def test_training_from_clips_reports_what_the_encoder_gives_with_the_adapter(one_config):
    config = replace(one_config, train_on="clips", max_triplets=24, epochs=1, loss="hn_nce")
    measured = finetune_vlm.run(config)
    encoder = load_encoder(config.model, num_frames=2, adapter=f"{config.output_dir}/model")
    run = FinetuneVLM(replace(config, output_dir=config.output_dir + "-again"))
    frames = {item.clip_id: read_frames(run.clips[item.clip_id]["video"], 2).frames for item in run.gallery_items}
    with torch.no_grad():
        queries = torch.cat([encoder.encode_query([frames[item.clip_id]], [item.text]) for item in run.query_items])
        gallery = torch.cat([encoder.encode_video([frames[item.clip_id]]) for item in run.gallery_items])
    rows, _ = search(queries, gallery, 50, exclude=run.queries.exclude)
    found = run.measure(ranked_ids(rows, run.queries.gallery_ids), run.queries)
    assert found["map@50"] == pytest.approx(measured["validation/map@50"], abs=1e-6)


@pytest.mark.parametrize("method", ["lora", pytest.param("frozen_layers", marks=pytest.mark.slow)])
def test_a_run_that_was_stopped_ends_with_the_weights_of_one_that_was_not(config, method):
    whole = replace(config, method=method, epochs=2, checkpoint_steps=3, lora_dropout=0.1)
    expected = finetune_vlm.run(whole)
    stopped = replace(whole, output_dir=config.output_dir + "-stopped")
    with stopped_after(3):
        finetune_vlm.run(stopped)
    assert finetune_vlm.run(stopped) == expected
    assert_trained_alike(whole.output_dir, stopped.output_dir)


def test_two_processes_end_with_the_weights_of_one(config, tmp_path, run_on_two_processes):
    alone = replace(config, epochs=1, lora_dropout=0.0, batch_size=7)
    double = replace(alone, output_dir=str(tmp_path / "double"))
    finetune_vlm.run(alone)
    run_on_two_processes("finetune_vlm.py", double)
    torch.testing.assert_close(weights(double), weights(alone), atol=2e-5, rtol=1e-3)


def test_gradient_caching_equals_the_plain_gradient(config):
    run = FinetuneVLM(
        replace(config, train_on="clips", max_triplets=8, lora_dropout=0.0, activation_checkpointing=True)
    )
    run.trained.train()
    batch = run.source.batch(torch.arange(6), 0)
    (frames,) = run.frames_of([batch.items])
    parts = [run.rows(part, frames) for part in (batch.queries, batch.targets, batch.negatives)]
    plain_loss = run.loss(torch.cat(parts), batch=batch)
    plain_loss.backward()
    plain = [weight.grad.clone() for weight in run.weights]
    run.optimizer.zero_grad()
    chunks = [lambda chunk=chunk: run.rows(chunk, frames) for chunk in finetune_vlm.chunks_of(batch.items, 2)]
    loss = finetune_vlm.backward_in_chunks(chunks, lambda embeds: run.loss(embeds, batch=batch))
    assert loss == pytest.approx(plain_loss.item(), rel=1e-5, abs=1e-5)
    largest = max(gradient.abs().max().item() for gradient in plain)
    assert largest > 1e-3
    for weight, expected in zip(run.weights, plain, strict=True):
        torch.testing.assert_close(weight.grad, expected, atol=1e-4 * largest, rtol=0)


def test_a_head_over_frozen_layers_learns_and_is_loaded_as_an_adapter(config, monkeypatch):
    monkeypatch.setattr("subtle.vlm.models.HEAD_LAYERS", 1)  # two take more epochs
    chosen = replace(config, method="frozen_layers", layers=[1, 2])
    finetune_vlm.run(chosen)
    first, *_, last = results_of(chosen)["history"]
    assert last["loss"] < first["loss"]
    encoder = load_encoder(chosen.model, num_frames=2, adapter=f"{chosen.output_dir}/model")
    bare = load_encoder(chosen.model, num_frames=2)
    stacked = load_encoder(chosen.model, num_frames=2, options={"layers": [1, 2]})
    with torch.no_grad():
        assert stacked.encode_query([VIDEO], ["red"]).shape == (1, 2, 64)
        torch.testing.assert_close(stacked.encode_video([VIDEO])[:, -1], bare.encode_video([VIDEO]))
        rows = encoder.encode_query([VIDEO], ["red"])
    assert rows.shape == (1, 64)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(1))
    with pytest.raises(ValueError, match=r"was trained on .*, not on"):
        load_encoder(save_small(clip, Path(chosen.output_dir, "clip")), adapter=f"{chosen.output_dir}/model")


def test_the_cost_is_printed_before_anything_loads_and_counts_the_weights_that_train(config, monkeypatch, capsys):
    trained = FinetuneVLM(config).weights
    cost = estimate_finetuning(config, read_checked_config(config.model))
    assert cost.trained_parameters == sum(weight.numel() for weight in trained)
    capsys.readouterr()
    monkeypatch.setattr(finetune_vlm, "load_frozen", no_video)
    finetune_vlm.main(replace(config, dry_run=True))
    printed = capsys.readouterr().out
    assert all(f"{name}:" in printed for name in ("download", "GPU memory", "trains", "work"))
    assert f"{cost.trained_parameters / 1e6:,.2f}M weights" in printed
    larger = estimate_finetuning(replace(config, chunk_size=10_000), read_checked_config(config.model))
    assert larger.memory_bytes > cost.memory_bytes
    assert estimate_finetuning(replace(config, batch_size=512), read_checked_config(config.model)) == cost


def test_a_gpu_that_is_too_small_is_refused_before_loading(one_config, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (10**8, 8 * 10**9))
    monkeypatch.setattr(finetune_vlm, "load_frozen", no_video)
    monkeypatch.setattr(Accelerator, "device", torch.device("cuda"))
    monkeypatch.setattr(finetune_vlm.TrainingRun, "__init__", lambda self, config: set_up(self, config))

    def set_up(run, config):
        run.config, run.accelerator = config, Accelerator(cpu=True)

    with pytest.raises(ValueError, match=r"needs about .* to train with --chunk_size 16, .* free of .*lower --chunk"):
        FinetuneVLM(one_config)


def test_a_model_without_a_text_tower_is_refused(one_config, tmp_path):
    for make, message in ((v_jepa_2, "which has no text tower"), (clip, "is a 'clip' model")):
        folder = save_small(make, tmp_path / make.__name__)
        with pytest.raises(ValueError, match=rf"(?s){message}.*this recipe fine-tunes multimodal"):
            finetune_vlm.run(replace(one_config, model=folder))


def test_an_adapter_of_another_base_is_refused(one_config, models, tmp_path):
    finetune_vlm.run(replace(one_config, epochs=1))
    trained, other = f"{one_config.output_dir}/model", models["tiny-random-qwen2-vl"]
    with pytest.raises(ValueError, match=f"was trained on {one_config.model}, not on {other}; load"):
        finetune_vlm.run(replace(one_config, model=other, adapter=trained, output_dir=str(tmp_path / "other")))
    with pytest.raises(ValueError, match="was trained on"):
        load_encoder(other, num_frames=2, adapter=trained)
    more = replace(one_config, adapter=trained, epochs=1, output_dir=str(tmp_path / "more"))
    finetune_vlm.run(more)
    assert results_of(more)["history"][0]["loss"] < results_of(one_config)["history"][0]["loss"]


def test_weights_that_do_not_load_whole_are_refused(one_config, models, tmp_path):
    finetune_vlm.run(replace(one_config, epochs=1))
    file = Path(one_config.output_dir, "model", "adapter_model.safetensors")
    saved = load_file(file)
    missing = sorted(saved)[0]
    save_file({name: value for name, value in saved.items() if name != missing}, file)
    with pytest.raises(ValueError, match=r"1 weights of the adapter .* are missing"):
        load_encoder(one_config.model, num_frames=2, adapter=str(file.parent))
    with pytest.raises(ValueError, match=r"1 weights of the adapter .* are missing"):
        finetune_vlm.run(replace(one_config, adapter=str(file.parent), output_dir=str(tmp_path / "more")))


def test_a_batch_smaller_than_the_processes_is_refused(one_config, monkeypatch):
    monkeypatch.setattr(Accelerator, "num_processes", 8)
    with pytest.raises(SystemExit, match="--batch_size 8 is fewer than two triplets for each of 8 processes; give "):
        FinetuneVLM(one_config)


@pytest.mark.parametrize("path", sorted((RECIPES / "configs").glob("finetune_vlm*.yaml")), ids=lambda path: path.stem)
def test_a_configuration_file_is_read(path):
    config = parse_config(FinetuneVLMConfig, None, [str(path)])
    assert ("/" in config.model) == path.stem.removesuffix("_4xa100").endswith("2b")
    if path.stem == "finetune_vlm":
        assert config == FinetuneVLMConfig()


@pytest.mark.usefixtures("diverging")
@pytest.mark.parametrize(("train_on", "named"), [("texts", r"\w+\. show \w+"), ("clips", r"train-\w+-\d \+ show \w+")])
def test_a_loss_that_is_not_finite_names_the_queries_of_its_triplets(one_config, train_on, named):
    with pytest.raises(SystemExit, match=rf"the loss of step 1 is nan, among rows {named}"):
        finetune_vlm.run(replace(one_config, train_on=train_on))
