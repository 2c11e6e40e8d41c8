"""Ablation: variations are trained once, measured as elsewhere, compared pair by pair, and none is silently missing."""

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import yaml

from hf_datasets.drafts import write_json
from hf_models.feature_store import FeatureStore
from subtle.embedding import embed_clips
from subtle.evaluate import evaluate_tfcovr
from subtle.evaluate.options import EvaluateConfig
from subtle.run.data import load_split
from subtle.table import costs
from subtle.table.ablate import STAGES, planned_runs, train
from subtle.table.options import AblateConfig
from subtle.table.query_groups import groups_of
from subtle.table.rows import write_row
from subtle.table.table import main
from subtle.table.variations import read_variations
from subtle.tfcovr.batches import EmbeddingSource
from subtle.train import stage2

TRAINING = {"projection_dim": 16, "fusion_projection_dim": 16, "fusion_hidden_dim": 16, "batch_size": 64}
TRAINING |= {"epochs": 1, "learning_rate": 3e-3}
VARIATIONS = {"plain": {"loss": "infonce"}, "HN-NCE/0.5": {"loss": "hn_nce", "beta": 0.5}}


def make_config(tiny, embedded, folder):
    base = {"vision_model": tiny["vision_model"], "text_model": tiny["text_model"]}
    (folder / "stage2.yaml").write_text(yaml.safe_dump({**TRAINING, **base}))
    data = {"dataset": tiny["dataset"], "embeddings": embedded, "num_workers": 0}
    places = {"stage2_config": str(folder / "stage2.yaml"), "output_dir": str(folder / "ablation")}
    return AblateConfig(**data, **places, variations=VARIATIONS, seeds=[0, 1])


@pytest.fixture
def config(tiny, embedded, tmp_path):
    return make_config(tiny, embedded, tmp_path)


def results_of(config):
    return json.loads(Path(config.output_dir, "results.json").read_text())


def recorded(monkeypatch):
    calls, train = [], stage2.run
    monkeypatch.setattr(stage2, "run", lambda config: (calls.append(config), train(config))[1])
    return calls


@pytest.fixture
def trainings(monkeypatch):
    """The configurations that stage 2 is trained with."""
    return recorded(monkeypatch)


@pytest.fixture(scope="module")
def complete(tiny, embedded, tmp_path_factory, caches):
    """The configuration of a complete table, which tests only read, and what was trained for it."""
    config = make_config(tiny, embedded, tmp_path_factory.mktemp("complete"))
    with pytest.MonkeyPatch.context() as patched:
        calls = recorded(patched)
        assert main(config) == 0
    return config, calls


def test_each_variation_has_the_mean_over_seeds_and_its_paired_difference(complete, trainings):
    config, trained = complete
    results = results_of(config)
    assert list(results["figures"]) == list(VARIATIONS)
    by_seed = results["by_seed"]["HN-NCE/0.5"]
    assert results["figures"]["HN-NCE/0.5"]["map@5"] == pytest.approx(
        (by_seed["0"]["map@5"] + by_seed["1"]["map@5"]) / 2
    )
    (found,) = results["differences"]
    assert (found["variation"], found["against"], found["seeds"]) == ("HN-NCE/0.5", "plain", [0, 1])
    expected = results["figures"]["HN-NCE/0.5"]["map@10"] - results["figures"]["plain"]["map@10"]
    interval = found["intervals"]["map@10"]
    assert interval["mean"] == pytest.approx(expected)
    assert interval["low"] <= expected <= interval["high"]
    own = results["rows"]["plain"]["columns"]["interval of mAP@50"]
    low, high = (float(bound) for bound in own.strip("[]").split(", "))
    assert low <= 100 * results["figures"]["plain"]["map@50"] <= high
    assert len(trained) == 4
    assert main(config) == 0
    assert not trainings


def test_a_row_has_the_figures_of_the_evaluation_and_each_query_its_own(complete, embedded, tmp_path):
    config, _ = complete
    for row in Path(config.output_dir, "rows").iterdir():
        queries = pl.read_parquet(row / "queries.parquet")
        assert queries["map@25"].mean() == pytest.approx(
            json.loads((row / "results.json").read_text())["figures"]["map@25"]
        )
        assert queries["video_id"].n_unique() == 12
    models = sorted(str(path) for path in Path(config.output_dir, "stage2").glob("*/seed-1/model"))
    output = str(tmp_path / "evaluation")
    evaluate_tfcovr.run(
        EvaluateConfig(dataset=config.dataset, models=models, embeddings=embedded, num_workers=0, output_dir=output)
    )
    measured = json.loads(Path(output, "results.json").read_text())["by_seed"]["two-stage"]
    found = [values["1"] for values in results_of(config)["by_seed"].values()]
    for name in ("map@5", "map@50"):
        assert sorted(one[name] for one in measured) == pytest.approx(sorted(one[name] for one in found))


def test_a_query_is_measured_with_as_many_frames_as_it_was_trained_with(config, tiny, monkeypatch):
    image_model = str(Path(tiny["vision_model"]).parent / "clip")
    config.variations = {"one frame": {"query_frames": 1, "num_frames": 4, "vision_model": image_model}}
    config.seeds, opened, open_source = [0], [], EmbeddingSource.open
    monkeypatch.setattr(EmbeddingSource, "open", lambda *a, **kw: (opened.append(kw), open_source(*a, **kw))[1])
    assert main(config) == 0
    asked = [options["query_frames"] for options in opened if "query_frames" in options]
    assert asked == [1, 1]  # for its training and for its measurement


def test_groups_of_queries_have_the_mean_over_their_queries_and_seeds(complete):
    config, _ = complete
    groups = pl.read_csv(Path(config.output_dir, "groups.csv"))
    rows = load_split(config, "test").to_polars().select("query_id", "change_type")
    by_seed = [
        pl.read_parquet(path).join(rows, on="query_id").group_by("change_type").agg(pl.col("map@50").mean())
        for path in Path(config.output_dir, "rows").glob("plain-seed-*/queries.parquet")
    ]
    expected = pl.concat(by_seed).group_by("change_type").agg(pl.col("map@50").mean())
    own = groups.filter((pl.col("variation") == "plain") & (pl.col("kind") == "change_type"))
    assert own["queries"].sum() == len(rows)
    assert set(own["seeds"]) == {2}
    assert dict(own.select("group", "mean").iter_rows()) == pytest.approx(dict(expected.iter_rows()))
    assert ((own["low"] < own["mean"]) & (own["mean"] < own["high"])).all()


def test_groups_by_labels_that_train_are_those_of_the_queries_that_have_one(complete):
    config, _ = complete
    queries = list(load_split(config, "test"))
    assert groups_of(queries)["trained_labels"].null_count() == len(queries)
    found = groups_of(queries, {queries[0]["query_id"]: "seen_to_unseen"})
    assert found["trained_labels"].drop_nulls().to_list() == ["seen_to_unseen"]


def test_queries_are_grouped_by_the_one_thing_in_which_rendered_labels_differ():
    labels = [("119", "118"), ("127", "101"), ("45", "46"), ("119", "127"), ("119", "223"), ("119", "somersault")]
    rows = [
        {"query_id": str(n), "change_type": None, "query_label": one, "target_label": other}
        for n, (one, other) in enumerate(labels)
    ]
    found = groups_of(rows)
    assert found["difference"].to_list() == ["count", "direction", "order", "shape", "more than one", None]
    assert set(found["change_type"]) == {"not stated"}


def test_equal_variations_are_trained_once(config, trainings):
    config.variations = {"a": {"loss": "infonce"}, "b": {"loss": "infonce", "against": None}}
    config.seeds = [0]
    main(config)
    assert len(trainings) == 1
    assert results_of(config)["differences"] == []
    assert results_of(config)["figures"]["a"] == results_of(config)["figures"]["b"]


def test_a_trained_model_of_other_options_is_refused_with_a_flag_that_there_is(config):
    (run, *_) = planned_runs(config, read_variations(config.variations, STAGES))
    write_json(Path(run.stage2.output_dir) / "results.json", {"config": {"seed": 7}})
    with pytest.raises(SystemExit, match="name another --output_dir, or delete this folder"):
        train(run)


def test_a_killed_run_goes_on_and_ends_alike(config, complete, monkeypatch):
    train, count = stage2.run, iter(range(10))

    def killed(one):
        if next(count) == 2:
            raise KeyboardInterrupt
        return train(one)

    with monkeypatch.context() as patched:
        patched.setattr(stage2, "run", killed)
        with pytest.raises(KeyboardInterrupt):
            main(config)
    assert len(list(Path(config.output_dir, "rows").glob("*/results.json"))) == 2
    assert main(config) == 0
    assert results_of(config)["by_seed"] == results_of(complete[0])["by_seed"]


def test_a_variation_that_cannot_be_run_is_a_row_with_its_reason(config, capsys):
    config.seeds = [0]
    config.variations = {"plain": {}, "broken": {"text_model": "a/b/c"}}
    assert main(config) == 1
    assert "a/b/c is not a model folder" in results_of(config)["failed"]["broken"]
    assert list(results_of(config)["figures"]) == ["plain"]
    assert "a/b/c is not a model" in Path(config.output_dir, "table.md").read_text()


def test_a_base_that_is_missing_ends_the_run_at_once(config):
    Path(config.stage2_config).write_text("vision_model: no/such/folder")
    with pytest.raises(SystemExit, match="no/such/folder is not a model folder"):
        main(config)


def test_rows_of_two_machines_make_one_table(config, tmp_path, trainings):
    config.rows = ["plain"]
    main(config)
    assert results_of(config)["not_measured"] == ["HN-NCE/0.5"]
    elsewhere = config.output_dir
    config.output_dir, config.rows, config.merge = str(tmp_path / "b"), None, [elsewhere]
    trainings.clear()
    main(config)
    assert [one.loss for one in trainings] == ["hn_nce", "hn_nce"]
    assert results_of(config)["not_measured"] == []
    assert [one["seeds"] for one in results_of(config)["differences"]] == [[0, 1]]
    config.output_dir, config.merge = str(tmp_path / "c"), [elsewhere, str(tmp_path / "b")]
    main(config)
    assert len(trainings) == 2
    assert results_of(config)["not_measured"] == []


def test_a_folder_to_merge_that_holds_no_rows_is_named_before_anything_is_trained(config, tmp_path, trainings):
    config.merge = [str(tmp_path / "typo")]
    with pytest.raises(ValueError, match="typo holds no row of a table"):
        main(config)
    assert not trainings


def test_a_row_of_another_recipe_is_refused(config, tmp_path):
    config.merge = [str(tmp_path / "zero")]
    write_row(tmp_path / "zero", "CLIP", {"map@5": 0.5}, config={}, seed=0, columns={}, data={})
    config.rows, config.seeds = ["plain"], [0]
    with pytest.raises(ValueError, match=r"different data|a row of another table"):
        main(config)


def test_rows_that_other_options_gave_are_refused(config, tmp_path):
    config.rows, config.seeds = ["plain"], [0]
    main(config)
    elsewhere = config.output_dir
    config.output_dir, config.seeds, config.merge = str(tmp_path / "b"), [1], [elsewhere]
    Path(config.stage2_config).write_text(Path(config.stage2_config).read_text().replace("0.003", "0.001"))
    with pytest.raises(ValueError, match="of one variation but were measured with other learning_rate"):
        main(config)


def test_shuffled_frames_are_measured_beside_ordered_ones(config):
    config.seeds, config.shuffled = [0], True
    config.variations = {"plain": {}, "without order": {"shuffle_frames": True}}
    main(config)
    results = results_of(config)
    assert list(results["figures"]) == ["plain", "plain, frames shuffled", "without order"]
    headings = {(one["label"], one["heading"]) for one in results["differences"]}
    assert headings == {("plain", "mAP@50 lost by shuffling"), ("without order", "difference of mAP@50")}


def test_a_variation_of_stage_1_trains_it_and_its_embeddings(config, tiny):
    base = Path(tiny["vision_model"]).parent / "clip"
    Path(config.stage1_config or config.stage2_config).with_name("stage1.yaml").write_text(
        yaml.safe_dump({"base": str(base), "init_from": None, "epochs": 1, "batch_size": 8, "num_frames": 4})
    )
    config.stage1_config = str(Path(config.stage2_config).with_name("stage1.yaml"))
    config.variations = {"as it is": {}, "two frames": {"stage1": {"num_frames": 2}}}
    config.seeds = [0]
    config.cache_dir = str(Path(config.output_dir).with_name("frames"))
    assert main(config) == 0
    (trained,) = Path(config.output_dir, "stage1").glob("*/seed-0/model/config.json")
    assert json.loads(trained.read_text())["num_frames"] == 2
    assert len(list(Path(config.output_dir, "embeddings").iterdir())) == 1
    assert results_of(config)["rows"]["two frames"]["columns"]["changes"] == "stage 1 num_frames 2"


def test_another_text_encoder_does_not_encode_the_clips_again(config, tiny, embedded, monkeypatch):
    (Path(config.output_dir).parent / "other").symlink_to(tiny["text_model"])
    config.variations = {"other": {"text_model": str(Path(config.output_dir).parent / "other")}}
    config.seeds, config.shuffled = [0], False
    monkeypatch.setattr(
        embed_clips, "encode_clips", lambda todo, *_: pytest.fail("encoded again") if todo else iter(())
    )
    assert main(config) == 0
    (folder,) = Path(config.output_dir, "embeddings").iterdir()
    assert FeatureStore(folder / "video").load()[0] == FeatureStore(Path(embedded) / "video").load()[0]


def test_a_dry_run_counts_what_is_left_and_writes_nothing(config, capsys, trainings, monkeypatch):
    config.dry_run = True
    monkeypatch.setattr(costs, "flops_per_second", lambda _: 1e12)
    read, read_config = [], costs.read_config
    monkeypatch.setattr(costs, "read_config", lambda model, **kw: (read.append(model), read_config(model, **kw))[1])
    assert main(config) == 0
    assert len(read) == len(set(read)) == 2  # once for each model, which may be on the Hub
    shown = capsys.readouterr().out
    assert shown.count("stage 2: 2") == 2
    assert "at 1 TFLOPS; a rule of thumb" in shown
    assert not trainings
    assert not Path(config.output_dir).exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "there is no variation"),
        ({1: {}, "1": {}}, "variations need different names"),
        ({"a, frames shuffled": {}}, "variations need different names"),
        ({"a": "beta"}, "the variation 'a' is 'beta'"),
        ({"a": {"betta": 1}}, "has no option 'betta'; did you mean beta"),
        ({"a": {"beta": "much"}}, "the variation 'a': beta: 'much' is not a number"),
        ({"a": {"seed": 1}}, "changes seed, which must be the same for all"),
        ({"a": {"data_dir": "x"}}, "changes data_dir, which must be the same for all"),
        ({"a": {"output_dir": "x"}}, "changes output_dir"),
        ({"a": {}, "b": {"against": "c"}}, "is against 'c'; name another of a, b"),
        ({"a": {"stage1": {"epoch": 1}}}, "stage1.py has no option 'epoch'; did you mean epochs"),
        ({"a": {"stage1": [1]}}, "stage1 of the variation 'a'"),
        ({"a": {"stage1": {"epochs": 1}, "vision_model": "x"}}, "trains stage 1 and names a vision_model"),
    ],
)
def test_a_mistake_in_a_variation_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        read_variations(given, STAGES)


def test_unknown_rows_and_repeated_seeds_are_refused(config):
    config.rows = ["typo"]
    with pytest.raises(SystemExit, match="there is no variation typo; there are plain"):
        main(config)
    with pytest.raises(ValueError, match="--seeds must be different numbers"):
        replace(config, seeds=[0, 0])
