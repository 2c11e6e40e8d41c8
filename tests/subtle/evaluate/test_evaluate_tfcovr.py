"""Evaluation: metrics that agree with a second implementation, a fair gallery, coverage, seeds, and the baselines."""

import json
import statistics
from pathlib import Path

import polars as pl
import pytest
import yaml
from datasets import DatasetDict
from plain_metrics import plain_average_precision
from transformers import AutoConfig

from hf_models.feature_store import FeatureStore
from subtle.evaluate import evaluate_tfcovr
from subtle.evaluate.options import EvaluateConfig
from subtle.tfcovr import measure
from subtle.tfcovr.systems import SYSTEMS
from subtle.train import stage2
from subtle.train.stage2 import Stage2Config

TRAINING = {"projection_dim": 16, "fusion_hidden_dim": 32, "batch_size": 64, "epochs": 2, "learning_rate": 3e-3}


@pytest.fixture(scope="session")
def trained(tiny, embedded, tmp_path_factory):
    folders = []
    for seed in (0, 1):
        folder = tmp_path_factory.mktemp(f"seed-{seed}")
        stage2.run(Stage2Config(**tiny, **TRAINING, embeddings=embedded, output_dir=str(folder), seed=seed))
        folders.append(str(folder / "model"))
    return folders


def make_config(tiny, embedded, trained, folder):
    given = {"models": trained[:1], "embeddings": embedded, "num_workers": 0, "output_dir": str(folder / "evaluation")}
    return EvaluateConfig(dataset=tiny["dataset"], **given)


@pytest.fixture
def config(tiny, embedded, trained, tmp_path):
    return make_config(tiny, embedded, trained, tmp_path)


@pytest.fixture(scope="module")
def plain(tiny, embedded, trained, caches, tmp_path_factory):
    """The metrics of one model, what was written as results, and its predictions."""
    config = make_config(tiny, embedded, trained, tmp_path_factory.mktemp("plain"))
    measured = evaluate_tfcovr.run(config)["two-stage"]
    return measured, results_of(config), predictions_of(config)


def results_of(config):
    return json.loads(Path(config.output_dir, "results.json").read_text())


def predictions_of(config):
    return pl.read_parquet(Path(config.output_dir) / "predictions.parquet")


def test_metrics_agree_with_a_second_implementation(plain):
    measured, _, predictions = plain
    assert len(predictions) == 36
    for k in (5, 10, 25, 50):
        expected = statistics.mean(
            plain_average_precision(row["ranked_clip_ids"], set(row["target_clip_ids"]), k)
            for row in predictions.iter_rows(named=True)
        )
        assert measured[f"map@{k}"] == pytest.approx(expected, abs=1e-12)


def test_the_gallery_is_every_other_clip_of_the_split_once_by_cosines(plain):
    for row in plain[2].iter_rows(named=True):
        assert row["query_clip_id"] not in row["ranked_clip_ids"]
        assert len(row["ranked_clip_ids"]) == len(set(row["ranked_clip_ids"])) == 11
        assert row["scores"] == sorted(row["scores"], reverse=True)
        assert len(row["scores"]) == 11
        assert max(map(abs, row["scores"])) <= 1 + 1e-5


def test_results_have_the_coverage_and_the_protocol(plain):
    measured, results, _ = plain
    assert results["figures"] == {"two-stage": measured}
    assert results["gallery_size"] == 12
    assert "protocol:standard" in results["signature"]
    assert results["coverage"]["two-stage"] == {
        "queries": 36, "targets": 108, "gallery_clips": 12,
        "queries_ranked": 36, "targets_in_gallery": 108, "gallery_clips_ranked": 12,
    }  # fmt: skip
    assert "std" not in str(measured)


def without_grey_in_training(loaded):
    return DatasetDict({**loaded, "train": loaded["train"].filter(lambda clip: clip["label"] != "grey")})


def test_queries_are_measured_in_groups_where_a_label_has_no_training_clip(config, plain, monkeypatch, capsys):
    whole, results, _ = plain
    assert "by_group" not in results
    load = measure.load_splits
    monkeypatch.setattr(measure, "load_splits", lambda *a, **kw: without_grey_in_training(load(*a, **kw)))
    assert evaluate_tfcovr.run(config)["two-stage"] == whole
    found = results_of(config)["by_group"]["two-stage"]
    counts = {group: values["queries"] for group, values in found.items()}
    assert counts == {"seen_to_seen": 18, "seen_to_unseen": 9, "unseen_to_seen": 9}
    mean = sum(values["queries"] * values["map@10"] for values in found.values()) / 36
    assert mean == pytest.approx(whole["map@10"])
    assert "whether the labels of query and target have training clips" in capsys.readouterr().out


def test_missing_clips_show_in_the_coverage_and_in_the_score(config, plain, tmp_path):
    partial = tmp_path / "partial"
    for kind in ("video", "text"):
        store = FeatureStore(Path(config.embeddings) / kind)
        names, rows = store.load()
        kept = [place for place, one in enumerate(names) if one != "test-red-0"]
        FeatureStore(partial / kind, store.details).append([names[place] for place in kept], rows[kept])
    (partial / "results.json").write_text("{}")
    config.embeddings = str(partial)
    measured = evaluate_tfcovr.run(config)["two-stage"]
    coverage = results_of(config)["coverage"]["two-stage"]
    assert (coverage["queries"], coverage["queries_ranked"]) == (36, 33)
    assert (coverage["gallery_clips"], coverage["gallery_clips_ranked"]) == (12, 11)
    assert coverage["targets"] - coverage["targets_in_gallery"] == 9
    assert measured["map@50"] < plain[0]["map@50"]


def test_the_official_gallery_repeats_the_first_targets_and_ends_with_the_query(config):
    config.protocol = "tfcovr-official"
    evaluate_tfcovr.run(config)
    results = results_of(config)
    assert results["gallery_size"] == 36
    assert "protocol:tfcovr-official" in results["signature"]
    predictions = predictions_of(config)
    firsts = [targets[0] for targets in predictions["target_clip_ids"]]
    for row in predictions.iter_rows(named=True):
        assert sorted(row["ranked_clip_ids"]) == sorted(firsts)
        own = firsts.count(row["query_clip_id"])
        assert row["ranked_clip_ids"][36 - own :] == [row["query_clip_id"]] * own


@pytest.mark.parametrize(("gallery", "size"), [("clips", 12), ("targets", 9)])
def test_the_gallery_may_be_the_targets_alone(config, monkeypatch, gallery, size):
    def without_grey_targets(config, split, *, clips=False):
        rows = load(config, split, clips=clips)
        return rows if clips else rows.filter(lambda query: query["target_label"] != "grey")

    load = measure.load_split
    monkeypatch.setattr(measure, "load_split", without_grey_targets)
    config.gallery = gallery
    evaluate_tfcovr.run(config)
    assert results_of(config)["gallery_size"] == size


def test_several_models_give_mean_and_standard_deviation(config, trained):
    config.models = trained
    measured = evaluate_tfcovr.run(config)["two-stage"]
    by_seed = results_of(config)["by_seed"]["two-stage"]
    values = [one["map@10"] for one in by_seed]
    assert measured["map@10"] == pytest.approx(sum(values) / 2)
    assert measured["map@10_std"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    names = sorted(path.name for path in Path(config.output_dir, "predictions", "two-stage").iterdir())
    assert names == ["0.parquet", "1.parquet"]


@pytest.fixture
def compared(config, tiny, tmp_path):
    """Compare all systems, trained anew as some options of stage 2 say."""

    def compare(**training):
        training = {**tiny, **TRAINING, "epochs": 1, "output_dir": str(tmp_path / "base")} | training
        (tmp_path / "stage2.yaml").write_text(yaml.safe_dump(training))
        config.compare, config.stage2_config = True, str(tmp_path / "stage2.yaml")
        config.image_model = str(Path(tiny["vision_model"]).parent / "clip")
        config.runs_dir, config.embeddings = str(tmp_path / "systems"), str(tmp_path / "embeddings" / "stage1")
        measured = evaluate_tfcovr.run(config)
        assert list(measured) == [system.name for system in SYSTEMS]
        return measured

    return compare


def test_the_comparison_measures_every_baseline(config, compared, embedded, tmp_path):
    config.seeds = [0, 1]
    measured = compared(embeddings=embedded)
    assert all(0 < one["map@50"] < 1 for one in measured.values())
    assert all(("map@50_std" in one) == (name != "zero-shot average") for name, one in measured.items())
    made = {path.name for path in (tmp_path / "embeddings").iterdir()}
    assert made == {"stage1", "frames", "zero-shot", "stage1-shuffled"}


def test_the_comparison_trains_baselines_as_the_given_model_was_once_and_refuses_those_of_another_training(
    config, plain, tmp_path, monkeypatch
):
    config.compare, config.systems, config.runs_dir = True, ["two-stage", "text-only"], str(tmp_path / "systems")
    trainings = []
    monkeypatch.setattr(evaluate_tfcovr, "train", lambda one: (trainings.append(one), stage2.run(one)))
    measured = evaluate_tfcovr.run(config)
    assert list(measured) == config.systems
    assert measured["two-stage"] == plain[0]
    (training,) = trainings
    assert {name: getattr(training, name) for name in TRAINING} == TRAINING
    assert training.output_dir == str(tmp_path / "systems/text-only/seed-0")
    evaluate_tfcovr.run(config)
    assert len(trainings) == 1
    path = tmp_path / "systems/text-only/seed-0/results.json"
    results = json.loads(path.read_text())
    results["config"]["learning_rate"] = 1.0
    path.write_text(json.dumps(results))
    with pytest.raises(SystemExit, match="trained with other learning_rate; name another --runs_dir"):
        evaluate_tfcovr.run(config)


@pytest.mark.slow
def test_the_comparison_of_a_factored_model_has_factored_halves_and_image_models_in_a_tf_covr(
    compared, tiny_factored, embedded_factored, tmp_path
):
    measured = compared(**tiny_factored, embeddings=embedded_factored, model="factored_covr")
    assert all(0 < one["map@50"] <= 1 for one in measured.values())
    folders = [path.parent for path in tmp_path.glob("**/model/config.json")]
    kinds = {folder.parents[1].name: AutoConfig.from_pretrained(folder).model_type for folder in folders}
    assert kinds.pop("stage-2-only") == "tfcovr"
    assert kinds == dict.fromkeys((tmp_path.name, "text-only", "video-only"), "factored_covr")


def test_an_unknown_system_is_refused_with_those_there_are(config):
    config.compare, config.systems = True, ["audio-only"]
    with pytest.raises(SystemExit, match=r"no system \['audio-only'\]; there are 'two-stage', 'stage-2-only'"):
        evaluate_tfcovr.run(config)


def test_a_model_that_is_not_there_says_how_to_make_it(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config.models = ["outputs/stage2/model"]
    with pytest.raises(SystemExit, match=r"outputs/stage2/model is not a model folder .* recipes/stage2\.py"):
        evaluate_tfcovr.run(config)


def test_an_encoder_given_as_the_model_is_refused(config, tiny):
    config.models = [tiny["vision_model"]]
    with pytest.raises(SystemExit, match="holds a AIMModel, not a model that stage 2 wrote"):
        evaluate_tfcovr.run(config)


def test_embeddings_of_another_encoder_are_refused(config, tiny, tmp_path):
    clip = str(Path(tiny["vision_model"]).parent / "clip")
    other = Stage2Config(**{**tiny, "vision_model": clip}, **TRAINING)
    other.embeddings, other.output_dir = str(tmp_path / "clip"), str(tmp_path / "other")
    stage2.run(other)
    config.models = [f"{other.output_dir}/model"]
    with pytest.raises(ValueError, match="features of two models must not be mixed"):
        evaluate_tfcovr.run(config)


@pytest.mark.parametrize("share", [0, 0.5])
def test_a_trained_system_whose_results_were_cut_is_named_with_the_cure(tmp_path, share):
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"config": {"seed": 0}})[: int(share * 20)])
    with pytest.raises(ValueError, match=r"results.json is damaged, .* remove it and run again what wrote it"):
        evaluate_tfcovr.is_trained(Stage2Config(output_dir=str(tmp_path)), "--runs_dir")
