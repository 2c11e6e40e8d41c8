"""Compositionality: the recipe end to end, over several models, objectives and drawings of the pairs."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from transformers import AutoTokenizer

from hf_datasets.comp.contrasts import SpanReader, span_of
from hf_models import AIMVideoProcessor, VidCLIPModel, VidCLIPProcessor
from subtle.comp.data import ContrastConfig, load_rows
from subtle.evaluate.evaluate_comp import run
from subtle.evaluate.options import EvaluateCompConfig
from subtle.options import parse_config

KINDS = ("temporal_reorder", "action_replace", "segment_mismatch")


@pytest.fixture(scope="module")
def vidclip_folder(tiny_comp, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "fresh" / "model"
    VidCLIPModel.from_clip(tiny_comp["model"], num_frames=4).save_pretrained(folder)
    processor = AIMVideoProcessor(num_frames=4, size={"height": 16, "width": 16})
    tokenizer = AutoTokenizer.from_pretrained(tiny_comp["model"])
    VidCLIPProcessor(processor, tokenizer).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def measure(tiny_comp, tmp_path):
    """Measure the tiny CLIP, unless told otherwise, on the tiny pairs."""
    given = {"models": [tiny_comp["model"]], "data_dir": tiny_comp["data_dir"], "device": "cpu"}
    return lambda **changes: run(EvaluateCompConfig(**given | {"output_dir": str(tmp_path / "out")} | changes))


@pytest.fixture
def results(tmp_path):
    return lambda: json.loads((tmp_path / "out/results.json").read_text())


@pytest.fixture
def training(tiny_comp, tmp_path):
    """A configuration file of a short training."""
    path = tmp_path / "tiny.yaml"
    path.write_text(f"model: {tiny_comp['model']}\nnum_frames: 4\nepochs: 1\nbatch_size: 8\ndraws: 1\n")
    return path


@pytest.fixture
def written(tmp_path):
    """The rows of a table that the recipe wrote."""
    return lambda name: pq.read_table(tmp_path / "out" / f"{name}.parquet").to_pylist()


def share_right(rows, name, kind):
    """Of the pairs of a kind, how many a model gets right by its similarities."""
    right = [row[f"{name}/positive"] > row[f"{name}/negative"] for row in rows if row["disruption_type"] == kind]
    return sum(right) / len(right)


def test_several_models_are_measured_side_by_side(measure, results, written, tiny_comp, vidclip_folder, capsys):
    measured = measure(models=[vidclip_folder, tiny_comp["model"]], split="validation")
    assert list(measured) == ["fresh", "clip"]
    rows = written("similarities")
    assert results()["coverage"]["used"] == len(rows)
    for name, row in measured.items():
        product = 1.0
        for kind in KINDS:
            share = share_right(rows, name, kind)
            assert row[f"accuracy/{kind}"] == pytest.approx(share)
            product *= share
        assert row["comprehensive_accuracy"] == pytest.approx(product)
    printed = capsys.readouterr().out
    assert "chance" in printed
    assert "12.5" in printed


def test_objectives_are_trained_where_they_are_missing_and_averaged_over_seeds(
    measure, results, written, tiny_comp, short_clips, tmp_path
):
    training, pretraining = tmp_path / "tiny.yaml", tmp_path / "tiny_stacked.yaml"
    training.write_text(f"model: {tiny_comp['model']}\nnum_frames: 4\nepochs: 1\nbatch_size: 8\ndraws: 1\n")
    pretraining.write_text(f"{training.read_text()}stack: 2\nclips_dataset: {short_clips}\nclips_config: default\n")
    files = {"vidclip_config": str(training), "pretrain_config": str(pretraining), "runs_dir": str(tmp_path / "runs")}
    measured = measure(compare=True, objectives=["clip", "comppretrain"], seeds=[0, 1], split="validation", **files)
    by_seed = results()["by_seed"]
    assert list(measured) == ["clip", "comppretrain"]
    for objective, mean in measured.items():
        first, second = (one["comprehensive_accuracy"] for one in by_seed[objective])
        assert mean["comprehensive_accuracy"] == pytest.approx((first + second) / 2)
        assert mean["comprehensive_accuracy_std"] == pytest.approx(abs(first - second) / 2**0.5)
    stacked = str(tmp_path / "runs/stacked/model")
    for name, *expected in (
        ("clip/0", "clip", 0, 0, str(tiny_comp["model"])),
        ("stacked", "comploss", 0, 2, str(tiny_comp["model"])),
        ("comppretrain/1", "comploss", 1, 0, stacked),
    ):
        trained = json.loads((tmp_path / "runs" / name / "results.json").read_text())["config"]
        assert [trained[field] for field in ("objective", "seed", "stack", "model")] == expected
    assert {"clip/0/positive", "comppretrain/1/negative"} <= written("similarities")[0].keys()


def test_captioning_is_trained_where_it_is_missing_and_measured_by_embeddings_or_by_likelihood(
    measure, training, tmp_path, capsys
):
    fields = {"vidclip_config": str(training), "runs_dir": str(tmp_path / "runs"), "split": "validation"}
    for score in ("embedding", "likelihood"):
        trains = {"compare": True, "objectives": ["captioning"], "output_dir": str(tmp_path / score)}
        (measured,) = measure(score=score, **trains, **fields).values()
        assert {"text_score", "comprehensive_accuracy"} <= measured.keys()
        assert ("t2v_recall@1" in measured) is (score == "embedding")
    printed = capsys.readouterr().out
    assert "VideoCoCa-like" in printed
    assert "compared by likelihood" in " ".join(printed.split())
    trained = json.loads((tmp_path / "runs/captioning/0/results.json").read_text())["config"]
    assert (trained["objective"], trained["captioning_weight"]) == ("clip", 2.0)
    cosines, likelihoods = (
        pq.read_table(tmp_path / score / "similarities.parquet")["captioning/0/positive"].to_pylist()
        for score in ("embedding", "likelihood")
    )
    assert all(-1 <= value <= 1 for value in cosines)
    assert all(value < 0 for value in likelihoods)
    with pytest.raises(ValueError, match="ImageEncoder has no option 'score'"):
        measure(score="likelihood", **fields)
    with pytest.raises(ValueError, match="--objectives captioning"):
        EvaluateCompConfig(compare=True, score="likelihood")


def test_results_are_the_mean_over_several_draws_of_the_pairs(measure, written):
    ((name, measured),) = measure(draws=2, split="validation").items()
    rows = written("similarities")
    drawn = [{row["key"]: row for row in rows if row["draw"] == draw} for draw in range(2)]
    assert sum(map(len, drawn)) == len(rows)
    for kind in KINDS:
        shares = [share_right(draw.values(), name, kind) for draw in drawn]
        assert measured[f"accuracy/{kind}"] == pytest.approx(sum(shares) / 2)


def test_pairs_are_drawn_by_the_seed(measure, results, written, tmp_path, capsys):
    keys = []
    for seed in (0, 0, 1):
        measure(max_queries=5, seed=seed)
        keys.append([row["key"] for row in written("similarities")])
    assert keys[0] == keys[1] != keys[2]
    assert len(keys[0]) == results()["coverage"]["drawn"] == 5
    assert (tmp_path / "out" / "confidence.png").stat().st_size > 1000
    assert "test: 5 of " in capsys.readouterr().out


def test_a_video_that_does_not_decode_is_counted_and_left_out(tiny_comp, tmp_path):
    data = load_dataset("activitynet_comp", data_dir=tiny_comp["data_dir"], split="test")
    videos = tmp_path / "videos"
    videos.mkdir()
    first, *others = sorted(set(data["video_id"]))
    (videos / f"{first}.mp4").write_bytes(b"no video")
    for video_id in others:
        source = next(row["video"] for row in data if row["video_id"] == video_id)
        (videos / f"{video_id}.mp4").write_bytes(Path(source).read_bytes())
    built = tmp_path / "built" / "source"
    built.mkdir(parents=True)
    data.remove_columns("video").to_parquet(built / "test-00000-of-00001.parquet")
    config = ContrastConfig(dataset_config="source", data_dir=str(built.parent), video_dir=str(videos))
    rows, coverage = load_rows(config, "test")
    spoilt = sum(row["video_id"] == first for row in data)
    assert coverage["does not decode"] == spoilt > 0
    assert coverage["used"] == len(rows) == len(data) - spoilt


def test_frames_of_a_span_are_read_at_their_own_size(tiny_comp):
    rows, _ = load_rows(ContrastConfig(data_dir=tiny_comp["data_dir"]), "test")
    assert SpanReader()([span_of(rows[0])], 4).shape == (4, 3, 32, 32)


def test_a_users_mistake_is_one_line(capsys):
    for words, message in (
        (["--draws", "0"], "at least 1 draw"),
        (["--split", "test", "--threshold_split", "test"], "is the split that is measured"),
        (["--pairs", "pairs.csv", "--draws", "2"], "leave --draws out"),
        (["--objectives", "siglip"], "no 'siglip'; there are clip"),
    ):
        with pytest.raises(SystemExit):
            parse_config(EvaluateCompConfig, None, words)
        assert message in capsys.readouterr().err


def test_segment_mismatches_give_scores_of_pairs_and_strict_vle(measure, results, written, capsys):
    ((name, measured),) = measure(threshold_split="validation").items()
    results, pairs, rows = results(), written("pairs"), written("similarities")
    mismatches = {row["key"]: row for row in rows if row["disruption_type"] == "segment_mismatch"}
    assert results["coverage"]["counterfactual pairs"] == len(pairs) == len(mismatches) > 0
    right = []
    for pair in pairs:
        (a, b), (c, d) = pair[name]
        row = mismatches[pair["key"]]
        assert [a, b] == pytest.approx([row[f"{name}/positive"], row[f"{name}/negative"]])
        right.append((a > b and d > c, a > c and d > b, min(a, d) > max(b, c)))
    for score, column in zip(("text_score", "video_score", "group_score"), zip(*right, strict=True), strict=True):
        assert measured[score] == pytest.approx(sum(column) / len(column))
        low, high = results["intervals"][name][0][score]
        assert low <= measured[score] <= high
    threshold = results["thresholds"][name]
    strict = [row[f"{name}/positive"] > threshold > row[f"{name}/negative"] for row in rows]
    assert measured["strict_vle"] == pytest.approx(sum(strict) / len(strict))
    lines = results["signature"].split("; ")
    assert [line.partition("|")[0] for line in lines] == ["comprehensive_accuracy", *["counterfactual_accuracy"] * 2]
    assert f"|videos:1|ties:wrong|threshold:{threshold:g}|" in lines[1]
    printed = capsys.readouterr().out
    assert f"{len(pairs)} counterfactual pairs of videos" in printed
    assert "16.7" in printed


def test_a_users_own_pairs_are_measured_and_what_is_left_out_is_written(
    measure, results, written, tiny_comp, tmp_path, capsys
):
    videos = sorted(Path(tiny_comp["data_dir"], "videos").glob("*.mp4"))[:2]
    table = tmp_path / "pairs.csv"
    table.write_text(
        "video_0,text_0,video_1,text_1,kind\n"
        f"{videos[0].stem},a salto,{videos[1].stem},a leap,video\n"
        f"{videos[0].stem},a salto,gone,a leap,video\n"
    )
    ((name, measured),) = measure(pairs=str(table), data_dir=None, video_dir=str(videos[0].parent)).items()
    (pair,) = written("pairs")
    (a, b), (c, d) = pair[name]
    assert measured["group_score"] == measured["group_score/video"] == (min(a, d) > max(b, c))
    assert "comprehensive_accuracy" not in measured
    (refused,) = written("rejections")
    assert refused["reason"].startswith("no video: video 'gone'")
    printed = " ".join(capsys.readouterr().out.split())
    assert "1 counterfactual pairs, 1 left out (rejections.parquet says why)" in printed
    assert results()["coverage"] == {"rows": 2, "used": 1, "left out": 1}


def test_a_retrieval_benchmark_is_measured_both_ways_and_missing_videos_are_counted(
    measure, results, written, tiny_comp, tmp_path, capsys
):
    videos = Path(tiny_comp["data_dir"], "videos")
    names = sorted(path.stem for path in videos.glob("*.mp4"))[:5]
    told = {"duration": 9.0, "timestamps": [[0, 2], [2, 4]]}
    content = {name: {**told, "sentences": [f"a vault {n}", "a twist"]} for n, name in enumerate([*names, "absent"])}
    (tmp_path / "val_1.json").write_text(json.dumps(content))
    (measured,) = measure(retrieval="activitynet", data_dir=str(tmp_path), video_dir=str(videos)).values()
    assert results()["coverage"] == {"rows": 6, "used": 5, "no video file": 1, "does not decode": 0, "texts": 5}
    assert {f"{way}_recall@{k}" for way in ("t2v", "v2t") for k in (1, 5, 10)} <= set(measured)
    assert measured["t2v_recall@5"] == 1.0
    assert measured["retrieval_corpus"] == 5
    assert [(row["key"], row["reason"]) for row in written("rejections")] == [("absent", "no video file")]
    printed = capsys.readouterr().out
    assert "5 of 6 videos, 5 texts, 1 left out" in printed
    assert "MdR" in printed
    with pytest.raises(SystemExit, match=r"needs --data_dir, the folder of val_1.json, and --video_dir"):
        measure(retrieval="activitynet", data_dir=None)
    with pytest.raises(ValueError, match="leave --pairs, --threshold_split and --score out"):
        EvaluateCompConfig(retrieval="activitynet", score="likelihood")
