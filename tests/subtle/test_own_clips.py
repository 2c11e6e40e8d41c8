"""A user's own clips from the guide's lines to a report, and through the build recipe with a chat model."""

import json
import re
import shlex
from functools import partial
from pathlib import Path

import polars as pl
import pytest
import torch
from chat_server import ChatServer
from colored_videos import write_colored_video
from datasets import load_dataset

from hf_datasets.tfcovr.free_text import write_free_modification
from hf_datasets.tfcovr.modifications.task import answer_text
from subtle.building import build_tfcovr
from subtle.embedding import embed_clips
from subtle.evaluate import evaluate_tfcovr, report
from subtle.options import parse_config, run_recipe
from subtle.run.build import run_build
from subtle.run.data import load_split
from subtle.run.shared_config import DataConfig
from subtle.tfcovr import measure
from subtle.tfcovr.labeled_splits import labeled_splits
from subtle.tfcovr.measure import held_out_groups
from subtle.train import stage1, stage2
from tests.fixtures.verbs import WORDS

ROOT = Path(__file__).parents[2]
RECIPES = {
    "stage1": (stage1, stage1.Stage1Config),
    "embed_clips": (embed_clips, embed_clips.EmbedConfig),
    "stage2": (stage2, stage2.Stage2Config),
    "evaluate_tfcovr": (evaluate_tfcovr, evaluate_tfcovr.EvaluateConfig),
    "report": (report, report.ReportConfig),
}
COLORS = {
    "lamp turns red": (250, 20, 20),
    "lamp turns green": (20, 250, 20),
    "lamp turns blue": (20, 20, 250),
    "lamp goes out": (10, 10, 10),
    "lamp shines white": (245, 245, 245),
}


def blocks(language):
    """The code blocks of a language in the guide's section on own clips."""
    guide = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
    section = guide.partition("## Your own clips")[2].partition("\n### ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


@pytest.fixture
def myclips(tmp_path, monkeypatch):
    """An empty folder with 40 clips of five labels that are not of the 306, in ten videos; it is the current one."""
    (tmp_path / "myclips/videos").mkdir(parents=True)
    names = list(COLORS)
    rows = []
    for video in range(10):
        shown = [names[(4 * video + place) % 5] for place in range(4)]
        path = tmp_path / f"myclips/videos/match{video}.mp4"
        write_colored_video(path, [COLORS[label] for label in shown], seed=video)
        rows += [
            {
                "clip_id": f"{video}-{place}",
                "video_id": f"match{video}",
                "start_seconds": place,
                "end_seconds": place + 1,
            }
            | {"label": label}
            for place, label in enumerate(shown)
        ]
    pl.DataFrame(rows).write_csv(tmp_path / "myclips/clips.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "myclips"


def test_the_lines_of_the_guide_lead_from_a_table_to_a_report(myclips, tiny, capsys):
    (code,) = blocks("python")
    found = {}
    exec(compile(code, "guide.md", "exec"), found)
    assert {split: len(part) for split, part in found["clips"].items()} == {"train": 24, "validation": 8, "test": 8}
    assert "40 of 40 clips" in capsys.readouterr().out
    clip = str(Path(tiny["vision_model"]).parent / "clip")
    quick = {
        "stage1": ["--base", clip, "--num_frames", "2", "--cache_frames", "false", "--num_workers", "0"],
        "embed_clips": ["--text_model", tiny["text_model"], "--num_workers", "0"],
        "stage2": ["--text_model", tiny["text_model"], "--epochs", "2", "--num_workers", "0"],
        "report": ["--num_queries", "2"],
    }
    for line in blocks("bash")[0].splitlines():
        command, *words = shlex.split(line)
        assert command == "subtle"
        name = next(
            name for name, (script, *second) in WORDS.items() if words[: 1 + len(second)] == [script[:-3], *second]
        )
        options = words[len(WORDS[name]) :]
        recipe, config_class = RECIPES[name]
        torch.manual_seed(0)
        recipe.main(parse_config(config_class, recipe.__doc__, [*options, *quick.get(name, [])]))
    results = {name: json.loads(Path(f"outputs/{name}/results.json").read_text()) for name in ("stage1", "evaluation")}
    assert results["stage1"]["coverage"]["train"] == {"clips": 24, "usable": 24}
    assert {"validation/accuracy", "test/accuracy"} <= results["stage1"]["figures"].keys()
    (coverage,) = results["evaluation"]["coverage"].values()
    assert coverage["queries"] == coverage["queries_ranked"] > 0
    assert coverage["gallery_clips_ranked"] == 8
    page = Path("outputs/report/index.html").read_text(encoding="utf-8")
    assert "lamp turns red" in page
    assert "data:video" in page


def writes(body):
    """What the rule would answer to a request for a modification, in other words."""
    asked = json.loads(body["messages"][-1]["content"])
    return answer_text("Please " + write_free_modification(asked["source"], asked["target"]))


def build(*options):
    arguments = ["--data_dir", "myclips", "--video_dir", "myclips/videos", "--output_dir", "built", "--quiet"]
    try:
        config = parse_config(build_tfcovr.BuildTFCoVRConfig, None, [*arguments, *map(str, options)])
    except SystemExit as end:
        return end.code
    return run_recipe(partial(run_build, build_tfcovr.main), config)


def test_labels_of_own_clips_are_held_out_from_training_as_when_the_table_is_loaded(myclips, capsys, monkeypatch):
    clips = pl.read_csv("myclips/clips.csv")
    scene = {label: f"lamp {place // 2} {'on' if place % 2 else 'off'}" for place, label in enumerate(COLORS)}
    scene |= {"lamp shines white": "lamp 1 on"}
    clips.with_columns(pl.col("label").replace(scene)).write_csv("myclips/clips.csv")
    assert build("--unseen_labels", 0.25) == 0
    assert "of 4 labels 1 have clips in test alone" in capsys.readouterr().out
    made = load_dataset("tfcovr", "own-clips", data_dir="built")
    loaded = load_dataset("tfcovr", "own-clips", data_dir="myclips", unseen_labels=0.25)
    assert {split: rows["clip_id"] for split, rows in made.items()} == {
        split: rows["clip_id"] for split, rows in loaded.items()
    }
    assert len(set(made["test"]["label"]) - set(made["train"]["label"])) == 1
    config = DataConfig(dataset_config="own", data_dir="built")
    groups = held_out_groups(config, load_split(config, "test"))
    assert {"seen_to_unseen", "unseen_to_seen"} <= set(groups.values())
    with monkeypatch.context() as patched:
        patched.setattr(measure, "seen_groups", lambda *_: pytest.fail("it read the texts of labels that all train"))
        assert held_out_groups(config, load_split(config, "train")) == {}
    assert build("--unseen_labels", 1.5) != 0
    assert build("--unseen_labels", 0.2, "--marks", "marks.csv") != 0
    assert "unseen_labels is 1.5; it is a share" in capsys.readouterr().err


def test_a_chat_model_writes_the_texts_of_own_clips(myclips):
    direct = load_dataset("tfcovr", "own", data_dir="myclips", video_dir="myclips/videos")
    with ChatServer(writes) as server:
        assert build("--model", "m", "--base-url", server.url, "--cache", "answers.sqlite") == 0
    opened = load_dataset("tfcovr", "own", data_dir="built", video_dir="myclips/videos")
    clips = load_dataset("tfcovr", "own-clips", data_dir="built", video_dir="myclips/videos")
    for split, part in direct.items():
        expected = part.to_polars().with_columns(
            pl.concat_str(pl.lit("Please "), "modification_text").alias("modification_text")
        )
        assert opened[split].to_polars().equals(expected)
    assert {Path(one).parent for one in clips["test"]["video"]} == {myclips / "videos"}
    assert set(clips["train"]["description"]) == set(COLORS)


def test_a_build_of_own_clips_names_rejected_rows_and_reasons_why_it_cannot_go_on(myclips, capsys):
    with (myclips / "clips.csv").open("a") as file:
        file.write("lost,match77,0,1,lamp goes out\n")
    assert build("--threshold", "1") == 2
    assert "no pair of the 5 labels is as similar as 1" in capsys.readouterr().err
    assert not Path("built").exists()
    assert build("--dry_run", "--model", "gpt-4o") == 0
    assert build() == 0
    (row,) = pl.read_parquet("built/rejections.parquet").iter_rows(named=True)
    assert (row["step"], row["key"]) == ("clips", "lost")
    assert "video 'match77' is not under" in row["reason"]
    assert build("--source", "x") == 2
    assert "give one of them" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("folder", "says"), [("own", "video_dir nowhere is not a folder"), ("release", "nowhere: no such folder of videos")]
)
def test_a_folder_of_videos_that_is_not_there_is_one_line(myclips, folder, says):
    row = "query_video,target_video,label1,label2,modification\na,b,40,41,Show it.\n"
    (myclips / "train.csv").write_text(row)
    row = "query_id,query_video,modification,target_video,target_videos_ids\n0,a,Show it.,b,['b']\n"
    (myclips / "test.csv").write_text(row)
    with pytest.raises(SystemExit, match=says):
        load_split(DataConfig(dataset_config=folder, data_dir="myclips", video_dir="nowhere"), "train", clips=True)


def test_a_run_on_own_clips_prints_the_rows_that_were_refused(myclips, capsys):
    with (myclips / "clips.csv").open("a") as file:
        file.write("late,match1,30,31,lamp goes out\n")
    found = labeled_splits(DataConfig(dataset_config="own", data_dir="myclips", video_dir="myclips/videos"))
    assert found.refused.startswith("1 rows were refused (1 x span outside the video)")
    listed = Path(found.refused.rpartition("That is ")[2])
    assert "row 41 of myclips/clips.csv, clip_id 'late'" in pl.read_parquet(listed)["reason"][0]
