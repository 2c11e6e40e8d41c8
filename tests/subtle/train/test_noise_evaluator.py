"""The noise evaluator: a training that learns and resumes, and captions chosen by it."""

import json
import random

import polars as pl
import pyarrow as pa
import pytest
import torch
from published_run import publish
from small_vidclip import save_blip
from trained_alike import stopped_after
from transformers import AutoModel, AutoTokenizer, CLIPImageProcessor

from hf_datasets.fig.moments import MOMENT_SCHEMA
from hf_datasets.fig.noise import NoiseExample
from hf_datasets.publish import COUNTS_END, COUNTS_START, write_folder
from hf_models.video_text_matching import load_matcher
from subtle.building.caption_select import run as run_selection
from subtle.building.options import CaptionSelectConfig
from subtle.train import noise_evaluator
from subtle.train.noise_evaluator import draw_texts, run
from subtle.train.options import NoiseEvaluatorConfig

COLORS = ("red", "green", "blue", "grey")


@pytest.fixture
def build(tiny, tmp_path):
    """A built folder whose clips have one color, whose captions name it and whose negative captions name another."""
    schema = MOMENT_SCHEMA.append(pa.field("kind", pa.string()))
    for name in ("candidates", "candidate_kinds"):
        schema = schema.append(pa.field(name, pa.list_(pa.string())))
    splits, rewritings = {}, []
    for split, per_color in (("train", 4), ("test", 3)):
        rows = []
        for place in range(per_color * 4 + 1):
            color = COLORS[place % 4]
            others = [other for other in COLORS if other != color]
            # both orders of words fit and both are negatives
            wrong = [f"show {others[0]}", f"{others[1]} show", f"show {others[2]}", f"{others[0]} show"]
            desc_id = place + (100 if split == "test" else 0)
            video = f"{split}-{color}-{place // 4}" if place < per_color * 4 else f"gone-{split}"
            rows.append(
                {"desc_id": desc_id, "video_id": video, "duration_seconds": 1.0,
                 "start_seconds": 0.0, "end_seconds": 1.0,
                 "coarse_caption": f"show {color}", "fine_caption": wrong[0],
                 "fine_caption_score": None, "kind": "static",
                 "candidates": [wrong[0], f"show {color}", wrong[1]],
                 "candidate_kinds": ["static", "dynamic", "static"]}
            )  # fmt: skip
            rewritings.append({"desc_id": desc_id, "kind": "positives", "captions": [f"{color} show"]})
            rewritings.append({"desc_id": desc_id, "kind": "static_negatives", "captions": wrong[:2]})
            rewritings.append({"desc_id": desc_id, "kind": "dynamic_negatives", "captions": wrong[2:]})
        splits[split] = [pa.Table.from_pylist(rows, schema=schema)]
    (tmp_path / "card.md").write_text(f"---\nlanguage: en\n---\n{COUNTS_START}\n{COUNTS_END}\n")
    configurations = {"source": splits, "rewritings": {"train": [pa.Table.from_pylist(rewritings)]}}
    return write_folder(configurations, tmp_path / "build", card=tmp_path / "card.md")


@pytest.fixture
def clip(tiny, tmp_path):
    """The tiny CLIP with a tokenizer whose last token is the one that CLIP reads a text from."""
    folder = tmp_path / "clip"
    source = tiny["vision_model"].replace("aim", "clip")
    model = AutoModel.from_pretrained(source)
    model.config.text_config.eos_token_id = 3  # [SEP]
    model.text_model.config.eos_token_id = 3
    model.save_pretrained(folder)
    CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny["text_model"]).save_pretrained(folder)
    return str(folder)


def videos_of(tiny):
    return tiny["dataset"].replace("/data", "/videos")


def config_of(build, tiny, clip, output_dir, **fields):
    options = {"epochs": 12, "batch_size": 8, "learning_rate": 3e-3, "num_frames": 2, "num_workers": 0} | fields
    places = {"build": str(build), "video_dir": videos_of(tiny), "output_dir": str(output_dir)}
    return NoiseEvaluatorConfig(model=clip, device="cpu", **places, **options)


def selection_of(build, model, video_dir, output_dir):
    places = {"build": str(build), "video_dir": str(video_dir), "output_dir": str(output_dir)}
    return CaptionSelectConfig(model=str(model), num_frames=2, device="cpu", **places)


def test_texts_are_drawn_from_both_kinds_in_turn(monkeypatch):
    one = NoiseExample(1, "v", 0.0, 1.0, ("p", "q", "r"), ("s1", "s2"), ("d1",))
    monkeypatch.setattr(noise_evaluator, "NEGATIVES", 3)
    ((positives,), (negatives,)) = draw_texts([one], random.Random(0))
    assert positives[0] == "p"
    assert positives[1] in {"q", "r"}
    assert (negatives[0][0], negatives[1], negatives[2][0]) == ("s", "d1", "s")
    only_static = NoiseExample(1, "v", 0.0, 1.0, ("p",), ("s1", "s2"), ())
    assert sorted(draw_texts([only_static], random.Random(0))[1][0]) == ["s1", "s2"]


def test_training_learns_to_prefer_captions_that_fit_and_the_best_candidate_is_kept(build, tiny, clip, tmp_path):
    measured = run(config_of(build, tiny, clip, tmp_path / "out"))
    assert measured["trained"]["moments"] == 12
    # by chance 2 of 5 texts are right, and a pair in half of the cases
    assert measured["trained"]["accuracy_best_fits"] >= 0.7
    assert measured["trained"]["accuracy_static"] >= 0.7
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert sorted(results["coverage"]["without_frames"]) == ["112", "16"]
    assert results["history"][-1]["loss"] < results["history"][0]["loss"]
    card, _ = publish(tmp_path / "out", license="mit")
    assert f"| trained/accuracy_static |  |  | {measured['trained']['accuracy_static']:.4g} |" in card.text
    selection = selection_of(build, tmp_path / "out" / "model", videos_of(tiny), tmp_path / "judged")
    assert run_selection(selection) == {"moments": 30, "judged": 28}
    rows = pl.read_parquet(tmp_path / "judged" / "source" / "test-*.parquet")
    judged = rows.filter(pl.col("fine_caption_score").is_not_null())
    fits = judged["fine_caption"] == judged["coarse_caption"]
    assert fits.mean() >= 0.7
    assert judged["kind"].to_list() == ["dynamic" if one else "static" for one in fits]
    kept = rows.filter(pl.col("fine_caption_score").is_null())
    assert kept["video_id"].to_list() == ["gone-test"]
    assert "2 rows were refused (2 x not judged)" in (tmp_path / "judged" / "README.md").read_text()


@pytest.mark.slow
def test_a_stopped_training_goes_on_to_the_same_weights(build, tiny, clip, tmp_path):
    short = {"epochs": 2, "max_evaluated": 1, "num_frames": 1, "checkpoint_steps": 1}
    run(config_of(build, tiny, clip, tmp_path / "whole", **short))
    config = config_of(build, tiny, clip, tmp_path / "stopped", **short)
    with stopped_after(3):  # of 2 in an epoch
        run(config)
    run(config)
    whole, resumed = (load_matcher(str(tmp_path / name / "model"))[0].state_dict() for name in ("whole", "stopped"))
    torch.testing.assert_close(resumed, whole)


@pytest.fixture
def blip(tiny, tmp_path):
    return save_blip(tmp_path / "blip", AutoTokenizer.from_pretrained(tiny["text_model"]))


def test_blip_trains_with_both_objectives(build, tiny, blip, tmp_path):
    measured = run(config_of(build, tiny, blip, tmp_path / "out", epochs=1, max_evaluated=2, num_frames=1))
    assert measured["trained"]["moments"] == 2


def test_impossible_options_are_errors_without_traceback(build, tiny, clip, tmp_path):
    with pytest.raises(SystemExit, match="name their videos with --video_dir"):
        run(NoiseEvaluatorConfig(build=str(build), model=clip, output_dir=str(tmp_path / "x")))
    with pytest.raises(SystemExit, match="holds no rewritings"):
        run(config_of(tmp_path, tiny, clip, tmp_path / "x"))
    with pytest.raises(ValueError, match="matching head is untrained"):
        run_selection(selection_of(build, clip, tmp_path, tmp_path / "y"))
    with pytest.raises(SystemExit, match=r"holds no source/\*\.parquet"):
        run_selection(CaptionSelectConfig(build=str(tmp_path), video_dir=str(tmp_path)))


def test_a_loss_that_is_not_finite_ends_the_training_and_names_its_moments(build, tiny, clip, tmp_path, monkeypatch):
    monkeypatch.setattr(noise_evaluator, "training_loss", lambda *_: torch.tensor(float("nan"), requires_grad=True))
    with pytest.raises(SystemExit, match=r"the loss of step 1 is nan, among rows \d+, \d+.*; the last checkpoint is"):
        run(config_of(build, tiny, clip, tmp_path / "run"))
