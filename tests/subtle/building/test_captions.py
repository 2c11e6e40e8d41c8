"""Captions and rewritten captions against a loopback server: requests, scores, refused answers, resume, price."""

import json
import socket
from functools import partial

import polars as pl
import pytest
from chat_server import ChatServer

from hf_datasets.miniature import MiniatureConfig, prepare_miniature
from hf_datasets.tfcovr.captions import GYMNASTICS_CAPTION_PROMPT, caption_of
from hf_datasets.tfcovr.labels import find_label
from subtle.building import caption_rewrite, caption_write
from subtle.building.options import CaptionRewriteConfig, CaptionWriteConfig
from subtle.options import run_recipe
from subtle.run.build import run_build
from subtle.run.data import load_split
from subtle.run.shared_config import DataConfig
from subtle.tfcovr.captions import clips_of, read_captions

LEAP = "Split leap with 1 turn. (Apparatus: BB)"
DIVE = "Reverse takeoff, 1.5 somersaults, 1 twist, pike. (Platform: 3m)"
REFUSED = {
    "": "empty answer",
    "I'm sorry, I can't help with that.": "refused by the model",
    "Sure! In this clip a gymnast jumps.": "is not one line that ends in",
    "Salto adelante carpado con una pirueta. (Apparatus: VT)": "is in another language than English",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A few rendered clips: their folder, and the clips and queries of the test split."""
    rendered = MiniatureConfig(
        labels=("45", "40", "41", "107b", "107c", "105b"),
        clips_per_label={"train": 2, "validation": 1, "test": 2},
        videos_per_split={"train": 2, "validation": 1, "test": 2},
        size=32,
        fps=6,
    )
    folder = prepare_miniature(tmp_path_factory.mktemp("few"), config=rendered, num_workers=0, progress=False)
    config = DataConfig(data_dir=str(folder))
    return str(folder), clips_of(config, "test"), list(load_split(config, "test"))


@pytest.fixture
def call(data, tmp_path):
    """Run one of the two recipes as the command would; the exit status."""

    def make(module, server=None, **changes):
        kinds = {caption_write: CaptionWriteConfig, caption_rewrite: CaptionRewriteConfig}
        chat = {"model": "tiny", "base_url": getattr(server, "url", server), "max_answers": 1} if server else {}
        output_dir = tmp_path / module.__name__.rpartition(".")[2]
        fields = {"data_dir": data[0], "cache": str(tmp_path / "answers.sqlite"), "output_dir": str(output_dir)}
        fields |= {"quiet": True, **({"num_frames": 2} if module is caption_write else {}), **chat, **changes}
        return run_recipe(partial(run_build, module.main), kinds[module](**fields))

    return make


caption = caption_write
rewrite = caption_rewrite


def results(folder):
    return json.loads((folder / "results.json").read_text())


def table(folder, name):
    return pl.read_parquet(folder / f"{name}.parquet")


def is_dive(body):
    return "diving" in str(body["messages"][0]["content"])


def says(body):
    return DIVE if is_dive(body) else LEAP


def images(body):
    return [part for part in body["messages"][1]["content"] if part["type"] == "image_url"]


def test_frames_go_with_the_prompt_of_the_sport_and_the_captions_are_scored(call, data, tmp_path, capsys):
    clips = data[1]
    with ChatServer(answer=says) as server:
        assert call(caption, server) == 0
        prompts = [body["messages"][0]["content"] for body in server.bodies]
        assert {len(images(body)) for body in server.bodies} == {2}
    dives = sum(clip["label"].source == "finediving" for clip in clips.values())
    assert prompts.count(GYMNASTICS_CAPTION_PROMPT) == len(clips) - dives > 0 < dives
    folder = tmp_path / "caption_write"
    rows = table(folder, "captions")
    assert rows["clip_id"].to_list() == list(clips)
    assert set(rows["model"]) == {"tiny"}
    leap = rows.filter(pl.col("label") == "45").row(0, named=True)  # (Floor Exercise) switch leap
    assert (leap["caption"], leap["place"], leap["sport"]) == (LEAP, "BB", "gymnastics")
    assert (leap["right"], leap["wrong"]) == (["skill"], ["apparatus", "turns", "position"])
    found = results(folder)
    assert found["coverage"] == {"rows": len(clips), "captions": len(clips), "scored": len(clips)}
    gymnastics = rows.filter(sport="gymnastics")
    said = gymnastics.select(pl.concat_list("right", "wrong", "not_said").list.contains("turns"))
    expected = gymnastics["right"].list.contains("turns").sum() / said.to_series().sum()
    assert found["figures"]["gymnastics/turns/right"] == pytest.approx(expected)
    assert found["figures"]["diving/takeoff/right"] == 0.0
    assert {"majority", "chance"} == found["baselines"].keys()
    shown = capsys.readouterr().out
    assert "(Floor Exercise) switch leap" in shown
    assert "majority" in (folder / "table.md").read_text()


def test_answers_that_are_no_caption_are_rejected_with_the_reason_and_count_in_no_score(call, data, tmp_path):
    clips, answers = data[1], iter(REFUSED)
    gymnastics = [clip_id for clip_id, clip in clips.items() if clip["label"].source == "finegym"]
    with ChatServer(answer=lambda body: DIVE if is_dive(body) else next(answers, LEAP)) as server:
        assert call(caption, server, max_concurrency=1) == 0
    folder = tmp_path / "caption_write"
    refused = table(folder, "rejections")
    assert refused["raw"].to_list() == list(REFUSED)
    assert refused["key"].to_list() == gymnastics[: len(REFUSED)]
    for reason, expected in zip(refused["reason"], REFUSED.values(), strict=True):
        assert reason.startswith(expected)
    found = results(folder)
    assert found["coverage"]["captions"] == len(clips) - len(REFUSED)
    assert found["figures"]["gymnastics/captions"] == len(gymnastics) - len(REFUSED)
    assert sum(count for reason, count in found["coverage"].items() if reason.startswith(tuple(REFUSED.values()))) == 4


def test_a_model_that_writes_no_caption_leaves_its_answers_and_no_score(call, data, tmp_path, capsys):
    with ChatServer(answer=lambda body: "Action: Flip, Turns: 2") as server:
        assert call(caption, server) == 1
        assert "no answer is a caption" in capsys.readouterr().err
        assert table(tmp_path / "caption_write", "captions").is_empty()
        assert table(tmp_path / "caption_write", "rejections").height == len(data[1])
        asked = len(server.bodies)
        assert call(caption, server, any_form=True) == 0  # the same answers, taken as the paper took them
        assert len(server.bodies) == asked
    assert set(table(tmp_path / "caption_write", "captions")["caption"]) == {"Action: Flip, Turns: 2"}


def test_clips_without_a_video_or_whose_video_is_broken_are_counted(call, data, tmp_path):
    _, clips, _ = data
    lost, broken, *rest = clips
    rows = {name: dict(clips[name]) for name in clips}
    rows[lost]["video"] = None
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    rows[broken]["video"] = str(tmp_path / "broken.mp4")
    with pytest.MonkeyPatch.context() as patched, ChatServer(answer=says) as server:
        patched.setattr(caption_write, "clips_of", lambda config, split: rows)
        assert call(caption, server) == 0
        assert len(server.bodies) == len(rest)
    coverage = results(tmp_path / "caption_write")["coverage"]
    assert (coverage["no video file"], coverage["no request can be made of this row"]) == (1, 1)
    assert coverage["captions"] == len(rest)
    refused = table(tmp_path / "caption_write", "rejections")
    assert refused["key"].to_list() == [lost, broken]


def test_clips_of_no_known_sport_need_the_flag_and_are_captioned_without_a_score(call, data, tmp_path, capsys):
    rows = {name: clip | {"label": None} for name, clip in list(data[1].items())[:2]}
    with pytest.MonkeyPatch.context() as patched, ChatServer(answer=says) as server:
        patched.setattr(caption_write, "clips_of", lambda config, split: rows)
        with pytest.raises(SystemExit, match="give --sport"):
            call(caption, server)
        assert call(caption, server, sport="diving") == 0
        assert call(caption, sport="diving") == 1  # the rule has no label to write from
    assert "no answer is a caption" in capsys.readouterr().err
    refused = table(tmp_path / "caption_write", "rejections")
    assert all("has no label of TF-CoVR" in reason for reason in refused["reason"])


def test_without_a_model_the_labels_are_written_and_both_steps_score_everything_right(call, data, tmp_path):
    _, clips, queries = data
    assert call(caption, only_queries=True) == 0
    folder = tmp_path / "caption_write"
    rows = table(folder, "captions")
    assert set(rows["clip_id"]) == {query["query_clip_id"] for query in queries}
    assert rows["caption"].to_list() == [caption_of(clips[clip_id]["label"]) for clip_id in rows["clip_id"]]
    assert set(rows["model"]) == {results(folder)["model"]} == {"label captions"}
    assert rows["all_right"].all()
    assert call(rewrite, captions=str(folder)) == 0
    rewritten = table(tmp_path / "caption_rewrite", "rewritten")
    assert rewritten["query_id"].to_list() == [query["query_id"] for query in queries]
    expected = [caption_of(find_label(query["target_label"])) for query in queries]
    assert rewritten["target_caption"].to_list() == expected
    assert rewritten["all_right"].all()
    found = results(tmp_path / "caption_rewrite")
    assert found["captions_by"] == found["model"] == "label captions"
    unchanged = found["baselines"]["the query's caption"]
    assert all(unchanged[name] < 1 for name in unchanged if name.endswith("all_right"))
    assert call(rewrite) == 0  # captions of the labels are the same
    assert table(tmp_path / "caption_rewrite", "rewritten")["target_caption"].to_list() == expected


def test_the_language_model_gets_caption_and_modification_and_never_a_label(call, data, tmp_path):
    _, clips, queries = data
    own = tmp_path / "own.csv"
    lost = queries[0]["query_clip_id"]
    captioned = [clip_id for clip_id in clips if clip_id != lost]
    lines = [(one, caption_of(clips[one]["label"])) for one in captioned]
    lines.append((lost, "I'm sorry, I can't help with that."))
    pl.DataFrame(lines, ["clip_id", "caption"], orient="row").write_csv(own)
    asked = [query for query in queries if query["query_clip_id"] in captioned]

    def answer(body):
        given = json.loads(body["messages"][-1]["content"])
        assert given.keys() == {"caption", "modification_text"}
        return json.dumps({"target_caption": given["caption"]})

    with ChatServer(answer=answer) as server:
        assert call(rewrite, server, captions=str(own)) == 0
        sent = {(body["messages"][-1]["content"]) for body in server.bodies}
        assert all("image_url" not in str(body["messages"]) for body in server.bodies)
    pairs = {(caption_of(clips[one["query_clip_id"]]["label"]), one["modification_text"]) for one in asked}
    assert {tuple(json.loads(text).values()) for text in sent} == pairs
    found = results(tmp_path / "caption_rewrite")
    assert found["captions_by"] == "own.csv"
    lacking = len(queries) - len(asked)
    assert found["coverage"]["captions"] == len(asked)
    assert found["coverage"]["its clip has no caption"] == lacking > 0
    assert sum(found["coverage"].values()) == len(queries) + 2 * len(asked) + lacking
    assert set(table(tmp_path / "caption_rewrite", "rejections")["step"]) == {"captions", "queries"}
    unchanged = found["baselines"]["the query's caption"]
    assert {name: found["figures"][name] for name in unchanged} == unchanged


def test_refused_rewritings_and_captions_of_another_form_are_rejected_with_the_reason(call, data, tmp_path):
    _, clips, queries = data
    own = tmp_path / "captions.jsonl"
    pl.DataFrame({"clip_id": list(clips), "caption": "Action: Flip, Turns: 2"}).write_ndjson(own)
    with ChatServer(answer=lambda body: "As an AI I cannot do that.") as server:
        assert call(rewrite, server, captions=str(own)) == 1
        assert not server.bodies
        refused = table(tmp_path / "caption_rewrite", "rejections")
        assert all("--any_form takes captions without the form" in reason for reason in refused["reason"])
        assert call(rewrite, server, captions=str(own), any_form=True) == 1
    refused = table(tmp_path / "caption_rewrite", "rejections")
    assert set(refused["reason"]) == {"refused by the model"}
    assert refused["key"].to_list() == [query["query_id"] for query in queries]


@pytest.mark.parametrize("module", [caption, rewrite])
def test_a_dry_run_prints_the_price_and_sends_no_request(call, tmp_path, capsys, monkeypatch, module):
    def refuse(*_):
        raise AssertionError("a dry run must not connect")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert call(module, model="gpt-4o", dry_run=True) == 0
    shown = capsys.readouterr().out
    assert "Dry run: no network call was made" in shown
    assert "Prices of 20" in shown
    assert list(tmp_path.iterdir()) == []


def test_tables_of_captions_are_scored_side_by_side(call, data, tmp_path, capsys):
    _, clips, _ = data
    assert call(caption) == 0
    rows = [(clip_id, "Action: Flip, Turns: 1") for clip_id in clips]
    rows += [("stranger", "Salto."), (next(iter(clips)), "x")]
    pl.DataFrame(rows, ["clip_id", "caption"], orient="row").write_parquet(tmp_path / "video_xl.parquet")
    labels, other = str(tmp_path / "caption_write"), str(tmp_path / "video_xl.parquet")
    assert call(caption, captions=[labels, other], output_dir=str(tmp_path / "scores")) == 0
    found = results(tmp_path / "scores")
    assert found["figures"]["label captions"]["gymnastics/all_right"] == 1.0
    assert found["figures"][other]["gymnastics/all_right"] == 0.0
    assert list(found["figures"]) == ["label captions", other, "majority", "chance"]
    assert found["coverage"][other] == {"clips": len(clips), "captioned": len(clips), "rejected": 2}
    shown = (tmp_path / "scores" / "table.md").read_text()
    assert f"| (Floor Exercise) switch leap | {other} | Action: Flip, Turns: 1 |  | turns |" in shown
    assert "| (Floor Exercise) switch leap | label captions | Switch leap. (Apparatus: FX) |" in shown
    refused = table(tmp_path / "scores", "rejections")
    assert sorted(reason.partition(";")[0] for reason in refused["reason"]) == [
        "no clip of 'test' has this id",
        "second caption of the same id",
    ]
    assert CaptionWriteConfig(captions=[other]).output_dir == "outputs/caption_scores"
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.csv", "clip,text\na,b\n", "clip_id"),
        ("c.csv", "clip_id,caption\na,\n", "none of the 1 rows of .* has a usable caption; the first: empty answer"),
        ("c.csv", "clip_id,caption\na,Un homme ouvre la porte dans la cuisine.\n", "another language"),
        ("c.tsv", "clip_id\tcaption\na\tI'm sorry, I can't help with that.\n", "refused by the model"),
        ("c.csv", "clip_id,caption\n", "has no row"),
        ("c.parquet", "no parquet", "cannot be read"),
        ("gone.csv", None, "there is no file"),
    ],
)
def test_a_table_that_holds_no_captions_is_refused_with_the_reason(call, tmp_path, capsys, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        read_captions(tmp_path / name)
    assert call(rewrite, captions=str(tmp_path / name)) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_captions_of_other_clips_are_refused(call, tmp_path, capsys):
    (tmp_path / "c.csv").write_text("clip_id,caption\nelsewhere,Split leap.\n")
    for module, captions in ((caption, [str(tmp_path / "c.csv")]), (rewrite, str(tmp_path / "c.csv"))):
        assert call(module, captions=captions) == 2
        assert "has no caption of a clip of 'test'" in capsys.readouterr().err


def test_a_mistake_in_the_flags_is_refused():
    with pytest.raises(ValueError, match="give one of them"):
        CaptionWriteConfig(captions=["c.csv"], model="m")
    with pytest.raises(ValueError, match="--num_frames and --max_side are at least 1"):
        CaptionWriteConfig(num_frames=0)
