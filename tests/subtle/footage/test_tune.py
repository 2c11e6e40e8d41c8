"""Tuning to one's own sport: a table becomes a model that can be searched with, in steps that are not repeated."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from chat_server import ChatServer
from colored_videos import write_colored_video
from transformers import AutoTokenizer, CLIPConfig, CLIPImageProcessor, CLIPModel

from hf_datasets.footage.moments import read_moments
from hf_datasets.tfcovr.free_text import write_free_modification
from hf_datasets.tfcovr.modifications.task import answer_text
from hf_datasets.video import read_frames
from hf_models.encoders import load_encoder
from subtle.footage import tune
from subtle.footage.options import TuneConfig
from subtle.options import run_recipe
from subtle.run.model_folders import MINIATURE_CLIP
from subtle.tuning import plan
from subtle.tuning.example import draw_example
from subtle.tuning.results import cut_texts

COLORS = {
    "lámpara roja": (250, 20, 20),
    "lámpara verde": (20, 250, 20),
    "lámpara azul, 2 veces": (20, 20, 250),
    "luz apagada": (10, 10, 10),
}


ALL_SYSTEMS = plan.COMPARED_SYSTEMS
FEW_SYSTEMS = ("two-stage", "text-only", "zero-shot average")


def compared_with(monkeypatch, systems):
    for module in (plan, tune):
        monkeypatch.setattr(module, "COMPARED_SYSTEMS", systems)


@pytest.fixture(scope="module", autouse=True)
def few_systems():
    """Each further one takes a second to train."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        compared_with(monkeypatch, FEW_SYSTEMS)
        yield


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A tiny CLIP with the tokenizer of the one that ships."""
    folder = tmp_path_factory.mktemp("base")
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    tokenizer = AutoTokenizer.from_pretrained(MINIATURE_CLIP)
    text = small | {"vocab_size": len(tokenizer), "bos_token_id": 1, "eos_token_id": 3, "pad_token_id": 0}
    text |= {"projection_dim": 8, "max_position_embeddings": 48}
    vision = small | {"image_size": 16, "patch_size": 8, "projection_dim": 8}
    torch.manual_seed(0)
    model = CLIPModel(CLIPConfig(vision_config=vision, text_config=text, projection_dim=8))
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def myclips(tmp_path_factory):
    """24 clips of four labels in six videos, and their table beside the folder."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "videos").mkdir()
    names, rows = list(COLORS), []
    for video in range(6):
        shown = [names[(video + place) % 4] for place in range(4)]
        write_colored_video(
            folder / "videos" / f"day{video}.mp4", [COLORS[label] for label in shown], seed=video, fps=4
        )
        rows += [
            {"video": f"day{video}", "start_seconds": place, "end_seconds": place + 1, "label": label}
            for place, label in enumerate(shown)
        ]
    pl.DataFrame(rows).write_csv(folder / "clips.csv")
    return folder


@pytest.fixture(scope="module")
def config(myclips, base):
    places = {"clips": str(myclips / "clips.csv"), "video_dir": str(myclips / "videos"), "base": base}
    small = {"min_clips": 24, "num_frames": 2, "batch_size": 4, "stage1_epochs": 1, "stage2_epochs": 2}
    return TuneConfig(**places, **small, num_queries=1, num_workers=0, device="cpu")


@pytest.fixture(scope="module")
def tuned(config, tmp_path_factory):
    """The folder of a run that was never interrupted."""
    output = tmp_path_factory.mktemp("tuned") / "run"
    assert tune.main(replace(config, output_dir=str(output))) == 0
    return output


def test_a_table_becomes_a_model_that_can_be_searched_with(tuned, myclips):
    summary = json.loads((tuned / "summary.json").read_text(encoding="utf-8"))
    assert list(summary["figures"]) == [*FEW_SYSTEMS, "random order"]
    assert (summary["clips"], summary["labels"], summary["videos"]) == (24, 4, 6)
    splits = {split: set(clips_of(tuned, split)["video_id"]) for split in ("train", "validation", "test")}
    assert len(set.union(*splits.values())) == sum(map(len, splits.values())) == 6
    assert summary["held_out_videos"] == len(splits["test"]) == 1
    texts = set(pl.read_parquet(tuned / "dataset/own/train-*.parquet")["modification_text"])
    assert "show roja instead of verde" in texts
    assert "show luz apagada instead of lámpara roja" in texts
    encoder = load_encoder(str(tuned / "model"))
    frames = read_frames(myclips / "videos/day0.mp4", 2, 0, 1).frames
    assert np.linalg.norm(encoder.query(frames, "show verde instead of roja")) == pytest.approx(1, abs=1e-5)
    card = (tuned / "model/README.md").read_text(encoding="utf-8")
    assert card.startswith("---\n")
    assert "`lámpara roja`" in card
    assert "data:video" in (tuned / "report/index.html").read_text(encoding="utf-8")


def clips_of(output, split):
    return pl.read_parquet(output / "dataset" / "own-clips" / f"{split}-*.parquet")


def test_a_second_run_repeats_no_step_and_another_table_is_refused(tuned, config, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(tune, "TUNING_RECIPES", {})
    again = replace(config, output_dir=str(tuned), num_workers=2, min_clips=10)
    before = (tuned / "summary.json").read_text()
    assert run_recipe(tune.main, again) == 0
    shown = capsys.readouterr().out
    assert shown.count("done before") == 6
    assert "train: 16 clips of 4 videos; validation: 4 clips of 1 video; test: 4 clips of 1 video; no video" in shown
    assert (tuned / "summary.json").read_text() == before
    assert run_recipe(tune.main, replace(again, seed=1)) == 2
    assert "holds a run with other seed; name another --output_dir, or give --restart" in capsys.readouterr().err
    longer = tmp_path / "clips.csv"
    longer.write_text(Path(config.clips).read_text() + "day0,0.5,1.5,luz apagada\n")
    assert run_recipe(tune.main, replace(again, clips=str(longer))) == 2
    assert "holds a run with other clips, content of clips" in capsys.readouterr().err
    tune.forget(tmp_path)
    assert longer.exists(), "a folder that is no run stays as it is"
    shutil.copytree(tuned, tmp_path / "run")
    tune.forget(tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["tune.lock"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other/mine.txt").touch()
    assert run_recipe(tune.main, replace(again, output_dir=str(tmp_path / "other"), restart=True)) == 2
    assert "holds something else (mine.txt)" in capsys.readouterr().err
    assert (tmp_path / "other/mine.txt").exists()


@pytest.mark.slow  # a whole run
def test_a_run_that_is_interrupted_in_every_step_ends_as_one_that_was_not(tuned, config, monkeypatch, tmp_path):
    output, ended, steps = tmp_path / "run", [], list(tune.TUNING_RECIPES)
    original = dict(tune.TUNING_RECIPES)

    def interrupted(name):
        main, config_class = original[name]

        def run(options):
            status = main(options)
            ended.append(name)
            raise KeyboardInterrupt if ended.count(name) == 1 else AssertionError(status)

        return run, config_class

    for name in steps:
        monkeypatch.setattr(tune, "TUNING_RECIPES", original | {name: interrupted(name)})
        assert run_recipe(tune.main, replace(config, output_dir=str(output))) == 130
    monkeypatch.setattr(tune, "TUNING_RECIPES", original)
    assert tune.main(replace(config, output_dir=str(output))) == 0
    assert ended == steps
    one, other = (json.loads((folder / "summary.json").read_text()) for folder in (tuned, output))
    assert one == other


def test_too_little_is_one_line_each_and_exit_status_2(config, myclips, tmp_path, capsys):
    few = tmp_path / "few.csv"
    few.write_text("video,start_seconds,end_seconds,label\nday0,0,1,roja\nday1,0,1,roja\nday9,0,1,roja\n")
    output = tmp_path / "run"
    assert run_recipe(tune.main, replace(config, clips=str(few), min_clips=50, output_dir=str(output))) == 2
    shown = capsys.readouterr()
    assert shown.out == "2 clips of 1 label in 2 videos\n"
    assert [line.partition(":")[0] for line in shown.err.splitlines()] == ["left out", *["too little"] * 3]
    assert "2 clips can be used, and 50 are needed: label 48 more" in shown.err
    assert "video 'day9' is not under" in shown.err
    assert not output.exists()


@pytest.mark.parametrize(
    ("splits", "says"),
    [
        (("train", "train", "test"), "the column split names no clip of validation; name some in each"),
        (("train", "train", "train"), "the column split names no clip of test and validation"),
    ],
)
def test_a_column_split_that_leaves_one_out_is_refused(config, tmp_path, capsys, splits, says):
    table = pl.read_csv(config.clips).with_columns(
        split=pl.col("video").replace_strict({f"day{n}": splits[n % 3] for n in range(6)})
    )
    table.write_csv(tmp_path / "clips.csv")
    run = replace(config, clips=str(tmp_path / "clips.csv"), output_dir=str(tmp_path / "run"))
    assert run_recipe(tune.main, run) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_dry_run_names_the_steps_and_writes_nothing(config, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert tune.main(replace(config, dry_run=True)) == 0
    shown = capsys.readouterr().out
    assert [line.partition(",")[0] for line in shown.splitlines() if ", about " in line] == [
        *("dataset", "stage 1", "embeddings", "stage 2", "comparison", "report")
    ]
    assert "--epochs 1 --warmup_steps 0.5 --learning_rate 0.0003" in shown
    assert "download: nothing, it is here" in shown
    unknown = replace(config, dry_run=True, base="someone/a-clip-that-is-not-here")
    assert tune.main(unknown) == 0
    assert "its size is not known before its config.json is here" in capsys.readouterr().out
    assert tune.main(replace(config, dry_run=True, base="openai/clip-vit-base-patch16")) == 0
    assert "download: about 598 MB from the Hub, once" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_texts_that_the_text_encoder_cuts_are_counted(base):
    short, longer, longest = "show 5 reps instead of 3", "двойной аксель " * 2, "двойной аксель " * 3
    assert cut_texts(base, [short]) is None
    assert cut_texts(base, [short, longer, longest]).startswith("2 of 3 texts are longer than the 32 tokens that")
    assert "and 1 of them then read like another; shorten the labels" in cut_texts(base, [short, longer, longest])


def test_a_base_that_is_no_clip_is_refused_before_anything_is_written(config, tuned, tmp_path, capsys):
    run = replace(config, base=str(tuned / "model"), output_dir=str(tmp_path / "run"))
    assert run_recipe(tune.main, run) == 2
    assert "is a 'tfcovr' model, and AIM starts from a CLIP: give --base" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def writes(body):
    asked = json.loads(body["messages"][-1]["content"])
    return answer_text("Por favor, " + write_free_modification(asked["source"], asked["target"]))


def test_a_chat_model_writes_the_texts_and_marks_become_triplets(config, myclips, tmp_path, monkeypatch, capsys):
    """Only the first step is run: the others do not depend on the writer."""
    marks = tmp_path / "marks.csv"
    marks.write_text(
        "query_video,query_start_seconds,query_end_seconds,text,video,start_seconds,end_seconds,label,is_right\n"
        + "".join(f"day{video},0,1,más oscuro,day{video},1,2.5,,true\n" for video in range(6))
        + "day0,0,1,más oscuro,day0,2,3,,false\n"
    )
    asked = replace(config, writer="chat", chat_model="gpt-4o", output_dir=str(tmp_path / "run"), marks=str(marks))
    assert tune.main(replace(asked, dry_run=True)) == 0
    assert "Prices of" in capsys.readouterr().out
    main, config_class = tune.TUNING_RECIPES["build tfcovr"]

    def stop_afterwards(options):
        assert main(options) == 0
        raise KeyboardInterrupt

    monkeypatch.setattr(tune, "TUNING_RECIPES", {"build tfcovr": (stop_afterwards, config_class)})
    with ChatServer(writes) as server:
        assert run_recipe(tune.main, replace(asked, base_url=server.url)) == 130
    rows = pl.read_parquet(tmp_path / "run/dataset/own/train-*.parquet")
    marked = rows.filter(pl.col("query_id").str.starts_with("mark-"))
    train = set(clips_of(tmp_path / "run", "train")["video_id"])
    assert len(marked) == len(train)
    assert set(marked["modification_text"]) == {"más oscuro"}
    assert all(
        text.startswith("Por favor, ")
        for text in rows.filter(~pl.col("query_id").str.starts_with("mark-"))["modification_text"]
    )
    shown = capsys.readouterr().out
    assert "wrong mark" in shown
    assert "held-out video" in shown


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"writer": "chat"}, "--writer chat and --chat_model NAME go together"),
        ({"chat_model": "m"}, "--writer chat and --chat_model NAME go together"),
        ({"max_usd": 1.0}, "--max_usd is for --writer chat"),
        ({"clips": None, "marks": "marks.csv"}, "--marks needs the table of clips"),
        ({"batch_size": 0}, "--batch_size must be at least 1, not 0"),
    ],
)
def test_options_that_do_not_go_together_are_refused(config, options, says):
    with pytest.raises(ValueError, match=says):
        replace(config, **options)


def test_the_example_is_sixty_clips_of_labels_that_are_not_of_the_306(tmp_path):
    table, videos = draw_example(tmp_path, clips_per_label=3, num_videos=3, size=32, num_workers=0)
    moments, rejections = read_moments(table)
    assert not rejections
    assert len(moments) == 18
    assert {moment.label for moment in moments} >= {"gainer layout with 2 twists", "webster tuck"}
    assert {f"{moment.video}.mp4" for moment in moments} == {path.name for path in videos.iterdir()}


@pytest.mark.slow  # a whole run
def test_videos_that_do_not_decode_are_named_and_left_out(config, myclips, tmp_path, capsys, monkeypatch):
    compared_with(monkeypatch, ALL_SYSTEMS)
    shutil.copytree(myclips / "videos", tmp_path / "videos")
    table = pl.read_csv(config.clips)
    for number, broken in enumerate(("day1", "day4")):
        (tmp_path / f"videos/{broken}.mp4").write_bytes(b"not a video" * 100)
        shutil.copy(tmp_path / f"videos/day{number + 2}.mp4", tmp_path / f"videos/more{number}.mp4")
        table = pl.concat([table, table.filter(video=f"day{number + 2}").with_columns(video=pl.lit(f"more{number}"))])
    table.write_csv(tmp_path / "clips.csv")
    run = replace(config, clips=str(tmp_path / "clips.csv"), video_dir=str(tmp_path / "videos"))
    assert run_recipe(tune.main, replace(run, output_dir=str(tmp_path / "run"))) == 0
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert list(summary["figures"]) == [*ALL_SYSTEMS, "random order"]
    assert "left out day1#t=0,1 of" in capsys.readouterr().out
    results = json.loads((tmp_path / "run/embeddings/stage1/results.json").read_text())
    assert set(results["coverage"]["failures"]) == {
        f"{video}#t={second},{second + 1}" for video in ("day1", "day4") for second in range(4)
    }
