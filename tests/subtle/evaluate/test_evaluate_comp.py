"""Compositionality: the recipe end to end, over several models, objectives and drawings of the pairs."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hf_datasets.comp.contrasts import SpanReader, span_of
from hf_models import AIMVideoProcessor, VidCLIPModel, VidCLIPProcessor
from subtle.evaluate.evaluate_comp import names, run
from subtle.evaluate.options import EvaluateCompConfig
from subtle.options import parse_config

KINDS = ("temporal_reorder", "action_replace", "segment_mismatch")


@pytest.fixture(scope="module")
def vidclip_folder(tiny_comp, tmp_path_factory):
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("models") / "fresh" / "model"
    VidCLIPModel.from_clip(tiny_comp["model"], num_frames=4).save_pretrained(folder)
    processor = AIMVideoProcessor(num_frames=4, size={"height": 16, "width": 16})
    tokenizer = AutoTokenizer.from_pretrained(tiny_comp["model"])
    VidCLIPProcessor(processor, tokenizer).save_pretrained(folder)
    return str(folder)


def test_several_models_are_measured_side_by_side(tiny_comp, vidclip_folder, tmp_path, capsys):
    config = EvaluateCompConfig(
        models=[vidclip_folder, tiny_comp["model"]],
        data_dir=tiny_comp["data_dir"],
        split="validation",
        output_dir=str(tmp_path),
        device="cpu",
    )
    measured = run(config)
    assert list(measured) == ["fresh", "clip"]
    results = json.loads(Path(tmp_path, "results.json").read_text())
    rows = pq.read_table(tmp_path / "similarities.parquet").to_pylist()
    assert results["coverage"]["used"] == len(rows)
    for name, row in measured.items():
        product = 1.0
        for kind in KINDS:
            of_kind = [one for one in rows if one["disruption_type"] == kind]
            right = sum(one[f"{name}/positive"] > one[f"{name}/negative"] for one in of_kind)
            assert row[f"accuracy/{kind}"] == pytest.approx(right / len(of_kind))
            product *= right / len(of_kind)
        assert row["comprehensive_accuracy"] == pytest.approx(product)
    printed = capsys.readouterr().out
    assert "chance" in printed
    assert "12.5" in printed


def test_objectives_are_trained_where_they_are_missing_and_averaged_over_seeds(tiny_comp, tmp_path):
    training, pretraining = tmp_path / "tiny.yaml", tmp_path / "tiny_stacked.yaml"
    training.write_text(f"model: {tiny_comp['model']}\nnum_frames: 4\nepochs: 1\nbatch_size: 8\ndraws: 1\n")
    pretraining.write_text(f"{training.read_text()}stack: 2\nclips_data_dir: {tiny_comp['data_dir']}\n")
    config = EvaluateCompConfig(
        compare=True,
        objectives=["clip", "comppretrain"],
        seeds=[0, 1],
        vidclip_config=str(training),
        pretrain_config=str(pretraining),
        runs_dir=str(tmp_path / "runs"),
        data_dir=tiny_comp["data_dir"],
        split="validation",
        output_dir=str(tmp_path / "out"),
        device="cpu",
    )
    measured = run(config)
    by_seed = json.loads((tmp_path / "out/results.json").read_text())["by_seed"]
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
    columns = pq.read_table(tmp_path / "out/similarities.parquet").column_names
    assert {"clip/0/positive", "comppretrain/1/negative"} <= set(columns)


def test_captioning_is_trained_where_it_is_missing_and_measured_by_embeddings_or_by_likelihood(
    tiny_comp, tmp_path, capsys
):
    training = tmp_path / "tiny.yaml"
    training.write_text(f"model: {tiny_comp['model']}\nnum_frames: 4\nepochs: 1\nbatch_size: 8\ndraws: 1\n")
    fields = {
        "vidclip_config": str(training),
        "runs_dir": str(tmp_path / "runs"),
        "data_dir": tiny_comp["data_dir"],
        "split": "validation",
        "device": "cpu",
    }
    for score in ("embedding", "likelihood"):
        config = EvaluateCompConfig(
            compare=True, objectives=["captioning"], score=score, output_dir=str(tmp_path / score), **fields
        )
        (measured,) = run(config).values()
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
    other = EvaluateCompConfig(
        models=[tiny_comp["model"]], score="likelihood", output_dir=str(tmp_path / "x"), **fields
    )
    with pytest.raises(ValueError, match="ImageEncoder has no option 'score'"):
        run(other)
    with pytest.raises(ValueError, match="--objectives captioning"):
        EvaluateCompConfig(compare=True, score="likelihood")


def test_results_are_the_mean_over_several_draws_of_the_pairs(tiny_comp, tmp_path):
    config = EvaluateCompConfig(
        models=[str(tiny_comp["model"])],
        draws=2,
        data_dir=tiny_comp["data_dir"],
        split="validation",
        output_dir=str(tmp_path),
        device="cpu",
    )
    ((name, measured),) = run(config).items()
    rows = pq.read_table(tmp_path / "similarities.parquet").to_pylist()
    drawn = [{row["key"]: row for row in rows if row["draw"] == draw} for draw in range(2)]
    assert sum(map(len, drawn)) == len(rows)
    for kind in KINDS:
        shares = []
        for draw in drawn:
            right = [
                row[f"{name}/positive"] > row[f"{name}/negative"]
                for row in draw.values()
                if row["disruption_type"] == kind
            ]
            shares.append(sum(right) / len(right))
        assert measured[f"accuracy/{kind}"] == pytest.approx(sum(shares) / 2)


def test_pairs_are_drawn_by_the_seed(tiny_comp, vidclip_folder, tmp_path, capsys):
    keys = []
    for seed in (0, 0, 1):
        run(
            EvaluateCompConfig(
                models=[vidclip_folder],
                data_dir=tiny_comp["data_dir"],
                max_queries=5,
                seed=seed,
                output_dir=str(tmp_path / "out"),
                device="cpu",
                num_workers=0,
            )
        )
        keys.append(pq.read_table(tmp_path / "out" / "similarities.parquet")["key"].to_pylist())
    assert keys[0] == keys[1] != keys[2]
    assert len(keys[0]) == json.loads(Path(tmp_path, "out", "results.json").read_text())["coverage"]["drawn"] == 5
    assert (tmp_path / "out" / "confidence.png").stat().st_size > 1000
    assert "test: 5 of " in capsys.readouterr().out


def test_a_video_that_does_not_decode_is_counted_and_left_out(tiny_comp, tmp_path):
    from datasets import load_dataset

    from subtle.comp.data import ContrastConfig, load_rows

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


def test_models_of_one_name_keep_their_paths():
    assert list(names(["runs/a/model", "runs/b/model", "other/b/model"])) == [
        "a",
        "runs/b/model",
        "other/b/model",
    ]


def test_frames_of_a_span_are_read_at_their_own_size(tiny_comp):
    from subtle.comp.data import ContrastConfig, load_rows

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


def test_segment_mismatches_give_scores_of_pairs_and_strict_vle(tiny_comp, tmp_path, capsys):
    options = {"data_dir": tiny_comp["data_dir"], "device": "cpu", "output_dir": str(tmp_path)}
    config = EvaluateCompConfig(models=[tiny_comp["model"]], threshold_split="validation", **options)
    ((name, measured),) = run(config).items()
    results = json.loads((tmp_path / "results.json").read_text())
    pairs = pq.read_table(tmp_path / "pairs.parquet").to_pylist()
    rows = pq.read_table(tmp_path / "similarities.parquet").to_pylist()
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


def test_a_users_own_pairs_are_measured_and_what_is_left_out_is_written(tiny_comp, tmp_path, capsys):
    videos = sorted(Path(tiny_comp["data_dir"], "videos").glob("*.mp4"))[:2]
    table = tmp_path / "pairs.csv"
    table.write_text(
        "video_0,text_0,video_1,text_1,kind\n"
        f"{videos[0].stem},a salto,{videos[1].stem},a leap,video\n"
        f"{videos[0].stem},a salto,gone,a leap,video\n"
    )
    config = EvaluateCompConfig(
        models=[tiny_comp["model"]],
        pairs=str(table),
        video_dir=str(videos[0].parent),
        device="cpu",
        output_dir=str(tmp_path / "out"),
    )
    ((name, measured),) = run(config).items()
    (pair,) = pq.read_table(tmp_path / "out/pairs.parquet").to_pylist()
    (a, b), (c, d) = pair[name]
    assert measured["group_score"] == measured["group_score/video"] == (min(a, d) > max(b, c))
    assert "comprehensive_accuracy" not in measured
    (refused,) = pq.read_table(tmp_path / "out/rejections.parquet").to_pylist()
    assert refused["reason"].startswith("no video: video 'gone'")
    assert "1 counterfactual pairs, 1 left out (rejections.parquet says why)" in " ".join(
        capsys.readouterr().out.split()
    )
    assert json.loads((tmp_path / "out/results.json").read_text())["coverage"] == {"rows": 2, "used": 1, "left out": 1}


def test_a_retrieval_benchmark_is_measured_both_ways_and_missing_videos_are_counted(
    tiny_comp, vidclip_folder, tmp_path, capsys
):
    videos = Path(tiny_comp["data_dir"], "videos")
    names = sorted(path.stem for path in videos.glob("*.mp4"))[:5]
    told = {"duration": 9.0, "timestamps": [[0, 2], [2, 4]]}
    content = {name: {**told, "sentences": [f"a vault {n}", "a twist"]} for n, name in enumerate([*names, "absent"])}
    (tmp_path / "val_1.json").write_text(json.dumps(content))
    fields = {"models": [vidclip_folder], "retrieval": "activitynet", "device": "cpu", "num_workers": 0}
    folders = {"data_dir": str(tmp_path), "video_dir": str(videos), "output_dir": str(tmp_path / "out")}
    (measured,) = run(EvaluateCompConfig(**fields, **folders)).values()
    results = json.loads(Path(tmp_path, "out", "results.json").read_text())
    assert results["coverage"] == {"rows": 6, "used": 5, "no video file": 1, "does not decode": 0, "texts": 5}
    assert {f"{way}_recall@{k}" for way in ("t2v", "v2t") for k in (1, 5, 10)} <= set(measured)
    assert measured["t2v_recall@5"] == 1.0
    assert measured["retrieval_corpus"] == 5
    refused = pq.read_table(tmp_path / "out" / "rejections.parquet").to_pylist()
    assert [(row["key"], row["reason"]) for row in refused] == [("absent", "no video file")]
    printed = capsys.readouterr().out
    assert "5 of 6 videos, 5 texts, 1 left out" in printed
    assert "MdR" in printed
    with pytest.raises(SystemExit, match=r"needs --data_dir, the folder of val_1.json, and --video_dir"):
        run(EvaluateCompConfig(**fields, output_dir=str(tmp_path / "none")))
    with pytest.raises(ValueError, match="leave --pairs, --threshold_split and --score out"):
        EvaluateCompConfig(**fields, score="likelihood")
