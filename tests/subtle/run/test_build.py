"""The build recipes end to end: offline, dry, against the loopback server, stopped, killed, resumed."""

import json
import re
import socket
import threading
import time
from collections import Counter
from functools import partial

import av
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from chat_server import ChatServer
from datasets import load_dataset
from small_builds import CAPTIONS, asked_of, comp, fig, rejected, tfcovr, writes

import hf_datasets  # noqa: F401 - registers the names
from hf_datasets.class_labels import with_names
from hf_datasets.fig.keyframes import keyframe_seconds
from hf_datasets.tfcovr.labels import answers_of
from subtle.building import build_tfcovr
from subtle.evaluate.analyse_tfcovr import run
from subtle.evaluate.options import AnalyzeTFCoVRConfig
from subtle.options import parse_config, run_recipe
from subtle.run.build import run_build
from tests.fixtures.verbs import typed

CANARY = "sk-canary-77aa31e5"


def texts(folder):
    return with_names(pq.read_table(folder / "source")).to_pylist()


def results(folder):
    return json.loads((folder / "results.json").read_text())


def statistics(folder):
    return json.loads((folder / "statistics.json").read_text())


@pytest.fixture
def offline(tmp_path):
    """A build by the rule-based generator, to compare with."""
    assert tfcovr(tmp_path / "offline") == 0
    return texts(tmp_path / "offline" / "built")


def test_without_arguments_the_miniature_is_built_and_opens(tmp_path):
    assert tfcovr(tmp_path) == 0
    folder = tmp_path / "built"
    rows = load_dataset("tfcovr", "source", data_dir=str(folder), cache_dir=str(tmp_path / "cache"))
    clips = load_dataset("tfcovr", "source-clips", data_dir=str(folder), cache_dir=str(tmp_path / "cache"))
    assert set(rows["test"]["query_clip_id"]) <= set(clips["test"]["clip_id"])
    assert results(folder)["figures"]["rejections"] == 0
    assert results(folder)["complete"]
    assert not (folder / "statistics.json").exists(), "the miniature is not compared with the paper"
    assert "written by: offline-writer" in (folder / "README.md").read_text()
    assert not rejected(tmp_path)
    assert not (tmp_path / "answers.sqlite").exists()


def test_tfcovrs_counts_stand_beside_the_papers_in_builds_and_analyses_of_annotations(tmp_path):
    videos, lines = {}, []
    for number in range(20):
        segments = {}
        for place, label in enumerate(("51", "41", "136")):
            segments[f"A_{place:04}_{place + 1:04}"] = {"stages": 1, "timestamps": [[place, place + 0.9]]}
            lines.append(f"-Hv_d_vqJ{number:02}_E_000100_000110_A_{place:04}_{place + 1:04} {label}")
        event = {"event": 2, "timestamps": [[100.0, 110.0]], "segments": segments}
        videos[f"-Hv_d_vqJ{number:02}"] = {"E_000100_000110": event}
    (tmp_path / "finegym_annotation_info_v1.1.json").write_text(json.dumps(videos))
    (tmp_path / "gym288_train_element_v1.1.txt").write_text("\n".join(lines))
    assert tfcovr(tmp_path, source=str(tmp_path)) == 0
    compared = statistics(tmp_path / "built")
    (path,) = (tmp_path / "built" / "source").glob("test-*.parquet")
    assert compared["test"]["rows"]["here"] == pq.read_table(path).num_rows > 0
    assert compared["clips"]["labels"] == {"paper": 306, "here": 3, "difference": -303}
    assert compared["clips"]["seconds_mean"]["here"] == pytest.approx(0.9)
    assert {name: row["here"] for name, row in compared["finegym"].items()} == {
        "labels": 3, "clips": 60, "videos": 20, "seconds_mean": pytest.approx(0.9),
    }  # fmt: skip
    given = {"dataset_config": "source", "data_dir": str(tmp_path / "built"), "output_dir": str(tmp_path / "analysis")}
    run(AnalyzeTFCoVRConfig(**given))
    again = statistics(tmp_path / "analysis")
    assert again["finegym"].pop("seconds_mean")["here"] == pytest.approx(0.9)
    del compared["finegym"]["seconds_mean"]
    assert again["finegym"] == compared["finegym"]
    assert again["texts"] == compared["texts"]


def test_a_dry_run_prints_the_price_without_a_network_call(tmp_path, monkeypatch, capsys):
    def refuse(*_):
        raise AssertionError("a dry run must not connect")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert tfcovr(tmp_path, dry_run=True, model="gpt-4o", max_output_tokens=100) == 0
    shown = capsys.readouterr().out
    low, high = map(float, re.search(r"total.*?([\d.]+) to\s+([\d.]+)\s*│\n", shown).groups())
    assert 0 < low < high
    assert "20 to 40" in shown  # requests
    assert "Prices of 20" in shown
    assert list(tmp_path.iterdir()) == []


def test_a_chat_model_that_writes_the_same_builds_the_same_rows_through_30_percent_faults(tmp_path, offline):
    faults = iter(range(10**6))
    with ChatServer(writes, lambda body, times: "server_error" if next(faults) % 10 in {0, 3, 7} else None) as server:
        assert tfcovr(tmp_path, server) == 0
        assert texts(tmp_path / "built") == offline
        asked = sum(server.asked.values())
        # A finished build runs again without a request, and replaces its folder.
        assert tfcovr(tmp_path, server) == 0
        assert sum(server.asked.values()) == asked
    assert tfcovr(tmp_path, model="m", offline=True) == 0
    assert texts(tmp_path / "built") == offline
    assert results(tmp_path / "built")["figures"]["cached"] == 20


def test_the_budget_leaves_a_marked_part_that_a_second_run_completes(tmp_path, offline, capsys):
    priced = {"input_usd": 10.0, "output_usd": 100.0, "max_output_tokens": 20}
    with ChatServer(writes) as server:
        assert tfcovr(tmp_path, server, **priced, max_usd=0.15) == 1
        assert "budget of $0.15 is used up" in capsys.readouterr().err
        part = results(tmp_path / "built")
        assert not part["complete"]
        assert 0 < part["figures"]["usd"] <= 0.15
        assert "INCOMPLETE" in (tmp_path / "built" / "README.md").read_text()
        assert tfcovr(tmp_path, server, **priced) == 0
        assert set(server.answered.values()) == {1}
    assert texts(tmp_path / "built") == offline


def test_after_kill_9_the_build_is_the_same(tmp_path, offline, warm_python):
    places = ["--output-dir", tmp_path / "built", "--cache", tmp_path / "answers.sqlite", "--limit", "20"]
    with ChatServer(writes) as server:
        server.gate, server.gate_after = threading.Event(), 8
        killed = warm_python.start([*typed("build_tfcovr"), *places, "--model", "m", "--base-url", server.url])
        deadline = time.monotonic() + 120
        while server.at_once < 8 or sum(server.answered.values()) < 8:
            assert time.monotonic() < deadline, "the build did not start"
            time.sleep(0.05)
        time.sleep(0.3)
        killed.kill()
        killed.wait(60)
        assert not (tmp_path / "built").exists()
        time.sleep(0.1)
        server.gate.set()
        assert tfcovr(tmp_path, server) == 0
        assert set(server.answered.values()) == {1}
    assert texts(tmp_path / "built") == offline


def test_the_api_key_appears_nowhere(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MY_KEY", CANARY)
    with ChatServer(writes) as server:
        assert tfcovr(tmp_path, server, api_key_env="MY_KEY") == 0
        assert CANARY in server.headers[0]["Authorization"]
    with ChatServer(writes, lambda body, times: "bad_key") as server:  # its message repeats the header
        assert tfcovr(tmp_path, server, api_key_env="MY_KEY", cache=str(tmp_path / "other.sqlite")) == 1
    shown = capsys.readouterr()
    assert "the API key is wrong or missing" in shown.err
    assert CANARY not in shown.out + shown.err
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dry-run"], "name it with --model"),
        (["--model", "m", "--base-url", "http://user:word@host/v1"], "carries a password"),
        (["--model", "unlisted", "--max-usd", "1"], "no price is listed for 'unlisted'"),
        (["--source", "/nowhere"], "/nowhere"),
        (["--model", "m", "--max-concurrency", "0"], "max_concurrency is 0"),
        (["--model", "m", "--prompts", "paper", "--data-dir", "mine"], "--prompts paper is for TF-CoVR's labels"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_status_2(tmp_path, capsys, words, message):
    words = [*words, "--output-dir", str(tmp_path / "built"), "--cache", str(tmp_path / "answers.sqlite"), "--quiet"]
    try:
        config = parse_config(build_tfcovr.BuildTFCoVRConfig, build_tfcovr.__doc__, words)
        status = run_recipe(partial(run_build, build_tfcovr.main), config)
    except SystemExit as end:
        status = end.code
    error = capsys.readouterr().err
    assert status == 2
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "built").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "built").mkdir()
    (tmp_path / "built" / "thesis.tex").write_text("all my work")
    assert tfcovr(tmp_path) == 2
    assert "something else than a build" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "built").iterdir()] == ["thesis.tex"]


def test_videocomp_is_built_with_every_disruption_and_decision_and_its_counts_stand_beside_table_1(tmp_path, capsys):
    assert comp(tmp_path) == 0
    rows = texts(tmp_path / "built")
    of_one = {row["disruption_type"]: row for row in rows if row["video_id"] == "v_1"}
    assert {"temporal_reorder", "segment_mismatch"} <= set(of_one)
    reordered = of_one["temporal_reorder"]
    order = json.loads(reordered["decision"])["order"]
    said = [reordered["negative_text"].find(word) for word in ("lifts", "throws", "drinks")]
    assert [said.index(position) for position in sorted(said)] == order
    mismatch = of_one["segment_mismatch"]
    start, end = json.loads(mismatch["decision"])["shown"]
    spans = CAPTIONS["v_1"]["timestamps"]
    assert (mismatch["query_start_seconds"], mismatch["query_end_seconds"]) == (spans[start][0], spans[end - 1][1])
    candidates = re.findall(r"Candidate \d: (.*)", reordered["question"])
    assert candidates[int(reordered["answer"]) - 1] == reordered["positive_text"]
    reasons = {(row["step"], row["reason"]) for row in rejected(tmp_path)}
    assert ("train: annotated videos", "empty caption: train.json") in reasons
    assert ("train: videos of several events", "fewer than two events") in reasons
    kinds = [row["disruption_type"] for row in rows]
    reordered, total = kinds.count("temporal_reorder"), len(kinds) - kinds.count("multi")
    compared = statistics(tmp_path / "built")
    assert list(compared) == ["activitynet_comp/train"]
    of_train = compared["activitynet_comp/train"]
    assert of_train["temporal_reorder"] == {"paper": 5995, "here": reordered, "difference": reordered - 5995}
    assert of_train["total"]["paper"] - 16_080 == of_train["total"]["here"] - total == 0
    assert "activitynet_comp/train: total" in capsys.readouterr().out
    assert f"* train, temporal_reorder: {reordered}" in (tmp_path / "built" / "README.md").read_text()


def test_videocomp_is_built_by_a_chat_model_within_the_rule_on_words(tmp_path):
    def answer(body):
        if "Select one key word" in body["messages"][0]["content"]:
            return "Something else entirely."
        return json.dumps({"paragraph": asked_of(body)["paragraph"]})

    with ChatServer(answer) as server:
        assert comp(tmp_path, server, max_answers=1) == 1
    rows = texts(tmp_path / "built")
    assert {row["disruption_type"] for row in rows} == {"temporal_reorder", "segment_mismatch", "multi"}
    combined = [json.loads(row["decision"])["kinds"] for row in rows if row["disruption_type"] == "multi"]
    assert combined == [["temporal_reorder", "segment_mismatch"]]  # no action was replaced
    assert any(row["reason"].startswith("changes too many words: precision 0.00") for row in rejected(tmp_path))


def test_with_the_papers_prompts_the_model_orders_the_events_and_the_card_says_whose_they_are(tmp_path):
    def answer(body):
        system, asked = body["messages"][0]["content"], body["messages"][-1]["content"]
        if system.startswith("Randomly reorder"):
            assert "response_format" not in body
            *first, last = asked.removesuffix(".").split(". ")
            return ". ".join([last, *first]) + "."
        return json.dumps({"paragraph": json.loads(asked)["paragraph"]})

    with ChatServer(answer) as server:
        comp(tmp_path, server, max_answers=1, prompts="paper")
    rows = {(row["video_id"], row["disruption_type"]): row for row in texts(tmp_path / "built")}
    row = rows["v_1", "temporal_reorder"]
    assert json.loads(row["decision"])["order"] == [2, 0, 1]
    assert row["negative_text"].startswith("He drinks water. A man lifts")
    assert "prompts: as the paper prints them" in (tmp_path / "built" / "README.md").read_text()
    written = results(tmp_path / "built")
    assert written["config"]["prompts"] == "paper"
    assert any(text.startswith("Randomly reorder") for text in written["prompts"]["comp-reordering"].values())


def test_fine_captions_are_built_offline_from_what_other_captions_say(tmp_path):
    assert fig(tmp_path) == 0
    rows = {row["desc_id"]: row for row in pq.read_table(tmp_path / "built" / "source").to_pylist()}
    assert set(rows) == {1, 2}
    kinds = dict(zip(rows[1]["candidates"], rows[1]["candidate_kinds"], strict=True))
    assert kinds["a person opens the brown bag before a person drinks from a glass."] == "dynamic"
    assert kinds["a person opens the brown bag in a place with a glass."] == "static"
    assert kinds[rows[1]["fine_caption"]] == rows[1]["kind"]
    left_out = {(row["step"], row["key"], row["reason"]) for row in rejected(tmp_path)}
    assert ("test: moments", "charades_fig_test.jsonl:4") in {(step, key) for step, key, _ in left_out}
    assert ("bbbbb/3", "no candidate") in {(key, reason) for _, key, reason in left_out}
    compared = statistics(tmp_path / "built")
    kind = Counter(row["kind"] for row in rows.values())
    assert {name: row["here"] for name, row in compared["charades_fig"].items()} == {
        "moments": 2, "span_seconds": 1.0, **kind,
    }  # fmt: skip
    assert compared["charades_fig/test"]["moments"] == {"paper": 3720, "here": 2, "difference": -3718}


def test_fine_captions_of_a_chat_model_come_from_the_frames_it_is_sent(tmp_path, monkeypatch):
    # The extra `keyframes` finds them; here it does not matter which they are.
    monkeypatch.setattr("hf_datasets.fig.construction.keyframe_seconds", lambda path, start, end: [(start + end) / 2])

    def answer(body):
        system = body["messages"][0]["content"]
        answers = {
            "You see one image": "Background: a kitchen\nObjects Attributes: a red shirt\nDesc: A person in a kitchen.",
            "Enrich the caption": '{"original": "x", "1": "A person in a red shirt in a kitchen."}',
            "You are given a coarse": "1. a? 2. b? 3. c? 4. d? 5. e?",
            "You see the frames": "1. a 2. b 3. c 4. d 5. e\n\nIt moves left.",
            "A caption describes a moment": "1. A person opens the brown bag and turns left. 2. A person turns left.",
        }
        return next((text for start, text in answers.items() if system.startswith(start)), "1. A person sleeps.")

    with ChatServer(answer) as server:
        assert fig(tmp_path, server) == 0
    rows = {row["desc_id"]: row for row in pq.read_table(tmp_path / "built" / "source").to_pylist()}
    assert set(rows) == {1, 2}
    assert "A person in a red shirt in a kitchen." in rows[1]["candidates"]
    images = [body for body in server.bodies if "image_url" in str(body["messages"][-1]["content"])]
    assert {len(body["messages"][-1]["content"]) - 1 for body in images} == {1, 2}
    assert any(row["key"] == "bbbbb/3" and row["reason"].startswith("no keyframes: ") for row in rejected(tmp_path))


def test_keyframes_are_the_middles_of_the_scenes(tmp_path):
    missing = "the extra `keyframes` is not installed, or OpenCV cannot start"
    pytest.importorskip("scenedetect", reason=missing, exc_type=ImportError)
    path = tmp_path / "two-scenes.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(120):
            shade = np.full((48, 64, 3), 30 if number < 25 else 200, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(shade, format="rgb24")))
        container.mux(stream.encode())
    assert keyframe_seconds(path, 0.0, 5.0) == pytest.approx([1.25, 3.75], abs=0.11)
    assert keyframe_seconds(path, 6.0, 9.0) == [7.5]
    assert keyframe_seconds(path, 0, 5) == keyframe_seconds(path, 0.0, 5.0)  # PySceneDetect counts integers in frames
    with pytest.raises(ValueError, match="begins at 20"):
        keyframe_seconds(path, 20.0, 25.0)


def test_only_pairs_that_people_keep_are_built(tmp_path, capsys):
    sheet = tmp_path / "pairs.csv"
    reviewed = {"pairs": str(sheet), "limit": None}
    assert tfcovr(tmp_path, **reviewed) == 0
    assert "pairs to review; write yes or no into the column keep" in capsys.readouterr().out
    assert not (tmp_path / "built").exists()
    table = pl.read_csv(sheet, infer_schema=False)
    assert (table["keep"].fill_null("") == "").all()
    kept = pl.int_range(pl.len()) % 3 == 0
    table = table.with_columns(keep=pl.when(kept).then(pl.lit("Yes")).otherwise(pl.lit("n")))
    half = table.with_columns(keep=pl.when(pl.int_range(pl.len()) < 5).then("keep").otherwise(None))
    half.write_csv(sheet)
    assert tfcovr(tmp_path, **reviewed) != 0
    message = f"{len(table) - 5:,} of {len(table):,} pairs are undecided, the first "
    assert message in capsys.readouterr().err
    added = {"source": "40", "target": "none", "similarity": "0.9", "keep": "yes"}
    pl.concat([table, pl.DataFrame([added])], how="diagonal").write_csv(sheet)
    assert tfcovr(tmp_path, **reviewed) == 0
    answers = answers_of()  # a label stands for those that read the same
    wanted = {tuple(answers[one] for one in pair) for pair in table.filter(kept).select("source", "target").iter_rows()}
    built = {(answers[row["query_label"]], answers[row["target_label"]]) for row in texts(tmp_path / "built")}
    assert built <= wanted
    assert len(built) > len(wanted) / 2
    reasons = pl.read_parquet(tmp_path / "built" / "rejections.parquet")["reason"].to_list()
    assert reasons.count("dropped in the review of pairs") == len(table) - table.filter(kept).height
    assert "no clip has the label 'none' of pairs.csv" in reasons


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [("keep", "maybe", "keep 'maybe'; write yes or no"), ("similarity", "high", "similarity 'high'; it is a number")],
)
def test_a_sheet_that_says_neither_yes_nor_no_is_refused(tmp_path, capsys, column, value, message):
    row = {"source": "40", "target": "41", "similarity": "0.9", "keep": "yes"} | {column: value}
    pl.DataFrame([row]).write_csv(tmp_path / "pairs.csv")
    assert tfcovr(tmp_path, pairs=str(tmp_path / "pairs.csv")) != 0
    assert message in capsys.readouterr().err
