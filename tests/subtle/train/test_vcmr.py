"""Training and measuring moment retrieval: it learns, resumes to the same weights, counts, and refuses."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from published_run import publish
from trained_alike import assert_trained_alike
from transformers import AutoModel

from hf_datasets.fig.moments import MOMENT_SCHEMA
from hf_models.feature_store import FeatureStore
from hf_models.moments.presets import MINIATURE, PRESETS
from metrics.vcmr_recall.scoring import moment_retrieval_recall
from metrics.vcmr_recall.tvr import read_tvr_submission
from subtle.evaluate import evaluate_vcmr
from subtle.evaluate.options import EvaluateVCMRConfig
from subtle.fig.data import span_preset
from subtle.options import parse_config
from subtle.run.shared_config import MINIATURE_CLIP_SECONDS
from subtle.train import vcmr
from subtle.train.options import VCMRConfig

RECIPES = Path(__file__).parents[3] / "recipes"
CARD = """---
configs:
- config_name: mini
  data_files:
  - {split: train, path: train.parquet}
  - {split: validation, path: validation.parquet}
  - {split: test, path: test.parquet}
---
"""
SIZE, CLIPS = 24, 12


def a_split(split, num_videos, generator):
    """Videos whose clips are noise but for moments of four kinds; fine captions also name the video's own color."""
    rows, videos, fine, coarse = [], {}, {}, {}
    for number in range(num_videos):
        video_id, color = f"{split}-{number}", number % 6
        features = 0.3 * generator.standard_normal((CLIPS, SIZE))
        features[:, 4 + color] += 2
        for kind, first in enumerate(generator.permutation([0, 3, 6, 9])):
            features[first : first + 2, kind] += 4
            desc_id = len(rows) + {"train": 0, "validation": 10_000, "test": 20_000}[split]
            captions = {"coarse_caption": f"kind {kind}", "fine_caption": f"kind {kind} in {color}"}
            seconds = {"duration_seconds": float(CLIPS), "start_seconds": float(first), "end_seconds": float(first + 2)}
            rows.append({"desc_id": desc_id, "video_id": video_id, **seconds, **captions})
            one_hot = np.eye(SIZE)
            coarse[str(desc_id)] = one_hot[[kind]]
            fine[str(desc_id)] = one_hot[[kind, 4 + color]]
        videos[video_id] = features
    return rows, videos, fine, coarse


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A dataset of moments as a folder, and its features."""
    folder = tmp_path_factory.mktemp("moments")
    generator = np.random.default_rng(0)
    stores = {kind: FeatureStore(folder / "features" / kind) for kind in ("video", "query-fine", "query-coarse")}
    for split, num_videos in (("train", 36), ("validation", 6), ("test", 6)):
        rows, *features = a_split(split, num_videos, generator)
        moments = pa.Table.from_pylist(rows, schema=MOMENT_SCHEMA)
        pq.write_table(moments, folder / f"{split}.parquet")
        for store, arrays in zip(stores.values(), features, strict=True):
            store.append(list(arrays), [torch.from_numpy(array) for array in arrays.values()])
    (folder / "README.md").write_text(CARD)
    return folder


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """Folders of one name share a place in the cache of `datasets`."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "datasets")


@pytest.fixture(scope="module")
def small(data):
    limits = {"min_clips": 1, "max_clips": 4, "max_video_clips": CLIPS, "nms_threshold": 0.5}
    return {"dataset": str(data), "features": str(data / "features"), **limits}


def config_of(small, output_dir):
    # Of 144 moments the last batch holds 44.
    return VCMRConfig(**small, epochs=12, batch_size=50, learning_rate=3e-3, output_dir=str(output_dir))


@pytest.fixture
def config(small, tmp_path):
    return config_of(small, tmp_path / "run")


@pytest.fixture(scope="module")
def trained(small, tmp_path_factory):
    """The folder of an XML that was trained once, to be measured."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("datasets.config.HF_DATASETS_CACHE", folder / "datasets")
        vcmr.run(config_of(small, folder / "run"))
    return str(folder / "run" / "model")


@pytest.fixture
def measuring(small, trained, tmp_path):
    """The measuring of that XML."""
    return EvaluateVCMRConfig(**small, models=[trained], output_dir=str(tmp_path / "evaluation"))


@pytest.mark.parametrize("model", ["xml", pytest.param("reloclnet", marks=pytest.mark.slow), "hero"])
def test_training_learns_and_leaves_a_complete_model(config, model):
    config.model = model
    measured = vcmr.run(config)
    results = json.loads(Path(config.output_dir, "results.json").read_text())
    first, *_, last = results["history"]
    assert last["loss"] < first["loss"]
    best = max(epoch["score"] for epoch in results["history"])
    assert best == measured["vcmr_recall@1_iou@0.5"] + measured["vcmr_recall@1_iou@0.7"]
    assert measured["svmr_recall@1_iou@0.5"] > 0.25
    assert measured["vr_recall@1"] > 0.3
    assert results["coverage"]["train"]["moments_trained_on"] == 144
    card, _ = publish(config.output_dir)
    assert results["signature"].replace("task:vr", "task:vcmr") in card.text
    assert results["coverage"]["validation"]["queries_used"] == 24
    assert AutoModel.from_pretrained(Path(config.output_dir) / "model").config.video_feature_size == SIZE
    assert not Path(config.output_dir, "checkpoints").exists()


def test_fine_queries_find_more_than_coarse_ones(measuring):
    measured = evaluate_vcmr.run(replace(measuring, queries=["fine", "coarse"]))
    assert measured.keys() == {"xml, fine -> fine", "xml, fine -> coarse"}
    fine, coarse = measured.values()
    assert fine["vcmr_recall@1_iou@0.5"] > coarse["vcmr_recall@1_iou@0.5"] + 0.2


def test_a_killed_run_ends_with_the_weights_of_one_that_was_not(config, tmp_path, kill_in_training):
    config.epochs, config.checkpoint_steps = 6, 4
    whole = vcmr.run(config)
    killed = replace(config, output_dir=str(tmp_path / "killed"))
    kill_in_training("vcmr.py", killed)
    assert vcmr.run(killed) == whole
    assert_trained_alike(config.output_dir, killed.output_dir)


def test_training_stops_when_the_score_no_longer_rises(config):
    config.learning_rate, config.patience, config.epochs = 0.0, 2, 50
    vcmr.run(config)
    results = json.loads(Path(config.output_dir, "results.json").read_text())
    assert len(results["history"]) == 3


def test_the_grid_over_seeds_gives_mean_and_deviation_and_trains_nothing_twice(small, tmp_path, monkeypatch):
    base = {"epochs": 2, "batch_size": 72, "learning_rate": 1e-3}
    (tmp_path / "vcmr.yaml").write_text(yaml.safe_dump(base))
    places = {"runs_dir": str(tmp_path / "runs"), "output_dir": str(tmp_path / "evaluation")}
    trained = {"architectures": ["xml"], "seeds": [0, 1], "vcmr_config": [str(tmp_path / "vcmr.yaml")]}
    evaluation = EvaluateVCMRConfig(**small, compare=True, **trained, **places)
    measured = evaluate_vcmr.run(evaluation)
    assert measured.keys() == {"xml, coarse -> fine", "xml, fine -> fine"}
    results = json.loads((tmp_path / "evaluation" / "results.json").read_text())
    for name, values in measured.items():
        one, two = (seed["vr_recall@10"] for seed in results["by_seed"][name])
        assert values["vr_recall@10"] == pytest.approx((one + two) / 2)
        assert values["vr_recall@10_std"] == pytest.approx(abs(one - two) / 2**0.5)
        interval = results["intervals"][name]["svmr_recall@10_iou@0.5"]
        assert interval["mean"] == pytest.approx(values["svmr_recall@10_iou@0.5"])
        assert interval["low"] <= interval["mean"] <= interval["high"]
    (difference,) = results["differences"].values()
    means = [measured[name]["vcmr_recall@10_iou@0.5"] for name in ("xml, fine -> fine", "xml, coarse -> fine")]
    assert difference["vcmr_recall@10_iou@0.5"]["mean"] == pytest.approx(means[0] - means[1])
    monkeypatch.setattr(vcmr.VCMR, "train_epoch", None)  # would fail
    assert evaluate_vcmr.run(evaluation) == measured


def test_the_written_submission_has_the_same_metrics(measuring, data):
    (measured,) = evaluate_vcmr.run(measuring).values()
    path = Path(measuring.output_dir, "submissions", "xml-fine-to-fine", "0.json")
    submission = json.loads(path.read_text())
    assert submission.keys() == {"video2idx", "VCMR", "SVMR", "VR"}
    truth = [
        {"desc_id": row["desc_id"], "vid_name": row["video_id"], "ts": [row["start_seconds"], row["end_seconds"]]}
        for row in pl.read_parquet(data / "test.parquet").iter_rows(named=True)
    ]
    for task in ("vcmr", "svmr", "vr"):
        predictions, references = read_tvr_submission(submission, truth, task)
        again = moment_retrieval_recall(predictions, references, task=task)
        for name, value in again.items():
            assert name == "signature" or value == pytest.approx(measured[name])


def test_a_corpus_of_one_video_can_be_measured(measuring, tmp_path, data):
    folder = tmp_path / "changed"
    folder.mkdir()
    for path in data.glob("*.parquet"):
        rows = pl.read_parquet(path)
        (rows.filter(pl.col("video_id") == "test-2") if path.stem == "test" else rows).write_parquet(folder / path.name)
    (folder / "README.md").write_text(CARD)
    (measured,) = evaluate_vcmr.run(replace(measuring, dataset=str(folder))).values()
    assert measured["vr_recall@1"] == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": "nowhere"}, "there are no features nowhere/video.*embed.py moments.*--features names"),
        ({"preset": "tvr"}, "there is no preset 'tvr'.*charades_fig"),
        ({"validation_split": "held-out"}, "the split 'held-out' .*cannot be read"),
        ({"init_from": "roberta-base"}, "--model hero --size paper"),
        ({"model_fields": {"hard_pol_size": 80}}, "XMLConfig has no 'hard_pol_size'; did you mean hard_pool_size"),
        (
            {"model": "hero", "size": "paper", "init_from": "outputs/hero/hero-tv-ht100"},
            "outputs/hero/hero-tv-ht100 is not a model folder .*convert_tvr --arch hero",
        ),
    ],
)
def test_wrong_options_are_errors_that_name_the_fix(config, changes, message):
    with pytest.raises((SystemExit, FileNotFoundError), match=message):
        vcmr.run(replace(config, **changes))


def test_a_model_of_other_features_or_no_model_is_refused(config, measuring, tmp_path):
    measuring.models = [str(tmp_path)]
    with pytest.raises(SystemExit, match="is not a model folder"):
        evaluate_vcmr.run(measuring)
    vcmr.make_model(config, (SIZE + 1, SIZE)).save_pretrained(tmp_path / "other")
    measuring.models = [str(tmp_path / "other")]
    with pytest.raises(SystemExit, match=r"sizes \(24, 24\) .*reads \(25, 24\)"):
        evaluate_vcmr.run(measuring)


@pytest.mark.parametrize(
    "name", ["vcmr", "vcmr_miniature_long", "vcmr_charades_fig", "vcmr_didemo_fig", "vcmr_activitynet_fig"]
)
def test_the_configuration_files_are_read_and_name_a_preset(name):
    config = parse_config(VCMRConfig, None, [str(RECIPES / "configs" / f"{name}.yaml")])
    preset = span_preset(config)
    if name in {"vcmr", "vcmr_miniature_long"}:
        longer = {"epochs": 40, "output_dir": "outputs/vcmr_long"} if name == "vcmr_miniature_long" else {}
        assert config == VCMRConfig(**longer)
        assert preset == MINIATURE
        assert preset.clip_seconds == MINIATURE_CLIP_SECONDS
    else:
        assert preset == PRESETS[name.removeprefix("vcmr_")]
        assert vcmr.make_model(config, (2048, 768)).config.hidden_size == 256


TRAINING = {
    "xml": {"epochs": 100, "batch_size": 128, "hard_negative_step": None, "adam_beta2": 0.999},
    "reloclnet": {"epochs": 100, "batch_size": 128, "max_gradient_norm": 0.0},
    "hero": {"max_steps": 5000, "batch_size": 32, "warmup_steps": 500, "hard_negative_step": 2000, "adam_beta2": 0.98}
    | {"max_gradient_norm": 1.0, "patience": None, "init_from": "outputs/hero/hero-tv-ht100"},
}


@pytest.mark.parametrize(("architecture", "hidden_size"), [("xml", 256), ("reloclnet", 384), ("hero", 768)])
def test_each_architecture_trains_by_its_own_file_on_the_data_of_another(architecture, hidden_size):
    files = ["vcmr_didemo_fig", "vcmr_xml", "vcmr_reloclnet", "vcmr_hero", "vcmr_hero_didemo"]
    evaluation = EvaluateVCMRConfig(vcmr_config=[str(RECIPES / "configs" / f"{name}.yaml") for name in files])
    found = evaluate_vcmr.training_config(evaluation, architecture)
    assert {name: getattr(found, name) for name in TRAINING[architecture]} == TRAINING[architecture]
    assert (found.model, evaluation.dataset, found.size) == (architecture, "didemo_fig", "paper")
    assert found.learning_rate == (7e-5 if architecture == "hero" else 1e-4)
    found.init_from = None
    with torch.device("meta"):
        model = vcmr.make_model(found, (2048, 768))
    assert model.config.hidden_size == hidden_size
    assert model.config.hard_pool_size == (80 if architecture == "hero" else 20)


def test_heros_recipe_counts_in_steps(config, monkeypatch):
    seen = []
    forward = vcmr.XMLForMomentRetrieval.forward

    def watched(model, *inputs, hard_negatives=False, **others):
        seen.append(hard_negatives)
        return forward(model, *inputs, hard_negatives=hard_negatives, **others)

    monkeypatch.setattr(vcmr.XMLForMomentRetrieval, "forward", watched)
    run = vcmr.VCMR(replace(config, max_steps=5, hard_negative_step=4, adam_beta2=0.98, patience=None))
    run.train()  # 3 steps make an epoch
    assert seen == [False] * 4 + [True]
    assert {group["betas"] for group in run.optimizer.param_groups} == {(0.9, 0.98)}
    assert (run.progress.epoch, run.progress.total_steps) == (2, 5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--queries", "medium"], "--queries: there is no 'medium'; there are fine, coarse"),
        (["--without_moment", "1"], "--without_moment must lie in [0, 1)"),
    ],
)
def test_a_flag_of_the_evaluation_with_another_value_is_refused_by_name(capsys, words, message):
    with pytest.raises(SystemExit):
        parse_config(EvaluateVCMRConfig, None, words)
    assert message in capsys.readouterr().err


def test_queries_without_a_moment_are_measured(measuring):
    plain = evaluate_vcmr.run(measuring)
    assert evaluate_vcmr.run(replace(measuring, without_moment=0.5)) == plain
    results = json.loads(Path(measuring.output_dir, "results.json").read_text())
    without = results["without_moment"]["xml, fine -> fine"]
    assert without["queries_without_moment"] == 12
    assert 0 <= without["vcmr_true_rejection"] <= 1
    assert without["vcmr_answered"] + without["vcmr_true_rejection"] > 1  # better than chance


@pytest.mark.usefixtures("diverging")
def test_a_loss_that_is_not_finite_names_the_queries_of_its_moments(config):
    with pytest.raises(SystemExit, match=r"the loss of step 1 is nan, among rows (\d+), (\d+), "):
        vcmr.run(config)
