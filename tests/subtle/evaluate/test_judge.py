"""The judge against a loopback server: prompt, frames as images, shuffled candidates, prose, resume, price."""

import base64
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from chat_server import ChatServer
from PIL import Image

from hf_datasets.comp.contrasts import Span
from hf_datasets.comp.counterfactuals import Counterfactual
from hf_datasets.comp.judge import JudgedPair, JudgedVideos, JudgeTask, Verdict, VideoJudgeTask
from subtle.comp.data import ContrastConfig, load_rows, pairs_of
from subtle.evaluate.judge import main, scores_of_pairs
from subtle.evaluate.options import JudgeConfig


@pytest.fixture
def config(tiny_comp, tmp_path):
    def make(server=None, **changes):
        chat = {"model": "tiny-judge", "base_url": server.url} if server else {}
        places = {"cache": str(tmp_path / "answers.sqlite"), "output_dir": str(tmp_path / "judge")}
        given = {"data_dir": tiny_comp["data_dir"], "num_frames": 3, "quiet": True}
        return JudgeConfig(**places | given | chat | changes)

    return make


@pytest.fixture
def rows(tiny_comp):
    return load_rows(ContrastConfig(data_dir=tiny_comp["data_dir"]), "test")[0]


def results(config):
    return json.loads(Path(config.output_dir, "results.json").read_text())


def table(config, name):
    return pq.read_table(Path(config.output_dir, f"{name}.parquet")).to_pylist()


def truth(rows):
    """A judge that reads the answer off the data."""
    right = {(row["positive_text"], row["negative_text"]) for row in rows}

    def answer(body):
        lines = body["messages"][-1]["content"][-1]["text"].splitlines()
        first, second = (line.partition(": ")[2] for line in lines[1:3])
        return "1" if (first, second) in right else "2"

    return answer


def test_a_judge_that_knows_the_answers_is_right_and_gets_frames_and_the_papers_prompt(config, rows):
    with ChatServer(answer=truth(rows)) as server:
        one = config(server)
        assert main(one) == 0
        content = server.bodies[0]["messages"][-1]["content"]
    assert results(one)["figures"]["comprehensive_accuracy"] == 1.0
    assert [part["type"] for part in content] == ["image_url"] * 3 + ["text"]
    data = base64.b64decode(content[0]["image_url"]["url"].partition(",")[2])
    assert Image.open(io.BytesIO(data)).size == (32, 32)
    text = content[-1]["text"]
    assert text.startswith("Given the video and two text candidates, your task is to determine which paragraph")
    assert text.endswith('Answer with "1" or "2" only.')


@pytest.mark.parametrize("leave_out", [False, True])
def test_prose_is_counted_with_its_reason_and_is_wrong_unless_it_is_left_out(config, rows, leave_out):
    right = truth(rows)
    prose = rows[0]["positive_text"]

    def answer(body):
        text = body["messages"][-1]["content"][-1]["text"]
        return "Candidate 1, I think." if prose in text else right(body)

    with ChatServer(answer=answer) as server:
        one = config(server, leave_out_unreadable=leave_out)
        assert main(one) == 0
    refused = table(one, "rejections")
    assert refused
    assert {row["reason"] for row in refused} == {"the answer is not 1 or 2"}
    assert {row["raw"] for row in refused} == {"Candidate 1, I think."}
    found = results(one)
    assert found["coverage"]["unreadable or failed"] == len(refused)
    assert found["coverage"]["unreadable, counted as wrong"] == (0 if leave_out else len(refused))
    assert found["coverage"]["answered"] + len(refused) == len(rows)
    keys = {row["key"] for row in refused}
    for kind in {row["disruption_type"] for row in rows}:
        of_kind = [row["key"] in keys for row in rows if row["disruption_type"] == kind]
        expected = 1.0 if leave_out else 1 - sum(of_kind) / len(of_kind)
        assert found["figures"][f"accuracy/{kind}"] == pytest.approx(expected)


def test_the_question_and_the_order_of_the_data_are_asked(rows):
    row = rows[0]
    given = JudgedPair(row["key"], "multi", "A.", "B.", asked=("Which of A. and B.?", "2"))
    assert (given.prompt, given.answer) == ("Which of A. and B.?", "2")
    assert row["question"].splitlines()[int(row["answer"])] == f"Candidate {row['answer']}: {row['positive_text']}"


def test_a_second_run_sends_no_request_and_another_seed_shuffles_again(config, rows):
    with ChatServer(answer=lambda body: "(1)") as server:
        assert main(config(server)) == 0
        asked = len(server.bodies)
        assert asked == len(rows)
        assert main(config(server)) == 0
        assert len(server.bodies) == asked
        assert main(config(server, seed=1)) == 0
        assert len(server.bodies) == asked  # the data's own questions have no seed
        for seed in (0, 1):
            assert main(config(server, seed=seed, own_questions=True)) == 0
        assert asked < len(server.bodies) < 3 * asked  # pairs whose order stayed are answered from the cache
    right = [row["given"] == row["answer"] for row in table(config(), "verdicts")]
    assert 0.2 < sum(right) / len(right) < 0.8


def test_a_dry_run_prints_the_price_and_sends_no_request(config, capsys):
    assert main(config(model="gpt-4o", dry_run=True)) == 0
    assert "Dry run: no network call was made" in capsys.readouterr().out
    assert not Path(config().output_dir).exists()


def test_without_a_model_the_longer_text_wins(config, rows):
    one = config()
    assert main(one) == 0
    kind = "segment_mismatch"
    longer = [len(row["positive_text"]) > len(row["negative_text"]) for row in rows if row["disruption_type"] == kind]
    expected = sum(longer) / len(longer)
    assert results(one)["figures"][f"accuracy/{kind}"] == pytest.approx(expected, abs=0.13)  # ties take the first


def test_candidates_are_shuffled_by_key_and_seed():
    for pairs in (
        [JudgedPair(f"k{number}", "multi", "A.", "B.") for number in range(200)],
        [JudgedPair("k", "multi", "A.", "B.", seed) for seed in range(200)],
    ):
        assert 70 < [pair.answer for pair in pairs].count("1") < 130
        for pair in pairs[:20]:
            assert pair.prompt.splitlines()[int(pair.answer)] == f"Candidate {pair.answer}: A."


@pytest.mark.parametrize("answer", ["1", "(1)", " 1\n", "2", "(2)"])
def test_bare_and_bracketed_digits_are_answers(answer):
    pair = JudgedPair("k", "multi", "A.", "B.")
    assert JudgeTask(lambda pair: []).parse(pair, answer).given == answer.strip(" \n()")


def test_a_pair_without_frames_is_an_error():
    with pytest.raises(ValueError, match="'k' has no frames"):
        JudgeTask(lambda pair: []).messages(JudgedPair("k", "multi", "A.", "B."))


def test_a_judge_that_never_answers_leaves_its_replies_and_no_metric(config, rows, capsys):
    with ChatServer(answer=lambda body: "Both are plausible.") as server:
        one = config(server)
        for _ in range(2):  # the second run finds the first one's folder, and the answers
            assert main(one) == 1
        assert len(server.bodies) == len(rows)
    assert "no answer can be read" in capsys.readouterr().err
    found = results(one)
    assert found["coverage"]["unreadable or failed"] == len(rows)
    assert not any("accuracy" in name for name in found["figures"])
    refused = table(one, "rejections")
    assert [row["key"] for row in refused] == [row["key"] for row in rows]


def test_four_questions_of_a_pair_give_text_video_and_group_score(config, rows):
    pairs, _ = pairs_of(rows)
    texts = {text for pair in pairs for text in pair.texts}

    def answer(body):
        *parts, question = body["messages"][-1]["content"]
        lines = question["text"].splitlines()
        if sum(part["type"] == "image_url" for part in parts) == 3:
            return "2"
        assert [part.get("text") for part in parts if part["type"] == "text"] == ["Video 1:", "Video 2:"]
        assert lines[1].partition(": ")[2] in texts
        return "1"

    with ChatServer(answer=answer) as server:
        one = config(server, counterfactual=True)
        assert main(one) == 0
        asked = len(server.bodies)
    verdicts = {row["key"]: row for row in table(one, "verdicts")}
    assert asked == len(verdicts) == len(rows) + 3 * len(pairs)
    right = {key: row["given"] == row["answer"] for key, row in verdicts.items()}
    four = [[right[f"{pair.key}{end}"] for end in ("", "/told", "/text 0", "/text 1")] for pair in pairs]
    found = results(one)
    expected = ([a and b for a, b, *_ in four], [c and d for *_, c, d in four], [all(one) for one in four])
    for score, values in zip(("text_score", "video_score", "group_score"), expected, strict=True):
        assert found["figures"][score] == sum(values) / len(pairs)
    assert found["coverage"]["counterfactual answered"] == found["coverage"]["counterfactual pairs"] == len(pairs)
    assert found["coverage"]["asked"] == len(rows)


def test_the_two_videos_are_shuffled_and_the_right_one_comes_where_the_answer_says():
    judged = [JudgedVideos(str(key), "He runs.") for key in range(60)]
    assert 20 < sum(one.answer == "1" for one in judged) < 40
    task = VideoJudgeTask(lambda one: ([{"type": "text", "text": "right"}], [{"type": "text", "text": "wrong"}]))
    for one in judged:
        first, second = (part["text"] for part in task.messages(one)[0]["content"][1:4:2])
        assert (first if one.answer == "1" else second) == "right"
        assert task.parse(one, f"({one.answer})").given == one.answer
    assert task.parse(judged[0], "the first").reason == "the answer is not 1 or 2"
    with pytest.raises(ValueError, match="a video of '0' has no frames"):
        VideoJudgeTask(lambda one: ([{}], [])).messages(judged[0])


def test_a_pair_with_an_unreadable_answer_is_in_no_score():
    pairs = [Counterfactual(key, (Span("v", 0, 1), Span("v", 1, 2)), ("a", "b")) for key in ("x", "y")]
    ends = ("", "/told", "/text 0", "/text 1")
    verdicts = [Verdict(f"x{end}", "segment_mismatch", "1", "2" if end == "/text 1" else "1") for end in ends]
    verdicts += [Verdict(f"y{end}", "segment_mismatch", "1", "1") for end in ends[:3]]
    assert scores_of_pairs(pairs, verdicts) == ({"text_score": 1.0, "video_score": 0.0, "group_score": 0.0}, 1)
    assert scores_of_pairs(pairs, verdicts[4:]) == ({}, 0)
