"""The authors' embeddings stand in for videos: read without running code, and used by stage 2 and the tables."""

import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from datasets import Dataset

from hf_datasets.tfcovr.released_embeddings import read_embeddings
from hf_models.feature_store import FeatureStore
from subtle.embedding import embed_clips
from subtle.evaluate import evaluate_tfcovr
from subtle.evaluate.options import EvaluateConfig
from subtle.hub import publish, upload
from subtle.hub.options import PublishConfig
from subtle.hub.publish import Target
from subtle.run.models import load_trained
from subtle.run.shared_config import EmbedConfig
from subtle.table import table
from subtle.table.options import AblateConfig, FinetuneConfig
from subtle.train import stage2
from subtle.train.options import Stage2Config

GYM = "A0xAXXysH{:02}_E_002184_002237_A_{:04}_{:04}"
SIZE = 12
SMALL = {"fusion_hidden_dim": 16, "fusion_projection_dim": 8, "projection_dim": 8, "batch_size": 4, "epochs": 2}


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """Annotations without a video, and embeddings of all clips but one of the gallery, in two pickles of one file."""
    root = tmp_path_factory.mktemp("released")
    ids = [GYM.format(video, place, place + 1) for video in range(8) for place in range(2)]
    rows = []
    for source, target in zip(ids[:12:2], ids[1:12:2], strict=True):
        text = str({"41": {"modification": "Show with 1 turn."}})
        columns = ("query_video", "target_video", "label1", "label2", "modification")
        rows.append(dict(zip(columns, (source, target, "40", "41", text), strict=True)))
    Dataset.from_list(rows).to_csv(root / "data" / "train_finegd.csv")
    for split, (query, answer) in {"val": ids[12:14], "test": ids[14:]}.items():
        row = {"query_id": "0", "query_video": query, "modification": "Show red.", "target_video": answer}
        targets = [answer, GYM.format(9, 0, 1)] if split == "test" else [answer]
        Dataset.from_list([row | {"target_videos_ids": str(targets)}]).to_csv(root / "data" / f"{split}_finegd.csv")
    torch.manual_seed(0)
    values = {one: torch.randn(SIZE) for one in [*ids, "another-clip"]}
    parts = dict(list(values.items())[:5]), dict(list(values.items())[5:])
    (root / "aim.pkl").write_bytes(b"".join(map(pickle.dumps, parts)))
    return root, values


def importing(release, tiny, output_dir):
    """How embeddings are imported; the vision model of the YAML files is not there and is not asked for."""
    return EmbedConfig(
        dataset_config="release",
        data_dir=str(release[0] / "data"),
        text_model=tiny["text_model"],
        vision_model="outputs/tfcovr/stage1/model",
        import_from=str(release[0] / "aim.pkl"),
        output_dir=str(output_dir),
        num_workers=0,
    )


@pytest.fixture
def config(release, tiny, tmp_path):
    return importing(release, tiny, tmp_path / "embeddings")


@pytest.fixture(scope="module")
def imported(release, tiny, tmp_path_factory):
    """What was imported once; nothing writes into it."""
    config = importing(release, tiny, tmp_path_factory.mktemp("imported") / "embeddings")
    embed_clips.run(config)
    return config


def shared(config):
    return {name: getattr(config, name) for name in ("dataset_config", "data_dir", "text_model", "vision_model")}


def test_all_parts_of_a_pickle_are_imported_and_clips_without_an_embedding_are_counted(release, config, capsys):
    covered = embed_clips.run(config)
    assert (covered["clips"], covered["encoded"]) == (17, 16)
    assert covered["missing"] == {"no video file": 0, "does not decode": 0, "no imported embedding": 1}
    stored = FeatureStore(Path(config.output_dir) / "video")
    assert set(stored) == release[1].keys() - {"another-clip"}
    assert all(torch.equal(stored[one], release[1][one]) for one in stored)
    assert (stored.details["model"], stored.details["size"]) == ("aim.pkl", SIZE)
    assert "16 of 17 clips have an embedding of size 12; 1 others are of no clip" in capsys.readouterr().out
    shards = sorted(Path(config.output_dir).rglob("shard-*"))
    embed_clips.run(config)
    assert sorted(Path(config.output_dir).rglob("shard-*")) == shards


def test_stage_2_trains_on_imported_embeddings_and_its_model_is_measured_on_them(imported, tmp_path):
    training = Stage2Config(
        **shared(imported), **SMALL, embeddings=imported.output_dir, output_dir=str(tmp_path / "run"), num_workers=0
    )
    stage2.run(training)
    folder = str(tmp_path / "run" / "model")
    model, _ = load_trained(folder)
    assert model.vision_model is None
    assert model.config.imported_video["model"] == "aim.pkl"
    with pytest.raises(ValueError, match=r"no video encoder: it works on imported embeddings of aim\.pkl"):
        model.encode_video(torch.zeros(1, 2, 3, 8, 8))
    data = {name: getattr(imported, name) for name in ("dataset_config", "data_dir")}
    measuring = EvaluateConfig(
        **data, models=[folder], embeddings=imported.output_dir, output_dir=str(tmp_path / "measured"), num_workers=0
    )
    evaluate_tfcovr.run(measuring)
    (coverage,) = json.loads((tmp_path / "measured" / "results.json").read_text())["coverage"].values()
    assert (coverage["gallery_clips"], coverage["gallery_clips_ranked"]) == (3, 2)
    assert (coverage["targets"], coverage["targets_in_gallery"]) == (2, 1)
    measuring.embeddings = str(tmp_path / "nothing")
    with pytest.raises(
        SystemExit, match=r"has no video encoder: .* imported from aim\.pkl; import them into .*nothing"
    ):
        evaluate_tfcovr.run(measuring)
    other = tmp_path / "other"
    shutil.copytree(imported.output_dir, other)
    made = json.loads((other / "video" / "store.json").read_text())
    shutil.rmtree(other / "video")
    made["made_by"]["sha256"] = "another file"
    FeatureStore(other / "video", made["made_by"]).append(["a"], torch.zeros(1, SIZE))
    measuring.embeddings = str(other)
    with pytest.raises(ValueError, match="was made with other sha256 than this run uses"):
        evaluate_tfcovr.run(measuring)


def test_tables_5_d3_and_the_last_row_of_table_3_need_no_video(imported, tmp_path):
    (tmp_path / "stage2.yaml").write_text(yaml.safe_dump({**SMALL, **shared(imported)}))
    variations = {"plain": {"loss": "infonce"}, "another text": {"number_words": True}}
    made = {"embeddings": imported.output_dir, "num_workers": 0}
    data = {name: getattr(imported, name) for name in ("dataset_config", "data_dir")}
    places = {"stage2_config": str(tmp_path / "stage2.yaml"), "output_dir": str(tmp_path / "ablation")}
    ablation = AblateConfig(**data, **made, **places, variations=variations, seeds=[0, 1])
    assert table.main(ablation) == 0
    assert list(json.loads((tmp_path / "ablation" / "results.json").read_text())["figures"]) == list(variations)
    assert table.main(AblateConfig(**vars(ablation) | {"dry_run": True})) == 0
    options = {"rows": ["tf-covr-base"], "output_dir": str(tmp_path / "table3")}
    baseline = FinetuneConfig(**shared(imported), **SMALL, **made, **options)
    assert table.main(baseline) == 0
    assert table.main(FinetuneConfig(**vars(baseline) | {"dry_run": True})) == 0


def test_published_embeddings_are_what_stage_2_trains_on_and_name_no_folder_of_this_machine(imported, tmp_path):
    publication = publish.prepare_publication(
        Target("embeddings", imported.output_dir, "org/x"), PublishConfig(license="mit"), tmp_path / "there"
    )
    plan = upload.make_plan(publication, upload.Remote(), PublishConfig())
    assert {name for name in plan.files if not name.endswith(".safetensors")} == {
        *("README.md", "results.json", "text/store.json", "video/store.json")
    }
    card = (publication.folder / "README.md").read_text()
    assert "license: mit" in card
    assert "16 of its 17 clips have an embedding, of size 12" in card
    assert "model `aim.pkl`" in card
    options = {**SMALL, **shared(imported), "embeddings": str(publication.folder), "num_workers": 0}
    stage2.run(Stage2Config(**options, output_dir=str(tmp_path / "run")))
    with pytest.raises(ValueError, match=r"not a finished folder of embeddings"):
        publish.prepare_publication(Target("embeddings", str(tmp_path), "org/x"), PublishConfig(), tmp_path / "other")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query_frames": 1}, r"imported embeddings, and --query_frames 1 needs videos"),
        ({"model": "factored_covr"}, r"without a classifier of labels: leave out --model factored_covr"),
    ],
)
def test_what_needs_videos_or_labels_is_refused_before_training(imported, tmp_path, changes, message):
    options = {**SMALL, **shared(imported), **changes, "embeddings": imported.output_dir, "num_workers": 0}
    with pytest.raises(SystemExit, match=message):
        stage2.run(Stage2Config(**options, output_dir=str(tmp_path / "run")))


def test_embeddings_of_other_clips_are_refused_with_an_id_of_each(config, tmp_path):
    (tmp_path / "other.pkl").write_bytes(pickle.dumps({"v_17": torch.ones(3)}))
    config.import_from = str(tmp_path / "other.pkl")
    with pytest.raises(
        SystemExit, match=r"1 embeddings, and none of them is of the 17 clips .* it has 'v_17', the data"
    ):
        embed_clips.run(config)


class Runs:
    def __reduce__(self):
        return print, ("this ran",)


BAD = {
    "code": ([{"a": Runs()}], r"refused after 0 embeddings: it names builtins\.print"),
    "no tensors": ([{"a": 3.0}], r"has a float for 'a'"),
    "a list": ([[torch.ones(2)]], r"part 1 is a list"),
    "several sizes": ([{"a": torch.ones(2), "b": torch.ones(3)}], r"several sizes \(1 of 2, 1 of 3\)"),
    "not finite": ([{"a": torch.tensor([1.0, float("nan")])}], r"1 of 1 embeddings hold values that are not finite"),
    "two that differ": ([{"a": torch.ones(2)}, {"a": torch.zeros(2)}], r"1 clips have two embeddings that differ"),
    "nothing": ([{}], r"holds no embeddings"),
}


@pytest.mark.parametrize(("parts", "message"), BAD.values(), ids=BAD)
def test_a_pickle_of_anything_else_is_refused(parts, message, tmp_path, capsys):
    path = tmp_path / "embeddings.pkl"
    path.write_bytes(b"".join(map(pickle.dumps, parts)))
    with pytest.raises(ValueError, match=message):
        read_embeddings(path)
    assert "this ran" not in capsys.readouterr().out


def test_a_truncated_pickle_is_refused_with_what_came_before(release, tmp_path):
    data = (release[0] / "aim.pkl").read_bytes()
    (tmp_path / "half.pkl").write_bytes(data[:-100])
    with pytest.raises(ValueError, match=r"half\.pkl is refused after 5 embeddings: .* fetch the file again"):
        read_embeddings(tmp_path / "half.pkl")


def test_files_of_frames_and_tokens_are_their_means(tmp_path):
    frames, tokens = torch.randn(4, 6), torch.randn(5, 32, 6)
    for name, tensor in {"clip_1": frames, "clip_2": tokens, "clip_3": torch.ones(1, 6)}.items():
        torch.save(tensor, tmp_path / f"{name}.pth")
    found, _ = read_embeddings(tmp_path)
    torch.testing.assert_close(found["clip_1"], frames.mean(0))
    torch.testing.assert_close(found["clip_2"], tokens.mean(1).mean(0))
    assert found["clip_3"].tolist() == [1] * 6
    torch.save(Runs(), tmp_path / "clip_4.pth")
    with pytest.raises(ValueError, match=r"clip_4\.pth holds no tensor"):
        read_embeddings(tmp_path)
