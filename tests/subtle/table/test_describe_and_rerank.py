"""Describe, retrieve, re-rank against a loopback server: requests, price, scores, answers that are none, and a kill."""

import json
import socket
import threading
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from chat_server import ChatServer

from hf_datasets.generation.chat import Answer
from hf_datasets.generation.generate import generate
from hf_datasets.generation.images import image_part
from hf_datasets.generation.openai_chat import OpenAIChat
from hf_datasets.generation.prices import Meter
from hf_datasets.generation.relevance import INSTRUCTIONS, PairToScore, RelevanceTask
from hf_datasets.records import Rejection
from subtle.options import run_recipe
from subtle.table import caption_texts
from subtle.table.describe_and_rerank import RERANKED, RETRIEVED
from subtle.table.options import DescribeAndRerankConfig
from subtle.table.reranking import ClipImages, RankedCandidate, label_score, rerank, to_score
from subtle.table.table import main
from tests.fixtures import small_encoders
from tests.fixtures.small_encoders import save_small

QUERIES, SHORTLIST = 36, 3
FRENCH = "Le plongeur saute du tremplin de trois mètres et fait deux tours avant d'entrer dans l'eau."
NO_SCORES = {
    "It fits quite well, I would say.": "the answer is no JSON object with a score alone",
    "I'm sorry, I can't help with that.": "refused by the model",
    FRENCH: "is in another language than English",
    '{"score": 11}': "the score is outside 0 to 10",
    '{"score": "7"}': "the answer is no JSON object with a score alone",
}
NO_DESCRIPTIONS = {
    '{"target_description": "  "}': "the description is empty",
    "It is the same clip in red.": "holds no target_description",
    "I cannot help with that.": "refused by the model",
    json.dumps({"target_description": FRENCH}): "is in another language than English",
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of a small CLIP that retrieves and of a small BLIP that matches."""
    root = tmp_path_factory.mktemp("models")
    return {name: save_small(getattr(small_encoders, name), root / name) for name in ("clip", "blip")}


@pytest.fixture
def options(tiny, models, tmp_path):
    names = {"output_dir": str(tmp_path / "out"), "cache": str(tmp_path / "answers.sqlite")}
    work = {"num_workers": 0, "device": "cpu", "quiet": True, "num_frames": 2, "max_answers": 1}
    return {"dataset": tiny["dataset"], "encoder": models["clip"], "shortlist": SHORTLIST, **names, **work}


@pytest.fixture
def call(options, caches):
    """Run the recipe as the command would; the exit status."""

    def make(server=None, **changes):
        chat = {"model": "tiny", "base_url": server.url} if server else {}
        config = DescribeAndRerankConfig(**options | chat | changes)
        return run_recipe(main, config)

    return make


def results(options):
    return json.loads(Path(options["output_dir"], "results.json").read_text())


def answers(options, name="rejections"):
    return pl.read_parquet(Path(options["output_dir"], "answers", f"{name}.parquet"))


def is_judging(body):
    return body["messages"][0]["content"] == INSTRUCTIONS


def color_asked(body):
    return body["messages"][-1]["content"][-1]["text"].split("show ")[1].strip('"}\n').split("\n")[0]


def answer(body):
    """A usable answer."""
    if is_judging(body):
        images = [part["image_url"]["url"] for part in body["messages"][-1]["content"] if part["type"] == "image_url"]
        return json.dumps({"score": sum(map(ord, images[-1])) % 11})
    return json.dumps({"target_description": f"show {color_asked(body)}"})


def test_without_a_model_both_steps_are_upper_bounds_by_the_labels(call, options):
    assert call(shortlist=12) == 0
    found = results(options)
    assert list(found["figures"]) == [RETRIEVED, RERANKED]
    assert found["figures"][RERANKED]["map@50"] == 1.0 > found["figures"][RETRIEVED]["map@50"]
    columns = found["rows"][RERANKED]["columns"]
    assert (columns["descriptions"], columns["re-ranker"]) == ("label captions", "label attributes (upper bound)")
    assert answers(options).height == 0
    again = {**options, "output_dir": options["output_dir"] + "-again"}
    rewritten = str(Path(options["output_dir"], "answers", "rewritten.parquet"))
    assert call(rewritten=rewritten, shortlist=0, output_dir=again["output_dir"]) == 0
    assert results(again)["figures"] == {RETRIEVED: found["figures"][RETRIEVED]}


def test_attributes_that_agree_are_counted_and_other_vocabularies_are_all_or_nothing():
    switch_leap = {"label": "45", "description": None}
    assert label_score(switch_leap, "45", {}) == 10 > label_score(switch_leap, "40", {}) > 0
    assert label_score({"label": "mine", "description": "a serve"}, "mine", {"mine": "a serve"}) == 10
    assert label_score({"label": "mine", "description": "a serve"}, "other", {}) == 0
    assert label_score({"label": None, "description": None}, "45", {}) is None


def test_the_scores_of_the_model_order_the_shortlist_and_a_second_run_asks_nothing(call, options, capsys):
    with ChatServer(answer=answer) as server:
        assert call(server) == 0
        asked = Counter(map(is_judging, server.bodies))
        assert asked == {False: QUERIES, True: QUERIES * SHORTLIST}
        images = [
            sum(part["type"] == "image_url" for part in body["messages"][-1]["content"]) for body in server.bodies
        ]
        assert set(images) == {2, 4}
        assert call(server) == 0
        assert len(server.bodies) == QUERIES * (1 + SHORTLIST)
        assert call(server, shortlist=2) != 0
        assert "measured with other shortlist; name another --output_dir" in " ".join(capsys.readouterr().err.split())
    table = pl.read_parquet(Path(options["output_dir"], "predictions.parquet"))
    for row in table.iter_rows(named=True):
        assert row["description"] == row["modification_text"]
        assert row["rerank_scores"] == sorted(row["rerank_scores"], reverse=True)
        assert set(row["ranked_clip_ids"][:SHORTLIST]) == set(row["retrieved_clip_ids"][:SHORTLIST])
        assert row["ranked_clip_ids"][SHORTLIST:] == row["retrieved_clip_ids"][SHORTLIST:]
        assert row["query_clip_id"] not in row["ranked_clip_ids"]
    counts = json.loads(Path(options["output_dir"], "answers", "results.json").read_text())
    assert counts["figures"]["tiny"]["cached"] == QUERIES * (1 + SHORTLIST)


def test_answers_that_are_none_are_counted_and_their_clips_keep_their_place(call, options, monkeypatch):
    given, lock = Counter(), threading.Lock()

    def odd(body):
        judging = is_judging(body)
        if not judging and color_asked(body) != "grey":
            return answer(body)
        kinds = [*NO_SCORES, '{"score": 9}', '{"score": 2}'] if judging else [*NO_DESCRIPTIONS]
        with lock:
            text = kinds[sum(given[kind] for kind in kinds) % len(kinds)]
            given[text] += 1
        return text

    with ChatServer(answer=odd) as server:
        assert call(server) == 1  # a quarter of the queries has no description
        assert "27 of 36 captions are usable" in results(options)["failed"][RETRIEVED]
        monkeypatch.setattr(caption_texts, "LEAST_SHARE", 0.5)
        assert call(server) == 0
    refused = answers(options)
    wanted = Counter()
    for text, reason in (NO_SCORES | NO_DESCRIPTIONS).items():
        wanted[reason] += given[text]
    assert Counter(refused["reason"]) == wanted
    assert all(refused["key"])
    assert all(refused["raw"])
    table = pl.read_parquet(Path(options["output_dir"], "predictions.parquet"))
    assert table.height == 27
    for row in table.iter_rows(named=True):
        places = zip(row["rerank_scores"], row["ranked_clip_ids"], row["retrieved_clip_ids"], strict=False)
        assert all(ranked == before for score, ranked, before in places if score is None)
    columns = results(options)["rows"][RERANKED]["columns"]
    judged = given['{"score": 9}'] + given['{"score": 2}']
    assert (columns["queries"], columns["judged"]) == ("27 of 36", f"{judged} of 81 clips")


def test_no_usable_score_and_an_empty_budget_are_reasons_and_not_figures(call, options):
    with ChatServer(answer=lambda body: "Well." if is_judging(body) else answer(body)) as server:
        assert call(server) == 1
        assert list(results(options)["figures"]) == [RETRIEVED]
        assert "no clip could be judged" in results(options)["failed"][RERANKED]
    other = {**options, "output_dir": options["output_dir"] + "-budget"}
    with ChatServer(answer=answer) as server:
        prices = {"input_usd": 100.0, "output_usd": 0.0, "max_usd": 0.2, "max_concurrency": 1}
        assert call(server, cache=options["cache"] + "-2", output_dir=other["output_dir"], **prices) == 1
        assert len(server.bodies) < QUERIES
    assert results(other)["failed"][RETRIEVED].startswith("the budget of $0.2 is used up")
    assert results(other)["figures"] == {}


def test_captions_that_are_rewritten_take_one_request_for_each_clip_and_one_for_each_query(call, options):
    def two_steps(body):
        if is_judging(body):
            return answer(body)
        last = body["messages"][-1]["content"]
        return json.dumps({"target_caption": json.loads(last)["modification_text"]}) if isinstance(last, str) else "red"

    with ChatServer(answer=two_steps) as server:
        asked = {"describe": "captions", "sport": "diving", "any_form": True, "max_queries": 9, "seed": 3}
        assert call(server, **asked) == 0
        kinds = Counter(is_judging(body) for body in server.bodies)
        first = [
            body
            for body in server.bodies
            if not is_judging(body) and not isinstance(body["messages"][-1]["content"], str)
        ]
        table = pl.read_parquet(Path(options["output_dir"], "predictions.parquet"))
        assert len(first) == table["query_clip_id"].n_unique()
        assert kinds[True] == 9 * SHORTLIST
        assert table["description"].to_list() == table["modification_text"].to_list()
        assert call(server, **asked | {"sport": None, "output_dir": options["output_dir"] + "-2"}) == 1
    assert set(pl.read_parquet(options["output_dir"] + "-2/answers/rejections.parquet")["reason"]) == {
        "no label of TF-CoVR says the sport; give --sport",
        "its clip has no caption",
    }


def test_another_model_and_a_cross_encoder_re_rank(call, options, models):
    with ChatServer(answer=answer) as server:
        assert call(server, reranker="judge", max_queries=4) == 0
        assert all((body["model"] == "judge") == is_judging(body) for body in server.bodies)
        assert sum(map(is_judging, server.bodies)) == 4 * SHORTLIST
    changed = {**options, "output_dir": options["output_dir"] + "-matcher"}
    assert call(matcher=models["blip"], output_dir=changed["output_dir"]) == 0
    assert results(changed)["rows"][RERANKED]["columns"]["judged"] == "108 of 108 clips"
    with pytest.raises(SystemExit, match="is not a model folder"):
        call(matcher="no/such/folder", output_dir=changed["output_dir"])


@pytest.mark.parametrize("way", ["frames", "captions"])
def test_a_dry_run_counts_the_requests_of_each_step_and_connects_to_nothing(call, options, capsys, monkeypatch, way):
    def refuse(*_):
        raise AssertionError("a dry run must not connect")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    capsys.readouterr()
    assert call(model="gpt-4o", dry_run=True, describe=way, sport="diving", max_queries=10) == 0
    shown = [line.replace("│", " ").split() for line in capsys.readouterr().out.splitlines()]
    requests = {line[0]: line[3] for line in shown if len(line) > 5 and line[0] in ("descriptions", "re-ranking")}
    assert requests["re-ranking"] == str(10 * SHORTLIST)
    assert way == "captions" or requests["descriptions"] == "10"
    assert not Path(options["output_dir"]).exists()


class DirectChat:
    """A back end without a server: a function from the messages to the answer."""

    model, sampling, window, keeps_answers = "direct", {}, 4, False

    def __init__(self, says):
        self.says, self.meter = says, Meter(None)

    async def answer(self, request):
        return Answer(self.says({"messages": request.messages}))


def test_two_back_ends_give_the_same_pairs_the_same_scores():
    parts = [[image_part(np.full((3, 8, 8), level, np.uint8))] for level in (0, 90, 250)]
    pairs = [
        PairToScore(f"p{n}", "slower", partial(list, parts[0]), partial(list, part)) for n, part in enumerate(parts)
    ]
    with ChatServer(answer=answer) as server:
        served = list(generate(RelevanceTask(), pairs, OpenAIChat("tiny", base_url=server.url, api_key="x")))
    direct = list(generate(RelevanceTask(), pairs, DirectChat(answer)))
    assert served == direct
    assert not any(isinstance(score, Rejection) for score in served)


def test_a_clip_whose_video_is_missing_or_broken_is_named_and_keeps_its_place(tiny, tmp_path):
    whole = next(Path(tiny["dataset"]).parent.glob("videos/test-red-0.mp4"))
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    videos = {"query": str(whole), "lost": None, "broken": str(tmp_path / "broken.mp4"), "whole": str(whole)}
    rows = [
        {"clip_id": name, "video": path, "start_seconds": None, "end_seconds": None} for name, path in videos.items()
    ]
    clips = {row["clip_id"]: row for row in rows}
    query = {"query_id": "q", "query_clip_id": "query", "modification_text": "slower"}
    pairs = [RankedCandidate(query, clips[name]) for name in ("lost", "broken", "whole")]
    asked = [to_score(pair, ClipImages(clips, 2, 64)) for pair in pairs]
    outcomes = list(generate(RelevanceTask(), asked, DirectChat(answer)))
    assert [one.key for one in outcomes if isinstance(one, Rejection)] == ["q lost", "q broken"]
    assert all(one.reason.startswith("no request can be made of this row: ") for one in outcomes[:2])
    assert rerank(["lost", "broken", "whole", "rest"], {"whole": outcomes[2]}, 3)[0] == [
        "lost",
        "broken",
        "whole",
        "rest",
    ]
    assert rerank(["a", "lost", "b", "c"], {"a": 4, "b": 7, "c": 7}, 4) == (["b", "lost", "c", "a"], [7, None, 7, 4])
